// SPDX-License-Identifier: MIT
/// \file
/// Blocks signals in threads of the engine, so that threads of the program handle them.
#pragma once

#include <signal.h>

namespace pto::wsp::sched {

/// While an instance lives, new threads start with all signals blocked except crash signals. A blocked crash
/// signal would end the process without a message.
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
