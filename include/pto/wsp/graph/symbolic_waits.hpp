// SPDX-License-Identifier: MIT
/// \file
/// Symbolic waits: which earlier units of work a unit waits for, as a function of its loop indices.
///
/// All units of a walk have numbers in program order. A wait is for all units up to a number, so a walk needs
/// neither maps of regions nor records. For each pair of accesses that may conflict, the analysis keeps the
/// regions as sums over registers. The last unit of the pair follows from the registers of the current unit
/// and from those where the loop of the earlier unit began. Anything that is not a sum counts as a conflict
/// with every earlier unit of the place.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "pto/wsp/graph/independence.hpp"

namespace pto::wsp::graph {

/// A place of the program whose executions are units of work: a task, an iteration of a loop or a whole loop.
struct UnitPlace {
  enum Kind : uint8_t { kTask, kIteration, kWhole } kind;
  uint32_t index;  ///< of the site or loop
};

namespace detail {

/// Bounds of one dimension of an access: [c0 + terms + step * i + lo, c0 + terms + step * i + hi).
struct UnitDim {
  bool is_known = false;  ///< else the whole dimension
  int64_t c0 = 0;
  std::vector<bytecode::Term> terms{};
  int64_t step = 0;  ///< of the loop whose iterations are the units
  int64_t lo = 0, hi = 0;

  int64_t base(const int64_t* registers) const {
    uint64_t sum = uint64_t(c0);
    for (const bytecode::Term& term : terms) sum += uint64_t(term.coef) * uint64_t(registers[term.reg]);
    return int64_t(sum);
  }
};

struct UnitAccess {
  uint32_t space, group;
  bool writes;
  std::vector<UnitDim> here;    ///< of the current unit, from its registers
  std::vector<UnitDim> of_run;  ///< of unit i, from the registers where the loop began
};

/// Accesses of two places that may conflict.
struct UnitPair {
  uint32_t first;             ///< the earlier place
  int32_t apart = -1;         ///< the outermost loop around both whose iterations never conflict
  bool is_whole = false;      ///< every earlier unit of the place may conflict
  bool is_distinct = false;   ///< no two units of one run of the loop conflict
  uint32_t access = 0;        ///< of the current place
  uint32_t first_access = 0;  ///< of the earlier place
};

}  // namespace detail

/// The analysis of a plan. Walks share it.
class SymbolicWaits {
 public:
  /// \param events  per loop, what a walk with units has
  /// \param is_unit  per site, whether each task is a unit
  /// \pre the plan outlives this
  SymbolicWaits(const Plan& plan, const std::vector<bytecode::LoopEvents>& events,
                const std::vector<bool>& is_unit)
      : plan_(plan), spaces_(find_spaces(plan)), loops_(plan.loops.size()), sites_(plan.sites.size(), -1) {
    is_complete_ = can_analyse(events);
    if (!is_complete_) return;
    for (uint32_t loop = 0; loop < plan.loops.size(); ++loop) add_loop(loop, events[loop]);
    for (uint32_t site = 0; site < plan.sites.size(); ++site) {
      if (is_unit[site]) add_site(site);
    }
    for (uint32_t i = 0; i < places_.size(); ++i) find_accesses(i);
    for (uint32_t i = 0; i < places_.size(); ++i) find_pairs(i);
    mark_events(events);
  }

  /// Whether waits cover every hazard of the plan.
  bool is_complete() const { return is_complete_; }
  size_t num_places() const { return places_.size(); }
  /// The place of a loop or site whose executions are units; -1 if there is none.
  int32_t place_of_loop(uint32_t loop) const { return loops_[loop].place; }
  int32_t place_of_site(uint32_t site) const { return sites_[site]; }
  /// What a walk needs: events of loops around units in addition to those of units.
  const std::vector<bytecode::LoopEvents>& events() const { return events_; }
  bool is_sequence(uint32_t loop) const { return loops_[loop].is_sequence; }

  // For tests

  size_t num_pairs_of(uint32_t place) const { return places_[place].pairs.size(); }
  /// Leaves out a pair of a place.
  void drop(uint32_t place, size_t pair) {
    auto& pairs = places_[place].pairs;
    pairs.erase(pairs.begin() + std::ptrdiff_t(pair));
  }

 private:
  friend class UnitHistory;
  using Wide = __int128;

  struct PlaceFacts {
    UnitPlace place;
    int32_t run_loop;             ///< whose iterations are consecutive units; -1: none
    int32_t parent;               ///< the loop around the units
    std::vector<uint32_t> sites;  ///< inside
    std::vector<detail::UnitAccess> accesses{};
    std::vector<detail::UnitPair> pairs{};
  };
  struct LoopFacts {
    int32_t place = -1;
    int32_t is_apart = -1;  ///< unknown, or whether iterations never conflict
    bool is_sequence = false;
  };

