// SPDX-License-Identifier: MIT
/// \file
/// Makes calendars by list scheduling, and loads them for a run.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/sched/calendar.hpp"
#include "pto/wsp/sim/calendar_order.hpp"
#include "pto/wsp/sim/calendar_tasks.hpp"
#include "pto/wsp/sim/simulate.hpp"

namespace pto::wsp::sim {

namespace detail {

/// Tasks that were walked before, with the longest chain of tasks first.
class RankedSource {
 public:
  RankedSource(const CalendarTasks& tasks, const std::vector<double>& chains)
      : tasks_(tasks), chains_(chains) {}

  const TaskCost& cost(uint32_t number) const { return tasks_.costs[number]; }

  bool next(SourceTask& task) {
    if (next_ == tasks_.size()) return false;
    task.site = tasks_.sites[next_];
    task.cost = tasks_.cost_of[next_];
    task.traits = {};
    task.traits.rank[0] = -std::llround(chains_[next_] * kSteps);
    task.waits.assign(tasks_.waits.begin(next_), tasks_.waits.end(next_));
    task.groups.assign(tasks_.groups.begin(next_), tasks_.groups.end(next_));
    task.uses.assign(tasks_.uses.begin(next_), tasks_.uses.end(next_));
    task.gates.clear();
    ++next_;
    return true;
  }

 private:
  static constexpr double kSteps = 16;  ///< of a cycle

  const CalendarTasks& tasks_;
  const std::vector<double>& chains_;
  size_t next_ = 0;
};

/// Elements of all views, in place of cycles: tasks of one site are compared by them.
class ElementCosts : public CostModel {
 public:
  explicit ElementCosts(const KernelLibrary& library) : library_(library) {}

  TaskCost find(uint32_t kernel, const View* views, const Scalar*) override {
    TaskCost cost;
    cost.cycles = 1;
    const KernelInfo& info = library_.kernels[kernel];
    for (uint32_t i = 0; i < info.num_views; ++i) {
      double elements = 1;
      for (int d = 0; d < info.params[i].rank; ++d) elements *= double(views[i].shape[d]);
      cost.cycles += elements;
    }
    cost.loaded.assign(info.num_views, 0);
    cost.stored.assign(info.num_views, 0);
    return cost;
  }
  bool matters(uint32_t, uint32_t) const override { return false; }
  const std::vector<Place>& places(uint32_t) const override { return none_; }

 private:
  const std::vector<Place> none_;
  const KernelLibrary& library_;
};

/// Puts nanoseconds in the place of elements. A task has its stated cost where none is measured. Otherwise it
/// has the measured or guessed mean of its site, shared out by elements. 0 = no cost is stated.
inline void measure(CalendarTasks& tasks, const std::vector<double>& stated, const sched::Run& run) {
  const size_t num_sites = run.plan().sites.size();
  std::vector<double> elements(num_sites, 0), counts(num_sites, 0);
  for (size_t task = 0; task < tasks.size(); ++task) {
    elements[tasks.sites[task]] += tasks.cycles(task);
    ++counts[tasks.sites[task]];
  }
  std::vector<TaskCost> costs(tasks.size());
  for (size_t task = 0; task < tasks.size(); ++task) {
    const uint32_t site = tasks.sites[task];
    const double share = tasks.cycles(task) * counts[site] / elements[site];
    const uint32_t mean = run.measured_cost(site) != 0 ? run.measured_cost(site) : run.guessed_cost(site);
    const bool is_stated = run.measured_cost(site) == 0 && stated[task] > 0;
    const double ns = is_stated ? stated[task] : mean * share;
    costs[task] = {1, std::max(ns, 1.0), 0, {}, {}, 0, 0};
    tasks.cost_of[task] = uint32_t(task);
  }
  tasks.costs = std::move(costs);
}

inline Machine machine_of_workers(uint32_t workers) {
  Machine machine;
  machine.cores = {workers};
  return without_dispatchers(machine);
}

inline uint32_t first_core_of(const std::vector<uint32_t>& kinds, uint32_t kind) {
  return std::accumulate(kinds.begin(), kinds.begin() + kind, 0u);
}

/// The rows of a simulation, ordered by start and then as in the program, so that no row precedes one that
/// it waits for.
inline std::vector<sched::CalendarRow> rows_of(const SimResult& result, const std::vector<uint32_t>& kinds) {
  std::vector<sched::CalendarRow> rows;
  for (size_t task = 0; task < result.times.size(); ++task) {
    const TaskTime& time = result.times[task];
    const bool has_second = time.second_kind >= 0;
    rows.push_back({task, first_core_of(kinds, time.kind) + time.core,
                    has_second ? first_core_of(kinds, uint32_t(time.second_kind)) + time.second
                               : sched::CalendarRow::kNoCore,
                    std::llround(time.start), std::llround(time.end)});
  }
  const auto is_before = [](const sched::CalendarRow& a, const sched::CalendarRow& b) {
    return a.start != b.start ? a.start < b.start : a.task < b.task;
  };
  std::sort(rows.begin(), rows.end(), is_before);
  return rows;
}

/// List scheduling: of the tasks that are ready, the one with the longest chain after it starts first.
inline sched::Calendar schedule(const CalendarTasks& tasks, const Machine& machine) {
  const std::vector<double> chains = chains_from(tasks);
  sched::PolicyOptions options;
  options.window = UINT64_MAX;
  RankedSource source(tasks, chains);
  SimResult result = Simulator<RankedSource>(machine, options, 0, source, UINT64_MAX, nullptr).run();
  sched::Calendar calendar;
  calendar.kinds = machine.cores;
  calendar.rows = rows_of(result, calendar.kinds);
  const Requirements required(tasks, positions_of(calendar), calendar.num_cores());
  find_waits(calendar, required.found());
  return calendar;
}

/// A run that is never begun, for a walk. \pre the options are those of the prepared plan
class WalkedRun {
 public:
  WalkedRun(std::shared_ptr<sched::Prepared> prepared, const std::vector<char*>& bases,
            const sched::RunOptions& options)
      : run_(others_) {
    require_decided(prepared->plan);
    sched::RunOptions walked = options;
    walked.calendar = nullptr;
    walked.makes_calendar = false;
    walked.is_simulated = true;
    walked.time_limit_ns = 0;
    walked.on_progress = nullptr;
    run_.begin(std::move(prepared), bases, walked);
  }
  sched::Run& run() { return run_; }

