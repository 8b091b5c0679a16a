// SPDX-License-Identifier: MIT
/// \file
/// What only the run itself can tell: everything that depends on elements which tasks of the run write.
///
/// A register is late if a SET of it reads a tensor that tasks write, or a late register, or stands under
/// late control. A loop or condition is late if its extent, tile or condition reads a late register, or if it
/// stands under late control; so is a SET, a FAIL, and each argument of a task. What is not late is checked
/// before the first task runs, the rest when it is expanded.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/bytecode/program.hpp"

namespace pto::wsp::bytecode {

namespace detail {

class LateAnalysis {
 public:
  explicit LateAnalysis(Program& program)
      : program_(program), is_late_(program.header.num_registers, false) {}

  /// Registers only become late, so this ends.
  void run() {
    do {
      has_changed_ = false;
      under_late_.assign(1, false);
      for (Step& step : program_.steps) visit(step);
    } while (has_changed_);
  }

 private:
  void visit(Step& step) {
    step.is_late = under_late_.back();
    switch (step.kind) {
      case Step::kLoop: {
        const AxisDescriptor& axis = program_.axes[program_.loops[step.index].axis];
        step.is_late = step.is_late || reads_late(axis.extent_expr) ||
                       (axis.kind == AxisKind::TILES && reads_late(axis.tile_expr));
        return under_late_.push_back(step.is_late);
      }
      case Step::kCond:
        step.is_late = step.is_late || reads_late(program_.conds[step.index].condition);
        return under_late_.push_back(step.is_late);
      case Step::kEndLoop:
      case Step::kEndCond: return under_late_.pop_back();
      case Step::kSet: return visit_set(step, program_.sets[step.index]);
      case Step::kFail: step.is_late = step.is_late || reads_late(program_.fails[step.index].value); return;
      case Step::kTask: return visit_site(step.is_late, program_.sites[step.index]);
      case Step::kElse:
      case Step::kHalt: return;
    }
  }

  void visit_set(Step& step, const SetForm& set) {
    step.is_late = step.is_late || set.is_flush || reads_late(set.value);
    if (!step.is_late || is_late_[set.reg]) return;
    is_late_[set.reg] = true;
    has_changed_ = true;
  }

  void visit_site(bool is_under_late, SiteForm& site) {
    for (uint32_t i = 0; i < site.num_params; ++i) {
      ParamForm& param = program_.params[site.first_param + i];
      param.is_late = is_under_late || (param.op == Op::PARAM_LOOPVAR && is_late_[param.operand]) ||
                      (param.op == Op::PARAM_EXPR && reads_late(param.operand));
    }
    for (uint32_t i = 0; i < site.num_io; ++i) {
      IoForm& io = program_.ios[site.first_io + i];
      io.is_late = is_under_late;
      for (uint32_t d = 0; d < program_.tensors[io.tensor].rank; ++d) {
        for_expressions(program_.dims[io.first_dim + d],
                        [&](uint32_t expression) { io.is_late = io.is_late || reads_late(expression); });
      }
    }
    for (AmountForm* amount :
         {&site.workspace, &site.cost, &site.key, &site.priority, &site.stream, &site.pool}) {
      if (amount->expression == kNoExpression) continue;
      amount->is_late = is_under_late || reads_late(amount->expression);
    }
  }

  bool reads_late(uint32_t expression) const {
    const std::vector<uint32_t>& registers = program_.expression(expression).registers;
    return std::any_of(registers.begin(), registers.end(), [this](uint32_t reg) { return is_late_[reg]; });
  }

  Program& program_;
  std::vector<bool> is_late_;  ///< per register
  std::vector<bool> under_late_;
  bool has_changed_ = false;
};

}  // namespace detail

/// Notes in the steps and the arguments of tasks of a validated program which of them are late.
inline void mark_late(Program& program) { detail::LateAnalysis(program).run(); }

}  // namespace pto::wsp::bytecode
