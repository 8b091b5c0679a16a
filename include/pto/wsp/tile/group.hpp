// SPDX-License-Identifier: MIT
/// \file
/// Grouping the elements of a tensor by their value: a counting sort that makes a CSR axis.
#pragma once

#include <cstdint>
#include <cstdio>

#include "pto/wsp/tile/kernel.hpp"

namespace pto::wsp::tile {

/// Call `body(position, element)` for every element of a view, in row-major order.
template <class T, int Rank, class Body>
inline void for_each_element(const TensorView<T, Rank>& view, const Body& body) {
  int64_t last = view.size(Rank - 1), runs = 1;
  for (int dim = 0; dim + 1 < Rank; ++dim) runs *= view.size(dim);
  if (last == 0) return;
  for (int64_t run = 0; run < runs; ++run) {
    int64_t rest = run, offset = 0;
    for (int dim = Rank - 2; dim > 0; --dim) {
      offset += rest % view.size(dim) * view.stride(dim);
      rest /= view.size(dim);
    }
    if (Rank == 1) {
      for (int64_t i = 0; i < last; ++i) body(i, *view.row(i));
    } else {
      const T* row = view.row(rest) + offset;
      for (int64_t i = 0; i < last; ++i) body(run * last + i, row[i]);
    }
  }
}

/// Sort the positions of the elements of `keys`, counted in row-major order, by the value of the element;
/// positions of one value keep their order.
///
/// \param keys    integers in [0, groups)
/// \param offsets [groups + 1]: group g has the positions at offsets[g] .. offsets[g + 1] of `indices`
/// \param indices [elements of keys, 1]: the positions
/// \post fails if `indices` has another number of rows than `keys` has elements, if `offsets` is empty, and,
///       naming the position and the value, if an element is outside [0, groups)
/// \complexity O(elements + groups), two passes over `keys`
template <class T, int Rank>
inline void group_by(const TensorView<const T, Rank>& keys, const TensorView<int64_t, 1>& offsets,
                     const TensorView<int32_t, 2>& indices) {
  int64_t elements = 1;
  for (int dim = 0; dim < Rank; ++dim) elements *= keys.size(dim);
  PTO_CHECK(offsets.size(0) > 0, "the offsets have no room for the end of the last group");
  PTO_CHECK(indices.rows() == elements && indices.cols() == 1, "there is not one index per element");
  PTO_CHECK(elements <= INT32_MAX, "more elements than 32-bit indices can name");
  const int64_t groups = offsets.size(0) - 1;
  int64_t* next = offsets.row(0);
  for (int64_t g = 0; g <= groups; ++g) next[g] = 0;
  for_each_element(keys, [&](int64_t position, T key) {
    // A u64 above the range of i64 becomes negative, and so is outside too.
    const int64_t group = static_cast<int64_t>(key);
    if (group < 0 || group >= groups) {
      char text[KernelFailure::kMaxMessage];
      std::snprintf(text, sizeof text, "element %lld is %lld, outside [0, %lld)",
                    static_cast<long long>(position), static_cast<long long>(group),
                    static_cast<long long>(groups));
      throw KernelFailure(text, nullptr, 0);
    }
    ++next[group + 1];
  });
  for (int64_t g = 0; g < groups; ++g) next[g + 1] += next[g];
  for_each_element(keys, [&](int64_t position, T key) {
    *indices.row(next[static_cast<int64_t>(key)]++) = static_cast<int32_t>(position);
  });
  for (int64_t g = groups; g > 0; --g)
    next[g] = next[g - 1];  // each offset has moved to the end of its group
  next[0] = 0;
}

}  // namespace pto::wsp::tile
