// SPDX-License-Identifier: MIT
/// \file
/// What is simulated with a program.
#pragma once

#include <vector>

#include "pto/wsp/sim/task_costs.hpp"

namespace pto::wsp::sim {

/// What is simulated with the program.
struct Simulation {
  const Machine& machine;
  CostModel& model;
  std::vector<int64_t> flushed;  ///< what flush points read; those beyond them read the arrays
  bool records_times = false;    ///< of all tasks, however many there are
  /// Of a network, per tensor: cycles from a send to its receipt, or -1 - s where symbol s has them.
  std::vector<int64_t> latencies;
};

/// The most tasks that are recorded without being asked for.
inline constexpr uint64_t kMostTimes = uint64_t{1} << 16;

}  // namespace pto::wsp::sim
