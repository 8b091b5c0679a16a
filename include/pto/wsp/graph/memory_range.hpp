// SPDX-License-Identifier: MIT
/// \file
/// The range of memory that a region lies in.
#pragma once

#include "pto/wsp/bytecode/plan.hpp"
#include "pto/wsp/graph/cell_grid.hpp"

namespace pto::wsp::graph {

/// How elements of a tensor lie in memory, counted from the lowest one.
class MemoryOrder {
 public:
  MemoryOrder(const bytecode::TensorLayout& layout, int rank) : rank_(rank) {
    for (int d = 0; d < rank; ++d) {
      stride_[d] = layout.stride[d];
      const int64_t reach = (layout.shape[d] - 1) * layout.stride[d];
      if (layout.shape[d] > 0) (reach < 0 ? lowest_ : highest_) += reach;
    }
  }

  /// Elements from the lowest to the highest one.
  int64_t size() const { return highest_ - lowest_ + 1; }

  int64_t index_of(const int64_t* indices) const {
    int64_t index = -lowest_;
    for (int d = 0; d < rank_; ++d) index += indices[d] * stride_[d];
    return index;
  }

  /// From the lowest to the highest element of a box.
  Box range_of(const Box& box) const {
    Box range;
    range.lo[0] = range.hi[0] = 0;
    if (is_empty(box, rank_)) return range;
    int64_t lo = -lowest_, hi = -lowest_;
    for (int d = 0; d < rank_; ++d) {
      const int64_t first = box.lo[d] * stride_[d], last = (box.hi[d] - 1) * stride_[d];
      lo += std::min(first, last);
      hi += std::max(first, last);
    }
    range.lo[0] = lo;
    range.hi[0] = hi + 1;
    return range;
  }

 private:
  int rank_;
  int64_t stride_[kMaxTensorRank];
  int64_t lowest_ = 0, highest_ = 0;
};

}  // namespace pto::wsp::graph
