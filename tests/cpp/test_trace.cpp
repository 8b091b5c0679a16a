// SPDX-License-Identifier: MIT
/// \file
/// The record of a run: every task once, on one worker at a time, and where it stands in the program.
#include <algorithm>
#include <tuple>

#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "pto/wsp/engine.hpp"
#include "random_workload.hpp"
#include "record.hpp"
#include "seeds.hpp"

namespace test_trace {

using namespace pto::wsp;
using arrays::ref;
using assembler::Assembler;
using bytecode::Op;

namespace {

int32_t add(const View* views, const Scalar*, const TaskContext*) {
  auto* data = static_cast<int64_t*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) ++data[i];
  return 0;
}

const ParamInfo kParams[] = {{Role::inout, DType::i64, 1, 0, {0, 0, 0, 0}, {INT64_MAX, 0, 0, 0}}};
const KernelInfo kKernels[] = {{"add", add, kParams, 1, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 1, 42, kKernels};

using Array = std::vector<int64_t>;
using record::Places;
using record::Times;

/// for step < repeat: P i < n: if Chosen[i] > 0: add(X[i : +1])
Executable chosen_program(int64_t repeat, int64_t n) {
  Assembler program(kTable);
  const uint16_t x = program.tensor(DType::i64, {n});
  const uint16_t chosen = program.tensor(DType::i64, {n}, false);
  program.loop(Op::RANGE_FOR, program.constant(repeat));
  const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(n));
  program.cond(Assembler::element(chosen, {Assembler::reg(i)}));
  program.task(0);
  program.io(Role::inout, x);
  program.range(Assembler::reg(i), program.constant(1));
  program.end_cond();
  program.end();
  program.end();
  const auto bytes = program.bytes();
  return Executable(bytes.data(), bytes.size(), {std::shared_ptr<void>(), &kTable});
}

}  // namespace

TEST(every_task_is_recorded_once_and_in_order) {
  Executable executable = chosen_program(4, 300);
  for (uint32_t workers : {1u, 2u, 3u}) {
    Array x(300), chosen(300, 1);
    const RunResult result = executable.run({ref(x), ref(chosen)}, {}, {workers, true, workers - 1});
    CHECK_EQ(result.record->num_tasks(), 1200u);
    const Times times(*result.record);
    for (size_t i = 0; i < 1200; ++i) {
      CHECK(times.worker[i] >= 0 && times.worker[i] < int64_t(workers));
      CHECK(times.start[i] >= 0 && times.end[i] >= times.start[i]);
      if (i >= 300) CHECK(times.start[i] >= times.end[i - 300]);
    }
  }
}

TEST(tasks_of_one_worker_do_not_overlap) {
  Executable executable = chosen_program(4, 300);
  Array x(300), chosen(300, 1);
  const RunResult result = executable.run({ref(x), ref(chosen)}, {}, {3, true, 7});
  const Times times(*result.record);
  std::vector<size_t> order(1200);
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::make_tuple(times.worker[a], times.start[a], times.end[a]) <
           std::make_tuple(times.worker[b], times.start[b], times.end[b]);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const size_t before = order[i - 1], after = order[i];
    if (times.worker[before] == times.worker[after]) CHECK(times.end[before] <= times.start[after]);
  }
}

TEST(places_are_those_of_the_run_whatever_becomes_of_the_arrays) {
  Executable executable = chosen_program(2, 100);
  Array x(100), chosen(100);
  for (size_t i = 0; i < 100; i += 3) chosen[i] = 1;
  const RunResult result = executable.run({ref(x), ref(chosen)}, {}, {2, true, 0});
  std::fill(chosen.begin(), chosen.end(), 0);
  executable.run({ref(x), ref(chosen)}, {}, {2, false, 0});
  CHECK_EQ(result.record->num_tasks(), 68u);
  const Places places(*result.record);
  for (size_t task = 0; task < 68; ++task) {
    CHECK_EQ(places.pc[task], 3);
    CHECK_EQ(places.registers[task * 2], int64_t(task / 34));
    CHECK_EQ(places.registers[task * 2 + 1], int64_t(task % 34 * 3));
  }
}

