// SPDX-License-Identifier: MIT
/// \file
/// Sorting rows of values with their indices, merging sorted rows, and elements picked by index.
///
/// A *pair* is an i64 as in tile/sort.hpp: a key that orders floats, then the complement of the index. Each
/// thread counts the pairs that rank before its own, so rows are sorted without moving pairs more than once.
#pragma once

#include "pto/wsp/tile/cuda/ops.hpp"
#include "pto/wsp/tile/cuda/tile.hpp"

namespace pto::wsp::cuda {

inline constexpr int64_t kNoPair = INT64_MIN;
inline constexpr int64_t kSortBlock = 32;

PTO_DEVICE_INLINE int64_t pair_of(float value, int32_t index) {
  const float plain = value == 0.0f ? 0.0f : value;
  const uint32_t bits = plain != plain ? 0x7fc00000u : bits_of(plain);
  const uint32_t key = bits >> 31 ? bits ^ 0x7fffffffu : bits;
  return static_cast<int64_t>(uint64_t{key} << 32 | static_cast<uint32_t>(~index));
}
PTO_DEVICE_INLINE float pair_value(int64_t pair) {
  const uint32_t key = static_cast<uint32_t>(static_cast<uint64_t>(pair) >> 32);
  // Below the key of -inf there are absent pairs only.
  if (static_cast<int32_t>(key) < static_cast<int32_t>(0x807fffffu)) return float_of(0xff800000u);
  return float_of(key >> 31 ? key ^ 0x7fffffffu : key);
}
PTO_DEVICE_INLINE int32_t pair_index(int64_t pair) { return ~static_cast<int32_t>(pair); }

namespace detail {

/// Puts each pair of each block of `size` columns where it belongs in descending order.
template <class At>
PTO_DEVICE_INLINE void sort_blocks(const Tile<int64_t>& to, int64_t rows, int64_t cols, int64_t size,
                                   const At& at) {
  for (Cells c(rows, cols); c.more(); c.advance()) {
    const int64_t first = c.j / size * size, end = min(first + size, cols), pair = at(c.i, c.j);
    int64_t rank = first;
    for (int64_t k = first; k < end; ++k) {
      const int64_t other = at(c.i, k);
      rank += other > pair || (other == pair && k < c.j);
    }
    to.row(c.i)[rank] = pair;
  }
}

/// Whether all runs of `run` pairs of all rows are in descending order. Waits for all threads.
PTO_DEVICE inline bool is_descending(const Tile<int64_t>& tile, int64_t run) {
  bool bad = false;
  for (Cells c(tile.rows, tile.cols); c.more(); c.advance()) {
    bad |= c.j % run != 0 && tile.row(c.i)[c.j - 1] < tile.row(c.i)[c.j];
  }
  return !any(bad);
}

}  // namespace detail

template <class T>
PTO_DEVICE inline void sort32(const Tile<int64_t>& to, const Tile<T>& x, const Tile<int32_t>& indices) {
  detail::sort_blocks(to, x.rows, x.cols, kSortBlock,
                      [&](int64_t i, int64_t j) { return pair_of(get(x, i, j), indices.row(i)[j]); });
}
template <class T>
PTO_DEVICE inline void sort(const Tile<int64_t>& to, const Tile<T>& x, const Tile<int32_t>& indices) {
  detail::sort_blocks(to, x.rows, x.cols, max(x.cols, int64_t{1}),
                      [&](int64_t i, int64_t j) { return pair_of(get(x, i, j), indices.row(i)[j]); });
}

/// Each four neighbouring runs of `run` pairs merged into one; false where a run is not sorted.
PTO_DEVICE inline bool mrgsort(const Tile<int64_t>& to, const Tile<int64_t>& from, int64_t run) {
  if (!detail::is_descending(from, run)) return false;
  detail::sort_blocks(to, from.rows, from.cols, min(run, from.cols) * 4,
                      [&](int64_t i, int64_t j) { return from.row(i)[j]; });
  return true;
}

/// The first `to.cols` pairs of two sorted rows, absent ones where there are fewer; false where a row is not
/// sorted.
PTO_DEVICE inline bool merge(const Tile<int64_t>& to, const Tile<int64_t>& a, const Tile<int64_t>& b) {
  const bool is_sorted = detail::is_descending(a, max(a.cols, int64_t{1}));
  if (!detail::is_descending(b, max(b.cols, int64_t{1})) || !is_sorted) return false;
  const int64_t count = a.cols + b.cols;
  for (Cells c(to.rows, max(count, to.cols)); c.more(); c.advance()) {
    if (c.j >= count) {
      to.row(c.i)[c.j] = kNoPair;
      continue;
    }
    const bool is_first = c.j < a.cols;
    const Tile<int64_t>&own = is_first ? a : b, &other = is_first ? b : a;
    int64_t rank = is_first ? c.j : c.j - a.cols;
    const int64_t pair = own.row(c.i)[rank];
    for (int64_t k = 0; k < other.cols; ++k) {
      const int64_t of_other = other.row(c.i)[k];
      rank += of_other > pair || (of_other == pair && !is_first);
    }
    if (rank < to.cols) to.row(c.i)[rank] = pair;
  }
  return true;
}

PTO_DEVICE inline void extract_topk_values(const Tile<float>& to, const Tile<int64_t>& from) {
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) {
    to.row(c.i)[c.j] = c.j < from.cols ? pair_value(from.row(c.i)[c.j]) : float_of(0xff800000u);
  }
}
PTO_DEVICE inline void extract_topk_indices(const Tile<int32_t>& to, const Tile<int64_t>& from) {
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) {
    to.row(c.i)[c.j] = c.j < from.cols ? pair_index(from.row(c.i)[c.j]) : -1;
  }
}

