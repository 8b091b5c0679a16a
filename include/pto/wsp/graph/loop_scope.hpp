// SPDX-License-Identifier: MIT
/// \file
/// One loop of a plan: its contents, and how registers vary in it.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::graph {

using bytecode::Plan;

class LoopScope {
 public:
  /// The kind of value of a register while the loop runs.
  enum class Kind : uint8_t {
    kFixed,    ///< one value in all iterations
    kIndex,    ///< the number of the iteration
    kOwn,      ///< another register of the loop itself
    kInner,    ///< the number of the iteration of a loop inside
    kUnknown,  ///< anything
  };

  LoopScope(const Plan& plan, uint32_t loop)
      : plan_(plan),
        form_(plan.program().loops[loop]),
        kinds_(plan.program().header.num_registers, Kind::kFixed) {
    const bytecode::Program& program = plan.program();
    for (uint32_t i = 0; i < program.loops.size(); ++i) {
      if (holds(program.loops[i].begin_pc)) add_loop(i);
    }
    for (const bytecode::SetForm& set : program.sets) {
      if (holds(set.pc)) kinds_[set.reg] = Kind::kUnknown;
    }
    set_loop(loop, Kind::kIndex, Kind::kOwn);
  }

  /// Whether the instruction at `pc` is inside the loop.
  bool holds(uint32_t pc) const { return pc > form_.begin_pc && pc < form_.end_pc; }

  Kind kind(uint32_t reg) const { return kinds_[reg]; }
  /// The loops inside, each after the one around it.
  const std::vector<uint32_t>& inner() const { return inner_; }

  /// Whether a value does not depend on the loops inside.
  bool is_outer(const bytecode::Value& value) const {
    for (uint32_t i = 0; i < value.num_terms; ++i) {
      if (varies_inside(plan_.terms[value.first_term + i].reg)) return false;
    }
    if (value.postfix == bytecode::kNoPostfix) return true;
    const auto& registers = plan_.program().expression(value.postfix).registers;
    return std::none_of(registers.begin(), registers.end(),
                        [this](uint32_t reg) { return varies_inside(reg); });
  }

 private:
  bool varies_inside(uint32_t reg) const {
    return kinds_[reg] == Kind::kInner || kinds_[reg] == Kind::kUnknown;
  }

  void add_loop(uint32_t loop) {
    inner_.push_back(loop);
    set_loop(loop, Kind::kInner, Kind::kUnknown);
  }

  void set_loop(uint32_t loop, Kind index, Kind others) {
    const bytecode::QuickLoop& quick = plan_.loops[loop];
    const uint32_t count = quick.kind == bytecode::AxisKind::TILES ? 3 : 1;
    for (uint32_t i = 0; i < count; ++i) kinds_[quick.reg + i] = i == 0 ? index : others;
  }

  const Plan& plan_;
  const bytecode::LoopForm& form_;
  std::vector<Kind> kinds_;
  std::vector<uint32_t> inner_;
};

}  // namespace pto::wsp::graph
