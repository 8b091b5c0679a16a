// SPDX-License-Identifier: MIT
/// \file
/// Matrix products of few rows with a right operand of scattered rows. The registers do not hold the sums of
/// whole rows, so the sums stay in the first-level cache.
#pragma once

#include "pto/wsp/tile/few_rows.hpp"

namespace pto::wsp::tile {

/// Vectors of columns whose sums of kRows rows fit the registers: whole pairs.
template <int kRows>
constexpr int kGatherWide = kHasManyRegisters ? 16 / kRows
                            : kRows == 1      ? 4
                                              : 2;

/// kVectors vectors of columns from `j`: onto them, the products of some terms of kRows rows, of which those
/// of one term lie side by side and `left_step` from the next, with as many rows of a right operand.
template <int kRows, int kVectors, class B, class N>
PTO_INLINE inline void add_terms(float* const* c, const float* left, int left_step, const B* const* right,
                                 int terms, int64_t j, N n) {
  F sum[kRows * kVectors];
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    sum[i.value] = load(c[i.value / kVectors] + j + i.value % kVectors * kLanes, Full{});
  });
  for (int t = 0; t < terms; ++t, left += left_step) {
    F factors[kVectors];
    load_row<kVectors>(right[t] + j, factors, n);
    for_constants<kRows>([&](auto r) PTO_INLINE {
      const F splat = load_splat(left + r.value);
      for_constants<kVectors>([&](auto v) PTO_INLINE {
        constexpr int at = r.value * kVectors + v.value;
        sum[at] = add_product(splat, factors[v.value], sum[at]);
      });
    });
  }
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    store(c[i.value / kVectors] + j + i.value % kVectors * kLanes, sum[i.value], Full{});
  });
}

/// Onto the rows of c, the products of terms t, t + apart, ... with their rows of `b`, kStreams at most.
template <int kRows, class A, class Step, class B>
PTO_INLINE inline void add_rows(float* const* c, const Strided<A, Step>& a, const LeftRows<kRows>& rows,
                                const Window<B>& b, int64_t t, int64_t apart, int terms, Ahead& ahead) {
  constexpr int kTogether = kRows > 4 && !kHasManyRegisters ? 4 : kRows, kWide = kGatherWide<kTogether>;
  float left[kStreams * kRows];
  const B* right[kStreams];
  for (int i = 0; i < terms; ++i) {
    const int64_t term = t + i * apart;
    right[i] = b.row(term);
    for_constants<kRows>([&](auto r) PTO_INLINE {
      left[i * kRows + r.value] = load_splat(a.data + rows.at[r.value] + term * a.k_step)[0];
    });
  }
  const auto add_block = [&](int64_t j, auto vectors, auto n) PTO_INLINE {
    for_constants<kRows / kTogether>([&](auto i) PTO_INLINE {
      constexpr int first = i.value * kTogether;
      add_terms<kTogether, vectors.value>(c + first, left + first, kRows, right, terms, j, n);
    });
    ahead.next(terms * lines_in<B>(vectors.value * kLanes));
  };
  int64_t j = 0;
  for (; j + kWide * kLanes <= b.cols; j += kWide * kLanes) add_block(j, Constant<kWide>{}, Full{});
  if constexpr (kWide > 2) {
    for (; j + kPairLanes <= b.cols; j += kPairLanes) add_block(j, Constant<2>{}, Full{});
  }
  columns(b.cols - j, [&](int64_t i, auto n) PTO_INLINE { add_block(j + i, Constant<1>{}, n); });
}

/// Two vectors of a row at a time.
template <class Change>
PTO_INLINE inline void change_pairs(float* row, int64_t cols, const Change& change) {
  for (int64_t j = 0; j + kPairLanes <= cols; j += kPairLanes) change(row + j);
}

/// c (+)= a @ b, where rows of `b` lie anywhere: terms i, i + n, ... i + 7 n for i from 0 to n - 1, an eighth
/// of their number, then those that are left. Sums wait in c, which stays in the first cache.
template <int kRows, class A, class Step, class B>
void gather_rows(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b, bool accumulate,
                 Ahead ahead) {
  const LeftRows<kRows> rows(c.rows, a.row_step);
  float* to[kRows];
  for (int r = 0; r < kRows; ++r) to[r] = c.row(r < c.rows ? r : c.rows - 1);
  for (int r = 0; r < c.rows && !accumulate; ++r) {
    for (int64_t j = 0; j < b.cols; j += kLanes) store(to[r] + j, F{}, Full{});
  }
  for (int r = 0; r < c.rows && accumulate && kInPairs<B>; ++r) {
    change_pairs(to[r], b.cols, [](float* at) PTO_INLINE {
      F both[2];
      unzip(at, both);
      store(at, both[0], Full{});
      store(at + kLanes, both[1], Full{});
    });
  }
  const int64_t apart = b.rows / kStreams;
  const int64_t left = b.rows % kStreams;
  for (int64_t t = 0; t < apart + (left > 0); ++t) {
    const bool is_left = t == apart;
    add_rows<kRows>(to, a, rows, b, is_left ? b.rows - left : t, is_left ? 1 : apart,
                    is_left ? int(left) : kStreams, ahead);
  }
  for (int r = 0; r < c.rows && kInPairs<B>; ++r) {
    change_pairs(to[r], b.cols,
                 [](float* at) PTO_INLINE { zip(load(at, Full{}), load(at + kLanes, Full{}), at); });
  }
}

}  // namespace pto::wsp::tile
