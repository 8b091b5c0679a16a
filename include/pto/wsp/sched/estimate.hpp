// SPDX-License-Identifier: MIT
/// \file
/// Estimates the time of the tasks of a run, and the cost of sharing them.
#pragma once

#include <cstdint>

#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

/// Several workers share the bodies, but each dispatcher orders all tasks that it cannot pass over. One
/// worker alone orders none.
struct Estimate {
  double tasks = 0;
  double body_ns = 0;   ///< of all tasks of sites that were timed
  double order_ns = 0;  ///< of one dispatcher
  bool is_timed = false;

  /// \pre prepared for a run that orders tasks
  static Estimate of(const Prepared& prepared) {
    const bytecode::Plan& plan = prepared.plan;
    Estimate estimate;
    for (uint32_t site = 0; site < plan.sites.size(); ++site) {
      const int32_t loop = plan.program().sites[site].loop;
      const double tasks = detail::count_iterations(plan, loop);
      const uint32_t measured = (*prepared.costs)[site];
      estimate.tasks += tasks;
      estimate.is_timed = estimate.is_timed || measured != 0;
      estimate.body_ns += tasks * double(measured);
      if (!is_passed_over(prepared, loop)) estimate.order_ns += tasks * kTaskNs;
    }
    for (uint32_t loop = 0; loop < prepared.units.size(); ++loop) {
      if (prepared.units[loop] != nullptr)
        estimate.order_ns += detail::count_iterations(plan, int32_t(loop)) * kUnitNs;
    }
    return estimate;
  }

  double task_ns() const { return body_ns / tasks; }
  /// The part of the body time that this number of workers saves.
  double saved_ns(uint32_t workers) const { return body_ns * (workers - 1) / workers; }

 private:
  /// Cost of ordering a task, or a whole unit, of another dispatcher, shared cache lines included.
  static constexpr double kTaskNs = 50;
  static constexpr double kUnitNs = 400;

  /// Whether the body of a loop is in a unit that can be passed over.
  static bool is_passed_over(const Prepared& prepared, int32_t loop) {
    for (; loop >= 0; loop = prepared.plan.program().loops[size_t(loop)].parent) {
      if (prepared.units[size_t(loop)] != nullptr) return true;
    }
    return false;
  }
};

}  // namespace pto::wsp::sched
