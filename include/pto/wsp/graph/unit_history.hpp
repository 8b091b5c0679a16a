// SPDX-License-Identifier: MIT
/// \file
/// The units of a walk with symbolic waits: their numbers, and which of them the next unit or task waits for.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "pto/wsp/graph/hazards.hpp"
#include "pto/wsp/graph/symbolic_waits.hpp"

namespace pto::wsp::graph {

/// The units of one walk so far.
class UnitHistory {
 public:
  /// \pre the waits outlive this
  explicit UnitHistory(const SymbolicWaits& waits)
      : waits_(waits),
        places_(waits.num_places()),
        loops_(waits.loops_.size()),
        latest_(waits.plan_.sites.size(), -1) {
    if (waits.has_maps()) maps_.emplace(waits.plan_, Deps::kExact, waits.is_mapped());
  }

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
      at.base = num_units_ - index * facts.distance;
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

  /// The last unit that the next task of the current unit must wait for by maps and edges; -1 if there is
  /// none. Later tasks may wait for the task. \pre waits.is_looked_up(site)
  int64_t look_up(uint32_t site, const int64_t* registers, bool is_ours) {
    const auto unit = uint64_t(num_units_ - 1);
    int64_t wait = -1;
    if (maps_) {
      found_.begin(unit, unit, !is_ours);
      maps_->access(site, registers, {sched::complete_name(unit), unit + 1}, found_);
      found_.finish();
      for (int i = 0; i < found_.size(); ++i) wait = std::max(wait, last_unit_of(found_[i]));
    }
    const bytecode::Program& program = waits_.plan_.program();
    const bytecode::SiteForm& form = program.sites[site];
    for (uint32_t i = 0; i < form.num_afters; ++i) {
      const int64_t latest = latest_[program.afters[form.first_after + i]];
      if (latest != int64_t(unit)) wait = std::max(wait, latest);
    }
    latest_[site] = int64_t(unit);
    return wait;
  }

  /// The value of a flush point at this place. Nothing while `is_complete(unit)` is false for a unit that
  /// writes one of its elements.
  template <class IsComplete>
  std::optional<int64_t> read(const bytecode::Value& value, const int64_t* registers,
                              const IsComplete& is_complete) {
    return bytecode::evaluate_known(waits_.plan_, value, registers,
                                    [&](uint16_t tensor, const int64_t* indices) {
                                      if (!maps_) return true;
                                      found_.begin_look(uint64_t(num_units_));
                                      maps_->find_writers(tensor, indices, found_);
                                      found_.finish();
                                      for (int i = 0; i < found_.size(); ++i) {
                                        if (!is_complete(last_unit_of(found_[i]))) return false;
                                      }
                                      return true;
                                    });
  }

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
    const int64_t distance = waits_.places_[pair.first].distance;
    int64_t lo = 0, hi = (at.last - at.base) / distance;
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
    return lo > hi ? at.last_before : at.base + hi * distance;
  }

  static int64_t last_unit_of(sched::Name name) {
    return sched::is_task_name(name) ? int64_t(sched::slice_of(name)) : int64_t(name) - 1;
  }
  static int64_t narrow(__int128 value) {
    constexpr int64_t kFar = int64_t{1} << 62;
    return int64_t(std::clamp<__int128>(value, -kFar, kFar));
  }
  static int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

  const SymbolicWaits& waits_;
  std::vector<At> places_;
  std::vector<OpenLoop> loops_;  ///< of the loops around units that are open
  std::vector<int64_t> latest_;  ///< per site, the unit of its latest task
  std::optional<Hazards> maps_;  ///< units are slices
  sched::WaitList found_;        ///< of the latest task in `maps_`
  int64_t num_units_ = 0;
  int64_t floor_ = 0;  ///< all earlier units must be complete
};

}  // namespace pto::wsp::graph
