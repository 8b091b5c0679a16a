// SPDX-License-Identifier: MIT
/// \file
/// The order that a calendar guarantees: finds the waits that it needs, and checks that it has them.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/sim/calendar_tasks.hpp"

namespace pto::wsp::sim {

/// What is complete when a row begins: per core, a count of its first tasks. A row takes over the counts of
/// the row before it on its core, and of the rows that it waits for.
class CalendarClocks {
 public:
  /// Throws `calendar-too-large`.
  CalendarClocks(uint32_t num_cores, size_t num_rows)
      : num_cores_(num_cores), rows_of_(num_cores), now_(num_cores, 0) {
    if (uint64_t(num_rows) * num_cores > kMaxCounts)
      throw EngineError("calendar-too-large", "there are too many tasks for this number of cores");
    counts_.reserve(num_rows * num_cores);
  }

  void begin(const sched::CalendarRow& row) {
    std::fill(now_.begin(), now_.end(), 0);
    for_cores(row, [&](uint32_t core) {
      if (!rows_of_[core].empty()) merge(rows_of_[core].back());
    });
  }

  bool has(const sched::CalendarWait& wait) const { return now_[wait.core] >= wait.count; }
  /// Whether the rows of `wait` have completed before another one ends.
  bool is_before(const sched::CalendarWait& wait, const sched::CalendarWait& other) const {
    const size_t row = rows_of_[other.core][other.count - 1];
    return counts_[row * num_cores_ + wait.core] >= wait.count;
  }
  /// \pre the wait is for earlier rows
  void pass(const sched::CalendarWait& wait) { merge(rows_of_[wait.core][wait.count - 1]); }

  void end(const sched::CalendarRow& row) {
    const size_t number = counts_.size() / num_cores_;
    for_cores(row, [&](uint32_t core) {
      rows_of_[core].push_back(number);
      now_[core] = uint32_t(rows_of_[core].size());
    });
    counts_.insert(counts_.end(), now_.begin(), now_.end());
  }

 private:
  static constexpr uint64_t kMaxCounts = uint64_t{1} << 28;

  template <class Visit>
  static void for_cores(const sched::CalendarRow& row, Visit visit) {
    visit(row.core);
    if (row.second != sched::CalendarRow::kNoCore) visit(row.second);
  }

  void merge(size_t row) {
    for (uint32_t core = 0; core < num_cores_; ++core)
      now_[core] = std::max(now_[core], counts_[row * num_cores_ + core]);
  }

  const uint32_t num_cores_;
  std::vector<std::vector<size_t>> rows_of_;  ///< per core
  std::vector<uint32_t> now_;                 ///< of the row that begins
  std::vector<uint32_t> counts_;              ///< per row, when it is complete
};

/// Adds the waits that no other order implies. Each of them is necessary.
inline void find_waits(sched::Calendar& calendar, const Lists<sched::CalendarWait>& required) {
  CalendarClocks clocks(calendar.num_cores(), calendar.rows.size());
  std::vector<sched::CalendarWait> needed;
  for (const sched::CalendarRow& row : calendar.rows) {
    clocks.begin(row);
    needed.clear();
    for (const auto* wait = required.begin(row.task); wait != required.end(row.task); ++wait) {
      if (clocks.has(*wait)) continue;
      const auto same = std::find_if(needed.begin(), needed.end(),
                                     [&](const auto& other) { return other.core == wait->core; });
      if (same == needed.end()) {
        needed.push_back(*wait);
      } else {
        same->count = std::max(same->count, wait->count);
      }
    }
    for (size_t i = 0; i < needed.size();) {
      const bool is_implied = std::any_of(needed.begin(), needed.end(), [&](const auto& other) {
        return other.core != needed[i].core && clocks.is_before(needed[i], other);
      });
      if (is_implied) {
        needed.erase(needed.begin() + std::ptrdiff_t(i));
      } else {
        ++i;
      }
    }
    for (const sched::CalendarWait& wait : needed) {
      clocks.pass(wait);
      calendar.waits.push_back(wait);
    }
    calendar.first_wait.push_back(calendar.waits.size());
    clocks.end(row);
  }
}

/// Throws `calendar-unordered` with two tasks if the calendar does not order a task after one that it waits
/// for. \pre check_rows
inline void check_order(const sched::Calendar& calendar, const CalendarTasks& tasks,
                        const bytecode::Plan& plan, const Lists<sched::CalendarWait>& required) {
  CalendarClocks clocks(calendar.num_cores(), calendar.rows.size());
  for (size_t i = 0; i < calendar.rows.size(); ++i) {
    const sched::CalendarRow& row = calendar.rows[i];
    clocks.begin(row);
    calendar.for_waits(i, [&](const sched::CalendarWait& wait) { clocks.pass(wait); });
    for (const auto* wait = required.begin(row.task); wait != required.end(row.task); ++wait) {
      if (clocks.has(*wait)) continue;
      const uint64_t before = calendar.task_of(*wait);
      throw EngineError("calendar-unordered", "the calendar does not order two tasks that conflict")
          .with_int("task", int64_t(row.task))
          .with_int("before", int64_t(before))
          .with_int("pc", plan.sites[tasks.sites[row.task]].pc)
          .with_int("before_pc", plan.sites[tasks.sites[before]].pc)
          .with_int("core", wait->core)
          .with_int("count", int64_t(wait->count));
    }
    clocks.end(row);
  }
}

/// Throws `bad-calendar` with a row if the rows are not a calendar of `num_tasks` tasks.
inline void check_rows(const sched::Calendar& calendar, size_t num_tasks) {
  const auto fail = [](size_t row, const char* reason) {
    throw EngineError("bad-calendar", reason).with_int("row", int64_t(row));
  };
  if (calendar.rows.size() != num_tasks) fail(calendar.rows.size(), "the run has another number of tasks");
  std::vector<bool> is_placed(num_tasks, false);
  std::vector<uint64_t> counts(calendar.num_cores(), 0);
  for (size_t i = 0; i < calendar.rows.size(); ++i) {
    const sched::CalendarRow& row = calendar.rows[i];
    if (row.task >= num_tasks || is_placed[row.task]) fail(i, "each task has one row");
    is_placed[row.task] = true;
    const bool has_second = row.second != sched::CalendarRow::kNoCore;
    if (row.core >= counts.size() || (has_second && row.second >= counts.size()))
      fail(i, "there is no such core");
    if (i > 0 && row.start < calendar.rows[i - 1].start) fail(i, "rows ascend by start");
    if (row.end < row.start) fail(i, "a task ends before it starts");
    calendar.for_waits(i, [&](const sched::CalendarWait& wait) {
      if (wait.core >= counts.size() || wait.count == 0 || wait.count > counts[wait.core])
        fail(i, "a row waits for rows that do not precede it");
    });
    ++counts[row.core];
    if (has_second) ++counts[row.second];
  }
}

/// Where each task is. \pre the rows have existing tasks and cores
inline Positions positions_of(const sched::Calendar& calendar) {
  Positions at{std::vector<uint32_t>(calendar.rows.size()), std::vector<uint64_t>(calendar.rows.size())};
  std::vector<uint64_t> counts(calendar.num_cores(), 0);
  for (const sched::CalendarRow& row : calendar.rows) {
    at.core[row.task] = row.core;
    at.number[row.task] = counts[row.core]++;
    if (row.second != sched::CalendarRow::kNoCore) ++counts[row.second];
  }
  return at;
}

}  // namespace pto::wsp::sim
