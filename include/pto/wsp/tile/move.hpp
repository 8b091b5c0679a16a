// SPDX-License-Identifier: MIT
/// \file
/// Tiles in memory, and moves between views and the scratch of the worker.
///
/// A tile's valid part is rows x cols elements at `data + i * stride + j`. Nothing beyond it may be touched,
/// unless the function that takes the tile requires padding. Generated code pads the rows of its scratch to
/// whole vectors (a tile of one column is packed instead: stride 1) and then calls such functions; the
/// contents of the padding are undefined.
#pragma once

#include "pto/wsp/tile/columns.hpp"

namespace pto::wsp::tile {

template <class T>
struct Tile {
  T* data;
  int64_t stride;
  int64_t rows;
  int64_t cols;

  T* row(int64_t i) const { return data + i * stride; }
};

/// The elements of a view that a region selects: (i, j) lies at `data + row(i) * stride + j * step`.
template <class T>
struct Window {
  T* data;
  int64_t stride;
  int64_t step;
  const int32_t* index;  ///< row numbers, or null where row(i) is i
  int64_t rows;
  int64_t cols;
  bool streams = false;  ///< see View

  T* row(int64_t i) const { return data + (index ? index[i] : i) * stride; }

  /// Whether memory at `p` may have streaming stores.
  bool streams_at(const T* p) const { return streams && step == 1 && place(p) % kStreamAlign == 0; }

  /// The number of elements, of `count`, before the first line with streaming stores; 0 without streaming.
  int64_t lead(const T* row, int64_t count) const {
    if (!streams || step != 1) return 0;
    const int64_t before = int64_t(-place(row) % kStreamAlign / sizeof(T));
    return before < count ? before : count;
  }

 private:
  static uint64_t place(const T* p) { return reinterpret_cast<uintptr_t>(p); }
};

template <class T>
inline bool is_dense(const Tile<T>& tile, int64_t cols) {
  return tile.stride == cols;
}
template <class T>
inline bool is_dense(const Window<T>& window, int64_t cols) {
  return window.stride == cols && window.index == nullptr;
}

/// Merges all rows into one if the rows of all operands of a loop are contiguous.
template <class... Memory>
PTO_INLINE inline void flatten(int64_t& rows, int64_t& cols, const Memory&... memory) {
  if ((is_dense(memory, cols) && ...)) {
    cols *= rows;
    rows = 1;
  }
}

/// Memory of the worker, `offset` bytes into its scratch.
template <class T>
inline T* at(const TaskContext* context, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(context->scratch) + offset);
}

/// Whether [start, start + extent) lies inside a dimension of `size` elements.
inline bool inside(int64_t start, int64_t extent, int64_t size) {
  return start >= 0 && start <= size && extent <= size - start;
}

/// Copy a window of one column to `buffer`, whose elements are `stride` apart.
template <class T>
inline void copy_column(const Window<T>& from, T* buffer, int64_t stride) {
  if (from.index == nullptr && from.stride == 1 && stride == 1) {
    __builtin_memcpy(buffer, from.data, static_cast<uint64_t>(from.rows) * sizeof(T));
  } else if (from.index == nullptr) {
    for (int64_t i = 0; i < from.rows; ++i) buffer[i * stride] = from.data[i * from.stride];
  } else {
    for (int64_t i = 0; i < from.rows; ++i) buffer[i * stride] = from.data[from.index[i] * from.stride];
  }
}

/// Copy a window to `buffer`, whose rows are `stride` elements apart.
template <class T>
[[gnu::noinline]] Tile<T> copy(const Window<T> from, T* buffer, int64_t stride) {
  constexpr int64_t kAhead = 8;
  const Tile<T> made{buffer, stride, from.rows, from.cols};
  if (from.cols == 1) {
    copy_column(from, buffer, stride);
    return made;
  }
  for (int64_t i = 0; i < from.rows; ++i) {
    if (from.index != nullptr && i + kAhead < from.rows) __builtin_prefetch(from.row(i + kAhead));
    const T* source = from.row(i);
    T* target = buffer + i * stride;
    if (from.step == 1) {
      __builtin_memcpy(target, source, static_cast<uint64_t>(from.cols) * sizeof(T));
    } else {
      for (int64_t j = 0; j < from.cols; ++j) target[j] = source[j * from.step];
    }
  }
  return made;
}

