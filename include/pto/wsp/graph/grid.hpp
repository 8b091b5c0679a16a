// SPDX-License-Identifier: MIT
/// \file
/// Finds, per space, the coarsest grid of which every access is a union of cells.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "pto/wsp/graph/footprint.hpp"

namespace pto::wsp::graph {

/// Cells of `step` elements per dimension. `wide` says that some access covers more than kWideCells of them.
struct Grid {
  int rank = 0;
  int64_t size[kMaxTensorRank];
  int64_t step[kMaxTensorRank];
  int64_t cells[kMaxTensorRank];
  int64_t cell_stride[kMaxTensorRank];
  int64_t num_cells = 1;
  bool is_wide = false;
};

inline constexpr int64_t kWideCells = 32;
inline constexpr int64_t kMaxRuns = 64;
inline constexpr int64_t kMaxCells = int64_t{1} << 23;

namespace detail {

/// The smallest i64 has no absolute value, so it gives cells of one element.
inline void fold_gcd(int64_t& g, int64_t x) { g = x == bytecode::kI64Min ? 1 : std::gcd(g, x); }

/// Adds the bounds of an access in one dimension to the step. False if they are not affine.
inline bool fold_dim(int64_t& step, const QuickDim& dim, int64_t size) {
  if (dim.op == bytecode::Op::DIM_FULL) return true;
  if (!dim.start_form.affine) return false;
  fold_gcd(step, dim.start_form.c0);
  for (const bytecode::Term& term : dim.start_form.terms) fold_gcd(step, term.coef);
  if (dim.op == bytecode::Op::DIM_TILE) {
    if (dim.tile == 0) return false;
    // The end of the axis clips the last tile. A partial end is rounded up to a cell, which only adds order.
    fold_gcd(step, dim.extent_form.is_constant() ? dim.extent_form.c0 : dim.tile);
    if (dim.tile_end != size) fold_gcd(step, dim.tile_end);
    return true;
  }
  if (!dim.extent_form.affine) return false;
  // Code that never runs may be far outside its tensor.
  int64_t end = 0;
  const bool ends_with_tensor = dim.start_form.is_constant() && dim.extent_form.is_constant() &&
                                !__builtin_add_overflow(dim.start_form.c0, dim.extent_form.c0, &end) &&
                                end == size;
  if (ends_with_tensor) return true;
  fold_gcd(step, dim.extent_form.c0);
  for (const bytecode::Term& term : dim.extent_form.terms) fold_gcd(step, term.coef);
  return true;
}

/// The most cells an access can cover in one dimension.
inline int64_t max_cells(const QuickDim& dim, int64_t size, int64_t step, int64_t cells) {
  const int64_t extent = std::min(dim.extent_form.range.hi, size);
  return std::min(cells, extent <= 0 ? 1 : (extent - 1) / step + 1);
}

/// Adds an access to the grid. False if it covers too many runs of cells.
inline bool fits_grid(Grid& grid, const Footprint& footprint) {
  int64_t runs = 1, run_cells = 1;
  bool is_contiguous = true;  // all dimensions after this one are covered whole
  for (int d = grid.rank; d-- > 0;) {
    const int64_t n = max_cells(footprint.dims[size_t(d)], grid.size[d], grid.step[d], grid.cells[d]);
    (is_contiguous ? run_cells : runs) *= n;
    if (n > kMaxCells || runs > kMaxCells) return false;
    is_contiguous = is_contiguous && n == grid.cells[d];
  }
  grid.is_wide = grid.is_wide || run_cells > kWideCells;
  return runs <= kMaxRuns;
}

}  // namespace detail

/// The grid of all accesses in a space; false if there is no useful one.
inline bool find_grid(const Space& space, Grid& grid) {
  for (const Footprint& footprint : space.footprints) {
    if (footprint.row_io >= 0) return false;
  }
  grid.rank = int(space.size.size());
  for (int d = grid.rank; d-- > 0;) {
    grid.size[d] = space.size[size_t(d)];
    int64_t step = 0;
    for (const Footprint& footprint : space.footprints) {
      if (!detail::fold_dim(step, footprint.dims[size_t(d)], grid.size[d])) return false;
    }
    grid.step[d] = step == 0 ? std::max<int64_t>(grid.size[d], 1) : step;
    grid.cells[d] = std::max<int64_t>((grid.size[d] - 1) / grid.step[d] + 1, 1);
    grid.cell_stride[d] = grid.num_cells;
    if (grid.cells[d] > kMaxCells / grid.num_cells) return false;
    grid.num_cells *= grid.cells[d];
  }
  for (const Footprint& footprint : space.footprints) {
    if (!detail::fits_grid(grid, footprint)) return false;
  }
  return true;
}

}  // namespace pto::wsp::graph
