// SPDX-License-Identifier: MIT
/// \file
/// Tasks of a simulation, from when a walk makes them until they are complete.
#pragma once

#include <cstdint>
#include <vector>

#include "pto/wsp/progress.hpp"
#include "pto/wsp/sched/policy.hpp"

namespace pto::wsp::sim {

/// A region of memory that a task moves.
struct Use {
  uint64_t region;  ///< a hash of where it begins, and of its strides
  uint64_t bytes;   ///< that are moved
  uint64_t extent;  ///< distinct bytes among them
  bool is_stored = false;
  bool is_streamed = false;  ///< stores go past the caches
  bool is_loaded = false;
};

/// A task as a walk of the program makes it.
struct SourceTask {
  uint32_t site = 0;
  uint32_t cost = 0;               ///< number of its cost
  sched::Traits traits;            ///< what the schedule says of it
  std::vector<sched::Name> waits;  ///< tasks are slices here: a name is (task, all of it)
  std::vector<uint32_t> groups;    ///< lines that its completion counts in
  std::vector<Use> uses;
  uint64_t value = 0;              ///< number of its value of PREFETCH, or 0
  std::vector<sched::Name> gates;  ///< no task from here on is made before: they decide what is made
};

inline constexpr uint32_t kNoEdge = UINT32_MAX;
inline constexpr uint64_t kNoTask = UINT64_MAX;
/// What waits for `gates`, in place of a task.
inline constexpr uint64_t kGate = UINT64_MAX - 1;

/// Why a task started when it did.
enum class Cause : uint8_t {
  kMade,   ///< a dispatcher had made it just then
  kTask,   ///< it waited for another task
  kCore,   ///< it waited for a core that another task had
  kPace,   ///< the schedule limits the rate
  kStart,  ///< the schedule starts tasks later
};
inline constexpr int kNumCauses = 5;

/// A task that is not complete.
struct LiveTask {
  uint32_t site = 0;
  uint32_t cost = 0;
  uint32_t dispatcher = 0;
  uint32_t lane = 0;
  uint32_t num_waits = 0;
  uint32_t first_edge = kNoEdge;  ///< tasks that wait for it
  uint32_t first_core = 0, second_core = 0;
  sched::Rank rank{};
  uint64_t value = 0;  ///< number of its value of PREFETCH, or 0
  bool is_made = false;
  bool is_complete = false;
  Cause cause = Cause::kMade;
  uint64_t because = kNoTask;  ///< the task that `cause` names
  double made = 0, ready = 0, start = 0, end = 0;
  double least_end = 0;  ///< by its own cycles
  std::vector<uint32_t> groups;
  std::vector<Use> uses;
};

/// Tasks from the oldest that is not complete to the newest, by number.
class LiveTasks {
 public:
  void begin() {
    tasks_.assign(1024, {});
    oldest_ = end_ = 0;
  }
  uint64_t oldest() const { return oldest_; }
  uint64_t end() const { return end_; }

  /// Whether a task that has been added is complete.
  bool is_complete(uint64_t task) const { return task < oldest_ || (*this)[task].is_complete; }

  LiveTask& operator[](uint64_t task) { return tasks_[task & (tasks_.size() - 1)]; }
  const LiveTask& operator[](uint64_t task) const { return tasks_[task & (tasks_.size() - 1)]; }

  /// The next task. What the walk and the dispatcher say of it is that of an earlier task.
  LiveTask& add() {
    if (end_ - oldest_ == tasks_.size()) grow();
    LiveTask& task = (*this)[end_++];
    task.num_waits = 0;
    task.first_edge = kNoEdge;
    task.is_made = task.is_complete = false;
    task.cause = Cause::kMade;
    task.because = kNoTask;
    return task;
  }

  /// Drops what is complete from the front.
  void advance() {
    while (oldest_ < end_ && (*this)[oldest_].is_complete) ++oldest_;
  }

 private:
  void grow() {
    std::vector<LiveTask> larger(2 * tasks_.size());
    for (uint64_t task = oldest_; task < end_; ++task)
      larger[task & (larger.size() - 1)] = std::move((*this)[task]);
    tasks_ = std::move(larger);
  }

  std::vector<LiveTask> tasks_;
  uint64_t oldest_ = 0, end_ = 0;
};

}  // namespace pto::wsp::sim
