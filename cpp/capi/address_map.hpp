// SPDX-License-Identifier: MIT
/// \file
/// Which task wrote each byte of memory, and which tasks have read it since.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "tasks.hpp"

namespace pto::wsp::capi {

/// Disjoint segments of memory, each with the task that wrote it last and those that have read it since. An
/// access cuts segments at its ends and so meets exactly what it shares a byte with. Regions that are
/// accessed again as they are, which is what orchestrations do, remember their segment.
class AddressMap {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  AddressMap() { clear(); }

  /// Which tasks an access visits.
  enum class Visits : bool {
    kAll,   ///< that it must come after
    kLast,  ///< of these, all but some that others of them come after
  };

  /// Makes `task` access regions, and later tasks come after it. Calls `visit(earlier)` for the tasks that
  /// it must come after, and for `task` itself and kNone as well, each any number of times. \pre numbers of
  /// tasks grow
  template <Visits visits, class Visit>
  [[gnu::always_inline]] inline void access(const Regions& regions, const Argument* begin,
                                            const Argument* end, uint32_t task, const Visit& visit) {
    if (memories_.size() < regions.size()) memories_.resize(regions.size());
    const Memory* const memories = memories_.data();
    Segment* segments = segments_.data();
    for (const Argument* argument = begin; argument != end; ++argument) {
      const Memory memory = memories[argument->region()];
      Segment& segment = segments[memory.segment];
      if (__builtin_expect(segment.edition == memory.edition, true)) {
        touch<visits>(segment, argument->writes(), task, visit);
      } else {
        access_parts(argument->region(), regions[argument->region()], argument->writes(), task);
        segments = segments_.data();
      }
    }
    if (met_.empty()) return;
    for (const uint32_t earlier : met_) visit(earlier);
    met_.clear();
  }

  /// Forgets all tasks.
  void clear() {
    segments_.assign(1, Segment{});  // of regions that remember none
    free_segments_.clear();
    memories_.clear();
    starts_.clear();
    readers_.clear();
    free_readers_ = kNone;
  }

  /// What segments and readers take, without free room.
  uint64_t num_bytes() const {
    constexpr size_t kNodeBytes = sizeof(uintptr_t) + 5 * sizeof(void*);
    return starts_.size() * (kNodeBytes + sizeof(Segment)) + memories_.size() * sizeof(Memory) +
           readers_.size() * sizeof(Reader);
  }

 private:
  struct Segment {
    uintptr_t last = 0;  ///< after its last byte
    uint32_t writer = kNone;
    uint32_t reader = kNone;   ///< the latest since
    uint32_t readers = kNone;  ///< those before it, in `readers_`
    uint32_t edition = 0;      ///< changes when the segment begins or ends elsewhere
  };
  /// The segment that a region is, if that has the same edition still.
  struct Memory {
    uint32_t segment = 0;
    uint32_t edition = kNone;
  };
  struct Reader {
    uint32_t task;
    uint32_t next;
  };
  using Starts = std::map<uintptr_t, uint32_t>;

  /// Calls `visit` for the writer and the latest reader, which comes after it; adds other readers to `met_`.
  template <Visits visits, class Visit>
  [[gnu::always_inline]] inline void touch(Segment& segment, bool writes, uint32_t task, const Visit& visit) {
    if (visits == Visits::kAll || !writes || segment.reader == kNone) visit(segment.writer);
    if (!writes) {
      if (segment.reader != kNone && segment.reader != task)
        segment.readers = make_reader(segment.reader, segment.readers);
      segment.reader = task;
      return;
    }
    visit(segment.reader);
    segment.writer = task;
    segment.reader = kNone;
    if (segment.readers != kNone) forget_readers(segment);
  }

