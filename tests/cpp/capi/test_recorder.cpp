// SPDX-License-Identifier: MIT
/// \file
/// Recorded graphs say what they must, and no more: from their text alone, whatever the timing, each task
/// comes behind exactly what it shares memory with, and what that comes behind.
#include "../seeds.hpp"
#include "accesses.hpp"

namespace {

using namespace accesses;

/// Programs one after the other, which share no memory.
struct Blocks {
  std::vector<Program> programs;
  std::vector<int32_t> memory;

  Blocks(Maker& maker, size_t count) : memory(count * kMaxCells) {
    for (size_t i = 0; i < count; ++i) programs.push_back(maker.make(&memory[i * kMaxCells]));
  }
};

/// Reads what is complete before each task of a graph begins, whatever the timing. Tasks are numbered within
/// their block: a wait for another one is an error.
class OrderReader {
 public:
  explicit OrderReader(const Blocks& blocks) {
    for (size_t i = 0; i < blocks.programs.size(); ++i)
      for (size_t task = 0; task < blocks.programs[i].size(); ++task) tasks_.push_back({i, task});
  }

  /// Of the tasks whose strands are published. \pre the graph begins at this place
  const std::vector<Set>& read(const sched::KeptGraph& graph, size_t first_place) {
    first_place_ = first_place;
    before_.clear();
    first_tasks_.clear();
    for (uint64_t strand = 0; strand < graph.num_strands(); ++strand)
      read_strand(graph.strand(strand), strand);
    return before_;
  }
  size_t num_jumps() const { return num_jumps_; }

 private:
  struct Name {
    size_t block, task;
  };

  void read_strand(const sched::KeptGraph::Strand& strand, uint64_t number) {
    Set known;
    const size_t first = before_.size();
    CHECK_EQ(size_t(strand.first_task), first_place_ + first);
    first_tasks_.push_back(first);
    bool follows = false;
    for (const uint32_t* at = strand.ops; sched::op_of(*at) != sched::GraphOp::kEnd;) {
      switch (sched::op_of(*at)) {
        case sched::GraphOp::kTask:
          CHECK_EQ(tasks_.at(before_.size()).block, tasks_[first].block);
          before_.push_back(known);
          known.set(tasks_[before_.size() - 1].task);
          ++at;
          break;
        case sched::GraphOp::kWait:
          CHECK(sched::operand_of(*at) < number);
          follows |= sched::operand_of(*at) + 1 == number && before_.size() == first;
          known |= complete_after(first_tasks_.at(sched::operand_of(*at)), at[1], tasks_.at(first).block);
          at += 2;
          break;
        case sched::GraphOp::kJump:
          std::memcpy(&at, at + 1, sizeof(at));
          ++num_jumps_;
          break;
        default: CHECK(false);
      }
    }
    CHECK(before_.size() > first);
    CHECK_EQ(bool(strand.follows), follows);
  }

  /// What is complete when so many tasks of a strand are.
  Set complete_after(size_t first, size_t count, size_t block) const {
    CHECK(count > 0);
    Set known;
    for (size_t task = first; task < first + count; ++task) {
      CHECK_EQ(tasks_.at(task).block, block);
      known |= before_.at(task);
      known.set(tasks_[task].task);
    }
    return known;
  }

  std::vector<Name> tasks_;
  std::vector<Set> before_;
  std::vector<size_t> first_tasks_;  ///< per strand
  size_t first_place_ = 0;
  size_t num_jumps_ = 0;
};

std::string first_of(const Set& set) { return std::to_string(set._Find_first()); }

/// Compares the first tasks of a graph.
void check_order(const std::vector<Set>& found, const std::vector<Set>& expected, const std::string& where) {
  CHECK(found.size() <= expected.size());
  for (size_t task = 0; task < found.size(); ++task) {
    if (found[task] == expected[task]) continue;
    const Set missing = expected[task] & ~found[task], needless = found[task] & ~expected[task];
    check::fail(__FILE__, __LINE__,
                where + ": task " + std::to_string(task) +
                    (missing.any() ? " may begin before task " + first_of(missing) + " is complete"
                                   : " waits needlessly for task " + first_of(needless)));
  }
}

/// Builds a graph of blocks, of which strands are read while it grows, and then the whole of it.
size_t check_graph(capi::Tasks& tasks, capi::Recorder& recorder, const Blocks& blocks, Maker& maker,
                   const std::string& where) {
  std::vector<Set> expected;
  OrderReader reader(blocks);
  const size_t first_place = tasks.num_submitted();
  size_t next_look = size_t(maker.below(200));
  for (const Program& program : blocks.programs) {
    const std::vector<Set> earlier = all_earlier_of(program);
    expected.insert(expected.end(), earlier.begin(), earlier.end());
    for (const Accesses& accesses : program) {
      const uint32_t place = tasks.num_submitted(), number = add_task(tasks, accesses);
      const bool ends_strand = recorder.record(tasks.submit(number), place);
      if (!ends_strand || place - first_place < next_look || blocks.programs.size() > 3) continue;
      const size_t num_shown = reader.read(*recorder.graph(), first_place).size();
      CHECK_EQ(num_shown, place - first_place);  // all but the strand that this task has begun
      check_order(reader.read(*recorder.graph(), first_place), expected, where + ", not finished");
      next_look = 2 * next_look + size_t(maker.below(200));
    }
  }
  const std::vector<Set>& found = reader.read(*recorder.finish(), first_place);
  CHECK_EQ(found.size(), expected.size());
  CHECK_EQ(size_t(recorder.graph()->num_tasks()), expected.size());
  check_order(found, expected, where);
  return reader.num_jumps();
}

/// Graphs one after the other, as executions make them.
void check_seed(uint64_t seed) {
  Maker maker(seed);
  capi::Tasks tasks;
  capi::Recorder recorder(tasks);
  const int num_graphs = 1 + maker.below(3);
  for (int graph = 0; graph < num_graphs; ++graph) {
    if (graph > 0) recorder.begin_graph();
    const Blocks blocks(maker, 1 + size_t(maker.below(3)));
    check_graph(tasks, recorder, blocks, maker,
                "seed " + std::to_string(seed) + ", graph " + std::to_string(graph));
  }
}

TEST(tasks_come_behind_what_they_share_memory_with) {
  seeds::for_seeds(1, std::chrono::milliseconds(2000), check_seed);
}

/// So long a graph that strands and the operations of tasks go on in other memory; twice in the same.
TEST(long_graphs_go_on_elsewhere) {
  Maker maker(7);
  capi::Tasks tasks;
  capi::Recorder recorder(tasks);
  for (int graph = 0; graph < 2; ++graph) {
    if (graph > 0) recorder.begin_graph();
    const Blocks blocks(maker, 1000);
    CHECK(check_graph(tasks, recorder, blocks, maker, "graph " + std::to_string(graph)) >= 2);
  }
}

}  // namespace
