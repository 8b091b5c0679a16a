// SPDX-License-Identifier: MIT
/// \file
/// Tasks that the program takes and completes itself.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "recorder.hpp"

namespace pto::wsp::capi {

/// Counts, per task, the earlier ones that are not complete. Any thread may take and complete tasks while one
/// thread submits more.
class ByHand {
 public:
  explicit ByHand(Tasks& tasks) : tasks_(tasks), finder_(tasks) { add_submitted(); }

  /// Sees the tasks that were submitted since.
  void add_submitted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (; num_seen_ < tasks_.num_submitted(); ++num_seen_) see(num_seen_);
    changed_.notify_all();
  }

  /// The number of a task that waits for nothing, or PTO_NO_TASK. With `waits`, that only when all are
  /// complete.
  int32_t take(bool waits) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (waits && ready_.empty() && num_complete_ < num_seen_) changed_.wait(lock);
    if (ready_.empty()) return PTO_NO_TASK;
    const uint32_t number = tasks_.number_at(ready_.front());
    ready_.pop_front();
    tasks_[number].state = Task::State::kTaken;
    ++num_taken_;
    return int32_t(number);
  }

  /// False if the task is not one that was taken.
  bool complete(uint32_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_taken_locked(number)) return false;
    tasks_[number].state = Task::State::kComplete;
    --num_taken_;
    ++num_complete_;
    for (const uint32_t later : later_[place_of_[number]]) {
      if (--num_open_[later] == 0) ready_.push_back(later);
    }
    changed_.notify_all();
    return true;
  }

  bool is_taken(uint32_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_taken_locked(number);
  }
  bool has_taken() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return num_taken_ > 0;
  }

 private:
  bool is_taken_locked(uint32_t number) const {
    return number < place_of_.size() && tasks_[number].state == Task::State::kTaken;
  }

  void see(uint32_t place) {
    const uint32_t number = tasks_.number_at(place);
    const Task& task = tasks_[number];
    if (number >= place_of_.size()) place_of_.resize(number + 1);
    place_of_[number] = place;
    later_.emplace_back();
    num_open_.push_back(0);
    for (const uint32_t earlier : finder_.next_sorted(task, place)) {
      if (tasks_.at(earlier).state == Task::State::kComplete) continue;
      later_[earlier].push_back(place);
      ++num_open_[place];
    }
    if (task.state == Task::State::kComplete) {
      ++num_complete_;
    } else if (num_open_[place] == 0) {
      ready_.push_back(place);
    }
  }

  Tasks& tasks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  EarlierFinder finder_;
  std::vector<std::vector<uint32_t>> later_;  ///< per place
  std::vector<uint32_t> num_open_;            ///< per place, earlier ones that are not complete
  std::vector<uint32_t> place_of_;            ///< per number
  std::deque<uint32_t> ready_;
  uint32_t num_seen_ = 0;
  uint32_t num_taken_ = 0;
  uint32_t num_complete_ = 0;
};

}  // namespace pto::wsp::capi
