// SPDX-License-Identifier: MIT
/// \file
/// The interface of hand-written kernels: views with an element type, and failures with a message.
///
/// A kernel's parameters are `TensorView`s and scalars. It returns nothing; `PTO_FAIL("message")` and
/// `PTO_CHECK(condition, "message")` end the run with an error that names the line, wherever they are called
/// from. So does an exception that leaves the kernel.
#pragma once

#include <exception>

#include "pto/wsp/native.hpp"
#include "pto/wsp/tile/matmul.hpp"
#include "pto/wsp/tile/monitor.hpp"
#include "pto/wsp/tile/move.hpp"
#include "pto/wsp/tile/scalar.hpp"

/// End the kernel, and with it the run, with an error at this line. The message is copied.
#define PTO_FAIL(text) throw ::pto::wsp::KernelFailure((text), __FILE__, __LINE__)

/// The same unless the condition holds.
#define PTO_CHECK(condition, text)    \
  do {                                \
    if (!(condition)) PTO_FAIL(text); \
  } while (false)

/// State the cycles of a call on a simulated device: an expression of extents and scalars, inside the body of
/// the kernel. It is read from the text, and never evaluated here.
#define PTO_CYCLES(cycles) static_cast<void>(sizeof(cycles))

namespace pto::wsp::tile {

/// A tensor parameter: the part of a tensor that a task was given, with its element type.
///
/// Only the elements inside its extents may be touched, whatever the capacity of the parameter's tile is.
/// `T` is const for inputs.
template <class T, int Rank>
class TensorView {
 public:
  explicit TensorView(const View& view) : view_(&view), data_(static_cast<T*>(view.data)) {}

  /// Extent of a dimension.
  int64_t size(int dim) const { return view_->shape[dim]; }
  int64_t rows() const { return size(0); }
  int64_t cols() const {
    static_assert(Rank == 2, "views with two dimensions have columns");
    return size(1);
  }

  /// Elements between neighbours in a dimension; 1 in the last one. Rows need not be evenly spaced: use
  /// `row`.
  int64_t stride(int dim) const { return view_->stride[dim]; }

  /// The first element of row i: of all that index 0 of the other dimensions selects.
  T* row(int64_t i) const { return data_ + (view_->rows ? view_->rows[i] : i) * view_->stride[0]; }

  /// An element; the indices are not checked.
  template <class... Indices>
  T& operator()(int64_t i, Indices... others) const {
    static_assert(sizeof...(Indices) + 1 == Rank, "one index per dimension");
    const int64_t at[] = {static_cast<int64_t>(others)..., 0};
    T* place = row(i);
    for (int dim = 1; dim < Rank; ++dim) place += at[dim - 1] * view_->stride[dim];
    return *place;
  }

  /// The same elements as the functions of tiles take them.
  operator Window<T>() const {
    static_assert(Rank == 2, "tiles have two dimensions");
    return {data_, view_->stride[0], view_->stride[1], view_->rows, rows(), cols(), view_->streams};
  }

 private:
  const View* view_;
  T* data_;
};

}  // namespace pto::wsp::tile

/// Used by the generated code around hand-written kernels.
namespace pto::wsp::tile::native {

inline constexpr uint32_t kKeptFailures = 1024;
inline KernelFailure kept_failures[kKeptFailures];
inline uint32_t num_failures = 0;

/// Keep a failure; returns its number, which is above 0.
inline int32_t keep(const KernelFailure& failure) {
  const uint32_t number = __atomic_fetch_add(&num_failures, 1, __ATOMIC_RELAXED) % (1u << 30);
  kept_failures[number % kKeptFailures] = failure;
  return static_cast<int32_t>(number) + 1;
}

inline const KernelFailure* failure(int32_t number) {
  return number < 1 ? nullptr : &kept_failures[static_cast<uint32_t>(number - 1) % kKeptFailures];
}

inline NativeKernels kernels{failure, nullptr};

/// While an instance lives, notes the kernel of this thread for crash reports.
class Noted {
 public:
  explicit Noted(const NativeCall& call) : place_(kernels.current_call ? kernels.current_call() : nullptr) {
    if (place_ != nullptr) *place_ = &call;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);  // a handler of signals reads it
  }
  ~Noted() {
    if (place_ != nullptr) *place_ = nullptr;
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  const NativeCall** place_;
};

/// Run the body of a kernel; returns 0 or the number of its failure.
template <class Body>
int32_t run(const NativeCall& call, const Body& body) {
  const Noted noted(call);
  try {
    body();
    return 0;
  } catch (const KernelFailure& failure) {
    return keep(failure);
  } catch (const std::exception& error) {
    return keep({error.what(), nullptr, 0});
  } catch (...) {
    return keep({"it threw something other than a std::exception", nullptr, 0});
  }
}

}  // namespace pto::wsp::tile::native

/// The exports of a library with hand-written kernels.
extern "C" __attribute__((visibility("default"), used)) inline pto::wsp::NativeKernels*
pto_wsp_native_kernels() {
  return &pto::wsp::tile::native::kernels;
}
