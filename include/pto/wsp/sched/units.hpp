// SPDX-License-Identifier: MIT
/// \file
/// Finds the units of a plan that a dispatcher can skip.
#pragma once

#include <memory>
#include <vector>

#include "pto/wsp/graph/unit_summary.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/strands.hpp"

namespace pto::wsp::sched {

namespace detail {

/// Whether explicit edges cross the border of a loop.
inline bool has_edges_across(const bytecode::Program& program, uint32_t loop) {
  const bytecode::LoopForm& form = program.loops[loop];
  const auto is_inside = [&](uint32_t site) {
    const uint32_t pc = program.sites[site].pc;
    return pc > form.begin_pc && pc < form.end_pc;
  };
  for (uint32_t site = 0; site < program.sites.size(); ++site) {
    const bytecode::SiteForm& from = program.sites[site];
    for (uint32_t i = 0; i < from.num_afters; ++i) {
      if (is_inside(site) != is_inside(program.afters[from.first_after + i])) return true;
    }
  }
  return false;
}

}  // namespace detail

/// Returns, per loop, the summary of its iterations if they are units that can be skipped; else null.
/// Dependent units are not skipped, because the next unit would wait for a whole one. No unit is skipped if
/// each task must be seen.
/// \pre `marks` are those of the plan, which stays where it is
inline std::vector<std::unique_ptr<graph::UnitSummary>> summarize_units(const bytecode::Plan& plan,
                                                                        const Marks& marks,
                                                                        bool is_each_task_seen,
                                                                        Deps deps = Deps::kExact) {
  std::vector<std::unique_ptr<graph::UnitSummary>> units(plan.loops.size());
  if (is_each_task_seen) return units;
  const std::vector<graph::Space> spaces = graph::find_spaces(plan);
  for (uint32_t loop = 0; loop < plan.loops.size(); ++loop) {
    if (marks.loops[loop] != bytecode::LoopEvents::kIterations) continue;
    if (detail::has_edges_across(plan.program(), loop)) continue;
    auto unit = std::make_unique<graph::UnitSummary>(plan, spaces, loop);
    const bool is_trusted = deps == Deps::kTrust && plan.loops[loop].op == bytecode::Op::PARALLEL_FOR;
    const bool is_apart = deps == Deps::kNone || is_trusted || unit->is_independent();
    if (unit->is_closed() && is_apart) units[loop] = std::move(unit);
  }
  return units;
}

}  // namespace pto::wsp::sched
