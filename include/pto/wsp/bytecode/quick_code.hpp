// SPDX-License-Identifier: MIT
/// \file
/// Expressions that are not affine, made ready for a run: the postfix code of expression.hpp on plain
/// integers.
///
/// Quick code does not report errors. Where an error is possible it stops, and the caller evaluates the
/// postfix code, which reports the error. An expression with a select has no quick code, because a fault may
/// be harmless there.
#pragma once

#include <vector>

#include "pto/wsp/bytecode/expression.hpp"

namespace pto::wsp::bytecode {

/// EXPR_CONST pushes `constant`, EXPR_REG pushes a register, EXPR_ELEMENT of `rank` indices takes them from
/// the stack; with a rank of 0 its one index is register + constant.
struct QuickOp {
  Op op;
  uint8_t rank = 0;
  uint16_t tensor = 0;
  uint32_t reg = 0;
  int64_t constant = 0;
};

namespace detail {

/// Makes `reg + constant`, `reg` and an element of one of these one instruction.
inline void fuse_element(std::vector<QuickOp>& code, QuickOp element) {
  const size_t n = code.size();
  if (n >= 1 && code[n - 1].op == Op::EXPR_REG) {
    element.reg = code[n - 1].reg;
    element.rank = 0;
    code.pop_back();
  } else if (n >= 3 && code[n - 1].op == Op::EXPR_ADD && code[n - 2].op == Op::EXPR_CONST &&
             code[n - 3].op == Op::EXPR_REG) {
    element.reg = code[n - 3].reg;
    element.constant = code[n - 2].constant;
    element.rank = 0;
    code.resize(n - 3);
  }
  code.push_back(element);
}

/// The integer at an element's address; false if it is outside its tensor or i64.
inline bool read_quick(const ElementSource& source, uint32_t rank, const int64_t* indices, int64_t& value) {
  int64_t offset = 0;
  for (uint32_t d = 0; d < rank; ++d) {
    if (uint64_t(indices[d]) >= uint64_t(source.shape[d])) return false;
    offset += indices[d] * source.stride[d];
  }
  value = read_integer(source.base + offset * dtype_bytes(source.dtype), source.dtype);
  return source.dtype != DType::u64 || value >= 0;
}

}  // namespace detail

/// Appends the quick code of the expression at `pc` to `code`, up to EXPR_END. \pre it has no select
inline void add_quick_code(const Bindings& bindings, uint32_t pc, std::vector<QuickOp>& code) {
  const Program& program = *bindings.program;
  std::vector<QuickOp> own;
  for (;; ++pc) {
    const Instruction in = program.instructions[pc];
    QuickOp quick{in.op};
    switch (in.op) {
      case Op::EXPR_CONST: quick.constant = program.constants[in.operand2]; break;
      case Op::EXPR_SYMBOL:
        quick.op = Op::EXPR_CONST;
        quick.constant = bindings.symbols[in.operand2];
        break;
      case Op::EXPR_REG: quick.reg = in.operand2; break;
      case Op::EXPR_ELEMENT:
        quick.tensor = in.operand1;
        quick.rank = uint8_t(in.operand2);
        if (quick.rank == 1) {
          detail::fuse_element(own, quick);
          continue;
        }
        break;
      default: break;
    }
    own.push_back(quick);
    if (in.op == Op::EXPR_END) break;
  }
  code.insert(code.end(), own.begin(), own.end());
}

/// Evaluates quick code; false if there is a fault.
inline bool evaluate_quick(const Bindings& bindings, const QuickOp* in, const int64_t* registers,
                           int64_t& result) {
  int64_t stack[kMaxExprStack + 1];
  int64_t* top = stack;  // the first operand is stack[1]
  for (;; ++in) {
    switch (in->op) {
      case Op::EXPR_END: result = *top; return true;
      case Op::EXPR_CONST: *++top = in->constant; break;
      case Op::EXPR_REG: *++top = registers[in->reg]; break;
      case Op::EXPR_ELEMENT: {
        const ElementSource& source = bindings.elements[in->tensor];
        int64_t index = 0;
        if (in->rank != 0) {
          top -= in->rank - 1;
          if (!detail::read_quick(source, in->rank, top, *top)) return false;
          break;
        }
        if (__builtin_add_overflow(registers[in->reg], in->constant, &index)) return false;
        if (!detail::read_quick(source, 1, &index, *++top)) return false;
        break;
      }
      case Op::EXPR_ADD:
        --top;
        if (__builtin_add_overflow(top[0], top[1], top)) return false;
        break;
      case Op::EXPR_SUB:
        --top;
        if (__builtin_sub_overflow(top[0], top[1], top)) return false;
        break;
      case Op::EXPR_LT:
        --top;
        *top = top[0] < top[1];
        break;
      case Op::EXPR_LE:
        --top;
        *top = top[0] <= top[1];
        break;
      case Op::EXPR_NEG:
      case Op::EXPR_NOT:
      case Op::EXPR_INVERT:
      case Op::EXPR_BOOL:
      case Op::EXPR_U64:
      case Op::EXPR_F32: {
        const Outcome outcome = detail::apply_unary(in->op, {*top, Fault::kNone, 0, 0}, 0);
        if (outcome.fault != Fault::kNone) return false;
        *top = outcome.value;
        break;
      }
      default: {
        --top;
        int64_t value = 0;
        if (apply_binary(in->op, top[0], top[1], value) != Fault::kNone) return false;
        *top = value;
      }
    }
  }
}

}  // namespace pto::wsp::bytecode
