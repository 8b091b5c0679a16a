// SPDX-License-Identifier: MIT
/// \file
/// The record of a run. Workers recorded their tasks and times. The place of a task in the program is found
/// on request, by another walk.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/trace/dependences.hpp"
#include "pto/wsp/trace/process_places.hpp"
#include "pto/wsp/trace/recorder.hpp"
#include "pto/wsp/trace/stall.hpp"

namespace pto::wsp::trace {

class RunRecord {
 public:
  /// A run of `plan`, in which flush points read `flushed`. `plan` keeps its program and the elements that
  /// decide alive.
  RunRecord(std::shared_ptr<const bytecode::Plan> plan, std::vector<int64_t> flushed, uint64_t num_tasks,
            int64_t start)
      : plan_(std::move(plan)),
        flushed_(std::move(flushed)),
        num_tasks_(num_tasks),
        start_(start),
        ns_per_tick_(ns_per_tick()) {}
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  /// Adds the events of the next worker.
  void add(Events events, std::vector<Stretch> stretches) {
    workers_.push_back({std::move(events), std::move(stretches)});
  }

  /// Adds the events of the next dispatcher.
  void add_dispatcher(std::vector<MadeSlice> slices, std::vector<StallEvent> stalls) {
    dispatchers_.push_back({std::move(slices), std::move(stalls)});
  }

  /// Tells where the tasks of the processes of a network come from. A task began after all those had ended
  /// that it depended on, so they are numbered in the order of their starts. \pre the workers were added
  void set_processes(std::vector<ProcessPlaces> processes) {
    processes_ = std::move(processes);
    for (const Work& work : workers_)
      work.events.for_each([&](const TaskEvent& event) { started_.push_back(event); });
    std::sort(started_.begin(), started_.end(), [](const TaskEvent& a, const TaskEvent& b) {
      return a.start != b.start ? a.start < b.start : a.task < b.task;
    });
    for (const ProcessPlaces& process : processes_) numbers_.emplace_back(process.sites.size());
    for (uint64_t number = 0; number < started_.size(); ++number) number_of(started_[number].task) = number;
  }

  /// The same for a run by a calendar, whose tasks have numbers already: per task, its process.
  void set_order(std::vector<ProcessPlaces> processes, const std::vector<uint32_t>& process_of_task) {
    processes_ = std::move(processes);
    is_numbered_ = true;
    std::vector<uint64_t> num_tasks(processes_.size(), 0);
    for (const uint32_t process : process_of_task)
      started_.push_back({uint64_t(process) << kProcessShift | num_tasks[process]++, 0, 0});
  }

  uint64_t num_tasks() const { return num_tasks_; }
  size_t num_workers() const { return workers_.size(); }
  uint32_t num_registers() const { return plan_->program().header.num_registers; }

  /// Per task its worker, and its start and end in nanoseconds since the start of the run.
  void fill_times(int64_t* worker, int64_t* start_ns, int64_t* end_ns) const {
    for (size_t i = 0; i < workers_.size(); ++i) {
      workers_[i].events.for_each([&](const TaskEvent& event) {
        const uint64_t task = processes_.empty() || is_numbered_ ? event.task : number_of(event.task);
        worker[task] = int64_t(i);
        start_ns[task] = to_ns(event.start);
        end_ns[task] = to_ns(event.end);
      });
    }
  }

  /// Per task the dispatcher that it belonged to, or the process.
  void fill_dispatchers(int64_t* dispatcher) const {
    std::fill_n(dispatcher, num_tasks_, 0);
    for (size_t i = 0; i < dispatchers_.size(); ++i) {
      for (const MadeSlice& made : dispatchers_[i].slices)
        std::fill_n(dispatcher + made.first_task, made.num_tasks, int64_t(i));
    }
    for (uint64_t task = 0; task < started_.size(); ++task)
      dispatcher[task] = process_of(started_[task].task);
  }

  /// (dispatcher, first task, number of tasks, when they were made), if what dispatchers do was recorded.
  std::vector<int64_t> list_walks() const {
    std::vector<int64_t> rows;
    for (size_t i = 0; i < dispatchers_.size(); ++i) {
      for (const MadeSlice& made : dispatchers_[i].slices) {
        if (made.ticks == 0) continue;
        rows.insert(rows.end(),
                    {int64_t(i), int64_t(made.first_task), int64_t(made.num_tasks), to_ns(made.ticks)});
      }
    }
    return rows;
  }

