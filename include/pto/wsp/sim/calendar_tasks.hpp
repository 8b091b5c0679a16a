// SPDX-License-Identifier: MIT
/// \file
/// All tasks of a program whose tasks are decided before the run, and what each of them waits for.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "pto/wsp/sched/calendar.hpp"
#include "pto/wsp/sim/network_source.hpp"
#include "pto/wsp/sim/walk_source.hpp"

namespace pto::wsp::sim {

/// Lists one after the other in one array.
template <class T>
class Lists {
 public:
  void add(const T& value) { all_.push_back(value); }
  void end_list() { ends_.push_back(all_.size()); }
  size_t size() const { return ends_.size() - 1; }
  size_t size(size_t list) const { return ends_[list + 1] - ends_[list]; }
  const T* begin(size_t list) const { return all_.data() + ends_[list]; }
  const T* end(size_t list) const { return all_.data() + ends_[list + 1]; }

 private:
  std::vector<T> all_;
  std::vector<size_t> ends_{0};
};

/// Throws `calendar-undecided` if tasks of a run write what decides which tasks exist.
inline void require_decided(const bytecode::Plan& plan) {
  for (const bytecode::SetForm& set : plan.program().sets) {
    if (set.is_flush)
      throw EngineError("calendar-undecided", "a task writes an element that decides which tasks exist")
          .with_int("pc", set.pc);
  }
  for (const bytecode::MoveForm& move : plan.program().moves) {
    if (plan.program().tensors[move.tensor].merge == bytecode::MergeKind::TIME)
      throw EngineError("calendar-undecided", "time decides the order of tokens")
          .with_int("pc", move.pc)
          .with_int("tensor", move.tensor);
  }
}

/// The tasks of one walk, in program order; those of a network in the order of NetworkOrder.
struct CalendarTasks {
  static constexpr uint64_t kMaxTasks = uint64_t{1} << 22;

  std::vector<uint32_t> sites;
  std::vector<uint32_t> cost_of;  ///< per task, a number in `costs`
  std::vector<TaskCost> costs;
  Lists<sched::Name> waits;  ///< tasks are slices
  Lists<uint32_t> groups;    ///< lines that a task counts in
  Lists<Use> uses;
  Lists<int64_t> registers;  ///< those that the site reads

  size_t size() const { return sites.size(); }
  double cycles(size_t task) const { return costs[cost_of[task]].cycles; }

