// SPDX-License-Identifier: MIT
/// \file
/// Checks every region against its tensor and its kernel parameter before anything runs.
#pragma once

#include "pto/wsp/bytecode/expander.hpp"

namespace pto::wsp::bytecode {

namespace detail {

class RegionChecker {
 public:
  explicit RegionChecker(const Plan& plan) : plan_(plan), expander_(plan) {}

  template <class IsStopped>
  bool run(IsStopped is_stopped) {
    try {
      return check_all(is_stopped);
    } catch (EngineError& error) {
      if (error.has("registers")) throw;
      throw std::move(error).with("registers", registers());
    }
  }

 private:
  template <class IsStopped>
  bool check_all(IsStopped is_stopped) {
    for (Event event = expander_.next(); event.kind != Event::kEnd; event = expander_.next()) {
      if (is_stopped()) return false;
      if (event.kind == Event::kTask && !plan_.sites[event.index].is_proven)
        check_task(plan_.sites[event.index]);
    }
    return true;
  }

  void check_task(const QuickSite& site) const {
    for (uint32_t i = 0; i < site.num_scalars; ++i) {
      const QuickScalar& scalar = plan_.scalars[site.first_scalar + i];
      if (scalar.may_fail) plan_.evaluate(scalar.value, expander_.registers());
    }
    for (uint32_t i = 0; i < site.num_io; ++i) {
      const QuickIo& io = plan_.ios[site.first_io + i];
      if (!io.is_proven) check_io(site, io, i);
    }
  }

  void check_io(const QuickSite& site, const QuickIo& io, uint32_t index) const {
    const ParamInfo& param = site.kernel->params[index];
    int slot = 0;
    for (int d = 0; d < io.rank; ++d) {
      const QuickDim& dim = plan_.dims[io.first_dim + uint32_t(d)];
      const int64_t start = plan_.evaluate(dim.start, expander_.registers());
      const int64_t extent = plan_.evaluate(dim.extent, expander_.registers());
      const int64_t size = plan_.layouts[io.tensor].shape[d];
      if (start < 0 || extent < 0 || start > size || extent > size - start) {
        throw describe(EngineError("region-outside", "a task's region lies outside its tensor"), site, io,
                       index, d)
            .with_int("start", start)
            .with_int("extent", extent)
            .with_int("size", size);
      }
      if (dim.op == Op::DIM_INDEX) continue;
      if (extent < param.min_shape[slot] || extent > param.max_shape[slot]) {
        throw describe(EngineError("view-shape", "a task's view has an extent its kernel does not take"),
                       site, io, index, d)
            .with_int("extent", extent)
            .with_int("min", param.min_shape[slot])
            .with_int("max", param.max_shape[slot]);
      }
      const bool is_innermost = slot + 1 == io.view_rank;
      if (is_innermost && extent > 1 && plan_.layouts[io.tensor].stride[d] != 1) {
        throw describe(EngineError("inner-stride", "the innermost dimension of a view is not contiguous"),
                       site, io, index, d)
            .with_int("stride", plan_.layouts[io.tensor].stride[d]);
      }
      ++slot;
    }
  }

  EngineError describe(EngineError error, const QuickSite& site, const QuickIo& io, uint32_t index,
                       int dim) const {
    return std::move(error)
        .with_int("pc", site.pc)
        .with_int("task", int64_t(expander_.num_tasks()) - 1)
        .with_int("io", index)
        .with_int("tensor", io.tensor)
        .with_int("dim", dim)
        .with("registers", registers());
  }

  std::vector<int64_t> registers() const {
    return {expander_.registers(), expander_.registers() + expander_.num_registers()};
  }

  const Plan& plan_;
  Expander expander_;
};

}  // namespace detail

/// Throws `region-outside`, `view-shape` or an expression's error if any task would be wrong. False if
/// `is_stopped`, which is asked between tasks, put an end to it.
/// \complexity nothing if interval analysis proved the plan, else linear in the number of tasks
template <class IsStopped>
bool check_regions(const Plan& plan, IsStopped is_stopped) {
  return plan.is_proven || detail::RegionChecker(plan).run(is_stopped);
}

}  // namespace pto::wsp::bytecode
