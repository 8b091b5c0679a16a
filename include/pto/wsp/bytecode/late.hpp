// SPDX-License-Identifier: MIT
/// \file
/// Finds the *late* parts of a program, which depend on elements that tasks of the same run write.
///
/// A register is late if a SET of it reads a tensor that tasks write, or a late register, or is under late
/// control. A loop or condition is late if its extent, tile or condition reads a late register, or if it is
/// under late control. The same holds for a SET, a FAIL, and each argument of a task. Parts that are not late
/// are checked before the first task runs. Late parts are checked when they are expanded.
#pragma once

#include <vector>

#include "pto/wsp/bytecode/program.hpp"

namespace pto::wsp::bytecode {

namespace detail {

class LateAnalysis {
 public:
  explicit LateAnalysis(Program& program)
      : program_(program),
        steps_(program.steps),
        ends_(steps_.size(), 0),
        late_registers_(program.header.num_registers, false),
        late_expressions_(program.expressions.size(), false),
        readers_(program.header.num_registers),
        users_(program.expressions.size()) {}

  /// A step, a register and an expression each become late at most once, so the time is linear.
  void run() {
    find_dependences();
    for (size_t i = 0; i < steps_.size(); ++i) {
      const bool is_flush = steps_[i].kind == Step::kSet && program_.sets[steps_[i].index].is_flush;
      const bool is_of_network = program_.is_network() && steps_[i].kind != Step::kHalt;
      if (is_flush || is_of_network) mark(i);
    }
    while (!pending_.empty()) {
      const uint32_t reg = pending_.back();
      pending_.pop_back();
      for (const uint32_t expression : readers_[reg]) mark_expression(expression);
    }
    for (const Step& step : steps_) {
      if (step.kind == Step::kTask) mark_arguments(step.is_late, program_.sites[step.index]);
    }
  }

 private:
  /// Notes which expressions read each register, which steps use each expression, and where blocks end.
  void find_dependences() {
    for (uint32_t i = 0; i < program_.expressions.size(); ++i) {
      for (const uint32_t reg : program_.expressions[i].registers) readers_[reg].push_back(i);
    }
    std::vector<size_t> open;
    for (size_t i = 0; i < steps_.size(); ++i) {
      for_expressions(program_, steps_[i], [&](uint32_t pc) { users_[index_of(pc)].push_back(i); });
      if (opens_block(steps_[i])) open.push_back(i);
      if (steps_[i].kind != Step::kEndLoop && steps_[i].kind != Step::kEndCond) continue;
      ends_[open.back()] = i;
      open.pop_back();
    }
  }

  static bool opens_block(const Step& step) { return step.kind == Step::kLoop || step.kind == Step::kCond; }
  size_t index_of(uint32_t pc) const { return size_t(program_.expression_at[pc]); }

  void mark_expression(uint32_t expression) {
    if (late_expressions_[expression]) return;
    late_expressions_[expression] = true;
    for (const size_t step : users_[expression]) mark(step);
  }

  /// Marks a step and, if it opens a block, what is inside. A block that is late already is skipped.
  void mark(size_t i) {
    if (steps_[i].is_late) return;
    steps_[i].is_late = true;
    if (steps_[i].kind == Step::kSet) mark_register(program_.sets[steps_[i].index].reg);
    if (!opens_block(steps_[i])) return;
    for (size_t inner = i + 1; inner <= ends_[i]; ++inner) {
      mark(inner);
      if (opens_block(steps_[inner])) inner = ends_[inner];
    }
  }

  void mark_register(uint32_t reg) {
    if (late_registers_[reg]) return;
    late_registers_[reg] = true;
    pending_.push_back(reg);
  }

  void mark_arguments(bool is_under_late, SiteForm& site) {
    const auto is_late = [&](uint32_t pc) { return is_under_late || late_expressions_[index_of(pc)]; };
    for (uint32_t i = 0; i < site.num_params; ++i) {
      ParamForm& param = program_.params[site.first_param + i];
      param.is_late = is_under_late || (param.op == Op::PARAM_LOOPVAR && late_registers_[param.operand]) ||
                      (param.op == Op::PARAM_EXPR && is_late(param.operand));
    }
    for (uint32_t i = 0; i < site.num_io; ++i) {
      IoForm& io = program_.ios[site.first_io + i];
      io.is_late = is_under_late;
      for (uint32_t d = 0; d < program_.tensors[io.tensor].rank; ++d) {
        for_expressions(program_.dims[io.first_dim + d],
                        [&](uint32_t pc) { io.is_late = io.is_late || is_late(pc); });
      }
    }
    const auto mark_amount = [&](AmountForm& amount) {
      if (amount.expression != kNoExpression) amount.is_late = is_late(amount.expression);
    };
    mark_amount(site.workspace);
    mark_amount(site.cost);
    for (AmountForm& mark : site.marks) mark_amount(mark);
  }

  Program& program_;
  std::vector<Step>& steps_;
  std::vector<size_t> ends_;  ///< per step that opens a block: the step that ends it
  std::vector<bool> late_registers_;
  std::vector<bool> late_expressions_;
  std::vector<std::vector<uint32_t>> readers_;  ///< per register: expressions that read it
  std::vector<std::vector<size_t>> users_;      ///< per expression: steps that it decides
  std::vector<uint32_t> pending_;               ///< late registers whose readers are not marked yet
};

}  // namespace detail

/// Notes in the steps and the arguments of tasks of a validated program which of them are late.
inline void mark_late(Program& program) { detail::LateAnalysis(program).run(); }

}  // namespace pto::wsp::bytecode
