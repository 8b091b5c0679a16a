// SPDX-License-Identifier: MIT
/// \file
/// The report of a run in which no task can continue. This would be a defect of the engine, which must not
/// hang.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/progress.hpp"

namespace pto::wsp::sched {

/// A task that cannot run, and why.
struct BlockedTask {
  uint64_t task;
  uint64_t slice;  ///< its slice
  uint32_t pc;
  std::vector<int64_t> registers;
  std::string waits_for;
};

inline std::string describe(Name name) {
  if (is_watermark_name(name)) return "all slices before number " + std::to_string(name);
  if (!is_task_name(name)) return "an earlier iteration of a loop in order";
  const std::string slice = "slice " + std::to_string(slice_of(name));
  if (name == complete_name(slice_of(name))) return slice;
  return "task " + std::to_string(name & kTaskMask) + " of " + slice;
}

/// Returns `stuck` at the first blocked task. `oldest` is the oldest incomplete slice.
inline EngineError stuck_error(std::vector<BlockedTask> blocked, uint64_t oldest) {
  constexpr size_t kMaxReported = 8;
  const auto is_before = [](const BlockedTask& a, const BlockedTask& b) { return a.task < b.task; };
  std::sort(blocked.begin(), blocked.end(), is_before);
  EngineError error("stuck", "no task can run, and not all are complete");
  error = EngineError(
      std::move(error).with_int("slice", int64_t(oldest)).with_int("blocked", int64_t(blocked.size())));
  if (blocked.empty()) return error;
  std::vector<int64_t> tasks, slices, pcs;
  std::string waits;
  for (size_t i = 0; i < std::min(blocked.size(), kMaxReported); ++i) {
    tasks.push_back(int64_t(blocked[i].task));
    slices.push_back(int64_t(blocked[i].slice));
    pcs.push_back(blocked[i].pc);
    waits += (i == 0 ? "" : "; ") + blocked[i].waits_for;
  }
  return std::move(error)
      .with("tasks", std::move(tasks))
      .with("slices", std::move(slices))
      .with("pcs", std::move(pcs))
      .with("waits", std::move(waits))
      .with_int("pc", blocked[0].pc)
      .with("registers", std::move(blocked[0].registers));
}

}  // namespace pto::wsp::sched
