// SPDX-License-Identifier: MIT
/// \file
/// Costs of tasks, which Python finds.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "pto/wsp/sim/walk_source.hpp"

namespace pto::wsp::python {

/// Asks `find(kernel, shapes, scalars) -> SimCost`. Scalars are the eight bytes of each.
class PythonCosts : public sim::CostModel {
 public:
  /// \param matters  per kernel and scalar
  PythonCosts(nanobind::object find, std::vector<std::vector<bool>> matters, const KernelLibrary& library);

  sim::TaskCost find(uint32_t kernel, const View* views, const Scalar* scalars) override;
  bool matters(uint32_t kernel, uint32_t scalar) const override;

 private:
  nanobind::object find_;
  std::vector<std::vector<bool>> matters_;
  const KernelLibrary& library_;
};

}  // namespace pto::wsp::python
