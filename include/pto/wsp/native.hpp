// SPDX-License-Identifier: MIT
/// \file
/// The interface of hand-written kernels to the engine: failures, and the kernel that a thread is in.
///
/// A library with such kernels exports `pto_wsp_native_kernels` besides its table. C++17, and free of C++
/// standard headers as abi.hpp is.
#pragma once

#include "pto/wsp/abi.hpp"

namespace pto::wsp {

/// Why a hand-written kernel ended early.
struct KernelFailure {
  static constexpr int kMaxMessage = 256;

  /// \param text  the message, of which the first kMaxMessage - 1 bytes are kept
  /// \param place file that the failure was written in, a literal; null where that is not known
  KernelFailure(const char* text, const char* place, int32_t number) : file(place), line(number) {
    int length = 0;
    for (; text[length] != 0 && length < kMaxMessage - 1; ++length) message[length] = text[length];
    message[length] = 0;
  }
  KernelFailure() = default;

  char message[kMaxMessage];
  const char* file;
  int32_t line;
};

/// A call of a hand-written kernel.
struct NativeCall {
  const char* kernel;
  const char* place;  ///< "file:line" of the kernel
  const TaskContext* context;
};

/// What a library with hand-written kernels exports through `pto_wsp_native_kernels`.
struct NativeKernels {
  /// Why a kernel of the library returned `number`. Kept for at least as many failures as there can be
  /// workers.
  const KernelFailure* (*failure)(int32_t number);
  /// Set when the library is loaded: where a thread keeps the call that it is in. Null: it is not kept.
  const NativeCall** (*current_call)();
};

using NativeKernelsFn = NativeKernels* (*)();

}  // namespace pto::wsp
