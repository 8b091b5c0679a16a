// SPDX-License-Identifier: MIT
/// \file
/// Tiles, windows of tensors in global memory, and what moves elements between them.
///
/// All threads of a block call each function with the same arguments. A function does not wait before it
/// reads or after it writes, unless it says so: generated code places the barriers.
#pragma once

#include "pto/wsp/abi.hpp"
#include "pto/wsp/tile/cuda/elements.hpp"

namespace pto::wsp::cuda {

/// A tile in shared memory, or in the global memory of its block. `rows` and `cols` are its valid shape; rows
/// are `stride` elements apart.
template <class T>
struct Tile {
  T* data;
  int64_t stride, rows, cols;

  PTO_DEVICE_INLINE T* row(int64_t i) const { return data + i * stride; }
};

/// A part of a tensor: rows that a list of a view names, of which a tile may pick some.
template <class T>
struct Window {
  T* data;
  int64_t stride, step;
  const int32_t* index;
  int64_t rows, cols;
  bool streams = false;
  const int32_t* picked = nullptr;

  PTO_DEVICE_INLINE T* at(int64_t i, int64_t j) const {
    if (picked != nullptr) i = picked[i];
    if (index != nullptr) i = index[i];
    return data + i * stride + j * step;
  }
  /// Whether two rows may be the same.
  PTO_DEVICE_INLINE bool has_list() const { return index != nullptr || picked != nullptr; }
};

template <class T>
PTO_DEVICE_INLINE Value<T> get(const Tile<T>& tile, int64_t i, int64_t j) {
  return widened(tile.data[i * tile.stride + j]);
}
template <class T>
PTO_DEVICE_INLINE void put(const Tile<T>& tile, int64_t i, int64_t j, Value<T> value) {
  tile.data[i * tile.stride + j] = narrowed<T>(value);
}
template <class T>
PTO_DEVICE_INLINE void put(const Window<T>& window, int64_t i, int64_t j, Value<T> value) {
  *window.at(i, j) = narrowed<T>(value);
}

/// The elements [i, j] that this thread handles. Neighbouring threads have neighbouring elements. With
/// `by_column`, one thread has whole columns, from the first row to the last.
class Cells {
 public:
  int32_t i = 0, j = 0;

  PTO_DEVICE_INLINE Cells(int64_t rows, int64_t cols, bool by_column = false)
      : rows_(static_cast<int32_t>(rows)), cols_(static_cast<int32_t>(cols)), by_column_(by_column) {
    j = thread();
    if (by_column || cols_ <= 0) return;
    i = thread() / cols_;
    j = thread() % cols_;
    down_ = threads() / cols_;
    across_ = threads() % cols_;
  }
  PTO_DEVICE_INLINE bool more() const { return i < rows_ && j < cols_; }
  PTO_DEVICE_INLINE void advance() {
    if (by_column_) {
      if (++i < rows_) return;
      i = 0;
      j += threads();
      return;
    }
    i += down_;
    j += across_;
    if (j < cols_) return;
    ++i;
    j -= cols_;
  }

