// SPDX-License-Identifier: MIT
/// \file
/// Who wrote and who has read each byte of memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

namespace pto::wsp::capi {

/// Disjoint segments of memory, each with the task that wrote it last and those that have read it since. An
/// access cuts segments at its ends and so meets exactly what it shares a byte with. Regions that are
/// accessed again as they are, which is what orchestrations do, are found by their first byte.
class AddressMap {
 public:
  AddressMap() : segments_(kFirstSlots) {}

  /// Calls `visit(earlier)` for the tasks that `task` must come behind, some of them several times, and makes
  /// later tasks come behind `task`. \pre numbers of tasks grow; first > 0
  template <class Visit>
  void access(uintptr_t first, uintptr_t last, bool writes, uint32_t task, Visit visit) {
    if (first == last) return;
    Segment* at = &slot_of(first);
    if (at->first == first && at->last == last) return touch(*at, writes, task, visit);
    if (at->first != first) make_start(first);
    for (uintptr_t covered = first; covered != last;) {
      at = &slot_of(covered);
      if (at->first != covered) at = &fill_gap(covered, last);
      if (at->last > last) at = &cut(covered, last);
      touch(*at, writes, task, visit);
      covered = at->last;
    }
    if (writes) merge(first, last);
  }

  void clear() { *this = AddressMap(); }

  uint64_t num_bytes() const {
    constexpr size_t kNodeBytes = sizeof(uintptr_t) + 4 * sizeof(void*);
    return starts_.size() * kNodeBytes + segments_.size() * sizeof(Segment) +
           readers_.capacity() * sizeof(Reader);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kFirstSlots = 256;

  struct Segment {
    uintptr_t first = 0;  ///< 0: a free slot
    uintptr_t last = 0;   ///< behind its last byte
    uint32_t writer = kNone;
    uint32_t readers = kNone;  ///< the latest, in `readers_`
  };
  struct Reader {
    uint32_t task;
    uint32_t next;
  };

  template <class Visit>
  void touch(Segment& segment, bool writes, uint32_t task, Visit visit) {
    if (segment.writer != kNone && segment.writer != task) visit(segment.writer);
    if (!writes) {
      const bool is_noted = segment.readers != kNone && readers_[segment.readers].task == task;
      if (!is_noted) segment.readers = make_reader(task, segment.readers);
      return;
    }
    segment.writer = task;
    if (segment.readers == kNone) return;
    uint32_t reader = segment.readers;
    for (;; reader = readers_[reader].next) {
      if (readers_[reader].task != task) visit(readers_[reader].task);
      if (readers_[reader].next == kNone) break;
    }
    readers_[reader].next = free_readers_;
    free_readers_ = segment.readers;
    segment.readers = kNone;
  }

  uint32_t make_reader(uint32_t task, uint32_t next) {
    if (free_readers_ == kNone) {
      readers_.push_back({task, next});
      return uint32_t(readers_.size() - 1);
    }
    const uint32_t reader = free_readers_;
    free_readers_ = readers_[reader].next;
    readers_[reader] = {task, next};
    return reader;
  }

  /// Makes a segment that covers `first` begin there, if there is one.
  void make_start(uintptr_t first) {
    const auto behind = starts_.upper_bound(first);
    if (behind == starts_.begin()) return;
    const uintptr_t before = *std::prev(behind);
    if (slot_of(before).last > first) cut(before, first);
  }

  /// Makes a segment of the memory from `first` on, up to `last` or the next segment, that nobody has
  /// touched.
  Segment& fill_gap(uintptr_t first, uintptr_t last) {
    const auto behind = starts_.upper_bound(first);
    if (behind != starts_.end()) last = std::min(last, *behind);
    return add({first, last, kNone, kNone});
  }

  /// Makes two segments of one; returns the first.
  Segment& cut(uintptr_t first, uintptr_t at) {
    Segment rest = slot_of(first);
    for (uint32_t reader = std::exchange(rest.readers, kNone); reader != kNone;
         reader = readers_[reader].next)
      rest.readers = make_reader(readers_[reader].task, rest.readers);
    rest.first = at;
    add(rest);
    Segment& front = slot_of(first);
    front.last = at;
    return front;
  }

  /// Makes one segment of those in a range that one task has written.
  void merge(uintptr_t first, uintptr_t last) {
    for (auto at = starts_.upper_bound(first); at != starts_.end() && *at < last; at = starts_.erase(at))
      forget(*at);
    slot_of(first).last = last;
  }

  // Open addressing, by the first byte.

  static size_t hash(uintptr_t first) { return size_t((uint64_t(first) * 0x9E3779B97F4A7C15u) >> 24); }

  /// The segment that begins at `first`, or the free slot where it would be.
  Segment& slot_of(uintptr_t first) {
    size_t i = hash(first) & (segments_.size() - 1);
    while (segments_[i].first != first && segments_[i].first != 0) i = (i + 1) & (segments_.size() - 1);
    return segments_[i];
  }

  Segment& add(const Segment& segment) {
    starts_.insert(segment.first);
    if (2 * starts_.size() > segments_.size()) {
      std::vector<Segment> before(2 * segments_.size());
      before.swap(segments_);
      for (const Segment& old : before) {
        if (old.first != 0) slot_of(old.first) = old;
      }
    }
    return slot_of(segment.first) = segment;
  }

  void forget(uintptr_t first) {
    const size_t mask = segments_.size() - 1;
    auto hole = size_t(&slot_of(first) - segments_.data());
    for (size_t i = (hole + 1) & mask; segments_[i].first != 0; i = (i + 1) & mask) {
      const size_t home = hash(segments_[i].first) & mask;
      if (((i - home) & mask) < ((i - hole) & mask)) continue;
      segments_[hole] = segments_[i];
      hole = i;
    }
    segments_[hole] = Segment{};
  }

  std::vector<Segment> segments_;
  std::set<uintptr_t> starts_;
  std::vector<Reader> readers_;
  uint32_t free_readers_ = kNone;
};

}  // namespace pto::wsp::capi
