// SPDX-License-Identifier: MIT
/// \file
/// Matrix products with a quantised right operand. python/pto_wsp/types/quantised.py describes the layout of
/// its bytes and the meaning of its elements.
///
/// An element is `(q - zero) * scale + minimum`, where the product and the sum are rounded to f32. A product
/// is one chain of fused multiply-adds over elements in ascending order, as in matmul.hpp.
#pragma once

#include "pto/wsp/tile/bytes.hpp"
#include "pto/wsp/tile/few_rows.hpp"

namespace pto::wsp::tile {

/// A row of the table of formats.
/// \tparam kZero_ the number of the value 0; -1: groups have their own, a byte per column
/// \tparam kLevel_ 0: the scale of a group is an f16; else it is an integer, signed where -1, times that of
/// its
///         block
template <int kBits_, int kZero_, int kGroup_, int kBlock_, int kHasMinimum_, int kLevel_>
struct Format {
  static constexpr int kBits = kBits_, kZero = kZero_, kGroup = kGroup_, kBlock = kBlock_, kLevel = kLevel_;
  static constexpr bool kHasMinimum = kHasMinimum_ != 0, kHasZeros = kZero < 0;
  static constexpr int kGroups = kBlock / kGroup;
  static constexpr int kQuads = kBlock / (kBits == 8 ? 4 : 8), kHighQuads = kBits == 6 ? kBlock / 16 : 0;
  /// Bytes of a column before its scales, of its scales, and of all.
  static constexpr int64_t kNumbers = 4 * (kQuads + kHighQuads);
  static constexpr int64_t kScales = kLevel == 0 ? 2 * kGroups : kGroups + 2;
  static constexpr int64_t kColumn = kNumbers + kScales * (kHasMinimum ? 2 : 1) + (kHasZeros ? kGroups : 0);
};

namespace quantised {

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
inline constexpr bool kHasFma = true;
#else
inline constexpr bool kHasFma = false;
#endif

/// a * b + c, rounded once on every machine.
PTO_INLINE inline F fma_exact(F a, F b, F c) {
  if constexpr (kHasFma) return fma(a, b, c);
  F r;
  for (int l = 0; l < kLanes; ++l) r[l] = __builtin_fmaf(a[l], b[l], c[l]);
  return r;
}

/// `(number - zero) * scale`, or with a minimum, `number * scale + offset`: each step is rounded to f32. The
/// product is exact where there is a minimum, and so is the offset where there is none: then one fma does it.
/// With zeros of groups every step is exact.
template <class Fm>
PTO_INLINE inline F element(F number, F scale, F offset) {
  if constexpr (Fm::kHasMinimum || Fm::kHasZeros || kHasFma) return fma(number, scale, offset);
  return (number - float(Fm::kZero)) * scale;
}

/// Rows whose quads lie together, and quads of them.
inline constexpr int kChunk = 32, kChunkQuads = kChunk / int(kQuad);

/// Rows of a right operand that are widened for products of many rows at a time.
inline constexpr int64_t kDepth = 256;

/// Columns of a block, from one on; those from `n` on are not read.
template <class Fm, class N>
struct Columns {
  const uint8_t* block;  ///< all columns of it
  int64_t cols;          ///< their number
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

  /// Numbers of the value 0, of a format that has them.
  PTO_INLINE F zeros(int group) const {
    return load_terms(at<uint8_t>((Fm::kNumbers + Fm::kScales + group) * cols), n);
  }

