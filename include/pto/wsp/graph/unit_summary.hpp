// SPDX-License-Identifier: MIT
/// \file
/// Summary of one iteration of a loop: the number of its tasks, and the boxes that they touch.
#pragma once

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "pto/wsp/graph/box_map.hpp"
#include "pto/wsp/graph/independence.hpp"

namespace pto::wsp::graph {

namespace detail {

/// A loop, or one side of a condition, around a task.
struct Guard {
  bool is_loop;
  bool wanted;  ///< of a condition
  uint32_t index;

  bool operator==(const Guard& other) const {
    return is_loop == other.is_loop && wanted == other.wanted && index == other.index;
  }
};

inline constexpr uint32_t kMaxGuards = 64;

/// A site inside, with a bit for each guard around it.
struct GuardedSite {
  uint32_t site;
  uint64_t guards;
};

/// Finds the sites of a loop and their guards.
class GuardFinder {
 public:
  GuardFinder(const Plan& plan, const LoopScope& scope) : plan_(plan), scope_(scope) {}

  /// False if an iteration must be walked: a guard depends on the iteration itself or may fail, or the loop
  /// contains more than guards and tasks.
  bool run() {
    const bytecode::Program& program = plan_.program();
    for (const bytecode::Step& step : program.steps) {
      if (scope_.holds(pc_of(program, step)) && !visit(step)) return false;
    }
    return guards.size() <= kMaxGuards && !names_guarded_tasks();
  }

  std::vector<Guard> guards;
  std::vector<GuardedSite> sites;

 private:
  using Step = bytecode::Step;

  /// The place of a step; 0 for those that only end something.
  static uint32_t pc_of(const bytecode::Program& program, const Step& step) {
    switch (step.kind) {
      case Step::kLoop: return program.loops[step.index].begin_pc;
      case Step::kEndLoop: return program.loops[step.index].end_pc;
      case Step::kCond:
      case Step::kElse:
      case Step::kEndCond: return program.conds[step.index].pc;
      case Step::kSet: return program.sets[step.index].pc;
      case Step::kFail: return program.fails[step.index].pc;
      case Step::kTask: return program.sites[step.index].pc;
      case Step::kMove: return program.moves[step.index].pc;
      case Step::kProcess:
      case Step::kEndProcess:
      case Step::kWait:
      case Step::kHalt: return 0;
    }
    return 0;
  }

  bool visit(const Step& step) {
    switch (step.kind) {
      case Step::kLoop: return open({true, true, step.index}, is_known(plan_.loops[step.index]));
      case Step::kCond: return open({false, true, step.index}, is_known(plan_.conds[step.index]));
      case Step::kElse: open_.pop_back(); return open({false, false, step.index}, true);
      case Step::kEndLoop:
      case Step::kEndCond: open_.pop_back(); return true;
      case Step::kTask: sites.push_back({step.index, bits()}); return !plan_.sites[step.index].checks_late;
      default: return false;
    }
  }

  bool open(const Guard& guard, bool is_known) {
    open_.push_back(uint32_t(guards.size()));
    guards.push_back(guard);
    return is_known && guards.size() <= kMaxGuards;
  }

  bool is_known(const bytecode::QuickLoop& loop) const {
    return !loop.may_fail && scope_.is_outer(loop.extent) && scope_.is_outer(loop.tile);
  }
  bool is_known(const bytecode::QuickCond& cond) const {
    return !cond.may_fail && scope_.is_outer(cond.condition);
  }

  uint64_t bits() const {
    uint64_t bits = 0;
    for (uint32_t guard : open_) bits |= uint64_t{1} << guard;
    return bits;
  }

  /// Whether a task has an edge from a site that some iterations skip.
  bool names_guarded_tasks() const {
    const bytecode::Program& program = plan_.program();
    for (const GuardedSite& from : sites) {
      const bytecode::SiteForm& form = program.sites[from.site];
      for (uint32_t i = 0; i < form.num_afters; ++i) {
        const uint32_t named = program.afters[form.first_after + i];
        for (const GuardedSite& to : sites) {
          if (to.site == named && has_condition(to)) return true;
        }
      }
    }
    return false;
  }

  bool has_condition(const GuardedSite& site) const {
    for (size_t i = 0; i < guards.size(); ++i) {
      if ((site.guards >> i & 1) != 0 && !guards[i].is_loop) return true;
    }
    return false;
  }

