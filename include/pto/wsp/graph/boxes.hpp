// SPDX-License-Identifier: MIT
/// \file
/// The boxes of elements that a task touches, for the current values of the registers.
#pragma once

#include "pto/wsp/bytecode/plan.hpp"
#include "pto/wsp/graph/cell_grid.hpp"
#include "pto/wsp/graph/footprint.hpp"

namespace pto::wsp::graph {

/// The box of `rank` dimensions; that of a row set has positions of indices in dimension 0.
inline Box evaluate_box(const bytecode::Plan& plan, const bytecode::QuickDim* dims, size_t rank,
                        const int64_t* registers) {
  Box box;
  for (size_t d = 0; d < rank; ++d) {
    box.lo[d] = plan.evaluate(dims[d].start, registers);
    box.hi[d] = box.lo[d] + plan.evaluate(dims[d].extent, registers);
  }
  return box;
}

/// Calls `visit(region)` for each row of a row set. `region` has the `lo` and `hi` of the row set, with
/// positions of indices in dimension 0. \pre no task writes the indices
template <class Region, class Visit>
void for_rows(const bytecode::Plan& plan, const bytecode::QuickIo& io, Region region, Visit visit) {
  const bytecode::QuickRows& rows = plan.rows[size_t(io.rows)];
  const auto* indices = reinterpret_cast<const int32_t*>(plan.bindings.elements[rows.tensor].base);
  const int64_t* shape = plan.layouts[io.tensor].shape;
  const int64_t first = region.lo[0], last = region.hi[0];
  for (int64_t i = first; i < last; ++i) {
    int64_t row = indices[i];
    for (size_t d = rows.num_merged + size_t{1}; d-- > 0;) {
      region.lo[d] = d == 0 ? row : row % shape[d];
      region.hi[d] = region.lo[d] + 1;
      row /= shape[d];
    }
    visit(region);
  }
}

/// A row set of more rows counts as all rows.
inline constexpr int64_t kMaxRowBoxes = 1024;

/// Calls `visit(box)` for the boxes of a footprint: one, or one for each row that is compared separately.
template <class Visit>
void for_boxes(const bytecode::Plan& plan, const Footprint& footprint, const int64_t* registers,
               Visit visit) {
  if (footprint.row_io >= 0) {
    const bytecode::QuickIo& io = plan.ios[size_t(footprint.row_io)];
    const Box region = evaluate_box(plan, plan.dims.data() + io.first_dim, io.rank, registers);
    if (region.hi[0] - region.lo[0] <= kMaxRowBoxes) return for_rows(plan, io, region, visit);
  }
  visit(evaluate_box(plan, footprint.dims.data(), footprint.dims.size(), registers));
}

}  // namespace pto::wsp::graph
