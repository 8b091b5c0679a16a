// SPDX-License-Identifier: MIT
/// \file
/// Vectors as arguments of a run.
#pragma once

#include <type_traits>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"

namespace arrays {

using namespace pto::wsp;

/// A vector as an array of one dimension.
template <class T>
bind::ArrayRef ref(std::vector<T>& data) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t> ||
                std::is_same_v<T, uint64_t>);
  bind::ArrayRef out;
  out.data = data.data();
  out.dtype = std::is_same_v<T, float>     ? DType::f32
              : std::is_same_v<T, int32_t> ? DType::i32
              : std::is_same_v<T, int64_t> ? DType::i64
                                           : DType::u64;
  out.rank = 1;
  out.shape[0] = int64_t(data.size());
  out.stride_bytes[0] = sizeof(T);
  return out;
}

}  // namespace arrays
