// SPDX-License-Identifier: MIT
/// \file
/// Cuts program order into slices and strands, in the same way for each walk of a run.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/progress.hpp"
#include "pto/wsp/sched/random.hpp"
#include "pto/wsp/sched/strands.hpp"

namespace pto::wsp::sched {

/// The start of the numbering, equal for all walks of a run.
struct NumberingStart {
  uint64_t first_slice = 0;
  uint32_t max_tasks = kMaxSliceTasks;  ///< of a slice
  uint64_t jitter = 0;                  ///< not 0: seed of smaller slices
  std::vector<uint64_t> group_slices =
      std::vector<uint64_t>(kNumGroupLines, 0);  ///< slices so far, per group line
};

/// A barrier loop that is being walked. Its line counts complete slices.
struct Group {
  uint32_t line;
  uint64_t barrier;  ///< count at which all earlier iterations are complete
};

/// Numbers depend only on the program, the plan and the start of the run. All walks of a run rely on this: a
/// slice name means the same task in each of them. So no decision here may depend on completed tasks, on
/// costs that a run updates, or on the dispatcher. A strand is one or more consecutive slices: one unit
/// larger than a slice, or several small units.
class Numbering {
 public:
  void begin(const NumberingStart& start) {
    numbers_.slice = start.first_slice;
    most_tasks_ = start.max_tasks;
    jitter_ = start.jitter;
    group_slices_ = start.group_slices;
    groups_.clear();
    std::fill_n(instances_, bytecode::kMaxLoopDepth, 0);
    is_open_ = has_strand_ = false;
    num_strands_ = num_in_closed_ = 0;
  }

  bool is_open() const { return is_open_; }
  /// The open slice, else the next one.
  uint64_t slice() const { return numbers_.slice; }
  /// The first slice of the current strand, else the next slice.
  uint64_t strand() const { return has_strand_ ? strand_ : numbers_.slice; }
  bool begins_strand() const { return !has_strand_; }
  uint64_t num_strands() const { return num_strands_; }
  /// Tasks that are in slices.
  uint64_t num_numbered() const { return num_in_closed_ + (is_open_ ? numbers_.num_tasks : 0); }
  uint32_t num_tasks() const { return numbers_.num_tasks; }
  uint32_t max_tasks() const { return numbers_.max_tasks; }
  const std::vector<Group>& groups() const { return groups_; }

  bool has_room() const { return is_open_ && !is_full(); }
  /// Whether the slice is full.
  bool is_full() const { return numbers_.num_tasks >= numbers_.max_tasks; }
  /// Whether the slice ends at the next boundary of a unit.
  bool is_over() const { return is_full() || weight_ >= detail::kGatherNs || numbers_.slice != strand_; }

  void open() {
    is_open_ = true;
    numbers_.num_tasks = 0;
    weight_ = 0;
    numbers_.max_tasks = max_tasks_of(numbers_.slice);
    if (has_strand_) return;
    has_strand_ = true;
    strand_ = numbers_.slice;
    ++num_strands_;
  }

  void add_tasks(uint32_t num_tasks) { numbers_.num_tasks += num_tasks; }
  void add_task(uint64_t ns) {
    ++numbers_.num_tasks;
    weight_ += ns;
  }

  // Units whose tasks are counted in advance. \pre a slice is open

  void add_weight(uint64_t ns) { weight_ += ns; }
  /// Adds all tasks of a unit in one step.
  void add_unit(uint64_t num_tasks, uint64_t ns) {
    const uint64_t before = numbers_.slice;
    const uint64_t num_numbered = this->num_numbered() + num_tasks;
    pass(numbers_, num_tasks);
    num_in_closed_ = num_numbered - numbers_.num_tasks;
    const uint64_t num_closed = numbers_.slice - before;
    weight_ = num_closed == 0 ? weight_ + ns : 0;
    for (const Group& group : groups_) group_slices_[group.line] += num_closed;
  }
  /// A unit with more tasks is not added in one step.
  uint64_t max_unit_tasks() const { return jitter_ == 0 ? uint64_t{1} << 40 : uint64_t{1} << 16; }

  void close(bool ends_strand) {
    for (const Group& group : groups_) ++group_slices_[group.line];
    num_in_closed_ += numbers_.num_tasks;
    is_open_ = false;
    ++numbers_.slice;
    if (ends_strand) has_strand_ = false;
  }

  // Barrier loops. \pre no slice is open

  void enter_group() {
    const auto depth = uint32_t(groups_.size());
    // Instances at one depth never overlap. So an instance that reuses a line waits for the earlier ones on
    // it.
    const uint32_t line = depth * kGroupsPerDepth + instances_[depth]++ % kGroupsPerDepth;
    groups_.push_back({line, group_slices_[line]});
  }
  void begin_iteration() { groups_.back().barrier = group_slices_[groups_.back().line]; }
  void leave_group() { groups_.pop_back(); }
  /// Goes on with the open loops of another process, and keeps the present ones.
  void exchange_groups(std::vector<Group>& other) { groups_.swap(other); }

 private:
  /// The open slice.
  struct Numbers {
    uint64_t slice = 0;
    uint32_t num_tasks = 0;
    uint32_t max_tasks = kMaxSliceTasks;
  };

  /// Advances by a number of tasks.
  void pass(Numbers& at, uint64_t num_tasks) const {
    const uint64_t room = at.max_tasks - at.num_tasks;
    if (num_tasks <= room) {
      at.num_tasks += uint32_t(num_tasks);
      return;
    }
    uint64_t left = num_tasks - room;
    const uint64_t num_full = jitter_ == 0 ? (left - 1) / most_tasks_ : 0;
    left -= num_full * most_tasks_;
    at.slice += 1 + num_full;
    for (at.max_tasks = max_tasks_of(at.slice); left > at.max_tasks; at.max_tasks = max_tasks_of(++at.slice))
      left -= at.max_tasks;
    at.num_tasks = uint32_t(left);
  }

  uint32_t max_tasks_of(uint64_t slice) const {
    return jitter_ == 0 ? most_tasks_ : std::min(most_tasks_, 1 + Random(jitter_ + slice * 77).next() % 8);
  }

  Numbers numbers_;
  uint64_t strand_ = 0;
  uint64_t num_strands_ = 0;
  uint64_t num_in_closed_ = 0;  ///< tasks
  uint64_t weight_ = 0;
  uint32_t most_tasks_ = kMaxSliceTasks;
  uint64_t jitter_ = 0;
  bool is_open_ = false;
  bool has_strand_ = false;
  std::vector<Group> groups_;
  std::vector<uint64_t> group_slices_;
  uint32_t instances_[bytecode::kMaxLoopDepth] = {};
};

}  // namespace pto::wsp::sched