/// The rows of a window that contiguous `numbers` select; -1 rows if one is outside.
/// \param place as many numbers, for windows whose rows are picked already
template <class T>
[[gnu::noinline]] Window<T> pick(const Window<T>& from, const Tile<int32_t>& numbers, int64_t count,
                                 int32_t* place) {
  const int32_t* index = numbers.data;
  U most{};  // a number below 0 is above all others here
  columns(count, [&](int64_t i, auto n) PTO_INLINE {
    const U number = (U)load(index + i, n);
    most = most > number ? most : number;
  });
  most = fold(most, [](U a, U b) { return a > b ? a : b; });
  if (count > 0 && (most[0] > INT32_MAX || int64_t(most[0]) >= from.rows))
    return {from.data, from.stride, from.step, nullptr, -1, from.cols, from.streams};
  if (from.index != nullptr) {
    for (int64_t i = 0; i < count; ++i) place[i] = from.index[index[i]];
    index = place;
  }
  return {from.data, from.stride, from.step, index, count, from.cols, from.streams};
}

/// The first row outside that `pick` received, for its error.
[[gnu::noinline, gnu::cold]] inline int64_t first_outside(const Tile<int32_t>& numbers, int64_t count,
                                                          int64_t num_rows) {
  for (int64_t i = 0; i < count; ++i) {
    if (numbers.data[i] < 0 || numbers.data[i] >= num_rows) return numbers.data[i];
  }
  return -1;
}

/// The window itself as a tile, or a copy if its rows are not evenly spaced.
template <class T>
PTO_INLINE inline Tile<T> borrow(const Window<T>& from, T* buffer, int64_t stride) {
  if (__builtin_expect(from.index == nullptr, 1)) return {from.data, from.stride, from.rows, from.cols};
  // A new object, so that fields which only this copy needs are not stored before each loop.
  const Window<T> same{from.data, from.stride, from.step, from.index, from.rows, from.cols, from.streams};
  copy(same, buffer, stride);
  return {buffer, stride, from.rows, from.cols};
}

/// The window itself as a tile if its rows are close together, so that many fit the first-level cache; else a
/// copy.
template <class T>
[[gnu::noinline]] Tile<T> bring_together(const Window<T>& from, T* buffer, int64_t stride) {
  constexpr int64_t kMostBytes = 1024;
  return from.stride * int64_t(sizeof(T)) > kMostBytes ? copy(from, buffer, stride)
                                                       : borrow(from, buffer, stride);
}

/// A copy of a tile that was borrowed.
template <class T>
inline Tile<T> copy(const Tile<T>& from, T* buffer, int64_t stride) {
  return copy(Window<T>{from.data, from.stride, 1, nullptr, from.rows, from.cols}, buffer, stride);
}

/// Sets every row of a tile to the single row of another tile.
template <class T>
void repeat(const Tile<T>& to, const Tile<T>& row) {
  for (int64_t i = 0; i < to.rows; ++i) {
    for (int64_t j = 0; j < to.cols; ++j) to.row(i)[j] = row.data[j];
  }
}

template <class T>
void write_past(const Window<T>& to, const Tile<T>& tile) {
  for (int64_t i = 0; i < to.rows; ++i) {
    const T* source = tile.row(i);
    T* target = to.row(i);
    int64_t j = to.lead(target, to.cols);
    __builtin_memcpy(target, source, static_cast<uint64_t>(j) * sizeof(T));
    if (to.streams_at(target + j)) {
      for (; j + kLanes <= to.cols; j += kLanes) put(target + j, get<Bits<T>>(source + j, Full{}), Past{});
    }
    __builtin_memcpy(target + j, source + j, static_cast<uint64_t>(to.cols - j) * sizeof(T));
  }
}

