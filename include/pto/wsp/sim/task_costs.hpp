// SPDX-License-Identifier: MIT
/// \file
/// What the calls of kernels in a simulation cost, and the regions of memory that they move.
#pragma once

#include <unordered_map>
#include <vector>

#include "pto/wsp/bytecode/arguments.hpp"
#include "pto/wsp/sim/machine.hpp"
#include "pto/wsp/sim/regions.hpp"
#include "pto/wsp/sim/task.hpp"

namespace pto::wsp::sim {

/// What a call of a kernel costs: asked once for all calls that have the same shapes, and scalars that
/// matter.
class CostModel {
 public:
  virtual ~CostModel() = default;
  /// \param kernel  its number in the library
  virtual TaskCost find(uint32_t kernel, const View* views, const Scalar* scalars) = 0;
  /// Whether scalar argument number `scalar` of a kernel matters.
  virtual bool matters(uint32_t kernel, uint32_t scalar) const = 0;
  /// Per view of a kernel, what decides which part of it is moved; empty where all are moved as a whole.
  virtual const std::vector<Place>& places(uint32_t kernel) const = 0;
};

/// The costs of one run, by number.
class TaskCosts {
 public:
  TaskCosts(const bytecode::Plan& plan, const KernelLibrary& library, CostModel& model)
      : plan_(plan), library_(library), model_(model), last_(plan.sites.size()) {}

  const TaskCost& operator[](uint32_t number) const { return costs_[number]; }
  /// Per cost, its kernel.
  const std::vector<uint32_t>& kernels() const { return kernel_of_; }

  /// Finds the number of the cost of a call, and the regions that it moves.
  uint32_t find(uint32_t site, const bytecode::Arguments::Call& call, std::vector<Use>& uses) {
    const bytecode::QuickSite& quick = plan_.sites[site];
    const auto kernel = uint32_t(quick.kernel - library_.kernels);
    key_.clear();
    key_.push_back(kernel);
    for (uint32_t i = 0; i < quick.kernel->num_views; ++i) {
      for (int d = 0; d < quick.kernel->params[i].rank; ++d) key_.push_back(call.views[i].shape[d]);
    }
    for (uint32_t i = 0; i < quick.kernel->num_scalars; ++i) {
      if (model_.matters(kernel, i)) key_.push_back(call.scalars[i].i64);
    }
    Last& last = last_[site];
    if (last.key != key_) {
      last.key = key_;
      last.cost = look_up(kernel, call);
    }
    const TaskCost& cost = costs_[last.cost];
    const Regions regions(*quick.kernel, call.views, call.scalars, model_.places(kernel));
    uses.clear();
    for (uint32_t i = 0; i < quick.kernel->num_views; ++i)
      regions.add(i, cost.loaded[i], cost.stored[i], uses);
    return last.cost;
  }

 private:
  uint32_t look_up(uint32_t kernel, const bytecode::Arguments::Call& call) {
    const auto [found, is_new] = numbers_.try_emplace(key_, uint32_t(costs_.size()));
    if (is_new) {
      costs_.push_back(model_.find(kernel, call.views, call.scalars));
      kernel_of_.push_back(kernel);
    }
    return found->second;
  }

  struct Hash {
    size_t operator()(const std::vector<int64_t>& key) const {
      uint64_t hash = key.size();
      for (const int64_t part : key) hash = mix(hash ^ uint64_t(part));
      return size_t(hash);
    }
  };

  struct Last {
    std::vector<int64_t> key;
    uint32_t cost = 0;
  };

  const bytecode::Plan& plan_;
  const KernelLibrary& library_;
  CostModel& model_;
  std::vector<int64_t> key_;
  std::vector<Last> last_;  ///< per site, of its latest task
  std::unordered_map<std::vector<int64_t>, uint32_t, Hash> numbers_;
  std::vector<TaskCost> costs_;
  std::vector<uint32_t> kernel_of_;
};

}  // namespace pto::wsp::sim
