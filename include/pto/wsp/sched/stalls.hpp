// SPDX-License-Identifier: MIT
/// \file
/// How often and how long dispatchers were stopped by what is bounded.
#pragma once

#include <atomic>
#include <cstdint>

namespace pto::wsp::sched {

/// What a dispatcher can be stopped by.
enum class Stall : uint8_t {
  kWindow,  ///< no room for another record
  kSlices,  ///< too many slices on their way
  kFlush,   ///< tasks must write a value first
  kPool,    ///< a worker of the task's pool must come
};
inline constexpr int kNumStalls = 4;
inline constexpr const char* kStallNames[kNumStalls] = {"window", "slice", "flush", "pool"};

/// A dispatcher was stopped. Times are in ticks.
struct StallEvent {
  Stall stall;
  int64_t start;
  int64_t end;
};

class Stalls {
 public:
  struct Total {
    std::atomic<uint64_t> count{0};
    std::atomic<int64_t> ns{0};
  };

  void clear() {
    for (Total& total : totals_) {
      total.count.store(0, std::memory_order_relaxed);
      total.ns.store(0, std::memory_order_relaxed);
    }
  }
  void add(Stall stall, int64_t ns) {
    totals_[int(stall)].count.fetch_add(1, std::memory_order_relaxed);
    totals_[int(stall)].ns.fetch_add(ns, std::memory_order_relaxed);
  }
  const Total& operator[](Stall stall) const { return totals_[int(stall)]; }

 private:
  Total totals_[kNumStalls];
};

}  // namespace pto::wsp::sched
