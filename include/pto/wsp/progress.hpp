// SPDX-License-Identifier: MIT
/// \file
/// Names of moments, the progress of a run, and the one wait primitive.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "pto/wsp/bytecode/format.hpp"
#include "pto/wsp/spin.hpp"

namespace pto::wsp::sched {

/// Lines shared between threads are this far apart: two cache lines, because neighbours are fetched in pairs.
inline constexpr size_t kLineBytes = 128;

/// A name is a moment that a task can wait for. Program order is cut into numbered slices. The name of a task
/// is the moment at which it and the earlier tasks of its slice are complete. A moment that has passed stays
/// passed, because numbers grow over all runs of an engine state. Names of tasks compare like program order.
/// All other names are below them.
///
/// | bits 63, 62 | bits below | moment |
/// |---|---|---|
/// | 1, - | slice number, tasks done (10 bits) | so much of this slice is complete |
/// | 0, 1 | group line (8 bits), slices done (54 bits) | the number of slices of this line that are complete
/// | | 0, 0 | slices done | all slices with a smaller number are complete; 0 has always passed |
using Name = uint64_t;

inline constexpr int kTaskBits = 10;
inline constexpr uint64_t kTaskMask = (uint64_t{1} << kTaskBits) - 1;
inline constexpr Name kTaskName = Name{1} << 63;
inline constexpr Name kGroupName = Name{1} << 62;
inline constexpr int kGroupBits = 54;
inline constexpr uint64_t kGroupMask = (uint64_t{1} << kGroupBits) - 1;

constexpr Name task_name(uint64_t slice, uint64_t tasks) { return kTaskName | slice << kTaskBits | tasks; }
/// The moment at which a slice is complete, for any number of tasks.
constexpr Name complete_name(uint64_t slice) { return task_name(slice, kTaskMask); }
constexpr Name watermark_name(uint64_t slices) { return slices; }
constexpr Name group_name(uint32_t line, uint64_t slices) {
  return kGroupName | uint64_t(line) << kGroupBits | slices;
}
constexpr bool is_task_name(Name name) { return (name & kTaskName) != 0; }
constexpr bool is_watermark_name(Name name) { return name < kGroupName; }
constexpr uint64_t slice_of(Name name) { return (name & ~kTaskName) >> kTaskBits; }
constexpr uint32_t group_line_of(Name name) { return uint32_t(name >> kGroupBits) & 0xFF; }

/// The largest number of tasks of a slice.
inline constexpr uint32_t kMaxSliceTasks = 256;
static_assert(kMaxSliceTasks < kTaskMask);

/// The largest number of live slices.
inline constexpr uint64_t kMaxLiveSlices = 8192;

/// Group lines per nesting depth. Instances of barrier loops at one depth that use different lines do not
/// wait for each other.
inline constexpr uint32_t kGroupsPerDepth = 16;
inline constexpr uint32_t kNumGroupLines = bytecode::kMaxLoopDepth * kGroupsPerDepth;
static_assert(kNumGroupLines <= 256);

/// A number below which all slices or strands are complete.
class Watermark {
 public:
  uint64_t value() const { return value_.load(std::memory_order_acquire); }
  /// \pre no thread uses it
  void reset() { value_.store(0, std::memory_order_relaxed); }

  /// Advances it over complete slices, unless another thread does so now. Returns the value.
  template <class IsComplete>
  uint64_t advance(IsComplete is_complete) {
    if (!lock_.try_lock()) return value();
    const uint64_t before = value_.load(std::memory_order_relaxed);
    uint64_t after = before;
    while (is_complete(after)) ++after;
    if (after != before) value_.store(after, std::memory_order_release);
    lock_.unlock();
    return after;
  }

 private:
  SpinLock lock_;
  alignas(kLineBytes) std::atomic<uint64_t> value_{0};
};

/// The progress of an engine state. Any thread reads it; the worker that runs a slice advances its line.
class Progress {
 public:
  Progress() : memory_(std::calloc(kMaxLiveSlices + kNumGroupLines + 1, sizeof(Line))) {
    if (memory_ == nullptr) throw std::bad_alloc();
    const auto address = reinterpret_cast<uintptr_t>(memory_.get());
    lines_ = reinterpret_cast<Line*>((address + kLineBytes - 1) / kLineBytes * kLineBytes);
  }

