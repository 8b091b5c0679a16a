// SPDX-License-Identifier: MIT
/// \file
/// Whether the tasks of a run are worth more than one worker.
#pragma once

#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

namespace detail {

/// What it takes to find the place of a task of another dispatcher, and to share what that needs.
inline constexpr double kOrderNs = 50;

/// Whether a site is in a unit that can be passed over.
inline bool is_passed_over(const Prepared& prepared, uint32_t site) {
  const bytecode::Program& program = prepared.plan.program();
  for (int32_t loop = program.sites[site].loop; loop >= 0; loop = program.loops[size_t(loop)].parent) {
    if (prepared.units[size_t(loop)] != nullptr) return true;
  }
  return false;
}

}  // namespace detail

/// Whether so many workers are expected to end before one alone would, who orders nothing: they share the
/// bodies, but each dispatcher orders all tasks that it cannot pass over. Yes as long as no task was timed.
/// \pre prepared for a run that orders tasks
inline bool is_worth_sharing(const Prepared& prepared, uint32_t workers) {
  const bytecode::Plan& plan = prepared.plan;
  double body_ns = 0, order_ns = 0;
  bool is_timed = false;
  for (uint32_t site = 0; site < plan.sites.size(); ++site) {
    const double tasks = detail::count_iterations(plan, plan.program().sites[site].loop);
    const uint32_t measured = (*prepared.costs)[site];
    is_timed = is_timed || measured != 0;
    body_ns += tasks * double(measured != 0 ? measured : prepared.cost_guesses[site]);
    if (!detail::is_passed_over(prepared, site)) order_ns += tasks * detail::kOrderNs;
  }
  return !is_timed || body_ns * (workers - 1) / workers > order_ns;
}

}  // namespace pto::wsp::sched
