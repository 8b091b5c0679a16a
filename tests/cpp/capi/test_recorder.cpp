// SPDX-License-Identifier: MIT
/// \file
/// Recorded graphs say enough: from their text alone, whatever the timing, each task comes behind all that it
/// shares memory with, as a map of single elements says.
#include "../../../cpp/capi/recorder.hpp"

#include <bitset>
#include <random>
#include <vector>

#include "../check.hpp"
#include "../seeds.hpp"

namespace {

using namespace pto::wsp;

constexpr int kMaxTasks = 400, kMaxCells = 120;
using Set = std::bitset<kMaxTasks>;
using Accesses = std::vector<std::pair<capi::Region, Role>>;

/// What each task must come behind, by cells of one element.
class Oracle {
 public:
  Set next(const Accesses& accesses, size_t task) {
    Set earlier;
    for (const auto& [region, role] : accesses)
      visit(region, [&](Cell& cell) {
        if (cell.writer >= 0) earlier.set(size_t(cell.writer));
        if (role != Role::in) earlier |= cell.readers;
      });
    for (const auto& [region, role] : accesses)
      visit(region, [&, writes = role != Role::in](Cell& cell) {
        if (!writes && cell.writer != int(task)) cell.readers.set(task);
        if (writes) cell = {int(task), {}};
      });
    return earlier.reset(task);
  }

 private:
  struct Cell {
    int writer = -1;
    Set readers;
  };
  template <class Visit>
  void visit(const capi::Region& region, const Visit& body) {
    const auto first = size_t(region.first - region.tensor) / capi::Region::kElementBytes;
    for (size_t i = 0; i < size_t(region.rows) * size_t(region.cols); ++i) body(cells_[first + i]);
  }
  Cell cells_[kMaxCells];
};

/// What is complete before each task of a graph begins, whatever the timing.
std::vector<Set> read_order(const sched::KeptGraph& graph) {
  std::vector<Set> before;
  std::vector<size_t> first_tasks;
  for (uint64_t strand = 0; strand < graph.num_strands(); ++strand) {
    Set known;
    const size_t first = before.size();
    CHECK_EQ(size_t(graph.strand(strand).first_task), first);
    first_tasks.push_back(first);
    for (const uint32_t* at = graph.strand(strand).ops; sched::op_of(*at) != sched::GraphOp::kEnd;) {
      switch (sched::op_of(*at)) {
        case sched::GraphOp::kTask:
          before.push_back(known);
          known.set(before.size() - 1);
          ++at;
          break;
        case sched::GraphOp::kWait: {
          const size_t last = first_tasks.at(sched::operand_of(*at)) + at[1] - 1;
          CHECK(sched::operand_of(*at) < strand);
          for (size_t task = first_tasks[sched::operand_of(*at)]; task <= last; ++task)
            known |= before.at(task) | Set().set(task);
          at += 2;
          break;
        }
        case sched::GraphOp::kJump: std::memcpy(&at, at + 1, sizeof(at)); break;
        default: CHECK(false);
      }
    }
  }
  return before;
}

Accesses random_accesses(std::mt19937_64& random, const void* memory, int num_cells) {
  const auto below = [&](int n) { return int(random() % uint64_t(n)); };
  Accesses accesses;
  const int count = 1 + below(below(8) == 0 ? 12 : 3);
  for (int i = 0; i < count; ++i) {
    const int rows = below(4), cols = 1 + below(4), at = below(num_cells - rows * cols + 1);
    const Role role = i + 1 < count ? Role::in : below(2) == 0 ? Role::out : Role::inout;
    accesses.emplace_back(capi::Region(memory, at / cols, at % cols, rows, cols), role);
  }
  return accesses;
}

void check_program(uint64_t seed) {
  static const int32_t memory[kMaxCells] = {};
  std::mt19937_64 random(seed);
  const int num_cells = 16 + int(random() % (kMaxCells - 16)), num_tasks = 1 + int(random() % kMaxTasks);
  capi::Tasks tasks;
  capi::Recorder recorder(tasks);
  Oracle oracle;
  std::vector<Set> expected;
  for (int task = 0; task < num_tasks; ++task) {
    const Accesses accesses = random_accesses(random, memory, num_cells);
    const uint32_t number = tasks.add(nullptr, nullptr, 0, 0);
    for (const auto& [region, role] : accesses) {
      const uint32_t found = tasks.regions().find(region);
      tasks.add_argument(number, {found != capi::Regions::kNone ? found : tasks.regions().add(region), role});
    }
    expected.push_back(oracle.next(accesses, size_t(task)));
    recorder.record(tasks.submit(number), uint32_t(task));
  }
  const std::vector<Set> found = read_order(*recorder.finish());
  CHECK_EQ(found.size(), expected.size());
  for (size_t task = 0; task < found.size(); ++task)
    if ((expected[task] & ~found[task]).any()) {
      const Set missing = expected[task] & ~found[task];
      check::fail(__FILE__, __LINE__,
                  "seed " + std::to_string(seed) + ": task " + std::to_string(task) +
                      " may begin before task " + std::to_string(missing._Find_first()) + " is complete");
    }
}

TEST(tasks_come_behind_all_that_they_share_memory_with) {
  seeds::for_seeds(1, std::chrono::milliseconds(2000), check_program);
}

}  // namespace
