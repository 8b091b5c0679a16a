// SPDX-License-Identifier: MIT
/// \file
/// What one dispatcher did in a run, in numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "pto/wsp/progress.hpp"

namespace pto::wsp::sched {

/// Of a task that is recorded, what it waits for is known then; a task that runs immediately waits for
/// nothing.
struct WalkStats {
  uint64_t made = 0;          ///< tasks that were its own
  uint64_t recorded = 0;      ///< of these, tasks that were recorded for any worker
  uint64_t passed_over = 0;   ///< tasks of others that it left out without a look
  uint64_t local_waits = 0;   ///< waits for tasks of its own
  uint64_t remote_waits = 0;  ///< waits for the completion of tasks of other dispatchers
};

/// Which of the live slices a dispatcher owns. Numbers of slices only grow, so that entries of earlier runs
/// match no slice.
class OwnSlices {
 public:
  OwnSlices() : number_(kMaxLiveSlices, UINT64_MAX) {}
  void add(uint64_t slice) { number_[slice % kMaxLiveSlices] = slice; }
  bool has(uint64_t slice) const { return number_[slice % kMaxLiveSlices] == slice; }

 private:
  std::vector<uint64_t> number_;
};

}  // namespace pto::wsp::sched