  const Plan& plan_;
  const LoopScope& scope_;
  std::vector<uint32_t> open_;
};

/// `coef` times the index of the loop that is guard number `guard`.
struct InnerTerm {
  int64_t coef;
  uint32_t guard;
};

/// One dimension of the hull of a footprint in an iteration: from the least start to the largest end.
struct HullDim {
  bytecode::Value start;  ///< if it is not affine; else `c0` and `outer`
  int64_t c0 = 0;
  std::vector<bytecode::Term> outer{};
  std::vector<InnerTerm> inner{};
  bytecode::Value extent;
  int64_t size = 0;
};

struct Hull {
  uint32_t space;
  uint64_t guards;
  bool writes;
  bool is_exact = true;  ///< every element of it is touched
  std::vector<HullDim> dims{};
  std::vector<uint32_t> moving{};  ///< dimensions that depend on the iteration
  Box fixed{};                     ///< the others
};

inline bool is_same(const bytecode::Value& a, const bytecode::Value& b, const Plan& plan) {
  if (a.c0 != b.c0 || a.num_terms != b.num_terms || a.postfix != b.postfix) return false;
  for (uint32_t i = 0; i < a.num_terms; ++i) {
    const bytecode::Term &x = plan.terms[a.first_term + i], &y = plan.terms[b.first_term + i];
    if (x.coef != y.coef || x.reg != y.reg) return false;
  }
  return true;
}

inline bool is_same(const HullDim& a, const HullDim& b, const Plan& plan) {
  const auto same_outer = [](auto& x, auto& y) { return x.coef == y.coef && x.reg == y.reg; };
  const auto same_inner = [](auto& x, auto& y) { return x.coef == y.coef && x.guard == y.guard; };
  return a.c0 == b.c0 && is_same(a.start, b.start, plan) && is_same(a.extent, b.extent, plan) &&
         std::equal(a.outer.begin(), a.outer.end(), b.outer.begin(), b.outer.end(), same_outer) &&
         std::equal(a.inner.begin(), a.inner.end(), b.inner.begin(), b.inner.end(), same_inner);
}

/// Makes hulls of footprints.
class HullMaker {
 public:
  HullMaker(const Plan& plan, const LoopScope& scope, const std::vector<Guard>& guards)
      : plan_(plan), scope_(scope), guards_(guards) {}

  Hull make(uint32_t space, const std::vector<int64_t>& size, const Footprint& footprint, uint64_t guards) {
    Hull hull{space, guards, footprint.writes, footprint.row_io < 0};
    used_ = 0;
    for (size_t d = 0; d < size.size(); ++d)
      hull.dims.push_back(make_dim(footprint.dims[d], size[d], guards, hull.is_exact));
    for (uint32_t d = 0; d < hull.dims.size(); ++d) {
      const HullDim& dim = hull.dims[d];
      if (is_fixed(dim)) {
        const auto end = int64_t(uint64_t(dim.c0) + uint64_t(dim.extent.c0));
        std::tie(hull.fixed.lo[d], hull.fixed.hi[d]) = clip(dim, dim.c0, end);
      } else {
        hull.moving.push_back(d);
      }
    }
    return hull;
  }

  /// Clips to the space. Every task is inside it, but the hull may not be.
  static std::pair<int64_t, int64_t> clip(const HullDim& dim, int64_t lo, int64_t hi) {
    return {std::max<int64_t>(lo, 0), std::min<int64_t>(hi, dim.size)};
  }

 private:
  static bool is_fixed(const HullDim& dim) {
    const auto is_constant = [](const bytecode::Value& value) {
      return value.num_terms == 0 && value.postfix == bytecode::kNoPostfix;
    };
    return dim.outer.empty() && dim.inner.empty() && is_constant(dim.start) && is_constant(dim.extent);
  }

  HullDim make_dim(const QuickDim& from, int64_t size, uint64_t guards, bool& is_exact) {
    HullDim dim;
    dim.size = size;
    dim.extent = from.extent;
    if (const int tiles = tile_guard(from, guards); tiles >= 0) {
      dim.extent = plan_.loops[guards_[size_t(tiles)].index].extent;
      is_exact = is_exact && use(uint32_t(tiles));
      return dim;
    }
    if (!scope_.is_outer(from.extent) || from.may_fail) {
      is_exact = false;
      dim.extent = constant(std::min(from.extent_form.range.hi, size));
    }
    if (!from.start_form.affine) {
      if (!from.may_fail && scope_.is_outer(from.start)) {
        dim.start = from.start;
      } else {
        widen(dim, from, is_exact);
      }
      return dim;
    }
    dim.c0 = from.start_form.c0;
    for (const bytecode::Term& term : from.start_form.terms) {
      if (!add_term(dim, term, guards)) {
        widen(dim, from, is_exact);
        return dim;
      }
    }
    is_exact = is_exact && is_gapless(dim, from.extent_form.range.lo);
    return dim;
  }

