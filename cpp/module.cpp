// SPDX-License-Identifier: MIT
/// \file
/// The module pto_wsp._native: the only C++ of the project that includes Python headers.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_balanced_planner(nb::module_& module);
void bind_calendar(nb::module_& module);
void bind_engine(nb::module_& module);
void bind_planner(nb::module_& module);
void bind_seam(nb::module_& module);
void bind_sim(nb::module_& module);
void bind_task_dump(nb::module_& module);

NB_MODULE(_native, module) {
  // A daemon thread that lives on as the interpreter ends holds objects that are never collected.
  nb::set_leak_warnings(false);
  bind_seam(module);
  bind_sim(module);
  bind_calendar(module);
  bind_engine(module);
  bind_planner(module);
  bind_balanced_planner(module);
  bind_task_dump(module);
}
