// SPDX-License-Identifier: MIT
/// \file
/// What matrix products of few rows share, which read their right operand where it lies.
#pragma once

#include "pto/wsp/tile/matmul.hpp"

namespace pto::wsp::tile {

/// Lines of memory in so many elements, begun ones too.
template <class T>
constexpr int lines_in(int elements) {
  return (elements * int(sizeof(T)) + int(kLineBytes) - 1) / int(kLineBytes);
}

template <int kCount>
PTO_INLINE inline void clear(F* v) {
  for_constants<kCount>([&](auto i) PTO_INLINE { v[i.value] = F{}; });
}

/// Whether two elements share a lane, so that two vectors of them are widened where they lie: first those at
/// even places, then those at odd ones.
template <class T>
inline constexpr bool kInPairs = false;
template <>
inline constexpr bool kInPairs<Bf16> = true;
template <>
inline constexpr bool kInPairs<const Bf16> = true;

/// Places of a right operand that are read in turn.
inline constexpr int kStreams = 8;

/// Elements of which two vectors are read at a time.
inline constexpr int64_t kPairLanes = 2 * kLanes;

/// Whether products of few rows add two terms of bf16 in one instruction, and widen none.
template <class Left, class B>
inline constexpr bool kAddsPairs = kIsPaired<Left, B> && kHasPairDots;

/// As many bits of memory as a vector has.
template <class T>
PTO_INLINE inline U load_bits(const T* from) {
  U bits;
  __builtin_memcpy(&bits, from, sizeof bits);
  return bits;
}

PTO_INLINE inline void load_pairs(const Bf16* from, F* to) {
  const U both = load_bits(from);
  to[0] = (F)(both << 16);
  to[1] = (F)(both & 0xffff0000u);
}

/// Two vectors of neighbours as those at even and those at odd places.
template <class T>
PTO_INLINE inline void unzip(const T* from, F* to) {
  const F low = load(from, Full{}), high = load(from + kLanes, Full{});
  to[0] = PTO_UNZIP_EVEN(low, high);
  to[1] = PTO_UNZIP_ODD(low, high);
}

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
