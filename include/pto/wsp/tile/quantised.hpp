// SPDX-License-Identifier: MIT
/// \file
/// Matrix products with a quantised right operand. How its bytes lie, and what elements they are, is said in
/// python/pto_wsp/types/quantised.py.
///
/// An element is `(q - zero) * scale + minimum`, where the product and the sum are rounded to f32. A product
/// is one chain of fused multiply-adds over elements in ascending order, as in matmul.hpp.
#pragma once

#include "pto/wsp/tile/bytes.hpp"
#include "pto/wsp/tile/few_rows.hpp"

namespace pto::wsp::tile {

/// A row of the table of formats.
/// \tparam kLevel_ 0: the scale of a group is an f16; else it is an integer, signed where -1, times that of
/// its
///         block
template <int kBits_, int kZero_, int kGroup_, int kBlock_, int kHasMinimum_, int kLevel_>
struct Format {
  static constexpr int kBits = kBits_, kZero = kZero_, kGroup = kGroup_, kBlock = kBlock_, kLevel = kLevel_;
  static constexpr bool kHasMinimum = kHasMinimum_ != 0;
  static constexpr int kGroups = kBlock / kGroup;
  static constexpr int kQuads = kBlock / (kBits == 8 ? 4 : 8), kHighQuads = kBits == 6 ? kBlock / 16 : 0;
  /// Bytes of a column before its scales, of its scales, and of all.
  static constexpr int64_t kNumbers = 4 * (kQuads + kHighQuads);
  static constexpr int64_t kScales = kLevel == 0 ? 2 * kGroups : kGroups + 2;
  static constexpr int64_t kColumn = kNumbers + kScales * (kHasMinimum ? 2 : 1);
};

namespace quantised {

/// Rows whose quads lie together, and quads of them.
inline constexpr int kChunk = 32, kChunkQuads = kChunk / int(kQuad);

/// Rows of a right operand that are widened for products of many rows at a time.
inline constexpr int64_t kDepth = 256;

/// Columns of a block, from one on; those from `n` on are not read.
template <class Fm, class N>
struct Columns {
  const uint8_t* block;  ///< all columns of it
  int64_t cols;          ///< so many
  int64_t first;
  N n;

  /// The four numbers of quad `v` of a chunk, as bytes of a lane.
  PTO_INLINE U numbers(int chunk, int v) const {
    if constexpr (Fm::kBits == 8) return quad(chunk * kChunkQuads + v);
    const U both = quad(chunk * 4 + v % 4);
    const U low = (v < 4 ? both : both >> 4) & 0x0f0f0f0fu;
    if constexpr (Fm::kBits == 4) return low;
    const U high = quad(Fm::kQuads + chunk * 2 + v % 2) >> uint32_t(v / 2 * 2);
    return low | (high & 0x03030303u) << 4;
  }

  PTO_INLINE F scale(int group) const { return factor<Fm::kLevel>(Fm::kNumbers, group); }

  /// What is added to the product of a number and its scale.
  PTO_INLINE F offset(int group, F scale) const {
    if constexpr (!Fm::kHasMinimum) return scale * float(-Fm::kZero);
    const F minimum = factor<(Fm::kLevel != 0 ? 1 : 0)>(Fm::kNumbers + Fm::kScales, group);
    return Fm::kLevel != 0 ? neg(minimum) : minimum;
  }

 private:
  PTO_INLINE U quad(int t) const { return load(at<uint32_t>(4 * t * cols), n); }

  /// Element `first` of the bytes that begin at `bytes`.
  template <class T>
  PTO_INLINE const T* at(int64_t bytes) const {
    return reinterpret_cast<const T*>(block + bytes) + first;
  }

  template <int kLevel>
  PTO_INLINE F factor(int64_t place, int group) const {
    if constexpr (kLevel == 0) return load(at<F16>((place + 2 * group) * cols), n);
    const F of_block = load(at<F16>((place + Fm::kGroups) * cols), n);
    if constexpr (kLevel < 0) return load_terms(at<int8_t>((place + group) * cols), n) * of_block;
    return load_terms(at<uint8_t>((place + group) * cols), n) * of_block;
  }
};

/// Calls `body` with the rows of a block in ascending order, and kVectors vectors of their elements.
template <int kVectors, class Fm, class N, class Body>
PTO_INLINE inline void for_elements(const uint8_t* block, int64_t cols, int64_t first, N n,
                                    const Body& body) {
  const auto columns = [&](int v) PTO_INLINE { return Columns<Fm, N>{block, cols, first + v * kLanes, n}; };
  constexpr int kRows = Fm::kGroup < kChunk ? Fm::kGroup : kChunk, kQuadsOf = kRows / int(kQuad);
  for (int row = 0; row < Fm::kBlock; row += kRows) {
    const int chunk = row / kChunk, first_quad = row % kChunk / int(kQuad);
    F scale[kVectors], offset[kVectors];
    for_constants<kVectors>([&](auto v) PTO_INLINE {
      scale[v.value] = columns(v.value).scale(row / Fm::kGroup);
      offset[v.value] = columns(v.value).offset(row / Fm::kGroup, scale[v.value]);
    });
    for_constants<kQuadsOf>([&](auto t) PTO_INLINE {
      U numbers[kVectors];
      for_constants<kVectors>([&](auto v) PTO_INLINE {
        numbers[v.value] = columns(v.value).numbers(chunk, first_quad + t.value);
      });
      for_constants<int(kQuad)>([&](auto i) PTO_INLINE {
        F elements[kVectors];
        for_constants<kVectors>([&](auto v) PTO_INLINE {
          const U number =
              i.value == 3 ? numbers[v.value] >> 24 : (numbers[v.value] >> (8 * i.value)) & 0xffu;
          const F wide = __builtin_convertvector((I)number, F);
          elements[v.value] = fma(wide, scale[v.value], offset[v.value]);  // rounds once, as the two steps do
        });
        body(row + int(kQuad) * t.value + i.value, elements);
      });
    });
  }
}

/// Bytes ahead of a block that are brought nearer while it is used.
inline constexpr int64_t kAhead = 4096;

/// c[rows][kVectors * kLanes] += a @ w from column `j` on, for 0 < rows <= kRows. Rows beyond the last are
/// computed from it again and not written.
template <class Fm, int kRows, int kVectors, class A, class N>
PTO_INLINE inline void stream_block(const Tile<float>& c, const Strided<A, One>& a, const Tile<uint8_t>& w,
                                    int64_t j, N n) {
  const LeftRows<kRows> rows(c.rows, a.row_step), targets(c.rows, c.stride);
  const int64_t cols = w.cols / Fm::kColumn;
  F sum[kRows * kVectors];
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    constexpr int r = i.value / kVectors, v = i.value % kVectors;
    sum[i.value] = load(c.data + targets.at[r] + j + v * kLanes, Full{});
  });
  const A* left = a.data;
  for (int64_t b = 0; b < w.rows; ++b, left += Fm::kBlock) {
    const uint8_t* const block = w.row(b);
    for (int64_t at = 0; at < w.cols; at += int64_t(kLineBytes))
      __builtin_prefetch(block + kAhead + at, 0, kFirstCache);
    for_elements<kVectors, Fm>(block, cols, j, n, [&](int k, const F* elements) PTO_INLINE {
      for_constants<kRows>([&](auto r) PTO_INLINE {
        const F splat = load_splat(left + rows.at[r.value] + k);
        for_constants<kVectors>([&](auto v) PTO_INLINE {
          constexpr int at = r.value * kVectors + v.value;
          sum[at] = add_product(splat, elements[v.value], sum[at]);
        });
      });
    });
  }
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    constexpr int r = i.value / kVectors, v = i.value % kVectors;
    if (r < c.rows) store(c.row(r) + j + v * kLanes, sum[i.value], Full{});
  });
}

