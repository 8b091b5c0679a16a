// SPDX-License-Identifier: MIT
/// \file
/// Lays out the steps of a plan: those of a run, and the fewer ones that are walked to check it before.
#pragma once

#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bytecode {

namespace detail {

/// Finds the steps of a check: what is not late and could be an error, the control around it, and the
/// variables that these read.
class CheckSelector {
 public:
  explicit CheckSelector(const Plan& plan)
      : plan_(plan),
        program_(plan.program()),
        keeps_(program_.steps.size(), false),
        needs_(program_.header.num_registers, false) {}

  std::vector<bool> run() {
    do {
      has_changed_ = false;
      for (size_t i = 0; i < program_.steps.size(); ++i) visit(i);
    } while (has_changed_);
    return std::move(keeps_);
  }

 private:
  void visit(size_t i) {
    const Step& step = program_.steps[i];
    if (step.kind == Step::kLoop || step.kind == Step::kCond) open_.push_back(i);
    if (!step.is_late && is_wanted(step)) {
      for (size_t around : open_) keep(around);
      keep(i);
    }
    if (step.kind == Step::kElse) keeps_[i] = keeps_[open_.back()];
    if (step.kind == Step::kEndLoop || step.kind == Step::kEndCond) {
      keeps_[i] = keeps_[open_.back()];
      open_.pop_back();
    }
  }

  bool is_wanted(const Step& step) const {
    switch (step.kind) {
      case Step::kLoop: return plan_.loops[step.index].may_fail;
      case Step::kCond: return plan_.conds[step.index].may_fail;
      case Step::kSet: return plan_.sets[step.index].may_fail || needs_[plan_.sets[step.index].reg];
      case Step::kTask: return plan_.sites[step.index].checks_early;
      case Step::kFail:
      case Step::kHalt: return true;
      default: return false;
    }
  }

  void keep(size_t i) {
    if (keeps_[i]) return;
    keeps_[i] = has_changed_ = true;
    need_registers(program_.steps[i]);
  }

  void need_registers(const Step& step) {
    const auto need = [this](uint32_t expression) {
      for (uint32_t reg : program_.expression(expression).registers) needs_[reg] = true;
    };
    switch (step.kind) {
      case Step::kLoop: {
        const AxisDescriptor& axis = program_.axes[program_.loops[step.index].axis];
        need(axis.extent_expr);
        if (axis.kind == AxisKind::TILES) need(axis.tile_expr);
        return;
      }
      case Step::kCond: return need(program_.conds[step.index].condition);
      case Step::kSet: return need(program_.sets[step.index].value);
      case Step::kFail: return need(program_.fails[step.index].value);
      case Step::kTask: return for_expressions(program_, program_.sites[step.index], need);
      default: return;
    }
  }

  const Plan& plan_;
  const Program& program_;
  std::vector<bool> keeps_;
  std::vector<bool> needs_;
  std::vector<size_t> open_;
  bool has_changed_ = false;
};

/// The steps that are kept, with their targets. A block is kept as a whole or not at all.
inline std::vector<QuickStep> lay_out(const Program& program, const std::vector<bool>& keeps) {
  std::vector<QuickStep> out;
  std::vector<uint32_t> open;  // of each open block, the step whose target is not known yet
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (!keeps[i]) continue;
    const Step& step = program.steps[i];
    const auto here = uint32_t(out.size());
    if (step.kind != Step::kEndCond) out.push_back({step.kind, LoopEvents::kNone, step.index, 0});
    switch (step.kind) {
      case Step::kLoop:
      case Step::kCond: open.push_back(here); break;
      case Step::kElse:
        out[open.back()].target = here + 1;
        open.back() = here;
        break;
      case Step::kEndLoop:
        out[here].target = open.back() + 1;
        out[open.back()].target = here + 1;
        open.pop_back();
        break;
      case Step::kEndCond:
        out[open.back()].target = here;
        open.pop_back();
        break;
      default: break;
    }
  }
  return out;
}

}  // namespace detail

/// Fills in `steps` and `check_steps` of a plan that is complete otherwise.
inline void lay_out_steps(Plan& plan) {
  const Program& program = plan.program();
  plan.steps = detail::lay_out(program, std::vector<bool>(program.steps.size(), true));
  plan.check_steps = detail::lay_out(program, detail::CheckSelector(plan).run());
}

}  // namespace pto::wsp::bytecode
