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

/// Lines of memory in so many elements, at least one.
template <class T>
constexpr int lines_in(int elements) {
  const int lines = elements * int(sizeof(T)) / int(kLineBytes);
  return lines < 1 ? 1 : lines;
}

/// Calls `body` with the constants kFirst .. kEnd - 1: vectors that are indexed by constants alone stay in
/// registers, whatever else happens to them.
template <int kEnd, int kFirst = 0, class Body>
PTO_INLINE inline void for_constants(const Body& body) {
  if constexpr (kFirst < kEnd) {
    body(Constant<kFirst>{});
    for_constants<kEnd, kFirst + 1>(body);
  }
}

template <int kCount>
PTO_INLINE inline void clear(F* v) {
  for_constants<kCount>([&](auto i) PTO_INLINE { v[i.value] = F{}; });
}

/// Halves as many vectors as often as it takes to leave `kLeft`: lane by lane, vector i and the one half of
/// them further on become the sums of pairs of their lanes. Of kLanes vectors, lane i of the one that is left
/// is the sum of the lanes of v[i]. Overwrites v.
template <int kFrom, int kLeft>
PTO_INLINE inline void fold_lanes(F* v) {
  if constexpr (kFrom > kLeft) {
    constexpr int kHalf = kFrom / 2;
    for_constants<kHalf>([&](auto i) PTO_INLINE {
      const F a = v[i.value], b = v[i.value + kHalf];
      v[i.value] = PTO_ZIP_LOW(a, b) + PTO_ZIP_HIGH(a, b);
    });
    fold_lanes<kHalf, kLeft>(v);
  }
}

/// Whether two elements share a lane, so that two vectors of them are widened where they lie: first those at
/// even places, then those at odd ones.
template <class T>
inline constexpr bool kInPairs = false;
template <>
inline constexpr bool kInPairs<Bf16> = true;
template <>
inline constexpr bool kInPairs<const Bf16> = true;

/// Elements of which two vectors are read at a time.
inline constexpr int64_t kPairLanes = 2 * kLanes;

PTO_INLINE inline void load_pairs(const Bf16* from, F* to) {
  U both;
  __builtin_memcpy(&both, from, sizeof both);
  to[0] = (F)(both << 16);
  to[1] = (F)(both & 0xffff0000u);
}

