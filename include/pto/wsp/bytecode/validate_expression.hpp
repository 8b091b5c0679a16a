// SPDX-License-Identifier: MIT
/// \file
/// Validation of the expressions that follow HALT.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/bytecode/program.hpp"

namespace pto::wsp::bytecode {

/// How many operands `op` takes from the stack, or -1 if it is no operator on operands.
constexpr int operand_count(Op op) {
  switch (op) {
    case Op::EXPR_NEG:
    case Op::EXPR_NOT: return 1;
    case Op::EXPR_ADD:
    case Op::EXPR_SUB:
    case Op::EXPR_MUL:
    case Op::EXPR_FLOORDIV:
    case Op::EXPR_MOD:
    case Op::EXPR_MIN:
    case Op::EXPR_MAX:
    case Op::EXPR_LT:
    case Op::EXPR_LE:
    case Op::EXPR_EQ:
    case Op::EXPR_NE:
    case Op::EXPR_AND:
    case Op::EXPR_OR: return 2;
    case Op::EXPR_SELECT: return 3;
    default: return -1;
  }
}

/// True if a symbol of this dtype may be read as an i64 by an expression.
constexpr bool is_integer(DType dtype) { return dtype >= DType::i8 && dtype <= DType::b1; }

/// The expressions of a program: where each starts and which registers it reads.
class ExpressionTable {
 public:
  /// Checks everything from `first` to the end of the program.
  void build(Program& program, uint32_t first) {
    program.decides.assign(program.tensors.size(), false);
    index_.assign(program.instructions.size(), -1);
    for (uint32_t pc = first; pc < program.instructions.size();) pc = check_one(program, pc);
  }

  bool starts_at(uint64_t pc) const { return pc < index_.size() && index_[pc] >= 0; }
  const std::vector<uint32_t>& registers(uint32_t pc) const { return registers_[size_t(index_[pc])]; }

 private:
  uint32_t check_one(Program& program, uint32_t start) {
    std::vector<uint32_t> registers;
    uint32_t depth = 0;
    for (uint32_t pc = start; pc < program.instructions.size(); ++pc) {
      const Instruction in = program.instructions[pc];
      if (in.flags != 0 || (in.operand1 != 0 && in.op != Op::EXPR_ELEMENT)) {
        fail_at("a reserved field is set", "pc", pc);
      }
      if (in.op == Op::EXPR_END) {
        if (in.operand2 != 0) fail_at("a reserved field is set", "pc", pc);
        if (depth != 1) fail_at("an expression does not leave one value", "pc", pc);
        index_[start] = int32_t(registers_.size());
        registers_.push_back(std::move(registers));
        return pc + 1;
      }
      depth = check_instruction(program, in, pc, depth, registers);
      if (depth > kMaxExprStack) fail_at("an expression needs too many operands", "pc", pc);
    }
    fail_at("an expression has no end", "pc", start);
  }

  static uint32_t check_instruction(Program& program, Instruction in, uint32_t pc, uint32_t depth,
                                    std::vector<uint32_t>& registers) {
    switch (in.op) {
      case Op::EXPR_CONST:
        if (in.operand2 >= program.constants.size()) fail_at("no such constant", "pc", pc);
        return depth + 1;
      case Op::EXPR_REG:
        if (in.operand2 >= program.header.num_registers) fail_at("no such register", "pc", pc);
        if (std::find(registers.begin(), registers.end(), in.operand2) == registers.end()) {
          registers.push_back(in.operand2);
        }
        return depth + 1;
      case Op::EXPR_SYMBOL:
        if (in.operand2 >= program.symbols.size()) fail_at("no such symbol", "pc", pc);
        if (!is_integer(program.symbols[in.operand2].dtype))
          fail_at("an expression reads a float symbol", "pc", pc);
        return depth + 1;
      case Op::EXPR_ELEMENT: return check_element(program, in, pc, depth);
      default: {
        const int operands = operand_count(in.op);
        if (operands < 0) fail_at("an instruction that belongs in no expression", "pc", pc);
        if (in.operand2 != 0) fail_at("a reserved field is set", "pc", pc);
        if (depth < uint32_t(operands)) fail_at("an expression takes more operands than there are", "pc", pc);
        return depth - uint32_t(operands) + 1;
      }
    }
  }

  static uint32_t check_element(Program& program, Instruction in, uint32_t pc, uint32_t depth) {
    if (in.operand1 >= program.tensors.size()) fail_at("no such tensor", "pc", pc);
    const TensorDescriptor& tensor = program.tensors[in.operand1];
    if (!is_integer(tensor.dtype)) fail_at("an expression reads a float tensor", "pc", pc);
    if (in.operand2 != tensor.rank || tensor.rank == 0) fail_at("wrong number of indices", "pc", pc);
    if (tensor.written != 0) fail_at("an expression reads a tensor that tasks write", "pc", pc);
    if (depth < in.operand2) fail_at("an expression takes more operands than there are", "pc", pc);
    program.decides[in.operand1] = true;
    return depth - in.operand2 + 1;
  }

  std::vector<int32_t> index_;
  std::vector<std::vector<uint32_t>> registers_;
};

}  // namespace pto::wsp::bytecode
