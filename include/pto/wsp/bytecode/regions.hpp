// SPDX-License-Identifier: MIT
/// \file
/// Checks the regions of tasks against tensors and kernel parameters, and all other arguments.
#pragma once

#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/bytecode/rows.hpp"

namespace pto::wsp::bytecode {

/// Checks one task at a time, for the current values of the registers.
class TaskChecker {
 public:
  explicit TaskChecker(const Plan& plan) : plan_(plan) {}

  /// Throws `region-outside`, `view-shape`, `inner-stride`, `rows-outside`, `rows-repeat`, `rows-stride`,
  /// `negative-workspace`, `negative-cost`, `key-outside` or an expression's error if an argument of a task
  /// is wrong. It checks late arguments (see late.hpp) if `late`, else the others. The worker checks indices
  /// that tasks write, because they are not known yet.
  void check(const QuickSite& site, const int64_t* registers, bool late) {
    try {
      check_arguments(site, registers, late);
    } catch (EngineError& error) {
      throw std::move(error).with(
          "registers", std::vector<int64_t>(registers, registers + plan_.program().header.num_registers));
    }
  }

 private:
  void check_arguments(const QuickSite& site, const int64_t* registers, bool late) {
    for (uint32_t i = 0; i < site.num_scalars; ++i) {
      const QuickScalar& scalar = plan_.scalars[site.first_scalar + i];
      if (scalar.may_fail && scalar.is_late == late) plan_.evaluate(scalar.value, registers);
    }
    for (uint32_t i = 0; i < site.num_io; ++i) {
      const QuickIo& io = plan_.ios[site.first_io + i];
      if (!io.is_proven && io.is_late == late) check_io(site, i, registers);
    }
    check_amounts(site, registers, late);
  }

  void check_amounts(const QuickSite& site, const int64_t* registers, bool late) const {
    const SiteForm& form = plan_.program().sites[size_t(&site - plan_.sites.data())];
    const auto check = [&](const QuickAmount& amount, const AmountForm& allowed, const char* code,
                           const char* message) {
      if (amount.is_proven || amount.is_late != late) return;
      const int64_t value = plan_.evaluate(amount.value, registers);
      if (value >= allowed.least && value <= allowed.most) return;
      throw EngineError(code, message)
          .with_int("pc", site.pc)
          .with_int("value", value)
          .with_int("most", allowed.most);
    };
    check(site.workspace, form.workspace, "negative-workspace", "a task's workspace is negative");
    check(site.cost, form.cost, "negative-cost", "a task's cost is negative");
    for (size_t i = 0; i < kNumMarks; ++i)
      check(site.marks[i], form.marks[i], "key-outside", "a task's key is the number of no dispatcher");
  }

  void check_io(const QuickSite& site, uint32_t index, const int64_t* registers) {
    const QuickIo& io = plan_.ios[site.first_io + index];
    try {
      int slot = 0;
      for (int d = 0; d < io.rank; ++d) {
        const QuickDim& dim = plan_.dims[io.first_dim + uint32_t(d)];
        if (dim.op == Op::DIM_MERGED) continue;
        const int64_t start = plan_.evaluate(dim.start, registers);
        const int64_t extent = plan_.evaluate(dim.extent, registers);
        const QuickRows* rows = dim.op == Op::DIM_ROWS ? &plan_.rows[size_t(io.rows)] : nullptr;
        check_inside(rows != nullptr ? rows->tensor : io.tensor, d, start, extent);
        if (dim.op == Op::DIM_INDEX) continue;
        const int64_t stride = rows != nullptr ? rows->stride : plan_.layouts[io.tensor].stride[d];
        check_view(io, d, site.kernel->params[index], slot++, extent, stride);
        if (rows != nullptr && extent > 0) check_rows(*rows, io, start, extent);
      }
    } catch (EngineError& error) {
      if (error.has("pc")) throw;  // an expression's
      throw std::move(error).with_int("pc", site.pc).with_int("io", index);
    }
  }

  void check_inside(uint16_t tensor, int dim, int64_t start, int64_t extent) const {
    const int64_t size = plan_.layouts[tensor].shape[dim];
    if (start >= 0 && extent >= 0 && start <= size && extent <= size - start) return;
    throw place("region-outside", "a task's region lies outside its tensor", tensor, dim)
        .with_int("start", start)
        .with_int("extent", extent)
        .with_int("size", size);
  }

  static void check_view(const QuickIo& io, int dim, const ParamInfo& param, int slot, int64_t extent,
                         int64_t stride) {
    if (extent < param.min_shape[slot] || extent > param.max_shape[slot]) {
      throw place("view-shape", "a task's view has an extent its kernel does not take", io.tensor, dim)
          .with_int("extent", extent)
          .with_int("min", param.min_shape[slot])
          .with_int("max", param.max_shape[slot]);
    }
    if (slot + 1 == io.view_rank && extent > 1 && stride != 1) {
      throw place("inner-stride", "the innermost dimension of a view is not contiguous", io.tensor, dim)
          .with_int("stride", stride);
    }
  }

  void check_rows(const QuickRows& rows, const QuickIo& io, int64_t start, int64_t extent) {
    if (rows.unmerged >= 0) fail_stride(io.tensor, rows.unmerged);
    const TensorLayout& layout = plan_.layouts[rows.tensor];
    if (extent > 1 && layout.stride[0] != 1) fail_stride(rows.tensor, 0);
    if (rows.is_written) return;
    const auto* indices = reinterpret_cast<const int32_t*>(plan_.bindings.elements[rows.tensor].base);
    row_checker_.check(rows, io, indices + start, start, extent);
  }

  [[noreturn]] void fail_stride(uint16_t tensor, int dim) const {
    throw place("rows-stride", "the rows of a row set, or its indices, are not evenly apart", tensor, dim)
        .with_int("stride", plan_.layouts[tensor].stride[dim]);
  }

  static EngineError place(const char* code, const char* message, uint16_t tensor, int dim) {
    return EngineError(code, message).with_int("tensor", tensor).with_int("dim", dim);
  }

  const Plan& plan_;
  RowChecker row_checker_;
};

namespace detail {

template <class IsStopped>
bool check_all(const Plan& plan, Expander& expander, IsStopped is_stopped) {
  TaskChecker checker(plan);
  for (Event event = expander.next(); event.kind != Event::kEnd; event = expander.next()) {
    if (is_stopped()) return false;
    if (event.kind == Event::kTask) checker.check(plan.sites[event.index], expander.registers(), false);
  }
  return true;
}

}  // namespace detail

/// Checks the parts that are not late. Throws the errors of TaskChecker::check, of a loop, a condition, a
/// variable or a FAIL. Returns false if `is_stopped`, called between tasks, stopped it.
/// \complexity linear in the number of steps that interval analysis left to check
template <class IsStopped>
bool check_regions(const Plan& plan, IsStopped is_stopped) {
  Expander expander(plan, plan.check_steps);
  try {
    return detail::check_all(plan, expander, is_stopped);
  } catch (EngineError& error) {
    if (error.has("registers")) throw;
    throw std::move(error).with("registers", expander.copy_registers());
  }
}

}  // namespace pto::wsp::bytecode
