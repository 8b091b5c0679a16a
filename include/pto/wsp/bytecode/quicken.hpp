// SPDX-License-Identifier: MIT
/// \file
/// The load step: turns a program and the bindings of one run into a plan.
///
/// Interval analysis decides here which regions are inside their tensors (`is_proven`). The others are
/// checked by an exact expansion before the run (regions.hpp), or in the run if they are late. Nothing is an
/// error here, because code that never runs may be wrong.
#pragma once

#include <utility>

#include "pto/wsp/bytecode/steps.hpp"
#include "pto/wsp/library.hpp"

namespace pto::wsp::bytecode {

namespace detail {

class Quickener {
 public:
  Quickener(Plan& plan, const KernelLibrary& library)
      : plan_(plan),
        program_(plan.program()),
        library_(library),
        registers_(program_.header.num_registers),
        evaluator_(plan.bindings, registers_, shapes_) {
    for (const TensorLayout& layout : plan_.layouts) shapes_.push_back(layout.shape);
  }

  void run() {
    plan_.loops.resize(program_.loops.size());
    find_variable_ranges();
    for (const Step& step : program_.steps) {
      if (step.kind == Step::kLoop) quicken_loop(step.index);
      if (step.kind == Step::kCond) quicken_cond(program_.conds[step.index]);
      if (step.kind == Step::kSet) quicken_set(program_.sets[step.index]);
      if (step.kind == Step::kFail) plan_.fails.push_back(quicken(program_.fails[step.index].value).value);
      if (step.kind == Step::kTask) quicken_site(program_.sites[step.index]);
    }
    for (const IoForm& io : program_.ios) {
      if (io.role != Role::in) distrust_parts(io);
    }
    lay_out_steps(plan_);
  }

 private:
  struct Quick {
    Value value;
    Abstract form;
    bool may_fail = false;
  };

  Quick quicken(uint32_t pc) {
    Quick quick;
    quick.form = evaluator_.evaluate(pc, quick.may_fail);
    quick.value = quick.may_fail ? postfix_value(pc) : to_value(quick.form, pc);
    return quick;
  }

  Value to_value(const Abstract& form, uint32_t postfix) {
    if (!form.affine) return postfix_value(postfix);
    const Value value{form.c0, uint32_t(plan_.terms.size()), uint32_t(form.terms.size())};
    plan_.terms.insert(plan_.terms.end(), form.terms.begin(), form.terms.end());
    return value;
  }

  Value postfix_value(uint32_t pc) {
    Value value;
    value.postfix = pc;
    if (program_.expression(pc).has_select) return value;
    value.quick = uint32_t(plan_.quick_code.size());
    add_quick_code(plan_.bindings, pc, plan_.quick_code);
    return value;
  }

  /// A variable is 0 or the value of some SET over variables of any value.
  void find_variable_ranges() {
    if (program_.sets.empty() && program_.moves.empty()) return;
    std::vector<Range> ranges(registers_.size(), Range{0, 0});
    find_token_ranges(ranges);
    for (uint32_t reg = 0; reg < registers_.size(); ++reg) {
      if (program_.is_variable[reg]) registers_[reg].range = {kI64Min, kI64Max};
    }
    for (const Step& step : program_.steps) {
      if (step.kind == Step::kLoop) quicken_loop(step.index);
      if (step.kind != Step::kSet) continue;
      const SetForm& set = program_.sets[step.index];
      bool may_fail = false;
      const Range value = evaluator_.evaluate(set.value, may_fail).range;
      Range& range = ranges[set.reg];
      range = {std::min(range.lo, value.lo), std::max(range.hi, value.hi)};
    }
    plan_.terms.clear();
    plan_.quick_code.clear();
    for (uint32_t reg = 0; reg < registers_.size(); ++reg) {
      if (program_.is_variable[reg]) registers_[reg].range = ranges[reg];
    }
  }

