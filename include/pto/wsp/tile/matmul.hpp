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

/// Elements (row, k) of an operand lie at `data + row * row_step + k * k_step`.
template <class T>
struct Strided {
  const T* data;
  int64_t row_step;
  int64_t k_step;
};

/// c[rows][kVectors * kLanes] (+)= a @ b over `k` terms, for 0 < rows <= kRows; whole vectors of `b` and `c`
/// are accessed. Rows beyond the last are computed from it again and not written.
///
/// \param ahead block of `b` that is needed next and brought nearer meanwhile, or null
template <int kRows, int kVectors, class A, class B>
PTO_INLINE inline void matmul_block(int64_t rows, float* c, int64_t c_stride, Strided<A> a, const B* b,
                                    int64_t b_stride, int64_t k, bool accumulate, const B* ahead) {
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
  for (int64_t t = 0; t < k; ++t) {
    if (ahead != nullptr) {
      __builtin_prefetch(ahead);
      if constexpr (kVectors * kLanes * sizeof(B) > kLineBytes)
        __builtin_prefetch(ahead + kLineBytes / sizeof(B));
      ahead += b_stride;
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
[[gnu::noinline]] void matmul_rows(int64_t rows, float* c, int64_t c_stride, Strided<A> a, const B* b,
                                   int64_t b_stride, int64_t k, bool accumulate, const B* ahead) {
  static_assert(kBlockRows <= 8);
#define PTO_BLOCK(least, most)                                                                      \
  if constexpr (least <= kMaxRows && least <= kBlockRows) {                                         \
    if (rows >= least) {                                                                            \
      return matmul_block<most, kVectors>(rows, c, c_stride, a, b, b_stride, k, accumulate, ahead); \
    }                                                                                               \
  }
  PTO_BLOCK(7, 8)
  PTO_BLOCK(5, 6)
  PTO_BLOCK(2, 4)
  PTO_BLOCK(1, 1)
#undef PTO_BLOCK
}

/// c (+)= a @ b, where a is m x k and b is k x n.
///
/// \tparam kVectors 1 where n never exceeds one vector, else 2
/// \tparam kMaxRows the largest m there can be, or more
/// \param c its rows are padded to whole blocks of columns, which are written
/// \param b_padding elements that may be read beyond the last row's valid part
/// \param panel k * kVectors * kLanes elements, used where `b_padding` does not cover the last columns
template <int kVectors, int kMaxRows, class A, class B>
[[gnu::noinline]] void matmul(const Tile<float>& c, const Strided<A>& a, const Tile<B>& b, bool accumulate,
                              int64_t b_padding, B* panel) {
  constexpr int64_t kWidth = kVectors * kLanes;
  constexpr int64_t kDepth = 256;
  const int64_t groups = (c.rows + kBlockRows - 1) / kBlockRows;
  for (int64_t k0 = 0; k0 == 0 || k0 < b.rows; k0 += kDepth) {
    const int64_t depth = b.rows - k0 < kDepth ? b.rows - k0 : kDepth;
    for (int64_t j = 0; j < c.cols; j += kWidth) {
      Tile<B> right{b.row(k0) + j, b.stride, depth, c.cols - j};
      if (right.cols + b_padding < kWidth) right = copy(right, panel, kWidth);
      const B* ahead = j + kWidth < c.cols    ? b.row(k0) + j + kWidth
                       : k0 + kDepth < b.rows ? b.row(k0 + kDepth)
                                              : nullptr;
      for (int64_t g = 0, i = 0; g < groups; ++g) {
        const int64_t rows = c.rows / groups + (g < c.rows % groups);
        const Strided<A> left{a.data + i * a.row_step + k0 * a.k_step, a.row_step, a.k_step};
        matmul_rows<kVectors, kMaxRows>(rows, c.row(i) + j, c.stride, left, right.data, right.stride, depth,
                                        accumulate || k0 > 0, g == 0 ? ahead : nullptr);
        i += rows;
      }
    }
  }
}

}  // namespace pto::wsp::tile
