// SPDX-License-Identifier: MIT
/// \file
/// Proves that no two iterations of a loop conflict.
///
/// Two accesses are disjoint if, in some dimension, the distance of their starts is always at least the
/// extent of the first, or at most minus the extent of the second. The distance is a sum over registers.
/// Registers that both iterations share cancel. Small terms widen the interval around the step between
/// iterations. Large terms add multiples of their common divisor, so one period suffices. Anything not proven
/// counts as a conflict.
#pragma once

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "pto/wsp/graph/footprint.hpp"
#include "pto/wsp/graph/loop_scope.hpp"
#include "pto/wsp/graph/row_proof.hpp"

namespace pto::wsp::graph {

namespace detail {

/// Whether one dimension of two accesses separates the iterations of a loop.
class DimensionProof {
 public:
  DimensionProof(const Plan& plan, const LoopScope& scope, uint32_t loop)
      : scope_(scope), loop_(plan.loops[loop]), bounds_(plan.program().header.num_registers, kUnbounded) {
    for (const bytecode::QuickLoop& each : plan.loops)
      bounds_[each.reg] = std::max({each.trips.hi - 1, bounds_[each.reg], int64_t{0}});
  }

  bool is_apart(const QuickDim& a, const QuickDim& b, int64_t size) {
    if (ends_before(a, b) || ends_before(b, a)) return true;
    if (is_own_tile(a) && is_own_tile(b)) return true;
    if (!a.start_form.affine || !b.start_form.affine) return false;
    collect(a, b);
    extent_a_ = std::min(a.extent_form.range.hi, size);
    extent_b_ = std::min(b.extent_form.range.hi, size);
    return is_apart_for_some_split(Wide(b.start_form.c0) - a.start_form.c0);
  }

 private:
  using Wide = __int128;
  static constexpr int64_t kUnbounded = -1;

  /// `coef` times a number in [0, hi].
  struct Summand {
    int64_t coef;
    int64_t hi;
  };

  static bool ends_before(const QuickDim& a, const QuickDim& b) {
    return Wide(a.start_form.range.hi) + a.extent_form.range.hi <= Wide(b.start_form.range.lo);
  }

  /// Whether the dimension is the tile of the loop itself, with one size for all iterations.
  bool is_own_tile(const QuickDim& dim) const {
    const auto is_register = [](const bytecode::Abstract& form, uint32_t reg) {
      return form.affine && form.c0 == 0 && form.terms.size() == 1 && form.terms[0].coef == 1 &&
             form.terms[0].reg == reg;
    };
    return dim.op == bytecode::Op::DIM_TILE && is_register(dim.start_form, loop_.reg + 1u) &&
           is_register(dim.extent_form, loop_.reg + 2u);
  }

  /// Splits start(b) - start(a), without its constant, into the step of the loop and parts, smallest first.
  void collect(const QuickDim& a, const QuickDim& b) {
    parts_.clear();
    std::vector<bytecode::Term> fixed;
    const int64_t step_a = collect_terms(a, -1, fixed), step_b = collect_terms(b, 1, fixed);
    if (step_a + step_b != 0) parts_.push_back({step_a + step_b, bounds_[loop_.reg]});
    for (const bytecode::Term& term : fixed) parts_.push_back({term.coef, bounds_[term.reg]});
    step_ = std::abs(step_a);  // iterations differ in both directions
    std::sort(parts_.begin(), parts_.end(),
              [](const Summand& x, const Summand& y) { return std::abs(x.coef) < std::abs(y.coef); });
  }

  /// Adds `sign` times the terms of a start; returns the coefficient of the loop's index.
  int64_t collect_terms(const QuickDim& dim, int64_t sign, std::vector<bytecode::Term>& fixed) {
    int64_t step = 0;
    for (const bytecode::Term& term : dim.start_form.terms) {
      const int64_t coef = sign * term.coef;
      switch (scope_.kind(term.reg)) {
        case LoopScope::Kind::kIndex: step += coef; break;
        case LoopScope::Kind::kFixed: bytecode::detail::add_term(fixed, {coef, term.reg}); break;
        default: parts_.push_back({coef, bounds_[term.reg]});
      }
    }
    return step;
  }

  /// Tries every split into small parts, which widen, and large parts, which count modulo their divisor.
  bool is_apart_for_some_split(Wide constant) const {
    std::vector<int64_t> divisor(parts_.size() + 1, 0);
    for (size_t i = parts_.size(); i-- > 0;) divisor[i] = std::gcd(divisor[i + 1], parts_[i].coef);
    Wide lo = constant, hi = constant;
    for (size_t i = 0; i <= parts_.size(); ++i) {
      if (is_apart_for(lo, hi, divisor[i])) return true;
      if (i == parts_.size() || parts_[i].hi == kUnbounded) break;
      const Wide most = Wide(parts_[i].coef) * parts_[i].hi;
      (most < 0 ? lo : hi) += most;
    }
    return false;
  }

