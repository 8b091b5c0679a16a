// SPDX-License-Identifier: MIT
/// \file
/// The tasks that processes of a network offer to workers without work.
#pragma once

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pto/wsp/sched/network_state.hpp"
#include "pto/wsp/sched/random.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

/// Adds its place to the error of a task of a process.
inline EngineError place_task(EngineError error, const bytecode::Plan& plan, uint32_t site,
                              const int64_t* registers, uint64_t task) {
  return std::move(error)
      .with("kernel", std::string(plan.sites[site].kernel->name))
      .with_int("task", int64_t(task))
      .with_int("pc", plan.sites[site].pc)
      .with("registers", std::vector<int64_t>(registers, registers + plan.program().header.num_registers));
}

/// The error of a task of a process whose kernel ended with `check`.
inline EngineError failed_check(int32_t check, Worker& worker, const bytecode::Plan& plan, uint32_t site,
                                const int64_t* registers, uint64_t task) {
  const int64_t* values = worker.monitor().values;
  const std::string kernel = plan.sites[site].kernel->name;
  return place_task(EngineError("kernel-failed", "a run-time check in kernel " + kernel + " failed")
                        .with_int("check", check)
                        .with("values", std::vector<int64_t>(values, values + kMaxCheckValues)),
                    plan, site, registers, task);
}

class SharedTasks {
 public:
  explicit SharedTasks(Run& run) : run_(run), plan_(run.plan()), costs_(*run.prepared()->costs) {}

  /// A task that is worth another worker: longer than to offer it, and to move what it touches.
  static constexpr uint32_t kLongTaskNs = 5000;

  bool has_tasks() const { return num_tasks_.load(std::memory_order_seq_cst) > 0; }

  /// The measured time of a task of a site in nanoseconds; 0 if it never ran.
  uint32_t cost(uint32_t site) const { return costs_[site]; }

  /// Whether the next task of a process is to be offered: it is long, and a worker is without work.
  bool wants(uint32_t site, const NetworkProcess& process) const {
    if (const uint64_t jitter = run_.options().jitter; jitter != 0)
      return Random(jitter + process.number * 101 + process.num_tasks * 7).next() % 4 != 0;
    return cost(site) >= kLongTaskNs && num_busy_.load(std::memory_order_relaxed) < run_.num_workers();
  }

  /// Adds a task to the window of its process. Returns whether it can run now. \pre the window has room
  bool add(NetworkProcess& process, uint32_t site) {
    std::call_once(has_order_, [this] { order_.emplace(plan_); });
    const uint32_t index = process.window->add_task(*order_, site, process.expander.registers(),
                                                    plan_.program().header.num_registers, process.num_tasks);
    if (index != TaskWindow::kSize) push(process, index);
    return index != TaskWindow::kSize;
  }

  /// A worker has begun to work (1), or has no work (-1).
  void count_busy(int change) { num_busy_.fetch_add(change, std::memory_order_relaxed); }

  /// Runs the task that was offered first. False if there is none. Calls `apply(move, token)` for each send
  /// or receipt that ends, `continue_walk(process)`, and `call_others(n)` when tasks became ready.
  template <class Apply, class Continue, class Call>
  bool run_one(Worker& worker, const Apply& apply, const Continue& continue_walk, const Call& call_others) {
    const std::optional<Task> task = pop();
    if (!task) return false;
    NetworkProcess& process = *task->process;
    TaskWindow& window = *process.window;
    std::optional<EngineError> error;
    const bool is_run = !window.is_left_out(task->index);
    if (is_run && !run(process.number, window.entry(task->index), worker, error)) return true;
    TaskWindow::Step step = window.complete(task->index, std::move(error), apply);
    const auto num_ready = uint32_t(__builtin_popcountll(step.ready));
    for (; step.ready != 0; step.ready &= step.ready - 1)
      push(process, uint32_t(__builtin_ctzll(step.ready)));
    if (step.wakes_walk) continue_walk(process);
    // This worker takes one of them.
    if (num_ready + step.wakes_walk > 1) call_others(num_ready + step.wakes_walk - 1);
    return true;
  }

 private:
  struct Task {
    NetworkProcess* process;
    uint32_t index;  ///< in the window of the process
  };

  void push(NetworkProcess& process, uint32_t index) {
    const std::lock_guard<SpinLock> lock(lock_);
    tasks_.push_back({&process, index});
    num_tasks_.fetch_add(1, std::memory_order_seq_cst);
  }

  std::optional<Task> pop() {
    if (!has_tasks()) return {};
    const std::lock_guard<SpinLock> lock(lock_);
    if (tasks_.empty()) return {};
    const Task task = tasks_.front();
    tasks_.pop_front();
    num_tasks_.fetch_sub(1, std::memory_order_relaxed);
    return task;
  }

  /// False if the run has ended, or ends the kernel.
  bool run(uint32_t process, const TaskWindow::Entry& entry, Worker& worker,
           std::optional<EngineError>& error) {
    run_.look_out(worker);
    if (run_.is_cancelled()) return false;
    const uint32_t site = entry.place.site;
    const int64_t* registers = entry.registers.data();
    if (run_.options().trace) worker.begin_task_of(process);
    try {
      const int32_t check = worker.run(site, registers, entry.number);
      if (check == kStopped) return false;
      if (check != 0) error = failed_check(check, worker, plan_, site, registers, entry.number);
    } catch (EngineError& found) {
      error = place_task(std::move(found).with_int("late", int64_t(entry.number)), plan_, site, registers,
                         entry.number);
    }
    return true;
  }

  Run& run_;
  const bytecode::Plan& plan_;
  const SiteCosts& costs_;
  std::once_flag has_order_;
  std::optional<graph::TaskOrder> order_;
  SpinLock lock_;
  std::deque<Task> tasks_;
  alignas(kLineBytes) std::atomic<int> num_tasks_{0};
  alignas(kLineBytes) std::atomic<uint32_t> num_busy_{0};  ///< workers
};

}  // namespace pto::wsp::sched
