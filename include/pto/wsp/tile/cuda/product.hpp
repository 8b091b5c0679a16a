// SPDX-License-Identifier: MIT
/// \file
/// Matrix products other than those of tensor cores, which sums.hpp has. Sums of floats are one chain of
/// fused multiply-adds in f32 over the terms in ascending order, as on the cpu; sums of i8 are i32 and wrap.
#pragma once

#include "pto/wsp/tile/cuda/ops.hpp"
#include "pto/wsp/tile/cuda/tile.hpp"

namespace pto::wsp::cuda {

/// Rows and columns of the sums that one thread keeps in registers.
inline constexpr int kSumRows = 4, kSumCols = 2;

/// An operand, or its transpose.
template <class T>
struct Factor {
  const T* data;
  int64_t row_step, col_step;

  PTO_DEVICE_INLINE Factor(const Tile<T>& tile, bool is_transposed)
      : data(tile.data),
        row_step(is_transposed ? 1 : tile.stride),
        col_step(is_transposed ? tile.stride : 1) {}
  PTO_DEVICE_INLINE Value<T> at(int64_t i, int64_t j) const {
    return widened(data[i * row_step + j * col_step]);
  }
};

PTO_DEVICE_INLINE float add_product(float a, float b, float sum) { return fma(a, b, sum); }
PTO_DEVICE_INLINE float add_product(float a, int32_t b, float sum) {
  return fma(a, static_cast<float>(b), sum);
}
PTO_DEVICE_INLINE int32_t add_product(int32_t a, int32_t b, int32_t sum) { return add(sum, mul(a, b)); }

/// to = start(i, j) + a @ b, over `depth` terms. `start` may read elements of `to` where they are written.
template <class S, class A, class B, class Start>
PTO_DEVICE_INLINE void matmul(const Tile<S>& to, const Factor<A>& a, const Factor<B>& b, int64_t depth,
                              const Start& start) {
  const int64_t row_blocks = (to.rows + kSumRows - 1) / kSumRows;
  const int64_t col_blocks = (to.cols + kSumCols - 1) / kSumCols;
  for (Cells c(row_blocks, col_blocks); c.more(); c.advance()) {
    // Sums beyond the last row or column repeat it and are not written.
    int64_t rows[kSumRows], cols[kSumCols];
    for (int r = 0; r < kSumRows; ++r) rows[r] = min(int64_t{c.i} * kSumRows + r, to.rows - 1);
    for (int s = 0; s < kSumCols; ++s) cols[s] = min(c.j + s * col_blocks, to.cols - 1);
    const auto is_valid = [&](int r, int s) {
      return c.i * kSumRows + r < to.rows && c.j + s * col_blocks < to.cols;
    };
    S sums[kSumRows][kSumCols];
    for (int r = 0; r < kSumRows; ++r) {
      for (int s = 0; s < kSumCols; ++s) sums[r][s] = is_valid(r, s) ? start(rows[r], cols[s]) : S{};
    }
    for (int64_t k = 0; k < depth; ++k) {
      Value<B> right[kSumCols];
      for (int s = 0; s < kSumCols; ++s) right[s] = b.at(k, cols[s]);
      for (int r = 0; r < kSumRows; ++r) {
        const Value<A> left = a.at(rows[r], k);
        for (int s = 0; s < kSumCols; ++s) sums[r][s] = add_product(left, right[s], sums[r][s]);
      }
    }
    for (int r = 0; r < kSumRows; ++r) {
      for (int s = 0; s < kSumCols; ++s) {
        if (is_valid(r, s)) to.row(rows[r])[cols[s]] = sums[r][s];
      }
    }
  }
}

// --- quantised right operands -----------------------------------------------------------------------------

/// A row of the table of formats: python/pto_wsp/types/quantised.py has the layout of its bytes.
/// \tparam kZero_ the number of the value 0; -1: groups have their own, a byte per column
/// \tparam kLevel_ 0: the scale of a group is an f16; else it is an integer, signed where -1, times that of
/// its block
template <int kBits_, int kZero_, int kGroup_, int kBlock_, int kHasMinimum_, int kLevel_>
struct Format {
  static constexpr int kBits = kBits_, kZero = kZero_, kGroup = kGroup_, kBlock = kBlock_, kLevel = kLevel_;
  static constexpr bool kHasMinimum = kHasMinimum_ != 0, kHasZeros = kZero < 0;
  static constexpr int kGroups = kBlock / kGroup;
  static constexpr int kQuads = kBlock / (kBits == 8 ? 4 : 8), kHighQuads = kBits == 6 ? kBlock / 16 : 0;
  static constexpr int64_t kNumbers = 4 * (kQuads + kHighQuads);
  static constexpr int64_t kScales = kLevel == 0 ? 2 * kGroups : kGroups + 2;
  static constexpr int64_t kColumn = kNumbers + kScales * (kHasMinimum ? 2 : 1) + (kHasZeros ? kGroups : 0);
};

/// Rows whose quads lie together.
inline constexpr int kChunk = 32;

/// One column of a block.
template <class Fm>
struct PackedColumn {
  const uint8_t* block;
  int64_t cols, col;