  /// Explicit edges, flush points and indices that tasks write are left to the maps.
  bool can_analyse(const std::vector<bytecode::LoopEvents>& events) {
    const bytecode::Program& program = plan_.program();
    for (const bytecode::SetForm& set : program.sets) {
      if (set.is_flush) return false;
    }
    for (const bytecode::SiteForm& site : program.sites) {
      if (site.num_afters > 0) return false;
    }
    for (uint32_t loop = 0; loop < plan_.loops.size(); ++loop) {
      loops_[loop].is_sequence = events[loop] == bytecode::LoopEvents::kGroups;
      // Units of other iterations of the loop around it would wait, too.
      if (loops_[loop].is_sequence && has_parallel_around(loop)) return false;
    }
    return true;
  }

  bool has_parallel_around(uint32_t loop) const {
    for (int32_t up = parent_of(loop); up >= 0; up = parent_of(uint32_t(up))) {
      if (plan_.program().loops[size_t(up)].op != bytecode::Op::FOR_EACH) return true;
    }
    return false;
  }
  int32_t parent_of(uint32_t loop) const { return plan_.program().loops[loop].parent; }

  void add_loop(uint32_t loop, bytecode::LoopEvents events) {
    using bytecode::LoopEvents;
    if (events != LoopEvents::kIterations && events != LoopEvents::kWhole) return;
    loops_[loop].place = int32_t(places_.size());
    const bool is_whole = events == LoopEvents::kWhole;
    PlaceFacts facts{{is_whole ? UnitPlace::kWhole : UnitPlace::kIteration, loop},
                     is_whole ? -1 : int32_t(loop),
                     is_whole ? parent_of(loop) : int32_t(loop),
                     {}};
    const LoopScope scope(plan_, loop);
    for (uint32_t site = 0; site < plan_.sites.size(); ++site) {
      if (scope.holds(plan_.sites[site].pc)) facts.sites.push_back(site);
    }
    places_.push_back(std::move(facts));
  }

  void add_site(uint32_t site) {
    sites_[site] = int32_t(places_.size());
    const int32_t loop = plan_.program().sites[site].loop;
    const bool has_run = loop >= 0 && is_only_task(uint32_t(loop));
    PlaceFacts facts{{UnitPlace::kTask, site}, has_run ? loop : -1, loop, {site}};
    places_.push_back(std::move(facts));
  }

  /// Whether the body of a loop is one task.
  bool is_only_task(uint32_t loop) const {
    const bytecode::Program& program = plan_.program();
    const LoopScope scope(plan_, loop);
    const auto inside = [&](const auto& forms, auto pc_of) {
      return std::count_if(forms.begin(), forms.end(),
                           [&](const auto& form) { return scope.holds(pc_of(form)); });
    };
    return inside(program.sites, [](const auto& form) { return form.pc; }) == 1 &&
           inside(program.loops, [](const auto& form) { return form.begin_pc; }) == 0 &&
           inside(program.conds, [](const auto& form) { return form.pc; }) == 0;
  }

  void find_accesses(uint32_t number) {
    PlaceFacts& facts = places_[number];
    for (uint32_t space = 0; space < spaces_.size(); ++space) {
      for (const Footprint& footprint : spaces_[space].footprints) {
        if (std::find(facts.sites.begin(), facts.sites.end(), footprint.site) == facts.sites.end()) continue;
        detail::UnitAccess access{space, spaces_[space].group(), footprint.writes, {}, {}};
        for (size_t d = 0; d < footprint.dims.size(); ++d) {
          access.here.push_back(make_dim(facts, footprint.dims[d], spaces_[space].size[d], true));
          access.of_run.push_back(make_dim(facts, footprint.dims[d], spaces_[space].size[d], false));
        }
        facts.accesses.push_back(std::move(access));
      }
    }
  }

