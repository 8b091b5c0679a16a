// SPDX-License-Identifier: MIT
/// \file
/// Which tasks the engine orders by their accesses.
#pragma once

#include <cstdint>

namespace pto::wsp::graph {

/// Which tasks the engine orders by their accesses.
enum class Deps : uint8_t {
  kExact,  ///< those that share an element
  kBytes,  ///< those whose byte ranges in memory overlap
  kTrust,  ///< as kExact, but iterations of a P loop are taken to be independent: where two of them share
           ///< an element, neither they nor later tasks that touch it are ordered
  kNone,   ///< none: only stated edges order tasks
};

}  // namespace pto::wsp::graph
