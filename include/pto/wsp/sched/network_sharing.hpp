// SPDX-License-Identifier: MIT
/// \file
/// Decides whether several workers share a network.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "pto/wsp/spin.hpp"
#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::sched {

/// The choice of earlier runs of a network with a number of workers. Concurrent runs may replace each
/// other's.
class SharingChoice {
 public:
  struct Value {
    uint32_t workers = 0;  ///< 0 = there is none
    bool is_shared = false;
    uint32_t num_trials = 0;
    int64_t left_ns = 0;  ///< until the next trial
  };

  Value get() const {
    const uint64_t value = value_.load(std::memory_order_relaxed);
    return {uint32_t(value & 0xFFFF), (value >> 16 & 1) != 0, uint32_t(value >> 17 & 0xF),
            int64_t(value >> 21)};
  }
  void set(const Value& value) {
    value_.store((value.workers & 0xFFFF) | uint64_t{value.is_shared} << 16 |
                     uint64_t{value.num_trials & 0xF} << 17 | uint64_t(value.left_ns) << 21,
                 std::memory_order_relaxed);
  }

 private:
  std::atomic<uint64_t> value_{0};
};

/// A worker that takes a token from another one also takes its cache lines, so sharing can cost more than it
/// gains. One worker runs the network first, then all share it for a moment. The mode that moves more tokens
/// per time stays. The trial is repeated after a while, because bodies may change.
class NetworkSharing {
 public:
  /// With `is_shaken`, all workers share the network at all times.
  NetworkSharing(uint32_t workers, bool is_shaken, SharingChoice& choice)
      : counts_(workers),
        is_tried_(workers > 1 && !is_shaken),
        choice_(choice),
        is_shared_(workers > 1 && is_shaken) {
    const SharingChoice::Value chosen = choice.get();
    if (!is_tried_ || chosen.workers != workers) return;
    num_trials_ = chosen.num_trials;
    begin(Step::kChosen, chosen.is_shared, chosen.left_ns);
  }
  /// The run is over: keeps the choice for later runs. The time of short runs adds up until the next trial.
  void end() {
    const std::lock_guard<SpinLock> lock(lock_);
    if (!is_tried_ || step_ != Step::kChosen) return;
    const int64_t passed = start_ns_ == 0 ? 0 : trace::now_ns() - start_ns_;
    choice_.set(
        {uint32_t(counts_.size()), is_shared(), num_trials_, std::max<int64_t>(window_ns_ - passed, 0)});
  }

  bool is_shared() const { return is_shared_.load(std::memory_order_relaxed); }

  /// A worker sends or receives a token. Returns whether others should join.
  bool note_move(uint32_t worker) {
    if (!is_tried_) return false;
    std::atomic<uint64_t>& count = counts_[worker].moves;
    const uint64_t moves = count.load(std::memory_order_relaxed) + 1;
    count.store(moves, std::memory_order_relaxed);
    return (moves & period_mask_.load(std::memory_order_relaxed)) == 0 && look();
  }

  /// Called also after a task that may have been long. Returns whether others should join.
  bool look() {
    if (!is_tried_ || !lock_.try_lock()) return false;
    const std::lock_guard<SpinLock> lock(lock_, std::adopt_lock);
    const int64_t now = trace::now_ns();
    if (start_ns_ == 0) start_ns_ = now;
    if (now - start_ns_ < window_ns_) return false;
    const uint64_t moves = count_moves();
    const double ns = double(now - start_ns_) / double(std::max<uint64_t>(moves - first_move_, 1));
    const bool was_shared = is_shared();
    next_step(ns);
    period_mask_.store(ns * 32 < kLongNs ? 31 : 0, std::memory_order_relaxed);
    start_ns_ = now;
    first_move_ = moves;
    return !was_shared && is_shared();
  }

 private:
  /// Two trials, with time for the others to wake up in between, then the better mode.
  enum class Step : uint8_t { kAlone, kWake, kShared, kChosen };

  struct alignas(kLineBytes) Count {
    std::atomic<uint64_t> moves{0};
  };

  /// \param ns  per move, in the step that ends
  void next_step(double ns) {
    if (step_ == Step::kWake) return begin(Step::kShared, true, kTrialNs);
    if (step_ == Step::kShared) return choose(ns * kGain <= alone_ns_);
    if (step_ == Step::kChosen && is_shared() && ns < kLongNs) return begin(Step::kAlone, false, kTrialNs);
    if (ns < kShortNs || ns >= kLongNs) return choose(ns >= kLongNs);
    alone_ns_ = ns;
    begin(Step::kWake, true, kWakeNs);
  }

  void choose(bool is_shared) {
    begin(Step::kChosen, is_shared, kChosenNs << num_trials_);
    num_trials_ = std::min(num_trials_ + 1, kMostTrials);
  }

  void begin(Step step, bool is_shared, int64_t window_ns) {
    step_ = step;
    window_ns_ = window_ns;
    is_shared_.store(is_shared, std::memory_order_seq_cst);
  }

  uint64_t count_moves() const {
    uint64_t sum = 0;
    for (const Count& count : counts_) sum += count.moves.load(std::memory_order_relaxed);
    return sum;
  }

  // Per move; in between, only a trial tells
  static constexpr double kShortNs = 300;   ///< less takes less than to pass a token to another worker
  static constexpr double kLongNs = 20000;  ///< more is worth sharing
  static constexpr double kGain = 1.18;     ///< worth the time of another processor
  static constexpr int64_t kFirstNs = 100000, kWakeNs = 100000, kTrialNs = 200000, kChosenNs = 4000000;
  static constexpr uint32_t kMostTrials = 5;  ///< that make the time to the next one longer

  std::vector<Count> counts_;  ///< per worker
  const bool is_tried_;
  SharingChoice& choice_;
  SpinLock lock_;
  Step step_ = Step::kAlone;
  int64_t start_ns_ = 0, window_ns_ = kFirstNs;
  uint32_t num_trials_ = 0;
  uint64_t first_move_ = 0;
  double alone_ns_ = 0;                   ///< of the latest trial
  std::atomic<uint64_t> period_mask_{0};  ///< of the moves between two looks at the clock
  alignas(kLineBytes) std::atomic<bool> is_shared_;
};

}  // namespace pto::wsp::sched
