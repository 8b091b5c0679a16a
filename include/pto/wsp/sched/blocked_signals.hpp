// SPDX-License-Identifier: MIT
/// \file
/// Threads of the engine leave signals to the threads of the program.
#pragma once

#include <signal.h>

namespace pto::wsp::sched {

/// Threads that start while one lives handle no signals but those of their own crash. Blocked, those would
/// end the process without a message.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t others;
    sigfillset(&others);
    for (int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&others, crash);
    pthread_sigmask(SIG_SETMASK, &others, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace pto::wsp::sched
