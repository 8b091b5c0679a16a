// SPDX-License-Identifier: MIT
/// \file
/// The recorded reasons that stop dispatchers.
#pragma once

#include <cstdint>

namespace pto::wsp::trace {

/// The reasons that stop a dispatcher.
enum class Stall : uint8_t {
  kWindow,  ///< no room for another record
  kSlices,  ///< too many incomplete slices
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

}  // namespace pto::wsp::trace
