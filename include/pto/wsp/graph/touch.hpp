// SPDX-License-Identifier: MIT
/// \file
/// What an access does to the elements of its region.
#pragma once

#include <cstdint>

#include "pto/wsp/progress.hpp"

namespace pto::wsp::graph {

enum class Touch : uint8_t {
  kRead,
  kWrite,
  kWriteSome,  ///< writes some elements of the region, it is not known which
};

/// Whether an access need not wait for a moment: it has passed, or it lies in the strand whose waits these
/// are. The latter relies on an invariant of the engine: a strand runs, and so completes, in program order,
/// one task after the other.
inline bool is_settled(sched::Name name, const sched::WaitList& waits) {
  return waits.is_own(name) || waits.has_passed(name);
}

}  // namespace pto::wsp::graph