  /// What is added to the product of a number and its scale.
  PTO_INLINE F offset(int group, F scale) const {
    if constexpr (Fm::kHasZeros) return scale * neg(zeros(group));
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
          elements[v.value] = element<Fm>(wide, scale[v.value], offset[v.value]);
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

/// No prefetches during a product with a widened right operand.
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

/// A group of columns of a row, rounded.
struct Rounded {
  int8_t numbers[kChunk];
  float step;       ///< what numbers are multiplied by
  int16_t sums[2];  ///< of numbers, by halves
};
static_assert(sizeof(Rounded) == 40);

/// Bytes of a row of that many columns that is rounded.
constexpr int64_t rounded_bytes(int64_t cols) { return cols / kChunk * int64_t(sizeof(Rounded)); }

/// Rounds a group of elements: times 127 over the largest size, to nearest even.
template <class T>
PTO_INLINE inline Rounded rounded(const T* elements) {
  constexpr float kSmallest = 0x1p-100f, kMagic = 0x1.8p23f;
  constexpr int32_t kInfinity = 0x7f800000, kMagicBits = 0x4b400000;
  constexpr int kParts = kChunk / int(kLanes), kHalf = kParts / 2;
  F parts[kParts];
  I sizes{};  // bits of sizes: their order is that of the sizes, and NaN is above infinity
  for_constants<kParts>([&](auto i) PTO_INLINE {
    parts[i.value] = load(elements + i.value * kLanes, Full{});
    const I size = (I)parts[i.value] & INT32_MAX;
    sizes = size > sizes ? size : sizes;
  });
  const int32_t bits = fold(sizes, [](I a, I b) PTO_INLINE { return a > b ? a : b; })[0];
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  Rounded group{};
  if (bits >= kInfinity) group.step = __builtin_nanf("");
  if (bits >= kInfinity || largest < kSmallest) return group;
  group.step = largest / 127.0f;
  const F inverse = splat(127.0f / largest);
  I sums[2]{};
  for_constants<kParts>([&](auto i) PTO_INLINE {
    const I number = (I)(parts[i.value] * inverse + kMagic) - kMagicBits;
    store(group.numbers + i.value * kLanes, number, Full{});
    sums[i.value / kHalf] += number;
  });
  for (int i = 0; i < 2; ++i)
    group.sums[i] = static_cast<int16_t>(fold(sums[i], [](I a, I b) PTO_INLINE { return a + b; })[0]);
  return group;
}

/// c[rows][kVectors * kLanes] += a @ w from column `j` on, for rows that are rounded. A group adds its dot
/// product of integers, times both scales; then the sum of its elements times the minimum.
/// \param is_first no other rows have brought `w` into the first cache
template <class Fm, int kRows, int kVectors, class N>
PTO_INLINE inline void rounded_block(const Tile<float>& c, const Strided<uint8_t, One>& a,
                                     const Tile<uint8_t>& w, int64_t j, N n, bool is_first) {
  constexpr int kPart = Fm::kGroup < kChunk ? Fm::kGroup : kChunk, kQuadsOf = kPart / int(kQuad);
  const LeftRows<kRows> rows(c.rows, a.row_step), targets(c.rows, c.stride);
  const int64_t cols = w.cols / Fm::kColumn;
  F sum[kRows * kVectors];
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    constexpr int r = i.value / kVectors, v = i.value % kVectors;
    sum[i.value] = load(c.data + targets.at[r] + j + v * kLanes, Full{});
  });
  const uint8_t* left = a.data;
  for (int64_t b = 0; b < w.rows; ++b) {
    const uint8_t* const block = w.row(b);
    for (int64_t at = 0; is_first && at < w.cols; at += int64_t(kLineBytes))
      __builtin_prefetch(block + kAhead + at, 0, kFirstCache);
    const auto columns = [&](int v) PTO_INLINE { return Columns<Fm, N>{block, cols, j + v * kLanes, n}; };
    for (int row = 0; row < Fm::kBlock; row += kPart) {
      const int chunk = row / kChunk, first = row % kChunk;
      const uint8_t* const group = left + int64_t(chunk) * int64_t(sizeof(Rounded));
      float step[kRows];
      int32_t total[kRows];
      I dots[kRows * kVectors];
      for_constants<kRows>([&](auto r) PTO_INLINE {
        Rounded of;
        __builtin_memcpy(&of, group + rows.at[r.value], sizeof of);
        step[r.value] = of.step;
        total[r.value] = kPart == kChunk ? of.sums[0] + of.sums[1] : of.sums[first != 0];
        for_constants<kVectors>([&](auto v) PTO_INLINE {
          dots[r.value * kVectors + v.value] = splat(Fm::kHasZeros ? 0 : -Fm::kZero * total[r.value]);
        });
      });
      if constexpr (Fm::kHasZeros) {
        for_constants<kVectors>([&](auto v) PTO_INLINE {
          const I zeros = __builtin_convertvector(columns(v.value).zeros(row / Fm::kGroup), I);
          for_constants<kRows>(
              [&](auto r) PTO_INLINE { dots[r.value * kVectors + v.value] -= zeros * total[r.value]; });
        });
      }
      for_constants<kQuadsOf>([&](auto t) PTO_INLINE {
        U numbers[kVectors];
        for_constants<kVectors>([&](auto v) PTO_INLINE {
          numbers[v.value] = columns(v.value).numbers(chunk, first / int(kQuad) + t.value);
        });
        for_constants<kRows>([&](auto r) PTO_INLINE {
          const U quad = splat(load_quad(group + rows.at[r.value] + first + int(kQuad) * t.value));
          for_constants<kVectors>([&](auto v) PTO_INLINE {
            I& of = dots[r.value * kVectors + v.value];
            of = dot_quads(numbers[v.value], quad, of);
          });
        });
      });
      for_constants<kVectors>([&](auto v) PTO_INLINE {
        const F scale = columns(v.value).scale(row / Fm::kGroup);
        [[maybe_unused]] F minimum{};
        if constexpr (Fm::kHasMinimum) minimum = columns(v.value).offset(row / Fm::kGroup, scale);
        for_constants<kRows>([&](auto r) PTO_INLINE {
          constexpr int at = r.value * kVectors + v.value;
          sum[at] = fma_exact(splat(step[r.value]) * scale, __builtin_convertvector(dots[at], F), sum[at]);
          if constexpr (Fm::kHasMinimum)
            sum[at] = fma_exact(minimum, splat(step[r.value] * float(total[r.value])), sum[at]);
        });
      });
    }
    left += rounded_bytes(Fm::kBlock);
  }
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    constexpr int r = i.value / kVectors, v = i.value % kVectors;
    if (r < c.rows) store(c.row(r) + j + v * kLanes, sum[i.value], Full{});
  });
}

}  // namespace quantised