  /// \param is_here  for the registers of the unit itself, else for those where its loop began
  detail::UnitDim make_dim(const PlaceFacts& facts, const QuickDim& dim, int64_t size, bool is_here) const {
    constexpr Wide kFar = Wide(1) << 60;
    detail::UnitDim out;
    if (!dim.start_form.affine || dim.start_form.range.is_constant()) {
      if (!dim.start_form.range.is_constant()) return out;
      out.is_known = true;
      out.c0 = dim.start_form.range.lo;
      out.hi = std::min(dim.extent_form.range.hi, size);
      return out;
    }
    out.c0 = dim.start_form.c0;
    Wide lo = 0, hi = std::min(dim.extent_form.range.hi, size);
    for (const bytecode::Term& term : dim.start_form.terms) {
      switch (kind_of(facts, term.reg, is_here)) {
        case Register::kValue: out.terms.push_back(term); break;
        case Register::kStep: out.step += term.coef; break;
        case Register::kRange: {
          const Wide most = Wide(term.coef) * largest(term.reg);
          (most < 0 ? lo : hi) += most;
          break;
        }
        case Register::kAnything: return {};
      }
    }
    if (lo < -kFar || hi > kFar) return {};
    out.is_known = true;
    out.lo = int64_t(lo);
    out.hi = int64_t(hi);
    return out;
  }

  enum class Register : uint8_t { kValue, kStep, kRange, kAnything };

  Register kind_of(const PlaceFacts& facts, uint32_t reg, bool is_here) const {
    using Kind = LoopScope::Kind;
    const bool is_task = facts.place.kind == UnitPlace::kTask;
    if (is_task && is_here) return Register::kValue;
    const int32_t loop = is_task ? facts.run_loop : int32_t(facts.place.index);
    if (loop < 0) return Register::kAnything;  // such a place is waited for as a whole
    const Kind kind = LoopScope(plan_, uint32_t(loop)).kind(reg);
    if (kind == Kind::kFixed) return Register::kValue;
    if (kind == Kind::kInner) return Register::kRange;
    if (facts.place.kind == UnitPlace::kWhole)
      return kind == Kind::kIndex ? Register::kRange : Register::kAnything;
    if (kind == Kind::kIndex) return is_here ? Register::kValue : Register::kStep;
    return is_here && kind == Kind::kOwn ? Register::kValue : Register::kAnything;
  }

  /// The largest value of a register that is the index of some loops.
  Wide largest(uint32_t reg) const {
    int64_t most = 0;
    for (const bytecode::QuickLoop& loop : plan_.loops) {
      if (loop.reg == reg) most = std::max(most, loop.trips.hi - 1);
    }
    return most;
  }

  bool are_apart(uint32_t loop) {
    if (loops_[loop].is_apart < 0) loops_[loop].is_apart = is_independent(plan_, spaces_, loop) ? 1 : 0;
    return loops_[loop].is_apart == 1;
  }

  void find_pairs(uint32_t number) {
    PlaceFacts& second = places_[number];
    for (uint32_t first = 0; first < places_.size(); ++first) {
      const PlaceFacts& earlier = places_[first];
      detail::UnitPair pair{first};
      pair.apart = outermost_apart(earlier, second);
      pair.is_distinct = first == number && earlier.run_loop >= 0 && are_apart(uint32_t(earlier.run_loop));
      for (uint32_t a = 0; a < earlier.accesses.size(); ++a) {
        for (uint32_t b = 0; b < second.accesses.size(); ++b) {
          const detail::UnitAccess &x = earlier.accesses[a], &y = second.accesses[b];
          if (x.group != y.group || !(x.writes || y.writes)) continue;
          pair.is_whole = earlier.run_loop < 0 || x.space != y.space;
          pair.first_access = a;
          pair.access = b;
          second.pairs.push_back(pair);
        }
      }
    }
  }

  /// The outermost loop around both places whose iterations never conflict, outside their own loops; or -1.
  int32_t outermost_apart(const PlaceFacts& a, const PlaceFacts& b) {
    int32_t found = -1;
    for (int32_t up = outside(a); up >= 0; up = parent_of(uint32_t(up))) {
      bool is_common = false;
      for (int32_t other = outside(b); other >= 0; other = parent_of(uint32_t(other)))
        is_common = is_common || other == up;
      if (is_common && are_apart(uint32_t(up))) found = up;
    }
    return found;
  }
  int32_t outside(const PlaceFacts& facts) const {
    return facts.run_loop >= 0 ? parent_of(uint32_t(facts.run_loop)) : facts.parent;
  }

  /// Loops around units have events, so that a walk knows where their iterations begin.
  void mark_events(const std::vector<bytecode::LoopEvents>& events) {
    events_ = events;
    for (const PlaceFacts& facts : places_) {
      for (int32_t up = outside(facts); up >= 0; up = parent_of(uint32_t(up)))
        events_[size_t(up)] = bytecode::LoopEvents::kGroups;
    }
  }

  const Plan& plan_;
  const std::vector<Space> spaces_;
  std::vector<LoopFacts> loops_;
  std::vector<int32_t> sites_;
  std::vector<PlaceFacts> places_;
  std::vector<bytecode::LoopEvents> events_;
  bool is_complete_ = false;
};

/// The units of one walk so far.
class UnitHistory {
 public:
  /// \pre the waits outlive this
  explicit UnitHistory(const SymbolicWaits& waits)
      : waits_(waits), places_(waits.num_places()), loops_(waits.loops_.size()) {}

