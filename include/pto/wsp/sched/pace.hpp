// SPDX-License-Identifier: MIT
/// \file
/// Limits the rate of task starts over all workers.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "pto/wsp/sched/clock.hpp"

namespace pto::wsp::sched {

/// A bucket with room for one token. A new token arrives at a fixed rate; a start takes it.
class Pace {
 public:
  /// 0 starts per second means no limit. \pre no thread waits
  void begin(uint64_t starts_per_second, Clock& clock) {
    constexpr uint64_t kSecondNs = 1000000000;
    clock_ = &clock;
    period_ns_ =
        starts_per_second == 0 ? 0 : int64_t((kSecondNs + starts_per_second - 1) / starts_per_second);
    next_ns_.store(0, std::memory_order_relaxed);
    is_stopped_.store(false, std::memory_order_relaxed);
  }

  bool is_on() const { return period_ns_ != 0; }

  /// Returns when a task may start, or immediately after `stop`.
  void wait() {
    int64_t next = next_ns_.load(std::memory_order_relaxed);
    const int64_t now = clock_->now_ns();
    int64_t start = 0;
    do {
      start = std::max(next, now);
    } while (!next_ns_.compare_exchange_weak(next, start + period_ns_, std::memory_order_relaxed));
    if (now < start) clock_->wait_until(start, is_stopped_);
  }

  void stop() { is_stopped_.store(true, std::memory_order_relaxed); }

 private:
  Clock* clock_ = nullptr;
  int64_t period_ns_ = 0;
  std::atomic<int64_t> next_ns_{0};
  std::atomic<bool> is_stopped_{false};
};

}  // namespace pto::wsp::sched