/// c += a @ w. Whole vectors of c are written. Rows of a are floats, or bytes that `quantise` made.
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
        if constexpr (sizeof(A) > 1) {
          if (c.rows > kFewRows) return quantised::widened_block<Fm, kVectorsNow>(c, a, w, j, n, panel);
        }
        for (int64_t i = 0; i < c.rows; i += 4) {
          const Tile<float> sums{c.row(i), c.stride, c.rows - i < 4 ? c.rows - i : 4, c.cols};
          const Strided<A, One> left{a.data + i * a.row_step, a.row_step, {}};
          if constexpr (sizeof(A) > 1) {
            sums.rows > 1 ? quantised::stream_block<Fm, 4, kVectorsNow>(sums, left, w, j, n)
                          : quantised::stream_block<Fm, 1, kVectorsNow>(sums, left, w, j, n);
          } else {
            sums.rows > 1 ? quantised::rounded_block<Fm, 4, kVectorsNow>(sums, left, w, j, n, i == 0)
                          : quantised::rounded_block<Fm, 1, kVectorsNow>(sums, left, w, j, n, i == 0);
          }
        }
      });
}

namespace unchecked {

/// Rows in groups of integers. False if they are not whole groups, as many as there is room for.
template <class T>
bool quantise(const Tile<uint8_t>& to, const Tile<T>& x) {
  constexpr int64_t kBytes = sizeof(quantised::Rounded);
  const int64_t groups = x.cols / quantised::kChunk;
  if (x.cols != groups * quantised::kChunk || to.cols != groups * kBytes) return false;
  for (int64_t i = 0; i < x.rows; ++i) {
    for (int64_t g = 0; g < groups; ++g) {
      const quantised::Rounded group = quantised::rounded(x.row(i) + g * quantised::kChunk);
      __builtin_memcpy(to.row(i) + g * kBytes, &group, sizeof group);
    }
  }
  return true;
}

}  // namespace unchecked

}  // namespace pto::wsp::tile
