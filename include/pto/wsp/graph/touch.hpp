// SPDX-License-Identifier: MIT
/// \file
/// What an access does to the elements of its region.
#pragma once

#include <cstdint>

#include "pto/wsp/sched/progress.hpp"

namespace pto::wsp::graph {

enum class Touch : uint8_t {
  kRead,
  kWrite,
  kWriteSome,  ///< writes elements of the region, nobody knows which
};

/// Whether a moment has passed, or is behind the tasks of the strand whose waits these are.
inline bool is_settled(sched::Name name, const sched::WaitList& waits) {
  return waits.is_own(name) || waits.has_passed(name);
}

}  // namespace pto::wsp::graph
