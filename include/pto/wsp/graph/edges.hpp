// SPDX-License-Identifier: MIT
/// \file
/// Checks that the stated order of a program suffices: edges (`AFTER`) and FOR_EACH loops order every two
/// conflicting tasks.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "pto/wsp/graph/checker.hpp"

namespace pto::wsp::graph {

namespace detail {

/// Tasks are apart if no path of edges leads from one to the other. A task has an edge from the latest task
/// of each site that it names, and from all tasks of earlier iterations of the FOR_EACH loops around it.
class StatedOrder {
 public:
  static constexpr bytecode::Op kMarked = bytecode::Op::FOR_EACH;
  static constexpr bool kComparesReads = false;
  static constexpr const char* kCode = "edges-missing";
  static constexpr const char* kMessage = "tasks that conflict are not ordered by edges";

  explicit StatedOrder(const Plan& plan) : plan_(plan), latest_(plan.sites.size(), kNobody) {}

  void enter(uint32_t, uint64_t next_task) {
    open_.push_back({next_task, next_task});
    settings_.push_back(open_);
  }
  void iterate(uint64_t next_task) {
    open_.back().end = next_task;
    settings_.push_back(open_);
  }
  bool leave() {
    open_.pop_back();
    settings_.push_back(open_);
    return false;
  }
  bool is_active() const { return true; }

  void begin_task(uint32_t site) {
    const auto self = uint64_t(setting_of_.size());
    setting_of_.push_back(uint32_t(settings_.size() - 1));
    first_edge_.push_back(edges_.size());
    seen_.push_back(self);
    const bytecode::SiteForm& form = plan_.program().sites[site];
    for (uint32_t i = form.first_after; i < form.first_after + form.num_afters; ++i) {
      const uint64_t named = latest_[plan_.program().afters[i]];
      if (named != kNobody) edges_.push_back(named);
    }
    latest_[site] = self;
    self_ = self;
    behind_.clear();
    ranges_.clear();
    follow(self);
  }

  bool is_apart(uint64_t task) {
    while (!is_found(task)) {
      // Edges lead backwards, so the remaining edges lead only to earlier tasks.
      if (behind_.empty() || behind_.front().end <= task) return true;
      std::pop_heap(behind_.begin(), behind_.end(), ends_before);
      TaskRange& last = behind_.back();
      const uint64_t next = --last.end;
      if (last.begin == last.end) {
        behind_.pop_back();
      } else {
        std::push_heap(behind_.begin(), behind_.end(), ends_before);
      }
      follow(next);
    }
    return false;
  }
  bool is_alike(uint64_t) const { return false; }
  EngineError explain(EngineError error, uint64_t) const { return error; }

 private:
  static constexpr uint64_t kNobody = UINT64_MAX;

  /// Tasks [begin, end).
  struct TaskRange {
    uint64_t begin, end;
  };

  static bool ends_before(const TaskRange& a, const TaskRange& b) { return a.end < b.end; }

  bool is_found(uint64_t task) const {
    const auto holds = [task](const TaskRange& range) { return range.begin <= task && task < range.end; };
    return seen_[task] == self_ || std::any_of(ranges_.begin(), ranges_.end(), holds);
  }

  /// Adds the predecessors of a task to the known predecessors of the current task.
  void follow(uint64_t task) {
    const size_t last = task + 1 < first_edge_.size() ? first_edge_[task + 1] : edges_.size();
    for (size_t i = first_edge_[task]; i < last; ++i) {
      if (seen_[edges_[i]] == self_) continue;
      seen_[edges_[i]] = self_;
      add({edges_[i], edges_[i] + 1});
    }
    for (const TaskRange& range : settings_[setting_of_[task]]) {
      const auto holds = [&](const TaskRange& other) {
        return other.begin <= range.begin && range.end <= other.end;
      };
      if (range.begin == range.end || std::any_of(ranges_.begin(), ranges_.end(), holds)) continue;
      ranges_.push_back(range);
      add(range);
    }
  }

  void add(TaskRange range) {
    behind_.push_back(range);
    std::push_heap(behind_.begin(), behind_.end(), ends_before);
  }

  const Plan& plan_;
  std::vector<TaskRange> open_;  ///< per open FOR_EACH loop, its earlier iterations
  std::vector<std::vector<TaskRange>> settings_{{}};
  std::vector<uint32_t> setting_of_;  ///< per task
  std::vector<size_t> first_edge_;    ///< per task
  std::vector<uint64_t> edges_;
  std::vector<uint64_t> latest_;  ///< per site, its latest task
  // The known predecessors of the current task.
  uint64_t self_ = 0;
  std::vector<uint64_t> seen_;  ///< per task, the latest known successor
  std::vector<TaskRange> ranges_;
  std::vector<TaskRange> behind_;  ///< a heap of tasks whose edges are not followed yet, the latest first
};

}  // namespace detail

/// Checks that edges and FOR_EACH loops order all conflicting tasks: see Checker::run.
/// \pre bind_elements, and the regions have been checked
/// \complexity close to linear in the number of tasks where conflicting tasks are few edges apart
template <class IsStopped>
bool check_edges(const Plan& plan, const std::vector<int64_t>& flushed, IsStopped is_stopped) {
  return detail::Checker<detail::StatedOrder>(plan, flushed).run(is_stopped);
}

}  // namespace pto::wsp::graph
