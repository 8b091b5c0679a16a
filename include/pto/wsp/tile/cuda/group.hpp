// SPDX-License-Identifier: MIT
/// \file
/// Grouping the elements of a tensor by their value on a block: the meaning of tile/group.hpp.
#pragma once

#include "pto/wsp/tile/cuda/scalar.hpp"

namespace pto::wsp::cuda {

/// The elements of a view of integers by their position in row-major order.
template <class T, int kRank>
struct Keys {
  const View& view;

  PTO_DEVICE_INLINE int64_t count() const {
    int64_t found = 1;
    for (int d = 0; d < kRank; ++d) found *= view.shape[d];
    return found;
  }
  /// A u64 above the range of i64 becomes negative, which is outside all groups.
  PTO_DEVICE_INLINE int64_t at(int64_t position) const {
    int64_t offset = 0;
    for (int d = kRank - 1; d >= 0; --d) {
      const int64_t i = position % view.shape[d];
      position /= view.shape[d];
      offset += (d == 0 && view.rows != nullptr ? view.rows[i] : i) * view.stride[d];
    }
    return static_cast<int64_t>(static_cast<const T*>(view.data)[offset]);
  }
};

/// Sorts the positions of keys by key; positions of one key ascend. Each thread has some of the groups.
/// \return 0; 1 if there are not as many indices as keys, or no offsets; 2 if a key is not a group, and the
///         position, the key and the number of groups are kept
template <class T, int kRank>
PTO_DEVICE inline int32_t group_by(const View& keys_view, const View& offsets_view, const View& indices_view,
                                   const TaskContext* context) {
  const Keys<T, kRank> keys{keys_view};
  const int64_t count = keys.count(), groups = offsets_view.shape[0] - 1;
  if (groups < 0 || indices_view.shape[0] != count || count > INT32_MAX) return 1;
  bool bad = false;
  PTO_EACH(k, count) bad |= keys.at(k) < 0 || keys.at(k) >= groups;
  if (any(bad)) {
    int64_t first = 0;
    while (keys.at(first) >= 0 && keys.at(first) < groups) ++first;
    return failed(context, 2, first, keys.at(first), groups);
  }
  int64_t* const offsets = static_cast<int64_t*>(offsets_view.data);
  int32_t* const indices = static_cast<int32_t*>(indices_view.data);
  const int64_t step = offsets_view.stride[0], index_step = indices_view.stride[0];
  PTO_EACH(g, groups) {
    int64_t size = 0;
    for (int64_t k = 0; k < count; ++k) size += keys.at(k) == g;
    offsets[(g + 1) * step] = size;
  }
  sync();
  if (thread() == 0) {
    offsets[0] = 0;
    for (int64_t g = 0; g < groups; ++g) offsets[(g + 1) * step] += offsets[g * step];
  }
  sync();
  PTO_EACH(g, groups) {
    int64_t next = offsets[g * step];
    for (int64_t k = 0; k < count; ++k) {
      if (keys.at(k) == g) indices[next++ * index_step] = static_cast<int32_t>(k);
    }
  }
  return 0;
}

}  // namespace pto::wsp::cuda