  /// Whether distances in [lo, hi] plus any multiple of `divisor` separate different iterations.
  bool is_apart_for(Wide lo, Wide hi, int64_t divisor) const {
    if (step_ == 0) return is_clear(lo, hi, divisor);
    const Wide last = Wide(step_) * bounds_[loop_.reg];
    return is_clear(lo + step_, hi + last, divisor) && is_clear(lo - last, hi - step_, divisor);
  }

  bool is_clear(Wide lo, Wide hi, int64_t divisor) const {
    if (divisor == 0) return lo >= extent_a_ || hi <= -extent_b_;
    const Wide above = lo - extent_a_;
    const Wide period = above / divisor - (above % divisor < 0 ? 1 : 0);
    return hi <= (period + 1) * divisor - extent_b_;
  }

  const LoopScope& scope_;
  const bytecode::QuickLoop& loop_;
  std::vector<int64_t> bounds_;  ///< per register, its largest value if it is the index of a loop
  std::vector<Summand> parts_;
  int64_t step_ = 0, extent_a_ = 0, extent_b_ = 0;
};

/// The accesses of the tasks inside a loop.
class IndependenceProof {
 public:
  IndependenceProof(const Plan& plan, const std::vector<Space>& spaces, uint32_t loop, bool reads_elements)
      : plan_(plan), spaces_(spaces), loop_(loop), scope_(plan, loop), dimension_(plan, scope_, loop) {
    if (reads_elements) rows_.emplace(plan, scope_, loop);
  }

  /// \param memory  the one that is compared; negative: all
  bool run(int64_t memory) {
    if (plan_.loops[loop_].trips.hi <= 1) return true;
    for (const bytecode::SetForm& set : plan_.program().sets) {
      if (set.is_flush && scope_.holds(set.pc)) return false;
    }
    std::vector<const Space*> seen(plan_.layouts.size(), nullptr);
    std::vector<bool> is_written(plan_.layouts.size(), false);
    for (const Space& space : spaces_) {
      if (memory >= 0 && space.group() != memory) continue;
      collect(space);
      if (inside_.empty()) continue;
      const bool writes = std::any_of(inside_.begin(), inside_.end(), [](auto* f) { return f->writes; });
      // Accesses in different spaces of a memory count as overlapping.
      const bool is_second = seen[space.group()] != nullptr;
      if (is_second && (writes || is_written[space.group()])) return false;
      seen[space.group()] = &space;
      is_written[space.group()] = is_written[space.group()] || writes;
      const bool is_apart = !writes || are_apart(space) || (rows_ && rows_->is_apart(space, inside_));
      if (!is_apart) return false;
    }
    return true;
  }

 private:
  void collect(const Space& space) {
    inside_.clear();
    for (const Footprint& footprint : space.footprints) {
      if (scope_.holds(plan_.sites[footprint.site].pc)) inside_.push_back(&footprint);
    }
  }

  bool are_apart(const Space& space) {
    for (size_t i = 0; i < inside_.size(); ++i) {
      for (size_t j = i; j < inside_.size(); ++j) {
        const Footprint &a = *inside_[i], &b = *inside_[j];
        if ((a.writes || b.writes) && !are_apart(space, a, b)) return false;
      }
    }
    return true;
  }

  bool are_apart(const Space& space, const Footprint& a, const Footprint& b) {
    for (size_t d = 0; d < space.size.size(); ++d) {
      if (dimension_.is_apart(a.dims[d], b.dims[d], space.size[d])) return true;
    }
    return false;
  }

  const Plan& plan_;
  const std::vector<Space>& spaces_;
  const uint32_t loop_;
  const LoopScope scope_;
  DimensionProof dimension_;
  std::optional<RowProof> rows_;
  std::vector<const Footprint*> inside_;
};

}  // namespace detail

/// Whether it is proven that no two iterations of one run of a loop conflict.
/// \complexity quadratic in the number of accesses to one memory inside the loop
inline bool is_independent(const Plan& plan, const std::vector<Space>& spaces, uint32_t loop) {
  return detail::IndependenceProof(plan, spaces, loop, false).run(-1);
}

/// The same of one memory, for the present elements of the arrays that decide.
inline bool is_apart(const Plan& plan, const std::vector<Space>& spaces, uint32_t loop, uint32_t memory) {
  return detail::IndependenceProof(plan, spaces, loop, true).run(memory);
}

}  // namespace pto::wsp::graph
