// SPDX-License-Identifier: MIT
/// \file
/// Slices, and the two places where a slice can be while nobody runs it.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "pto/wsp/bytecode/format.hpp"
#include "pto/wsp/sched/counters.hpp"

namespace pto::wsp::sched {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class SpinLock {
 public:
  void lock() {
    for (int spins = 0; !try_lock(); ++spins) {
      if (spins < 100) {
        relax();
      } else {
        std::this_thread::yield();
      }
    }
  }
  bool try_lock() {
    return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire);
  }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

/// A run of tasks, consecutive in program order and of one strand, that one worker at a time executes in
/// order.
///
/// Task i of the slice is complete when `counter` reaches base + i + 1. Each record in `words` is a header
/// (site | number of waits << 32), the waits, and the registers its site needs.
struct alignas(kLineBytes) Slice {
  uint64_t number = 0;
  uint64_t first_task = 0;
  uint32_t num_tasks = 0;
  uint32_t next = 0;  ///< first task that has not run
  size_t cursor = 0;  ///< where its record begins
  uint32_t counter = 0;
  uint64_t base = 0;
  std::vector<uint64_t> words;
  Name blocked_on = 0;
  uint32_t num_groups = 0;
  uint32_t groups[bytecode::kMaxLoopDepth] = {};  ///< counters of the enclosing barrier loops

  /// number + 1 once every task is complete. On its own line: it is all that others read of a running slice.
  alignas(kLineBytes) std::atomic<uint64_t> done{0};
};

inline constexpr uint32_t kMaxLiveSlices = 1024;

/// Published slices that nobody has taken, oldest first. One thread pushes.
class SliceQueue {
 public:
  size_t size() const { return size_.load(std::memory_order_relaxed); }

  void push(Slice* slice) {
    lock_.lock();
    ring_[tail_++ % kMaxLiveSlices] = slice;
    size_.store(tail_ - head_, std::memory_order_seq_cst);
    lock_.unlock();
  }

  /// The oldest slice if its number is below `limit`, else null.
  Slice* pop(uint64_t limit) {
    if (size() == 0) return nullptr;
    lock_.lock();
    Slice* slice = nullptr;
    if (head_ != tail_ && ring_[head_ % kMaxLiveSlices]->number < limit) {
      slice = ring_[head_++ % kMaxLiveSlices];
      size_.store(tail_ - head_, std::memory_order_relaxed);
    }
    lock_.unlock();
    return slice;
  }

 private:
  alignas(kLineBytes) SpinLock lock_;
  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  Slice* ring_[kMaxLiveSlices];
  alignas(kLineBytes) std::atomic<size_t> size_{0};
};

/// Slices that a worker began, or wanted to begin, and that wait for a moment.
class WaitingSlices {
 public:
  size_t size() const { return size_.load(std::memory_order_relaxed); }

  void push(Slice* slice) {
    lock_.lock();
    slices_.push_back(slice);
    size_.store(slices_.size(), std::memory_order_seq_cst);
    lock_.unlock();
  }

  /// The oldest slice whose moment has passed, or null. `oldest` becomes the number of the oldest of all.
  Slice* pop_ready(const Counters& counters, uint64_t& oldest) {
    lock_.lock();
    size_t best = slices_.size();
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (slices_[i]->number < oldest) oldest = slices_[i]->number;
      if (best < slices_.size() && slices_[best]->number < slices_[i]->number) continue;
      if (counters.has_passed(slices_[i]->blocked_on)) best = i;
    }
    Slice* ready = nullptr;
    if (best < slices_.size()) {
      ready = slices_[best];
      slices_[best] = slices_.back();
      slices_.pop_back();
      size_.store(slices_.size(), std::memory_order_relaxed);
    }
    lock_.unlock();
    return ready;
  }

 private:
  alignas(kLineBytes) SpinLock lock_;
  std::vector<Slice*> slices_;
  alignas(kLineBytes) std::atomic<size_t> size_{0};
};

}  // namespace pto::wsp::sched
