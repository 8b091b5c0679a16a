// SPDX-License-Identifier: MIT
/// \file
/// Slices whose tasks are written down, and the two places where one can be while nobody runs it.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "pto/wsp/sched/progress.hpp"

namespace pto::wsp::sched {

/// Consecutive tasks of one strand that one worker at a time runs in order; those before `next` have run.
///
/// Each record in `words` is a header (site | number of waits << 32), the waits, and the registers its site
/// needs.
struct Slice {
  uint64_t number = 0;
  uint64_t first_task = 0;
  int64_t priority = 0;
  uint32_t num_tasks = 0;
  uint32_t next = 0;
  size_t cursor = 0;  ///< where the record of task `next` begins
  uint32_t num_records = 0;
  uint32_t lane = 0;  ///< see pools.hpp
  std::vector<uint64_t> words;
  Name blocked_on = 0;
  uint32_t num_groups = 0;
  uint32_t groups[bytecode::kMaxLoopDepth] = {};  ///< lines of the barrier loops around it
};

/// Whether a slice is taken before another one, if both can be: by priority, then in program order.
inline bool is_before(const Slice* a, const Slice* b) {
  return a->priority != b->priority ? a->priority > b->priority : a->number < b->number;
}

/// Published slices that nobody has taken.
class SliceQueue {
 public:
  size_t size() const { return size_.load(std::memory_order_relaxed); }
  size_t most() const { return most_; }

  void clear() {
    slices_.clear();
    size_.store(0, std::memory_order_relaxed);
    most_ = 0;
  }

  void push(Slice* slice) {
    lock_.lock();
    slices_.push_back(slice);
    std::push_heap(slices_.begin(), slices_.end(), is_behind);
    most_ = std::max(most_, slices_.size());
    size_.store(slices_.size(), std::memory_order_seq_cst);
    lock_.unlock();
  }

  /// Whether `pop` would find a slice.
  bool has_before(uint64_t limit) {
    lock_.lock();
    const bool has_one = !slices_.empty() && slices_.front()->number < limit;
    lock_.unlock();
    return has_one;
  }

  /// The first slice if its number is below `limit`, else null.
  Slice* pop(uint64_t limit) {
    if (size() == 0) return nullptr;
    lock_.lock();
    Slice* slice = nullptr;
    if (!slices_.empty() && slices_.front()->number < limit) {
      std::pop_heap(slices_.begin(), slices_.end(), is_behind);
      slice = slices_.back();
      slices_.pop_back();
      size_.store(slices_.size(), std::memory_order_relaxed);
    }
    lock_.unlock();
    return slice;
  }

 private:
  static bool is_behind(const Slice* a, const Slice* b) { return is_before(b, a); }

  alignas(kLineBytes) SpinLock lock_;
  std::vector<Slice*> slices_;
  size_t most_ = 0;
  alignas(kLineBytes) std::atomic<size_t> size_{0};
};

/// Slices that a worker began, or wanted to begin, and that wait for a moment.
class WaitingSlices {
 public:
  size_t size() const { return size_.load(std::memory_order_relaxed); }
  size_t most() const { return most_; }

  void clear() {
    slices_.clear();
    size_.store(0, std::memory_order_relaxed);
    most_ = 0;
  }

  void push(Slice* slice) {
    lock_.lock();
    const auto is_earlier = [](const Slice* a, const Slice* b) { return is_before(a, b); };
    slices_.insert(std::upper_bound(slices_.begin(), slices_.end(), slice, is_earlier), slice);
    most_ = std::max(most_, slices_.size());
    size_.store(slices_.size(), std::memory_order_seq_cst);
    lock_.unlock();
  }

  /// The first slice whose moment has passed, or null. `oldest` becomes the number of the first of all.
  Slice* pop_ready(const Progress& progress, uint64_t& oldest) {
    if (!lock_.try_lock()) return nullptr;
    if (!slices_.empty()) oldest = slices_.front()->number;
    const auto ready = std::find_if(slices_.begin(), slices_.end(), [&](const Slice* slice) {
      return progress.has_passed(slice->blocked_on);
    });
    Slice* slice = nullptr;
    if (ready != slices_.end()) {
      slice = *ready;
      slices_.erase(ready);
      size_.store(slices_.size(), std::memory_order_relaxed);
    }
    lock_.unlock();
    return slice;
  }

  /// What waits now: for reports.
  std::vector<Slice*> copy() {
    lock_.lock();
    std::vector<Slice*> all = slices_;
    lock_.unlock();
    return all;
  }

 private:
  alignas(kLineBytes) SpinLock lock_;
  std::vector<Slice*> slices_;  ///< in the order in which they are taken
  size_t most_ = 0;
  alignas(kLineBytes) std::atomic<size_t> size_{0};
};

/// Slices to fill. Their memory is kept warm.
class SliceStore {
 public:
  Slice* take() {
    lock_.lock();
    if (free_.empty()) {
      all_.push_back(std::make_unique<Slice>());
      free_.push_back(all_.back().get());
    }
    Slice* slice = free_.back();
    free_.pop_back();
    lock_.unlock();
    return slice;
  }
  void give_back(Slice* slice) {
    slice->words.clear();
    lock_.lock();
    free_.push_back(slice);
    lock_.unlock();
  }
  /// Takes back what a stopped run has left. \pre no slice is in use
  void recover() {
    free_.clear();
    for (const auto& slice : all_) {
      slice->words.clear();
      free_.push_back(slice.get());
    }
  }

 private:
  alignas(kLineBytes) SpinLock lock_;
  std::vector<std::unique_ptr<Slice>> all_;
  std::vector<Slice*> free_;
};

}  // namespace pto::wsp::sched
