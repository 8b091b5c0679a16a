// SPDX-License-Identifier: MIT
/// \file
/// Tasks without a program: a graph that is recorded task by task runs one body per task.
#pragma once

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bytecode {

class Body {
 public:
  virtual ~Body() = default;
  /// Runs the task whose number is in the context; returns the result of a kernel.
  virtual int32_t run(const TaskContext& context) = 0;
};

namespace detail {

inline int32_t run_body(const View*, const Scalar* scalars, const TaskContext* context) {
  return reinterpret_cast<Body*>(scalars[0].i64)->run(*context);
}

}  // namespace detail

/// Returns a plan with one site whose tasks run `body`. The plan refers to `body` and to the empty program
/// `none`.
inline Plan plan_of_body(const Program& none, Body& body) {
  static const KernelInfo kernel{"body", detail::run_body, nullptr, 0, 1, 0, 1, Unit::any, {}};
  Plan plan{};
  plan.number = next_plan_number();
  plan.bindings.program = &none;
  plan.scalars.push_back({reinterpret_cast<int64_t>(&body), {}, true, false, false});
  plan.max_scalars = 1;
  QuickSite site{};
  site.fn = kernel.fn;
  site.kernel = &kernel;
  site.num_scalars = 1;
  plan.sites.push_back(site);
  return plan;
}

}  // namespace pto::wsp::bytecode