 private:
  int32_t rows_, cols_, down_ = 0, across_ = 0;
  bool by_column_;
};

/// Numbers 0 to n - 1 that this thread handles.
#define PTO_EACH(k, n) for (int64_t k = thread(); k < (n); k += threads())

/// Whether [start, start + extent) lies inside a dimension of `size` elements.
PTO_DEVICE_INLINE bool inside(int64_t start, int64_t extent, int64_t size) {
  return start >= 0 && start <= size && extent <= size - start;
}

// --- moves ------------------------------------------------------------------------------------------------

namespace detail {

PTO_DEVICE_INLINE bool is_aligned(const void* at, int bytes) {
  return reinterpret_cast<uint64_t>(at) % static_cast<uint64_t>(bytes) == 0;
}

/// Starts copies of 2^shift units of `kBytes` of each row. A thread has units of one column.
template <int kBytes, class T>
PTO_DEVICE_INLINE void copy_columns(const Tile<T>& to, const Window<T>& from, int shift) {
  const int down = kBlockThreads >> shift, first = thread() >> shift;
  const int col = (thread() & ((1 << shift) - 1)) * (kBytes / static_cast<int>(sizeof(T)));
  SharedPlace place = shared_place(to.row(first) + col);
  const T* source = from.data + first * from.stride + col;
  const int step = down * static_cast<int>(to.stride * int64_t(sizeof(T)));
  PTO_UNROLL_4 for (int row = first; row < from.rows; row += down) {
    copy_later<kBytes>(place, source);
    place += step;
    source += down * from.stride;
  }
}

/// Starts copies of `kBytes` of all rows, whose elements are contiguous, and copies the rest of each row.
template <int kBytes, class T>
PTO_DEVICE_INLINE void copy_rows(const Tile<T>& to, const Window<T>& from) {
  constexpr int kElements = kBytes / static_cast<int>(sizeof(T));
  const int whole = static_cast<int>(from.cols) / kElements;
  // Only operands of tensor cores are worth more code.
  const bool is_power = whole > 0 && whole <= threads() && (whole & (whole - 1)) == 0;
  if (sizeof(T) == 2 && is_power && !from.has_list()) {
    copy_columns<kBytes>(to, from, ones(static_cast<uint32_t>(whole) - 1));
  } else {
    for (Cells c(from.rows, whole); c.more(); c.advance()) {
      copy_later<kBytes>(shared_place(to.row(c.i) + c.j * kElements), from.at(c.i, c.j * kElements));
    }
  }
  for (Cells c(from.rows, from.cols - whole * kElements); c.more(); c.advance()) {
    const int64_t j = whole * kElements + c.j;
    to.row(c.i)[j] = *from.at(c.i, j);
  }
}

}  // namespace detail

/// Starts to load a window into a tile: `finish_copies` and `sync` come before the first use.
template <class T>
PTO_DEVICE inline void load(const Tile<T>& to, const Window<T>& from) {
  constexpr int kBytes = kCopyBytes;
  const bool is_dense = from.step == 1 && from.cols > 1;
  const bool is_even = (from.rows <= 1 || from.stride * int64_t(sizeof(T)) % kBytes == 0) &&
                       to.stride * int64_t(sizeof(T)) % kBytes == 0;
  if (is_dense && is_even && detail::is_aligned(from.data, kBytes) && detail::is_aligned(to.data, kBytes)) {
    return detail::copy_rows<kBytes>(to, from);
  }
  if constexpr (sizeof(T) == 4 || sizeof(T) == 8) {
    for (Cells c(from.rows, from.cols); c.more(); c.advance()) {
      copy_later<sizeof(T)>(shared_place(to.row(c.i) + c.j), from.at(c.i, c.j));
    }
  } else {
    for (Cells c(from.rows, from.cols); c.more(); c.advance()) to.row(c.i)[c.j] = *from.at(c.i, c.j);
  }
}

/// Loads a window into a tile in global memory.
template <class T>
PTO_DEVICE inline void load_now(const Tile<T>& to, const Window<T>& from) {
  for (Cells c(from.rows, from.cols); c.more(); c.advance()) to.row(c.i)[c.j] = *from.at(c.i, c.j);
}

/// Asks for the lines of a window: loads that come soon find them in the cache of all multiprocessors.
template <class T>
PTO_DEVICE inline void prefetch(const Window<T>& from) {
  if (from.cols <= 0) return;
  constexpr int64_t kElements = kLineBytes / static_cast<int64_t>(sizeof(T));
  const int64_t jump = from.step == 1 ? kElements : 1;
  // The last element may lie in a line after those that begin `jump` elements apart.
  for (Cells c(from.rows, (from.cols + jump - 1) / jump + 1); c.more(); c.advance()) {
    const int64_t j = c.j * jump;
    fetch_line(from.at(c.i, j < from.cols ? j : from.cols - 1));
  }
}

/// Stores a tile; of equal rows of a list, the last one stays.
template <class T>
PTO_DEVICE inline void store(const Window<T>& to, const Tile<T>& from) {
  for (Cells c(from.rows, from.cols, to.has_list()); c.more(); c.advance()) {
    *to.at(c.i, c.j) = from.row(c.i)[c.j];
  }
}

/// The rows of a window that a row or column of numbers names; -1 rows if one is outside. Waits for all
/// threads.
template <class T>
PTO_DEVICE inline Window<T> pick(const Window<T>& from, const Tile<int32_t>& numbers, int64_t count) {
  bool bad = false;
  PTO_EACH(k, count) bad |= numbers.data[k] < 0 || numbers.data[k] >= from.rows;
  Window<T> found = from;
  found.rows = any(bad) ? -1 : count;
  found.picked = numbers.data;
  return found;
}

/// The first row outside that `pick` received, for its error.
PTO_DEVICE inline int64_t first_outside(const Tile<int32_t>& numbers, int64_t count, int64_t num_rows) {
  for (int64_t k = 0; k < count; ++k) {
    if (numbers.data[k] < 0 || numbers.data[k] >= num_rows) return numbers.data[k];
  }
  return -1;
}

template <class T>
PTO_DEVICE inline void copy(const Tile<T>& to, const Tile<T>& from) {
  for (Cells c(from.rows, from.cols); c.more(); c.advance()) to.row(c.i)[c.j] = from.row(c.i)[c.j];
}

template <class T>
PTO_DEVICE inline void transpose(const Tile<T>& to, const Tile<T>& from) {
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) to.row(c.i)[c.j] = from.row(c.j)[c.i];
}