  /// Accesses what is not known to be a segment; adds all that it meets to `met_`.
  [[gnu::noinline]] void access_parts(uint32_t number, const Region& region, bool writes, uint32_t task) {
    const uintptr_t last = region.last();
    if (region.first == last) return;
    auto at = begin_at(region.first, last);
    const auto front = at;
    for (;; at = next_to(at, last)) {
      if (segments_[at->second].last > last) cut(at, last);
      Segment& segment = segments_[at->second];
      touch<Visits::kAll>(segment, writes, task, [this](uint32_t earlier) { met_.push_back(earlier); });
      if (segment.last == last) break;
    }
    if (writes && at != front) merge(front, at);
    const Segment& whole = segments_[front->second];
    if (whole.last == last) memories_[number] = {front->second, whole.edition};
  }

  /// Adds the readers before the latest to `met_`, and forgets them.
  [[gnu::noinline]] void forget_readers(Segment& segment) {
    uint32_t reader = segment.readers;
    for (;; reader = readers_[reader].next) {
      met_.push_back(readers_[reader].task);
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

  /// The segment that begins at `first`: the rest of one that covers it, or a new one.
  Starts::iterator begin_at(uintptr_t first, uintptr_t last) {
    const auto at = starts_.lower_bound(first);
    if (at != starts_.end() && at->first == first) return at;
    if (at != starts_.begin()) {
      const auto before = std::prev(at);
      if (segments_[before->second].last > first) return cut(before, first);
    }
    return fill(at, first, last);
  }

  /// The segment that begins where another one ends.
  Starts::iterator next_to(Starts::iterator at, uintptr_t last) {
    const uintptr_t first = segments_[at->second].last;
    ++at;
    return at != starts_.end() && at->first == first ? at : fill(at, first, last);
  }

  /// A segment of what no task has touched, up to `last` or the segment `next`.
  Starts::iterator fill(Starts::iterator next, uintptr_t first, uintptr_t last) {
    Segment segment;
    segment.last = next == starts_.end() ? last : std::min(last, next->first);
    return starts_.emplace_hint(next, first, add(segment));
  }

  /// Makes two segments of one; returns the second.
  Starts::iterator cut(Starts::iterator at, uintptr_t where) {
    Segment rest = segments_[at->second];
    for (uint32_t reader = std::exchange(rest.readers, kNone); reader != kNone;
         reader = readers_[reader].next)
      rest.readers = make_reader(readers_[reader].task, rest.readers);
    end_at(segments_[at->second], where);
    return starts_.emplace_hint(std::next(at), where, add(rest));
  }

  /// Makes one segment of those from `front` to `back`, which one task has written.
  void merge(Starts::iterator front, Starts::iterator back) {
    end_at(segments_[front->second], segments_[back->second].last);
    const auto end = std::next(back);
    for (auto at = std::next(front); at != end; at = starts_.erase(at)) {
      segments_[at->second].edition = next_edition();
      free_segments_.push_back(at->second);
    }
  }

  void end_at(Segment& segment, uintptr_t last) {
    segment.last = last;
    segment.edition = next_edition();
  }

  uint32_t add(Segment segment) {
    segment.edition = next_edition();
    if (free_segments_.empty()) {
      segments_.push_back(segment);
      return uint32_t(segments_.size() - 1);
    }
    const uint32_t number = free_segments_.back();
    free_segments_.pop_back();
    segments_[number] = segment;
    return number;
  }

  /// Where editions begin again, no region remembers an old one.
  uint32_t next_edition() {
    if (++edition_ == kNone) {
      edition_ = 1;
      std::fill(memories_.begin(), memories_.end(), Memory{});
    }
    return edition_;
  }

  std::vector<Segment> segments_;
  std::vector<uint32_t> free_segments_;
  std::vector<Memory> memories_;  ///< by the number of the region
  Starts starts_;                 ///< segments by their first byte
  std::vector<Reader> readers_;
  std::vector<uint32_t> met_;  ///< by one access, except what it visited immediately
  uint32_t free_readers_ = kNone;
  uint32_t edition_ = 0;
};

}  // namespace pto::wsp::capi
