// SPDX-License-Identifier: MIT
/// \file
/// Progress counters and the one wait primitive: (counter, value).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "pto/wsp/error.hpp"

namespace pto::wsp::sched {

/// Lines shared between threads are this far apart: two cache lines, because neighbours are fetched in pairs.
inline constexpr size_t kLineBytes = 128;

/// Names a moment: "counter `name >> kValueBits` has reached `name & kValueMask`". The name of a task is the
/// moment at which it is complete. Counters never go back, so a moment that has passed stays passed, whatever
/// its counter is used for later. Name 0 has always passed.
using Name = uint64_t;
inline constexpr int kValueBits = 40;
inline constexpr uint64_t kValueMask = (uint64_t{1} << kValueBits) - 1;

/// Counter 0: all tasks with a smaller number (over all runs of this engine state) are complete.
inline constexpr uint32_t kWatermark = 0;

constexpr Name make_name(uint32_t counter, uint64_t value) { return uint64_t(counter) << kValueBits | value; }
constexpr uint32_t counter_of(Name name) { return uint32_t(name >> kValueBits); }
constexpr uint64_t value_of(Name name) { return name & kValueMask; }

/// All counters of an engine state. One thread allocates and releases; any thread reads and advances.
class Counters {
 public:
  Counters() { allocate(); }

  std::atomic<uint64_t>& operator[](uint32_t counter) {
    return chunks_[counter / kChunk][counter % kChunk].value;
  }
  const std::atomic<uint64_t>& operator[](uint32_t counter) const {
    return chunks_[counter / kChunk][counter % kChunk].value;
  }

  /// Acquire: what the tasks before the moment wrote is visible once this is true.
  bool has_passed(Name name) const {
    return (*this)[counter_of(name)].load(std::memory_order_acquire) >= value_of(name);
  }

  /// A counter for a new strand; its names begin at the counter's present value.
  uint32_t allocate() {
    if (free_.empty()) grow();
    const uint32_t counter = free_.back();
    free_.pop_back();
    return counter;
  }
  void release(uint32_t counter) { free_.push_back(counter); }

 private:
  struct alignas(kLineBytes) Line {
    std::atomic<uint64_t> value{0};
  };
  static constexpr uint32_t kChunk = 256;
  static constexpr uint32_t kMaxChunks = 1024;

  void grow() {
    if (num_chunks_ == kMaxChunks)
      throw EngineError("too-many-strands", "more strands are alive than the engine can name");
    chunks_[num_chunks_] = std::make_unique<Line[]>(kChunk);
    for (uint32_t i = kChunk; i-- > 0;) free_.push_back(num_chunks_ * kChunk + i);
    ++num_chunks_;
  }

  // Fixed, so that readers need no lock while it grows.
  std::unique_ptr<Line[]> chunks_[kMaxChunks];
  uint32_t num_chunks_ = 0;
  std::vector<uint32_t> free_;
};

/// The waits of one task, found while it is expanded. All of them point backwards in program order.
class WaitList {
 public:
  static constexpr int kMaxWaits = 12;

  explicit WaitList(const Counters& counters) : counters_(counters) {}

  /// Starts a task of strand `own`; a watermark wait is clamped to `clamp`, the first task of its slice,
  /// because the tasks of its slice before it run before it anyway.
  void begin(uint32_t own, uint64_t clamp) {
    own_ = own;
    clamp_ = clamp;
    count_ = 0;
    watermark_ = 0;
  }

  void add(Name name) {
    const uint32_t counter = counter_of(name);
    if (counter == kWatermark) return add_watermark(value_of(name));
    if (counter == own_ || counters_.has_passed(name)) return;
    for (int i = 0; i < count_; ++i) {
      if (counter_of(names_[i]) != counter) continue;
      if (names_[i] < name) names_[i] = name;
      return;
    }
    // Too many to list: waiting for everything before the slice is always right.
    if (count_ == kMaxWaits) return add_watermark(clamp_);
    names_[count_++] = name;
  }

  void add_watermark(uint64_t value) {
    if (value > watermark_) watermark_ = value;
  }

  /// Completes the list.
  void finish() {
    const Name name = make_name(kWatermark, watermark_ < clamp_ ? watermark_ : clamp_);
    if (watermark_ > 0 && !counters_.has_passed(name)) names_[count_++] = name;
  }

  bool is_own(Name name) const { return counter_of(name) == own_; }
  bool has_passed(Name name) const { return counters_.has_passed(name); }
  int size() const { return count_; }
  Name operator[](int i) const { return names_[i]; }

 private:
  const Counters& counters_;
  Name names_[kMaxWaits + 1];
  int count_ = 0;
  uint32_t own_ = 0;
  uint64_t clamp_ = 0;
  uint64_t watermark_ = 0;
};

/// The task that makes an access: its name, and the watermark at which it and all before it are complete.
struct Stamp {
  Name name;
  uint64_t watermark;
};

}  // namespace pto::wsp::sched
