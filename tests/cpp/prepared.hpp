// SPDX-License-Identifier: MIT
/// \file
/// What a run is prepared with, without the engine around it.
#pragma once

#include <memory>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/bytecode/quicken.hpp"
#include "pto/wsp/bytecode/rows.hpp"
#include "pto/wsp/bytecode/validate.hpp"
#include "pto/wsp/sched/run.hpp"

namespace prepared {

using namespace pto::wsp;

/// A run without threads that could help.
struct NoOthers final : sched::Others {
  void call() override {}
};
inline NoOthers no_others;

/// A program, bound to arrays, and its plan for runs with some options.
struct Call {
  Call(const std::vector<uint8_t>& bytes, const std::vector<bind::ArrayRef>& arrays,
       const KernelLibrary& library, const sched::RunOptions& options)
      : plan(std::make_shared<sched::Prepared>()) {
    const auto program =
        std::make_shared<bytecode::Program>(bytecode::load_program(bytes.data(), bytes.size(), library));
    bind::Arguments arguments = bind::bind_arguments(*program, arrays, {});
    bases = std::move(arguments.bases);
    plan->owner = program;
    plan->plan = bytecode::make_plan({program.get(), arguments.symbols}, arguments.layouts, library);
    bytecode::bind_elements(plan->plan, bases);
    bytecode::look_at_rows(plan->plan);
    plan->costs = std::make_shared<sched::SiteCosts>(plan->plan.sites.size());
    plan->marks = sched::mark_units(plan->plan, options.workers, options.cuts_units());
    plan->cost_guesses = sched::guess_costs(plan->plan, options.workers);
    plan->units =
        sched::summarize_units(plan->plan, plan->marks,
                               options.cuts_units() || options.streams != sched::Streams::kOff, options.deps);
  }

  std::shared_ptr<sched::Prepared> plan;
  std::vector<char*> bases;
};

}  // namespace prepared
