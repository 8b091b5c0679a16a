// SPDX-License-Identifier: MIT
/// \file
/// The window: bounds the recorded tasks that are incomplete.
#pragma once

#include <atomic>
#include <cstdint>

#include "pto/wsp/progress.hpp"

namespace pto::wsp::sched {

class Window {
 public:
  /// \pre no thread uses the window
  void begin(uint64_t num_tasks) {
    limit_ = num_tasks;
    num_taken_.store(0, std::memory_order_relaxed);
    max_taken_.store(0, std::memory_order_relaxed);
  }

  /// Takes room for a number of tasks; false without room.
  bool take(uint64_t num_tasks) {
    uint64_t before = num_taken_.load(std::memory_order_relaxed);
    do {
      if (before + num_tasks > limit_) return false;
    } while (!num_taken_.compare_exchange_weak(before, before + num_tasks, std::memory_order_relaxed));
    uint64_t most = max_taken_.load(std::memory_order_relaxed);
    while (most < before + num_tasks &&
           !max_taken_.compare_exchange_weak(most, before + num_tasks, std::memory_order_relaxed)) {
    }
    return true;
  }
  bool has_room(uint64_t num_tasks) const {
    return num_taken_.load(std::memory_order_relaxed) + num_tasks <= limit_;
  }
  void give_back(uint64_t num_tasks) { num_taken_.fetch_sub(num_tasks, std::memory_order_relaxed); }

  /// The largest fill.
  uint64_t max_taken() const { return max_taken_.load(std::memory_order_relaxed); }

 private:
  uint64_t limit_ = 0;
  alignas(kLineBytes) std::atomic<uint64_t> num_taken_{0};
  alignas(kLineBytes) std::atomic<uint64_t> max_taken_{0};
};

}  // namespace pto::wsp::sched
