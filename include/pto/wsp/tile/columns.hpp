// SPDX-License-Identifier: MIT
/// \file
/// Loops over the elements of a row: whole vectors, then the rest.
#pragma once

#include "pto/wsp/tile/vec.hpp"

namespace pto::wsp::tile {

/// Call `body(j, access)` for every vector of a row of `n` elements of user memory.
/// \tparam kTogether vectors per step of the loop: two where a body is only a few instructions
/// \tparam kWidth elements of a vector
template <int kTogether = 1, int64_t kWidth = kLanes, class Body>
PTO_INLINE inline void columns(int64_t n, const Body& body) {
  int64_t j = 0;
  if constexpr (kTogether == 2) {
    // Unrolled by a late compiler pass; two calls of the body here would pass through all of them.
#pragma GCC unroll 2
    for (; j + kWidth <= n; j += kWidth) body(j, Full{});
  } else {
    for (; j + kWidth <= n; j += kWidth) body(j, Full{});
  }
  if (j < n) body(j, Tail{n - j});
}

/// The same with one body for whole vectors and the rest, for bodies that compile slowly.
template <class Body>
PTO_INLINE inline void columns_once(int64_t n, const Body& body) {
  for (int64_t j = 0; j < n; j += kLanes) body(j, Upto{n - j});
}

/// Calls `body(first, count)` for the first `lead` of n elements, if there are any, and for the others.
template <class Body>
PTO_INLINE inline void in_parts(int64_t lead, int64_t n, const Body& body) {
  int64_t first = 0, end = lead > 0 ? lead : n;
  do {
    body(first, end - first);
    first = end;
    end = n;
  } while (first < n);
}

/// `columns` for rows whose memory is padded to whole vectors.
template <class Body>
PTO_INLINE inline void padded_columns(int64_t n, const Body& body) {
  for (int64_t j = 0; j < n; j += kLanes) body(j, Full{});
}

}  // namespace pto::wsp::tile
