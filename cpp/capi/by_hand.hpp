// SPDX-License-Identifier: MIT
/// \file
/// Tasks that the program takes and completes itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "mistake.hpp"
#include "recorder.hpp"

namespace pto::wsp::capi {

/// Counts, per task, the earlier ones that are not complete. Any thread may take, run and complete tasks
/// while one thread submits more.
class ByHand {
 public:
  explicit ByHand(Tasks& tasks) : tasks_(tasks), finder_(tasks) {}

  /// Tasks from place `first` on can be taken; those before it are complete. \pre it is closed
  void open(uint32_t first) {
    const std::lock_guard<std::mutex> lock(mutex_);
    begin(first);
    is_open_ = true;
  }

  /// From now on no task can be taken; false if that cannot be, because one is taken and not complete.
  bool close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (num_taken_ > 0) return false;
    is_open_ = false;
    changed_.notify_all();
    return true;
  }

  /// No thread waits for a task any more.
  void stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopped_ = true;
    changed_.notify_all();
  }

  /// Begins again, with no task. \pre no other thread uses it
  void clear() {
    begin(0);
    is_open_ = true;
    is_used_.store(false, std::memory_order_relaxed);
  }

  /// Whether threads take tasks. Sequentially consistent with `begin_use`.
  bool is_used() const { return is_used_.load(std::memory_order_seq_cst); }
  void begin_use() { is_used_.store(true, std::memory_order_seq_cst); }

  /// Says to those who wait that a task was submitted.
  void notice_submitted() {
    if (!is_used_.load(std::memory_order_relaxed)) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }

  /// The number of a task that waits for nothing, or PTO_NO_TASK. With `waits`, that only when all are
  /// complete or it is stopped.
  int32_t take(bool waits) {
    std::unique_lock<std::mutex> lock(mutex_);
    begin_use();
    for (;;) {
      if (!is_open_) throw Mistake{PTO_ERROR_STATE, "workers run the tasks already"};
      see_submitted();
      if (!ready_.empty() || !waits || num_complete_ == num_seen_ || is_stopped_) break;
      // The thread that submits may not have seen yet that this one waits.
      changed_.wait_for(lock, std::chrono::milliseconds(1));
    }
    if (ready_.empty() || is_stopped_) return PTO_NO_TASK;
    const uint32_t number = tasks_.number_at(ready_.front());
    ready_.pop_front();
    tasks_[number].set(Task::State::kTaken);
    ++num_taken_;
    return int32_t(number);
  }

  /// False if the task is not one that was taken, or if it was begun before.
  bool begin_run(uint32_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (number >= place_of_.size() || tasks_[number].state() != Task::State::kTaken) return false;
    tasks_[number].set(Task::State::kBegun);
    return true;
  }

  /// False if the task is not one that was taken.
  bool complete(uint32_t number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (number >= place_of_.size()) return false;
    const Task::State state = tasks_[number].state();
    if (state != Task::State::kTaken && state != Task::State::kBegun) return false;
    tasks_[number].set(Task::State::kComplete);
    --num_taken_;
    ++num_complete_;
    for (const uint32_t later : later_[place_of_[number] - first_]) {
      if (--num_open_[later - first_] == 0) ready_.push_back(later);
    }
    changed_.notify_all();
    return true;
  }

 private:
  void begin(uint32_t first) {
    first_ = num_seen_ = num_complete_ = first;
    finder_.clear();
    later_.clear();
    num_open_.clear();
    ready_.clear();
  }

  void see_submitted() {
    for (const uint32_t end = tasks_.num_submitted(); num_seen_ < end; ++num_seen_) see(num_seen_);
  }

  void see(uint32_t place) {
    const uint32_t number = tasks_.number_at(place);
    if (number >= place_of_.size()) place_of_.resize(number + 1);
    place_of_[number] = place;
    later_.emplace_back();
    num_open_.push_back(0);
    for (const uint32_t earlier : finder_.next_sorted(tasks_[number], place)) {
      if (tasks_.at(earlier).state() == Task::State::kComplete) continue;
      later_[earlier - first_].push_back(place);
      ++num_open_.back();
    }
    if (num_open_.back() == 0) ready_.push_back(place);
  }

  Tasks& tasks_;
  std::mutex mutex_;
  std::condition_variable changed_;
  EarlierFinder finder_;
  uint32_t first_ = 0;                        ///< place
  std::vector<std::vector<uint32_t>> later_;  ///< per place, from `first_` on
  std::vector<uint32_t> num_open_;            ///< the same: earlier ones that are not complete
  std::vector<uint32_t> place_of_;            ///< per number
  std::deque<uint32_t> ready_;                ///< places
  uint32_t num_seen_ = 0;
  uint32_t num_taken_ = 0;
  uint32_t num_complete_ = 0;
  bool is_open_ = true;
  bool is_stopped_ = false;
  std::atomic<bool> is_used_{false};
};

}  // namespace pto::wsp::capi