// --- parts ------------------------------------------------------------------------------------------------

/// The elements in row-major order as another shape; false if it has another number of them.
template <class T>
PTO_DEVICE inline bool reshape(const Tile<T>& to, const Tile<T>& from) {
  if (to.rows * to.cols != from.rows * from.cols) return false;
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) {
    const int64_t number = c.i * to.cols + c.j;
    to.row(c.i)[c.j] = from.row(number / from.cols)[number % from.cols];
  }
  return true;
}

template <class T>
PTO_DEVICE inline bool extract(const Tile<T>& to, const Tile<T>& from, int64_t row, int64_t col) {
  if (!inside(row, to.rows, from.rows) || !inside(col, to.cols, from.cols)) return false;
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) to.row(c.i)[c.j] = from.row(row + c.i)[col + c.j];
  return true;
}

template <class T>
PTO_DEVICE inline bool insert(const Tile<T>& to, const Tile<T>& from, const Tile<T>& part, int64_t row,
                              int64_t col) {
  if (!inside(row, part.rows, from.rows) || !inside(col, part.cols, from.cols)) return false;
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) {
    const int64_t i = c.i - row, j = c.j - col;
    const bool is_part = i >= 0 && i < part.rows && j >= 0 && j < part.cols;
    to.row(c.i)[c.j] = is_part ? part.row(i)[j] : from.row(c.i)[c.j];
  }
  return true;
}

template <class T>
PTO_DEVICE inline bool setval(const Tile<T>& to, const Tile<T>& from, int64_t row, int64_t col,
                              Value<T> value) {
  if (!inside(row, 1, from.rows) || !inside(col, 1, from.cols)) return false;
  for (Cells c(to.rows, to.cols); c.more(); c.advance()) {
    put(to, c.i, c.j, c.i == row && c.j == col ? value : get(from, c.i, c.j));
  }
  return true;
}

// --- reductions -------------------------------------------------------------------------------------------

/// A reduction of `count` values by one warp: each thread takes every 32nd, then they combine in a fixed
/// order.
template <class V, class Function, class At>
PTO_DEVICE_INLINE V fold(int64_t count, V start, const Function& function, const At& at) {
  V total = start;
  for (int64_t k = thread() % kWarp; k < count; k += kWarp) total = function(at(k), total);
  for (int mask = kWarp / 2; mask > 0; mask /= 2) total = function(total, exchange(total, mask));
  return total;
}

/// Calls `body` with numbers up to `count`, each in all threads of one warp.
template <class Body>
PTO_DEVICE_INLINE void each_by_warp(int64_t count, const Body& body) {
  for (int64_t k = thread() / kWarp; k < count; k += threads() / kWarp) body(k);
}

/// Each row reduced to one element.
template <class T, class Function>
PTO_DEVICE_INLINE void fold_rows(const Tile<T>& to, const Tile<T>& from, Value<T> start,
                                 const Function& function) {
  each_by_warp(from.rows, [&](int64_t i) {
    const Value<T> total = fold(from.cols, start, function, [&](int64_t j) { return get(from, i, j); });
    if (thread() % kWarp == 0) put(to, i, 0, total);
  });
}

/// Each column reduced to one element.
template <class T, class Function>
PTO_DEVICE_INLINE void fold_columns(const Tile<T>& to, const Tile<T>& from, Value<T> start,
                                    const Function& function) {
  each_by_warp(from.cols, [&](int64_t j) {
    const Value<T> total = fold(from.rows, start, function, [&](int64_t i) { return get(from, i, j); });
    if (thread() % kWarp == 0) put(to, 0, j, total);
  });
}

}  // namespace pto::wsp::cuda
