// SPDX-License-Identifier: MIT
/// \file
/// Prefetches memory that is needed soon.
///
/// Prefetches are issued a few at a time, spread over other work. A burst would delay all later loads.
#pragma once

#include "pto/wsp/tile/move.hpp"

namespace pto::wsp::tile {

inline constexpr uint64_t kLineBytes = 64;

/// Cache levels of prefetches, as __builtin_prefetch counts them.
inline constexpr int kSecondCache = 2, kFirstCache = 3;

/// Prefetches the lines of `kCount` elements into a cache.
template <int64_t kCount, int kCache = kFirstCache, class T>
PTO_INLINE inline void prefetch_lines(const T* p) {
#pragma GCC unroll 4
  for (uint64_t at = 0; at < kCount * sizeof(T); at += kLineBytes)
    __builtin_prefetch(reinterpret_cast<const char*>(p) + at, 0, kCache);
}

/// Distance in elements from a row to the prefetched one, for rows `stride` elements apart. It covers the
/// latency of memory and is at least a few rows; 0 if rows are not consecutive.
template <class T>
inline int64_t stream_distance(int64_t stride) {
  constexpr int64_t kBytes = 8192, kRows = 4;
  if (stride <= 0) return 0;
  const int64_t rows = kBytes / (stride * int64_t(sizeof(T)));
  return (rows < kRows ? kRows : rows) * stride;
}

/// The lines of a window that is needed soon, in order.
class Ahead {
 public:
  Ahead() = default;
  template <class T>
  explicit Ahead(const Window<T>& window)
      : base_(reinterpret_cast<const char*>(window.data)),
        stride_(window.stride * int64_t(sizeof(T))),
        index_(window.index),
        rows_(window.cols > 0 ? window.rows : 0),
        lines_((window.cols * int64_t(sizeof(T)) + int64_t(kLineBytes) - 1) / int64_t(kLineBytes)) {
    begin_row();
  }

  /// The same lines, in turn from `places` equally spaced places.
  Ahead in_turns(int64_t places) const {
    Ahead turns = *this;
    turns.apart_ = rows_ / places;
    turns.turns_ = places * turns.apart_;
    turns.begin_row();
    return turns;
  }

  bool is_over() const { return row_ >= rows_; }

  /// The number of lines of the window.
  int64_t lines() const { return rows_ * lines_; }

  /// Prefetches the next `count` lines into the second-level cache.
  PTO_INLINE void next(int count) {
    for (int i = 0; i < count && row_ < rows_; ++i) take<1>();
  }

  /// The same; most often they are in one row.
  template <int kCount>
  PTO_INLINE void next() {
    left_ >= kCount ? take<kCount>() : next(kCount);
  }

 private:
  /// \pre the row has this number of lines left
  template <int kCount>
  PTO_INLINE void take() {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) __builtin_prefetch(at_ + i * int(kLineBytes), 0, kSecondCache);
    at_ += kCount * int(kLineBytes);
    left_ -= kCount;
    if (left_ > 0) return;
    ++row_;
    place_ += apart_;
    if (place_ >= turns_) place_ = row_ < turns_ ? place_ - turns_ + 1 : row_;
    begin_row();
  }

  void begin_row() {
    if (row_ >= rows_) return;
    at_ = base_ + (index_ ? index_[place_] : place_) * stride_;
    left_ = lines_;
  }

  const char* base_ = nullptr;
  int64_t stride_ = 0;
  const int32_t* index_ = nullptr;
  int64_t rows_ = 0;
  int64_t lines_ = 0;
  int64_t place_ = 0;  ///< of the row
  int64_t apart_ = 1;  ///< rows between one place and the next
  int64_t turns_ = 0;  ///< rows taken in turns; later rows are consecutive
  int64_t row_ = 0;
  const char* at_ = nullptr;
  int64_t left_ = 0;
};

/// Prefetches a whole window in one step.
template <class T>
inline void prefetch(const Window<T>& window) {
  Ahead ahead(window);
  while (!ahead.is_over()) ahead.next(1);
}

}  // namespace pto::wsp::tile
