// SPDX-License-Identifier: MIT
/// \file
/// Abstract values of expressions: a range, and an affine form over loop registers if there is one.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "pto/wsp/bytecode/expression.hpp"

namespace pto::wsp::bytecode {

inline constexpr int64_t kI64Min = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kI64Max = std::numeric_limits<int64_t>::max();

/// Inclusive bounds of a value.
struct Range {
  int64_t lo;
  int64_t hi;
  bool is_constant() const { return lo == hi; }
};

/// A range computed without rounding; `fits` says whether it lies inside i64.
struct WideRange {
  __int128 lo;
  __int128 hi;
  bool fits() const { return lo >= kI64Min && hi <= kI64Max; }
  Range clamp() const {
    const auto clip = [](__int128 x) { return x < kI64Min ? kI64Min : x > kI64Max ? kI64Max : int64_t(x); };
    return {clip(lo), clip(hi)};
  }
};

/// `coef` times a register.
struct Term {
  int64_t coef;
  uint32_t reg;
};

/// The abstract value of an expression. `terms` and `c0` are valid only if `affine`.
struct Abstract {
  bool affine = true;
  int64_t c0 = 0;
  std::vector<Term> terms;
  Range range{0, 0};

  bool is_constant() const { return affine && terms.empty(); }
};

inline Abstract constant_value(int64_t value) { return {true, value, {}, {value, value}}; }

/// Facts about a register from the enclosing loops.
struct RegisterFacts {
  enum Kind : uint8_t { kIndex, kStart, kLength } kind = kIndex;
  Range range{0, 0};
  uint32_t index_reg = 0;  ///< the axis' index register
  int64_t tile = 0;        ///< kStart, kLength: the tile if it is one number, else 0
  Range end{0, 0};         ///< kLength: bounds of start + length
};

namespace detail {

inline WideRange scaled(Range range, int64_t factor) {
  const __int128 a = __int128(range.lo) * factor, b = __int128(range.hi) * factor;
  return {std::min(a, b), std::max(a, b)};
}

inline void add_term(std::vector<Term>& terms, Term term) {
  for (Term& mine : terms) {
    if (mine.reg != term.reg) continue;
    mine.coef += term.coef;
    if (mine.coef == 0) terms.erase(terms.begin() + (&mine - terms.data()));
    return;
  }
  if (term.coef != 0) terms.push_back(term);
}

inline void drop_register(std::vector<Term>& terms, uint32_t reg) {
  terms.erase(std::remove_if(terms.begin(), terms.end(), [reg](Term t) { return t.reg == reg; }),
              terms.end());
}

/// Coefficients stay below this, so that sums of coefficient times register never leave 128 bits.
inline constexpr int64_t kMaxCoefficient = int64_t{1} << 50;

/// The largest number of terms of an affine form. Longer sums are evaluated from postfix code. Ordinary
/// programs have a few terms.
inline constexpr size_t kMaxTerms = 64;

/// Bounds of `a & b`, `a | b` and `a ^ b`: none of them has more bits than its operands.
inline WideRange bitwise_range(Op op, Range a, Range b) {
  if (a.lo < 0 || b.lo < 0) {
    if (op == Op::EXPR_BITAND && (a.lo >= 0 || b.lo >= 0)) return {0, a.lo >= 0 ? a.hi : b.hi};
    return {kI64Min, kI64Max};
  }
  if (op == Op::EXPR_BITAND) return {0, std::min(a.hi, b.hi)};
  int64_t mask = std::max(a.hi, b.hi);
  for (int shift = 1; shift < 64; shift *= 2) mask |= mask >> shift;
  return {op == Op::EXPR_BITOR ? std::max(a.lo, b.lo) : 0, mask};
}

/// Bounds of `a op b`. \pre b is a shift's distance in 0..63, and a divisor other than 0
inline WideRange binary_range(Op op, Range a, Range b) {
  const __int128 al = a.lo, ah = a.hi, bl = b.lo, bh = b.hi;
  switch (op) {
    case Op::EXPR_ADD: return {al + bl, ah + bh};
    case Op::EXPR_SUB: return {al - bh, ah - bl};
    case Op::EXPR_MUL: {
      const __int128 p[] = {al * bl, al * bh, ah * bl, ah * bh};
      return {*std::min_element(p, p + 4), *std::max_element(p, p + 4)};
    }
    case Op::EXPR_FLOORDIV:
      if (bl < 1) return {-(__int128(1) << 63), __int128(1) << 63};
      return {std::min(floor_div(a.lo, b.lo), floor_div(a.lo, b.hi)),
              std::max(floor_div(a.hi, b.lo), floor_div(a.hi, b.hi))};
    case Op::EXPR_MOD:
      if (bl >= 1 && al >= 0) return {0, std::min(ah, bh - 1)};
      return {std::min<__int128>(bl + 1, 0), std::max<__int128>(bh - 1, 0)};
    case Op::EXPR_MIN: return {std::min(al, bl), std::min(ah, bh)};
    case Op::EXPR_MAX: return {std::max(al, bl), std::max(ah, bh)};
    case Op::EXPR_LT:
    case Op::EXPR_LE:
    case Op::EXPR_EQ:
    case Op::EXPR_NE:
    case Op::EXPR_AND:
    case Op::EXPR_OR: return {0, 1};
    case Op::EXPR_BITAND:
    case Op::EXPR_BITOR:
    case Op::EXPR_XOR: return bitwise_range(op, a, b);
    case Op::EXPR_SHR: return {std::min(a.lo >> b.lo, a.lo >> b.hi), std::max(a.hi >> b.lo, a.hi >> b.hi)};
    case Op::EXPR_SHL: {
      const __int128 least = __int128(1) << b.lo, most = __int128(1) << b.hi;
      return {std::min(al * least, al * most), std::max(ah * least, ah * most)};
    }
    default: return {kI64Min, kI64Max};
  }
}

}  // namespace detail

/// Evaluates expressions over the facts about registers.
class AbstractEvaluator {
 public:
  /// `shapes` holds the extents of every tensor.
  AbstractEvaluator(const Bindings& bindings, const std::vector<RegisterFacts>& registers,
                    const std::vector<const int64_t*>& shapes)
      : bindings_(bindings), registers_(registers), shapes_(shapes) {}

