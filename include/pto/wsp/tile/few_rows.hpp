// SPDX-License-Identifier: MIT
/// \file
/// Common parts of matrix products of few rows, which read their right operand in place.
#pragma once

#include "pto/wsp/tile/matmul.hpp"

namespace pto::wsp::tile {

/// Lines of memory of a number of elements, including partial ones.
template <class T>
constexpr int lines_in(int elements) {
  return (elements * int(sizeof(T)) + int(kLineBytes) - 1) / int(kLineBytes);
}

template <int kCount>
PTO_INLINE inline void clear(F* v) {
  for_constants<kCount>([&](auto i) PTO_INLINE { v[i.value] = F{}; });
}

/// Places of a right operand that are read in turn.
inline constexpr int kStreams = 8;

/// Where the rows of a left operand begin; rows beyond the last are computed from it again and not written.
template <int kRows>
struct LeftRows {
  int64_t at[kRows];

  LeftRows(int64_t rows, int64_t step) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) at[r] = (r < rows ? r : rows - 1) * step;
  }
};

/// Calls `body` with a number of rows that is enough for `rows`, which are kMaxRows or fewer, and no more
/// than 8.
template <int kMaxRows, class Body>
PTO_INLINE inline void for_few_rows(int64_t rows, const Body& body) {
  static_assert(kMaxRows <= 8);
  if constexpr (kMaxRows > 4) {
    if (rows > 4) return body(Constant<8>{});
  }
  if constexpr (kMaxRows > 1) {
    if (rows > 1) return body(Constant<4>{});
  }
  if (rows > 0) body(Constant<1>{});
}

}  // namespace pto::wsp::tile