  /// The number of an element: without its zero, its scale and its minimum.
  PTO_DEVICE_INLINE int32_t number(int row) const {
    const int chunk = row / kChunk, place = row % kChunk, in_quad = 8 * (place % 4);
    if constexpr (Fm::kBits == 8) {
      return static_cast<int32_t>((quad(chunk * 8 + place / 4) >> in_quad) & 0xffu);
    } else {
      const int v = place / 4;
      const uint32_t low = (quad(chunk * 4 + v % 4) >> (v < 4 ? 0 : 4)) & 0x0f0f0f0fu;
      uint32_t both = low;
      if constexpr (Fm::kBits == 6) {
        const uint32_t high = quad(Fm::kQuads + chunk * 2 + v % 2) >> (v / 2 * 2);
        both |= (high & 0x03030303u) << 4;
      }
      return static_cast<int32_t>((both >> in_quad) & 0xffu);
    }
  }
  PTO_DEVICE_INLINE float scale(int group) const { return factor<Fm::kLevel>(Fm::kNumbers, group); }
  /// The number of the value 0.
  PTO_DEVICE_INLINE int32_t zero(int group) const {
    if constexpr (!Fm::kHasZeros) return Fm::kZero;
    return static_cast<int32_t>(byte((Fm::kNumbers + Fm::kScales + group) * cols + col));
  }
  /// What is added to the product of a number and its scale.
  PTO_DEVICE_INLINE float offset(int group, float of_scale) const {
    if constexpr (!Fm::kHasMinimum) {
      return of_scale * static_cast<float>(-zero(group));
    } else {
      const float minimum = factor<(Fm::kLevel != 0 ? 1 : 0)>(Fm::kNumbers + Fm::kScales, group);
      return Fm::kLevel != 0 ? -minimum : minimum;
    }
  }

 private:
  PTO_DEVICE_INLINE uint32_t byte(int64_t at) const { return block[at]; }
  PTO_DEVICE_INLINE uint32_t quad(int number) const {
    const int64_t at = 4 * (number * cols + col);
    return byte(at) | byte(at + 1) << 8 | byte(at + 2) << 16 | byte(at + 3) << 24;
  }
  PTO_DEVICE_INLINE float f16(int64_t at) const {
    return f16_value(static_cast<uint16_t>(byte(at) | byte(at + 1) << 8));
  }
  template <int kLevel>
  PTO_DEVICE_INLINE float factor(int64_t place, int group) const {
    if constexpr (kLevel == 0) {
      return f16((place + 2 * group) * cols + 2 * col);
    } else {
      const float of_block = f16((place + Fm::kGroups) * cols + 2 * col);
      const uint32_t level = byte((place + group) * cols + col);
      return static_cast<float>(kLevel < 0 ? int32_t(int8_t(level)) : int32_t(level)) * of_block;
    }
  }
};

/// A group of columns of a row, rounded: what `quantise` leaves in its bytes.
struct Rounded {
  int8_t numbers[kChunk];
  float step;
  int16_t sums[2];
};
static_assert(sizeof(Rounded) == 40, "tile/quantised.hpp and types/quantised.py have the same");

/// to = acc + x @ w, for rows of floats.
template <class Fm, class T>
PTO_DEVICE inline void matmul_quantised(const Tile<float>& to, const Tile<float>& acc, const Tile<T>& x,
                                        const Tile<uint8_t>& w) {
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) {
    float sum = acc.row(c.i)[c.j];
    for (int64_t b = 0; b < w.rows; ++b) {
      const PackedColumn<Fm> column{w.row(b), w.cols / Fm::kColumn, c.j};
      for (int group = 0; group < Fm::kGroups; ++group) {
        const float scale = column.scale(group), offset = column.offset(group, scale);
        for (int k = group * Fm::kGroup; k < (group + 1) * Fm::kGroup; ++k) {
          const float element = fma(static_cast<float>(column.number(k)), scale, offset);
          sum = fma(get(x, c.i, b * Fm::kBlock + k), element, sum);
        }
      }
    }
    to.row(c.i)[c.j] = sum;
  }
}

