// SPDX-License-Identifier: MIT
/// \file
/// Matrix products of few rows, whose right operand is read once, where it lies: bound by memory, not by
/// arithmetic.
///
/// The right operand is a window, of any rows of a view, and is neither copied nor turned. While its lines
/// are read, as many lines of what is needed next are brought nearer: spread like this they cost nothing,
/// where a burst of them would hold up everything behind it.
#pragma once

#include "pto/wsp/tile/matmul.hpp"

namespace pto::wsp::tile {

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

/// Lines of memory in so many elements, at least one.
template <class T>
constexpr int lines_in(int elements) {
  const int lines = elements * int(sizeof(T)) / int(kLineBytes);
  return lines < 1 ? 1 : lines;
}

/// Halves as many vectors as often as it takes to leave `kLeft`: lane by lane, vector i and the one half of
/// them further on become the sums of pairs of their lanes. Of kLanes vectors, lane i of the one that is left
/// is the sum of the lanes of v[i]. Overwrites v.
template <int kFrom, int kLeft>
PTO_INLINE inline void fold_lanes(F* v) {
#pragma GCC unroll 4
  for (int half = kFrom / 2; half >= kLeft; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) v[i] = PTO_ZIP_LOW(v[i], v[i + half]) + PTO_ZIP_HIGH(v[i], v[i + half]);
  }
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

/// Rows of the right operand whose products are summed side by side: as many as there are registers for.
template <int kRows>
constexpr int kDotColumns = kBlockRows == 8 && kRows <= 4 ? 4 : 2;

/// The products of rows of `a` with kDotColumns rows of `b`, over k terms: each lane sums every kLanes-th of
/// them. What is left of folding their lanes goes to `sums[row][j]`.
template <int kRows, class A, class B>
PTO_INLINE inline void dot_block(const A* a, const LeftRows<kRows>& rows, const B* const* b, int64_t k,
                                 F (*sums)[kLanes / kDotColumns<kRows>], int64_t j, Ahead& ahead) {
  constexpr int kColumns = kDotColumns<kRows>;
  F s[kRows][kColumns] = {};
  columns(k, [&](int64_t t, auto n) PTO_INLINE {
    F right[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) right[c] = load(b[c] + t, n);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F left = load(a + rows.at[r] + t, n);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) s[r][c] = fma(left, right[c], s[r][c]);
    }
    ahead.next(lines_in<B>(kColumns * kLanes));
  });
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    fold_lanes<kColumns, 1>(s[r]);
    sums[r][j] = s[r][0];
  }
}

template <int kRows, class A, class B>
void dots_rows(const Tile<float>& c, const Strided<A>& a, const Window<B>& b, bool accumulate, Ahead ahead) {
  constexpr int kColumns = kDotColumns<kRows>, kStep = kLanes / kColumns;
  const LeftRows<kRows> rows(c.rows, a.row_step);
  for (int64_t j0 = 0; j0 < b.rows; j0 += kLanes) {
    F sums[kRows][kStep];
    for (int64_t j = 0; j < kStep; ++j) {
      const B* right[kColumns];
#pragma GCC unroll 4
      for (int n = 0; n < kColumns; ++n) {
        // Columns beyond the last are computed from it again: they are padding.
        const int64_t column = j0 + j + n * kStep;
        right[n] = b.row(column < b.rows ? column : b.rows - 1);
      }
      dot_block<kRows>(a.data, rows, right, b.cols, sums, j, ahead);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if (r >= c.rows) break;
      fold_lanes<kStep, 1>(sums[r]);
      float* const to = c.row(r) + j0;
      store(to, accumulate ? add(load(to, Full{}), sums[r][0]) : sums[r][0], Full{});
    }
  }
}

/// Elements from a row to what is to be prefetched when it is read: bytes enough to hide how far away memory
/// is, a few rows at least; 0 where the rows of a window are anywhere.
template <class T>
inline int64_t stream_distance(const Window<T>& window) {
  constexpr int64_t kBytes = 8192, kRows = 4;
  if (window.index != nullptr || window.stride <= 0) return 0;
  const int64_t rows = kBytes / (window.stride * int64_t(sizeof(T)));
  return (rows < kRows ? kRows : rows) * window.stride;
}

/// kVectors vectors of columns from `j`.
template <int kRows, int kVectors, class A, class B, class N>
PTO_INLINE inline void stream_block(const Tile<float>& c, const Strided<A>& a, const Window<B>& b, int64_t j,
                                    bool accumulate, Ahead& ahead, N n) {
  const LeftRows<kRows> rows(c.rows, a.row_step), targets(c.rows, c.stride);
  F sum[kRows][kVectors] = {};
  if (accumulate) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = load(c.data + targets.at[r] + j + v * kLanes, Full{});
    }
  }
  const int64_t distance = stream_distance(b);
  for (int64_t t = 0; t < b.rows; ++t) {
    const B* const row = b.row(t) + j;
    if (distance > 0) prefetch_lines<kVectors * kLanes>(row + distance);
    F right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = load(row + v * kLanes, n);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const F left = load_splat(a.data + rows.at[r] + t * a.k_step);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = fma(left, right[v], sum[r][v]);
    }
    ahead.next(lines_in<B>(kVectors * kLanes));
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    if (r >= c.rows) break;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(c.row(r) + j + v * kLanes, sum[r][v], Full{});
  }
}

template <int kRows, class A, class B>
void stream_rows(const Tile<float>& c, const Strided<A>& a, const Window<B>& b, bool accumulate,
                 Ahead ahead) {
  constexpr int kWide = kRows > 4 ? 2 : 4;
  int64_t j = 0;
  for (; b.cols - j >= kWide * kLanes; j += kWide * kLanes)
    stream_block<kRows, kWide>(c, a, b, j, accumulate, ahead, Full{});
  for (; b.cols - j >= kLanes; j += kLanes) stream_block<kRows, 1>(c, a, b, j, accumulate, ahead, Full{});
  if (j < b.cols) stream_block<kRows, 1>(c, a, b, j, accumulate, ahead, Tail{b.cols - j});
}

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

/// c (+)= a @ b^T, where a is m x k with its terms side by side, and b is n x k. Whole vectors of c are
/// written.
template <int kMaxRows, class A, class B>
[[gnu::noinline]] void stream_dots(const Tile<float>& c, const Strided<A>& a, const Window<B>& b,
                                   bool accumulate, Ahead ahead) {
  for_few_rows<kMaxRows>(c.rows, [&](auto rows) { dots_rows<rows.value>(c, a, b, accumulate, ahead); });
}

/// c (+)= a @ b, where a is m x k and b is k x n. Whole vectors of c are written; element (i, j) is one chain
/// of fused multiply-adds in ascending order, as in `matmul`.
template <int kMaxRows, class A, class B>
[[gnu::noinline]] void stream_matmul(const Tile<float>& c, const Strided<A>& a, const Window<B>& b,
                                     bool accumulate, Ahead ahead) {
  for_few_rows<kMaxRows>(c.rows, [&](auto rows) { stream_rows<rows.value>(c, a, b, accumulate, ahead); });
}

}  // namespace pto::wsp::tile