/// Copy the valid part of a tile to a window of the same shape.
template <class T>
[[gnu::noinline]] void write(const Window<T> to, const Tile<T> tile) {
  if constexpr (sizeof(T) < 8) {
    if (to.streams && to.step == 1) return write_past(to, tile);
  }
  for (int64_t i = 0; i < to.rows; ++i) {
    const T* source = tile.row(i);
    T* target = to.row(i);
    if (to.step == 1 && to.cols > 1) {
      __builtin_memcpy(target, source, static_cast<uint64_t>(to.cols) * sizeof(T));
    } else {
      for (int64_t j = 0; j < to.cols; ++j) target[j * to.step] = source[j];
    }
  }
}

/// Bytes that a tile or window touches, row by row.
struct TouchedBytes {
  int64_t base;
  int64_t stride;
  int64_t rows;
  int64_t cols;
  bool even;  ///< rows are evenly spaced

  /// Whether element (i, j) of both is the same, for windows of one shape.
  bool same(const TouchedBytes& other) const {
    return base == other.base && stride == other.stride && cols == other.cols && even && other.even;
  }
};

template <class T>
inline TouchedBytes footprint(const Tile<T>& t) {
  constexpr int64_t kBytes = sizeof(T);
  return {reinterpret_cast<int64_t>(t.data), t.stride * kBytes, t.rows, t.cols * kBytes, true};
}

template <class T>
inline TouchedBytes footprint(const Window<T>& w) {
  constexpr int64_t kBytes = sizeof(T);
  return {reinterpret_cast<int64_t>(w.data), w.stride * kBytes, w.rows, w.cols * kBytes,
          w.index == nullptr && w.step == 1};
}

/// Bytes of a view of `rank` dimensions: its rows, or everything from the first to the last. Long row sets
/// are not scanned, because a copy of the other operand is faster.
[[gnu::noinline]] inline TouchedBytes footprint(const View& view, int rank, int64_t bytes) {
  constexpr int64_t kMostPicked = 256;
  const int64_t base = reinterpret_cast<int64_t>(view.data);
  bool even = true;
  int64_t inner = 1;  // elements from the first to the last of one row
  for (int d = 0; d < rank; ++d) {
    if (view.shape[d] <= 0) return {base, 0, 0, 0, true};
    even = even && view.stride[d] >= 0;
    if (d > 0) inner += (view.shape[d] - 1) * view.stride[d];
  }
  const int64_t step = view.stride[0] * bytes;
  if (view.rows == nullptr && rank == 2) return {base, step, view.shape[0], inner * bytes, even};
  if (view.rows != nullptr && view.shape[0] > kMostPicked) return {base, 0, 1, 1, false};
  int64_t low = 0, high = view.shape[0] - 1;
  for (int64_t i = 0; view.rows != nullptr && i < view.shape[0]; ++i) {
    const int64_t row = view.rows[i];
    low = i == 0 || row < low ? row : low;
    high = i == 0 || row > high ? row : high;
  }
  return {base + low * step, 0, 1, (high - low) * step + inner * bytes, even};
}

/// Whether no byte belongs to both; false if a simple test cannot decide.
[[gnu::noinline]] inline bool apart(const TouchedBytes& a, const TouchedBytes& b) {
  if (a.rows <= 0 || b.rows <= 0 || a.cols <= 0 || b.cols <= 0) return true;
  if (!a.even || !b.even) return false;
  const int64_t a_end = a.base + (a.rows - 1) * a.stride + a.cols;
  const int64_t b_end = b.base + (b.rows - 1) * b.stride + b.cols;
  if (a_end <= b.base || b_end <= a.base) return true;
  if (a.stride != b.stride || a.stride <= 0) return false;
  // Equal strides: two bands of columns, seen modulo the stride.
  const int64_t rest = (b.base - a.base) % a.stride;
  const int64_t shift = rest < 0 ? rest + a.stride : rest;
  return shift >= a.cols && shift + b.cols <= a.stride;
}

