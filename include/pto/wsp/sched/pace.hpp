// SPDX-License-Identifier: MIT
/// \file
/// How fast tasks may start, whoever runs them.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "pto/wsp/sched/spin.hpp"
#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::sched {

/// A bucket with room for one token, which a new one falls into so many times per second; a start takes it.
class Pace {
 public:
  /// \pre nobody waits. 0 starts per second: as many as there can be.
  void begin(uint64_t starts_per_second) {
    constexpr uint64_t kSecondNs = 1000000000;
    period_ns_ =
        starts_per_second == 0 ? 0 : int64_t((kSecondNs + starts_per_second - 1) / starts_per_second);
    next_ns_.store(0, std::memory_order_relaxed);
    is_stopped_.store(false, std::memory_order_relaxed);
  }

  bool is_on() const { return period_ns_ != 0; }

  /// Returns when a task may start, or at once from `stop` on.
  void wait() {
    int64_t next = next_ns_.load(std::memory_order_relaxed);
    int64_t now = trace::now_ns(), start = 0;
    do {
      start = std::max(next, now);
    } while (!next_ns_.compare_exchange_weak(next, start + period_ns_, std::memory_order_relaxed));
    for (; now < start && !is_stopped_.load(std::memory_order_relaxed); now = trace::now_ns()) {
      const int64_t left = start - now;
      if (left < kSpinNs) {
        relax();
      } else {
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left - kSpinNs / 2, kMostNs)));
      }
    }
  }

  void stop() { is_stopped_.store(true, std::memory_order_relaxed); }

 private:
  static constexpr int64_t kSpinNs = 200000;    ///< sleeping takes so much longer than asked for
  static constexpr int64_t kMostNs = 10000000;  ///< until it is seen that the run was stopped

  int64_t period_ns_ = 0;
  std::atomic<int64_t> next_ns_{0};
  std::atomic<bool> is_stopped_{false};
};

}  // namespace pto::wsp::sched