  /// Acquire: if this is true, the writes of all tasks before the moment are visible.
  [[gnu::always_inline]] inline bool has_passed(Name name) const {
    if (is_task_name(name)) return line(slice_of(name)).reached.load(std::memory_order_acquire) >= name;
    if (is_watermark_name(name)) return watermark() >= name;
    return group(group_line_of(name)).reached.load(std::memory_order_acquire) >= (name & kGroupMask);
  }

  bool is_complete(uint64_t slice) const { return has_passed(complete_name(slice)); }

  /// Whether the previous slice on the line of `slice` is complete. No slice begins before that.
  bool admits(uint64_t slice) const { return slice < kMaxLiveSlices || is_complete(slice - kMaxLiveSlices); }

  /// Claims a slice. Returns true for the first dispatcher only, which becomes the owner.
  bool claim(uint64_t slice) {
    std::atomic<uint64_t>& claimed = line(slice).claimed;
    uint64_t before = claimed.load(std::memory_order_relaxed);
    return before <= slice && claimed.compare_exchange_strong(before, slice + 1, std::memory_order_relaxed);
  }

  void reach(Name task) { line(slice_of(task)).reached.store(task, std::memory_order_release); }
  void reach_in_group(uint32_t group_line) {
    group(group_line).reached.fetch_add(1, std::memory_order_release);
  }
  uint64_t slices_in_group(uint32_t group_line) const {
    return group(group_line).reached.load(std::memory_order_relaxed);
  }

  /// All slices with a smaller number are complete.
  uint64_t watermark() const { return watermark_.value(); }

  /// The first incomplete slice. The watermark may be lower.
  uint64_t oldest() const {
    uint64_t slice = watermark();
    while (is_complete(slice)) ++slice;
    return slice;
  }

  /// Moves the watermark over complete slices.
  void advance_watermark() {
    watermark_.advance([this](uint64_t slice) { return is_complete(slice); });
  }

 private:
  struct alignas(kLineBytes) Line {
    std::atomic<Name> reached;
    std::atomic<uint64_t> claimed;  ///< one more than the slice that was claimed last
  };
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  Line& line(uint64_t slice) { return lines_[slice % kMaxLiveSlices]; }
  const Line& line(uint64_t slice) const { return lines_[slice % kMaxLiveSlices]; }
  Line& group(uint32_t index) { return lines_[kMaxLiveSlices + index]; }
  const Line& group(uint32_t index) const { return lines_[kMaxLiveSlices + index]; }

  // From calloc: small runs pay for the few lines that they touch.
  std::unique_ptr<void, Free> memory_;
  Line* lines_;
  alignas(kLineBytes) Watermark watermark_;
};

/// Slices that contain only earlier iterations of an open P loop. They go from `begin`, the first slice that
/// began inside the loop, to `iteration`, the slice in which the present iteration began.
struct TrustedSpan {
  uint64_t begin = 0;
  uint64_t iteration = 0;
};

/// The waits of one task, found while it is expanded. All of them point backwards in program order.
class WaitList {
 public:
  static constexpr int kMaxWaits = 12;
  static constexpr int kMaxNames = kMaxWaits + 1 + int(bytecode::kMaxLoopDepth) + 2;

  /// For a walk in which no moment passes.
  WaitList() = default;
  explicit WaitList(Progress& progress) : progress_(&progress) {}

  /// Makes a full list add moments to `more`, so that it never waits for more than was asked.
  void collect(std::vector<Name>* more) { more_ = more; }

  /// Starts a task of `slice`, whose strand began with slice `strand`. Strands are contiguous and run in
  /// program order, so waits for the own strand are dropped. A watermark wait is clamped to the slice. With
  /// `is_muted`, for tasks that others run, no waits are kept.
  void begin(uint64_t strand, uint64_t slice, bool is_muted = false) {
    trusted_ = nullptr;
    own_ = task_name(strand, 0);
    kept_below_ = is_muted ? 0 : own_;
    slice_ = slice;
    count_ = 0;
    watermark_ = 0;
  }