TEST(a_worker_runs_its_tasks_while_it_is_at_work) {
  Executable executable = chosen_program(20, 300);
  for (uint32_t workers : {2u, 3u}) {
    Array x(300), chosen(300, 1);
    sched::RunOptions options(workers, true);
    options.traces_walks = true;
    const RunResult result = executable.run({ref(x), ref(chosen)}, {}, options);
    CHECK_EQ(result.record->num_workers(), size_t(workers));
    const Times times(*result.record);
    const std::vector<int64_t> stretches = result.record->list_stretches();
    for (size_t task = 0; task < times.worker.size(); ++task) {
      bool is_inside = false;
      for (size_t i = 0; i < stretches.size(); i += 3) {
        is_inside =
            is_inside || (stretches[i] == times.worker[task] && stretches[i + 1] <= times.start[task] &&
                          times.end[task] <= stretches[i + 2]);
      }
      CHECK(is_inside);
    }
    options.traces_walks = false;
    CHECK(executable.run({ref(x), ref(chosen)}, {}, options).record->list_stretches().empty());
  }
}

TEST(a_chain_of_updates_in_place_is_read_after_write) {
  Executable executable = chosen_program(5, 1);
  Array x(1), chosen(1, 1);
  const RunResult result = executable.run({ref(x), ref(chosen)}, {}, {2, true, 0});
  const std::vector<int64_t> found = result.record->find_dependences();
  CHECK_EQ(found.size(), size_t(4 * 4));
  for (size_t i = 0; i < found.size(); i += 4) {
    CHECK_EQ(found[i] + 1, found[i + 1]);
    CHECK(trace::DependenceKind(found[i + 2]) == trace::DependenceKind::kReadAfterWrite);
    CHECK_EQ(found[i + 3], 0);
  }
}

TEST(dependences_are_conflicts_and_lead_to_all_of_them) {
  using random_workload::Tensor;
  using random_workload::Workload;
  int num_checked = 0;
  seeds::for_seeds(9000, uint64_t{120}, [&](uint64_t seed) {
    const Workload workload(seed, 120);
    const std::vector<uint8_t> bytes = workload.bytes();
    Executable executable(bytes.data(), bytes.size(), mix::library().shared());
    std::vector<Tensor> tensors = workload.tensors();
    mix::stamps().reset(workload.tasks().size());
    sched::RunOptions options;
    options.workers = 1;
    options.trace = true;
    const RunResult result = executable.run(Workload::to_arrays(tensors), {}, options);
    const std::vector<int64_t> found = result.record->find_dependences();
    const auto& tasks = workload.tasks();
    std::vector<std::vector<bool>> is_behind(tasks.size(), std::vector<bool>(tasks.size(), false));
    std::vector<size_t> counts(tasks.size(), 0);
    for (size_t i = 0; i < found.size(); i += 4) {
      const auto before = size_t(found[i]), after = size_t(found[i + 1]);
      CHECK(before < after);
      const bool is_named = trace::DependenceKind(found[i + 2]) == trace::DependenceKind::kAfter;
      const auto& afters = tasks[after].afters;
      CHECK(is_named ? std::count(afters.begin(), afters.end(), before) > 0
                     : random_workload::conflict(tasks[before], tasks[after]));
      ++counts[after];
      is_behind[after][before] = true;
      for (size_t other = 0; other < before; ++other)
        if (is_behind[before][other]) is_behind[after][other] = true;
    }
    if (std::count(counts.begin(), counts.end(), trace::LatestDependences::kMaxDependences) > 0) return;
    ++num_checked;
    for (size_t after = 0; after < tasks.size(); ++after) {
      for (size_t before = 0; before < after; ++before)
        CHECK(is_behind[after][before] || !random_workload::conflict(tasks[before], tasks[after]));
    }
  });
  CHECK(num_checked > 30);
}

TEST(a_run_that_is_not_traced_has_no_record) {
  Executable executable = chosen_program(1, 10);
  Array x(10), chosen(10, 1);
  executable.run({ref(x), ref(chosen)}, {}, {1, true, 0});
  CHECK(executable.run({ref(x), ref(chosen)}, {}, {1, false, 0}).record == nullptr);
}

}  // namespace test_trace
