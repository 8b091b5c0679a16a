// SPDX-License-Identifier: MIT
/// \file
/// The matrix product of tiles, accumulated in f32.
///
/// Element (i, j) is one chain of fused multiply-adds over k in ascending order, whatever block of rows and
/// columns it is computed in: a row has the same bits however many rows and columns are valid.
#pragma once

#include "pto/wsp/tile/ahead.hpp"
#include "pto/wsp/tile/math.hpp"
#include "pto/wsp/tile/move.hpp"

namespace pto::wsp::tile {

#if PTO_LANES == 16 || defined(__aarch64__)
inline constexpr int kBlockRows = 8;
#else
inline constexpr int kBlockRows = 6;
#endif

/// Elements (row, k) of an operand lie at `data + row * row_step + k * k_step`.
template <class T>
struct Strided {
  const T* data;
  int64_t row_step;
  int64_t k_step;
};

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

/// What is brought into the first cache while a product works: as many rows as a block of its right operand
/// has, one at a time. A product calls `next` every `spacing` terms.
template <int64_t kWidth, class B>
struct Behind {
  const B* row;
  int64_t stride;
  int64_t spacing;

  void begin_block(const B* first, int64_t row_stride, int64_t groups) {
    row = first;
    stride = row_stride;
    spacing = groups;
  }
  PTO_INLINE void next() {
    prefetch_lines<kWidth>(row);
    row += stride;
  }
};

/// The lines of a window, spread over the whole of a product.
class Spread {
 public:
  /// \param terms of the product, all of its blocks together
  Spread(const Ahead& ahead, int64_t terms) : ahead_(ahead) {
    const int64_t lines = ahead.lines();
    if (lines < terms) spacing = lines > 0 ? terms / lines : terms;
    if (lines > terms && terms > 0) burst_ = int((lines + terms - 1) / terms);
  }

  template <class B>
  void begin_block(const B*, int64_t, int64_t) {}
  PTO_INLINE void next() { ahead_.next(burst_); }

  int64_t spacing = 1;

 private:
  Ahead ahead_;
  int burst_ = 1;
};

/// c[rows][kVectors * kLanes] (+)= a @ b over `k` terms, for 0 < rows <= kRows; whole vectors of `b` and `c`
/// are accessed. Rows beyond the last are computed from it again and not written.
template <int kRows, int kVectors, class A, class Soon>
PTO_INLINE inline void matmul_block(int64_t rows, float* c, int64_t c_stride, Strided<A> a, const float* b,
                                    int64_t b_stride, int64_t k, bool accumulate, Soon& soon) {
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
      soon.next();
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

template <int kVectors, int kMaxRows, class A, class Soon>
PTO_INLINE inline void matmul_rows(int64_t rows, float* c, int64_t c_stride, Strided<A> a, const float* b,
                                   int64_t b_stride, int64_t k, bool accumulate, Soon& soon) {
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

/// The blocks of c (+)= a @ b, for `matmul`.
template <int kVectors, int kMaxRows, class A, class B, class Soon>
PTO_INLINE inline void matmul_blocks(const Tile<float>& c, const Strided<A>& a, const Right<B>& b,
                                     bool accumulate, int64_t b_padding, float* panel, Soon& soon) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t block_depth = matmul_depth(b.stride * int64_t(sizeof(B)));
  const bool is_packed = b.panel_step != kWidth, is_dense = b.stride == c.cols;
  const int64_t groups = (c.rows + kBlockRows - 1) / kBlockRows;
  for (int64_t k0 = 0; k0 == 0 || k0 < b.rows; k0 += block_depth) {
    const int64_t depth = b.rows - k0 < block_depth ? b.rows - k0 : block_depth;
    B* first = b.data + k0 * b.stride;
    for (int64_t j = 0; j < c.cols; j += kWidth, first += b.panel_step) {
      const Tile<B> block{first, b.stride, depth, c.cols - j < kWidth ? c.cols - j : kWidth};
      const Tile<float> right = whole_vectors<kWidth>(block, b_padding, panel);
      if (is_packed) {
        soon.begin_block(first + b.panel_step, b.stride, groups);
      } else {
        const B* const behind = first + depth * b.stride;
        is_dense ? soon.begin_block(behind + j * (depth - 1), kWidth, groups)
                 : soon.begin_block(behind, b.stride, groups);
      }
      for (int64_t g = 0, i = 0; g < groups; ++g) {
        const int64_t rows = c.rows / groups + (g < c.rows % groups);
        const Strided<A> left{a.data + i * a.row_step + k0 * a.k_step, a.row_step, a.k_step};
        matmul_rows<kVectors, kMaxRows>(rows, c.row(i) + j, c.stride, left, right.data, right.stride, depth,
                                        accumulate || k0 > 0, soon);
        i += rows;
      }
    }
  }
}

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
  Behind<kWidth, B> behind{};
  const Right<B> right{b.data, b.stride, kWidth, b.rows, b.cols};
  matmul_blocks<kVectors, kMaxRows>(c, a, right, accumulate, b_padding, panel, behind);
}

/// The same for a right operand in whole panels, while lines of what is needed next are brought nearer.
template <int kVectors, int kMaxRows, class A>
[[gnu::noinline]] void matmul(const Tile<float>& c, const Strided<A>& a, const Right<float>& b,
                              bool accumulate, const Ahead& ahead) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t groups = (c.rows + kBlockRows - 1) / kBlockRows;
  Spread spread(ahead, groups * b.rows * ((b.cols + kWidth - 1) / kWidth));
  matmul_blocks<kVectors, kMaxRows>(c, a, b, accumulate, kWidth, nullptr, spread);
}

// --- right operands in panels -----------------------------------------------------------------------------

/// A copy of a window as a right operand. What lies beside the last column is garbage.
/// \param to room for whole panels
template <int kVectors, class T>
[[gnu::noinline]] Right<float> pack(const Window<T>& from, float* to) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t step = from.rows * kWidth;
  for (int64_t i = 0; i < from.rows; ++i) {
    const T* const row = from.row(i);
    columns(from.cols, [&](int64_t j, auto n) PTO_INLINE {
      store(to + j / kWidth * step + i * kWidth + j % kWidth, load(row + j, n), Full{});
    });
  }
  return {to, kWidth, step, from.rows, from.cols};
}

/// A copy of the transpose of a window as a right operand.
template <int kVectors, class T>
[[gnu::noinline]] Right<float> pack_turned(const Window<T>& from, float* to) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t step = from.cols * kWidth;
  for (int64_t i = 0; i < from.rows; i += kLanes) {
    const int64_t rows = from.rows - i < kLanes ? from.rows - i : kLanes;
    const T* row[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) row[r] = from.row(i + (r < rows ? r : rows - 1));
    float* const target = to + i / kWidth * step + i % kWidth;
    columns(from.cols, [&](int64_t j, auto n) PTO_INLINE {
      const auto lanes = [&](int64_t r) PTO_INLINE { return (U)load(row[r] + j, n); };
      transpose_block<U>(target + j * kWidth, kWidth, lanes, kLanes, extent_of(n));
    });
  }
  return {to, kWidth, step, from.cols, from.rows};
}

#ifdef PTO_PART
PTO_PART void matmul<1, 8>(const Tile<float>&, const Strided<float>&, const Tile<float>&, bool, int64_t,
                           float*);
PTO_PART void matmul<2, 8>(const Tile<float>&, const Strided<float>&, const Tile<float>&, bool, int64_t,
                           float*);
#endif

}  // namespace pto::wsp::tile
