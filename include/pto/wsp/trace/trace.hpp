// SPDX-License-Identifier: MIT
/// \file
/// What a traced run records: per task a start, an end and a worker. The rest is found again by expanding.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace pto::wsp::trace {

/// Nanoseconds of a clock that never goes back.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct TaskEvent {
  uint64_t task;
  int64_t start_ns;
  int64_t end_ns;
};

/// Events of all tasks by task number. Times count from the start of the run.
struct Trace {
  std::vector<int64_t> start_ns;
  std::vector<int64_t> end_ns;
  std::vector<uint32_t> worker;
};

}  // namespace pto::wsp::trace