  /// (dispatcher, Stall, start, end) in nanoseconds since the start of the run.
  std::vector<int64_t> list_stalls() const {
    std::vector<int64_t> rows;
    for (size_t i = 0; i < dispatchers_.size(); ++i) {
      for (const StallEvent& stall : dispatchers_[i].stalls)
        rows.insert(rows.end(), {int64_t(i), int64_t(stall.stall), to_ns(stall.start), to_ns(stall.end)});
    }
    return rows;
  }

  /// (worker, start, end) of the stretches in which workers were at work, if what dispatchers do was
  /// recorded.
  std::vector<int64_t> list_stretches() const {
    std::vector<int64_t> rows;
    for (size_t i = 0; i < workers_.size(); ++i) {
      for (const Stretch& stretch : workers_[i].stretches)
        rows.insert(rows.end(), {int64_t(i), to_ns(stretch.start), to_ns(stretch.end)});
    }
    return rows;
  }

  /// Per task the instruction that made it, and all registers.
  void fill_places(int64_t* pc, int64_t* registers) const {
    if (!processes_.empty()) return fill_places_of_processes(pc, registers);
    bytecode::Replay replay(*plan_, flushed_);
    for (uint64_t task = 0; task < num_tasks_; ++task) {
      pc[task] = plan_->sites[size_t(replay.next_task())].pc;
      std::copy_n(replay.expander().registers(), num_registers(), registers + task * num_registers());
    }
  }

  /// (before, after, DependenceKind, tensor or -1) of the dependences of all tasks, the later of each task
  /// first.
  std::vector<int64_t> find_dependences() const {
    DependenceFinder finder(*plan_);
    if (!processes_.empty()) return find_between_processes(finder);
    std::vector<int64_t> found;
    bytecode::Replay replay(*plan_, flushed_);
    for (uint64_t task = 0; task < num_tasks_; ++task) {
      const auto site = uint32_t(replay.next_task());
      for (const Dependence& dependence : finder.next(site, replay.expander().registers()))
        found.insert(found.end(), {int64_t(dependence.before), int64_t(task), int64_t(dependence.kind),
                                   int64_t(int32_t(dependence.tensor))});
    }
    return found;
  }

 private:
  struct Work {
    Events events;
    std::vector<Stretch> stretches;
  };
  struct Walk {
    std::vector<MadeSlice> slices;
    std::vector<StallEvent> stalls;
  };

  // A task of a network, as in an event
  static uint32_t process_of(uint64_t task) { return uint32_t(task >> kProcessShift); }
  static uint64_t own_number(uint64_t task) { return task & ((uint64_t{1} << kProcessShift) - 1); }
  uint64_t& number_of(uint64_t task) { return numbers_[process_of(task)][own_number(task)]; }
  uint64_t number_of(uint64_t task) const { return numbers_[process_of(task)][own_number(task)]; }
  uint32_t site_of(uint64_t task) const { return processes_[process_of(task)].sites[own_number(task)]; }
  const int64_t* registers_of(uint64_t task) const {
    return processes_[process_of(task)].registers.data() + own_number(task) * num_registers();
  }

  void fill_places_of_processes(int64_t* pc, int64_t* registers) const {
    for (const TaskEvent& event : started_) {
      *pc++ = plan_->sites[site_of(event.task)].pc;
      registers = std::copy_n(registers_of(event.task), num_registers(), registers);
    }
  }

  std::vector<int64_t> find_between_processes(DependenceFinder& finder) const {
    std::vector<int64_t> found;
    for (uint64_t task = 0; task < started_.size(); ++task) {
      const uint64_t own = started_[task].task;
      for (const Dependence& dependence : finder.next(site_of(own), registers_of(own)))
        found.insert(found.end(), {int64_t(dependence.before), int64_t(task), int64_t(dependence.kind),
                                   int64_t(int32_t(dependence.tensor))});
    }
    return found;
  }

  int64_t to_ns(int64_t ticks) const { return int64_t(double(ticks - start_) * ns_per_tick_); }

  std::shared_ptr<const bytecode::Plan> plan_;
  std::vector<int64_t> flushed_;
  uint64_t num_tasks_;
  int64_t start_;
  double ns_per_tick_;
  std::vector<Work> workers_;
  std::vector<Walk> dispatchers_;
  std::vector<ProcessPlaces> processes_;        ///< of a network
  std::vector<TaskEvent> started_;              ///< of a network, in the order of their numbers
  bool is_numbered_ = false;                    ///< events have these numbers
  std::vector<std::vector<uint64_t>> numbers_;  ///< of the tasks of each process
};

}  // namespace pto::wsp::trace
