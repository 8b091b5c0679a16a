// SPDX-License-Identifier: MIT
/// \file
/// What tasks of a simulation wait for: other tasks, all tasks before one, and the first n of a P.seq loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <queue>
#include <vector>

#include "pto/wsp/sim/task.hpp"

namespace pto::wsp::sim {

class Waits {
 public:
  void begin() {
    edges_.clear();
    free_ = kNoEdge;
    watermarks_ = {};
    groups_.assign(sched::kNumGroupLines, {});
  }

  /// Makes a task, or kGate, wait for a moment; false if it has passed.
  bool add(LiveTasks& live, uint64_t task, sched::Name name) {
    if (sched::is_task_name(name)) {
      const uint64_t before = sched::slice_of(name);
      if (live.is_complete(before)) return false;
      link(live[before].first_edge, task);
    } else if (sched::is_watermark_name(name)) {
      if (live.oldest() >= name) return false;
      watermarks_.push({name, task});
    } else {
      Group& group = groups_[sched::group_line_of(name)];
      const uint64_t count = name & sched::kGroupMask;
      if (group.complete >= count) return false;
      group.waiting.push({count, task});
    }
    return true;
  }

  /// A task is complete: calls `passed(task, because)` for each wait that is over.
  template <class Passed>
  void complete(LiveTasks& live, uint64_t task, const Passed& passed) {
    LiveTask& done = live[task];
    for (uint32_t edge = done.first_edge; edge != kNoEdge;) {
      const Edge at = edges_[edge];
      passed(at.task, task);
      edges_[edge].next = free_;
      free_ = edge;
      edge = at.next;
    }
    done.first_edge = kNoEdge;
    for (const uint32_t line : done.groups) {
      Group& group = groups_[line];
      ++group.complete;
      pop(group.waiting, group.complete, task, passed);
    }
    live.advance();
    pop(watermarks_, live.oldest(), task, passed);
  }

 private:
  struct Edge {
    uint64_t task;
    uint32_t next;
  };
  struct Counted {
    uint64_t count;
    uint64_t task;
    bool operator<(const Counted& other) const {
      return count != other.count ? count > other.count : task > other.task;
    }
  };
  using Heap = std::priority_queue<Counted>;
  struct Group {
    uint64_t complete = 0;
    Heap waiting;
  };

  template <class Passed>
  static void pop(Heap& heap, uint64_t count, uint64_t because, const Passed& passed) {
    while (!heap.empty() && heap.top().count <= count) {
      const uint64_t task = heap.top().task;
      heap.pop();
      passed(task, because);
    }
  }

  void link(uint32_t& first, uint64_t task) {
    uint32_t edge = free_;
    if (edge == kNoEdge) {
      edge = uint32_t(edges_.size());
      edges_.push_back({});
    } else {
      free_ = edges_[edge].next;
    }
    edges_[edge] = {task, first};
    first = edge;
  }

  std::vector<Edge> edges_;
  uint32_t free_ = kNoEdge;
  Heap watermarks_;
  std::vector<Group> groups_;
};

}  // namespace pto::wsp::sim
