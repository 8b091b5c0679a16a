// SPDX-License-Identifier: MIT
/// \file
/// What matrix products of few rows share, which read their right operand where it lies.
#pragma once

#include "pto/wsp/tile/matmul.hpp"
#include "pto/wsp/tile/narrow.hpp"

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

/// Vectors of columns of a row of a right operand as sums take them: where elements come in pairs, those of
/// the even and of the odd columns of two vectors.
template <int kVectors, class B, class N>
PTO_INLINE inline void load_row(const B* row, F* to, N n) {
  for_constants<kVectors>([&](auto v) PTO_INLINE {
    if constexpr (!kInPairs<B> || kVectors % 2 != 0) {
      to[v.value] = load(row + v.value * kLanes, n);
    } else if constexpr (v.value % 2 == 0) {
      load_pairs(row + v.value * kLanes, to + v.value);
    }
  });
}

/// Elements of 16 bits of two vectors in pairs, of each quarter of 128 bits the first or the last four: what
/// one instruction does. Quarters of sums are put back in order, and into that one, four lanes at a time.
#if PTO_LANES == 16
#define PTO_ZIP_16_LOW(a, b)                                                                              \
  __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48, 17, 49, \
                          18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59)
#define PTO_ZIP_16_HIGH(a, b)                                                                               \
  __builtin_shufflevector(a, b, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52, 21, 53, \
                          22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63)
#define PTO_ZIP_QUARTERS_LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23)
#define PTO_ZIP_QUARTERS_HIGH(a, b) \
  __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31)
#define PTO_UNZIP_QUARTERS_EVEN(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define PTO_UNZIP_QUARTERS_ODD(a, b) \
  __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#elif PTO_LANES == 8
#define PTO_ZIP_16_LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27)
#define PTO_ZIP_16_HIGH(a, b) \
  __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31)
#define PTO_ZIP_QUARTERS_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define PTO_ZIP_QUARTERS_HIGH(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define PTO_UNZIP_QUARTERS_EVEN(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define PTO_UNZIP_QUARTERS_ODD(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#else
#define PTO_ZIP_16_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define PTO_ZIP_16_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define PTO_ZIP_QUARTERS_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3)
#define PTO_ZIP_QUARTERS_HIGH(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7)
#define PTO_UNZIP_QUARTERS_EVEN(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3)
#define PTO_UNZIP_QUARTERS_ODD(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7)
#endif

/// Two vectors of neighbours, or the other way, as the lanes of two vectors of sums that are made of pairs:
/// each of two rows of bf16, or else those at even and those at odd places.
template <bool kAdds, class T>
PTO_INLINE inline void unzip(const T* from, F* to) {
  const F low = load(from, Full{}), high = load(from + kLanes, Full{});
  to[0] = kAdds ? PTO_UNZIP_QUARTERS_EVEN(low, high) : PTO_UNZIP_EVEN(low, high);
  to[1] = kAdds ? PTO_UNZIP_QUARTERS_ODD(low, high) : PTO_UNZIP_ODD(low, high);
}
template <bool kAdds>
PTO_INLINE inline void zip(F first, F second, float* to) {
  store(to, kAdds ? PTO_ZIP_QUARTERS_LOW(first, second) : PTO_ZIP_LOW(first, second), Full{});
  store(to + kLanes, kAdds ? PTO_ZIP_QUARTERS_HIGH(first, second) : PTO_ZIP_HIGH(first, second), Full{});
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
