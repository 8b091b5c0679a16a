// SPDX-License-Identifier: MIT
/// \file
/// Lays out the steps of a plan: those of a run, and the subset that checks it before the run.
#pragma once

#include <utility>
#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bytecode {

namespace detail {

/// Finds the steps of a check: parts that are not late and may fail, the control around them, and the
/// variables that they read.
class CheckSelector {
 public:
  explicit CheckSelector(const Plan& plan)
      : plan_(plan),
        program_(plan.program()),
        blocks_(program_.steps.size(), kNoBlock),
        sets_of_(program_.header.num_registers),
        keeps_(program_.steps.size(), false),
        is_needed_(program_.expressions.size(), false) {}

  /// A step is kept and a register is needed at most once, so the time is linear.
  std::vector<bool> run() {
    find_blocks();
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      if (!program_.steps[i].is_late && can_fail(program_.steps[i])) keep(i);
    }
    while (!pending_.empty()) {
      const uint32_t reg = pending_.back();
      pending_.pop_back();
      for (const size_t set : std::exchange(sets_of_[reg], {})) keep(set);
    }
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step::Kind kind = program_.steps[i].kind;
      if (kind == Step::kElse || kind == Step::kEndLoop || kind == Step::kEndCond)
        keeps_[i] = keeps_[blocks_[i]];
    }
    return std::move(keeps_);
  }

 private:
  static constexpr size_t kNoBlock = SIZE_MAX;

  /// Notes the block around each step. A step that ends or divides a block belongs to that block.
  void find_blocks() {
    size_t block = kNoBlock;
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      blocks_[i] = block;
      if (step.kind == Step::kLoop || step.kind == Step::kCond) block = i;
      if (step.kind == Step::kEndLoop || step.kind == Step::kEndCond) block = blocks_[block];
      if (step.kind == Step::kSet && !step.is_late) sets_of_[plan_.sets[step.index].reg].push_back(i);
    }
  }

  bool can_fail(const Step& step) const {
    switch (step.kind) {
      case Step::kLoop: return plan_.loops[step.index].may_fail;
      case Step::kCond: return plan_.conds[step.index].may_fail;
      case Step::kSet: return plan_.sets[step.index].may_fail;
      case Step::kTask: return plan_.sites[step.index].checks_early;
      case Step::kFail:
      case Step::kHalt: return true;
      default: return false;
    }
  }

  /// Keeps a step and the blocks around it.
  void keep(size_t i) {
    for (; i != kNoBlock && !keeps_[i]; i = blocks_[i]) {
      keeps_[i] = true;
      const Step& step = program_.steps[i];
      const auto need = [this](uint32_t expression) { need_registers(expression); };
      for_expressions(program_, step, need);
      if (step.kind == Step::kTask) for_expressions(program_, program_.sites[step.index], need);
    }
  }

  void need_registers(uint32_t expression) {
    const auto index = size_t(program_.expression_at[expression]);
    if (is_needed_[index]) return;
    is_needed_[index] = true;
    const std::vector<uint32_t>& registers = program_.expressions[index].registers;
    pending_.insert(pending_.end(), registers.begin(), registers.end());
  }

  const Plan& plan_;
  const Program& program_;
  std::vector<size_t> blocks_;                ///< per step
  std::vector<std::vector<size_t>> sets_of_;  ///< per register: steps that set it and are not late
  std::vector<bool> keeps_;
  std::vector<bool> is_needed_;    ///< per expression
  std::vector<uint32_t> pending_;  ///< registers whose SETs are to be kept
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
