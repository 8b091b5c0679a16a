// SPDX-License-Identifier: MIT
/// \file
/// Recorded slices, and the two places where a slice is while no worker runs it.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "pto/wsp/progress.hpp"
#include "pto/wsp/sched/policy.hpp"

namespace pto::wsp::sched {

/// Consecutive tasks of one strand. One worker at a time runs them in order; those before `next` have run.
///
/// Each record in `words` is a header (site | number of waits << 32), the waits, and the registers its site
/// needs.
struct Slice {
  uint64_t number = 0;
  uint64_t first_task = 0;
  Rank rank{};
  uint32_t num_tasks = 0;
  uint32_t next = 0;
  size_t cursor = 0;  ///< begin of the record of task `next`
  uint32_t num_records = 0;
  uint32_t lane = 0;  ///< see pools.hpp
  std::vector<uint64_t> words;
  Name blocked_on = 0;
  uint32_t num_groups = 0;
  uint32_t groups[bytecode::kMaxLoopDepth] = {};  ///< lines of the barrier loops around it
};

/// Whether a slice is taken before another one, if both can be: by rank, then in program order.
inline bool is_before(const Slice* a, const Slice* b) {
  return starts_before(a->rank, a->number, b->rank, b->number);
}

/// Published slices that no worker has taken.
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
    const std::lock_guard<SpinLock> lock(lock_);
    slices_.push_back(slice);
    std::push_heap(slices_.begin(), slices_.end(), is_behind);
    most_ = std::max(most_, slices_.size());
    size_.store(slices_.size(), std::memory_order_seq_cst);
  }

  /// Whether `pop` would find a slice.
  bool has_before(uint64_t limit) const {
    if (size() == 0) return false;
    const std::lock_guard<SpinLock> lock(lock_);
    return !slices_.empty() && slices_.front()->number < limit;
  }

  /// The first slice if its number is below `limit`, else null.
  Slice* pop(uint64_t limit) {
    if (size() == 0) return nullptr;
    const std::lock_guard<SpinLock> lock(lock_);
    if (slices_.empty() || slices_.front()->number >= limit) return nullptr;
    std::pop_heap(slices_.begin(), slices_.end(), is_behind);
    Slice* slice = slices_.back();
    slices_.pop_back();
    size_.store(slices_.size(), std::memory_order_relaxed);
    return slice;
  }

 private:
  static bool is_behind(const Slice* a, const Slice* b) { return is_before(b, a); }

  alignas(kLineBytes) mutable SpinLock lock_;
  std::vector<Slice*> slices_;
  size_t most_ = 0;
  alignas(kLineBytes) std::atomic<size_t> size_{0};
};

/// Slices that a worker took and that must wait.
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
    const std::lock_guard<SpinLock> lock(lock_);
    const auto is_earlier = [](const Slice* a, const Slice* b) { return is_before(a, b); };
    slices_.insert(std::upper_bound(slices_.begin(), slices_.end(), slice, is_earlier), slice);
    most_ = std::max(most_, slices_.size());
    size_.store(slices_.size(), std::memory_order_seq_cst);
  }

  /// The first slice whose wait is satisfied, or null. `oldest` becomes the least slice number.
  Slice* pop_ready(const Progress& progress, uint64_t& oldest) {
    const std::lock_guard<SpinLock> lock(lock_);
    if (!slices_.empty()) oldest = slices_.front()->number;
    const auto ready = find_ready(progress);
    if (ready == slices_.end()) return nullptr;
    Slice* slice = *ready;
    slices_.erase(ready);
    size_.store(slices_.size(), std::memory_order_relaxed);
    return slice;
  }

  /// Whether `pop_ready` would find a slice; `oldest` as there.
  bool has_ready(const Progress& progress, uint64_t& oldest) const {
    if (size() == 0) return false;
    const std::lock_guard<SpinLock> lock(lock_);
    if (!slices_.empty()) oldest = slices_.front()->number;
    return find_ready(progress) != slices_.end();
  }

  /// The slices that wait now, for reports.
  std::vector<Slice*> copy() const {
    const std::lock_guard<SpinLock> lock(lock_);
    return slices_;
  }

 private:
  std::vector<Slice*>::const_iterator find_ready(const Progress& progress) const {
    return std::find_if(slices_.begin(), slices_.end(),
                        [&](const Slice* slice) { return progress.has_passed(slice->blocked_on); });
  }

  alignas(kLineBytes) mutable SpinLock lock_;
  std::vector<Slice*> slices_;  ///< in the order in which they are taken
  size_t most_ = 0;
  alignas(kLineBytes) std::atomic<size_t> size_{0};
};

/// Empty slices for reuse. Their memory stays warm.
class SliceStore {
 public:
  Slice* take() {
    if (Slice* slice = take_free()) return slice;
    auto fresh = std::make_unique<Slice>();
    const std::lock_guard<SpinLock> lock(lock_);
    free_.reserve(all_.size() + 1);  // so that giving back never allocates
    all_.push_back(std::move(fresh));
    return all_.back().get();
  }
  void give_back(Slice* slice) {
    slice->words.clear();
    const std::lock_guard<SpinLock> lock(lock_);
    free_.push_back(slice);
  }

 private:
  Slice* take_free() {
    const std::lock_guard<SpinLock> lock(lock_);
    if (free_.empty()) return nullptr;
    Slice* slice = free_.back();
    free_.pop_back();
    return slice;
  }

  alignas(kLineBytes) SpinLock lock_;
  std::vector<std::unique_ptr<Slice>> all_;
  std::vector<Slice*> free_;
};

}  // namespace pto::wsp::sched
