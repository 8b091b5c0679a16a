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

/// Finds what the task at each place must come behind. Places only grow.
class EarlierFinder {
 public:
  /// Some several times.
  const std::vector<uint32_t>& next(const Task& task, uint32_t place) {
    earlier_.clear();
    const auto visit = [this, place](uint32_t earlier) {
      if (earlier < place) earlier_.push_back(earlier);
    };
    const Argument* end = task.arguments + task.num_arguments;
    for (const Argument* argument = task.arguments; argument != end; ++argument)
      map_.access(uintptr_t(argument->first), uintptr_t(argument->last()), argument->role() != Role::in,
                  place, visit);
    return earlier_;
  }

  /// Each once, ascending.
  const std::vector<uint32_t>& next_sorted(const Task& task, uint32_t place) {
    next(task, place);
    std::sort(earlier_.begin(), earlier_.end());
    earlier_.erase(std::unique(earlier_.begin(), earlier_.end()), earlier_.end());
    return earlier_;
  }

  void clear() { map_.clear(); }
  uint64_t num_bytes() const { return map_.num_bytes(); }

 private:
  AddressMap map_;
  std::vector<uint32_t> earlier_;
};

/// A task that must come behind the one before it goes on with its strand: that adds no order. Any other task
/// begins one.
class Recorder {
 public:
  explicit Recorder(const Tasks& tasks) : tasks_(tasks) { begin_graph(); }

  /// Writes down the task at `place`; true if strands before it are complete now.
  bool record(uint32_t place) {
    const Task& task = tasks_.at(place);
    const std::vector<uint32_t>& earlier = finder_.next(task, place);
    num_arguments_ += task.num_arguments;
    const bool goes_on = !is_empty() && place - first_in_strand_ < kMaxStrand &&
                         std::find(earlier.begin(), earlier.end(), place - 1) != earlier.end();
    if (!goes_on) begin_strand(place);
    names_.emplace_back(own_, place - first_in_strand_ + 1);
    for (const uint32_t other : earlier) wait_for(names_[other - first_place_]);
    make_room();
    write(sched::GraphOp::kTask, 0);
    next_place_ = place + 1;
    return !goes_on;
  }

  /// Ends the graph. \pre it is not empty
  std::shared_ptr<sched::KeptGraph> finish() {
    end_strand();
    graph_->finish(next_place_ - first_place_, room_);
    return graph_;
  }

  /// Begins another graph in the memory of this one; its tasks wait for none of this one. \pre nobody uses it
  void begin_graph() {
    if (graph_ == nullptr || graph_->is_worn()) graph_ = std::make_shared<sched::KeptGraph>();
    graph_->clear();
    finder_.clear();
    waits_.clear();
    room_ = graph_->add_chunk();
    first_place_ = next_place_;
    names_.clear();
  }

  /// Begins anew, for tasks at places from 0 on.
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
  static constexpr ptrdiff_t kMostWords = 8;

  /// A task is complete when so many of its strand are. Also the latest wait for a strand: by which one, and
  /// for how many tasks. One word, because two that are read back as one stall the processor.
  class Name {
   public:
    Name(uint32_t strand, uint32_t tasks) : bits_(uint64_t(strand) << 32 | tasks) {}
    uint32_t strand() const { return uint32_t(bits_ >> 32); }
    uint32_t tasks() const { return uint32_t(bits_); }

   private:
    uint64_t bits_;
  };

  void begin_strand(uint32_t place) {
    if (!is_empty()) end_strand();
    if (graph_->num_built() > sched::operand_of(UINT32_MAX))
      throw EngineError("too-many-tasks", "a graph of so many tasks cannot be built");
    make_room();
    graph_->begin_strand(room_.at, place);
    first_in_strand_ = place;
    own_ = uint32_t(graph_->num_built() - 1);
    waits_.emplace_back(own_, 0);  // no strand waits for itself
  }

  void end_strand() {
    make_room();
    write(sched::GraphOp::kEnd, 0);
    graph_->publish(graph_->num_built());
  }

  void wait_for(Name task) {
    if (task.strand() == own_) return;
    Name& latest = waits_[task.strand()];
    if (latest.strand() == own_ && latest.tasks() >= task.tasks()) return;
    latest = {own_, task.tasks()};
    make_room();
    write(sched::GraphOp::kWait, task.strand());
    *room_.at++ = task.tasks();
  }

  void write(sched::GraphOp op, uint32_t operand) {
    *room_.at++ = operand << sched::kGraphOpBits | uint32_t(op);
  }

  /// Room for an operation and a jump.
  void make_room() {
    if (room_.end - room_.at >= kMostWords) return;
    uint32_t* at = room_.at;
    room_ = graph_->add_chunk();
    *at++ = uint32_t(sched::GraphOp::kJump);
    const uint32_t* to = room_.at;
    std::memcpy(at, &to, sizeof(to));
  }

  const Tasks& tasks_;
  EarlierFinder finder_;
  std::shared_ptr<sched::KeptGraph> graph_;
  sched::KeptGraph::Room room_{};
  std::vector<Name> names_;  ///< of the tasks of the graph
  std::vector<Name> waits_;  ///< per strand
  uint32_t own_ = 0;         ///< the strand that grows
  uint32_t first_in_strand_ = 0;
  uint32_t first_place_ = 0;
  uint32_t next_place_ = 0;
  uint64_t num_arguments_ = 0;
};

}  // namespace pto::wsp::capi
