// SPDX-License-Identifier: MIT
/// \file
/// Coarse cells of a space, through which boxes near each other are found.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/format.hpp"

namespace pto::wsp::graph {

/// A region in elements: [lo, hi) per dimension.
struct Box {
  int64_t lo[kMaxTensorRank];
  int64_t hi[kMaxTensorRank];
};

inline bool is_empty(const Box& box, int rank) {
  for (int d = 0; d < rank; ++d) {
    if (box.lo[d] >= box.hi[d]) return true;
  }
  return false;
}

// The boxes of the next three functions have `lo` and `hi`, arrays or pointers.

template <class A, class B>
bool intersects(const A& a, const B& b, int rank) {
  for (int d = 0; d < rank; ++d) {
    if (a.lo[d] >= b.hi[d] || b.lo[d] >= a.hi[d]) return false;
  }
  return true;
}

template <class Outer, class Inner>
bool covers(const Outer& outer, const Inner& inner, int rank) {
  for (int d = 0; d < rank; ++d) {
    if (inner.lo[d] < outer.lo[d] || inner.hi[d] > outer.hi[d]) return false;
  }
  return true;
}

template <class B>
bool contains(const B& box, const int64_t* indices, int rank) {
  for (int d = 0; d < rank; ++d) {
    if (indices[d] < box.lo[d] || indices[d] >= box.hi[d]) return false;
  }
  return true;
}

/// Calls `visit(at)` for the points from `lo` to `hi`, both included. \pre no dimension is empty
template <class Visit>
void for_points(int rank, const int64_t* lo, const int64_t* hi, Visit visit) {
  int64_t at[kMaxTensorRank];
  std::copy(lo, lo + rank, at);
  for (;;) {
    visit(static_cast<const int64_t*>(at));
    int d = rank - 1;
    while (d >= 0 && ++at[d] > hi[d]) {
      at[d] = lo[d];
      --d;
    }
    if (d < 0) return;
  }
}

/// The cells that a box intersects: [lo, hi] per dimension.
struct CellRange {
  int64_t lo[kMaxTensorRank];
  int64_t hi[kMaxTensorRank];
  int64_t count = 1;
};

class CellGrid {
 public:
  /// `typical[d]` is the usual extent of an access in dimension d. It is the extent of a cell unless that
  /// gives more than `most` cells. Dimensions in the set `whole` are not divided.
  CellGrid(int rank, const int64_t* size, const int64_t* typical, int64_t most, uint32_t whole = 0)
      : rank_(rank) {
    for (int d = rank_; d-- > 0;) {
      const int64_t left = std::max<int64_t>(most / num_cells_, 1);
      const int64_t finest = (whole >> d & 1) != 0 ? size[d] : (size[d] + left - 1) / left;
      step_[d] = std::max({typical[d], finest, int64_t{1}});
      cells_[d] = std::max<int64_t>((size[d] + step_[d] - 1) / step_[d], 1);
      num_cells_ *= cells_[d];
    }
  }

  int rank() const { return rank_; }
  int64_t num_cells() const { return num_cells_; }
  /// How many cells there are in a dimension.
  int64_t num_cells(int d) const { return cells_[d]; }

  /// \pre the box is not empty
  CellRange range_of(const Box& box) const {
    CellRange range;
    for (int d = 0; d < rank_; ++d) {
      range.lo[d] = box.lo[d] / step_[d];
      range.hi[d] = (box.hi[d] - 1) / step_[d];
      range.count *= range.hi[d] - range.lo[d] + 1;
    }
    return range;
  }

  /// Calls `visit(cell)` for the cells that a box intersects. \pre it is not empty
  template <class Visit>
  void for_cells(const Box& box, Visit visit) const {
    const CellRange range = range_of(box);
    for_points(rank_, range.lo, range.hi, [&](const int64_t* at) { visit(cell_of(at)); });
  }

  int64_t cell_of(const int64_t* at) const {
    int64_t cell = 0;
    for (int d = 0; d < rank_; ++d) cell = cell * cells_[d] + at[d];
    return cell;
  }

  /// The cell of one element.
  int64_t cell_at(const int64_t* indices) const {
    int64_t at[kMaxTensorRank];
    for (int d = 0; d < rank_; ++d) at[d] = indices[d] / step_[d];
    return cell_of(at);
  }

 private:
  int rank_;
  int64_t num_cells_ = 1;
  int64_t step_[kMaxTensorRank];
  int64_t cells_[kMaxTensorRank];
};

/// Several grids of one space. Each has a `Content` for boxes that are long in the same dimensions, which the
/// grid does not divide. So a box intersects few cells of its grid, and the other dimensions separate boxes
/// that are long in one.
template <class Content>
class LayeredGrid {
 public:
  struct Layer {
    uint32_t whole;
    CellGrid grid;
    Content content;
  };

  LayeredGrid(int rank, const int64_t* size, const int64_t* typical, int64_t most)
      : most_(most), size_(size, size + rank), typical_(typical, typical + rank) {}

  /// The layer that a box belongs to.
  Layer& layer_of(const Box& box) {
    uint32_t whole = 0;
    for (size_t d = 0; d < size_.size(); ++d) {
      if (box.hi[d] - box.lo[d] > kLong * typical_[d]) whole |= 1u << d;
    }
    for (const auto& layer : layers_) {
      if (layer->whole == whole) return *layer;
    }
    CellGrid grid(int(size_.size()), size_.data(), typical_.data(), most_, whole);
    Content content(grid);
    layers_.push_back(std::make_unique<Layer>(Layer{whole, grid, std::move(content)}));
    return *layers_.back();
  }

  const std::vector<std::unique_ptr<Layer>>& layers() const { return layers_; }

 private:
  static constexpr int64_t kLong = 2;

  int64_t most_;
  std::vector<int64_t> size_, typical_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace pto::wsp::graph
