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

/// Memory for tiles, taken from the front. Copies take from the same place: pass one by value to a function,
/// and what that takes is free again when it returns.
class Arena {
 public:
  Arena(void* memory, uint64_t bytes) : next_(static_cast<char*>(memory)), end_(next_ + bytes) {}
  /// The task's workspace: what the kernel's `workspace=` asks for.
  explicit Arena(const TaskContext& context) : Arena(context.workspace, context.workspace_bytes) {}

  /// `n` elements, aligned to kScratchAlign bytes, contents undefined.
  template <class T>
  T* array(int64_t n) {
    const int64_t bytes = round_up(n * static_cast<int64_t>(sizeof(T)), kScratchAlign);
    detail::require(n >= 0 && bytes <= end_ - next_, "the workspace is too small for the kernel's tiles");
    char* const place = next_;
    next_ += bytes;
    return reinterpret_cast<T*>(place);
  }

  /// A tile of rows x cols valid elements, contents undefined. It takes rows * cols elements, where cols is
  /// rounded up to 32 unless it is 1, and then rounded up to 128 bytes.
  template <class T>
  Tile<T> tile(int64_t rows, int64_t cols) {
    const int64_t stride = cols == 1 ? 1 : round_up(cols, kPadding);
    return {array<T>(round_up(rows * stride, kPadding)), stride, rows, cols};
  }

  static constexpr int64_t kPadding = 32;

 private:
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
