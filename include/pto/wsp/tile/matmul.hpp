// SPDX-License-Identifier: MIT
/// \file
/// The matrix product of tiles, accumulated in f32.
///
/// Element (i, j) is one chain of fused multiply-adds over k in ascending order, whatever block of rows and
/// columns it is computed in: a row has the same bits however many rows and columns are valid.
#pragma once

#include "pto/wsp/tile/math.hpp"
#include "pto/wsp/tile/move.hpp"

namespace pto::wsp::tile {

#if PTO_LANES == 16 || defined(__aarch64__)
inline constexpr int kBlockRows = 8;
#else
inline constexpr int kBlockRows = 6;
#endif

inline constexpr uint64_t kLineBytes = 64;

/// Brings the lines of `count` elements into the first cache.
template <int64_t kCount, class T>
PTO_INLINE inline void prefetch_lines(const T* p) {
#pragma GCC unroll 4
  for (uint64_t at = 0; at < kCount * sizeof(T); at += kLineBytes)
    __builtin_prefetch(reinterpret_cast<const char*>(p) + at);
}

/// Elements (row, k) of an operand lie at `data + row * row_step + k * k_step`.
template <class T>
struct Strided {
  const T* data;
  int64_t row_step;
  int64_t k_step;
};

/// Rows of memory that are needed soon. They are brought into the first cache one at a time, between other
/// work: a burst of them would hold up everything behind it.
template <class T>
struct Soon {
  const T* row;
  int64_t stride;   ///< elements between rows
  int64_t spacing;  ///< steps of the work per row
};

/// c[rows][kVectors * kLanes] (+)= a @ b over `k` terms, for 0 < rows <= kRows; whole vectors of `b` and `c`
/// are accessed. Rows beyond the last are computed from it again and not written.
template <int kRows, int kVectors, class A, class B>
PTO_INLINE inline void matmul_block(int64_t rows, float* c, int64_t c_stride, Strided<A> a, const float* b,
                                    int64_t b_stride, int64_t k, bool accumulate, Soon<B> soon) {
  F sum[kRows][kVectors] = {};
  int64_t left_row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) left_row[r] = (r < rows ? r : rows - 1) * a.row_step;
  if (accumulate) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float* from = c + (r < rows ? r : rows - 1) * c_stride;
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = load(from + v * kLanes, Full{});
    }
  }
  for (int64_t t = 0, wait = 0; t < k; ++t, --wait) {
    if (wait == 0) {
      prefetch_lines<kVectors * kLanes>(soon.row);
      soon.row += soon.stride;
      wait = soon.spacing;
    }
    F right[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) right[v] = load(b + v * kLanes, Full{});
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F left = load_splat(a.data + left_row[r]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][v] = fma(left, right[v], sum[r][v]);
    }
    a.data += a.k_step;
    b += b_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(c + r * c_stride + v * kLanes, sum[r][v], Full{});
  }
}

template <int kVectors, int kMaxRows, class A, class B>
PTO_INLINE inline void matmul_rows(int64_t rows, float* c, int64_t c_stride, Strided<A> a, const float* b,
                                   int64_t b_stride, int64_t k, bool accumulate, Soon<B> soon) {
  static_assert(kBlockRows <= 8);
#define PTO_BLOCK(least, most)                                                                     \
  if constexpr (least <= kMaxRows && least <= kBlockRows) {                                        \
    if (rows >= least) {                                                                           \
      return matmul_block<most, kVectors>(rows, c, c_stride, a, b, b_stride, k, accumulate, soon); \
    }                                                                                              \
  }
  PTO_BLOCK(7, 8)
  PTO_BLOCK(5, 6)
  PTO_BLOCK(2, 4)
  PTO_BLOCK(1, 1)
#undef PTO_BLOCK
}

/// A block of a right operand, whole vectors of which can be read as f32: the block itself, or a copy.
template <int64_t kWidth, class B>
PTO_INLINE inline Tile<float> whole_vectors(const Tile<B>& block, int64_t padding, float* panel) {
  if constexpr (sizeof(B) == sizeof(float)) {
    return block.cols + padding >= kWidth ? block : copy(block, panel, kWidth);
  } else {
    for (int64_t t = 0; t < block.rows; ++t) {
      columns(block.cols, [&](int64_t j, auto n) PTO_INLINE {
        store(panel + t * kWidth + j, load(block.row(t) + j, n), Full{});
      });
    }
    return {panel, kWidth, block.rows, block.cols};
  }
}

/// Terms of a block of a right operand, whose rows are `stride` bytes apart: what of it is used at a time
/// stays in the first cache.
constexpr int64_t matmul_depth(int64_t stride) { return stride <= 128 ? 256 : 128; }

/// c (+)= a @ b, where a is m x k and b is k x n.
///
/// Blocks of `b` are taken in the order of memory, as far as that is possible, and while one is used, as many
/// lines behind it are prefetched: those of the next block, or of the panel that lies behind `b`.
///
/// \tparam kVectors 1 where n never exceeds one vector, else 2
/// \tparam kMaxRows the largest m there can be, or more
/// \param c its rows are padded to whole blocks of columns, which are written
/// \param b_padding elements that may be read beyond the last row's valid part
/// \param panel room for a block of `b`: it is used where `b_padding` does not cover the last columns, and
/// for
///        small floats, which are widened once for all rows
template <int kVectors, int kMaxRows, class A, class B>
[[gnu::noinline]] void matmul(const Tile<float>& c, const Strided<A>& a, const Tile<B>& b, bool accumulate,
                              int64_t b_padding, float* panel) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t block_depth = matmul_depth(b.stride * int64_t(sizeof(B)));
  const bool is_dense = b.stride == c.cols;
  const int64_t groups = (c.rows + kBlockRows - 1) / kBlockRows;
  for (int64_t k0 = 0; k0 == 0 || k0 < b.rows; k0 += block_depth) {
    const int64_t depth = b.rows - k0 < block_depth ? b.rows - k0 : block_depth;
    const int64_t share = (depth + groups - 1) / (groups > 0 ? groups : 1);
    for (int64_t j = 0; j < c.cols; j += kWidth) {
      const Tile<B> block{b.row(k0) + j, b.stride, depth, c.cols - j < kWidth ? c.cols - j : kWidth};
      const Tile<float> right = whole_vectors<kWidth>(block, b_padding, panel);
      const B* const behind = b.row(k0 + depth);
      Soon<B> soon =
          is_dense ? Soon<B>{behind + j * depth, kWidth, groups} : Soon<B>{behind + j, b.stride, groups};
      for (int64_t g = 0, i = 0; g < groups; ++g) {
        const int64_t rows = c.rows / groups + (g < c.rows % groups);
        const Strided<A> left{a.data + i * a.row_step + k0 * a.k_step, a.row_step, a.k_step};
        matmul_rows<kVectors, kMaxRows>(rows, c.row(i) + j, c.stride, left, right.data, right.stride, depth,
                                        accumulate || k0 > 0, soon);
        soon.row += share * soon.stride;
        i += rows;
      }
    }
  }
}

}  // namespace pto::wsp::tile
