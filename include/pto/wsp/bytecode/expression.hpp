// SPDX-License-Identifier: MIT
/// \file
/// What an expression means: exact i64 arithmetic, evaluated from its postfix code.
#pragma once

#include <cstdint>
#include <limits>

#include "pto/wsp/bytecode/program.hpp"

namespace pto::wsp::bytecode {

/// A program with the values its symbols have in one run.
struct Bindings {
  const Program* program;
  std::vector<int64_t> symbols;  ///< the 8 bytes of each symbol
};

[[noreturn]] inline void fail_expression(const char* code, uint32_t pc) {
  throw EngineError(code, code == std::string("division-by-zero") ? "an expression divides by zero"
                                                                  : "an expression leaves the range of i64")
      .with_int("pc", pc);
}

inline int64_t floor_div(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
inline int64_t floor_mod(int64_t a, int64_t b) {
  return a % b + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0);
}

/// `a op b`; throws `expression-overflow` or `division-by-zero` with the instruction's index.
inline int64_t apply_binary(Op op, int64_t a, int64_t b, uint32_t pc) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Op::EXPR_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case Op::EXPR_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Op::EXPR_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Op::EXPR_FLOORDIV:
    case Op::EXPR_MOD:
      if (b == 0) fail_expression("division-by-zero", pc);
      // The one quotient that does not fit; its remainder does, but the machine's division traps on both.
      if (b == -1) {
        if (op == Op::EXPR_MOD) return 0;
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      result = op == Op::EXPR_MOD ? floor_mod(a, b) : floor_div(a, b);
      break;
    case Op::EXPR_MIN: result = a < b ? a : b; break;
    case Op::EXPR_MAX: result = a > b ? a : b; break;
    case Op::EXPR_LT: result = a < b; break;
    case Op::EXPR_LE: result = a <= b; break;
    case Op::EXPR_EQ: result = a == b; break;
    case Op::EXPR_NE: result = a != b; break;
    case Op::EXPR_AND: result = a != 0 && b != 0; break;
    case Op::EXPR_OR: result = a != 0 || b != 0; break;
    default: break;
  }
  if (overflow) fail_expression("expression-overflow", pc);
  return result;
}

inline int64_t apply_unary(Op op, int64_t a, uint32_t pc) {
  if (op == Op::EXPR_NOT) return a == 0;
  if (a == std::numeric_limits<int64_t>::min()) fail_expression("expression-overflow", pc);
  return -a;
}

/// Evaluates the expression that starts at `pc`.
inline int64_t evaluate_postfix(const Bindings& bindings, uint32_t pc, const int64_t* registers) {
  const Program& program = *bindings.program;
  int64_t stack[kMaxExprStack];
  int depth = 0;
  for (;; ++pc) {
    const Instruction in = program.instructions[pc];
    switch (in.op) {
      case Op::EXPR_END: return stack[0];
      case Op::EXPR_CONST: stack[depth++] = program.constants[in.operand2]; break;
      case Op::EXPR_REG: stack[depth++] = registers[in.operand2]; break;
      case Op::EXPR_SYMBOL: stack[depth++] = bindings.symbols[in.operand2]; break;
      case Op::EXPR_NEG:
      case Op::EXPR_NOT: stack[depth - 1] = apply_unary(in.op, stack[depth - 1], pc); break;
      case Op::EXPR_SELECT:
        depth -= 2;
        stack[depth - 1] = stack[depth - 1] != 0 ? stack[depth] : stack[depth + 1];
        break;
      default: --depth; stack[depth - 1] = apply_binary(in.op, stack[depth - 1], stack[depth], pc);
    }
  }
}

}  // namespace pto::wsp::bytecode
