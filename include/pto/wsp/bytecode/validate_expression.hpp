// SPDX-License-Identifier: MIT
/// \file
/// Validation of the expressions that follow HALT.
#pragma once

#include <utility>
#include <vector>

#include "pto/wsp/bytecode/program.hpp"

namespace pto::wsp::bytecode {

/// How many operands `op` takes from the stack, or -1 if it is no operator on operands.
constexpr int operand_count(Op op) {
  switch (op) {
    case Op::EXPR_NEG:
    case Op::EXPR_NOT:
    case Op::EXPR_INVERT:
    case Op::EXPR_BOOL:
    case Op::EXPR_U64:
    case Op::EXPR_F32: return 1;
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
    case Op::EXPR_OR:
    case Op::EXPR_BITAND:
    case Op::EXPR_BITOR:
    case Op::EXPR_XOR:
    case Op::EXPR_SHL:
    case Op::EXPR_SHR:
    case Op::EXPR_WITHIN: return 2;
    case Op::EXPR_SELECT: return 3;
    default: return -1;
  }
}

/// True if a symbol of this dtype may be read as an i64 by an expression.
constexpr bool is_integer(DType dtype) { return dtype >= DType::i8 && dtype <= DType::b1; }

/// Checks the expressions of a program and notes where each starts and what it reads.
class ExpressionTable {
 public:
  /// Checks everything from `first` to the end of the program.
  static void build(Program& program, uint32_t first) { ExpressionTable(program).run(first); }

 private:
  explicit ExpressionTable(Program& program) : program_(program) {}

  void run(uint32_t first) {
    program_.decides.assign(program_.tensors.size(), false);
    program_.expression_at.assign(program_.instructions.size(), -1);
    last_reader_.assign(program_.header.num_registers, UINT32_MAX);
    for (pc_ = first; pc_ < program_.instructions.size(); ++pc_) check_one();
  }

  [[noreturn]] void fail(const char* reason) const { fail_at(reason, "pc", pc_); }

  /// Checks the expression that starts at `pc_`, which is its last instruction then.
  void check_one() {
    const uint32_t start = pc_;
    form_ = {};
    depth_ = 0;
    for (; pc_ < program_.instructions.size(); ++pc_) {
      const Instruction in = program_.instructions[pc_];
      if (in.flags != 0 || (in.operand1 != 0 && in.op != Op::EXPR_ELEMENT)) fail("a reserved field is set");
      if (in.op == Op::EXPR_END) {
        if (in.operand2 != 0) fail("a reserved field is set");
        if (depth_ != 1) fail("an expression does not leave one value");
        program_.expression_at[start] = int32_t(program_.expressions.size());
        program_.expressions.push_back(std::move(form_));
        return;
      }
      check_instruction(in);
      if (depth_ > kMaxExprStack) fail("an expression needs too many operands");
    }
    fail_at("an expression has no end", "pc", start);
  }

  void check_instruction(Instruction in) {
    switch (in.op) {
      case Op::EXPR_CONST:
        if (in.operand2 >= program_.constants.size()) fail("no such constant");
        return replace(0);
      case Op::EXPR_REG:
        if (in.operand2 >= program_.header.num_registers) fail("no such register");
        note_register(in.operand2);
        return replace(0);
      case Op::EXPR_SYMBOL:
        if (in.operand2 >= program_.symbols.size()) fail("no such symbol");
        if (!is_integer(program_.symbols[in.operand2].dtype)) fail("an expression reads a float symbol");
        return replace(0);
      case Op::EXPR_ELEMENT: return check_element(in);
      default: {
        const int operands = operand_count(in.op);
        if (operands < 0) fail("an instruction that belongs in no expression");
        if (in.operand2 != 0) fail("a reserved field is set");
        if (in.op == Op::EXPR_SELECT) form_.has_select = true;
        return replace(uint32_t(operands));
      }
    }
  }

  void note_register(uint32_t reg) {
    const auto self = uint32_t(program_.expressions.size());
    if (std::exchange(last_reader_[reg], self) == self) return;
    form_.registers.push_back(reg);
    if (!program_.is_variable[reg]) form_.loop_registers.push_back(reg);
  }

  void check_element(Instruction in) {
    if (in.operand1 >= program_.tensors.size()) fail("no such tensor");
    const TensorDescriptor& tensor = program_.tensors[in.operand1];
    if (!is_integer(tensor.dtype)) fail("an expression reads a float tensor");
    if (in.operand2 != tensor.rank || tensor.rank == 0) fail("wrong number of indices");
    if (tensor.written != 0) form_.reads_written = true;
    program_.decides[in.operand1] = true;
    replace(in.operand2);
  }

  /// Takes operands from the stack and puts one value there.
  void replace(uint32_t operands) {
    if (depth_ < operands) fail("an expression takes more operands than there are");
    depth_ += 1 - operands;
  }

  Program& program_;
  ExpressionForm form_;
  std::vector<uint32_t> last_reader_;  ///< per register: the latest expression that reads it
  uint32_t pc_ = 0;
  uint32_t depth_ = 0;
};

}  // namespace pto::wsp::bytecode