  /// What sends and receives make of registers; SETs make the scalars of a token that is sent.
  void find_token_ranges(std::vector<Range>& ranges) const {
    for (const MoveForm& move : program_.moves) {
      const TensorDescriptor& ring = program_.tensors[move.tensor];
      const auto widen = [&](uint32_t reg, Range to) {
        ranges[reg] = {std::min(ranges[reg].lo, to.lo), std::max(ranges[reg].hi, to.hi)};
      };
      widen(move.reg, {0, ring.dims[0] - 1});
      widen(move.reg + 1u, {0, kI64Max});
      for (uint32_t i = 0; i < ring.scalars && move.op != Op::SEND; ++i)
        widen(move.reg + 2u + i, {kI64Min, kI64Max});
    }
  }

  void quicken_cond(const CondForm& form) {
    const Quick quick = quicken(form.condition);
    plan_.conds.push_back({quick.value, quick.may_fail});
  }

  void quicken_set(const SetForm& form) {
    const Quick quick = quicken(form.value);
    plan_.sets.push_back({form.reg, form.is_flush, quick.may_fail, quick.value});
  }

  void quicken_loop(uint32_t index) {
    const LoopForm& form = program_.loops[index];
    const AxisDescriptor& axis = program_.axes[form.axis];
    QuickLoop& loop = plan_.loops[index];
    loop.kind = axis.kind;
    loop.reg = axis.reg;
    loop.depth = form.depth;
    loop.op = form.op;
    const Quick extent = quicken(axis.extent_expr);
    loop.extent = extent.value;
    loop.may_fail = extent.may_fail || extent.form.range.lo < 0;
    const Range range{std::max<int64_t>(extent.form.range.lo, 0), std::max<int64_t>(extent.form.range.hi, 0)};
    if (axis.kind == AxisKind::DENSE) {
      loop.trips = range;
      registers_[axis.reg] = {
          RegisterFacts::kIndex, {0, std::max<int64_t>(range.hi - 1, 0)}, axis.reg, 0, {0, 0}};
    } else {
      quicken_tiles(loop, axis, range);
    }
  }

  void quicken_tiles(QuickLoop& loop, const AxisDescriptor& axis, Range extent) {
    const Quick tile = quicken(axis.tile_expr);
    loop.tile = tile.value;
    loop.may_fail = loop.may_fail || tile.may_fail || tile.form.range.lo < 1;
    const Range sizes{std::max<int64_t>(tile.form.range.lo, 1), std::max<int64_t>(tile.form.range.hi, 1)};
    const auto count = [](int64_t n, int64_t t) { return n == 0 ? 0 : (n - 1) / t + 1; };
    loop.trips = {count(extent.lo, sizes.hi), count(extent.hi, sizes.lo)};
    const int64_t last = std::max<int64_t>(loop.trips.hi - 1, 0);
    const int64_t one_tile = sizes.is_constant() ? sizes.lo : 0;
    const int64_t start_hi = std::max<int64_t>(extent.hi - 1, 0);
    registers_[axis.reg] = {RegisterFacts::kIndex, {0, last}, axis.reg, 0, {0, 0}};
    registers_[axis.reg + 1] = {
        RegisterFacts::kStart, {0, one_tile != 0 ? last * one_tile : start_hi}, axis.reg, one_tile, {0, 0}};
    const Range length{shortest_tile(extent, sizes), std::max<int64_t>(std::min(sizes.hi, extent.hi), 1)};
    registers_[axis.reg + 2] = {
        RegisterFacts::kLength,
        length,
        axis.reg,
        one_tile,
        {std::max<int64_t>(std::min(sizes.lo, extent.lo), 1), std::max<int64_t>(extent.hi, 1)}};
  }

  static int64_t shortest_tile(Range extent, Range tile) {
    if (!extent.is_constant() || !tile.is_constant() || extent.lo == 0) return 1;
    const int64_t tail = extent.lo % tile.lo;
    return tail == 0 ? tile.lo : tail;
  }