  /// The value of the expression at `pc`; `may_fail` says whether evaluating it could be an error.
  Abstract evaluate(uint32_t pc, bool& may_fail) const {
    std::vector<Abstract> stack;
    for (;; ++pc) {
      const Instruction in = bindings_.program->instructions[pc];
      switch (in.op) {
        case Op::EXPR_END: return stack.back();
        case Op::EXPR_CONST:
          stack.push_back(constant_value(bindings_.program->constants[in.operand2]));
          break;
        case Op::EXPR_REG: stack.push_back(register_value(in.operand2)); break;
        case Op::EXPR_SYMBOL: stack.push_back(constant_value(bindings_.symbols[in.operand2])); break;
        case Op::EXPR_ELEMENT: element(in, stack, may_fail); break;
        case Op::EXPR_NEG:
          stack.back() = binary(Op::EXPR_SUB, constant_value(0), stack.back(), may_fail);
          break;
        case Op::EXPR_NOT: stack.back() = truth(stack.back(), false); break;
        case Op::EXPR_BOOL: stack.back() = truth(stack.back(), true); break;
        case Op::EXPR_INVERT: stack.back() = invert(stack.back()); break;
        case Op::EXPR_U64:
          if (stack.back().range.lo < 0) may_fail = true;
          break;
        case Op::EXPR_F32: stack.back() = unknown({0, int64_t(UINT32_MAX)}); break;
        case Op::EXPR_SELECT: select(stack); break;
        case Op::EXPR_WITHIN: within(stack, may_fail); break;
        default: {
          const Abstract b = std::move(stack.back());
          stack.pop_back();
          stack.back() = binary(in.op, stack.back(), b, may_fail);
        }
      }
    }
  }

