// SPDX-License-Identifier: MIT
/// \file
/// A calendar: which core runs which task when. It holds for the arguments of one run.
#pragma once

#include <cstdint>
#include <vector>

namespace pto::wsp::sched {

/// The arguments of a run that decide which tasks exist and which of them conflict.
struct CalendarBasis {
  std::vector<int64_t> symbols;    ///< sizes and scalars
  std::vector<uint64_t> elements;  ///< per tensor, a hash of its elements that decide; 0 = none decides
  std::vector<uint32_t> groups;    ///< per tensor, its memory
};

/// The first `count` tasks of a core are complete.
struct CalendarWait {
  uint32_t core;
  uint64_t count;
};

struct CalendarRow {
  static constexpr uint32_t kNoCore = UINT32_MAX;

  uint64_t task;
  uint32_t core;    ///< among those of all kinds
  uint32_t second;  ///< another core that the task takes, or kNoCore
  int64_t start, end;
};

/// Rows ascend by start. A core runs its tasks in the order of rows. A row waits for earlier rows only, so
/// the tasks can always go on.
struct Calendar {
  std::vector<uint32_t> kinds;  ///< per kind of core, how many there are
  CalendarBasis basis;
  std::vector<CalendarRow> rows;
  std::vector<uint64_t> first_wait{0};  ///< per row, and the end
  std::vector<CalendarWait> waits;      ///< of all rows

  uint32_t num_cores() const {
    uint32_t cores = 0;
    for (const uint32_t count : kinds) cores += count;
    return cores;
  }

  /// The last task of a wait. \pre the core has that many tasks
  uint64_t task_of(const CalendarWait& wait) const {
    uint64_t count = 0;
    for (const CalendarRow& row : rows) {
      if ((row.core == wait.core || row.second == wait.core) && ++count == wait.count) return row.task;
    }
    return UINT64_MAX;
  }

  template <class Visit>
  void for_waits(size_t row, Visit visit) const {
    for (uint64_t i = first_wait[row]; i < first_wait[row + 1]; ++i) visit(waits[i]);
  }
};

/// A calendar for the workers of a run of one plan. Its tasks have the registers of their places.
struct LoadedCalendar {
  struct Entry {
    uint64_t task;
    uint32_t site;
    uint32_t num_waits;
    uint64_t first_wait;
    uint64_t first_register;
  };

  std::vector<std::vector<Entry>> lanes;  ///< per worker, in the order of running
  std::vector<CalendarWait> waits;
  std::vector<int64_t> registers;  ///< those that the site of an entry reads
};

}  // namespace pto::wsp::sched
