// SPDX-License-Identifier: MIT
/// \file
/// Symbolic waits: which earlier units of work a unit waits for, as a function of its loop indices.
///
/// All units of a walk have numbers in program order. A wait is for all units up to a number, so a walk needs
/// neither maps of regions nor records. For each pair of accesses that may conflict, the analysis keeps the
/// regions as sums over registers. The last unit of the pair follows from the registers of the current unit
/// and from those where the loop of the earlier unit began. Anything that is not a sum counts as a conflict
/// with every earlier unit of the place.
///
/// Such a conflict would run the iterations of a loop around both one after another. Hazard maps then order
/// the accesses of this memory alone, and their names are numbers of units. Edges are found in the same way.
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
    unit_events_ = events;
    for (uint32_t loop = 0; loop < plan.loops.size(); ++loop) add_loop(loop, events[loop]);
    for (uint32_t site = 0; site < plan.sites.size(); ++site) {
      if (is_unit[site]) add_site(site);
    }
    for (uint32_t i = 0; i < places_.size(); ++i) find_accesses(i);
    is_mapped_.assign(plan.layouts.size(), false);
    for (uint32_t i = 0; i < places_.size(); ++i) find_pairs(i);
    find_flushed();
    leave_to_maps();
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
  /// Per memory, whether hazard maps order its accesses.
  const std::vector<bool>& is_mapped() const { return is_mapped_; }
  bool has_maps() const { return num_mapped_ > 0; }
  /// Whether each task of a site has to be looked up: it has accesses in maps, or edges.
  bool is_looked_up(uint32_t site) const { return is_looked_up_[site]; }
  /// Whether the tasks of a place have to be walked by every worker.
  bool has_looked_up(uint32_t place) const { return places_[place].has_looked_up; }
  /// Accesses of memory that tasks write: those with symbolic waits, and those in maps.
  uint32_t num_symbolic() const { return num_symbolic_; }
  uint32_t num_mapped() const { return num_mapped_; }

  // For tests

  size_t num_pairs_of(uint32_t place) const { return places_[place].pairs.size(); }
  /// Leaves out the map of a memory.
  void drop_map(uint32_t memory) { is_mapped_[memory] = false; }
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
    int32_t run_loop;             ///< whose iterations have units at equal distances; -1: none
    int32_t parent;               ///< the loop around the units
    std::vector<uint32_t> sites;  ///< inside
    std::vector<detail::UnitAccess> accesses{};
    std::vector<detail::UnitPair> pairs{};
    int64_t distance = 1;  ///< of the units of two consecutive iterations of `run_loop`
    bool has_looked_up = false;
  };
  struct LoopFacts {
    int32_t place = -1;
    std::vector<int8_t> is_apart{};  ///< per memory, whether iterations never conflict in it; -1: unknown
    bool is_sequence = false;
  };

  bool can_analyse(const std::vector<bytecode::LoopEvents>& events) {
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
    PlaceFacts facts{{UnitPlace::kTask, site}, -1, loop, {site}};
    const int64_t units = loop < 0 ? 0 : units_of_iteration(uint32_t(loop));
    if (units > 0) {
      facts.run_loop = loop;
      facts.distance = units;
    }
    places_.push_back(std::move(facts));
  }

  /// How many units each iteration of a loop has, where iterations are not units; 0 if that is not one
  /// number.
  int64_t units_of_iteration(uint32_t loop) const {
    constexpr int64_t kMost = int64_t{1} << 40;
    const bytecode::Program& program = plan_.program();
    const LoopScope scope(plan_, loop);
    for (const bytecode::CondForm& cond : program.conds) {
      if (scope.holds(cond.pc)) return 0;
    }
    int64_t units = 0;
    for (uint32_t site = 0; site < program.sites.size(); ++site)
      units += program.sites[site].loop == int32_t(loop);
    for (uint32_t inner = 0; inner < program.loops.size(); ++inner) {
      if (program.loops[inner].parent != int32_t(loop)) continue;
      const int64_t of_inner = units_of_loop(inner);
      if (of_inner < 0 || of_inner > kMost - units) return 0;
      units += of_inner;
    }
    return units;
  }

  /// The same of a whole loop; -1 if that is not one number.
  int64_t units_of_loop(uint32_t loop) const {
    using bytecode::LoopEvents;
    const bytecode::Range trips = plan_.loops[loop].trips;
    if (unit_events_[loop] == LoopEvents::kWhole) return trips.lo > 0 ? 1 : trips.hi == 0 ? 0 : -1;
    const bool is_unit = unit_events_[loop] == LoopEvents::kIterations;
    const int64_t units = is_unit ? 1 : units_of_iteration(loop);
    int64_t total;
    if (!trips.is_constant() || units == 0 || __builtin_mul_overflow(units, trips.lo, &total)) return -1;
    return total;
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

  /// Whether iterations of a loop never conflict in a memory.
  bool are_apart(uint32_t loop, uint32_t memory) {
    std::vector<int8_t>& known = loops_[loop].is_apart;
    if (known.empty()) known.assign(plan_.layouts.size(), -1);
    if (known[memory] < 0) known[memory] = is_apart(plan_, spaces_, loop, memory) ? 1 : 0;
    return known[memory] == 1;
  }

  void find_pairs(uint32_t number) {
    PlaceFacts& second = places_[number];
    for (uint32_t first = 0; first < places_.size(); ++first) {
      const PlaceFacts& earlier = places_[first];
      detail::UnitPair pair{first};
      for (uint32_t a = 0; a < earlier.accesses.size(); ++a) {
        for (uint32_t b = 0; b < second.accesses.size(); ++b) {
          const detail::UnitAccess &x = earlier.accesses[a], &y = second.accesses[b];
          if (x.group != y.group || !(x.writes || y.writes)) continue;
          pair.apart = outermost_apart(earlier, second, x.group);
          pair.is_distinct =
              first == number && earlier.run_loop >= 0 && are_apart(uint32_t(earlier.run_loop), x.group);
          pair.is_whole = earlier.run_loop < 0 || x.space != y.space;
          pair.first_access = a;
          pair.access = b;
          second.pairs.push_back(pair);
          if (!pair.is_distinct && is_loose(pair, x, y) && would_serialise(first, number, x.group))
            is_mapped_[x.group] = true;
        }
      }
    }
  }

  /// Whether the last unit of a pair is not known from registers.
  bool is_loose(const detail::UnitPair& pair, const detail::UnitAccess& first,
                const detail::UnitAccess& second) const {
    if (pair.is_whole) return places_[pair.first].parent >= 0;
    const auto is_known = [](const detail::UnitDim& dim) { return dim.is_known; };
    return !std::all_of(first.of_run.begin(), first.of_run.end(), is_known) ||
           !std::all_of(second.here.begin(), second.here.end(), is_known);
  }

  /// Whether iterations of the innermost loop around two places could run together, but not if the second
  /// place waits for all earlier units of the first.
  bool would_serialise(uint32_t first, uint32_t second, uint32_t memory) {
    for (int32_t up = places_[second].parent; up >= 0; up = parent_of(uint32_t(up))) {
      for (int32_t other = places_[first].parent; other >= 0; other = parent_of(uint32_t(other)))
        if (other == up) return !are_apart(uint32_t(up), memory) && !loops_[size_t(up)].is_sequence;
    }
    return false;
  }

  /// Leaves memory that flush points read to maps, which know the latest writers of an element.
  void find_flushed() {
    const bytecode::Program& program = plan_.program();
    for (const bytecode::QuickSet& set : plan_.sets) {
      if (!set.is_flush || set.value.postfix == bytecode::kNoPostfix) continue;
      for (uint32_t pc = set.value.postfix; program.instructions[pc].op != bytecode::Op::EXPR_END; ++pc) {
        const bytecode::Instruction in = program.instructions[pc];
        if (in.op == bytecode::Op::EXPR_ELEMENT && program.tensors[in.operand1].written != 0)
          is_mapped_[plan_.layouts[in.operand1].group] = true;
      }
    }
  }

  /// Drops the pairs that maps order, and marks the sites with accesses in maps or with edges.
  void leave_to_maps() {
    is_looked_up_.assign(plan_.sites.size(), false);
    for (PlaceFacts& facts : places_) {
      const auto is_left = [&](const detail::UnitPair& pair) {
        return is_mapped_[facts.accesses[pair.access].group];
      };
      facts.pairs.erase(std::remove_if(facts.pairs.begin(), facts.pairs.end(), is_left), facts.pairs.end());
    }
    std::vector<bool> is_written(is_mapped_.size(), false);
    for (const Space& space : spaces_)
      is_written[space.group()] = is_written[space.group()] || space.is_written;
    for (const Space& space : spaces_) {
      const bool is_mapped = is_mapped_[space.group()];
      if (is_written[space.group()]) (is_mapped ? num_mapped_ : num_symbolic_) += space.footprints.size();
      for (const Footprint& footprint : space.footprints) {
        if (is_mapped) is_looked_up_[footprint.site] = true;
      }
    }
    const bytecode::Program& program = plan_.program();
    for (uint32_t site = 0; site < program.sites.size(); ++site) {
      const bytecode::SiteForm& form = program.sites[site];
      for (uint32_t i = 0; i < form.num_afters; ++i)
        is_looked_up_[site] = is_looked_up_[program.afters[form.first_after + i]] = true;
    }
    for (PlaceFacts& facts : places_) {
      for (const uint32_t site : facts.sites)
        facts.has_looked_up = facts.has_looked_up || is_looked_up_[site] || has_flush(facts);
    }
  }

  /// The outermost loop around both places whose iterations never conflict, outside their own loops; or -1.
  int32_t outermost_apart(const PlaceFacts& a, const PlaceFacts& b, uint32_t memory) {
    int32_t found = -1;
    for (int32_t up = outside(a); up >= 0; up = parent_of(uint32_t(up))) {
      bool is_common = false;
      for (int32_t other = outside(b); other >= 0; other = parent_of(uint32_t(other)))
        is_common = is_common || other == up;
      if (is_common && are_apart(uint32_t(up), memory)) found = up;
    }
    return found;
  }
  int32_t outside(const PlaceFacts& facts) const {
    return facts.run_loop >= 0 ? parent_of(uint32_t(facts.run_loop)) : facts.parent;
  }

  bool has_flush(const PlaceFacts& facts) const {
    if (facts.place.kind == UnitPlace::kTask) return false;
    const LoopScope scope(plan_, facts.place.index);
    const auto& sets = plan_.program().sets;
    return std::any_of(sets.begin(), sets.end(),
                       [&](const bytecode::SetForm& set) { return set.is_flush && scope.holds(set.pc); });
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
  std::vector<bytecode::LoopEvents> unit_events_, events_;
  std::vector<bool> is_mapped_;     ///< per memory
  std::vector<bool> is_looked_up_;  ///< per site
  uint32_t num_symbolic_ = 0, num_mapped_ = 0;
  bool is_complete_ = false;
};

}  // namespace pto::wsp::graph
