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
  static constexpr uint32_t kNone = UINT32_MAX;

  AddressMap() : segments_(kFirstSlots), mask_(kFirstSlots - 1) {}

  /// Calls `visit(earlier)` for the tasks that `task` must come behind, and for `task` itself and kNone as
  /// well, each any number of times, and makes later tasks come behind `task`. \pre numbers of tasks grow;
  /// first > 0
  template <class Visit>
  [[gnu::always_inline]] inline void access(uintptr_t first, uintptr_t last, bool writes, uint32_t task,
                                            const Visit& visit) {
    Segment& at = slot_of(first);
    if (__builtin_expect(at.first == first && at.last == last, true)) return touch(at, writes, task, visit);
    access_parts(first, last, writes, task, visit);
  }

  /// Forgets all tasks. Memory stays warm for about as many segments.
  void clear() {
    const bool is_sparse = segments_.size() > 16 * std::max(starts_.size(), kFirstSlots);
    segments_.assign(is_sparse ? kFirstSlots : segments_.size(), Segment{});
    mask_ = segments_.size() - 1;
    starts_.clear();
    readers_.clear();
    free_readers_ = kNone;
  }

  /// What segments and readers take, without free room.
  uint64_t num_bytes() const {
    constexpr size_t kNodeBytes = sizeof(uintptr_t) + 4 * sizeof(void*);
    return starts_.size() * (kNodeBytes + sizeof(Segment)) + readers_.size() * sizeof(Reader);
  }

 private:
  static constexpr size_t kFirstSlots = 256;

  struct Segment {
    uintptr_t first = 0;  ///< 0: a free slot
    uintptr_t last = 0;   ///< behind its last byte
    uint32_t writer = kNone;
    uint32_t reader = kNone;   ///< the latest since
    uint32_t readers = kNone;  ///< those before it, in `readers_`
  };
  struct Reader {
    uint32_t task;
    uint32_t next;
  };

  /// An access to what is no segment as it is.
  template <class Visit>
  [[gnu::noinline]] void access_parts(uintptr_t first, uintptr_t last, bool writes, uint32_t task,
                                      const Visit& visit) {
    if (first == last) return;
    if (slot_of(first).first != first) make_start(first);
    for (uintptr_t covered = first; covered != last;) {
      Segment* at = &slot_of(covered);
      if (at->first != covered) at = &fill_gap(covered, last);
      if (at->last > last) at = &cut(covered, last);
      touch(*at, writes, task, visit);
      covered = at->last;
    }
    if (writes) merge(first, last);
  }

  template <class Visit>
  [[gnu::always_inline]] inline void touch(Segment& segment, bool writes, uint32_t task, const Visit& visit) {
    visit(segment.writer);
    if (!writes) {
      if (segment.reader != kNone && segment.reader != task)
        segment.readers = make_reader(segment.reader, segment.readers);
      segment.reader = task;
      return;
    }
    visit(segment.reader);
    segment.writer = task;
    segment.reader = kNone;
    if (segment.readers != kNone) visit_readers(segment, visit);
  }

  /// Visits the readers before the latest, and forgets them.
  template <class Visit>
  [[gnu::noinline]] void visit_readers(Segment& segment, const Visit& visit) {
    uint32_t reader = segment.readers;
    for (;; reader = readers_[reader].next) {
      visit(readers_[reader].task);
      if (readers_[reader].next == kNone) break;
    }
    readers_[reader].next = free_readers_;
    free_readers_ = std::exchange(segment.readers, kNone);
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
    return add({first, last});
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
    Segment* const segments = segments_.data();
    size_t i = hash(first) & mask_;
    while (segments[i].first != first && segments[i].first != 0) i = (i + 1) & mask_;
    return segments[i];
  }

  Segment& add(const Segment& segment) {
    starts_.insert(segment.first);
    if (4 * starts_.size() > 3 * segments_.size()) {
      std::vector<Segment> before(2 * segments_.size());
      before.swap(segments_);
      mask_ = segments_.size() - 1;
      for (const Segment& old : before) {
        if (old.first != 0) slot_of(old.first) = old;
      }
    }
    return slot_of(segment.first) = segment;
  }

  void forget(uintptr_t first) {
    auto hole = size_t(&slot_of(first) - segments_.data());
    for (size_t i = (hole + 1) & mask_; segments_[i].first != 0; i = (i + 1) & mask_) {
      const size_t home = hash(segments_[i].first) & mask_;
      if (((i - home) & mask_) < ((i - hole) & mask_)) continue;
      segments_[hole] = segments_[i];
      hole = i;
    }
    segments_[hole] = Segment{};
  }

  std::vector<Segment> segments_;
  size_t mask_;
  std::set<uintptr_t> starts_;
  std::vector<Reader> readers_;
  uint32_t free_readers_ = kNone;
};

}  // namespace pto::wsp::capi
