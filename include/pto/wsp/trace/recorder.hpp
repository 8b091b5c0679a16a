// SPDX-License-Identifier: MIT
/// \file
/// The events of a worker: when each task began and ended.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::trace {

/// Times in ticks.
struct TaskEvent {
  uint64_t task;
  int64_t start;
  int64_t end;
};

/// Tasks that a dispatcher made.
struct MadeSlice {
  uint64_t first_task;
  uint32_t num_tasks;
  int64_t ticks;  ///< when it had made them, or 0 if that is not recorded
};

/// A worker was at work for a run: it expanded tasks, found dependences, took slices. The tasks that it ran
/// meanwhile lie inside.
struct Stretch {
  int64_t start;
  int64_t end;
};

/// The events of one worker, in chunks that never move.
class Events {
 public:
  void add(const TaskEvent& event) {
    if (size_ == chunks_.size() * kChunk)
      chunks_.push_back(std::unique_ptr<TaskEvent[]>(new TaskEvent[kChunk]));
    chunks_[size_ / kChunk][size_ % kChunk] = event;
    ++size_;
  }

  template <class Visit>
  void for_each(Visit visit) const {
    for (size_t i = 0; i < size_; ++i) visit(chunks_[i / kChunk][i % kChunk]);
  }

 private:
  static constexpr size_t kChunk = 4096;

  std::vector<std::unique_ptr<TaskEvent[]>> chunks_;
  size_t size_ = 0;
};

/// Reads the clock once per task: the end of a task is the start of the task that follows immediately.
class Recorder {
 public:
  /// The thread returns to tasks from other work, whose time belongs to no task.
  void resume() { last_ = ticks_after(); }

  /// Returns the ticks that the task took.
  int64_t note_end(uint64_t task) {
    const int64_t start = last_;
    last_ = ticks();
    events_.add({task, start, last_});
    return last_ - start;
  }

  /// The worker looked for work from `start` until now. A search without result counts only if it was long.
  /// Stretches that nearly touch are merged.
  void note_stretch(int64_t start, bool has_worked) {
    const int64_t end = ticks();
    if (!has_worked && end - start < kShortTicks) return;
    if (!stretches_.empty() && start - stretches_.back().end < kShortTicks) {
      stretches_.back().end = end;
    } else {
      stretches_.push_back({start, end});
    }
  }

  Events take_events() { return std::exchange(events_, {}); }
  std::vector<Stretch> take_stretches() { return std::exchange(stretches_, {}); }

 private:
  static constexpr int64_t kShortTicks = 2000;  ///< about a microsecond

  Events events_;
  std::vector<Stretch> stretches_;
  int64_t last_ = 0;
};

}  // namespace pto::wsp::trace