/// Whether both are apart, or elements (i, j) of both are the same.
[[gnu::noinline]] inline bool apart_or_same(const TouchedBytes& a, const TouchedBytes& b) {
  return a.same(b) || apart(a, b);
}

/// Copy a tile to `buffer` unless it can be read where it is while a window is written; `written_*` is the
/// window's footprint. Takes numbers instead of a tile and a window, because such a call compiles faster.
template <class T>
[[gnu::noinline]] bool moved_away(T* data, int64_t stride, int64_t rows, int64_t cols, T* buffer,
                                  int64_t buffer_stride, const void* written_data, int64_t written_stride,
                                  int64_t written_rows, int64_t written_cols, bool even, bool elementwise) {
  const Tile<T> tile{data, stride, rows, cols};
  const TouchedBytes read = footprint(tile);
  const TouchedBytes written{reinterpret_cast<int64_t>(written_data), written_stride, written_rows,
                             written_cols, even};
  if ((elementwise && read.same(written)) || apart(read, written)) return false;
  copy(tile, buffer, buffer_stride);
  return true;
}

/// Copies a tile that is read while `target` is written, if they overlap.
/// \param elementwise element (i, j) is read before (i, j) is written, and at no other time
template <class T, class W>
PTO_INLINE inline void shield(Tile<T>& tile, const Window<W>& target, bool elementwise, T* buffer,
                              int64_t stride) {
  // The common case without a call, and without the tile's fields in memory.
  const void* end = tile.data + (tile.rows - 1) * tile.stride + tile.cols;
  const void* target_end = target.data + (target.rows - 1) * target.stride + target.cols;
  const bool is_apart = end <= static_cast<const void*>(target.data) || target_end <= tile.data;
  const bool even = target.index == nullptr && target.step == 1;
  if (__builtin_expect(is_apart && even, 1)) return;
  constexpr int64_t kBytes = sizeof(W);
  if (moved_away(tile.data, tile.stride, tile.rows, tile.cols, buffer, stride, target.data,
                 target.stride * kBytes, target.rows, target.cols * kBytes, even, elementwise)) {
    tile.data = buffer;
    tile.stride = stride;
  }
}

PTO_INLINE inline int64_t extent_of(Full) { return kLanes; }
PTO_INLINE inline int64_t extent_of(Tail n) { return n.n; }

// Lanes of two vectors in turn: those of the first halves, and of the others.
#if PTO_LANES == 16
#define PTO_ZIP_LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define PTO_ZIP_HIGH(a, b) \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif PTO_LANES == 8
#define PTO_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define PTO_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define PTO_ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define PTO_ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/// Transpose one block: `row(i)` is row i as a vector, of which `cols` lanes are written, each as a row of
/// `rows` elements.
///
/// Each round interleaves row i with row i + kLanes / 2; after log2(kLanes) rounds rows have become columns.
template <class V, class T, class Row>
PTO_INLINE inline void transpose_block(T* target, int64_t target_stride, const Row& row, int64_t rows,
                                       int64_t cols) {
  constexpr int64_t kHalf = kLanes / 2;
  V block[kLanes], next[kLanes];
#pragma GCC unroll 16
  for (int64_t i = 0; i < kLanes; ++i) block[i] = row(i);
#pragma GCC unroll 4
  for (int64_t step = 1; step < kLanes; step *= 2) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kHalf; ++i) {
      next[2 * i] = PTO_ZIP_LOW(block[i], block[i + kHalf]);
      next[2 * i + 1] = PTO_ZIP_HIGH(block[i], block[i + kHalf]);
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) block[i] = next[i];
  }
