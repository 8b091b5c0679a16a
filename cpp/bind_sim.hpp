// SPDX-License-Identifier: MIT
/// \file
/// Costs of tasks, which Python finds.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>
#include <vector>

#include "pto/wsp/sim/walk_source.hpp"

namespace pto::wsp::python {

/// Per kernel and view: numbers of the scalars and of the views that decide which part of it is moved.
using PlaceNumbers = std::vector<std::vector<std::pair<std::vector<uint32_t>, std::vector<uint32_t>>>>;

/// Asks `find(kernel, shapes, scalars) -> SimCost`. Scalars are the eight bytes of each.
class PythonCosts : public sim::CostModel {
 public:
  /// \param matters  per kernel and scalar
  PythonCosts(nanobind::object find, std::vector<std::vector<bool>> matters, const PlaceNumbers& places,
              const KernelLibrary& library);

  sim::TaskCost find(uint32_t kernel, const View* views, const Scalar* scalars) override;
  bool matters(uint32_t kernel, uint32_t scalar) const override;
  const std::vector<sim::Place>& places(uint32_t kernel) const override;

 private:
  nanobind::object find_;
  std::vector<std::vector<bool>> matters_;
  std::vector<std::vector<sim::Place>> places_;
  const KernelLibrary& library_;
};

}  // namespace pto::wsp::python
