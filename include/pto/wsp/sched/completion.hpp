// SPDX-License-Identifier: MIT
/// \file
/// When a task of a kept graph becomes complete for other tasks.
#pragma once

#include "pto/wsp/sched/kept_graph.hpp"

namespace pto::wsp::sched {

/// Immediately after its body, as in real time.
struct CompleteAtOnce {
  static constexpr bool kIsDelayed = false;
};

/// When the caller of GraphRun completes it: running a task and completing it are two steps (see
/// GraphRun::run_task_of). Simulated time passes between them.
struct CompleteLater {
  static constexpr bool kIsDelayed = true;
};

}  // namespace pto::wsp::sched
