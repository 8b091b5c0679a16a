// SPDX-License-Identifier: MIT
/// \file
/// Matrix products of few rows with the rows of a right operand. The operand is read in place, and sums are
/// folded across lanes.
#pragma once

#include "pto/wsp/tile/few_rows.hpp"

namespace pto::wsp::tile {

// Of each group of 8 or 16 lanes of two vectors the halves that stay where they are, the low one of `a` and
// the high one of `b`, and the others, which change places: one of the two takes no shuffle. Of each group of
// 4 the two lanes of one half, of `a` and `b` in turn.
#if PTO_LANES == 16
#define PTO_STAY_16(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30, 31)
#define PTO_MOVE_16(a, b) \
  __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)
#define PTO_STAY_8(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 20, 21, 22, 23, 8, 9, 10, 11, 28, 29, 30, 31)
#define PTO_MOVE_8(a, b) \
  __builtin_shufflevector(a, b, 4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27)
#define PTO_LOW_4(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define PTO_HIGH_4(a, b) \
  __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#elif PTO_LANES == 8
#define PTO_STAY_8(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 12, 13, 14, 15)
#define PTO_MOVE_8(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 8, 9, 10, 11)
#define PTO_LOW_4(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define PTO_HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#else
#define PTO_LOW_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define PTO_HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/// Two vectors as one: in each group of lanes the sums of the lanes of both halves, of `a` and of
/// `b`.
template <int kGroup>
PTO_INLINE inline F fold_halves(F a, F b) {
#if PTO_LANES == 16
  if constexpr (kGroup == 16) return PTO_STAY_16(a, b) + PTO_MOVE_16(a, b);
#endif
#if PTO_LANES >= 8
  if constexpr (kGroup == 8) return PTO_STAY_8(a, b) + PTO_MOVE_8(a, b);
#endif
  return PTO_LOW_4(a, b) + PTO_HIGH_4(a, b);
}

/// Folds kCount vectors, of which each group of kGroup lanes is one sum in parts, into one: there, each group
/// has the sums of all vectors, in their order. Overwrites v.
template <int kCount, int kGroup>
PTO_INLINE inline void fold_vectors(F* v) {
  if constexpr (kCount > 1) {
    constexpr int kHalf = kCount / 2;
    for_constants<kHalf>(
        [&](auto i) PTO_INLINE { v[i.value] = fold_halves<kGroup>(v[i.value], v[i.value + kHalf]); });
    fold_vectors<kHalf, kGroup / 2>(v);
  }
}

/// Rows of a right operand that are summed in parallel: as many as the registers hold.
template <int kRows>
constexpr int kDotColumns = kHasManyRegisters && kRows <= 4 ? 4 : 2;

/// Rows of a left operand as a right operand `B` wants them: where that comes in pairs and is widened, the
/// first terms of each row are unzipped, a bounded number.
template <int kRows, class A, class B>
struct LeftTerms {
  static constexpr bool kUnzips = kInPairs<B> && !kAddsPairs<Strided<A, One>, B>;
  static constexpr int64_t kUnzipped = kUnzips ? 256 : 0;

  const A* data;
  LeftRows<kRows> rows;
  int64_t unzipped = 0;  ///< terms of a row; whole pairs of vectors
  float pairs[kUnzips ? kRows * kUnzipped : 1];

