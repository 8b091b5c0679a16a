// SPDX-License-Identifier: MIT
/// \file
/// Proves with the elements of index arrays that no two iterations of a loop conflict.
///
/// Rows of ragged and sparse axes follow each other, and rows that an array names may all differ: the bounds
/// of what each iteration touches are evaluated for the data of a run. Inside one row the elements are the
/// same for all iterations, so the step of the loop decides. Anything else is not proven.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/graph/footprint.hpp"
#include "pto/wsp/graph/loop_scope.hpp"

namespace pto::wsp::graph::detail {

class RowProof {
 public:
  RowProof(const Plan& plan, const LoopScope& scope, uint32_t loop)
      : plan_(plan), loop_(loop), scope_(scope), owners_(plan.program().header.num_registers, kOutside) {
    own(loop);
    for (const uint32_t inner : scope.inner()) own(inner);
    for (const bytecode::SetForm& set : plan.program().sets) {
      if (scope.holds(set.pc)) owners_[set.reg] = kSet;
    }
  }

  /// Whether some dimension separates what different iterations touch. \pre the footprints are in the loop
  bool is_apart(const Space& space, const std::vector<const Footprint*>& inside) {
    for (size_t d = 0; d < space.size.size(); ++d) {
      if (has_step(inside, d) || has_rows(inside, d)) return true;
    }
    return false;
  }

 private:
  using Op = bytecode::Op;
  static constexpr int32_t kOutside = -1, kSet = -2;
  static constexpr uint32_t kMaxBounds = 1 << 16;  ///< that are evaluated

  void own(uint32_t loop) {
    const bytecode::QuickLoop& quick = plan_.loops[loop];
    for (uint32_t i = 0; i < quick.num_registers(); ++i) owners_[quick.reg + i] = int32_t(loop);
  }

  /// Whether `check(reg)` holds for each register that a value reads.
  template <class Check>
  bool reads_only(const bytecode::Value& value, const Check& check) const {
    for (uint32_t i = 0; i < value.num_terms; ++i) {
      if (!check(plan_.terms[value.first_term + i].reg)) return false;
    }
    if (value.postfix == bytecode::kNoPostfix) return true;
    const auto& registers = plan_.program().expression(value.postfix).registers;
    return std::all_of(registers.begin(), registers.end(), check);
  }

  // The step

  /// A value as a sum: `step` times the index of the loop, and the rest, which is the same in all iterations.
  struct Sum {
    int64_t step = 0;
    std::optional<int64_t> constant{};  ///< the value, if it is one number
  };

  /// Whether all starts are one expression, and its step is at least each extent.
  bool has_step(const std::vector<const Footprint*>& inside, size_t d) const {
    const bytecode::Value& start = inside.front()->dims[d].start;
    const std::optional<Sum> sum =
        start.postfix == bytecode::kNoPostfix ? std::nullopt : sum_of(start.postfix);
    return sum && std::all_of(inside.begin(), inside.end(), [&](const Footprint* each) {
             const QuickDim& dim = each->dims[d];
             return is_same(dim.start.postfix, start.postfix) && dim.extent_form.range.hi <= sum->step;
           });
  }

  bool is_same(uint32_t a, uint32_t b) const {
    if (a == bytecode::kNoPostfix) return false;
    const auto& code = plan_.program().instructions;
    for (;; ++a, ++b) {
      if (code[a].op != code[b].op || code[a].operand1 != code[b].operand1 ||
          code[a].operand2 != code[b].operand2)
        return false;
      if (code[a].op == Op::EXPR_END) return true;
    }
  }

  /// The value of the code at `pc`, if it is such a sum.
  std::optional<Sum> sum_of(uint32_t pc) const {
    std::vector<Sum> stack;
    for (;; ++pc) {
      const bytecode::Instruction in = plan_.program().instructions[pc];
      size_t num_operands = 2;
      switch (in.op) {
        case Op::EXPR_END: return stack.back();
        case Op::EXPR_CONST: stack.push_back({0, plan_.program().constants[in.operand2]}); continue;
        case Op::EXPR_SYMBOL: stack.push_back({0, plan_.bindings.symbols[in.operand2]}); continue;
        case Op::EXPR_REG:
          if (const std::optional<Sum> sum = sum_of_register(in.operand2)) {
            stack.push_back(*sum);
            continue;
          }
          return {};
        case Op::EXPR_ELEMENT: num_operands = in.operand2; break;
        case Op::EXPR_SELECT: num_operands = 3; break;
        case Op::EXPR_NEG:
        case Op::EXPR_NOT:
        case Op::EXPR_INVERT:
        case Op::EXPR_BOOL:
        case Op::EXPR_U64:
        case Op::EXPR_F32: num_operands = 1; break;
        default: break;
      }
      const std::optional<Sum> sum = apply(in.op, stack.data() + stack.size() - num_operands, num_operands);
      if (!sum) return {};
      stack.resize(stack.size() - num_operands);
      stack.push_back(*sum);
    }
  }

  std::optional<Sum> sum_of_register(uint32_t reg) const {
    if (owners_[reg] == kOutside) return Sum{};
    if (owners_[reg] != int32_t(loop_)) return {};
    const bytecode::QuickLoop& loop = plan_.loops[loop_];
    if (reg == loop.reg) return Sum{1, {}};
    const bool has_tile = reg == loop.reg + 1u && loop.tile.is_constant();
    return has_tile ? std::optional<Sum>(Sum{loop.tile.c0, {}}) : std::nullopt;
  }

