// SPDX-License-Identifier: MIT
/// \file
/// Sleep until another thread publishes something, without a lock around what is published.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace pto::wsp::sched {

/// A thread announces that it is about to sleep, looks once more for work, then sleeps. A thread that
/// publishes something wakes one announced thread if there is one. Each wake-up is a token, which any
/// announced thread may take, so a wake-up between the last look and the sleep is not lost.
///
/// A publisher stores its data before it calls `has_waiters` or `notify_one`. Its last store before the call
/// must be sequentially consistent.
class EventCount {
 public:
  using Clock = std::chrono::steady_clock;

  /// Announces that the calling thread is about to sleep. `cancel` or `wait` must follow.
  void prepare() { num_waiters_.fetch_add(1, std::memory_order_seq_cst); }

  /// The thread has found work.
  void cancel() {
    const std::lock_guard<std::mutex> lock(mutex_);
    leave();
  }

  /// Sleeps until a wake-up, or until `timeout` has passed: false.
  bool wait(Clock::duration timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    const bool is_woken = wake_.wait_for(lock, timeout, [this] { return num_tokens_ > 0; });
    if (is_woken) {
      --num_tokens_;
    } else {
      leave();
    }
    return is_woken;
  }

  /// Whether a thread that was not woken yet sleeps or is about to.
  bool has_waiters() const { return num_waiters_.load(std::memory_order_seq_cst) > 0; }

  /// Wakes one thread; false if none sleeps.
  bool notify_one() {
    if (!has_waiters()) return false;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!has_waiters()) return false;
      num_waiters_.fetch_sub(1, std::memory_order_relaxed);
      ++num_tokens_;
    }
    wake_.notify_one();
    return true;
  }

  void notify_all() {
    while (notify_one()) {
    }
  }

 private:
  /// The calling thread leaves. If every announced thread has a token, it takes its token with it.
  void leave() {
    if (num_waiters_.load(std::memory_order_relaxed) > 0) {
      num_waiters_.fetch_sub(1, std::memory_order_relaxed);
    } else {
      --num_tokens_;
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  int num_tokens_ = 0;               ///< wake-ups that no thread has taken
  std::atomic<int> num_waiters_{0};  ///< announced threads that have no token
};

}  // namespace pto::wsp::sched