  template <class Step>
  LeftTerms(const Strided<A, Step>& a, int64_t count, int64_t k) : data(a.data), rows(count, a.row_step) {
    if constexpr (kUnzips) {
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

/// The products of the rows of `a` with kDotColumns rows of `b`, over k terms: each lane sums every kLanes-th
/// of them, or as pairs come. A row's sums, folded into one vector, go to `sums[row][j]`.
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
  if constexpr (LeftTerms<kRows, A, B>::kUnzips) {
    for (int64_t t = 0; t < a.unzipped; t += kPairLanes) {
      F low[kColumns], high[kColumns];
      for_constants<kColumns>([&](auto c) PTO_INLINE {
        F both[2];
        unzip(b[c.value] + t, both);
        low[c.value] = both[0], high[c.value] = both[1];
      });
      for_constants<kRows>([&](auto r) PTO_INLINE {
        const float* const left = a.pairs + r.value * a.kUnzipped + t;
        add_products(r, load(left, Full{}), low);
        add_products(r, load(left + kLanes, Full{}), high);
      });
      ahead.next<lines_in<B>(kColumns * kPairLanes)>();
    }
  }
  const auto add_vectors = [&](int64_t t, auto n) PTO_INLINE {
    F right[kColumns];
    for_constants<kColumns>([&](auto c) PTO_INLINE { right[c.value] = load_terms(b[c.value] + t, n); });
    for_constants<kRows>(
        [&](auto r) PTO_INLINE { add_products(r, load(a.data + a.rows.at[r.value] + t, n), right); });
  };
  int64_t t = a.unzipped;
  for (; t + kPairLanes <= k; t += kPairLanes) {
    if constexpr (kAddsPairs<Strided<A, One>, B>) {
      U left[kRows];
      for_constants<kRows>([&](auto r)
                               PTO_INLINE { left[r.value] = load_bits(a.data + a.rows.at[r.value] + t); });
      for_constants<kColumns>([&](auto c) PTO_INLINE {
        const U right = load_bits(b[c.value] + t);
        for_constants<kRows>([&](auto r) PTO_INLINE {
          constexpr int at = r.value * kColumns + c.value;
          s[at] = dot_pairs(left[r.value], right, s[at]);
        });
      });
    } else {
      add_vectors(t, Full{});
      add_vectors(t + kLanes, Full{});
    }
    ahead.next<lines_in<B>(kColumns * kPairLanes)>();
  }
  columns(k - t, [&](int64_t i, auto n) PTO_INLINE { add_vectors(t + i, n); });
  for_constants<kRows>([&](auto r) PTO_INLINE {
    fold_vectors<kColumns, kLanes>(s + r.value * kColumns);
    sums[r.value][j] = s[r.value * kColumns];
  });
}

/// kLanes columns of c: neighbours from `first` on, as many from `first + apart`, and so on.
template <int kRows, class A, class B>
PTO_INLINE inline void dots_block(const Tile<float>& c, const LeftTerms<kRows, A, B>& a, const Window<B>& b,
                                  int64_t first, int64_t apart, bool accumulate, Ahead& ahead) {
  constexpr int kColumns = kDotColumns<kRows>, kStep = kLanes / kColumns;
  constexpr uint64_t kBytes = kStep * sizeof(float);
  F sums[kRows][kStep];
  for (int64_t j = 0; j < kStep; ++j) {
    const B* right[kColumns];
    for_constants<kColumns>([&](auto n) PTO_INLINE {
      // Columns beyond the last are computed from it again: they are padding.
      const int64_t column = first + j + n.value * apart;
      right[n.value] = b.row(column < b.rows ? column : b.rows - 1);
    });
    dot_block<kRows, A, B>(a, right, b.cols, sums, j, ahead);
  }
  for_constants<kRows>([&](auto r) PTO_INLINE {
    if (r.value >= c.rows) return;
    fold_vectors<kStep, kStep>(sums[r.value]);
    float* const to = c.row(r.value) + first;
    float parts[kLanes];
    if (accumulate) {
      for_constants<kColumns>([&](auto n) PTO_INLINE {
        __builtin_memcpy(parts + n.value * kStep, to + n.value * apart, kBytes);
      });
      sums[r.value][0] = add(load(parts, Full{}), sums[r.value][0]);
    }
    store(parts, sums[r.value][0], Full{});
    for_constants<kColumns>(
        [&](auto n) PTO_INLINE { __builtin_memcpy(to + n.value * apart, parts + n.value * kStep, kBytes); });
  });
}

template <int kRows, class A, class Step, class B>
void dots_rows(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b, bool accumulate,
               Ahead ahead) {
  constexpr int kColumns = kDotColumns<kRows>, kStep = kLanes / kColumns;
  const LeftTerms<kRows, A, B> left(a, c.rows, b.cols);
  const int64_t apart = b.rows / (kStreams * kStep) * kStep;
  for (int64_t j = 0; j < apart; j += kStep) {
    for (int64_t s = 0; s < kStreams; s += kColumns)
      dots_block<kRows>(c, left, b, s * apart + j, apart, accumulate, ahead);
  }
  for (int64_t j = kStreams * apart; j < b.rows; j += kLanes)
    dots_block<kRows>(c, left, b, j, kStep, accumulate, ahead);
}

/// c (+)= a @ b^T, where a is m x k with its terms side by side, and b is n x k. Whole vectors of c are
/// written.
template <int kMaxRows, class A, class Step, class B>
[[gnu::noinline]] void stream_dots(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                   bool accumulate, Ahead ahead) {
  for_few_rows<kMaxRows>(
      c.rows, [&](auto rows) { dots_rows<rows.value>(c, a, b, accumulate, ahead.in_turns(kStreams)); });
}

}  // namespace pto::wsp::tile