  /// The guard whose current tile is the dimension, or -1.
  int tile_guard(const QuickDim& dim, uint64_t guards) const {
    if (dim.op != bytecode::Op::DIM_TILE || !dim.start_form.affine || dim.start_form.terms.size() != 1)
      return -1;
    for (uint32_t i = 0; i < guards_.size(); ++i) {
      if ((guards >> i & 1) == 0 || !guards_[i].is_loop) continue;
      const bytecode::QuickLoop& loop = plan_.loops[guards_[i].index];
      const uint32_t reg = dim.start_form.terms[0].reg;
      if (loop.kind == bytecode::AxisKind::TILES && (reg == loop.reg || reg == loop.reg + 1u)) return int(i);
    }
    return -1;
  }

  /// False if the register has no bounds.
  bool add_term(HullDim& dim, const bytecode::Term& term, uint64_t guards) const {
    const LoopScope::Kind kind = scope_.kind(term.reg);
    if (kind == LoopScope::Kind::kUnknown) return false;
    if (kind != LoopScope::Kind::kInner) {
      dim.outer.push_back(term);
      return true;
    }
    for (uint32_t i = 0; i < guards_.size(); ++i) {
      if ((guards >> i & 1) == 0 || !guards_[i].is_loop) continue;
      if (plan_.loops[guards_[i].index].reg != term.reg) continue;
      dim.inner.push_back({term.coef, i});
      return true;
    }
    return false;
  }

  /// The widest range of the dimension.
  static void widen(HullDim& dim, const QuickDim& from, bool& is_exact) {
    is_exact = false;
    const bytecode::Range start = from.start_form.range;
    const int64_t lo = std::clamp<int64_t>(start.lo, 0, dim.size);
    const int64_t last = std::clamp<int64_t>(start.hi, 0, dim.size);
    const int64_t extent = std::clamp<int64_t>(from.extent_form.range.hi, 0, dim.size);
    dim.c0 = lo;
    dim.outer.clear();
    dim.inner.clear();
    dim.extent = constant(last - lo + extent);
  }

  /// Whether inner loops leave no gaps: each step is at most the range of the smaller ones.
  bool is_gapless(HullDim& dim, int64_t width) {
    std::sort(dim.inner.begin(), dim.inner.end(),
              [](const InnerTerm& x, const InnerTerm& y) { return std::abs(x.coef) < std::abs(y.coef); });
    for (const InnerTerm& term : dim.inner) {
      if (!use(term.guard) || std::abs(term.coef) > width) return false;
      const int64_t more = plan_.loops[guards_[term.guard].index].trips.lo - 1;
      width += more <= 0 ? 0 : std::min(more, kFar / std::abs(term.coef)) * std::abs(term.coef);
      width = std::min(width, kFar);
    }
    return true;
  }

  /// Whether the loop of a guard moves no other dimension, because a diagonal is not a box.
  bool use(uint32_t guard) {
    const bool is_new = (used_ >> guard & 1) == 0;
    used_ |= uint64_t{1} << guard;
    return is_new;
  }

  static bytecode::Value constant(int64_t value) {
    bytecode::Value out;
    out.c0 = value;
    return out;
  }

  static constexpr int64_t kFar = int64_t{1} << 61;

  const Plan& plan_;
  const LoopScope& scope_;
  const std::vector<Guard>& guards_;
  uint64_t used_ = 0;
};

}  // namespace detail

/// The export summary of the iterations of a loop. If it is closed, an iteration can be skipped without a
/// walk: products count its tasks, and boxes contain their accesses. The boxes may be too large, never too
/// small.
class UnitSummary {
 public:
  /// The outcome of the inner loops and conditions of an iteration.
  struct Shape {
    uint64_t holds = 0;  ///< a bit per guard
    int64_t trips[detail::kMaxGuards];
  };

  /// \pre the plan outlives this
  UnitSummary(const Plan& plan, const std::vector<Space>& spaces, uint32_t loop)
      : plan_(&plan), is_independent_(graph::is_independent(plan, spaces, loop)) {
    const LoopScope scope(plan, loop);
    detail::GuardFinder finder(plan, scope);
    is_closed_ = finder.run();
    if (!is_closed_) return;
    guards_ = std::move(finder.guards);
    sites_ = std::move(finder.sites);
    detail::HullMaker maker(plan, scope, guards_);
    for (uint32_t i = 0; i < spaces.size(); ++i) add_hulls(maker, i, spaces[i]);
  }

  /// Whether no two iterations of one run of the loop conflict. False if that is not known.
  bool is_independent() const { return is_independent_; }

  /// Whether the rest of this class can be used: the tasks of an iteration do not depend on a walk through
  /// it, and it has no other effects.
  bool is_closed() const { return is_closed_; }

  /// \pre is_closed(), and the loop's registers hold those of an iteration
  Shape shape(const int64_t* registers) const {
    Shape shape;
    for (size_t i = 0; i < guards_.size(); ++i) {
      shape.trips[i] = trips(guards_[i], registers);
      if (shape.trips[i] > 0) shape.holds |= uint64_t{1} << i;
    }
    return shape;
  }

