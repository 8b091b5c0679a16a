// SPDX-License-Identifier: MIT
/// \file
/// Which tasks are ordered by what they touch.
#pragma once

#include <cstdint>

namespace pto::wsp::graph {

/// Which tasks are ordered by what they touch.
enum class Deps : uint8_t {
  kExact,  ///< those that share an element
  kBytes,  ///< those whose regions lie in ranges of memory that overlap
  kTrust,  ///< as kExact, but iterations of a P loop are taken to be independent: where two of them share
           ///< an element, neither they nor later tasks that touch it are ordered
  kNone,   ///< none: only what a program says is ordered
};

}  // namespace pto::wsp::graph
