// SPDX-License-Identifier: MIT
/// \file
/// Memory that the cores of a simulated machine share: a rate that they divide, and a cache.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <vector>

namespace pto::wsp::sim {

/// Transfers that share a rate equally, each up to the rate of one core. All of them advance alike, so the
/// one with the least left is the next to end, whatever begins or ends meanwhile.
class SharedRate {
 public:
  void begin(double rate, double core_rate) {
    rate_ = rate;
    core_rate_ = core_rate;
    now_ = progress_ = 0;
    transfers_ = {};
  }

  /// Begins a transfer. \pre now is not before any earlier call's
  void add(double now, double bytes, uint64_t task) {
    advance(now);
    transfers_.push({progress_ + bytes, task});
  }

  /// When the next transfer ends, or infinity.
  double next_end() const {
    if (transfers_.empty()) return std::numeric_limits<double>::infinity();
    const double left = transfers_.top().end - progress_;
    return now_ + std::max(left * double(transfers_.size()) / rate_, left / core_rate_);
  }

  /// Ends the next transfer and returns its task. \pre there is one
  uint64_t end_next() {
    const double end = next_end();
    progress_ = transfers_.top().end;
    now_ = std::max(now_, end);
    const uint64_t task = transfers_.top().task;
    transfers_.pop();
    return task;
  }

 private:
  struct Transfer {
    double end;  ///< in bytes of progress
    uint64_t task;
    bool operator<(const Transfer& other) const {
      return end != other.end ? end > other.end : task > other.task;
    }
  };

  void advance(double now) {
    if (!transfers_.empty() && now > now_) {
      const double cycles = now - now_;
      progress_ += std::min(cycles * rate_ / double(transfers_.size()), cycles * core_rate_);
    }
    now_ = now;
  }

  double rate_ = 1;
  double core_rate_ = 1;
  double now_ = 0;
  double progress_ = 0;  ///< bytes that a transfer has moved which is there from the start
  std::priority_queue<Transfer> transfers_;
};

/// A cache of regions, from which it drops those that were used least recently.
class RegionCache {
 public:
  void begin(uint64_t bytes) {
    capacity_ = bytes;
    used_ = 0;
    entries_.assign(1, {0, 0, 0, 0});  // the head of the ring
    free_.clear();
    slots_.assign(1024, kNone);
  }

  bool is_there() const { return capacity_ != 0; }
  bool fits(uint64_t bytes) const { return bytes <= capacity_; }

  /// Uses the first bytes of a region, which a hash names; returns how many of them the cache held.
  /// Afterwards it holds all of them, if they fit.
  uint64_t use(uint64_t region, uint64_t bytes) {
    const uint32_t present = slots_[find(region)];
    if (present != kNone) return use_again(present, bytes);
    if (bytes > capacity_) return 0;
    make_room(bytes);
    const uint32_t entry = new_entry();
    entries_[entry].region = region;
    entries_[entry].bytes = bytes;
    link(entry);
    used_ += bytes;
    slots_[find(region)] = entry;
    if (2 * (entries_.size() - free_.size()) > slots_.size()) grow();
    return 0;
  }

  /// Drops a region, if the cache holds it.
  void forget(uint64_t region) {
    const uint32_t entry = slots_[find(region)];
    if (entry != kNone) drop(entry);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Entry {
    uint64_t region;
    uint64_t bytes;
    uint32_t before, after;  ///< in a ring from the one used last
  };

  uint64_t use_again(uint32_t entry, uint64_t bytes) {
    unlink(entry);
    link(entry);
    const uint64_t held = std::min(entries_[entry].bytes, bytes);
    if (bytes > held && bytes <= capacity_) {
      make_room(bytes - held);  // the entry is the last one that it would drop, and both fit
      entries_[entry].bytes = bytes;
      used_ += bytes - held;
    }
    return held;
  }

  void make_room(uint64_t bytes) {
    while (used_ + bytes > capacity_) drop(entries_[0].before);
  }

  uint32_t new_entry() {
    if (free_.empty()) {
      entries_.push_back({});
      return uint32_t(entries_.size() - 1);
    }
    const uint32_t entry = free_.back();
    free_.pop_back();
    return entry;
  }

  // The ring

  void link(uint32_t entry) {
    entries_[entry].before = 0;
    entries_[entry].after = entries_[0].after;
    entries_[entries_[0].after].before = entry;
    entries_[0].after = entry;
  }
  void unlink(uint32_t entry) {
    entries_[entries_[entry].before].after = entries_[entry].after;
    entries_[entries_[entry].after].before = entries_[entry].before;
  }
  void drop(uint32_t entry) {
    unlink(entry);
    used_ -= entries_[entry].bytes;
    erase(find(entries_[entry].region));
    free_.push_back(entry);
  }

  // Slots by region, with linear probing

  size_t home(uint64_t region) const { return region & (slots_.size() - 1); }

  /// The slot of a region, or the empty one where it belongs.
  size_t find(uint64_t region) const {
    size_t slot = home(region);
    while (slots_[slot] != kNone && entries_[slots_[slot]].region != region)
      slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  /// Empties a slot, and moves those after it closer to where they belong.
  void erase(size_t slot) {
    const size_t mask = slots_.size() - 1;
    for (size_t next = (slot + 1) & mask; slots_[next] != kNone; next = (next + 1) & mask) {
      const size_t wanted = home(entries_[slots_[next]].region);
      if (((next - wanted) & mask) < ((next - slot) & mask)) continue;
      slots_[slot] = slots_[next];
      slot = next;
    }
    slots_[slot] = kNone;
  }

  void grow() {
    std::vector<uint32_t> old(2 * slots_.size(), kNone);
    old.swap(slots_);
    for (const uint32_t entry : old) {
      if (entry != kNone) slots_[find(entries_[entry].region)] = entry;
    }
  }

  uint64_t capacity_ = 0;
  uint64_t used_ = 0;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  std::vector<uint32_t> slots_;
};

}  // namespace pto::wsp::sim