  /// Calls `visit(site, count)` for the sites inside, in program order, with their numbers of tasks.
  template <class Visit>
  void for_sites(const Shape& shape, Visit visit) const {
    for (const detail::GuardedSite& site : sites_) {
      uint64_t count = 1;
      for (uint64_t left = site.guards; left != 0; left &= left - 1) {
        const auto trips = uint64_t(shape.trips[__builtin_ctzll(left)]);
        if (__builtin_mul_overflow(count, trips, &count)) count = UINT64_MAX;
      }
      visit(site.site, count);
    }
  }

  /// The number of tasks of an iteration; UINT64_MAX if it is larger.
  uint64_t count(const Shape& shape) const {
    uint64_t total = 0;
    for_sites(shape, [&](uint32_t, uint64_t count) {
      if (__builtin_add_overflow(total, count, &total)) total = UINT64_MAX;
    });
    return total;
  }

  /// Calls `visit(space, box, touch)` for the accesses of an iteration; `kWrite` if the whole box is written.
  template <class Visit>
  void for_boxes(const Shape& shape, const int64_t* registers, Visit visit) const {
    for (const detail::Hull& hull : hulls_) {
      if ((hull.guards & ~shape.holds) != 0) continue;
      Box box = hull.fixed;
      for (const uint32_t d : hull.moving)
        std::tie(box.lo[d], box.hi[d]) = measure(hull.dims[d], shape, registers);
      visit(hull.space, box, !hull.writes ? Touch::kRead : hull.is_exact ? Touch::kWrite : Touch::kWriteSome);
    }
  }

 private:
  int64_t trips(const detail::Guard& guard, const int64_t* registers) const {
    if (!guard.is_loop) {
      const bool holds = plan_->evaluate(plan_->conds[guard.index].condition, registers) != 0;
      return holds == guard.wanted ? 1 : 0;
    }
    const bytecode::QuickLoop& loop = plan_->loops[guard.index];
    if (loop.trips.is_constant()) return loop.trips.lo;
    const int64_t extent = plan_->evaluate(loop.extent, registers);
    if (loop.kind == bytecode::AxisKind::DENSE || extent <= 0) return extent;
    return (extent - 1) / plan_->evaluate(loop.tile, registers) + 1;
  }

  std::pair<int64_t, int64_t> measure(const detail::HullDim& dim, const Shape& shape,
                                      const int64_t* registers) const {
    uint64_t start = uint64_t(dim.c0);
    if (dim.start.postfix != bytecode::kNoPostfix) start = uint64_t(plan_->evaluate(dim.start, registers));
    for (const bytecode::Term& term : dim.outer) start += uint64_t(term.coef) * uint64_t(registers[term.reg]);
    uint64_t end = start + uint64_t(plan_->evaluate(dim.extent, registers));
    for (const detail::InnerTerm& term : dim.inner) {
      const uint64_t reach = uint64_t(term.coef) * uint64_t(shape.trips[term.guard] - 1);
      (term.coef < 0 ? start : end) += reach;
    }
    return detail::HullMaker::clip(dim, int64_t(start), int64_t(end));
  }

  void add_hulls(detail::HullMaker& maker, uint32_t index, const Space& space) {
    for (const Footprint& footprint : space.footprints) {
      const auto site = std::find_if(sites_.begin(), sites_.end(),
                                     [&](const auto& each) { return each.site == footprint.site; });
      if (site != sites_.end()) add_hull(maker.make(index, space.size, footprint, site->guards));
    }
  }

  /// One of equal hulls represents the others.
  void add_hull(detail::Hull hull) {
    for (detail::Hull& mine : hulls_) {
      if (represents(mine, hull)) {
        const bool is_equal = mine.guards == hull.guards && mine.writes == hull.writes;
        mine.is_exact = mine.is_exact || (is_equal && hull.is_exact);
        return;
      }
      if (!represents(hull, mine)) continue;
      mine = std::move(hull);
      return;
    }
    hulls_.push_back(std::move(hull));
  }

  /// Whether an access to `b` implies one to `a`, and a write to `b` one to `a`.
  bool represents(const detail::Hull& a, const detail::Hull& b) const {
    const auto is_same = [this](auto& x, auto& y) { return detail::is_same(x, y, *plan_); };
    return a.space == b.space && (a.guards & ~b.guards) == 0 && (a.writes || !b.writes) &&
           std::equal(a.dims.begin(), a.dims.end(), b.dims.begin(), is_same);
  }

  const Plan* plan_;
  bool is_independent_;
  bool is_closed_ = false;
  std::vector<detail::Guard> guards_;
  std::vector<detail::GuardedSite> sites_;
  std::vector<detail::Hull> hulls_;
};

}  // namespace pto::wsp::graph
