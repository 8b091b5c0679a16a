// SPDX-License-Identifier: MIT
/// \file
/// The tasks of a network for a calendar: those of all processes in one order, in which each task is a slice.
#pragma once

#include <utility>
#include <vector>

#include "pto/wsp/sched/network_order.hpp"
#include "pto/wsp/sched/numbering.hpp"
#include "pto/wsp/sched/ordering.hpp"
#include "pto/wsp/sim/task_costs.hpp"

namespace pto::wsp::sim {

class NetworkSource {
 public:
  NetworkSource(const sched::Run& run, const KernelLibrary& library, CostModel& model)
      : plan_(run.plan()),
        costs_(run.plan(), library, model),
        order_(run.plan(), run.bases(), run.options()),
        groups_(order_.num_processes()) {
    ordering_.begin(run);
    ordering_.waits().collect(&more_waits_);
    sched::NumberingStart start;
    start.max_tasks = 1;
    numbering_.begin(start);
  }

  const TaskCost& cost(uint32_t number) const { return costs_[number]; }
  const TaskCosts& costs() const { return costs_; }
  /// Of the task that `next` returned last.
  const int64_t* registers() { return order_.process().expander.registers(); }
  bool next_placed(SourceTask& task) { return next(task); }

  /// The next task; false at the end. Throws the error of the network, or of a task, with its registers.
  bool next(SourceTask& task) {
    const auto site = order_.next([this](bytecode::Event event) { pass(event); });
    if (!site) return false;
    sched::NetworkProcess& process = order_.process();
    place(*site, process);
    task.site = *site;
    task.traits = {};
    task.waits.assign(more_waits_.begin(), more_waits_.end());
    const sched::WaitList& waits = ordering_.waits();
    for (int i = 0; i < waits.size(); ++i) task.waits.push_back(waits[i]);
    task.groups.clear();
    for (const sched::Group& group : groups_[process.number]) task.groups.push_back(group.line);
    task.gates.clear();
    task.value = 0;
    task.cost = costs_.find(*site, process.arguments.call(*site), task.uses);
    return true;
  }

 private:
  /// An event of a `P.seq` loop. Loops of two processes may share a line, which adds waits.
  void pass(bytecode::Event event) {
    numbering_.exchange_groups(groups_of_process());
    switch (event.kind) {
      case bytecode::Event::kEnter: numbering_.enter_group(); break;
      case bytecode::Event::kIteration: numbering_.begin_iteration(); break;
      default: numbering_.leave_group(); break;
    }
    numbering_.exchange_groups(groups_of_process());
  }

  std::vector<sched::Group>& groups_of_process() { return groups_[order_.process().number]; }

  /// Checks the task, and finds its waits.
  void place(uint32_t site, sched::NetworkProcess& process) {
    const int64_t* registers = process.expander.registers();
    try {
      if (plan_.sites[site].checks_late) process.checker.check(plan_.sites[site], registers, true);
    } catch (EngineError& error) {
      if (error.has("registers")) throw;
      throw std::move(error).with("registers", process.expander.copy_registers());
    }
    process.arguments.fill_rest(site, registers);
    numbering_.exchange_groups(groups_of_process());
    numbering_.open();
    numbering_.add_task(0);
    more_waits_.clear();
    ordering_.add_task(site, process.expander, numbering_, true, false);
    numbering_.close(true);
    numbering_.exchange_groups(groups_of_process());
  }

  const bytecode::Plan& plan_;
  TaskCosts costs_;
  sched::NetworkOrder order_;
  std::vector<std::vector<sched::Group>> groups_;  ///< per process, its open `P.seq` loops
  sched::Numbering numbering_;
  sched::Ordering ordering_;
  std::vector<sched::Name> more_waits_;
};

}  // namespace pto::wsp::sim
