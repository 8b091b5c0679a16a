// SPDX-License-Identifier: MIT
/// \file
/// The tasks of a program for a simulation: a walk like that of a run, in which each task is a slice.
#pragma once

#include <cstring>
#include <unordered_map>
#include <vector>

#include "pto/wsp/sched/walk.hpp"
#include "pto/wsp/sim/machine.hpp"
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
};

class WalkSource {
 public:
  /// \param flushed  what flush points read, in program order; beyond them they are read from the arrays
  WalkSource(sched::Run& run, const KernelLibrary& library, uint32_t num_dispatchers, CostModel& model,
             std::vector<int64_t> flushed, const std::vector<char*>& bases)
      : run_(run), library_(library), plan_(run.plan()), model_(model), flushed_(std::move(flushed)) {
    arguments_.bind(plan_, bases);
    sched::NumberingStart start;
    start.max_tasks = 1;
    walk_.begin(run_, start, num_dispatchers, &arguments_);
    walk_.waits().collect(&more_waits_);
    last_.resize(plan_.sites.size());
  }

  const TaskCost& cost(uint32_t number) const { return costs_[number]; }
  size_t num_costs() const { return costs_.size(); }
  /// The kernel that a cost is of.
  uint32_t kernel_of(uint32_t cost) const { return kernel_of_[cost]; }

  /// What flush points read.
  const std::vector<int64_t>& read() const { return read_; }

  /// The next task; false at the end. Throws what only the walk can find.
  bool next(SourceTask& task) {
    task_ = &task;
    has_task_ = is_over_ = false;
    while (!has_task_ && !is_over_) {
      if (!walk_.handle(walk_.expander().next(), *this)) break;
    }
    return has_task_;
  }

 private:
  friend class sched::Walk;  // which calls the functions of an engine

  // Events

  bool on_task(uint32_t site) {
    walk_.check_late(site);
    if (numbering().is_open()) close(true);
    walk_.place(site, *this);
    numbering().add_task(0);
    more_waits_.clear();
    // Each task is a strand of its own, so that none may be taken to be between others.
    walk_.ordering().add_task(site, walk_.expander(), numbering(), true, false);
    task_->site = site;
    task_->traits = walk_.policy().strand_traits(walk_.expander().num_tasks() - 1);
    task_->waits.assign(more_waits_.begin(), more_waits_.end());
    for (int i = 0; i < walk_.waits().size(); ++i) task_->waits.push_back(walk_.waits()[i]);
    task_->groups.clear();
    for (const sched::Group& group : numbering().groups()) task_->groups.push_back(group.line);
    task_->gates.swap(gates_);
    gates_.clear();
    arguments_.fill_rest(site, walk_.registers());
    find_cost(site);
    has_task_ = true;
    return true;
  }

  bool on_flush(uint32_t set) {
    if (numbering().is_open()) close(true);
    gate_by(plan_.sets[set].value);
    int64_t value = 0;
    if (num_flushes_ < flushed_.size()) {
      value = flushed_[num_flushes_];
    } else {
      value = plan_.evaluate(plan_.sets[set].value, walk_.registers());
    }
    ++num_flushes_;
    read_.push_back(value);
    walk_.expander().assign(set, value);
    return true;
  }

  /// What is made from here on waits for the tasks that write elements of a value.
  void gate_by(const bytecode::Value& value) {
    const uint64_t slice = walk_.slice();
    try {
      walk_.ordering().find_reads(value, walk_.registers(), slice, [this](const sched::WaitList& waits) {
        for (int i = 0; i < waits.size(); ++i) gates_.push_back(waits[i]);
        gates_.insert(gates_.end(), more_waits_.begin(), more_waits_.end());
        more_waits_.clear();
      });
    } catch (EngineError&) {  // an index is read from an array that later tasks have changed
      gates_.push_back(sched::watermark_name(slice));
    }
  }

  bool begin_unit(uint32_t) { return true; }
  void end_unit() {}
  bool open() {
    numbering().open();
    return true;
  }
  void close(bool) { numbering().close(true); }
  bool on_end() {
    is_over_ = true;
    return true;
  }

  // Costs

  /// Finds the cost of the present task, and the regions that it moves.
  void find_cost(uint32_t site) {
    const bytecode::QuickSite& quick = plan_.sites[site];
    const bytecode::Arguments::Call& call = arguments_.call(site);
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
    task_->cost = last.cost;
    list_uses(quick, call, costs_[last.cost]);
  }

  uint32_t look_up(uint32_t kernel, const bytecode::Arguments::Call& call) {
    const auto [found, is_new] = numbers_.try_emplace(key_, uint32_t(costs_.size()));
    if (is_new) {
      costs_.push_back(model_.find(kernel, call.views, call.scalars));
      kernel_of_.push_back(kernel);
    }
    return found->second;
  }

  void list_uses(const bytecode::QuickSite& quick, const bytecode::Arguments::Call& call,
                 const TaskCost& cost) {
    task_->uses.clear();
    for (uint32_t i = 0; i < quick.kernel->num_views; ++i) {
      const uint64_t bytes = cost.loaded[i] + cost.stored[i];
      if (bytes == 0) continue;
      const View& view = call.views[i];
      uint64_t region = mix(reinterpret_cast<uintptr_t>(view.data));
      if (view.rows != nullptr) region = mix(region ^ reinterpret_cast<uintptr_t>(view.rows));
      for (int d = 0; d < quick.kernel->params[i].rank; ++d) region = mix(region ^ uint64_t(view.shape[d]));
      task_->uses.push_back({region, bytes});
    }
  }

  static uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15u;
    return value ^ (value >> 29);
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

  sched::Numbering& numbering() { return walk_.numbering(); }

  sched::Run& run_;
  const KernelLibrary& library_;
  const bytecode::Plan& plan_;
  CostModel& model_;
  std::vector<int64_t> flushed_;
  std::vector<int64_t> read_;  ///< by all flush points so far
  size_t num_flushes_ = 0;
  bytecode::Arguments arguments_;
  sched::Walk walk_;
  std::vector<sched::Name> more_waits_;
  std::vector<sched::Name> gates_;  ///< of the next task
  SourceTask* task_ = nullptr;
  bool has_task_ = false, is_over_ = false;
  std::vector<int64_t> key_;
  std::vector<Last> last_;  ///< per site, of its latest task
  std::unordered_map<std::vector<int64_t>, uint32_t, Hash> numbers_;
  std::vector<TaskCost> costs_;
  std::vector<uint32_t> kernel_of_;
};

}  // namespace pto::wsp::sim
