// SPDX-License-Identifier: MIT
/// \file
/// What the text of a kept graph says, whatever the timing of a run.
#pragma once

#include <bitset>
#include <cstring>
#include <map>
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

/// Calls `visit(strand, at)` for each operation but jumps, which are followed, from one strand to the next.
template <class Visit>
void for_operations(const sched::KeptGraph& graph, const bytecode::Plan& plan, Visit visit) {
  const auto num_words = [&](const uint32_t* at) {
    const uint32_t operand = sched::operand_of(*at);
    switch (sched::op_of(*at)) {
      case GraphOp::kEnter: return 1 + 2 * plan.loops[operand].num_registers();
      case GraphOp::kEnterNear: return 1 + plan.loops[operand].num_registers();
      case GraphOp::kSet:
      case GraphOp::kWaitGroup: return 3u;
      case GraphOp::kWait: return 2u;
      default: return 1u;
    }
  };
  for (uint64_t strand = 0; strand < graph.num_strands(); ++strand) {
    const uint32_t* at = graph.strand(strand).ops;
    for (bool is_over = false; !is_over;) {
      if (sched::op_of(*at) == GraphOp::kJump) {
        std::memcpy(&at, at + 1, sizeof(at));
        continue;
      }
      visit(strand, at);
      is_over = sched::op_of(*at) == GraphOp::kEnd;
      at += num_words(at);
    }
  }
}

/// Reads which tasks are complete before each task begins.
class Order {
 public:
  Order(const sched::KeptGraph& graph, const bytecode::Plan& plan) : graph_(graph), plan_(plan) {
    // What a group line says of later strands takes another look at the whole: those that wait for as many
    // slices there, or more, are not among the first.
    read([](uint32_t, uint64_t) { return Tasks(); });
    std::vector<Reach> reaches;
    std::swap(reaches, reaches_);
    read([&](uint32_t line, uint64_t slices) {
      Tasks first;
      uint64_t count = 0;
      for (const Reach& reach : reaches) {
        if (reach.line != line || reach.waited >= slices) continue;
        first |= reach.tasks;
        ++count;
      }
      return count == slices ? first : Tasks();
    });
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
    Tasks known;
    std::map<uint32_t, uint64_t> waited;
    for_operations(graph_, plan_, [&](uint64_t strand, const uint32_t* at) {
      if (strand == ends_.size()) {
        CHECK_EQ(graph_.strand(strand).first_task, before_.size());
        ends_.push_back(before_.size());
        known.reset();
        waited.clear();
      }
      const uint32_t operand = sched::operand_of(*at);
      switch (sched::op_of(*at)) {
        case GraphOp::kTask:
          before_.push_back(known);
          known.set(before_.size() - 1);
          ends_.back() = before_.size();
          break;
        case GraphOp::kWait: {
          CHECK(operand < strand);
          const size_t first = graph_.strand(operand).first_task;
          CHECK(at[1] > 0 && first + at[1] <= ends_[operand]);
          add(known, first, first + at[1]);
          break;
        }
        case GraphOp::kWaitAll:
          CHECK(operand <= strand);
          add(known, 0, graph_.strand(operand).first_task);
          break;
        case GraphOp::kWaitGroup: {
          const auto slices = uint64_t(sched::read_wide(at + 1));
          known |= expand_group(operand, slices);
          waited[operand] = std::max(waited[operand], slices);
          break;
        }
        case GraphOp::kReach: reaches_.push_back({operand, waited[operand], known}); break;
        default: break;
      }
    });
  }

  void add(Tasks& known, size_t first, size_t end) const {
    for (size_t task = first; task < end; ++task) known |= before_.at(task) | Tasks().set(task);
  }

  const sched::KeptGraph& graph_;
  const bytecode::Plan& plan_;
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