namespace detail {

/// Whether all indices lie inside rows of `cols` elements. Waits for all threads.
PTO_DEVICE inline bool lie_inside(const Tile<int32_t>& indices, int64_t cols) {
  bool bad = false;
  for (Cells c(indices.rows, indices.cols); c.more(); c.advance()) {
    bad |= indices.row(c.i)[c.j] < 0 || indices.row(c.i)[c.j] >= cols;
  }
  return !any(bad);
}

}  // namespace detail

/// to[i][j] = from[i][indices[i][j]]; false where an index lies outside the row.
template <class T>
PTO_DEVICE inline bool take(const Tile<T>& to, const Tile<T>& from, const Tile<int32_t>& indices) {
  if (!detail::lie_inside(indices, from.cols)) return false;
  for (Cells c(indices.rows, indices.cols); c.more(); c.advance()) {
    to.row(c.i)[c.j] = from.row(c.i)[indices.row(c.i)[c.j]];
  }
  return true;
}

/// `to` is `from` with values[i][j] at [i][indices[i][j]]; false where an index lies outside the row. The
/// last of equal indices wins: a thread has a whole row.
template <class T>
PTO_DEVICE inline bool put(const Tile<T>& to, const Tile<T>& from, const Tile<T>& values,
                           const Tile<int32_t>& indices) {
  if (!detail::lie_inside(indices, to.cols)) return false;
  PTO_EACH(i, to.rows) {
    for (int64_t j = 0; j < to.cols; ++j) to.row(i)[j] = from.row(i)[j];
    for (int64_t j = 0; j < indices.cols; ++j) to.row(i)[indices.row(i)[j]] = values.row(i)[j];
  }
  return true;
}

namespace detail {

/// The column of each row that ranks first; -1 where a row is empty. NaN ranks before all others.
template <class T, class Beats>
PTO_DEVICE_INLINE void row_arg(const Tile<int32_t>& to, const Tile<T>& from, const Beats& beats) {
  PTO_EACH(i, from.rows) {
    int32_t place = from.cols == 0 ? -1 : 0;
    for (int32_t j = 1; j < from.cols; ++j) {
      const Value<T> value = get(from, i, j), best = get(from, i, place);
      if (best == best && (value != value || beats(value, best))) place = j;
    }
    to.row(i)[0] = place;
  }
}

}  // namespace detail

template <class T>
PTO_DEVICE inline void rowargmax(const Tile<int32_t>& to, const Tile<T>& from) {
  detail::row_arg(to, from, [](Value<T> a, Value<T> b) { return a > b; });
}
template <class T>
PTO_DEVICE inline void rowargmin(const Tile<int32_t>& to, const Tile<T>& from) {
  detail::row_arg(to, from, [](Value<T> a, Value<T> b) { return a < b; });
}

}  // namespace pto::wsp::cuda
