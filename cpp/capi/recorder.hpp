// SPDX-License-Identifier: MIT
/// \file
/// Writes tasks down as a graph of the engine, in the order of their submission.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "address_map.hpp"
#include "tasks.hpp"

namespace pto::wsp::capi {

/// Finds what the task at each place must come behind. Places only grow.
class EarlierFinder {
 public:
  /// Each place once.
  const std::vector<uint32_t>& next(const Task& task, uint32_t place) {
    earlier_.clear();
    for (const Argument* argument = task.arguments; argument != task.arguments + task.num_arguments;
         ++argument)
      map_.access(uintptr_t(argument->first()), uintptr_t(argument->last()), argument->writes(), place,
                  [this](uint32_t earlier) { add(earlier); });
    if (earlier_.size() > kFew) {
      std::sort(earlier_.begin(), earlier_.end());
      earlier_.erase(std::unique(earlier_.begin(), earlier_.end()), earlier_.end());
    }
    return earlier_;
  }

  void clear() { map_.clear(); }
  uint64_t num_bytes() const { return map_.num_bytes(); }

 private:
  static constexpr size_t kFew = 16;

  void add(uint32_t place) {
    const bool is_known =
        earlier_.size() <= kFew && std::find(earlier_.begin(), earlier_.end(), place) != earlier_.end();
    if (!is_known) earlier_.push_back(place);
  }

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
    num_dependences_ += earlier.size();
    const bool goes_on = !is_empty() && place - first_in_strand_ < kMaxStrand &&
                         std::find(earlier.begin(), earlier.end(), place - 1) != earlier.end();
    if (!goes_on) begin_strand(place);
    names_.push_back({uint32_t(graph_->num_built() - 1), place - first_in_strand_ + 1});
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

  /// Begins another graph, whose tasks wait for none of this one.
  void begin_graph() {
    graph_ = std::make_shared<sched::KeptGraph>();
    finder_.clear();
    room_ = graph_->add_chunk();
    first_place_ = next_place_;
    names_.clear();
  }

  bool is_empty() const { return graph_->num_built() == 0; }
  const std::shared_ptr<sched::KeptGraph>& graph() const { return graph_; }
  uint64_t num_arguments() const { return num_arguments_; }
  uint64_t num_dependences() const { return num_dependences_; }
  uint64_t num_bytes() const { return graph_->num_bytes() + finder_.num_bytes(); }

 private:
  static constexpr uint32_t kMaxStrand = 256;
  static constexpr uint32_t kRecent = 16;
  static constexpr ptrdiff_t kMostWords = 8;

  /// A task is complete when so many of its strand are.
  struct Name {
    uint32_t strand;
    uint32_t tasks;
  };

  void begin_strand(uint32_t place) {
    if (!is_empty()) end_strand();
    if (graph_->num_built() > sched::operand_of(UINT32_MAX))
      throw EngineError("too-many-tasks", "a graph of so many tasks cannot be built");
    make_room();
    graph_->begin_strand(room_.at, place);
    first_in_strand_ = place;
    num_waits_ = 0;
  }

  void end_strand() {
    make_room();
    write(sched::GraphOp::kEnd, 0);
    graph_->publish(graph_->num_built());
  }

  void wait_for(Name task) {
    if (task.strand == names_.back().strand) return;
    const auto is_met = [&](Name wait) { return wait.strand == task.strand && wait.tasks >= task.tasks; };
    if (std::any_of(waits_.begin(), waits_.begin() + std::min(num_waits_, kRecent), is_met)) return;
    waits_[num_waits_++ % kRecent] = task;
    make_room();
    write(sched::GraphOp::kWait, task.strand);
    *room_.at++ = task.tasks;
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
  std::vector<Name> names_;          ///< of the tasks of the graph
  std::array<Name, kRecent> waits_;  ///< that this strand has made last
  uint32_t num_waits_ = 0;
  uint32_t first_in_strand_ = 0;
  uint32_t first_place_ = 0;
  uint32_t next_place_ = 0;
  uint64_t num_arguments_ = 0;
  uint64_t num_dependences_ = 0;
};

}  // namespace pto::wsp::capi