  /// Calls `visit(site, registers)` for each task. Throws what only the walk can find, with its place.
  template <class Source, class Visit>
  void walk(const bytecode::Plan& plan, Source& source, Visit visit) {
    SourceTask task;
    while (source.next_placed(task)) {
      if (size() == kMaxTasks) throw EngineError("calendar-too-large", "there are too many tasks");
      visit(task.site, source.registers());
      sites.push_back(task.site);
      cost_of.push_back(task.cost);
      for (const sched::Name name : task.waits) waits.add(name);
      for (const uint32_t line : task.groups) groups.add(line);
      for (const Use& use : task.uses) uses.add(use);
      const bytecode::QuickSite& site = plan.sites[task.site];
      const uint32_t* index = plan.registers.data() + site.first_register;
      for (uint32_t i = 0; i < site.num_registers; ++i) registers.add(source.registers()[index[i]]);
      waits.end_list();
      groups.end_list();
      uses.end_list();
      registers.end_list();
    }
    for (uint32_t i = 0; i < source.costs().kernels().size(); ++i) costs.push_back(source.cost(i));
  }
};

/// Per task, the time of the longest chain of tasks that begins with it.
inline std::vector<double> chains_from(const CalendarTasks& tasks) {
  std::vector<double> chain(tasks.size()), after(tasks.size(), 0), after_mark(tasks.size() + 1, 0);
  std::vector<std::vector<double>> after_count(sched::kNumGroupLines, std::vector<double>(1, 0));
  for (size_t task = 0; task < tasks.size(); ++task) {
    for (const uint32_t* line = tasks.groups.begin(task); line != tasks.groups.end(task); ++line)
      after_count[*line].push_back(0);
  }
  const auto raise = [](double& value, double to) { value = std::max(value, to); };
  std::vector<double> of_line(sched::kNumGroupLines, 0);
  double of_marks = 0;
  for (size_t task = tasks.size(); task-- > 0;) {
    raise(of_marks, after_mark[task + 1]);
    raise(after[task], of_marks);
    for (const uint32_t* line = tasks.groups.begin(task); line != tasks.groups.end(task); ++line) {
      raise(of_line[*line], after_count[*line].back());
      after_count[*line].pop_back();
      raise(after[task], of_line[*line]);
    }
    chain[task] = tasks.cycles(task) + after[task];
    for (const sched::Name* name = tasks.waits.begin(task); name != tasks.waits.end(task); ++name) {
      if (sched::is_task_name(*name)) {
        raise(after[sched::slice_of(*name)], chain[task]);
      } else if (sched::is_watermark_name(*name)) {
        raise(after_mark[*name], chain[task]);
      } else {
        raise(after_count[sched::group_line_of(*name)][*name & sched::kGroupMask], chain[task]);
      }
    }
  }
  return chain;
}

/// Where the tasks of a calendar are.
struct Positions {
  std::vector<uint32_t> core;    ///< per task, its first core
  std::vector<uint64_t> number;  ///< per task, its number on that core
};

/// What each task waits for, as counts of cores: task order is resolved by where tasks are.
class Requirements {
 public:
  Requirements(const CalendarTasks& tasks, const Positions& at, uint32_t num_cores)
      : tasks_(tasks), at_(at), marks_(num_cores), lines_(sched::kNumGroupLines, Prefix(num_cores)) {
    for (size_t task = 0; task < tasks.size(); ++task) {
      for (const sched::Name* name = tasks.waits.begin(task); name != tasks.waits.end(task); ++name)
        add(*name);
      found_.end_list();
      marks_.members.push_back(task);
      for (const uint32_t* line = tasks.groups.begin(task); line != tasks.groups.end(task); ++line)
        lines_[*line].members.push_back(task);
    }
  }

  const Lists<sched::CalendarWait>& found() const { return found_; }

 private:
  /// The first tasks of a list, as counts of cores.
  struct Prefix {
    explicit Prefix(uint32_t num_cores) : counts(num_cores, 0) {}
    std::vector<uint64_t> members;
    std::vector<uint64_t> counts;
    uint64_t num_counted = 0;
  };

  void add(sched::Name name) {
    if (sched::is_task_name(name)) {
      const uint64_t before = sched::slice_of(name);
      found_.add({at_.core[before], at_.number[before] + 1});
    } else if (sched::is_watermark_name(name)) {
      add_first(marks_, name);
    } else {
      add_first(lines_[sched::group_line_of(name)], name & sched::kGroupMask);
    }
  }

  void add_first(Prefix& prefix, uint64_t count) {
    if (count < prefix.num_counted) {
      std::fill(prefix.counts.begin(), prefix.counts.end(), 0);
      prefix.num_counted = 0;
    }
    for (; prefix.num_counted < count; ++prefix.num_counted) {
      const uint64_t task = prefix.members[prefix.num_counted];
      uint64_t& most = prefix.counts[at_.core[task]];
      most = std::max(most, at_.number[task] + 1);
    }
    for (uint32_t core = 0; core < prefix.counts.size(); ++core) {
      if (prefix.counts[core] > 0) found_.add({core, prefix.counts[core]});
    }
  }

  const CalendarTasks& tasks_;
  const Positions& at_;
  Lists<sched::CalendarWait> found_;
  Prefix marks_;
  std::vector<Prefix> lines_;
};

}  // namespace pto::wsp::sim