  /// Calls `visit(site, registers)` for each task.
  template <class Visit>
  CalendarTasks walk(const KernelLibrary& library, CostModel& model, Visit visit) {
    CalendarTasks tasks;
    if (run_.plan().program().is_network()) {
      NetworkSource source(run_, library, model);
      tasks.walk(run_.plan(), source, visit);
    } else {
      WalkSource source(run_, library, 1, model, {}, run_.bases());
      tasks.walk(run_.plan(), source, visit);
    }
    return tasks;
  }

 private:
  NoOthers others_;
  sched::Run run_;
};

}  // namespace detail

/// A calendar for workers of this machine, whose times are nanoseconds. Throws `calendar-undecided` or
/// `calendar-too-large`. \pre options.makes_calendar
inline sched::Calendar make_calendar(const std::shared_ptr<sched::Prepared>& prepared,
                                     const KernelLibrary& library, const std::vector<char*>& bases,
                                     const sched::RunOptions& options) {
  detail::WalkedRun walked(prepared, bases, options);
  detail::ElementCosts elements(library);
  std::vector<double> stated;
  CalendarTasks tasks = walked.walk(library, elements, [&](uint32_t site, const int64_t* registers) {
    const bytecode::QuickAmount& cost = prepared->plan.sites[site].cost;
    stated.push_back(cost.is_given ? double(prepared->plan.evaluate(cost.value, registers)) : 0);
  });
  detail::measure(tasks, stated, walked.run());
  return detail::schedule(tasks, detail::machine_of_workers(options.workers));
}

/// A calendar for the cores of a simulated machine, whose times are cycles. Throws what make_calendar throws,
/// and what the model throws.
inline sched::Calendar make_calendar(const std::shared_ptr<sched::Prepared>& prepared,
                                     const KernelLibrary& library, const std::vector<char*>& bases,
                                     const sched::RunOptions& options, const Simulation& simulation) {
  detail::WalkedRun walked(prepared, bases, options);
  const CalendarTasks tasks = walked.walk(library, simulation.model, [](uint32_t, const int64_t*) {});
  return detail::schedule(tasks, without_dispatchers(simulation.machine));
}

/// Checks a calendar against the tasks of a plan, and prepares it for workers. Throws `bad-calendar`,
/// `calendar-unordered`, `calendar-undecided` or `calendar-too-large`.
inline std::shared_ptr<const sched::LoadedCalendar> load_calendar(
    const sched::Calendar& calendar, const std::shared_ptr<sched::Prepared>& prepared,
    const KernelLibrary& library, const std::vector<char*>& bases, const sched::RunOptions& options) {
  detail::WalkedRun walked(prepared, bases, options);
  detail::ElementCosts elements(library);
  const CalendarTasks tasks = walked.walk(library, elements, [](uint32_t, const int64_t*) {});
  check_rows(calendar, tasks.size());
  const Requirements required(tasks, positions_of(calendar), calendar.num_cores());
  check_order(calendar, tasks, prepared->plan, required.found());
  auto loaded = std::make_shared<sched::LoadedCalendar>();
  loaded->lanes.resize(calendar.num_cores());
  std::vector<uint64_t> first_register;
  for (size_t task = 0; task < tasks.size(); ++task) {
    first_register.push_back(loaded->registers.size());
    loaded->registers.insert(loaded->registers.end(), tasks.registers.begin(task), tasks.registers.end(task));
  }
  loaded->waits = calendar.waits;
  for (size_t i = 0; i < calendar.rows.size(); ++i) {
    const sched::CalendarRow& row = calendar.rows[i];
    const uint64_t first = calendar.first_wait[i];
    loaded->lanes[row.core].push_back({row.task, tasks.sites[row.task],
                                       uint32_t(calendar.first_wait[i + 1] - first), first,
                                       first_register[row.task]});
  }
  return loaded;
}

}  // namespace pto::wsp::sim
