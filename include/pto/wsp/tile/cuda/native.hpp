// SPDX-License-Identifier: MIT
/// \file
/// The interface of kernels that users write in C++ for a block: views, shared memory, checks.
///
/// All threads of a block run the body together. `thread()` is the number of a thread, `threads()` how many
/// there are. `sync()`, `any`, `broadcast`, `exchange` and PTO_CHECK wait for other threads: all threads call
/// them. What a thread writes is visible to the others after `sync()`.
#pragma once

#include "pto/wsp/tile/cuda/scalar.hpp"

/// Ends the kernel, and with it the run, with an error at this line, if the condition is false in any thread.
/// All threads call it. The message is read from the text.
#define PTO_CHECK(condition, text)                                                   \
  do {                                                                               \
    static_assert(sizeof("" text) > 0, "the message is a text");                     \
    if (any(!(condition))) return ::pto::wsp::cuda::Status{__LINE__ - kLinesBefore}; \
  } while (false)

/// States the bytes of shared memory of a block: a whole number. It is read from the text.
#define PTO_SHARED(bytes) static_assert((bytes) > 0, "a kernel without shared memory does not state it")

/// States the cycles of a call on a simulated device; never evaluated here.
#define PTO_CYCLES(cycles) static_cast<void>(sizeof(cycles))

namespace pto::wsp::cuda {

/// What a body returns: `kDone`, or the line of the check that failed; the first line of the text is 1.
struct Status {
  int32_t code;
};
inline constexpr Status kDone{0};

template <bool kHolds>
struct Enabled {};
template <>
struct Enabled<true> {
  using Type = int;
};

/// A tensor parameter: the part of a tensor that a task was given. `T` is const for inputs.
template <class T, int kRank>
class TensorView {
 public:
  PTO_DEVICE_INLINE explicit TensorView(const View& view) : view_(&view), data_(static_cast<T*>(view.data)) {}

  /// Extent of a dimension.
  PTO_DEVICE_INLINE int64_t size(int dim) const { return view_->shape[dim]; }
  PTO_DEVICE_INLINE int64_t rows() const { return size(0); }
  PTO_DEVICE_INLINE int64_t cols() const { return size(1); }

  /// Elements between neighbours in a dimension. Rows need not be evenly spaced: use `row`.
  PTO_DEVICE_INLINE int64_t stride(int dim) const { return view_->stride[dim]; }

  /// The first element of row i: of all that index 0 of the other dimensions selects.
  PTO_DEVICE_INLINE T* row(int64_t i) const {
    return data_ + (view_->rows != nullptr ? view_->rows[i] : i) * view_->stride[0];
  }

  /// An element, by one index per dimension; the indices are not checked.
  template <class... Indices, typename Enabled<sizeof...(Indices) + 1 == kRank>::Type = 0>
  PTO_DEVICE_INLINE T& operator()(int64_t i, Indices... others) const {
    const int64_t at[] = {static_cast<int64_t>(others)..., 0};
    T* place = row(i);
    for (int dim = 1; dim < kRank; ++dim) place += at[dim - 1] * view_->stride[dim];
    return *place;
  }

 private:
  const View* view_;
  T* data_;
};

/// Shared memory of the block, from `offset` bytes on, of those that PTO_SHARED states.
template <class T>
PTO_DEVICE_INLINE T* shared(const TaskContext& context, int64_t offset = 0) {
  return scratch<T>(&context, offset);
}

}  // namespace pto::wsp::cuda
