// SPDX-License-Identifier: MIT
/// \file
/// Folds the lanes of several vectors together, as many as a vector has lanes: one result per row of a tile.
#pragma once

#include "pto/wsp/tile/ops.hpp"

namespace pto::wsp::tile {

template <int... kNumbers>
struct Numbers {};
template <int kCount, int... kNumbers>
struct CountTo : CountTo<kCount - 1, kCount - 1, kNumbers...> {};
template <int... kNumbers>
struct CountTo<0, kNumbers...> {
  typedef Numbers<kNumbers...> Type;
};

/// Which of the lanes of two vectors comes to a lane of their halves.
template <int kGroup, int kHalf>
constexpr int half_lane(int lane) {
  constexpr int kWidth = kGroup / 2;
  const int within = lane % kGroup;
  return lane - within + within % kWidth + kHalf * kWidth + (within < kWidth ? 0 : PTO_LANES);
}

/// The first or second halves of all groups of lanes: in each group those of `a`, then those of `b`.
template <int kGroup, int kHalf, class V, int... kNumbers>
PTO_INLINE inline V halves(V a, V b, Numbers<kNumbers...>) {
  return __builtin_shufflevector(a, b, half_lane<kGroup, kHalf>(kNumbers)...);
}

/// The folds of kCount vectors, of which each group of lanes is one fold in parts, in their order, in
/// the first of them. Each has the bits of `fold`.
template <int kCount, class V>
PTO_INLINE inline void fold_together(V* v, V (*op)(V, V)) {
  if constexpr (kCount > 1) {
    typedef typename CountTo<PTO_LANES>::Type Lanes;
#pragma GCC unroll 8
    for (int r = 0; r < kCount / 2; ++r) {
      const V a = v[r], b = v[r + kCount / 2];
      v[r] = op(halves<kCount, 0>(a, b, Lanes{}), halves<kCount, 1>(a, b, Lanes{}));
    }
    fold_together<kCount / 2>(v, op);
  }
}

/// Folds as many vectors as there are lanes into as many elements; overwrites them.
template <class V, class T, V (*kOp)(V, V)>
[[gnu::noinline]] void fold_rows(V* rows, T* column) {
  fold_together<PTO_LANES>(rows, kOp);
  store(column, rows[0], Full{});
}

/// One vector per row of a tile, which are folded into a column as soon as there are as many as lanes.
template <class V>
class RowFolds {
 public:
  /// \param i counts up from 0 to the last row
  /// \param column padded to whole vectors
  template <V (*kOp)(V, V), class T>
  PTO_INLINE void add(V row, int64_t i, bool is_last, T* column) {
    rows_[i % kLanes] = row;
    if (i % kLanes == kLanes - 1 || is_last) fold_rows<V, T, kOp>(rows_, column + i / kLanes * kLanes);
  }

 private:
  V rows_[kLanes] = {};
};

}  // namespace pto::wsp::tile
