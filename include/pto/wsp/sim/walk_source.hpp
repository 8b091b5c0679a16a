// SPDX-License-Identifier: MIT
/// \file
/// The tasks of a program for a simulation: a walk like that of a run, in which each task is a slice.
#pragma once

#include <cstring>
#include <vector>

#include "pto/wsp/sched/walk.hpp"
#include "pto/wsp/sim/task_costs.hpp"

namespace pto::wsp::sim {

class WalkSource {
 public:
  /// \param flushed  what flush points read, in program order; beyond them they are read from the arrays
  WalkSource(sched::Run& run, const KernelLibrary& library, uint32_t num_dispatchers, CostModel& model,
             std::vector<int64_t> flushed, const std::vector<char*>& bases)
      : plan_(run.plan()), costs_(run.plan(), library, model), flushed_(std::move(flushed)) {
    arguments_.bind(plan_, bases);
    sched::NumberingStart start;
    start.max_tasks = 1;
    walk_.begin(run, start, num_dispatchers, &arguments_);
    walk_.waits().collect(&more_waits_);
  }

  const TaskCost& cost(uint32_t number) const { return costs_[number]; }
  const TaskCosts& costs() const { return costs_; }

  /// The same. An error has the registers of its place.
  bool next_placed(SourceTask& task) {
    try {
      return next(task);
    } catch (EngineError& error) {
      if (error.has("registers")) throw;
      throw std::move(error).with("registers", walk_.expander().copy_registers());
    }
  }

  /// Of the task that `next` returned last.
  const int64_t* registers() const { return walk_.registers(); }

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
    const bytecode::QuickAmount& value = plan_.sites[site].mark(bytecode::Mark::kPrefetch);
    task_->value = value.is_given ? values_.next(plan_.evaluate(value.value, walk_.registers())) : 0;
    task_->cost = costs_.find(site, arguments_.call(site), task_->uses);
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

  sched::Numbering& numbering() { return walk_.numbering(); }

  const bytecode::Plan& plan_;
  TaskCosts costs_;
  std::vector<int64_t> flushed_;
  std::vector<int64_t> read_;  ///< by all flush points so far
  size_t num_flushes_ = 0;
  bytecode::Arguments arguments_;
  sched::Walk walk_;
  sched::ValueNumbers values_;  ///< of PREFETCH
  std::vector<sched::Name> more_waits_;
  std::vector<sched::Name> gates_;  ///< of the next task
  SourceTask* task_ = nullptr;
  bool has_task_ = false, is_over_ = false;
};

}  // namespace pto::wsp::sim
