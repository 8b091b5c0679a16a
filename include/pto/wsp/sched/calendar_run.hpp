// SPDX-License-Identifier: MIT
/// \file
/// Runs tasks by a calendar: nothing is expanded, claimed or looked up.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "pto/wsp/sched/calendar.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

/// A lane has the tasks of one worker. The worker runs them in the order of the calendar and counts them. A
/// wait compares the count of another lane. If a worker has no thread, the thread of another worker runs its
/// lane.
///
/// Why a run ends: a task waits for earlier rows of the calendar only, so the first row that is not complete
/// can run.
class CalendarRun {
 public:
  /// Readies all workers, because any thread may run any lane.
  CalendarRun(Run& run, std::shared_ptr<const LoadedCalendar> calendar)
      : run_(run), calendar_(std::move(calendar)), lanes_(calendar_->lanes.size()) {
    for (uint32_t i = 0; i < lanes_.size(); ++i) run_.ready_worker(i);
    run_.end_at(run_.numbering_start().first_slice);  // there are no slices
  }

  /// Whether a thread that is not in the run could go on with a lane.
  bool has_work() const {
    for (uint32_t i = 0; i < lanes_.size(); ++i) {
      if (!lanes_[i].lock.is_locked() && can_go_on(i)) return true;
    }
    return false;
  }

  bool is_over() const {
    for (uint32_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].done.load(std::memory_order_acquire) < calendar_->lanes[i].size()) return false;
    }
    return true;
  }

  /// Goes on with a lane: the worker's own, or one that no thread is in. False if no task was run.
  bool work(uint32_t slot) {
    for (uint32_t i = 0; i < lanes_.size(); ++i) {
      const auto number = uint32_t((slot + i) % lanes_.size());
      if (!can_go_on(number) || !lanes_[number].lock.try_lock()) continue;
      const std::lock_guard<SpinLock> lock(lanes_[number].lock, std::adopt_lock);
      if (step(number)) return true;
    }
    return false;
  }

  /// Times that a lane had to wait.
  uint64_t num_waits() const { return num_waits_.load(std::memory_order_relaxed); }

 private:
  using Entry = LoadedCalendar::Entry;

  static constexpr int kStepTasks = 32;  ///< until the crew may wake others
  static constexpr int kSpins = 200;     ///< of a wait, before the thread looks for other work

  struct alignas(kLineBytes) Lane {
    std::atomic<uint64_t> done{0};
    SpinLock lock;
  };

  bool can_go_on(uint32_t number) const {
    const uint64_t next = lanes_[number].done.load(std::memory_order_acquire);
    return next < calendar_->lanes[number].size() && has_passed(calendar_->lanes[number][next]);
  }

  /// Acquire: the writes of the tasks that are waited for are visible.
  bool has_passed(const Entry& entry) const {
    for (uint64_t i = entry.first_wait; i < entry.first_wait + entry.num_waits; ++i) {
      const CalendarWait& wait = calendar_->waits[i];
      if (lanes_[wait.core].done.load(std::memory_order_acquire) < wait.count) return false;
    }
    return true;
  }

  bool has_passed_soon(const Entry& entry) const {
    for (int spins = 0; spins < kSpins; ++spins) {
      if (has_passed(entry)) return true;
      relax();
    }
    return false;
  }

  /// False if no task was run. \pre the lane is locked
  bool step(uint32_t number) {
    const std::vector<Entry>& entries = calendar_->lanes[number];
    Lane& lane = lanes_[number];
    Worker& worker = run_.worker(number);
    worker.resume();
    const uint64_t first = lane.done.load(std::memory_order_relaxed);
    for (uint64_t next = first; next < entries.size() && next < first + kStepTasks; ++next) {
      const Entry& entry = entries[next];
      if (!has_passed(entry)) {
        num_waits_.fetch_add(1, std::memory_order_relaxed);
        if (!has_passed_soon(entry)) return next > first;
      }
      // The wait may have ended after the previous task, where a recorded task would begin.
      if (entry.num_waits > 0) worker.resume();
      run(worker, entry);
      lane.done.store(next + 1, std::memory_order_release);
      run_.call_others_after(entry.site);
    }
    return lane.done.load(std::memory_order_relaxed) > first;
  }

  /// A task after a failure does not run, and counts as complete: no earlier task waits for it.
  void run(Worker& worker, const Entry& entry) {
    const bytecode::Plan& plan = run_.plan();
    const bytecode::QuickSite& site = plan.sites[entry.site];
    const uint32_t* index = plan.registers.data() + site.first_register;
    for (uint32_t i = 0; i < site.num_registers; ++i)
      worker.registers()[index[i]] = calendar_->registers[entry.first_register + i];
    run_.run_task(worker, entry.site, worker.registers(), entry.task, 0);
  }

  Run& run_;
  const std::shared_ptr<const LoadedCalendar> calendar_;
  std::vector<Lane> lanes_;
  std::atomic<uint64_t> num_waits_{0};
};

}  // namespace pto::wsp::sched
