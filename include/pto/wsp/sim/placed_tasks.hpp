// SPDX-License-Identifier: MIT
/// \file
/// The ready tasks of a simulation by a calendar: each has its cores and its turn on them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/sched/calendar.hpp"

namespace pto::wsp::sim {

class PlacedTasks {
 public:
  explicit PlacedTasks(const sched::Calendar& calendar)
      : rows_(calendar.rows),
        row_of_(calendar.rows.size()),
        is_ready_(calendar.rows.size(), false),
        queues_(calendar.num_cores()) {
    for (size_t row = 0; row < rows_.size(); ++row) {
      row_of_[rows_[row].task] = row;
      for_cores(rows_[row], [&](uint32_t core) { queues_[core].rows.push_back(row); });
    }
    uint32_t first = 0;
    for (const uint32_t count : calendar.kinds) {
      first_of_kind_.push_back(first);
      first += count;
    }
    first_of_kind_.push_back(first);
  }

  bool is_empty() const { return num_ready_ == 0; }
  void add(uint64_t task) {
    is_ready_[row_of_[task]] = true;
    ++num_ready_;
  }

  /// Takes a ready task whose turn it is on all its cores, which are idle.
  std::optional<uint64_t> take() {
    for (Queue& queue : queues_) {
      if (queue.is_busy || queue.next == queue.rows.size()) continue;
      const sched::CalendarRow& row = rows_[queue.rows[queue.next]];
      if (!is_ready_[queue.rows[queue.next]] || !has_turn(row)) continue;
      for_cores(row, [&](uint32_t core) {
        queues_[core].is_busy = true;
        ++queues_[core].next;
      });
      --num_ready_;
      return row.task;
    }
    return {};
  }

  void complete(uint64_t task) {
    for_cores(rows_[row_of_[task]], [&](uint32_t core) { queues_[core].is_busy = false; });
  }

  /// The core of a task among those of a kind. Throws `bad-calendar` if the task has a core of another kind.
  uint32_t core_of(uint64_t task, uint32_t kind, bool is_first) const {
    const sched::CalendarRow& row = rows_[row_of_[task]];
    const uint32_t core = is_first ? row.core : row.second;
    if (core < first_of_kind_[kind] || core >= first_of_kind_[kind + 1])
      throw EngineError("bad-calendar", "a task has a core of another kind")
          .with_int("row", int64_t(row_of_[task]));
    return core - first_of_kind_[kind];
  }

 private:
  struct Queue {
    std::vector<size_t> rows;
    size_t next = 0;
    bool is_busy = false;
  };

  template <class Visit>
  static void for_cores(const sched::CalendarRow& row, Visit visit) {
    visit(row.core);
    if (row.second != sched::CalendarRow::kNoCore) visit(row.second);
  }

  bool has_turn(const sched::CalendarRow& row) const {
    bool has_turn = true;
    for_cores(row, [&](uint32_t core) {
      const Queue& queue = queues_[core];
      has_turn = has_turn && !queue.is_busy && rows_[queue.rows[queue.next]].task == row.task;
    });
    return has_turn;
  }

  const std::vector<sched::CalendarRow>& rows_;
  std::vector<size_t> row_of_;  ///< per task
  std::vector<bool> is_ready_;  ///< per row
  std::vector<Queue> queues_;   ///< per core
  std::vector<uint32_t> first_of_kind_;
  uint64_t num_ready_ = 0;
};

}  // namespace pto::wsp::sim