/// to = acc + x @ w, for rows that `quantise` made. A group adds its dot product of integers, times both
/// scales; then the sum of its elements times the minimum.
template <class Fm>
PTO_DEVICE inline void matmul_quantised(const Tile<float>& to, const Tile<float>& acc, const Tile<uint8_t>& x,
                                        const Tile<uint8_t>& w) {
  constexpr int kPart = Fm::kGroup < kChunk ? Fm::kGroup : kChunk;
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) {
    float sum = acc.row(c.i)[c.j];
    for (int64_t b = 0; b < w.rows; ++b) {
      const PackedColumn<Fm> column{w.row(b), w.cols / Fm::kColumn, c.j};
      for (int k = 0; k < Fm::kBlock; k += kPart) {
        const int64_t place = (b * Fm::kBlock + k) / kChunk;
        const auto* const group = reinterpret_cast<const Rounded*>(x.row(c.i)) + place;
        const int first = k % kChunk;
        const int32_t total = kPart == kChunk ? group->sums[0] + group->sums[1] : group->sums[first != 0];
        int32_t dot = -column.zero(k / Fm::kGroup) * total;
        for (int t = 0; t < kPart; ++t) dot += column.number(k + t) * group->numbers[first + t];
        const float scale = column.scale(k / Fm::kGroup);
        sum = fma(group->step * scale, static_cast<float>(dot), sum);
        if constexpr (Fm::kHasMinimum) {
          sum = fma(column.offset(k / Fm::kGroup, scale), group->step * static_cast<float>(total), sum);
        }
      }
    }
    to.row(c.i)[c.j] = sum;
  }
}

/// Rows in groups of integers. False if they are not whole groups, as many as there is room for.
template <class T>
PTO_DEVICE inline bool quantise(const Tile<uint8_t>& to, const Tile<T>& x) {
  constexpr float kSmallest = 0x1p-100f, kLargest = 0x1.fffffep127f, kMagic = 0x1.8p23f;
  const int64_t groups = x.cols / kChunk;
  if (x.cols != groups * kChunk || to.cols != groups * int64_t(sizeof(Rounded))) return false;
  for (Cells c(x.rows, groups); c.more(); c.advance()) {
    Rounded& group = reinterpret_cast<Rounded*>(to.row(c.i))[c.j];
    float largest = 0;
    bool is_finite = true;
    for (int k = 0; k < kChunk; ++k) {
      const float size = abs(get(x, c.i, c.j * kChunk + k));
      is_finite &= size <= kLargest;
      largest = size > largest ? size : largest;
    }
    const bool is_zero = !is_finite || largest < kSmallest;
    const float inverse = is_zero ? 0.0f : 127.0f / largest;
    group.step = !is_finite ? float_of(0x7fc00000u) : is_zero ? 0.0f : largest / 127.0f;
    int sums[2] = {0, 0};
    for (int k = 0; k < kChunk; ++k) {
      const float whole = (get(x, c.i, c.j * kChunk + k) * inverse + kMagic) - kMagic;
      group.numbers[k] = is_zero ? int8_t{0} : static_cast<int8_t>(whole);
      sums[k / (kChunk / 2)] += group.numbers[k];
    }
    group.sums[0] = static_cast<int16_t>(sums[0]);
    group.sums[1] = static_cast<int16_t>(sums[1]);
  }
  return true;
}

}  // namespace pto::wsp::cuda
