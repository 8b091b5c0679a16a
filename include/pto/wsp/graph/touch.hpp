// SPDX-License-Identifier: MIT
/// \file
/// The kinds of access to the elements of a region.
#pragma once

#include <cstdint>

#include "pto/wsp/progress.hpp"

namespace pto::wsp::graph {

enum class Touch : uint8_t {
  kRead,
  kWrite,
  kWriteSome,  ///< writes some unknown elements of the region
};

/// Whether an access need not wait for a name: it is reached, or it is in the strand of `waits`. The latter
/// relies on an invariant of the engine: the tasks of a strand run and complete in program order, one after
/// another.
inline bool is_settled(sched::Name name, const sched::WaitList& waits) {
  return waits.is_own(name) || waits.has_passed(name);
}

}  // namespace pto::wsp::graph
