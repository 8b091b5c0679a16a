// SPDX-License-Identifier: MIT
/// \file
/// A crash inside a hand-written kernel names the kernel and the task before the process dies.
///
/// Crash signals are handled only while a run of a library with such kernels is in progress. The previous
/// handlers run afterwards. The handler itself calls nothing but write, sigaction and raise.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <iterator>
#include <mutex>
#include <new>
#include <utility>

#include "pto/wsp/forks.hpp"
#include "pto/wsp/native.hpp"

namespace pto::wsp {

/// Where this thread keeps the hand-written kernel that it is in.
inline const NativeCall** current_call() {
  static thread_local const NativeCall* call = nullptr;
  return &call;
}

namespace detail {

struct CrashSignal {
  int number;
  const char* name;
};

inline constexpr CrashSignal kCrashSignals[] = {
    {SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}, {SIGABRT, "SIGABRT"}};
inline constexpr size_t kNumCrashSignals = std::size(kCrashSignals);

inline struct sigaction earlier_actions[kNumCrashSignals];

/// A line of text that is put together without allocating.
class CrashLine {
 public:
  CrashLine& operator<<(const char* text) {
    for (; *text != 0 && length_ < sizeof text_; ++text) text_[length_++] = *text;
    return *this;
  }
  CrashLine& operator<<(uint64_t number) {
    char digits[24];
    char* first = digits + sizeof digits - 1;
    *first = 0;
    do *--first = char('0' + number % 10);
    while ((number /= 10) != 0);
    return *this << first;
  }
  void print() const {
    if (write(STDERR_FILENO, text_, length_) < 0) return;
  }

 private:
  char text_[1024];
  size_t length_ = 0;
};

inline void handle_crash(int number, siginfo_t* info, void*) {
  for (size_t i = 0; i < kNumCrashSignals; ++i) {
    if (kCrashSignals[i].number != number) continue;
    if (const NativeCall* call = *current_call()) {
      CrashLine line;
      line << "pto-wsp: kernel `" << call->kernel << "` (" << call->place << ") crashed in task "
           << call->context->task;
      if (call->context->block_num > 1) line << ", block " << call->context->block_idx;
      (line << ": " << kCrashSignals[i].name << "\n").print();
    }
    sigaction(number, &earlier_actions[i], nullptr);
  }
  // A faulting instruction faults again after the return; a sent signal is sent again.
  if (info->si_code <= 0) raise(number);
}

}  // namespace detail

/// While an instance lives, crashes in hand-written kernels are reported.
class CrashWatch {
 public:
  CrashWatch() {
    const std::lock_guard<std::mutex> lock(mutex());
    if (count()++ > 0) return;
    struct sigaction action{};
    action.sa_sigaction = detail::handle_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < detail::kNumCrashSignals; ++i)
      sigaction(detail::kCrashSignals[i].number, &action, &detail::earlier_actions[i]);
  }
  ~CrashWatch() {
    if (forks_ != num_forks()) return;
    const std::lock_guard<std::mutex> lock(mutex());
    if (--count() == 0) give_back_signals();
  }
  CrashWatch(const CrashWatch&) = delete;
  CrashWatch& operator=(const CrashWatch&) = delete;

 private:
  /// A signal that other code has taken over since stays with that code.
  static void give_back_signals() {
    for (size_t i = 0; i < detail::kNumCrashSignals; ++i) {
      struct sigaction now{};
      const int number = detail::kCrashSignals[i].number;
      if (sigaction(number, nullptr, &now) == 0 && now.sa_sigaction == detail::handle_crash)
        sigaction(number, &detail::earlier_actions[i], nullptr);
    }
  }

  /// The runs of the parent are not under way in a forked child, where another thread may have held the lock.
  static void forget_after_fork() {
    new (&mutex()) std::mutex;
    if (std::exchange(count(), 0) > 0) give_back_signals();
  }

  static std::mutex& mutex() {
    static auto* mutex = [] {
      pthread_atfork(nullptr, nullptr, &CrashWatch::forget_after_fork);
      return new std::mutex;
    }();
    return *mutex;
  }
  static int& count() {
    static int count = 0;
    return count;
  }

  const uint64_t forks_ = num_forks();
};

}  // namespace pto::wsp