  /// Starts a lookup of everything before `slice`, its strand included.
  void begin_look(uint64_t slice) { begin(slice, slice); }

  /// Until `begin`, takes moments that lie in one of `spans` to be independent of the task. Such a moment is
  /// replaced by the watermark before its span, because it may represent earlier accesses. Spans are nested.
  void trust(const std::vector<TrustedSpan>* spans) { trusted_ = spans; }

  void add(Name name) {
    if (name >= kept_below_) return;
    if (!is_task_name(name)) return add_watermark(name);
    if (has_passed(name)) return;
    if (trusted_ != nullptr) {
      const uint64_t through = slice_of(name) + 1, slices = before_trusted(through);
      if (slices != through) return raise_watermark(slices);
    }
    for (int i = 0; i < count_; ++i) {
      if (slice_of(names_[i]) != slice_of(name)) continue;
      if (names_[i] < name) names_[i] = name;
      return;
    }
    if (count_ == kMaxWaits) return add_to_full(name);
    names_[count_++] = name;
  }

  void add_watermark(uint64_t slices) {
    raise_watermark(trusted_ == nullptr ? slices : before_trusted(slices));
  }

  /// Adds the watermark that hazards ask for, after all of them have been added.
  void finish() {
    const Name name = watermark_name(watermark_ < slice_ ? watermark_ : slice_);
    if (kept_below_ == 0 || has_passed(name)) return;
    if (progress_ != nullptr) progress_->advance_watermark();
    require(name);
  }

  /// Adds a moment of any kind, at most one per loop around the task and two more.
  void require(Name name) {
    if (!has_passed(name)) names_[count_++] = name;
  }

  /// Drops waits that are satisfied now; true if none is left.
  bool have_passed() {
    while (count_ > 0 && has_passed(names_[count_ - 1])) --count_;
    return count_ == 0;
  }

  bool is_own(Name name) const { return name >= own_; }
  /// Whether the last of the slices below a watermark is in the strand.
  bool is_own_watermark(uint64_t slices) const { return slices > slice_of(own_); }
  /// Whether no waits are kept.
  bool is_muted() const { return kept_below_ == 0; }
  [[gnu::always_inline]] inline bool has_passed(Name name) const {
    return progress_ != nullptr ? progress_->has_passed(name) : name == 0;
  }
  int size() const { return count_; }
  Name operator[](int i) const { return names_[i]; }

 private:
  void raise_watermark(uint64_t slices) {
    if (slices > watermark_) watermark_ = slices;
  }

  /// If the list is full, replaces the earliest moment by the watermark after its slice. This adds the fewest
  /// waits, and none for a task after the dependences of the current task.
  [[gnu::noinline]] void add_to_full(Name name) {
    if (more_ != nullptr) return more_->push_back(name);
    Name* earliest = std::min_element(names_, names_ + count_);
    raise_watermark(slice_of(std::min(*earliest, name)) + 1);
    *earliest = std::max(*earliest, name);
  }

  /// The slices before the outermost span that the last of `slices` lies in, or `slices` if it lies in none.
  uint64_t before_trusted(uint64_t slices) const {
    for (auto span = trusted_->rbegin(); span != trusted_->rend(); ++span) {
      if (slices > span->begin && slices <= span->iteration) slices = span->begin;
    }
    return slices;
  }

  Progress* progress_ = nullptr;
  std::vector<Name>* more_ = nullptr;
  const std::vector<TrustedSpan>* trusted_ = nullptr;
  Name names_[kMaxNames];
  int count_ = 0;
  Name own_ = 0;
  Name kept_below_ = 0;
  uint64_t slice_ = 0;
  uint64_t watermark_ = 0;
};

/// The task that makes an access: its name, and the watermark at which it and all before it are complete.
struct Stamp {
  Name name;
  uint64_t watermark;
};

}  // namespace pto::wsp::sched
