// SPDX-License-Identifier: MIT
/// \file
/// The meaning of expressions: exact i64 arithmetic, evaluated from postfix code.
#pragma once

#include <cstdint>
#include <limits>

#include "pto/wsp/bytecode/program.hpp"
#include "pto/wsp/walk.hpp"

namespace pto::wsp::bytecode {

using walk::ElementSource;

/// A program with the values its symbols have in one run.
struct Bindings {
  const Program* program;
  std::vector<int64_t> symbols;           ///< the 8 bytes of each symbol
  std::vector<ElementSource> elements{};  ///< per tensor; set for those that expressions read
};

/// Why an expression has no value.
enum class Fault : uint8_t { kNone, kOverflow, kDivision, kOutside, kShift, kBelowZero, kBeyond };

/// A value or a fault. Faults propagate like values, because the arm of a select that is not chosen may have
/// one.
struct Outcome {
  int64_t value;  ///< kOutside: the index; kShift: the distance; kBelowZero, kBeyond: the value
  Fault fault;
  uint8_t dim;        ///< kOutside: its dimension
  uint32_t pc;        ///< the instruction at fault
  int64_t limit = 0;  ///< kBeyond: the largest value allowed
};

[[noreturn]] inline void throw_fault(const Program& program, const Outcome& outcome) {
  const auto error = [&outcome](const char* code, const char* message) {
    return EngineError(code, message).with_int("pc", outcome.pc);
  };
  switch (outcome.fault) {
    case Fault::kOutside:
      throw error("element-outside", "an expression reads an element outside its tensor")
          .with_int("tensor", program.instructions[outcome.pc].operand1)
          .with_int("dim", outcome.dim)
          .with_int("index", outcome.value);
    case Fault::kShift:
      throw error("shift-outside", "an expression shifts by less than 0 or more than 63 bits")
          .with_int("value", outcome.value);
    case Fault::kBelowZero:
      throw error("u64-below-zero", "an expression makes a u64 of a negative value")
          .with_int("value", outcome.value);
    case Fault::kBeyond:
      throw error("slice-outside", "a bound of a slice lies outside the range that is sliced")
          .with_int("value", outcome.value)
          .with_int("limit", outcome.limit);
    case Fault::kDivision: throw error("division-by-zero", "an expression divides by zero");
    default: throw error("expression-overflow", "an expression leaves the range of i64");
  }
}

inline int64_t floor_div(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
inline int64_t floor_mod(int64_t a, int64_t b) {
  return a % b + ((a % b != 0 && (a < 0) != (b < 0)) ? b : 0);
}

/// `result` = `a op b`, unless there is a fault. kShift is about b, kBeyond about a and b.
inline Fault apply_binary(Op op, int64_t a, int64_t b, int64_t& result) {
  bool overflow = false;
  switch (op) {
    case Op::EXPR_ADD: overflow = __builtin_add_overflow(a, b, &result); break;
    case Op::EXPR_SUB: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Op::EXPR_MUL: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Op::EXPR_FLOORDIV:
    case Op::EXPR_MOD:
      if (b == 0) return Fault::kDivision;
      // The quotient overflows. The remainder does not, but the division instruction traps on both.
      if (b == -1) {
        result = 0;
        if (op == Op::EXPR_FLOORDIV) overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
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
    case Op::EXPR_BITAND: result = a & b; break;
    case Op::EXPR_BITOR: result = a | b; break;
    case Op::EXPR_XOR: result = a ^ b; break;
    case Op::EXPR_SHL:
    case Op::EXPR_SHR:
      if (b < 0 || b > 63) return Fault::kShift;
      result = op == Op::EXPR_SHR ? a >> b : int64_t(uint64_t(a) << b);
      overflow = op == Op::EXPR_SHL && result >> b != a;
      break;
    case Op::EXPR_WITHIN:
      if (a < 0 || a > b) return Fault::kBeyond;
      result = a;
      break;
    default: break;
  }
  return overflow ? Fault::kOverflow : Fault::kNone;
}

namespace detail {

inline int64_t read_integer(const char* at, DType dtype) {
  const auto read = [at](auto value) {
    __builtin_memcpy(&value, at, sizeof value);
    return int64_t(value);
  };
  switch (dtype) {
    case DType::i8: return read(int8_t{});
    case DType::i16: return read(int16_t{});
    case DType::i32: return read(int32_t{});
    case DType::u8:
    case DType::b1: return read(uint8_t{});
    case DType::u16: return read(uint16_t{});
    case DType::u32: return read(uint32_t{});
    default: return read(int64_t{});
  }
}

/// The element of a tensor at `indices`, which lie inside.
inline Outcome read_element(const Bindings& bindings, Instruction in, uint32_t pc, const int64_t* indices) {
  const ElementSource& source = bindings.elements[in.operand1];
  int64_t offset = 0;
  for (uint32_t d = 0; d < in.operand2; ++d) offset += indices[d] * source.stride[d];
  const int64_t value = read_integer(source.base + offset * dtype_bytes(source.dtype), source.dtype);
  // Only u64 exceeds i64.
  if (source.dtype == DType::u64 && value < 0) return {0, Fault::kOverflow, 0, pc};
  return {value, Fault::kNone, 0, pc};
}

inline Outcome apply(Op op, const Outcome& a, const Outcome& b, uint32_t pc) {
  if (a.fault != Fault::kNone) return a;
  if (b.fault != Fault::kNone) return b;
  Outcome result{0, Fault::kNone, 0, pc};
  result.fault = apply_binary(op, a.value, b.value, result.value);
  if (result.fault == Fault::kShift) result.value = b.value;
  if (result.fault == Fault::kBeyond) {
    result.value = a.value;
    result.limit = b.value;
  }
  return result;
}

inline int64_t f32_bits(int64_t value) {
  const auto number = float(value);
  uint32_t bits = 0;
  __builtin_memcpy(&bits, &number, sizeof bits);
  return bits;
}

inline Outcome apply_unary(Op op, const Outcome& a, uint32_t pc) {
  if (a.fault != Fault::kNone) return a;
  switch (op) {
    case Op::EXPR_NEG: return apply(Op::EXPR_SUB, {0, Fault::kNone, 0, pc}, a, pc);
    case Op::EXPR_INVERT: return {~a.value, Fault::kNone, 0, pc};
    case Op::EXPR_BOOL: return {a.value != 0, Fault::kNone, 0, pc};
    case Op::EXPR_U64: return {a.value, a.value < 0 ? Fault::kBelowZero : Fault::kNone, 0, pc};
    case Op::EXPR_F32: return {f32_bits(a.value), Fault::kNone, 0, pc};
    default: return {a.value == 0, Fault::kNone, 0, pc};
  }
}

}  // namespace detail

/// Evaluates the expression that starts at `pc`; `read(instruction, pc, indices)` gives the outcome of an
/// element inside its tensor. Of several faults the first counts, from left to right. Throws
/// `expression-overflow`, `division-by-zero`, `shift-outside`, `u64-below-zero`, `slice-outside` or
/// `element-outside` with the instruction's index.
template <class Read>
int64_t evaluate_postfix(const Bindings& bindings, uint32_t pc, const int64_t* registers, Read read) {
  const Program& program = *bindings.program;
  Outcome stack[kMaxExprStack];
  int depth = 0;
  const auto push = [&](int64_t value) { stack[depth++] = {value, Fault::kNone, 0, pc}; };
  const auto element = [&](Instruction in) -> Outcome {
    int64_t indices[kMaxTensorRank];
    for (uint32_t d = 0; d < in.operand2; ++d) {
      const Outcome& index = stack[depth + int(d)];
      if (index.fault != Fault::kNone) return index;
      const int64_t size = bindings.elements[in.operand1].shape[d];
      if (uint64_t(index.value) >= uint64_t(size)) return {index.value, Fault::kOutside, uint8_t(d), pc};
      indices[d] = index.value;
    }
    return read(in, pc, indices);
  };
  for (;; ++pc) {
    const Instruction in = program.instructions[pc];
    switch (in.op) {
      case Op::EXPR_END:
        if (stack[0].fault != Fault::kNone) throw_fault(program, stack[0]);
        return stack[0].value;
      case Op::EXPR_CONST: push(program.constants[in.operand2]); break;
      case Op::EXPR_REG: push(registers[in.operand2]); break;
      case Op::EXPR_SYMBOL: push(bindings.symbols[in.operand2]); break;
      case Op::EXPR_ELEMENT:
        depth -= int(in.operand2);
        stack[depth] = element(in);
        ++depth;
        break;
      case Op::EXPR_NEG:
      case Op::EXPR_NOT:
      case Op::EXPR_INVERT:
      case Op::EXPR_BOOL:
      case Op::EXPR_U64:
      case Op::EXPR_F32: stack[depth - 1] = detail::apply_unary(in.op, stack[depth - 1], pc); break;
      case Op::EXPR_SELECT:
        depth -= 2;
        if (stack[depth - 1].fault == Fault::kNone) {
          stack[depth - 1] = stack[depth - 1].value != 0 ? stack[depth] : stack[depth + 1];
        }
        break;
      default: --depth; stack[depth - 1] = detail::apply(in.op, stack[depth - 1], stack[depth], pc);
    }
  }
}

inline int64_t evaluate_postfix(const Bindings& bindings, uint32_t pc, const int64_t* registers) {
  const auto read = [&bindings](Instruction in, uint32_t at, const int64_t* indices) {
    return detail::read_element(bindings, in, at, indices);
  };
  return evaluate_postfix(bindings, pc, registers, read);
}

}  // namespace pto::wsp::bytecode
