// SPDX-License-Identifier: MIT
/// \file
/// Recorded graphs say what they must, and no more: from their text alone, whatever the timing, each task
/// comes behind exactly what it shares memory with, and what that comes behind.
#include "../graph_text.hpp"
#include "../seeds.hpp"
#include "accesses.hpp"

namespace {

using namespace accesses;

/// Programs one after the other, which share no memory.
struct Blocks {
  std::vector<Program> programs;
  std::vector<size_t> first_tasks;
  std::vector<int32_t> memory;

  Blocks(Maker& maker, size_t count) : memory(count * kMaxCells) {
    for (size_t i = 0, task = 0; i < count; ++i) {
      programs.push_back(maker.make(&memory[i * kMaxCells]));
      first_tasks.push_back(task);
      task += programs.back().size();
    }
  }
};

/// Checks which strands are marked as following the one before; returns the number of jumps.
size_t check_follows(const sched::KeptGraph& graph) {
  bool follows = false, has_begun = false;
  return graph_text::for_operations(graph, [&](uint64_t strand, sched::GraphCursor at) {
    switch (at.op()) {
      case sched::GraphOp::kWait: follows |= !has_begun && at.operand() + 1 == strand; break;
      case sched::GraphOp::kTask: has_begun = true; break;
      case sched::GraphOp::kEnd:
        CHECK_EQ(bool(graph.strand(strand).follows), follows);
        follows = has_begun = false;
        break;
      default: CHECK(false);
    }
  });
}

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
  const auto read = [&] { return graph_text::Order(*recorder.graph(), blocks.first_tasks).before(); };
  const size_t first_place = tasks.num_submitted();
  size_t next_look = size_t(maker.below(200));
  for (const Program& program : blocks.programs) {
    const std::vector<Set> earlier = all_earlier_of(program);
    expected.insert(expected.end(), earlier.begin(), earlier.end());
    for (const Accesses& accesses : program) {
      const uint32_t place = tasks.num_submitted(), number = add_task(tasks, accesses);
      const bool ends_strand = recorder.record(tasks.submit(number), place);
      if (!ends_strand || place - first_place < next_look || blocks.programs.size() > 3) continue;
      const std::vector<Set> shown = read();
      CHECK_EQ(shown.size(), place - first_place);  // all but the strand that this task has begun
      check_order(shown, expected, where + ", not finished");
      next_look = 2 * next_look + size_t(maker.below(200));
    }
  }
  recorder.finish();
  CHECK_EQ(size_t(recorder.graph()->strand(0).first_task), first_place);
  const std::vector<Set> found = read();
  CHECK_EQ(found.size(), expected.size());
  CHECK_EQ(size_t(recorder.graph()->num_tasks()), expected.size());
  check_order(found, expected, where);
  return check_follows(*recorder.graph());
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
