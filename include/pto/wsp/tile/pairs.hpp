// SPDX-License-Identifier: MIT
/// \file
/// Rows of bf16, two elements per lane: widened, or combined in pairs in place.
///
/// Two vectors of neighbours become two of f32, or of pairs with those of another row, with one instruction
/// each, but in another order: that in which `unzip` takes two vectors apart. `zip` is its opposite.
#pragma once

#include "pto/wsp/tile/narrow.hpp"
#include "pto/wsp/tile/terms.hpp"

namespace pto::wsp::tile {

/// Whether two elements share a lane.
template <class T>
inline constexpr bool kInPairs = false;
template <>
inline constexpr bool kInPairs<Bf16> = true;
template <>
inline constexpr bool kInPairs<const Bf16> = true;

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

// Elements of 16 bits of two vectors in pairs: of each quarter of 128 bits the first four, or the last four,
// which is what one instruction does. Then those of the low and of the high vector that neighbours have
// become are `unzip`s of them.
#if PTO_LANES == 16
#define PTO_ZIP_16_LOW(a, b)                                                                              \
  __builtin_shufflevector(a, b, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48, 17, 49, \
                          18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59)
#define PTO_ZIP_16_HIGH(a, b)                                                                               \
  __builtin_shufflevector(a, b, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20, 52, 21, 53, \
                          22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63)
#define PTO_ZIP_SUMS_LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23)
#define PTO_ZIP_SUMS_HIGH(a, b) \
  __builtin_shufflevector(a, b, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31)
#define PTO_UNZIP_SUMS_LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27)
#define PTO_UNZIP_SUMS_HIGH(a, b) \
  __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31)
#elif PTO_LANES == 8
#define PTO_ZIP_16_LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27)
#define PTO_ZIP_16_HIGH(a, b) \
  __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31)
#define PTO_ZIP_SUMS_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define PTO_ZIP_SUMS_HIGH(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define PTO_UNZIP_SUMS_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define PTO_UNZIP_SUMS_HIGH(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#else
#define PTO_ZIP_16_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define PTO_ZIP_16_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define PTO_ZIP_SUMS_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3)
#define PTO_ZIP_SUMS_HIGH(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7)
#define PTO_UNZIP_SUMS_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3)
#define PTO_UNZIP_SUMS_HIGH(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7)
#endif

/// Two vectors of neighbours in the order in which pairs come.
template <class T>
PTO_INLINE inline void unzip(const T* from, F* to) {
  const F low = load(from, Full{}), high = load(from + kLanes, Full{});
  to[0] = PTO_UNZIP_SUMS_LOW(low, high);
  to[1] = PTO_UNZIP_SUMS_HIGH(low, high);
}

PTO_INLINE inline void zip(F low, F high, float* to) {
  store(to, PTO_ZIP_SUMS_LOW(low, high), Full{});
  store(to + kLanes, PTO_ZIP_SUMS_HIGH(low, high), Full{});
}

/// Elements of 16 bits of kPairLanes neighbours, each with one of others above it in a lane.
PTO_INLINE inline void zip_bits(U low, U high, U* to) {
  typedef Narrow<uint16_t> V;
  to[0] = (U)PTO_ZIP_16_LOW((V)low, (V)high);
  to[1] = (U)PTO_ZIP_16_HIGH((V)low, (V)high);
}

/// Neighbours, widened.
PTO_INLINE inline void unzip(const Bf16* from, F* to) {
  U both[2];
  zip_bits(U{}, load_bits(from), both);
  to[0] = (F)both[0];
  to[1] = (F)both[1];
}

/// kVectors vectors of columns of a row of a right operand as sums take them: in the order of pairs where
/// elements come in such.
template <int kVectors, class B, class N>
PTO_INLINE inline void load_row(const B* row, F* to, N n) {
  for_constants<kVectors>([&](auto v) PTO_INLINE {
    if constexpr (!kInPairs<B> || kVectors % 2 != 0) {
      to[v.value] = load_terms(row + v.value * kLanes, n);
    } else if constexpr (v.value % 2 == 0) {
      unzip(row + v.value * kLanes, to + v.value);
    }
  });
}

/// The same of two rows, whose elements share lanes.
template <int kVectors, class N>
PTO_INLINE inline void load_rows(const Bf16* row, const Bf16* next, U* to, N n) {
  for_constants<kVectors>([&](auto v) PTO_INLINE {
    constexpr int at = v.value * kLanes;
    if constexpr (kVectors % 2 != 0) {
      to[v.value] = widen(get<H>(row + at, n)) | widen(get<H>(next + at, n)) << 16;
    } else if constexpr (v.value % 2 == 0) {
      zip_bits(load_bits(row + at), load_bits(next + at), to + v.value);
    }
  });
}

/// kVectors vectors of sums as `load_row` wants them, and back into memory.
template <int kVectors, class B>
PTO_INLINE inline void load_sums(const float* from, F* to) {
  for_constants<kVectors>([&](auto v) PTO_INLINE {
    if constexpr (!kInPairs<B> || kVectors % 2 != 0) {
      to[v.value] = load(from + v.value * kLanes, Full{});
    } else if constexpr (v.value % 2 == 0) {
      unzip(from + v.value * kLanes, to + v.value);
    }
  });
}
template <int kVectors, class B>
PTO_INLINE inline void store_sums(const F* sums, float* to) {
  for_constants<kVectors>([&](auto v) PTO_INLINE {
    if constexpr (!kInPairs<B> || kVectors % 2 != 0) {
      store(to + v.value * kLanes, sums[v.value], Full{});
    } else if constexpr (v.value % 2 == 0) {
      zip(sums[v.value], sums[v.value + 1], to + v.value * kLanes);
    }
  });
}

}  // namespace pto::wsp::tile