/// Two vectors of neighbours as those at even and those at odd places.
template <class T>
PTO_INLINE inline void unzip(const T* from, F* to) {
  const F low = load(from, Full{}), high = load(from + kLanes, Full{});
  to[0] = PTO_UNZIP_EVEN(low, high);
  to[1] = PTO_UNZIP_ODD(low, high);
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

/// Rows of a left operand as a right operand `B` wants them: where that comes in pairs, the first terms of
/// each row are unzipped, so many at most.
template <int kRows, class A, class B>
struct LeftTerms {
  static constexpr int64_t kUnzipped = kInPairs<B> ? 256 : 0;

  const A* data;
  LeftRows<kRows> rows;
  int64_t unzipped = 0;  ///< terms of a row; whole pairs of vectors
  float pairs[kInPairs<B> ? kRows * kUnzipped : 1];

  template <class Step>
  LeftTerms(const Strided<A, Step>& a, int64_t count, int64_t k) : data(a.data), rows(count, a.row_step) {
    if constexpr (kInPairs<B>) {
      for (; unzipped + kPairLanes <= (k < kUnzipped ? k : kUnzipped); unzipped += kPairLanes) {
        for (int r = 0; r < kRows; ++r) {
          float* const to = pairs + r * kUnzipped + unzipped;
          F both[2];
          unzip(data + rows.at[r] + unzipped, both);
          store(to, both[0], Full{});
          store(to + kLanes, both[1], Full{});
        }
      }
    }
  }
};

/// The products of the rows of `a` with kDotColumns rows of `b`, over k terms: each lane sums every
/// kLanes-th of them, or pairs of neighbours. What is left of folding their lanes goes to `sums[row][j]`.
template <int kRows, class A, class B>
PTO_INLINE inline void dot_block(const LeftTerms<kRows, A, B>& a, const B* const* b, int64_t k,
                                 F (*sums)[kLanes / kDotColumns<kRows>], int64_t j, Ahead& ahead) {
  constexpr int kColumns = kDotColumns<kRows>;
  F s[kRows * kColumns];
  clear<kRows * kColumns>(s);
  const auto add_products = [&](auto r, F left, const F* right) PTO_INLINE {
    for_constants<kColumns>([&](auto c) PTO_INLINE {
      constexpr int at = r.value * kColumns + c.value;
      s[at] = add_product(left, right[c.value], s[at]);
    });
  };
  if constexpr (kInPairs<B>) {
    for (int64_t t = 0; t < a.unzipped; t += kPairLanes) {
      F even[kColumns], odd[kColumns];
      for_constants<kColumns>([&](auto c) PTO_INLINE {
        F both[2];
        load_pairs(b[c.value] + t, both);
        even[c.value] = both[0], odd[c.value] = both[1];
      });
      for_constants<kRows>([&](auto r) PTO_INLINE {
        const float* const left = a.pairs + r.value * a.kUnzipped + t;
        add_products(r, load(left, Full{}), even);
        add_products(r, load(left + kLanes, Full{}), odd);
      });
      ahead.next<lines_in<B>(kColumns * kPairLanes)>();
    }
  }
  const int64_t done = a.unzipped;
  columns(k - done, [&](int64_t t, auto n) PTO_INLINE {
    F right[kColumns];
    for_constants<kColumns>([&](auto c) PTO_INLINE { right[c.value] = load(b[c.value] + done + t, n); });
    for_constants<kRows>(
        [&](auto r) PTO_INLINE { add_products(r, load(a.data + a.rows.at[r.value] + done + t, n), right); });
    ahead.next<lines_in<B>(kColumns * kLanes)>();
  });
  for_constants<kRows>([&](auto r) PTO_INLINE {
    fold_lanes<kColumns, 1>(s + r.value * kColumns);
    sums[r.value][j] = s[r.value * kColumns];
  });
}

template <int kRows, class A, class Step, class B>
void dots_rows(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b, bool accumulate,
               Ahead ahead) {
  constexpr int kColumns = kDotColumns<kRows>, kStep = kLanes / kColumns;
  const LeftTerms<kRows, A, B> left(a, c.rows, b.cols);
  for (int64_t j0 = 0; j0 < b.rows; j0 += kLanes) {
    F sums[kRows][kStep];
    for (int64_t j = 0; j < kStep; ++j) {
      const B* right[kColumns];
      for_constants<kColumns>([&](auto n) PTO_INLINE {
        // Columns beyond the last are computed from it again: they are padding.
        const int64_t column = j0 + j + n.value * kStep;
        right[n.value] = b.row(column < b.rows ? column : b.rows - 1);
      });
      dot_block<kRows, A, B>(left, right, b.cols, sums, j, ahead);
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

/// kVectors vectors of columns from `j`; where elements come in pairs, two sums are those of the even and of
/// the odd columns of two vectors.
template <int kRows, int kVectors, class A, class Step, class B, class N>
PTO_INLINE inline void stream_block(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                    int64_t j, bool accumulate, Ahead& ahead, N n) {
  constexpr bool kPairs = kInPairs<B> && kVectors % 2 == 0;
  const LeftRows<kRows> rows(c.rows, a.row_step), targets(c.rows, c.stride);
  F sum[kRows * kVectors];
  clear<kRows * kVectors>(sum);
  if (accumulate) {
    for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
      const float* const from = c.data + targets.at[i.value / kVectors] + j + i.value % kVectors * kLanes;
      if constexpr (!kPairs) {
        sum[i.value] = load(from, Full{});
      } else if constexpr (i.value % 2 == 0) {
        unzip(from, sum + i.value);
      }
    });
  }
  const int64_t distance = b.index == nullptr ? stream_distance<B>(b.stride) : 0;
  for (int64_t t = 0; t < b.rows; ++t) {
    const B* const row = b.row(t) + j;
    if (distance > 0) prefetch_lines<kVectors * kLanes>(row + distance);
    F right[kVectors];
    for_constants<kVectors>([&](auto v) PTO_INLINE {
      if constexpr (!kPairs) {
        right[v.value] = load(row + v.value * kLanes, n);
      } else if constexpr (v.value % 2 == 0) {
        load_pairs(row + v.value * kLanes, right + v.value);
      }
    });
    for_constants<kRows>([&](auto r) PTO_INLINE {
      const F left = load_splat(a.data + rows.at[r.value] + t * a.k_step);
      for_constants<kVectors>([&](auto v) PTO_INLINE {
        constexpr int at = r.value * kVectors + v.value;
        sum[at] = add_product(left, right[v.value], sum[at]);
      });
    });
    ahead.next<lines_in<B>(kVectors * kLanes)>();
  }
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    constexpr int at = i.value;
    if (at / kVectors >= c.rows) return;
    float* const to = c.row(at / kVectors) + j + at % kVectors * kLanes;
    if constexpr (!kPairs) {
      store(to, sum[at], Full{});
    } else {
      constexpr int first = at / 2 * 2;
      const F even = sum[first], odd = sum[first + 1];
      store(to, at == first ? PTO_ZIP_LOW(even, odd) : PTO_ZIP_HIGH(even, odd), Full{});
    }
  });
}

template <int kRows, class A, class Step, class B>
void stream_rows(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b, bool accumulate,
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
template <int kMaxRows, class A, class Step, class B>
[[gnu::noinline]] void stream_dots(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                   bool accumulate, Ahead ahead) {
  for_few_rows<kMaxRows>(c.rows, [&](auto rows) { dots_rows<rows.value>(c, a, b, accumulate, ahead); });
}

/// Whether `matmul` reads a right operand faster than this header does: where memory is read in sequence and
/// sums of several rows by whole rows of `b` do not fit the registers.
template <class B>
PTO_INLINE inline bool is_better_in_blocks(const Tile<float>& c, const Window<B>& b) {
  constexpr uint64_t kBlockBytes = 2 * kLanes * sizeof(float);
  const bool is_sequence = b.index == nullptr && b.stride <= kRowVectors * kLanes;
  const uint64_t places = reinterpret_cast<uint64_t>(b.data) | uint64_t(b.stride * 4) | uint64_t(b.cols * 4);
  return PTO_LANES == 8 && is_sequence && (places | uint64_t(c.stride * 4)) % kBlockBytes == 0;
}

/// c (+)= a @ b, where a is m x k and b is k x n. Whole vectors of c are written; element (i, j) is one chain
/// of fused multiply-adds in ascending order, as in `matmul`.
template <int kMaxRows, class A, class Step, class B>
[[gnu::noinline]] void stream_matmul(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                     bool accumulate, Ahead ahead) {
  const Tile<B> tile{b.data, b.stride, b.rows, b.cols};
  if (c.rows == 1 && b.index == nullptr) return matmul_row(c, a, tile, accumulate, ahead);
  if constexpr (sizeof(B) == sizeof(float)) {
    if (ahead.is_over() && is_better_in_blocks(c, b)) {
      return matmul<2, 8>(c, a, tile, accumulate, 0, nullptr);
    }
  }
  for_few_rows<kMaxRows>(c.rows, [&](auto rows) { stream_rows<rows.value>(c, a, b, accumulate, ahead); });
}

}  // namespace pto::wsp::tile