/// Calls `body` with the first column, the vectors and the access of blocks of columns up to `cols`, of which
/// a right operand has `most`.
template <int kVectors, class Body>
PTO_INLINE inline void for_columns(int64_t cols, int64_t most, const Body& body) {
  int64_t j = 0;
  for (; j < cols && j + kVectors * kLanes <= most; j += kVectors * kLanes)
    body(j, Constant<kVectors>{}, Full{});
  for (; j < cols; j += kLanes) {
    if (j + kLanes <= most) {
      body(j, Constant<1>{}, Full{});
    } else {
      body(j, Constant<1>{}, Tail{most - j});
    }
  }
}

/// What is brought nearer while a product with a widened right operand works: nothing.
struct Nothing {
  int64_t spacing = INT64_MAX;
  PTO_INLINE void next() {}
};

/// c += a @ w for many rows, with rows of `w` widened in `panel` once for all of them.
template <class Fm, int kVectors, class A, class N>
PTO_INLINE inline void widened_block(const Tile<float>& c, const Strided<A, One>& a, const Tile<uint8_t>& w,
                                     int64_t j, N n, float* panel) {
  constexpr int64_t kWidth = kVectors * kLanes, kBlocks = kDepth / Fm::kBlock;
  const Tile<float> sums{c.data + j, c.stride, c.rows, c.cols - j < kWidth ? c.cols - j : kWidth};
  for (int64_t b = 0; b < w.rows; b += kBlocks) {
    const int64_t blocks = w.rows - b < kBlocks ? w.rows - b : kBlocks;
    float* to = panel;
    for (int64_t i = 0; i < blocks; ++i) {
      for_elements<kVectors, Fm>(
          w.row(b + i), w.cols / Fm::kColumn, j, n, [&](int, const F* elements) PTO_INLINE {
            for_constants<kVectors>(
                [&](auto v) PTO_INLINE { store(to + v.value * kLanes, elements[v.value], Full{}); });
            to += kWidth;
          });
    }
    const Strided<A, One> left{a.data + b * Fm::kBlock, a.row_step, {}};
    Nothing nothing;
    matmul_columns<Singles, kVectors, 8>(sums, left, panel, kWidth, blocks * Fm::kBlock, true, nothing);
  }
}

}  // namespace quantised

/// c += a @ w. Whole vectors of c are written.
/// \tparam kVectors vectors of columns of a block
/// \param w blocks of a packed matrix, each a row
/// \param panel room for quantised::kDepth rows of a block of columns; null where c has few rows
template <class Fm, int kVectors, class A>
[[gnu::noinline]] void matmul_quantised(const Tile<float>& c, const Strided<A, One>& a,
                                        const Tile<uint8_t>& w, float* panel) {
  constexpr int64_t kFewRows = 8;
  quantised::for_columns<kVectors>(
      c.cols, w.cols / Fm::kColumn, [&](int64_t j, auto vectors, auto n) PTO_INLINE {
        constexpr int kVectorsNow = decltype(vectors)::value;
        if (c.rows > kFewRows) return quantised::widened_block<Fm, kVectorsNow>(c, a, w, j, n, panel);
        for (int64_t i = 0; i < c.rows; i += 4) {
          const Tile<float> sums{c.row(i), c.stride, c.rows - i < 4 ? c.rows - i : 4, c.cols};
          const Strided<A, One> left{a.data + i * a.row_step, a.row_step, {}};
          sums.rows > 1 ? quantised::stream_block<Fm, 4, kVectorsNow>(sums, left, w, j, n)
                        : quantised::stream_block<Fm, 1, kVectorsNow>(sums, left, w, j, n);
        }
      });
}

}  // namespace pto::wsp::tile
