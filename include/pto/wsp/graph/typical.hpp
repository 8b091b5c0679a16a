// SPDX-License-Identifier: MIT
/// \file
/// Estimates the usual size of accesses in a space.
#pragma once

#include <algorithm>

#include "pto/wsp/graph/footprint.hpp"

namespace pto::wsp::graph {

namespace detail {

/// Whether a value depends on one of the registers [first, last).
inline bool depends_on(const Plan& plan, const bytecode::Value& value, uint32_t first, uint32_t last) {
  const auto is_inside = [&](uint32_t reg) { return reg >= first && reg < last; };
  for (uint32_t i = 0; i < value.num_terms; ++i) {
    if (is_inside(plan.terms[value.first_term + i].reg)) return true;
  }
  if (value.postfix == bytecode::kNoPostfix) return false;
  const auto& code = plan.program().instructions;
  for (uint32_t pc = value.postfix; code[pc].op != bytecode::Op::EXPR_END; ++pc) {
    if (code[pc].op == bytecode::Op::EXPR_REG && is_inside(code[pc].operand2)) return true;
  }
  return false;
}

/// The largest number of different starts of a site in a dimension; 1 if unknown.
inline int64_t count_starts(const Plan& plan, const Footprint& footprint, const QuickDim& dim, int64_t size) {
  int64_t starts = 1;
  const auto& forms = plan.program().loops;
  for (int32_t i = plan.program().sites[footprint.site].loop; i >= 0; i = forms[size_t(i)].parent) {
    const bytecode::QuickLoop& loop = plan.loops[size_t(i)];
    const uint32_t last = loop.reg + (loop.kind == bytecode::AxisKind::TILES ? 3u : 1u);
    if (loop.trips.hi > size / starts || !depends_on(plan, dim.start, loop.reg, last)) continue;
    starts *= std::max<int64_t>(loop.trips.hi, 1);
  }
  return starts;
}

}  // namespace detail

/// The usual extent of an access in dimension `d`: the largest bound that is not (nearly) the whole
/// dimension, because larger ones are rare. If data decides the extents, it is the share of each iteration,
/// with some room for uneven ones.
inline int64_t typical_extent(const Plan& plan, const Space& space, size_t d) {
  constexpr int64_t kRoom = 4;
  const int64_t size = space.size[d];
  int64_t typical = 0;
  for (const Footprint& footprint : space.footprints) {
    const QuickDim& dim = footprint.dims[d];
    int64_t extent = d < footprint.num_row_dims ? 1 : dim.extent_form.range.hi;
    if (extent > size / 2 && !dim.extent_form.is_constant())
      extent = size / detail::count_starts(plan, footprint, dim, size) * kRoom;
    if (extent <= size / 2) typical = std::max({typical, extent, int64_t{1}});
  }
  return typical == 0 ? size : typical;
}

}  // namespace pto::wsp::graph
