// SPDX-License-Identifier: MIT
/// \file
/// Writes tasks down as a graph of the engine, in the order of their submission.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "address_map.hpp"
#include "tasks.hpp"

namespace pto::wsp::capi {

/// Finds what the task at each place must come after. Places only grow.
class EarlierFinder {
 public:
  explicit EarlierFinder(const Tasks& tasks) : tasks_(tasks) {}

  /// Calls `visit` for the places of these tasks, and for what is not less than `place`, any number of times.
  template <AddressMap::Visits visits, class Visit>
  [[gnu::always_inline]] inline void visit_earlier(const Task& task, uint32_t place, const Visit& visit) {
    map_.access<visits>(tasks_.regions(), task.arguments, task.arguments + task.num_arguments, place, visit);
  }

  /// Their places, each once, ascending.
  const std::vector<uint32_t>& next_sorted(const Task& task, uint32_t place) {
    earlier_.clear();
    visit_earlier<AddressMap::Visits::kAll>(task, place, [this, place](uint32_t earlier) {
      if (earlier < place) earlier_.push_back(earlier);
    });
    std::sort(earlier_.begin(), earlier_.end());
    earlier_.erase(std::unique(earlier_.begin(), earlier_.end()), earlier_.end());
    return earlier_;
  }

  void clear() { map_.clear(); }
  uint64_t num_bytes() const { return map_.num_bytes(); }

 private:
  const Tasks& tasks_;
  AddressMap map_;
  std::vector<uint32_t> earlier_;
};

/// A task that must come after the one before it goes on with its strand: that adds no order. Any other task
/// begins one.
class Recorder {
 public:
  explicit Recorder(const Tasks& tasks) : tasks_(tasks), finder_(tasks) { begin_graph(); }

  /// Writes down the task at `place`; true if strands before it are complete now. With `traits`, which are
  /// null for all tasks or for none, it begins a strand, so that it is compared with other tasks.
  bool record(const Task& task, uint32_t place, const sched::Traits* traits = nullptr) {
    num_arguments_ += task.num_arguments;
    find_earlier(task, place);
    const uint32_t length = place - first_in_strand_;
    const bool goes_on = num_own_ == length && length != 0 && length < kMaxStrand && traits == nullptr;
    if (!goes_on) begin_strand(place, traits);
    waiter_ = goes_on ? inside(own_) : first_of(head_);
    names_.emplace_back(own_, place - first_in_strand_ + 1);
    if (!goes_on && num_own_ != 0) wait_for({own_ - 1, num_own_});
    if (num_previous_ != 0) wait_for({goes_on ? own_ - 1 : own_ - 2, num_previous_});
    for (const uint32_t other : others_) wait_for(names_[other - first_place_]);
    writer_.reserve();
    writer_.task(0);
    next_place_ = place + 1;
    return !goes_on;
  }

  /// Ends the graph. \pre it is not empty
  std::shared_ptr<sched::KeptGraph> finish() {
    end_strand();
    graph_->finish(next_place_ - first_place_, writer_.room());
    return graph_;
  }

  /// Begins another graph in the memory of this one; its tasks wait for none of this one. \pre no thread uses
  /// it
  void begin_graph() {
    if (graph_ == nullptr || graph_->is_worn()) graph_ = std::make_shared<sched::KeptGraph>();
    graph_->clear();
    finder_.clear();
    waits_.clear();
    writer_.begin(*graph_, kMaxWords);
    first_place_ = first_in_previous_ = first_in_strand_ = next_place_;
    names_.clear();
  }

  /// Begins again, for tasks at places from 0 on.
  void clear() {
    next_place_ = 0;
    num_arguments_ = 0;
    begin_graph();
  }

  bool is_empty() const { return graph_->num_built() == 0; }
  const std::shared_ptr<sched::KeptGraph>& graph() const { return graph_; }
  uint64_t num_arguments() const { return num_arguments_; }
  uint64_t num_bytes() const {
    return graph_->num_bytes() + finder_.num_bytes() + (names_.size() + waits_.size()) * sizeof(Name);
  }

