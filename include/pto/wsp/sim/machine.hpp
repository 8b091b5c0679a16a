// SPDX-License-Identifier: MIT
/// \file
/// A machine whose time is simulated, and what its tasks cost. Times are in cycles, amounts in bytes.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace pto::wsp::sim {

inline constexpr uint32_t kMaxKinds = 8;

/// The figures of a device that the simulator reads.
struct Machine {
  std::vector<uint32_t> cores;                                    ///< per kind of core
  double gm_rate = std::numeric_limits<double>::infinity();       ///< bytes per cycle, of all cores together
  double gm_core_rate = std::numeric_limits<double>::infinity();  ///< of these, for one core at most
  uint64_t l2_bytes = 0;                                          ///< 0 = no cache
  double l2_rate = std::numeric_limits<double>::infinity();
  double l2_core_rate = std::numeric_limits<double>::infinity();  ///< of these, for one core at most
  double l2_hit = 0;                                              ///< cycles before the first byte
  double l2_miss = 0;                                             ///< more, where the cache does not hold it
  uint64_t own_bytes = 0;  ///< of the cache that each core has of its own; 0 = none
  uint32_t dispatchers = 1;
  double generate = 0;      ///< to make a task
  double skip = 0;          ///< to pass over a task of another dispatcher
  double dispatch = 0;      ///< until a core sees a task
  double complete = 0;      ///< until a dispatcher sees that a task is complete
  uint32_t records = 1024;  ///< tasks per dispatcher that are made and not seen complete
  double hz = 1e9;          ///< cycles per second
  double begin = 0;         ///< when dispatchers begin
};

/// What a task costs, without the bytes of each argument.
struct TaskCost {
  uint32_t kinds = 1;            ///< bit i: it takes a core of kind i
  double cycles = 0;             ///< on cores that have their whole transfer rates
  double ends = 0;               ///< of these, cycles before transfers begin or after they end
  std::vector<uint64_t> loaded;  ///< per view
  std::vector<uint64_t> stored;  ///< per view
  uint64_t spilled = 0;
  uint64_t operations = 0;
};

}  // namespace pto::wsp::sim
