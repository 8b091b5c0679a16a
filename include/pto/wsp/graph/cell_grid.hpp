// SPDX-License-Identifier: MIT
/// \file
/// Coarse cells of a space, through which boxes near each other are found.
#pragma once

#include <algorithm>

#include "pto/wsp/bytecode/format.hpp"

namespace pto::wsp::graph {

/// A region in elements: [lo, hi) per dimension.
struct Box {
  int64_t lo[kMaxTensorRank];
  int64_t hi[kMaxTensorRank];
};

class CellGrid {
 public:
  /// `typical[d]` is the usual extent of an access in dimension d, and the extent of a cell unless that makes
  /// more than `most` of them.
  CellGrid(int rank, const int64_t* size, const int64_t* typical, int64_t most) : rank_(rank) {
    for (int d = rank_; d-- > 0;) {
      const int64_t left = std::max<int64_t>(most / num_cells_, 1);
      const int64_t finest = (size[d] + left - 1) / left;
      step_[d] = std::max({typical[d], finest, int64_t{1}});
      cells_[d] = std::max<int64_t>((size[d] + step_[d] - 1) / step_[d], 1);
      num_cells_ *= cells_[d];
    }
  }

  int rank() const { return rank_; }
  int64_t num_cells() const { return num_cells_; }

  bool is_empty(const Box& box) const {
    for (int d = 0; d < rank_; ++d) {
      if (box.lo[d] >= box.hi[d]) return true;
    }
    return false;
  }

  /// How many cells a box meets. \pre it is not empty
  int64_t count(const Box& box) const {
    int64_t count = 1;
    for (int d = 0; d < rank_; ++d) count *= last(box, d) - first(box, d) + 1;
    return count;
  }

  /// Calls `visit(cell)` for the cells that a box meets. \pre it is not empty
  template <class Visit>
  void for_cells(const Box& box, Visit visit) const {
    int64_t at[kMaxTensorRank];
    for (int d = 0; d < rank_; ++d) at[d] = first(box, d);
    for (;;) {
      visit(cell_of(at));
      int d = rank_ - 1;
      while (d >= 0 && ++at[d] > last(box, d)) {
        at[d] = first(box, d);
        --d;
      }
      if (d < 0) return;
    }
  }

  /// The cell of one element.
  int64_t cell_at(const int64_t* indices) const {
    int64_t at[kMaxTensorRank];
    for (int d = 0; d < rank_; ++d) at[d] = indices[d] / step_[d];
    return cell_of(at);
  }

  bool intersects(const Box& a, const Box& b) const {
    for (int d = 0; d < rank_; ++d) {
      if (a.lo[d] >= b.hi[d] || b.lo[d] >= a.hi[d]) return false;
    }
    return true;
  }

  bool covers(const Box& outer, const Box& inner) const {
    for (int d = 0; d < rank_; ++d) {
      if (inner.lo[d] < outer.lo[d] || inner.hi[d] > outer.hi[d]) return false;
    }
    return true;
  }

  bool contains(const Box& box, const int64_t* indices) const {
    for (int d = 0; d < rank_; ++d) {
      if (indices[d] < box.lo[d] || indices[d] >= box.hi[d]) return false;
    }
    return true;
  }

 private:
  int64_t first(const Box& box, int d) const { return box.lo[d] / step_[d]; }
  int64_t last(const Box& box, int d) const { return (box.hi[d] - 1) / step_[d]; }

  int64_t cell_of(const int64_t* at) const {
    int64_t cell = 0;
    for (int d = 0; d < rank_; ++d) cell = cell * cells_[d] + at[d];
    return cell;
  }

  int rank_;
  int64_t num_cells_ = 1;
  int64_t step_[kMaxTensorRank];
  int64_t cells_[kMaxTensorRank];
};

}  // namespace pto::wsp::graph
