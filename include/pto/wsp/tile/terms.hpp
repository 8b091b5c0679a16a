// SPDX-License-Identifier: MIT
/// \file
/// The operands of matrix products, and the terms of their sums.
#pragma once

#include "pto/wsp/tile/math.hpp"

namespace pto::wsp::tile {

/// Whether there are 32 vector registers, not 16.
#if PTO_LANES == 16 || defined(__aarch64__)
inline constexpr bool kHasManyRegisters = true;
#else
inline constexpr bool kHasManyRegisters = false;
#endif

/// Rows of a block with a number of vectors of columns: as many as there are registers for.
template <int kVectors>
inline constexpr int kBlockRows = kHasManyRegisters && kVectors <= 2 ? 8 : 6;

/// A number as a type.
template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

/// Calls `body` with the constants kFirst .. kEnd - 1: vectors with constant indices stay in registers.
template <int kEnd, int kFirst = 0, class Body>
PTO_INLINE inline void for_constants(const Body& body) {
  if constexpr (kFirst < kEnd) {
    body(Constant<kFirst>{});
    for_constants<kEnd, kFirst + 1>(body);
  }
}

/// The first elements of a right operand as floats, which is exact.
template <class T, class N>
PTO_INLINE inline F load_terms(const T* at, N n) {
  const auto v = load(at, n);
  if constexpr (sizeof(T) == 1) {
    return __builtin_convertvector(v, F);
  } else {
    return v;
  }
}

/// One term at a time, a multiply-add in f32.
struct Singles {
  typedef float Right;
  static constexpr int64_t kTerms = 1;

  template <class A>
  PTO_INLINE static F left(const A* at) {
    return load_splat(at);
  }
  PTO_INLINE static F right(const float* at) { return load(at, Full{}); }
  PTO_INLINE static F add(F left, F right, F sum) { return add_product(left, right, sum); }
};

/// Two terms at a time, of neighbours in bf16: those of a left row, and of two right rows in one lane.
struct Pairs {
  typedef uint32_t Right;
  static constexpr int64_t kTerms = 2;

  PTO_INLINE static U left(const Bf16* at) {
    uint32_t both;
    __builtin_memcpy(&both, at, sizeof both);
    return splat(both);
  }
  PTO_INLINE static U right(const uint32_t* at) { return load(at, Full{}); }
  PTO_INLINE static F add(U left, U right, F sum) { return dot_pairs(left, right, sum); }
};

/// The step to a neighbour, which is known when code is compiled.
struct One {
  constexpr operator int64_t() const { return 1; }
};

/// A left operand: element (row, k) lies at `data + row * row_step + k * k_step`.
template <class T, class Step = int64_t>
struct Strided {
  typedef T Element;

  const T* data;
  int64_t row_step;
  Step k_step;
};

/// Whether both operands are bf16, and terms of a row of the left one are neighbours.
template <class Left, class B>
inline constexpr bool kIsPaired = false;
template <>
inline constexpr bool kIsPaired<Strided<Bf16, One>, Bf16> = true;

/// A right operand: element (k, j) lies at `data + j / width * panel_step + k * stride + j % width`, where
/// the width is that of a block of columns.
template <class T>
struct Right {
  T* data;
  int64_t stride;
  int64_t panel_step;
  int64_t rows;
  int64_t cols;
};

}  // namespace pto::wsp::tile