  void quicken_site(const SiteForm& form) {
    QuickSite site{};
    site.kernel = &library_.kernels[form.kernel];
    site.fn = site.kernel->fn;
    site.pc = form.pc;
    site.first_io = uint32_t(plan_.ios.size());
    site.num_io = form.num_io;
    site.first_patch = uint32_t(plan_.patches.size());
    site.first_scalar = uint32_t(plan_.scalars.size());
    site.num_scalars = form.num_params;
    for (uint32_t i = 0; i < form.num_params; ++i)
      quicken_scalar(program_.params[form.first_param + i], site);
    for (uint32_t i = 0; i < form.num_io; ++i) quicken_io(program_.ios[form.first_io + i], i, site);
    site.num_patches = uint32_t(plan_.patches.size()) - site.first_patch;
    site.workspace = quicken_amount(form.workspace, site);
    site.cost = quicken_amount(form.cost, site);
    for (size_t i = 0; i < kNumMarks; ++i) site.marks[i] = quicken_amount(form.marks[i], site);
    site.is_plain = !site.has_written_rows && !site.workspace.is_given && site.kernel->block_dim == 1;
    collect_registers(site);
    plan_.max_scalars = std::max(plan_.max_scalars, site.num_scalars);
    plan_.max_scratch_bytes = std::max(plan_.max_scratch_bytes, site.kernel->scratch_bytes);
    plan_.sites.push_back(site);
  }

  QuickAmount quicken_amount(const AmountForm& form, QuickSite& site) {
    if (form.expression == kNoExpression) return {};
    const Quick quick = quicken(form.expression);
    const Range range = quick.form.range;
    const bool is_proven = !quick.may_fail && range.lo >= form.least && range.hi <= form.most;
    if (!is_proven) note_check(site, form.is_late);
    return {quick.value, true, is_proven, form.is_late};
  }

  void quicken_scalar(const ParamForm& form, QuickSite& site) {
    QuickScalar scalar{0, {}, true, false, form.is_late};
    if (form.op == Op::PARAM_CONST) scalar.bits = program_.constants[form.operand];
    if (form.op == Op::PARAM_SYMBOL) scalar.bits = plan_.bindings.symbols[form.operand];
    if (form.op == Op::PARAM_LOOPVAR || form.op == Op::PARAM_EXPR) {
      Quick quick;
      if (form.op == Op::PARAM_EXPR) {
        quick = quicken(form.operand);
      } else {
        quick.form = evaluator_.register_value(form.operand);
        quick.value = to_value(quick.form, kNoPostfix);
      }
      scalar.value = quick.value;
      scalar.is_fixed = quick.value.is_constant();
      scalar.bits = quick.value.c0;
      scalar.may_fail = quick.may_fail;
      if (quick.may_fail) note_check(site, form.is_late);
    }
    plan_.scalars.push_back(scalar);
  }

  void quicken_io(const IoForm& form, uint32_t view, QuickSite& site) {
    const TensorDescriptor& tensor = program_.tensors[form.tensor];
    const TensorLayout& layout = plan_.layouts[form.tensor];
    const ParamInfo& param = site.kernel->params[view];
    const int64_t bytes = dtype_bytes(tensor.dtype);
    QuickIo io{form.tensor, form.role, tensor.rank, 0, true, uint32_t(plan_.dims.size()), -1, form.is_late};
    const DimForm* dims = program_.dims.data() + form.first_dim;
    if (tensor.rank > 0 && dims[0].op == Op::DIM_ROWS) io.rows = quicken_rows(form, layout, site);
    View templ{nullptr, {1, 1, 1, 1}, {0, 0, 0, 0}, nullptr};
    Abstract offset = constant_value(0);
    plan_.patches.push_back({Patch::kSetData, 0, uint16_t(view), {}, 1});
    const size_t data_patch = plan_.patches.size() - 1;
    int64_t inner_extent = 0;
    for (int d = 0; d < tensor.rank; ++d) {
      const bool is_rows = dims[d].op == Op::DIM_ROWS;
      QuickDim dim = quicken_dim(dims[d], is_rows ? plan_.layouts[dims[d].tensor].shape[0] : layout.shape[d]);
      if (is_rows) {
        plan_.patches.push_back({Patch::kRows, 0, uint16_t(view), dim.start, 1});
      } else {
        add_offset(offset, dim, layout.stride[d] * bytes, view);
      }
      if (dim.op != Op::DIM_INDEX && dim.op != Op::DIM_MERGED) {
        set_extent(templ, dim, param, io.view_rank, view, io);
        inner_extent = dim.extent_form.range.hi;
        templ.stride[io.view_rank++] = is_rows ? plan_.rows[size_t(io.rows)].stride : layout.stride[d];
      }
      io.is_proven = io.is_proven && dim.is_proven;
      plan_.dims.push_back(std::move(dim));
    }
    plan_.patches[data_patch].value = to_value(offset, kNoPostfix);
    if (io.view_rank > 0) {
      const int inner = io.view_rank - 1;
      if (templ.stride[inner] != 1 && inner_extent > 1) io.is_proven = false;
    }
    if (!io.is_proven) note_check(site, io.is_late);
    plan_.ios.push_back(io);
    plan_.views.push_back(templ);
  }

