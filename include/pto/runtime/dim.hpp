// SPDX-License-Identifier: MIT
/// \file
/// `Dim`: one dimension whose size is known at compile time or at run time (spec 2.2, 3.1).
#pragma once

#include <type_traits>

#include "platform.hpp"

namespace pto {
namespace runtime {

/// Marks a dimension whose size is only known at run time.
inline constexpr int DYNAMIC = -1;

/// One dimension of an iteration space.
///
/// \tparam StaticSize the size (>= 0), or `DYNAMIC`.
template <int StaticSize = DYNAMIC>
struct Dim {
  static_assert(StaticSize >= DYNAMIC, "Dim: StaticSize is a size >= 0, or DYNAMIC");

  static constexpr int static_size = StaticSize;
  static constexpr bool is_dynamic = (StaticSize == DYNAMIC);

  /// Run-time size; means something only if `is_dynamic`.
  int size;

  /// \post `size == StaticSize`
  PTO_SHARED constexpr Dim() : size(StaticSize) {}

  /// Constructs a dynamic dimension of the given size. Does not exist for a static dimension.
  template <int S = StaticSize, std::enable_if_t<S == DYNAMIC, int> = 0>
  PTO_SHARED explicit constexpr Dim(int runtime_size) : size(runtime_size) {}

  /// \return `size` of a dynamic dimension, `StaticSize` of a static one.
  PTO_SHARED constexpr int get_size() const {
    if constexpr (is_dynamic) {
      return size;
    } else {
      return StaticSize;
    }
  }
};

template <int N>
using StaticDim = Dim<N>;
using DynamicDim = Dim<DYNAMIC>;

/// Whether `T` is a `Dim<>`.
template <typename T>
struct is_dim : std::false_type {};
template <int N>
struct is_dim<Dim<N>> : std::true_type {};

static_assert(sizeof(DynamicDim) == 4 && sizeof(StaticDim<8>) == 4, "Dim stores 4 bytes");

}  // namespace runtime
}  // namespace pto
