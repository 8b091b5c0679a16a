// SPDX-License-Identifier: MIT
/// \file
/// A clock whose reading costs one load: a counter that a thread advances while runs are observed.
#pragma once

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "pto/wsp/progress.hpp"
#include "pto/wsp/sched/blocked_signals.hpp"

namespace pto::wsp::sched {

/// Reading the time takes longer than a small task. So a separate thread counts periods of 10 ms, and workers
/// compare the count between tasks. The thread starts when a run has lasted for a while, sleeps while no run
/// is observed, and ends after a long sleep.
class Ticker {
 public:
  static constexpr std::chrono::milliseconds kPeriod{10};

  static Ticker& instance() {
    static auto* ticker = [] {
      pthread_atfork(nullptr, nullptr, [] { instance().forget_after_fork(); });
      return new Ticker;
    }();
    return *ticker;
  }

  /// One load, without the guard of `instance`: workers ask between any two tasks.
  static uint64_t count() { return count_.value.load(std::memory_order_relaxed); }
  /// The count; what was written before `advance` made it so is visible afterwards.
  static uint64_t acquire() { return count_.value.load(std::memory_order_acquire); }

  /// An observed run begins. False if the counter does not advance, so `start` must be called.
  bool enter() {
    num_runs_.fetch_add(1, std::memory_order_seq_cst);
    if (is_asleep_.load(std::memory_order_seq_cst)) {
      const std::lock_guard<std::mutex> lock(mutex_);
      wake_.notify_one();
    }
    return is_alive_.load(std::memory_order_seq_cst);
  }
  void leave() { num_runs_.fetch_sub(1, std::memory_order_seq_cst); }

  /// The counter, for kernels inside a task.
  static const uint64_t* address() { return reinterpret_cast<const uint64_t*>(&count_.value); }
  /// Makes all workers check now. Earlier writes are visible to workers that see the new count.
  static void advance() { count_.value.fetch_add(1, std::memory_order_release); }

  /// Makes the counter advance; false if the system refuses a thread.
  bool start() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_alive_) return true;
    const BlockedSignals blocked;
    try {
      std::thread([this] { work(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    is_alive_ = true;
    return true;
  }

 private:
  static constexpr int kIdlePeriods = 100;               ///< without a run, until the thread sleeps
  static constexpr std::chrono::seconds kIdleLimit{30};  ///< asleep, until the thread ends

  Ticker() = default;

  void work() {
    for (int num_idle = 0;;) {
      std::this_thread::sleep_for(kPeriod);
      count_.value.fetch_add(1, std::memory_order_relaxed);
      num_idle = num_runs_.load(std::memory_order_relaxed) > 0 ? 0 : num_idle + 1;
      if (num_idle < kIdlePeriods) continue;
      num_idle = 0;
      if (!sleep()) return;
    }
  }

  /// False if no run was observed for so long that the thread ends.
  bool sleep() {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto has_runs = [this] { return num_runs_.load(std::memory_order_seq_cst) > 0; };
    is_asleep_.store(true, std::memory_order_seq_cst);
    const bool is_woken = wake_.wait_for(lock, kIdleLimit, has_runs);
    is_asleep_.store(false, std::memory_order_relaxed);
    if (is_woken) return true;
    is_alive_.store(false, std::memory_order_seq_cst);
    if (!has_runs()) return false;
    is_alive_.store(true, std::memory_order_seq_cst);
    return true;
  }

  /// The thread does not exist in a forked child, and no thread there holds the lock.
  void forget_after_fork() {
    new (&mutex_) std::mutex;
    new (&wake_) std::condition_variable;
    num_runs_ = 0;
    is_alive_ = is_asleep_ = false;
  }

  struct alignas(kLineBytes) Count {
    std::atomic<uint64_t> value;
  };
  static inline Count count_{};
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t), "kernels read the count as a number");
  alignas(kLineBytes) std::atomic<int64_t> num_runs_{0};
  std::atomic<bool> is_alive_{false};
  std::atomic<bool> is_asleep_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace pto::wsp::sched