  /// Finds the memory layout of the rows of a row set.
  int32_t quicken_rows(const IoForm& form, const TensorLayout& layout, QuickSite& site) {
    const DimForm* dims = program_.dims.data() + form.first_dim;
    const TensorDescriptor& indices = program_.tensors[dims[0].tensor];
    QuickRows rows{};
    rows.tensor = dims[0].tensor;
    rows.is_written = indices.written != 0;
    rows.is_distinct = indices.distinct != 0;
    while (rows.num_merged + 1 < program_.tensors[form.tensor].rank &&
           dims[rows.num_merged + 1].op == Op::DIM_MERGED)
      ++rows.num_merged;
    merge(rows, layout);
    site.has_written_rows = site.has_written_rows || rows.is_written;
    plan_.rows.push_back(rows);
    return int32_t(plan_.rows.size() - 1);
  }

  /// Indices that tasks write in parts are distinct at each time, but not between different times.
  void distrust_parts(const IoForm& form) {
    const auto first = program_.dims.begin() + form.first_dim;
    const auto is_whole = [](const DimForm& dim) { return dim.op == Op::DIM_FULL; };
    if (std::all_of(first, first + program_.tensors[form.tensor].rank, is_whole)) return;
    for (QuickRows& rows : plan_.rows) {
      if (rows.tensor == form.tensor) rows.is_distinct = false;
    }
  }

  /// Merges dimensions from the innermost one. Strides of dimensions with one element are ignored.
  static void merge(QuickRows& rows, const TensorLayout& layout) {
    rows.size = 1;
    rows.stride = layout.stride[rows.num_merged];
    int64_t span = -1;
    for (int d = rows.num_merged; d >= 0; --d) {
      if (__builtin_mul_overflow(rows.size, layout.shape[d], &rows.size)) rows.size = kI64Max;
      if (layout.shape[d] == 1) continue;
      if (span < 0) {
        rows.stride = layout.stride[d];
      } else if (layout.stride[d] != span) {
        rows.unmerged = int8_t(d);
      }
      span = int64_t(uint64_t(layout.shape[d]) * uint64_t(layout.stride[d]));
    }
    if (rows.size == 0) rows.unmerged = -1;
  }

  static void note_check(QuickSite& site, bool is_late) {
    (is_late ? site.checks_late : site.checks_early) = true;
  }

  QuickDim quicken_dim(const DimForm& form, int64_t size) {
    Quick start, extent;
    start.form = constant_value(0);
    extent.form = constant_value(form.op == Op::DIM_INDEX ? 1 : size);
    QuickDim dim{};
    dim.op = form.op;
    if (form.op == Op::DIM_TILE) {
      const uint16_t reg = program_.axes[form.axis].reg;
      start.form = evaluator_.register_value(reg + 1u);
      extent.form = evaluator_.register_value(reg + 2u);
      dim.tile = registers_[reg + 2u].tile;
      dim.tile_end = registers_[reg + 2u].end.hi;
    }
    start.value = to_value(start.form, kNoPostfix);
    extent.value = to_value(extent.form, kNoPostfix);
    const bool is_range = form.op == Op::DIM_RANGE || form.op == Op::DIM_ROWS;
    if (form.op == Op::DIM_INDEX || is_range) start = quicken(form.start);
    if (is_range) extent = quicken(form.extent);
    dim.may_fail = start.may_fail || extent.may_fail;
    // Indices are not checked here.
    dim.is_proven =
        !dim.may_fail && form.op != Op::DIM_ROWS && is_inside(form, start.form, extent.form, size);
    dim.start = start.value;
    dim.extent = extent.value;
    dim.start_form = std::move(start.form);
    dim.extent_form = std::move(extent.form);
    return dim;
  }

