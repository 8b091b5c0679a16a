// SPDX-License-Identifier: MIT
/// \file
/// The longest chain of tasks that wait for each other: no schedule and no number of cores is faster.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pto/wsp/sim/task.hpp"

namespace pto::wsp::sim {

/// Follows the tasks of a walk in program order.
class Chains {
 public:
  void begin() {
    end_ = {};
    until_ = {};
    lines_.assign(sched::kNumGroupLines, {});
  }

  /// Adds the next task, which takes `cycles`.
  void add(const SourceTask& task, double cycles) {
    double start = 0;
    for (const sched::Name name : task.waits) start = std::max(start, end_of(name));
    const double end = start + cycles;
    for (const uint32_t line : task.groups) lines_[line].longest = std::max(lines_[line].longest, end);
    end_.push_back(end);
    until_.push_back(std::max(longest(), end));
  }

  double longest() const { return until_.empty() ? 0 : until_.back(); }

 private:
  /// Of a P.seq loop.
  struct LoopTimes {
    double longest = 0;
    double before = 0;   ///< of the iterations before the present one
    uint64_t count = 0;  ///< tasks in them
  };

  double end_of(sched::Name name) {
    if (sched::is_task_name(name)) return end_[sched::slice_of(name)];
    if (sched::is_watermark_name(name)) return name == 0 ? 0 : until_[name - 1];
    LoopTimes& line = lines_[sched::group_line_of(name)];
    const uint64_t count = name & sched::kGroupMask;
    if (count != line.count) {
      line.count = count;
      line.before = line.longest;
    }
    return line.before;
  }

  std::vector<double> end_;    ///< per task, of the longest chain that ends with it
  std::vector<double> until_;  ///< per task, the most of these up to it
  std::vector<LoopTimes> lines_;
};

}  // namespace pto::wsp::sim
