// SPDX-License-Identifier: MIT
/// \file
/// The clock of policies that start tasks by time.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "pto/wsp/spin.hpp"
#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::sched {

/// Time in nanoseconds from an arbitrary origin. Only policies that use time read it, so virtual calls are
/// cheap enough. Simulated time replaces the clock of the host.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() = 0;
  /// Returns at `time_ns`, or soon after `is_stopped` was set.
  virtual void wait_until(int64_t time_ns, const std::atomic<bool>& is_stopped) = 0;
};

class HostClock final : public Clock {
 public:
  static HostClock& instance() {
    static HostClock clock;
    return clock;
  }

  int64_t now_ns() override { return trace::now_ns(); }

  void wait_until(int64_t time_ns, const std::atomic<bool>& is_stopped) override {
    for (int64_t now = now_ns(); now < time_ns && !is_stopped.load(std::memory_order_relaxed);
         now = now_ns()) {
      const int64_t left = time_ns - now;
      if (left < kSpinNs) {
        relax();
      } else {
        std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left - kSpinNs / 2, kMaxSleepNs)));
      }
    }
  }

 private:
  static constexpr int64_t kSpinNs = 200000;        ///< a sleep may end this much later than requested
  static constexpr int64_t kMaxSleepNs = 10000000;  ///< bound on the delay of a stop
};

}  // namespace pto::wsp::sched