  Abstract register_value(uint32_t reg) const {
    const RegisterFacts& facts = registers_[reg];
    if (facts.range.is_constant()) return constant_value(facts.range.lo);
    const bool scaled_index = facts.kind == RegisterFacts::kStart && facts.tile != 0;
    return {true, 0, {scaled_index ? Term{facts.tile, facts.index_reg} : Term{1, reg}}, facts.range};
  }

  /// The sum of two values, if it fits i64 for all values of the registers.
  Abstract sum(const Abstract& a, const Abstract& b, bool& may_fail) const {
    return binary(Op::EXPR_ADD, a, b, may_fail);
  }

 private:
  static Abstract unknown(Range range) { return {range.is_constant(), range.lo, {}, range}; }

  /// An element may have any value of its type: arrays differ between runs with one plan.
  void element(Instruction in, std::vector<Abstract>& stack, bool& may_fail) const {
    const int64_t* shape = shapes_[in.operand1];
    const size_t first = stack.size() - in.operand2;
    for (size_t d = 0; d < in.operand2; ++d) {
      const Range index = stack[first + d].range;
      if (index.lo < 0 || index.hi >= shape[d]) may_fail = true;
    }
    stack.resize(first);
    const DType dtype = bindings_.program->tensors[in.operand1].dtype;
    if (dtype == DType::u64) may_fail = true;
    const int64_t bits = 8 * dtype_bytes(dtype);
    const bool is_signed = dtype >= DType::i8 && dtype <= DType::i64;
    const int64_t hi = bits == 64 ? kI64Max : (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
    stack.push_back({false, 0, {}, {is_signed ? -hi - 1 : 0, hi}});
  }

  /// 1 if the truth of `a` is `wanted`, else 0.
  static Abstract truth(const Abstract& a, bool wanted) {
    if (a.range.is_constant()) return constant_value((a.range.lo != 0) == wanted);
    const bool is_true = a.range.lo > 0 || a.range.hi < 0;
    return is_true ? constant_value(wanted) : unknown({0, 1});
  }

  static Abstract invert(const Abstract& a) {
    return a.is_constant() ? constant_value(~a.c0) : unknown({~a.range.hi, ~a.range.lo});
  }

  static void select(std::vector<Abstract>& stack) {
    const Abstract otherwise = std::move(stack.back());
    stack.pop_back();
    const Abstract then = std::move(stack.back());
    stack.pop_back();
    const Range condition = stack.back().range;
    if (condition.lo > 0 || condition.hi < 0) {
      stack.back() = then;
    } else if (condition.is_constant()) {
      stack.back() = otherwise;
    } else {
      stack.back() =
          unknown({std::min(then.range.lo, otherwise.range.lo), std::max(then.range.hi, otherwise.range.hi)});
    }
  }

  /// The value is the first operand; the second operand is its upper bound.
  void within(std::vector<Abstract>& stack, bool& may_fail) const {
    const Abstract limit = std::move(stack.back());
    stack.pop_back();
    Abstract& value = stack.back();
    bool overflows = false;
    const Range rest = binary(Op::EXPR_SUB, limit, value, overflows).range;
    if (overflows || value.range.lo < 0 || rest.lo < 0) may_fail = true;
    const Range allowed{std::max<int64_t>(value.range.lo, 0), std::min(value.range.hi, limit.range.hi)};
    if (allowed.lo <= allowed.hi) value.range = allowed;
  }

  Abstract binary(Op op, const Abstract& a, const Abstract& b, bool& may_fail) const {
    const bool divides = op == Op::EXPR_FLOORDIV || op == Op::EXPR_MOD;
    const bool shifts = op == Op::EXPR_SHL || op == Op::EXPR_SHR;
    const bool is_bad_divisor = divides && b.range.lo <= 0 && b.range.hi >= 0;
    const bool is_bad_distance = shifts && (b.range.lo < 0 || b.range.hi > 63);
    if (is_bad_divisor || is_bad_distance) {
      may_fail = true;
      return {false, 0, {}, {kI64Min, kI64Max}};
    }
    if (a.is_constant() && b.is_constant()) return fold(op, a.c0, b.c0, may_fail);
    const WideRange wide = detail::binary_range(op, a.range, b.range);
    Abstract result = unknown(wide.clamp());
    if (!wide.fits()) {
      may_fail = true;
      return {false, 0, {}, result.range};
    }
    if (a.affine && b.affine && is_linear(op, a, b)) combine(op, a, b, result);
    return result;
  }

  static Abstract fold(Op op, int64_t a, int64_t b, bool& may_fail) {
    int64_t result = 0;
    if (apply_binary(op, a, b, result) == Fault::kNone) return constant_value(result);
    may_fail = true;
    return {false, 0, {}, {kI64Min, kI64Max}};
  }

  static bool is_linear(Op op, const Abstract& a, const Abstract& b) {
    if (op == Op::EXPR_MUL) return a.is_constant() || b.is_constant();
    return op == Op::EXPR_ADD || op == Op::EXPR_SUB;
  }

  /// Makes `result` the affine form of `a op b`, unless a coefficient leaves i64.
  void combine(Op op, const Abstract& a, const Abstract& b, Abstract& result) const {
    Abstract sum = constant_value(0);
    const int64_t scale_a = op == Op::EXPR_MUL && b.is_constant() ? b.c0 : op == Op::EXPR_MUL ? 0 : 1;
    const int64_t scale_b = op == Op::EXPR_MUL ? (b.is_constant() ? 0 : a.c0) : op == Op::EXPR_SUB ? -1 : 1;
    if (!accumulate(sum, a, scale_a) || !accumulate(sum, b, scale_b)) return;
    const WideRange wide = affine_range(sum);
    const Range tight = wide.clamp();
    sum.range = {std::max(tight.lo, result.range.lo), std::min(tight.hi, result.range.hi)};
    result = sum;
  }

  static bool accumulate(Abstract& sum, const Abstract& value, int64_t scale) {
    if (scale == 0) return true;
    const auto multiply_add = [scale](int64_t& total, int64_t x) {
      int64_t product = 0;
      return !__builtin_mul_overflow(x, scale, &product) && !__builtin_add_overflow(total, product, &total);
    };
    if (!multiply_add(sum.c0, value.c0)) return false;
    for (const Term& term : value.terms) {
      int64_t total = 0;
      for (const Term& mine : sum.terms) total += mine.reg == term.reg ? mine.coef : 0;
      const int64_t before = total;
      if (!multiply_add(total, term.coef)) return false;
      if (total > detail::kMaxCoefficient || total < -detail::kMaxCoefficient) return false;
      detail::add_term(sum.terms, {total - before, term.reg});
    }
    return sum.terms.size() <= detail::kMaxTerms;
  }

  /// Bounds of an affine form. The start and length of a tile are bounded together: start + length <= extent.
  WideRange affine_range(const Abstract& form) const {
    std::vector<Term> terms = form.terms;
    WideRange total{form.c0, form.c0};
    const auto add = [&total](WideRange part) {
      total.lo += part.lo;
      total.hi += part.hi;
    };
    for (const Term& length : form.terms) {
      const RegisterFacts& facts = registers_[length.reg];
      if (facts.kind != RegisterFacts::kLength || facts.tile == 0) continue;
      for (const Term& index : form.terms) {
        int64_t scaled = 0;
        if (index.reg != facts.index_reg || __builtin_mul_overflow(length.coef, facts.tile, &scaled))
          continue;
        if (scaled != index.coef) continue;
        add(detail::scaled(facts.end, length.coef));
        detail::drop_register(terms, length.reg);
        detail::drop_register(terms, index.reg);
      }
    }
    for (const Term& term : terms) add(detail::scaled(registers_[term.reg].range, term.coef));
    return total;
  }

  const Bindings& bindings_;
  const std::vector<RegisterFacts>& registers_;
  const std::vector<const int64_t*>& shapes_;
};

}  // namespace pto::wsp::bytecode
