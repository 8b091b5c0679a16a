// SPDX-License-Identifier: MIT
/// \file
/// The recorded slices of a run that no worker runs, by pool.
#pragma once

#include <array>
#include <utility>
#include <vector>

#include "pto/wsp/sched/pools.hpp"
#include "pto/wsp/sched/slice.hpp"

namespace pto::wsp::sched {

/// One lane per pool, each with a queue and a list of waiting slices.
class ReadySlices {
 public:
  /// With `is_ordered`, slices are taken in the order of `is_before`. Otherwise, when `most_waiting` slices
  /// of a lane wait, only older slices begin.
  void begin(uint32_t num_lanes, bool is_ordered, size_t most_waiting) {
    num_lanes_ = num_lanes;
    is_ordered_ = is_ordered;
    most_waiting_ = most_waiting;
    for (Lane& lane : lanes_) {
      lane.queue.clear();
      lane.waiting.clear();
    }
  }

  void push(Slice* slice) { lanes_[slice->lane].queue.push(slice); }
  void push_waiting(Slice* slice) { lanes_[slice->lane].waiting.push(slice); }

  /// A slice of one of `lanes` that can begin or continue, or null.
  Slice* take(Lanes lanes, Progress& progress) {
    Slice* found = nullptr;
    for (uint32_t i = 0; i < num_lanes_; ++i) {
      if (!has_lane(lanes, i) || !has_slices(lanes_[i])) continue;
      Slice* slice = take_from(lanes_[i], progress);
      if (slice == nullptr) continue;
      if (found != nullptr && is_before(found, slice)) std::swap(found, slice);
      if (found != nullptr) push(found);
      found = slice;
      if (!is_ordered_) break;
    }
    return found;
  }

  bool has_slices(Lanes lanes) const {
    for (uint32_t i = 0; i < num_lanes_; ++i) {
      if (has_lane(lanes, i) && has_slices(lanes_[i])) return true;
    }
    return false;
  }

  /// Whether `take` would find a slice. Slices whose wait is not satisfied do not count.
  bool has_ready(Lanes lanes, const Progress& progress) const {
    for (uint32_t i = 0; i < num_lanes_; ++i) {
      if (!has_lane(lanes, i)) continue;
      const Lane& lane = lanes_[i];
      uint64_t oldest = UINT64_MAX;
      if (lane.waiting.has_ready(progress, oldest)) return true;
      if (lane.queue.has_before(limit_of(lane, oldest))) return true;
    }
    return false;
  }

  /// Slices that have not begun.
  size_t num_queued() const {
    size_t count = 0;
    for (uint32_t i = 0; i < num_lanes_; ++i) count += lanes_[i].queue.size();
    return count;
  }

  /// The slices that wait now, for reports.
  std::vector<Slice*> waiting() const {
    std::vector<Slice*> all;
    for (uint32_t i = 0; i < num_lanes_; ++i) {
      for (Slice* slice : lanes_[i].waiting.copy()) all.push_back(slice);
    }
    return all;
  }

  // The most slices of a lane at a time

  uint32_t num_lanes() const { return num_lanes_; }
  size_t most_queued(uint32_t lane) const { return lanes_[lane].queue.most(); }
  size_t most_waiting(uint32_t lane) const { return lanes_[lane].waiting.most(); }

 private:
  struct Lane {
    SliceQueue queue;
    WaitingSlices waiting;
  };

  static bool has_slices(const Lane& lane) { return lane.queue.size() > 0 || lane.waiting.size() > 0; }

  Slice* take_from(Lane& lane, Progress& progress) const {
    uint64_t oldest = UINT64_MAX;
    if (lane.waiting.size() > 0) {
      progress.advance_watermark();
      Slice* ready = lane.waiting.pop_ready(progress, oldest);
      if (ready != nullptr) return is_ordered_ ? first_of(lane, ready) : ready;
    }
    return lane.queue.pop(limit_of(lane, oldest));
  }

  /// Slices from this number on do not begin, because too many wait.
  uint64_t limit_of(const Lane& lane, uint64_t oldest) const {
    return lane.waiting.size() < most_waiting_ ? UINT64_MAX : oldest;
  }

  /// `ready`, or the first slice of the queue if that comes before it.
  static Slice* first_of(Lane& lane, Slice* ready) {
    Slice* queued = lane.queue.pop(UINT64_MAX);
    if (queued == nullptr) return ready;
    if (is_before(queued, ready)) std::swap(queued, ready);
    lane.queue.push(queued);
    return ready;
  }

  uint32_t num_lanes_ = 1;
  bool is_ordered_ = false;
  size_t most_waiting_ = 0;
  std::array<Lane, kMaxLanes> lanes_;
};

}  // namespace pto::wsp::sched