  bool is_inside(const DimForm& form, const Abstract& start, const Abstract& extent, int64_t size) const {
    if (form.op == Op::DIM_FULL || form.op == Op::DIM_MERGED) return true;
    if (form.op == Op::DIM_TILE) return registers_[program_.axes[form.axis].reg + 2u].end.hi <= size;
    bool may_fail = false;
    const Abstract end = evaluator_.sum(start, extent, may_fail);
    return !may_fail && start.range.lo >= 0 && extent.range.lo >= 0 && end.range.hi <= size;
  }

  /// Adds a dimension's start to the view's byte offset; a start that is not affine gets a patch of its own.
  void add_offset(Abstract& offset, const QuickDim& dim, int64_t stride_bytes, uint32_t view) {
    if (!dim.start.is_constant() && dim.start.postfix != kNoPostfix) {
      plan_.patches.push_back({Patch::kAddData, 0, uint16_t(view), dim.start, stride_bytes});
      return;
    }
    // A start that never runs may be far outside; wrapping keeps the arithmetic defined.
    const auto multiply = [stride_bytes](int64_t x) { return int64_t(uint64_t(x) * uint64_t(stride_bytes)); };
    offset.c0 = int64_t(uint64_t(offset.c0) + uint64_t(multiply(dim.start_form.c0)));
    for (const Term& term : dim.start_form.terms) offset.terms.push_back({multiply(term.coef), term.reg});
  }

  void set_extent(View& templ, const QuickDim& dim, const ParamInfo& param, uint8_t slot, uint32_t view,
                  QuickIo& io) {
    const Range extent = dim.extent_form.range;
    if (extent.lo < param.min_shape[slot] || extent.hi > param.max_shape[slot]) io.is_proven = false;
    if (dim.extent.is_constant()) {
      templ.shape[slot] = dim.extent.c0;
    } else {
      plan_.patches.push_back({Patch::kExtent, slot, uint16_t(view), dim.extent, 1});
    }
  }

  void collect_registers(QuickSite& site) {
    site.first_register = uint32_t(plan_.registers.size());
    for (uint32_t i = 0; i < site.num_patches; ++i) collect(plan_.patches[site.first_patch + i].value, site);
    for (uint32_t i = 0; i < site.num_scalars; ++i) {
      const QuickScalar& scalar = plan_.scalars[site.first_scalar + i];
      if (!scalar.is_fixed) collect(scalar.value, site);
    }
    collect(site.workspace.value, site);
    site.num_registers = uint32_t(plan_.registers.size()) - site.first_register;
  }

  void collect(const Value& value, const QuickSite& site) {
    for (uint32_t i = 0; i < value.num_terms; ++i) add_register(plan_.terms[value.first_term + i].reg, site);
    if (value.postfix == kNoPostfix) return;
    for (uint32_t pc = value.postfix; program_.instructions[pc].op != Op::EXPR_END; ++pc) {
      if (program_.instructions[pc].op == Op::EXPR_REG)
        add_register(program_.instructions[pc].operand2, site);
    }
  }

  void add_register(uint32_t reg, const QuickSite& site) {
    const auto first = plan_.registers.begin() + site.first_register;
    if (std::find(first, plan_.registers.end(), reg) == plan_.registers.end()) plan_.registers.push_back(reg);
  }

  Plan& plan_;
  const Program& program_;
  const KernelLibrary& library_;
  std::vector<RegisterFacts> registers_;
  std::vector<const int64_t*> shapes_;
  AbstractEvaluator evaluator_;
};

}  // namespace detail

/// Quickens `bindings.program` for tensors bound as `layouts`.
inline Plan make_plan(Bindings bindings, std::vector<TensorLayout> layouts, const KernelLibrary& library) {
  Plan plan{};
  plan.number = next_plan_number();
  plan.bindings = std::move(bindings);
  plan.layouts = std::move(layouts);
  detail::Quickener(plan, library).run();
  return plan;
}

}  // namespace pto::wsp::bytecode