#pragma GCC unroll 16
  for (int64_t j = 0; j < kLanes; ++j) {
    if (j >= cols) break;
    T* to = target + j * target_stride;
    if (rows == kLanes) {
      put(to, block[j], Full{});
    } else {
      put(to, block[j], Tail{rows});
    }
  }
}

/// target[j][i] = source[i][j].
template <class T>
[[gnu::noinline]] void transpose(T* target, int64_t target_stride, const Tile<T> source) {
  if (source.rows == 1 && target_stride == 1) {
    __builtin_memcpy(target, source.data, static_cast<uint64_t>(source.cols) * sizeof(T));
    return;
  }
  if constexpr (sizeof(T) == 8) {
    for (int64_t i = 0; i < source.rows; ++i) {
      for (int64_t j = 0; j < source.cols; ++j) target[j * target_stride + i] = source.row(i)[j];
    }
    return;
  } else {
    typedef Bits<T> V;
    for (int64_t i = 0; i < source.rows; i += kLanes) {
      const int64_t rows = source.rows - i < kLanes ? source.rows - i : kLanes;
      columns(source.cols, [&](int64_t j, auto n) PTO_INLINE {
        const auto row = [&](int64_t r)
                             PTO_INLINE { return r < rows ? get<V>(source.row(i + r) + j, n) : V{}; };
        transpose_block<V>(target + j * target_stride + i, target_stride, row, rows, extent_of(n));
      });
    }
  }
}

/// Stores the transpose of a tile: directly if it does not overlap its operand, else through a copy.
template <class T>
[[gnu::noinline]] void write_turned(const Window<T>& to, const Tile<T>& source, const Tile<T>& turned) {
  const bool is_plain = to.index == nullptr && to.step == 1 && !to.streams;
  if (is_plain && apart(footprint(source), footprint(to))) return transpose(to.data, to.stride, source);
  transpose(turned.data, turned.stride, source);
  write(to, turned);
}

namespace unchecked {

/// The elements of `from` in row-major order; false where `to` has another number of them.
template <class T>
[[nodiscard]] bool reshape(const Tile<T>& to, const Tile<T>& from) {
  if (to.rows * to.cols != from.rows * from.cols) return false;
  int64_t row = 0, col = 0;
  for (int64_t i = 0; i < from.rows; ++i) {
    for (int64_t j = 0; j < from.cols; ++j) {
      to.row(row)[col] = from.row(i)[j];
      if (++col == to.cols) {
        col = 0;
        ++row;
      }
    }
  }
  return true;
}

/// The part of `from` that starts at [row, col]; false where it reaches outside.
template <class T>
[[nodiscard]] bool extract(const Tile<T>& to, const Tile<T>& from, int64_t row, int64_t col) {
  if (!inside(row, to.rows, from.rows) || !inside(col, to.cols, from.cols)) return false;
  copy(Tile<T>{from.row(row) + col, from.stride, to.rows, to.cols}, to.data, to.stride);
  return true;
}

/// `to` is `from` with `part` at [row, col]; false where that reaches outside.
template <class T>
[[nodiscard]] bool insert(const Tile<T>& to, const Tile<T>& from, const Tile<T>& part, int64_t row,
                          int64_t col) {
  if (!inside(row, part.rows, from.rows) || !inside(col, part.cols, from.cols)) return false;
  copy(from, to.data, to.stride);
  copy(part, to.row(row) + col, to.stride);
  return true;
}

/// `to` is `from` with lane 0 of `value` at [row, col]; false where that is outside. They may be one tile.
template <class T, class V>
[[nodiscard]] bool setval(const Tile<T>& to, const Tile<T>& from, int64_t row, int64_t col, V value) {
  if (!inside(row, 1, from.rows) || !inside(col, 1, from.cols)) return false;
  if (to.data != from.data) copy(from, to.data, to.stride);
  store(to.row(row) + col, value, First{});
  return true;
}

}  // namespace unchecked

}  // namespace pto::wsp::tile