  static std::optional<Sum> apply(Op op, const Sum* operands, size_t count) {
    constexpr int64_t kMost = int64_t{1} << 40;
    const Sum &a = operands[0], &b = operands[count - 1];
    const bool is_fixed =
        std::all_of(operands, operands + count, [](const Sum& sum) { return sum.step == 0; });
    Sum result;
    switch (op) {
      case Op::EXPR_ADD: result.step = a.step + b.step; break;
      case Op::EXPR_SUB: result.step = a.step - b.step; break;
      case Op::EXPR_MUL: {
        const Sum &sum = b.constant ? a : b, &factor = b.constant ? b : a;
        if (!is_fixed && (!factor.constant || *factor.constant > kMost || *factor.constant < -kMost))
          return {};
        if (!is_fixed && __builtin_mul_overflow(sum.step, *factor.constant, &result.step)) return {};
        break;
      }
      case Op::EXPR_WITHIN: result.step = a.step; break;
      default:
        if (!is_fixed) return {};
    }
    if (result.step > kMost || result.step < -kMost) return {};
    return result;
  }

  // Rows

  using Row = std::pair<int64_t, int64_t>;

  /// Whether each iteration has bounds of its own, of all footprints together.
  bool has_rows(const std::vector<const Footprint*>& inside, size_t d) {
    const bytecode::QuickLoop& loop = plan_.loops[loop_];
    const auto is_inside = [&](uint32_t reg) { return owners_[reg] >= 0; };
    const auto is_fixed = [](uint32_t) { return false; };
    if (!reads_only(loop.extent, is_fixed) || !reads_only(loop.tile, is_fixed)) return false;
    std::vector<std::vector<uint32_t>> loops;
    for (const Footprint* each : inside) {
      const QuickDim& dim = each->dims[d];
      if (!reads_only(dim.start, is_inside) || !reads_only(dim.extent, is_inside)) return false;
      loops.push_back(loops_of(each->site, dim));
    }
    registers_.assign(owners_.size(), 0);
    num_bounds_ = 0;
    std::vector<Row> rows;
    try {
      const int64_t trips = trips_of(loop_);
      for (int64_t i = 0; i < trips; ++i) {
        Row row{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
        enter(loop_, i);
        for (size_t k = 0; k < inside.size(); ++k) {
          if (!widen(inside[k]->dims[d], loops[k], 0, row)) return false;
        }
        if (row.first < row.second) rows.push_back(row);
      }
    } catch (EngineError&) {  // a task that the run does not have
      return false;
    }
    std::sort(rows.begin(), rows.end());
    const auto overlap = [](const Row& a, const Row& b) { return b.first < a.second; };
    return std::adjacent_find(rows.begin(), rows.end(), overlap) == rows.end();
  }

  /// The loops inside, outermost first, on which a dimension of an access depends.
  std::vector<uint32_t> loops_of(uint32_t site, const QuickDim& dim) const {
    std::vector<uint32_t> found;
    const auto depends = [&](const bytecode::Value& value, uint32_t loop) {
      return !reads_only(value, [&](uint32_t reg) { return owners_[reg] != int32_t(loop); });
    };
    for (int32_t up = plan_.program().sites[site].loop; up != int32_t(loop_);
         up = plan_.program().loops[size_t(up)].parent) {
      const auto loop = uint32_t(up);
      const bool is_read =
          depends(dim.start, loop) || depends(dim.extent, loop) ||
          std::any_of(found.begin(), found.end(), [&](uint32_t inner) {
            return depends(plan_.loops[inner].extent, loop) || depends(plan_.loops[inner].tile, loop);
          });
      if (is_read) found.push_back(loop);
    }
    std::reverse(found.begin(), found.end());
    return found;
  }

  int64_t trips_of(uint32_t loop) const {
    const bytecode::QuickLoop& quick = plan_.loops[loop];
    const int64_t extent = evaluate(quick.extent);
    if (quick.kind != bytecode::AxisKind::TILES || extent <= 0) return extent;
    return (extent - 1) / std::max<int64_t>(evaluate(quick.tile), 1) + 1;
  }

  void enter(uint32_t loop, int64_t index) {
    const bytecode::QuickLoop& quick = plan_.loops[loop];
    registers_[quick.reg] = index;
    if (quick.kind != bytecode::AxisKind::TILES) return;
    const int64_t tile = evaluate(quick.tile);
    registers_[quick.reg + 1u] = index * tile;
    registers_[quick.reg + 2u] = std::min(tile, evaluate(quick.extent) - index * tile);
  }

  int64_t evaluate(const bytecode::Value& value) const { return plan_.evaluate(value, registers_.data()); }

  /// Widens a row to the bounds of an access in all iterations of loops from number `k` on. False if these
  /// are too many, or depend on something else.
  bool widen(const QuickDim& dim, const std::vector<uint32_t>& loops, size_t k, Row& row) {
    if (k == loops.size()) {
      const int64_t start = evaluate(dim.start), extent = evaluate(dim.extent);
      if (extent > 0) row = {std::min(row.first, start), std::max(row.second, start + extent)};
      return ++num_bounds_ <= kMaxBounds;
    }
    const bytecode::QuickLoop& loop = plan_.loops[loops[k]];
    const auto is_inside = [&](uint32_t reg) { return owners_[reg] >= 0; };
    if (!reads_only(loop.extent, is_inside) || !reads_only(loop.tile, is_inside)) return false;
    const int64_t trips = trips_of(loops[k]);
    for (int64_t i = 0; i < trips; ++i) {
      enter(loops[k], i);
      if (!widen(dim, loops, k + 1, row)) return false;
    }
    return true;
  }

  const Plan& plan_;
  const uint32_t loop_;
  const LoopScope& scope_;
  std::vector<int32_t> owners_;  ///< per register, the loop of the proof that sets it
  std::vector<int64_t> registers_;
  uint32_t num_bounds_ = 0;
};

}  // namespace pto::wsp::graph::detail
