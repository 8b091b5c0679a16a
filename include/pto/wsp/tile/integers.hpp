// SPDX-License-Identifier: MIT
/// \file
/// The matrix product of tiles of i8, exact in i32, where sums wrap.
///
/// Four rows of a right operand share lanes. Their bytes are made unsigned, by 128 more, which sums of rows
/// of the left operand compensate.
#pragma once

#include "pto/wsp/tile/bytes.hpp"
#include "pto/wsp/tile/columns.hpp"
#include "pto/wsp/tile/move.hpp"

namespace pto::wsp::tile {

namespace integers {

/// What makes a signed byte unsigned: 128 more.
inline constexpr uint32_t kSigns = 0x80808080u;
inline constexpr int32_t kOffset = 128;

/// Terms of a block of a right operand, whose quads stay in the first cache.
inline constexpr int64_t kDepth = 256;

/// Four terms of a row of a left operand; of those from `n` on, 0.
template <class Step>
PTO_INLINE inline uint32_t left_quad(const int8_t* at, Step k_step, int64_t n) {
  if (int64_t(k_step) == 1 && n >= kQuad) return load_quad(at);
  uint32_t quad = 0;
  for (int64_t k = 0; k < n && k < kQuad; ++k) quad |= uint32_t(uint8_t(at[k * k_step])) << (8 * k);
  return quad;
}

/// The sum of `n` elements.
template <class Step>
inline int32_t sum_of(const int8_t* at, Step k_step, int64_t n) {
  I sums{};
  for (int64_t k = 0; k < n; k += kQuad)
    sums = dot_quads(splat(0x01010101u), splat(left_quad(at + k * k_step, k_step, n - k)), sums);
  return sums[0];
}

/// Rows of a block in lanes of four, kWidth to a quad of rows.
template <int64_t kWidth>
inline void make_quads(const Tile<int8_t>& block, uint32_t* quads) {
  for (int64_t t = 0; t < block.rows; t += kQuad, quads += kWidth) {
    columns(block.cols, [&](int64_t j, auto n) PTO_INLINE {
      U lanes{};
      for_constants<int(kQuad)>([&](auto k) PTO_INLINE {
        const int64_t row = t + k.value < block.rows ? t + k.value : block.rows - 1;
        lanes |= ((U)load(block.row(row) + j, n) & 0xffu) << (8 * k.value);
      });
      store(quads + j, lanes ^ kSigns, Full{});
    });
  }
}

/// c[rows][kVectors * kLanes] += a @ quads over `depth` terms, for 0 < rows <= kRows. Rows beyond the last
/// are computed from it again and not written.
template <int kRows, int kVectors, class Step>
PTO_INLINE inline void add_block(int64_t rows, int32_t* c, int64_t c_stride, const Strided<int8_t, Step>& a,
                                 const uint32_t* quads, int64_t depth) {
  I sum[kRows * kVectors] = {};
  const int8_t* left[kRows];
  for_constants<kRows>(
      [&](auto r) PTO_INLINE { left[r.value] = a.data + (r.value < rows ? r.value : 0) * a.row_step; });
  for (int64_t t = 0; t < depth; t += kQuad, quads += kVectors * kLanes) {
    U right[kVectors];
    for_constants<kVectors>([&](auto v)
                                PTO_INLINE { right[v.value] = load(quads + v.value * kLanes, Full{}); });
    for_constants<kRows>([&](auto r) PTO_INLINE {
      const U quad = splat(left_quad(left[r.value] + t * a.k_step, a.k_step, depth - t));
      for_constants<kVectors>([&](auto v) PTO_INLINE {
        I& of = sum[r.value * kVectors + v.value];
        of = dot_quads(right[v.value], quad, of);
      });
    });
  }
  for_constants<kRows>([&](auto r) PTO_INLINE {
    if (r.value >= rows) return;
    for_constants<kVectors>([&](auto v) PTO_INLINE {
      int32_t* const to = c + r.value * c_stride + v.value * kLanes;
      store(to, (I)((U)load(to, Full{}) + (U)sum[r.value * kVectors + v.value]), Full{});
    });
  });
}

/// Sums before products are added: those of before or 0, less what unsigned bytes add too much.
template <class Step>
inline void begin_sums(const Tile<int32_t>& c, const Strided<int8_t, Step>& a, int64_t depth,
                       bool accumulate) {
  for (int64_t i = 0; i < c.rows; ++i) {
    const U excess = splat(uint32_t(kOffset) * uint32_t(sum_of(a.data + i * a.row_step, a.k_step, depth)));
    padded_columns(c.cols, [&](int64_t j, auto n) PTO_INLINE {
      const U before = accumulate ? (U)load(c.row(i) + j, n) : U{};
      store(c.row(i) + j, (I)(before - excess), n);
    });
  }
}

}  // namespace integers

/// c (+)= a @ b, where a is m x k and b is k x n. Whole blocks of columns of c are written.
/// \tparam kVectors vectors of columns of a block
/// \param quads room for a block of `b` of integers::kDepth rows, if it has as many
template <int kVectors, class Step>
[[gnu::noinline]] void matmul_integers(const Tile<int32_t>& c, const Strided<int8_t, Step>& a,
                                       const Tile<int8_t>& b, bool accumulate, uint32_t* quads) {
  constexpr int64_t kWidth = kVectors * kLanes;
  constexpr int kRows = 4;
  integers::begin_sums(c, a, b.rows, accumulate);
  for (int64_t k = 0; k < b.rows; k += integers::kDepth) {
    const int64_t depth = b.rows - k < integers::kDepth ? b.rows - k : integers::kDepth;
    for (int64_t j = 0; j < c.cols; j += kWidth) {
      const int64_t cols = c.cols - j < kWidth ? c.cols - j : kWidth;
      integers::make_quads<kWidth>({b.row(k) + j, b.stride, depth, cols}, quads);
      for (int64_t i = 0; i < c.rows; i += kRows) {
        const Strided<int8_t, Step> left{a.data + i * a.row_step + k * a.k_step, a.row_step, a.k_step};
        const int64_t rows = c.rows - i < kRows ? c.rows - i : kRows;
        int32_t* const to = c.row(i) + j;
        rows > 1 ? integers::add_block<kRows, kVectors>(rows, to, c.stride, left, quads, depth)
                 : integers::add_block<1, kVectors>(rows, to, c.stride, left, quads, depth);
      }
    }
  }
}

}  // namespace pto::wsp::tile
