// SPDX-License-Identifier: MIT
/// \file
/// The tasks of a process that are in flight on several workers.
///
/// The walk of a process adds tasks, sends and receipts in program order. Tasks run when the earlier ones
/// that they conflict with are complete. All retire in program order: a token is sent, or its buffer freed,
/// when everything before it is complete. So other processes cannot see that tasks overlap, and a task that
/// fails ends its process as if it were the only one in flight.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/graph/task_order.hpp"
#include "pto/wsp/progress.hpp"
#include "pto/wsp/spin.hpp"

namespace pto::wsp::sched {

class TaskWindow {
 public:
  static constexpr uint32_t kSize = 64;

  /// A task, or the end of a send or receipt.
  struct Entry {
    bool is_complete = false;
    uint32_t num_waits = 0;
    uint64_t followers = 0;  ///< a bit per entry that waits for this one
    uint64_t number = 0;     ///< of the task in its process, or of the token
    std::vector<int64_t> registers;
    graph::TaskPlace place;
    uint32_t move = kNoMove;  ///< the send or receipt that ends
  };
  static constexpr uint32_t kNoMove = UINT32_MAX;

  /// When a process that is parked goes on.
  enum class Until : uint8_t { kProgress, kEmpty };

  /// The consequences of a task that is complete.
  struct Step {
    uint64_t ready = 0;       ///< a bit per entry that can run now
    bool wakes_walk = false;  ///< the parked process goes on
  };

  // Of the walk

  /// Acquire: if it is true, the writes of all tasks are visible.
  bool is_empty() const { return head_.load(std::memory_order_acquire) == tail_; }
  bool has_room() const { return tail_ - head_.load(std::memory_order_acquire) < kSize; }
  bool has_failed() const { return failed_.load(std::memory_order_relaxed) != UINT64_MAX; }
  /// The error of the first task that failed, if one did. \pre is_empty()
  std::optional<EngineError> take_failure() { return std::move(failure_); }

  /// Adds a task. Returns its index if it can run now, else kSize. \pre has_room()
  uint32_t add_task(const graph::TaskOrder& order, uint32_t site, const int64_t* registers,
                    size_t num_registers, uint64_t number) {
    Entry& entry = begin(number);
    entry.registers.assign(registers, registers + num_registers);
    order.place(site, registers, entry.place);
    uint64_t earlier = 0;
    for (uint64_t i = head_.load(std::memory_order_acquire); i < tail_; ++i) {
      const Entry& other = entries_[i % kSize];
      if (other.move == kNoMove && order.waits(entry.place, other.place)) earlier |= bit(i);
    }
    const std::lock_guard<SpinLock> lock(lock_);
    for (; earlier != 0; earlier &= earlier - 1) {
      Entry& other = entries_[uint32_t(__builtin_ctzll(earlier))];
      if (other.is_complete) continue;
      other.followers |= bit(tail_);
      ++entry.num_waits;
    }
    const auto index = uint32_t(tail_++ % kSize);
    return entry.num_waits == 0 ? index : kSize;
  }

  /// Adds the end of a send or receipt. \pre has_room(), and the window is not empty
  template <class Apply>
  void add_move(uint32_t move, uint64_t token, const Apply& apply) {
    Entry& entry = begin(token);
    entry.move = move;
    entry.is_complete = true;
    const std::lock_guard<SpinLock> lock(lock_);
    ++tail_;
    retire(apply);
  }

  /// Leaves the walk to the worker that completes the awaited task. False if that has happened: then the walk
  /// still belongs to the caller.
  bool park(Until until) {
    const std::lock_guard<SpinLock> lock(lock_);
    if (is_empty()) return false;
    until_ = until;
    return is_parked_ = true;
  }

  // Of any worker

  const Entry& entry(uint32_t index) const { return entries_[index]; }

  /// Whether an earlier task has failed, so that the task is left out.
  bool is_left_out(uint32_t index) const {
    return entries_[index].number > failed_.load(std::memory_order_relaxed);
  }

  /// The task is complete, has failed, or was left out. Calls `apply(move, token)` for each send or receipt
  /// that ends now.
  template <class Apply>
  Step complete(uint32_t index, std::optional<EngineError> error, const Apply& apply) {
    Step step;
    const std::lock_guard<SpinLock> lock(lock_);
    Entry& entry = entries_[index];
    entry.is_complete = true;
    if (error && entry.number < failed_.load(std::memory_order_relaxed)) {
      failed_.store(entry.number, std::memory_order_relaxed);
      failure_ = std::move(error);
    }
    for (uint64_t left = entry.followers; left != 0; left &= left - 1) {
      const auto next = uint32_t(__builtin_ctzll(left));
      if (--entries_[next].num_waits == 0) step.ready |= bit(next);
    }
    const bool has_moved = retire(apply);
    step.wakes_walk = is_parked_ && has_moved && (until_ == Until::kProgress || is_empty());
    if (step.wakes_walk) is_parked_ = false;
    return step;
  }

 private:
  static uint64_t bit(uint64_t number) { return uint64_t{1} << number % kSize; }

  Entry& begin(uint64_t number) {
    Entry& entry = entries_[tail_ % kSize];
    entry.is_complete = false;
    entry.num_waits = 0;
    entry.followers = 0;
    entry.number = number;
    entry.move = kNoMove;
    return entry;
  }

  /// Takes out what is complete, in order. Returns whether there was any. After a failure nothing is sent or
  /// freed. \pre the lock is held
  template <class Apply>
  bool retire(const Apply& apply) {
    const uint64_t first = head_.load(std::memory_order_relaxed);
    const uint64_t failed = failed_.load(std::memory_order_relaxed);
    uint64_t head = first;
    for (; head < tail_ && entries_[head % kSize].is_complete; ++head) {
      const Entry& entry = entries_[head % kSize];
      const bool is_task = entry.move == kNoMove;
      if (!is_task && !is_over_) apply(entry.move, entry.number);
      is_over_ = is_over_ || (is_task && entry.number == failed);
    }
    head_.store(head, std::memory_order_release);
    return head != first;
  }

  SpinLock lock_;
  std::array<Entry, kSize> entries_;
  uint64_t tail_ = 0;  ///< written by the walk, under the lock
  std::atomic<uint64_t> head_{0};
  std::atomic<uint64_t> failed_{UINT64_MAX};  ///< the first task that failed
  std::optional<EngineError> failure_;
  bool is_over_ = false;  ///< the task that failed has retired
  bool is_parked_ = false;
  Until until_ = Until::kProgress;
};

}  // namespace pto::wsp::sched
