// SPDX-License-Identifier: MIT
/// \file
/// Matrix products of few rows, whose right operand is read once and in place. Memory bounds them, not
/// arithmetic.
///
/// The right operand is a window of any rows of a view, neither copied nor transposed. Scattered rows are
/// read in kStreams places in turn: the hardware prefetcher follows each of them and has more lines in flight
/// than software prefetches. Each line that is read also prefetches a line that is needed next. Spread like
/// this, prefetches cost nothing; a burst would delay all later loads.
#pragma once

#include "pto/wsp/tile/dots.hpp"
#include "pto/wsp/tile/gather.hpp"

namespace pto::wsp::tile {

/// Terms of a product, in the order in which they are added: of `turns` neighbours from `first` on each with
/// those `apart`, 2 `apart` ... after it, `places` in all.
struct TermOrder {
  int64_t first, turns, places, apart;

  /// Calls `body` with the first of kTogether neighbours, and how many they are: 1 for those that are left.
  template <int kTogether, class Body>
  PTO_INLINE void for_each(const Body& body) const {
    const auto turn = [&](int64_t i, auto count) PTO_INLINE {
      for (int64_t t = i, n = 0; n < places; t += apart, ++n) body(t, count);
    };
    int64_t i = first;
    for (; i + kTogether <= first + turns; i += kTogether) turn(i, Constant<kTogether>{});
    if constexpr (kTogether > 1) {
      for (; i < first + turns; ++i) turn(i, Constant<1>{});
    }
  }
};

/// Whether registers hold the sums of whole rows of a right operand. Scattered rows are then read whole, for
/// two rows of sums at a time. Half rows would interrupt the hardware prefetcher.
inline constexpr bool kHoldsRows = PTO_LANES == 16;

/// Turns whose rows stay in the second-level cache while other rows of sums read them again.
inline constexpr int64_t kTurnsTogether = 16;

/// Calls `body` with all terms of a product with `b`: in turns those of rows that lie anywhere.
template <class B, class Body>
PTO_INLINE inline void for_terms(const Window<B>& b, const Body& body) {
  const int64_t apart = b.index == nullptr ? 0 : b.rows / kStreams;
  TermOrder terms{0, 0, kStreams, apart};
  do {
    terms.turns = apart - terms.first < kTurnsTogether ? apart - terms.first : kTurnsTogether;
    if (terms.turns == 0) terms = TermOrder{apart * kStreams, b.rows - apart * kStreams, 1, 0};
    body(terms);
    terms.first += terms.turns;
  } while (terms.first < (terms.places == 1 ? b.rows : apart + b.rows % kStreams));
}

/// kVectors vectors of columns from `j`.
/// \tparam kLines of what is needed soon that are brought nearer with each term
template <int kRows, int kVectors, int kLines, class A, class Step, class B, class N>
PTO_INLINE inline void stream_block(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                    const TermOrder& terms, int64_t j, bool accumulate, int64_t distance,
                                    Ahead& ahead, N n) {
  const LeftRows<kRows> rows(c.rows, a.row_step), targets(c.rows, c.stride);
  F sum[kRows * kVectors];
  clear<kRows * kVectors>(sum);
  if (accumulate) {
    for_constants<kRows>([&](auto r) PTO_INLINE {
      load_sums<kVectors, B>(c.data + targets.at[r.value] + j, sum + r.value * kVectors);
    });
  }
  const auto add_products = [&](const auto* right, auto left, auto add) PTO_INLINE {
    for_constants<kRows>([&](auto r) PTO_INLINE {
      const auto splat = left(a.data + rows.at[r.value]);
      for_constants<kVectors>([&](auto v) PTO_INLINE {
        constexpr int at = r.value * kVectors + v.value;
        sum[at] = add(splat, right[v.value], sum[at]);
      });
    });
  };
  terms.for_each<kAddsPairs<Strided<A, Step>, B> ? 2 : 1>([&](int64_t t, auto count) PTO_INLINE {
    const B* row[count.value];
    for_constants<count.value>([&](auto i) PTO_INLINE {
      row[i.value] = b.row(t + i.value) + j;
      if (distance > 0) prefetch_lines<kVectors * kLanes>(row[i.value] + distance);
    });
    if constexpr (count.value > 1) {
      U right[kVectors];
      load_rows<kVectors>(row[0], row[1], right, n);
      add_products(right, [&](const A* at) PTO_INLINE { return Pairs::left(at + t); }, Pairs::add);
    } else {
      F right[kVectors];
      load_row<kVectors>(row[0], right, n);
      add_products(
          right, [&](const A* at) PTO_INLINE { return load_splat(at + t * a.k_step); }, Singles::add);
    }
    ahead.next<count.value * kLines>();
  });
  for_constants<kRows>([&](auto r) PTO_INLINE {
    if (r.value < c.rows) store_sums<kVectors, B>(sum + r.value * kVectors, c.row(r.value) + j);
  });
}

/// c (+)= a @ b over some terms, for kTogether of kRows rows at a time and kWide vectors of columns.
template <int kRows, int kTogether, int kWide, class A, class Step, class B>
PTO_INLINE inline void stream_columns(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                      const TermOrder& terms, bool accumulate, int64_t distance,
                                      Ahead& ahead) {
  const auto add_block = [&](int64_t j, auto vectors, auto n) PTO_INLINE {
    constexpr int kVectors = vectors.value, kParts = kRows / kTogether;
    constexpr int kLines = (lines_in<B>(kVectors * kLanes) + kParts - 1) / kParts;
    for (int64_t r = 0; r < c.rows; r += kTogether) {
      const Tile<float> to{c.row(r), c.stride, c.rows - r, c.cols};
      const Strided<A, Step> left{a.data + r * a.row_step, a.row_step, a.k_step};
      stream_block<kTogether, kVectors, kLines>(to, left, b, terms, j, accumulate, distance, ahead, n);
    }
  };
  int64_t j = 0;
  for (; j + kWide * kLanes <= b.cols; j += kWide * kLanes) add_block(j, Constant<kWide>{}, Full{});
  if constexpr (kWide > 2) {
    for (; j + kWide / 2 * kLanes <= b.cols; j += kWide / 2 * kLanes)
      add_block(j, Constant<kWide / 2>{}, Full{});
  }
  columns(b.cols - j, [&](int64_t i, auto n) PTO_INLINE { add_block(j + i, Constant<1>{}, n); });
}

/// c (+)= a @ b over its terms in ascending order, or those of rows that lie anywhere in turns.
template <int kRows, class A, class Step, class B>
void stream_rows(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b, bool accumulate,
                 Ahead ahead) {
  const int64_t distance = stream_distance<B>(b.stride);
  for_terms(b, [&](const TermOrder& terms) PTO_INLINE {
    if (!kHoldsRows || b.index == nullptr) {
      stream_columns<kRows, kRows, (kRows > 4 ? 2 : 4)>(c, a, b, terms, accumulate, distance, ahead);
    } else if constexpr (kHoldsRows) {
      stream_columns<kRows, (kRows > 2 ? 2 : kRows), 8>(c, a, b, terms, accumulate, 0, ahead);
    }
    accumulate = true;
  });
}

/// Vectors of columns of a block of `matmul` that replaces this header, and the least rows for
/// which it does.
inline constexpr int kBlockVectors = PTO_LANES == 16 ? 4 : 2;
inline constexpr int64_t kLeastBlockRows = PTO_LANES == 16 ? 5 : PTO_LANES == 8 ? 2 : INT64_MAX;

/// Whether `matmul` reads a right operand faster than this header: memory is read in sequence, in whole
/// blocks, and the registers do not hold the sums of whole rows of `b`.
template <class B>
PTO_INLINE inline bool is_better_in_blocks(const Tile<float>& c, const Window<B>& b) {
  constexpr uint64_t kBlockBytes = kBlockVectors * kLanes * sizeof(float);
  const bool is_sequence = b.index == nullptr && b.stride <= kRowVectors * kLanes;
  const bool is_aligned = (reinterpret_cast<uint64_t>(b.data) | uint64_t(b.stride * 4)) % kLineBytes == 0;
  const bool is_whole = (uint64_t(b.cols * 4) | uint64_t(c.stride * 4)) % kBlockBytes == 0;
  return c.rows >= kLeastBlockRows && is_sequence && is_aligned && is_whole;
}

/// c (+)= a @ b, where a is m x k and b is k x n. Whole vectors of c are written; element (i, j) is one chain
/// of fused multiply-adds in ascending order, as in `matmul`, or in that of `gather_rows`.
template <int kMaxRows, class A, class Step, class B>
[[gnu::noinline]] void stream_matmul(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                     bool accumulate, Ahead ahead) {
  constexpr bool kPairs = kAddsPairs<Strided<A, Step>, B>;
  const Tile<B> tile{b.data, b.stride, b.rows, b.cols};
  if (c.rows == 1 && b.index == nullptr) return matmul_row(c, a, tile, accumulate, ahead);
  if constexpr (sizeof(B) == sizeof(float)) {
    if (ahead.is_over() && is_better_in_blocks(c, b)) {
      return matmul<kBlockVectors, 8>(c, a, tile, accumulate, 0, nullptr);
    }
  }
  const Ahead soon = b.index == nullptr ? ahead : ahead.in_turns(kStreams);
  for_few_rows<kMaxRows>(c.rows, [&](auto rows) {
    if constexpr (!kHoldsRows && !kPairs) {
      if (b.index != nullptr) return gather_rows<rows.value>(c, a, b, accumulate, soon);
    }
    stream_rows<rows.value>(c, a, b, accumulate, soon);
  });
}

}  // namespace pto::wsp::tile
