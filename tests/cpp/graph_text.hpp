// SPDX-License-Identifier: MIT
/// \file
/// What the text of a kept graph says, whatever the timing of a run.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "pto/wsp/bytecode/plan.hpp"
#include "pto/wsp/sched/kept_graph.hpp"

namespace graph_text {

using namespace pto::wsp;
using sched::GraphOp;

inline constexpr size_t kMaxTasks = 1024;
/// Tasks, by their numbers.
using Tasks = std::bitset<kMaxTasks>;

/// Calls `visit(strand, at)` for each operation, from one strand to the next. Returns how many jumps there
/// were.
template <class Visit>
size_t for_operations(const sched::KeptGraph& graph, Visit visit) {
  size_t num_jumps = 0;
  for (uint64_t strand = 0; strand < graph.num_strands(); ++strand) {
    for (sched::GraphCursor at(graph.strand(strand).ops);;) {
      visit(strand, at);
      if (at.op() == GraphOp::kEnd) break;
      const uint32_t* next = at.address() + sched::kGraphOpWords[int(at.op())];
      at.advance();
      num_jumps += at.address() != next;
    }
  }
  return num_jumps;
}

/// Reads which tasks are complete before each task begins. Tasks are numbered within their block, if a graph
/// has several: no task waits for one of another block.
class Order {
 public:
  explicit Order(const sched::KeptGraph& graph) : graph_(graph) {
    // What a group line says of later strands takes another look at the whole: those that wait for as many
    // slices there, or more, are not among the first.
    read([](uint32_t, uint64_t) { return Tasks(); });
    std::vector<Reach> reaches;
    std::swap(reaches, reaches_);
    const auto expand_group = [&](uint32_t line, uint64_t slices) {
      Tasks first;
      uint64_t count = 0;
      for (const Reach& reach : reaches) {
        if (reach.line != line || reach.waited >= slices) continue;
        first |= reach.tasks;
        ++count;
      }
      return count == slices ? first : Tasks();
    };
    read(expand_group);
  }

  /// Of a graph without loops. `blocks` are the first tasks of its blocks, ascending from 0.
  Order(const sched::KeptGraph& graph, std::vector<size_t> blocks)
      : graph_(graph), blocks_(std::move(blocks)) {
    read([](uint32_t, uint64_t) { return Tasks(); });
  }

  /// Per task.
  const std::vector<Tasks>& before() const { return before_; }

 private:
  /// A slice is complete in a group line, and these tasks with it. Its strand has waited for so many there.
  struct Reach {
    uint32_t line;
    uint64_t waited;
    Tasks tasks;
  };

  template <class ExpandGroup>
  void read(ExpandGroup expand_group) {
    before_.clear();
    reaches_.clear();
    ends_.clear();
    size_t block = 0;
    Tasks known;
    std::map<uint32_t, uint64_t> waited;
    for_operations(graph_, [&](uint64_t strand, sched::GraphCursor at) {
      if (strand == ends_.size()) {
        CHECK_EQ(size_t(graph_.strand(strand).first_task), first_of(0) + before_.size());
        ends_.push_back(before_.size());
        block = block_of(before_.size());
        known.reset();
        waited.clear();
      }
      const uint32_t operand = at.operand();
      switch (at.op()) {
        case GraphOp::kTask:
          CHECK_EQ(block_of(before_.size()), block);
          before_.push_back(known);
          known.set(before_.size() - 1 - block);
          ends_.back() = before_.size();
          break;
        case GraphOp::kWait: {
          CHECK(operand < strand);
          const size_t first = first_of(operand) - first_of(0);
          CHECK(at.count() > 0 && first + at.count() <= ends_[operand]);
          CHECK_EQ(block_of(first), block);
          add(known, first, first + size_t(at.count()), block);
          break;
        }
        case GraphOp::kWaitAll:
          CHECK(operand <= strand);
          add(known, 0, first_of(operand) - first_of(0), block);
          break;
        case GraphOp::kWaitGroup: {
          const uint64_t slices = at.count();
          known |= expand_group(operand, slices);
          waited[operand] = std::max(waited[operand], slices);
          break;
        }
        case GraphOp::kReach: reaches_.push_back({operand, waited[operand], known}); break;
        case GraphOp::kEnd: CHECK(before_.size() > first_of(strand) - first_of(0)); break;
        default: break;
      }
    });
  }

  /// The first task of a strand.
  size_t first_of(uint64_t strand) const { return size_t(graph_.strand(strand).first_task); }

  /// The first task of the block that a task is in.
  size_t block_of(size_t task) const {
    return *std::prev(std::upper_bound(blocks_.begin(), blocks_.end(), task));
  }

  void add(Tasks& known, size_t first, size_t end, size_t block) const {
    for (size_t task = first; task < end; ++task) known |= before_.at(task) | Tasks().set(task - block);
  }

  const sched::KeptGraph& graph_;
  const std::vector<size_t> blocks_ = {0};
  std::vector<Tasks> before_;
  std::vector<Reach> reaches_;
  std::vector<size_t> ends_;  ///< per strand, the task behind it
};

/// Stops where a task may begin before one of those that are expected before it is complete.
inline void check_order(const std::vector<Tasks>& found, const std::vector<Tasks>& expected, uint64_t seed) {
  CHECK_EQ(found.size(), expected.size());
  for (size_t task = 0; task < found.size(); ++task) {
    const Tasks missing = expected[task] & ~found[task];
    if (missing.none()) continue;
    check::fail(__FILE__, __LINE__,
                "seed " + std::to_string(seed) + ": task " + std::to_string(task) +
                    " may begin before task " + std::to_string(missing._Find_first()) + " is complete");
  }
}

}  // namespace graph_text