 private:
  static constexpr uint32_t kMaxStrand = 256;
  static constexpr size_t kMaxWords = 2;  ///< of an operation

  /// A task is complete when this number of tasks of its strand are. One word, because two that are read back
  /// as one stall the processor.
  class Name {
   public:
    Name(uint32_t strand, uint32_t tasks) : bits_(uint64_t(strand) << 32 | tasks) {}
    uint32_t strand() const { return uint32_t(bits_ >> 32); }
    uint32_t tasks() const { return uint32_t(bits_); }

   private:
    uint64_t bits_;
  };

  /// The latest wait for a strand: who waited, instead of a strand, and for how many tasks.
  using Wait = Name;
  static constexpr uint32_t first_of(uint32_t strand) { return 2 * strand; }
  static constexpr uint32_t inside(uint32_t strand) { return 2 * strand + 1; }

  /// Finds what a task must come after. Of the strand that grows, and of the one before it, the latest task
  /// represents all.
  [[gnu::noinline]] void find_earlier(const Task& task, uint32_t place) {
    uint32_t num_own = 0, num_previous = 0;
    const uint32_t first = first_in_strand_, length = place - first, first_previous = first_in_previous_;
    others_.clear();
    finder_.visit_earlier<AddressMap::Visits::kLast>(task, place, [&, this](uint32_t earlier) {
      if (earlier - first < length) {
        num_own = std::max(num_own, earlier - first + 1);
      } else if (earlier < first && earlier >= first_previous) {
        num_previous = std::max(num_previous, earlier - first_previous + 1);
      } else if (earlier < first) {
        others_.push_back(earlier);
      }
    });
    num_own_ = num_own;
    num_previous_ = num_previous;
  }

  void begin_strand(uint32_t place, const sched::Traits* traits) {
    if (!is_empty()) end_strand();
    if (graph_->num_built() > sched::kMaxGraphOperand)
      throw EngineError("too-many-tasks", "the graph has too many tasks");
    writer_.reserve();
    graph_->begin_strand(writer_.at(), place, num_own_ != 0, traits);
    first_in_previous_ = first_in_strand_;
    first_in_strand_ = place;
    own_ = uint32_t(graph_->num_built() - 1);
    if (num_own_ == 0) head_ = own_;
    waits_.emplace_back(first_of(own_), 0);
  }

  void end_strand() {
    writer_.reserve();
    writer_.end();
    graph_->publish(graph_->num_built());
  }

  /// What the first task of a strand has waited for, the strands that follow it need not wait for again: they
  /// wait for that task. What one inside it has waited for precedes only the rest of the strand.
  void wait_for(Name task) {
    Wait& latest = waits_[task.strand()];
    const bool is_ours = latest.strand() == inside(own_) || latest.strand() == first_of(head_);
    if (is_ours && latest.tasks() >= task.tasks()) return;
    latest = {waiter_, task.tasks()};
    writer_.reserve();
    writer_.wait(task.strand(), task.tasks());
  }

  const Tasks& tasks_;
  EarlierFinder finder_;
  std::shared_ptr<sched::KeptGraph> graph_;
  sched::GraphWriter writer_;

  // What the present task must come after
  uint32_t num_own_ = 0;          ///< tasks of the strand that grows
  uint32_t num_previous_ = 0;     ///< tasks of the strand before it
  std::vector<uint32_t> others_;  ///< places of tasks in other strands

  std::vector<Name> names_;  ///< of the tasks of the graph
  std::vector<Wait> waits_;  ///< per strand
  uint32_t own_ = 0;         ///< the strand that grows
  uint32_t head_ = 0;        ///< the first of the strands that follow each other up to it
  uint32_t waiter_ = 0;      ///< the present task, as `waits_` names it
  uint32_t first_in_strand_ = 0;
  uint32_t first_in_previous_ = 0;  ///< the strand before it
  uint32_t first_place_ = 0;
  uint32_t next_place_ = 0;
  uint64_t num_arguments_ = 0;
};

}  // namespace pto::wsp::capi
