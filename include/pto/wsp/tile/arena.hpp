// SPDX-License-Identifier: MIT
/// \file
/// The memory of kernels written by hand: tiles in the task's workspace, and parts of their parameters.
#pragma once

#include <type_traits>

#include "pto/wsp/tile/kernel.hpp"
#include "pto/wsp/tile/move.hpp"

namespace pto::wsp::tile {

namespace detail {

/// End the kernel with an error, at the kernel's place, unless the condition holds.
inline void require(bool condition, const char* text) {
  if (!condition) throw KernelFailure(text, nullptr, 0);
}

}  // namespace detail

/// A tile whose rows have room for whole blocks of columns: memory up to the next multiple of Arena::kPadding
/// columns may be written. Only an Arena creates one. A part of it is a plain `Tile`, whose neighbours are
/// never written. Tiles of one column are packed and have no such room.
template <class T>
struct PaddedTile : Tile<T> {};

/// Memory for tiles, allocated from the front. A copy allocates from the same place. Pass a copy to a
/// function, and its memory is free again when the function returns.
class Arena {
 public:
  Arena(void* memory, uint64_t bytes) : next_(static_cast<char*>(memory)), end_(next_ + bytes) {}
  /// The workspace of the task, as the kernel's `workspace=` requests it.
  explicit Arena(const TaskContext& context) : Arena(context.workspace, context.workspace_bytes) {}

  /// `n` elements, aligned to kScratchAlign bytes, contents undefined.
  template <class T>
  T* array(int64_t n) {
    constexpr int64_t kBytes = sizeof(T);
    const int64_t left = end_ - next_;
    require_room(n >= 0 && n <= left / kBytes && round_up(n * kBytes, kScratchAlign) <= left);
    char* const place = next_;
    next_ += round_up(n * kBytes, kScratchAlign);
    return reinterpret_cast<T*>(place);
  }

  /// A tile of rows x cols valid elements, contents undefined. It takes rows * cols elements, where cols is
  /// rounded up to 32 unless it is 1, and then rounded up to 128 bytes.
  template <class T>
  PaddedTile<T> tile(int64_t rows, int64_t cols) {
    constexpr int64_t kMaxSize = INT64_MAX - kPadding;
    require_room(rows >= 0 && cols >= 0 && cols <= kMaxSize);
    const int64_t stride = cols == 1 ? 1 : round_up(cols, kPadding);
    int64_t elements = 0;
    require_room(!__builtin_mul_overflow(rows, stride, &elements) && elements <= kMaxSize);
    return {{array<T>(round_up(elements, kPadding)), stride, rows, cols}};
  }

  static constexpr int64_t kPadding = 32;

 private:
  static void require_room(bool has_room) {
    detail::require(has_room, "the workspace is too small for the kernel's tiles");
  }
  static int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

  char* next_;
  char* end_;
};

/// The elements of a parameter with two dimensions.
template <class T>
Window<std::remove_const_t<T>> window(const TensorView<T, 2>& view) {
  const Window<T> all = view;
  return {const_cast<std::remove_const_t<T>*>(all.data), all.stride, all.step, all.index, all.rows, all.cols};
}

/// Rows [row, row + rows) and columns [col, col + cols) of a window.
template <class T>
Window<T> part(const Window<T>& of, int64_t row, int64_t rows, int64_t col, int64_t cols) {
  detail::require(rows >= 0 && cols >= 0 && inside(row, rows, of.rows) && inside(col, cols, of.cols),
                  "a part reaches outside of its view");
  const int32_t* index = of.index ? of.index + row : nullptr;
  return {of.data + (of.index ? 0 : row * of.stride) + col * of.step, of.stride, of.step, index, rows, cols};
}

}  // namespace pto::wsp::tile