  int64_t num_units() const { return num_units_; }

  // Loops around units

  void enter(uint32_t loop) {
    loops_[loop] = {num_units_, num_units_};
    if (waits_.is_sequence(loop)) floor_ = num_units_;
  }
  void begin_iteration(uint32_t loop) {
    loops_[loop].iteration = num_units_;
    if (waits_.is_sequence(loop)) floor_ = num_units_;
  }

  /// Begins a unit of a place and returns its number.
  int64_t begin(uint32_t place, const int64_t* registers) {
    const SymbolicWaits::PlaceFacts& facts = waits_.places_[place];
    At& at = places_[place];
    const int64_t index = facts.run_loop < 0 ? 0 : registers[waits_.plan_.loops[size_t(facts.run_loop)].reg];
    if (index == 0 || at.registers.empty()) {
      at.last_before = at.last;
      at.base = num_units_ - index;
      at.registers.assign(registers, registers + waits_.plan_.program().header.num_registers);
    }
    return num_units_++;
  }

  /// The number of the last unit that may conflict with the current one, of `place`; -1 if there is none.
  int64_t find_wait(uint32_t place, const int64_t* registers) const {
    int64_t wait = floor_ - 1;
    const SymbolicWaits::PlaceFacts& facts = waits_.places_[place];
    for (const detail::UnitPair& pair : facts.pairs) {
      if (places_[pair.first].last > wait) wait = std::max(wait, last_of(pair, facts, registers));
    }
    return wait;
  }

  /// Ends the begin of a unit: later units may wait for it.
  void note(uint32_t place) { places_[place].last = num_units_ - 1; }

 private:
  struct At {
    int64_t base = 0;          ///< number of the unit of iteration 0
    int64_t last = -1;         ///< the last unit
    int64_t last_before = -1;  ///< the last unit before the latest run of the loop
    std::vector<int64_t> registers{};
  };
  struct OpenLoop {
    int64_t run = 0, iteration = 0;  ///< numbers of the units with which they began
  };

  int64_t last_of(const detail::UnitPair& pair, const SymbolicWaits::PlaceFacts& facts,
                  const int64_t* registers) const {
    const At& at = places_[pair.first];
    int64_t last = at.last;
    if (pair.is_distinct) {
      last = at.last_before;
    } else if (!pair.is_whole) {
      last = last_in_run(pair, facts.accesses[pair.access], at, registers);
    }
    if (pair.apart < 0) return last;
    const OpenLoop& loop = loops_[size_t(pair.apart)];
    return last < loop.iteration ? std::min(last, loop.run - 1) : last;
  }

  int64_t last_in_run(const detail::UnitPair& pair, const detail::UnitAccess& second, const At& at,
                      const int64_t* registers) const {
    using Wide = __int128;
    const detail::UnitAccess& first = waits_.places_[pair.first].accesses[pair.first_access];
    int64_t lo = 0, hi = at.last - at.base;
    for (size_t d = 0; d < second.here.size(); ++d) {
      const detail::UnitDim &mine = second.here[d], &theirs = first.of_run[d];
      if (!mine.is_known || !theirs.is_known) continue;
      const Wide here = mine.base(registers), there = theirs.base(at.registers.data());
      // Unit i conflicts if step * i < above and step * i > below.
      const int64_t above = narrow(here + mine.hi - there - theirs.lo);
      const int64_t below = narrow(here + mine.lo - there - theirs.hi);
      if (theirs.step == 0) {
        if (above <= 0 || below >= 0) return at.last_before;
      } else if (theirs.step > 0) {
        hi = std::min(hi, floor_div(above - 1, theirs.step));
        lo = std::max(lo, floor_div(below, theirs.step) + 1);
      } else {
        hi = std::min(hi, floor_div(-below - 1, -theirs.step));
        lo = std::max(lo, floor_div(-above, -theirs.step) + 1);
      }
    }
    return lo > hi ? at.last_before : at.base + hi;
  }

  static int64_t narrow(__int128 value) {
    constexpr int64_t kFar = int64_t{1} << 62;
    return int64_t(std::clamp<__int128>(value, -kFar, kFar));
  }
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

  const SymbolicWaits& waits_;
  std::vector<At> places_;
  std::vector<OpenLoop> loops_;  ///< of the loops around units that are open
  int64_t num_units_ = 0;
  int64_t floor_ = 0;  ///< all earlier units must be complete
};

}  // namespace pto::wsp::graph
