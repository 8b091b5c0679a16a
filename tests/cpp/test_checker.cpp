// SPDX-License-Identifier: MIT
/// \file
/// The check of P against pairwise comparison: it finds something exactly if two tasks of different
/// iterations of a P loop conflict, and what it names conflicts.
#include "planned.hpp"
#include "pto/wsp/engine.hpp"
#include "pto/wsp/graph/edges.hpp"
#include "random_loops.hpp"
#include "random_rows.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_checker {

using namespace pto::wsp;
using namespace planned;

namespace {

/// Number of pairs that contradict P.
template <class Conflict>
int count_violations(const std::vector<PlacedTask>& tasks, Conflict conflict) {
  int found = 0;
  for (size_t j = 0; j < tasks.size(); ++j) {
    for (size_t i = 0; i < j; ++i)
      found += are_in_different_iterations(tasks[i].place, tasks[j].place) && conflict(i, j);
  }
  return found;
}

std::vector<int64_t> list(const EngineError& error, const std::string& key) {
  for (const auto& [name, value] : error.details()) {
    if (name == key) return value.list;
  }
  return {};
}

struct Score {
  int clean = 0, violated = 0, unknown = 0;
};

/// Compares what the check says of a program with the pairs that conflict.
template <class Conflict>
void compare(Planned& planned, const std::vector<int64_t>& flushed, Conflict conflict, Score& score) {
  const std::vector<PlacedTask> tasks = planned::walk(planned, flushed, bytecode::Op::PARALLEL_FOR);
  const auto conflicts = [&](size_t i, size_t j) { return conflict(tasks, i, j); };
  const int expected = count_violations(tasks, conflicts);
  try {
    CHECK(graph::check_iterations(planned.plan, flushed, [] { return false; }));
    CHECK_EQ(expected, 0);
    ++score.clean;
  } catch (EngineError& error) {
    if (error.code() == "unknown-rows") {
      ++score.unknown;
      return;
    }
    CHECK(error.code() == "iterations-conflict");
    const auto first = size_t(error.number("other_task")), second = size_t(error.number("task"));
    CHECK(first < second && are_in_different_iterations(tasks[first].place, tasks[second].place));
    CHECK(conflicts(first, second));
    CHECK(list(error, "registers") == tasks[second].task.registers);
    CHECK(list(error, "other_registers") == tasks[first].task.registers);
    CHECK(error.number("writes") == 1 || error.number("other_writes") == 1);
    const std::vector<int64_t> lo = list(error, "lo"), hi = list(error, "hi");
    for (size_t d = 0; d < lo.size(); ++d) CHECK(lo[d] < hi[d]);
    ++score.violated;
  }
}

void print(const Score& score) {
  std::printf("  %d programs keep to P, %d do not, %d are not known to\n", score.clean, score.violated,
              score.unknown);
}

}  // namespace

TEST(the_check_finds_every_violation_and_nothing_else) {
  Score score;
  seeds::for_seeds(1, uint64_t{1200}, [&](uint64_t seed) {
    const random_loops::Nest nest(seed);
    Planned planned(nest.bytes(), nest.shapes());
    const auto conflict_in = [](const Planned& of) {
      return [&of](const std::vector<PlacedTask>& tasks, size_t i, size_t j) {
        return conflict(of, tasks[i].task, tasks[j].task);
      };
    };
    compare(planned, {}, conflict_in(planned), score);
    if (seed > 400) return;
    const random_workload::Workload workload(seed, 60);
    if (workload.tasks().size() > 300) return;
    Planned second(workload.bytes(), shapes_of(workload));
    compare(second, workload.flushed(), conflict_in(second), score);
  });
  print(score);
  CHECK(score.clean > 200 && score.violated > 200 && score.unknown == 0);
}

TEST(the_check_looks_at_the_rows_of_row_sets) {
  Score score;
  seeds::for_seeds(1, uint64_t{800}, [&](uint64_t seed) {
    const random_rows::Workload workload(seed);
    std::vector<char*> bases;
    for (const random_rows::Tensor& tensor : workload.tensors())
      bases.push_back(reinterpret_cast<char*>(const_cast<int32_t*>(tensor.indices.data())));
    Planned planned(workload.bytes(), shapes_of(workload), bases);
    const auto conflict = [&](const std::vector<PlacedTask>&, size_t i, size_t j) {
      return random_rows::conflict(workload.tasks()[i], workload.tasks()[j]);
    };
    compare(planned, {}, conflict, score);
  });
  print(score);
  CHECK(score.clean > 50 && score.violated > 50 && score.unknown < 400);
}

TEST(edges_suffice_exactly_if_they_order_every_conflict) {
  int enough = 0, missing = 0;
  seeds::for_seeds(1, uint64_t{1500}, [&](uint64_t seed) {
    const random_workload::Workload workload(seed, seed % 3 == 0 ? 60 : 12, seed % 2 == 0);
    if (workload.tasks().size() > 300) return;
    Planned planned(workload.bytes(), shapes_of(workload));
    const bool is_enough = workload.has_enough_edges();
    try {
      CHECK(graph::check_edges(planned.plan, workload.flushed(), [] { return false; }));
      CHECK(is_enough);
    } catch (const EngineError& error) {
      CHECK(error.code() == "edges-missing" && !is_enough);
      const auto first = size_t(error.number("other_task")), second = size_t(error.number("task"));
      CHECK(first < second);
      CHECK(random_workload::conflict(workload.tasks()[first], workload.tasks()[second]));
    }
    ++(is_enough ? enough : missing);
  });
  std::printf("  %d programs have enough edges, %d do not\n", enough, missing);
  CHECK(enough > 200 && missing > 200);
}

}  // namespace test_checker
