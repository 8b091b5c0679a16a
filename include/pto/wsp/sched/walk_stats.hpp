// SPDX-License-Identifier: MIT
/// \file
/// Counters of one dispatcher in a run.
#pragma once

#include <cstdint>
#include <vector>

#include "pto/wsp/progress.hpp"

namespace pto::wsp::sched {

/// Waits are counted for recorded tasks. A task that runs immediately has no waits.
struct WalkStats {
  uint64_t made = 0;          ///< tasks that it owned
  uint64_t recorded = 0;      ///< of these, tasks recorded for any worker
  uint64_t passed_over = 0;   ///< tasks of others that it skipped
  uint64_t local_waits = 0;   ///< waits for its own tasks
  uint64_t remote_waits = 0;  ///< waits for the completion of tasks of other dispatchers
};

/// The live slices that a dispatcher owns. Slice numbers only grow, so entries of earlier runs match no
/// slice.
class OwnSlices {
 public:
  OwnSlices() : number_(kMaxLiveSlices, UINT64_MAX) {}
  void add(uint64_t slice) { number_[slice % kMaxLiveSlices] = slice; }
  bool has(uint64_t slice) const { return number_[slice % kMaxLiveSlices] == slice; }

 private:
  std::vector<uint64_t> number_;
};

}  // namespace pto::wsp::sched
