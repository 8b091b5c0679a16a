// SPDX-License-Identifier: MIT
/// \file
/// The module pto_wsp._native: the only C++ of the project that includes Python headers.
#include <nanobind/nanobind.h>

#include "pto/wsp/abi.hpp"
#include "pto/wsp/bytecode/format.hpp"

namespace nb = nanobind;

void bind_planner(nb::module_& module);

NB_MODULE(_native, module) {
  module.attr("ABI_VERSION") = pto::wsp::kAbiVersion;
  module.attr("BYTECODE_VERSION") = pto::wsp::bytecode::kVersion;
  bind_planner(module);
}
