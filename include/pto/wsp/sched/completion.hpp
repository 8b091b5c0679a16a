// SPDX-License-Identifier: MIT
/// \file
/// When others learn that a task of a kept graph is complete.
#pragma once

#include "pto/wsp/sched/kept_graph.hpp"

namespace pto::wsp::sched {

/// Right after its body, as in real time.
struct CompleteAtOnce {
  static constexpr bool kIsDelayed = false;
};

/// When the caller of GraphRun says so: to run a task and to complete it are two steps (see
/// GraphRun::run_task_of). Simulated time lies between them.
struct CompleteLater {
  static constexpr bool kIsDelayed = true;
};

}  // namespace pto::wsp::sched
