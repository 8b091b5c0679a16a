// SPDX-License-Identifier: MIT
/// \file
/// Counts how often and how long bounds stopped dispatchers.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "pto/wsp/trace/clock.hpp"
#include "pto/wsp/trace/stall.hpp"

namespace pto::wsp::sched {

using trace::kNumStalls;
using trace::kStallNames;
using trace::Stall;
using trace::StallEvent;

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

/// The standstills of one dispatcher. Any thread may ask `is_on`; the rest is for the thread in the
/// dispatcher.
class Standstill {
 public:
  void clear() {
    is_on_.store(false, std::memory_order_relaxed);
    events_.clear();
  }

  /// Continues a standstill, or begins one.
  void begin(Stall why, Stalls& totals, bool traces) {
    if (why != why_) end(totals, traces);
    if (is_on()) return;
    why_ = why;
    start_ns_ = trace::now_ns();
    start_ticks_ = trace::ticks();
    is_on_.store(true, std::memory_order_relaxed);
  }
  void end(Stalls& totals, bool traces) {
    if (!is_on()) return;
    is_on_.store(false, std::memory_order_relaxed);
    totals.add(why_, trace::now_ns() - start_ns_);
    if (traces) events_.push_back({why_, start_ticks_, trace::ticks()});
  }

  bool is_on() const { return is_on_.load(std::memory_order_relaxed); }
  Stall why() const { return why_; }
  /// Those that were traced.
  const std::vector<StallEvent>& events() const { return events_; }

 private:
  std::atomic<bool> is_on_{false};
  Stall why_ = Stall::kWindow;  ///< of the latest one
  int64_t start_ns_ = 0;
  int64_t start_ticks_ = 0;
  std::vector<StallEvent> events_;
};

}  // namespace pto::wsp::sched
