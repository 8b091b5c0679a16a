// SPDX-License-Identifier: MIT
/// \file
/// Divides program order into units of work for workers, and estimates the cost of tasks.
#pragma once

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::sched {

/// The units of a plan, for walks that cut program order into strands.
struct Marks {
  struct Site {
    /// Depth of the loop around it, if each of its iterations has a task of the site and all of them are in
    /// one unit; else -1.
    int32_t repeat_depth = -1;
    bool is_unit = false;  ///< each task is one unit
  };

  /// kIterations: each iteration is one unit. kWhole: the loop is one unit. kGroups: an iteration may start
  /// only when the one before is complete.
  std::vector<bytecode::LoopEvents> loops;
  std::vector<Site> sites;
  std::vector<uint8_t> continues_unit;     ///< per SET: it is inside a unit
  std::vector<bytecode::QuickStep> steps;  ///< of the plan, with the events of `loops`
};

namespace detail {

using bytecode::LoopEvents;
using bytecode::Op;

/// Marks loops from the outside in.
///
/// Units are the iterations of a P or range loop that has no P inside and makes two or more tasks, and whole
/// P.seq loops whose body is straight-line (their iterations could not overlap anyway). A loop with too few
/// iterations is divided further, and so is a loop with long tasks, which workers share one by one. Every
/// other P.seq loop orders its iterations by a barrier; tasks outside all units are units of their own. If
/// units may be cut, no unit contains a P.seq loop, because only the order of tasks inside a unit separates
/// its iterations.
class UnitMarker {
 public:
  /// \param is_long  per site; empty: no task is long
  UnitMarker(const bytecode::Plan& plan, uint64_t min_units, bool are_cut, std::vector<bool> is_long)
      : plan_(plan),
        program_(plan.program()),
        min_units_(min_units),
        are_cut_(are_cut),
        is_long_(std::move(is_long)),
        sums_(program_.loops.size()) {}

  Marks run() {
    summarize();
    Marks marks;
    marks.loops.resize(program_.loops.size(), LoopEvents::kNone);
    marks.continues_unit.resize(program_.sets.size(), 0);
    std::vector<bool> is_inside(program_.loops.size(), false);
    for (size_t i = 0; i < program_.loops.size(); ++i) {
      const int32_t parent = program_.loops[i].parent;
      const bool in_unit = parent >= 0 && is_inside[size_t(parent)];
      marks.loops[i] = in_unit ? LoopEvents::kNone : events_of(i);
      is_inside[i] =
          in_unit || marks.loops[i] == LoopEvents::kIterations || marks.loops[i] == LoopEvents::kWhole;
    }
    for (size_t s = 0; s < program_.sites.size(); ++s) {
      const int32_t loop = program_.sites[s].loop;
      const bool is_unit = loop < 0 || !is_inside[size_t(loop)];
      const bool repeats = !is_unit && !are_cut_ && does_repeat(program_.sites[s], marks);
      marks.sites.push_back({repeats ? plan_.loops[size_t(loop)].depth : -1, is_unit});
    }
    for (size_t i = 0; i < program_.loops.size(); ++i) {
      const bytecode::LoopForm& loop = program_.loops[i];
      for (size_t s = 0; s < program_.sets.size() && is_inside[i]; ++s)
        marks.continues_unit[s] |= program_.sets[s].pc > loop.begin_pc && program_.sets[s].pc < loop.end_pc;
    }
    marks.steps = bytecode::with_events(plan_, [&](uint32_t loop) { return marks.loops[loop]; });
    return marks;
  }

 private:
  struct Summary {
    bool has_parallel_inside = false;
    bool has_range_inside = false;
    bool has_sequence_inside = false;
    bool has_loop_inside = false;
    bool has_long_task = false;
    int sites = 0;
  };

  /// Outer loops come first in the list, so a backward pass visits inner loops first.
  void summarize() {
    for (size_t site = 0; site < program_.sites.size(); ++site) {
      const int32_t loop = program_.sites[site].loop;
      if (loop < 0) continue;
      Summary& sum = sums_[size_t(loop)];
      ++sum.sites;
      sum.has_long_task = sum.has_long_task || (!is_long_.empty() && is_long_[site]);
    }
    for (size_t i = program_.loops.size(); i-- > 0;) {
      const int32_t parent = program_.loops[i].parent;
      if (parent < 0) continue;
      const Op op = program_.loops[i].op;
      Summary& up = sums_[size_t(parent)];
      up.has_parallel_inside =
          up.has_parallel_inside || op == Op::PARALLEL_FOR || sums_[i].has_parallel_inside;
      up.has_range_inside = up.has_range_inside || op == Op::RANGE_FOR || sums_[i].has_range_inside;
      up.has_sequence_inside = up.has_sequence_inside || op == Op::FOR_EACH || sums_[i].has_sequence_inside;
      up.has_loop_inside = true;
      up.has_long_task = up.has_long_task || sums_[i].has_long_task;
      up.sites += sums_[i].sites;
    }
  }

  LoopEvents events_of(size_t i) const {
    const Summary& sum = sums_[i];
    const bool is_sequential = program_.loops[i].op == Op::FOR_EACH;
    if (is_sequential) {
      const bool is_shared = sum.has_long_task && sum.sites > 1;
      const bool is_straight = !sum.has_parallel_inside && !sum.has_range_inside && !are_cut_ && !is_shared;
      return is_straight ? LoopEvents::kWhole : LoopEvents::kGroups;
    }
    const bool makes_several = sum.sites > 1 || (sum.sites == 1 && sum.has_loop_inside);
    const bool is_whole =
        !sum.has_parallel_inside && !(are_cut_ && sum.has_sequence_inside) && !sum.has_long_task;
    const bool is_unit = is_whole && makes_several && num_units(i) >= min_units_;
    return is_unit ? LoopEvents::kIterations : LoopEvents::kNone;
  }

  /// Whether a task of a unit is in every iteration of the loop around it, and no flush point reads its
  /// results in between.
  bool does_repeat(const bytecode::SiteForm& site, const Marks& marks) const {
    const bytecode::LoopForm& loop = program_.loops[size_t(site.loop)];
    const bool ends_unit = marks.loops[size_t(site.loop)] == LoopEvents::kIterations;
    const bool is_flushed = std::any_of(program_.sets.begin(), program_.sets.end(), [&](const auto& set) {
      return set.is_flush && set.pc > loop.begin_pc && set.pc < loop.end_pc;
    });
    return !ends_unit && !is_flushed && is_in_every_iteration(loop, site);
  }

  /// The largest number of iterations of loop `i` in flight.
  uint64_t num_units(size_t i) const {
    uint64_t units = 1;
    for (auto loop = int32_t(i); loop >= 0; loop = program_.loops[size_t(loop)].parent) {
      if (program_.loops[size_t(loop)].op == Op::FOR_EACH) continue;
      const auto trips = uint64_t(plan_.loops[size_t(loop)].trips.hi);
      if (__builtin_mul_overflow(units, trips, &units)) return UINT64_MAX;
    }
    return units;
  }

  const bytecode::Plan& plan_;
  const bytecode::Program& program_;
  uint64_t min_units_;
  bool are_cut_;
  std::vector<bool> is_long_;
  std::vector<Summary> sums_;
};

/// Short tasks are gathered until they take this time.
inline constexpr uint64_t kGatherNs = 10000;
inline constexpr double kStrandsPerWorker = 8;  ///< least number, for a site without times
inline constexpr double kFewTasks = 128;  ///< a program with fewer tasks is not gathered: all may be long
inline constexpr double kGuessNs = 50;
inline constexpr double kGuessNsPerElement = 0.25;

/// The largest number of runs of the body of a loop; 1 for the program itself.
inline double count_iterations(const bytecode::Plan& plan, int32_t loop) {
  double iterations = 1;
  for (; loop >= 0; loop = plan.program().loops[size_t(loop)].parent)
    iterations *= double(plan.loops[size_t(loop)].trips.hi);
  return iterations;
}

/// The largest number of elements in the regions of a task.
inline double count_elements(const bytecode::Plan& plan, const bytecode::QuickSite& site) {
  double elements = 0;
  for (uint32_t i = site.first_io; i < site.first_io + site.num_io; ++i) {
    const bytecode::QuickIo& io = plan.ios[i];
    double volume = 1;
    for (uint32_t d = io.first_dim; d < io.first_dim + io.rank; ++d) {
      const int64_t size = plan.layouts[io.tensor].shape[d - io.first_dim];
      volume *= double(std::clamp<int64_t>(plan.dims[d].extent_form.range.hi, 0, std::max<int64_t>(size, 0)));
    }
    elements += volume;
  }
  return elements;
}

/// Estimates a task of a site by the elements that it touches.
inline double guess_ns(const bytecode::Plan& plan, uint32_t site) {
  return kGuessNs + count_elements(plan, plan.sites[site]) * kGuessNsPerElement;
}

}  // namespace detail

/// Finds the units of a plan for a number of workers. With `are_cut`, a unit may be cut between any two
/// tasks.
/// \param is_long  per site, whether workers should share its tasks one by one; empty: none
inline Marks mark_units(const bytecode::Plan& plan, uint32_t workers, bool are_cut = false,
                        std::vector<bool> is_long = {}) {
  return detail::UnitMarker(plan, 4 * uint64_t(workers), are_cut, std::move(is_long)).run();
}

/// Estimates a task of each site in nanoseconds before it is measured. The estimate grows with the elements
/// that the task touches. It has a lower bound, so that gathering leaves strands for each worker. Few tasks
/// are not gathered.
inline std::vector<uint32_t> guess_costs(const bytecode::Plan& plan, uint32_t workers) {
  std::vector<double> tasks;
  for (const bytecode::SiteForm& site : plan.program().sites)
    tasks.push_back(std::max(detail::count_iterations(plan, site.loop), 1.0));
  const bool are_few = std::accumulate(tasks.begin(), tasks.end(), 0.0) <= detail::kFewTasks;
  std::vector<uint32_t> guesses;
  for (uint32_t i = 0; i < plan.sites.size(); ++i) {
    const double share = double(detail::kGatherNs) * detail::kStrandsPerWorker * workers / tasks[i];
    const double guess = are_few ? double(detail::kGatherNs) : std::max(detail::guess_ns(plan, i), share);
    guesses.push_back(uint32_t(std::min(guess, double(detail::kGatherNs))));
  }
  return guesses;
}

}  // namespace pto::wsp::sched
