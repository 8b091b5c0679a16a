// SPDX-License-Identifier: MIT
/// \file
/// Graphs that are kept: every start mode and every run again gives program order's result, and what shapes a
/// graph is never overlooked.
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "prepared.hpp"
#include "pto/wsp/engine.hpp"
#include "random_workload.hpp"
#include "record.hpp"
#include "seeds.hpp"

namespace test_kept_graph {

using namespace pto::wsp;
using arrays::ref;
using assembler::Assembler;
using bytecode::Op;
using random_workload::Tensor;
using random_workload::Workload;

namespace {

sched::RunOptions options_of(uint32_t workers, sched::Start start, uint64_t threshold = 0) {
  sched::RunOptions options;
  options.workers = workers;
  options.start = start;
  options.threshold = threshold;
  return options;
}

sched::RunOptions after_build(uint32_t workers) { return options_of(workers, sched::Start::kAfterBuild); }

/// Runs a random workload again and again, in modes and with workers that `seed` picks.
void check_workload(uint64_t seed, size_t max_tasks) {
  const Workload workload(seed, max_tasks);
  const std::vector<uint8_t> bytes = workload.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  std::mt19937_64 random(seed);
  auto options = options_of(uint32_t(1 + random() % 4),
                            random() % 2 == 0 ? sched::Start::kAfterBuild : sched::Start::kThreshold,
                            1 + random() % 200);
  for (int round = 0; round < 4; ++round) {
    options.verifies = round % 2 == 1;
    options.jitter = round % 2 == 1 ? seed * 4 + uint64_t(round) : 0;
    std::vector<Tensor> found = workload.tensors();
    mix::stamps().reset(workload.tasks().size());
    const RunResult result = executable.run(Workload::to_arrays(found), {}, options);
    CHECK_EQ(result.tasks, workload.tasks().size());
    CHECK_EQ(result.order_violations.value_or(0), 0u);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == workload.results()[i].data);
    workload.check_order(mix::stamps());
  }
}

using Array = std::vector<int64_t>;

std::atomic<int64_t> fails_with{-1};
std::atomic<int> num_started{0};

/// y = y * 31 + x + its scalar
int32_t fold(const View* views, const Scalar* scalars, const TaskContext*) {
  num_started.fetch_add(1, std::memory_order_relaxed);
  auto* y = static_cast<int64_t*>(views[0].data);
  const auto* x = static_cast<const int64_t*>(views[1].data);
  if (scalars[0].i64 == fails_with.load()) return 5;
  for (int64_t i = 0; i < views[0].shape[0]; ++i) {
    const int64_t value = views[1].shape[0] > 0 ? x[i % views[1].shape[0]] : 1;
    y[i] = int64_t((uint64_t(y[i]) * 31 + uint64_t(value) + uint64_t(scalars[0].i64)) & INT64_MAX);
  }
  return 0;
}

constexpr int64_t kAny = INT64_MAX;
const ParamInfo kParams[] = {{Role::inout, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}},
                             {Role::in, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const KernelInfo kKernels[] = {{"fold", fold, kParams, 2, 1, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 1, 42, kKernels};

/// The arrays of `Program`: all of one length.
struct Arrays {
  explicit Arrays(size_t n) : x(n), y(n), chosen(n), count(n), index(n) {}

  void shuffle(std::mt19937_64& random) {
    for (int64_t& value : chosen) value = int64_t(random() % 3);
    for (int64_t& value : count) value = int64_t(random() % 4);
    for (int64_t& value : index) value = int64_t(random() % index.size());
  }
  std::vector<bind::ArrayRef> refs() { return {ref(x), ref(y), ref(chosen), ref(count), ref(index)}; }

  Array x, y, chosen, count, index;
};

/// What data decides, in every way that it can: conditions, bounds, offsets, scalars, variables.
///
///     for step < 2:
///       P i < n:
///         v = Index[i]
///         if Chosen[i]: for j < Count[i]: fold(Y[v : +1], X[j : +1], step + v)
///         else: fold(Y[i : +1], X[Index[i] : n - Index[i]], 7)
///     P.seq k < 3: P i < n: fold(X[i : +1], Y[v : +1], k)
class Program : public Assembler {
 public:
  explicit Program(bool flushes = false) : Assembler(kTable) {
    const uint32_t n = size_symbol();
    for (bool written : {true, true, false, false, false}) tensor(DType::i64, {-1 - int64_t(n)}, written);
    const uint16_t v = variable();
    const uint32_t step = loop(Op::RANGE_FOR, constant(2));
    const uint32_t i = loop(Op::PARALLEL_FOR, symbol(n));
    set(v, element(4, {reg(i)}));
    cond(element(2, {reg(i)}));
    const uint32_t j = loop(Op::RANGE_FOR, element(3, {reg(i)}));
    fold(1, reg(v), 0, reg(j), constant(1), add(reg(step), reg(v)));
    end();
    otherwise();
    const assembler::Expr rest = apply(Op::EXPR_SUB, {symbol(n), element(4, {reg(i)})});
    fold(1, reg(i), 0, element(4, {reg(i)}), rest, constant(7));
    end_cond();
    end();
    end();
    if (flushes) set(v, apply(Op::EXPR_MOD, {element(1, {constant(0)}), symbol(n)}));
    const uint32_t k = loop(Op::FOR_EACH, constant(3));
    const uint32_t again = loop(Op::PARALLEL_FOR, symbol(n));
    fold(0, reg(again), 1, reg(v), constant(1), reg(k));
    end();
    end();
  }

  std::unique_ptr<Executable> make() const {
    const std::vector<uint8_t> code = bytes();
    return std::make_unique<Executable>(
        code.data(), code.size(), std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  }

 private:
  void fold(uint16_t y, const assembler::Expr& y_start, uint16_t x, const assembler::Expr& x_start,
            const assembler::Expr& x_extent, const assembler::Expr& scalar) {
    task(0);
    param(scalar);
    io(Role::inout, y);
    range(y_start, constant(1));
    io(Role::in, x);
    range(x_start, x_extent);
  }
};

RunResult run(Executable& executable, Arrays& arrays, const sched::RunOptions& options) {
  return executable.run(arrays.refs(), {std::nullopt}, options);
}

/// Checks a run against one in program order by an engine that has kept nothing.
RunResult run_checked(const Program& program, Executable& executable, Arrays& arrays,
                      const sched::RunOptions& options) {
  Arrays expected = arrays;
  const RunResult first = run(*program.make(), expected, options_of(1, sched::Start::kImmediate));
  const RunResult result = run(executable, arrays, options);
  CHECK_EQ(result.tasks, first.tasks);
  CHECK(arrays.x == expected.x && arrays.y == expected.y);
  return result;
}

}  // namespace

TEST(random_workloads_keep_every_order_when_they_are_kept) {
  seeds::for_seeds(5000, std::chrono::milliseconds(1500),
                   [](uint64_t seed) { check_workload(seed, seed % 8 == 0 ? 800 : 150); });
}

TEST(a_graph_is_run_again_only_if_nothing_that_shaped_it_has_changed) {
  const Program program;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    const auto executable = program.make();
    std::mt19937_64 random(seed);
    auto arrays = std::make_unique<Arrays>(size_t(10 + random() % 50));
    arrays->shuffle(random);
    const uint32_t workers = uint32_t(1 + random() % 3);
    bool is_known = false;
    for (int round = 0; round < 24; ++round) {
      switch (random() % 8) {
        case 0: ++arrays->count[random() % arrays->count.size()], is_known = false; break;
        case 1: arrays->chosen[random() % arrays->chosen.size()] ^= 1, is_known = false; break;
        case 2: {
          int64_t& index = arrays->index[random() % arrays->index.size()];
          index = (index + 1) % int64_t(arrays->index.size()), is_known = false;
          break;
        }
        case 3: arrays = std::make_unique<Arrays>(*arrays); break;  // elsewhere, with the same elements
        case 4:
          arrays = std::make_unique<Arrays>(size_t(10 + random() % 50)), is_known = false;
          arrays->shuffle(random);
          break;
        default: break;
      }
      for (int64_t& count : arrays->count) count = std::min(count, int64_t(arrays->x.size()));
      for (int64_t& x : arrays->x) x = int64_t(random() >> 1);
      const RunResult result = run_checked(program, *executable, *arrays, after_build(workers));
      CHECK_EQ(result.is_replay, is_known);
      CHECK_EQ(result.graph_tasks, result.tasks);
      is_known = true;
    }
  }
}

TEST(workers_and_aliases_shape_a_graph) {
  const Program program;
  const auto executable = program.make();
  std::mt19937_64 random(5);
  Arrays arrays(40);
  arrays.shuffle(random);
  CHECK(!run_checked(program, *executable, arrays, after_build(2)).is_replay);
  CHECK(!run_checked(program, *executable, arrays, after_build(3)).is_replay);
  CHECK(run_checked(program, *executable, arrays, after_build(3)).is_replay);
  CHECK(run_checked(program, *executable, arrays, options_of(3, sched::Start::kThreshold, 5)).is_replay);
  for (bool is_known : {false, true}) {
    std::vector<bind::ArrayRef> refs = arrays.refs();
    refs[1] = refs[0];
    Arrays expected = arrays;
    std::vector<bind::ArrayRef> same = expected.refs();
    same[1] = same[0];
    program.make()->run(same, {std::nullopt}, options_of(1, sched::Start::kImmediate));
    CHECK_EQ(executable->run(refs, {std::nullopt}, after_build(3)).is_replay, is_known);
    CHECK(arrays.x == expected.x);
  }
  CHECK(!run_checked(program, *executable, arrays, after_build(3)).is_replay);
}

TEST(modes_take_turns) {
  const Program program;
  const auto executable = program.make();
  std::mt19937_64 random(6);
  Arrays arrays(40);
  arrays.shuffle(random);
  for (int round = 0; round < 40; ++round) {
    const auto start = sched::Start(random() % 3);
    if (random() % 3 == 0) arrays.shuffle(random);
    run_checked(program, *executable, arrays, options_of(uint32_t(1 + random() % 3), start, random() % 300));
  }
}

TEST(a_graph_with_flush_points_is_built_anew) {
  const Program program(true);
  const auto executable = program.make();
  std::mt19937_64 random(7);
  Arrays arrays(40);
  arrays.shuffle(random);
  for (int round = 0; round < 8; ++round) {
    const auto start = round % 2 == 0 ? sched::Start::kAfterBuild : sched::Start::kThreshold;
    const RunResult result =
        run_checked(program, *executable, arrays, options_of(uint32_t(1 + round % 3), start, 1000));
    CHECK(!result.is_replay);
    CHECK_EQ(result.graph_tasks, 0u);
    CHECK(result.build_ns > 0);
  }
}

TEST(nothing_runs_before_so_many_tasks_are_built) {
  // P i < n: fold(X[i : +1], Y[i : +1], i), then a wrong region that only the walk finds.
  for (auto [start, threshold, num_run] : {std::tuple(sched::Start::kAfterBuild, uint64_t{0}, 1),
                                           std::tuple(sched::Start::kThreshold, uint64_t{100000}, 1)}) {
    Assembler program(kTable);
    const uint16_t x = program.tensor(DType::i64, {5000}), y = program.tensor(DType::i64, {5000});
    const uint16_t v = program.variable();
    const auto fold = [&](const assembler::Expr& at) {
      program.task(0);
      program.param(program.constant(1));
      program.io(Role::inout, x);
      program.range(at, program.constant(1));
      program.io(Role::in, y);
      program.range(program.constant(0), program.constant(1));
    };
    fold(program.constant(0));
    program.set(v, program.element(x, {program.constant(0)}));
    const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(4000));
    fold(Assembler::reg(i));
    program.end();
    fold(program.mul(Assembler::reg(v), program.constant(10000)));
    const auto bytes = program.bytes();
    Executable executable(bytes.data(), bytes.size(), {std::shared_ptr<void>(), &kTable});
    Array xs(5000, 1), ys(5000, 1);
    num_started = 0;
    try {
      executable.run({ref(xs), ref(ys)}, {}, options_of(2, start, threshold));
      CHECK(false);
    } catch (const EngineError& error) {
      CHECK(error.code() == "region-outside");
      CHECK_EQ(error.number("late"), num_run);
    }
    CHECK_EQ(num_started.load(), num_run);
  }
}

/// fold(Y[0 : +1], X[0 : +1], 1); v = Y[0]; P i < n: fold(X[i : +1], Y[v * i : +1], 1), at last outside of Y:
/// whatever was let run by then runs whole.
TEST(an_error_of_the_walk_is_behind_all_that_has_run) {
  constexpr int64_t kSize = 4000;
  Assembler program(kTable);
  const uint16_t x = program.tensor(DType::i64, {kSize}), y = program.tensor(DType::i64, {kSize});
  const uint16_t v = program.variable();
  const auto fold = [&](uint16_t to, const assembler::Expr& at, uint16_t from, const assembler::Expr& start) {
    program.task(0);
    program.param(program.constant(1));
    program.io(Role::inout, to);
    program.range(at, program.constant(1));
    program.io(Role::in, from);
    program.range(start, program.constant(1));
  };
  fold(y, program.constant(0), x, program.constant(0));
  program.set(v, program.element(y, {program.constant(0)}));
  const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(kSize));
  fold(x, Assembler::reg(i), y, program.mul(Assembler::reg(v), Assembler::reg(i)));
  program.end();
  const std::vector<uint8_t> bytes = program.bytes();
  Executable executable(bytes.data(), bytes.size(), {std::shared_ptr<void>(), &kTable});
  for (const int64_t step : {kSize, kSize / 2, int64_t{40}, int64_t{2}}) {
    for (const uint64_t threshold : {1, 50, 1000, 5000}) {
      Array xs(kSize, step - 1), ys(kSize, 0);
      num_started = 0;
      try {
        executable.run({ref(xs), ref(ys)}, {}, options_of(2, sched::Start::kThreshold, threshold));
        CHECK(false);
      } catch (const EngineError& error) {
        CHECK(error.code() == "region-outside");
        CHECK_EQ(error.number("late"), num_started.load());
        CHECK(num_started.load() <= 1 + kSize / step);
      }
    }
  }
}

TEST(a_kernel_that_fails_in_a_run_again_is_named) {
  const Program program;
  const auto executable = program.make();
  std::mt19937_64 random(8);
  Arrays arrays(60);
  arrays.shuffle(random);
  for (uint32_t workers : {1u, 2u, 3u}) {
    run_checked(program, *executable, arrays, after_build(workers));
    fails_with = 2;  // the scalar of the last tasks, k == 2
    Arrays copy = arrays;
    int64_t expected = -1;
    try {
      run(*program.make(), copy, options_of(1, sched::Start::kImmediate));
    } catch (const EngineError& error) {
      expected = error.number("task");
    }
    copy = arrays;
    try {
      run(*executable, copy, after_build(workers));
      CHECK(false);
    } catch (const EngineError& error) {
      CHECK(error.code() == "kernel-failed");
      CHECK_EQ(error.number("task"), expected);
    }
    fails_with = -1;
    CHECK(!run_checked(program, *executable, arrays, after_build(workers)).is_replay);
    CHECK(run_checked(program, *executable, arrays, after_build(workers)).is_replay);
  }
}

TEST(a_kept_graph_can_be_cancelled) {
  const Program program;
  const auto executable = program.make();
  std::mt19937_64 random(9);
  Arrays arrays(800);
  arrays.shuffle(random);
  for (int round = 0; round < 15; ++round) {
    std::atomic<bool> is_over{false};
    std::thread canceller([&] {
      while (!is_over) {
        std::this_thread::sleep_for(std::chrono::microseconds(round * 100));
        executable->cancel();
      }
    });
    while (!is_over) {  // a run may be over before it is cancelled
      try {
        run(*executable, arrays, after_build(uint32_t(1 + round % 3)));
      } catch (const EngineError& error) {
        CHECK(error.code() == "run-cancelled");
        is_over = true;
      }
    }
    canceller.join();
    run_checked(program, *executable, arrays, after_build(uint32_t(1 + round % 3)));
  }
}

TEST(runs_of_a_graph_are_recorded) {
  const Program program;
  const auto executable = program.make();
  std::mt19937_64 random(10);
  Arrays arrays(60);
  arrays.shuffle(random);
  auto options = after_build(2);
  options.trace = true;
  for (int round = 0; round < 2; ++round) {
    const RunResult result = run_checked(program, *executable, arrays, options);
    const record::Times times(*result.record);
    CHECK(std::all_of(times.worker.begin(), times.worker.end(), [](int64_t w) { return w == 0 || w == 1; }));
    const record::Places places(*result.record);
    CHECK_EQ(places.pc.size(), result.tasks);
  }
}

namespace {

using Write = void (*)(sched::GraphWriter&);

/// A graph of three strands of one task, in iterations 0 to 2 of a loop; the later two begin with what
/// `first` and `second` write.
std::shared_ptr<sched::KeptGraph> make_graph(Write first, Write second) {
  auto graph = std::make_shared<sched::KeptGraph>();
  sched::GraphWriter writer;
  writer.begin(*graph, 16);
  int64_t number = 0;
  for (const Write before : {Write(nullptr), first, second}) {
    graph->begin_strand(writer.at(), uint64_t(number));
    if (before != nullptr) before(writer);
    writer.enter(0, &number, 1);
    writer.task(0);
    writer.end();
    ++number;
  }
  graph->finish(uint64_t(number), writer.room());
  graph->publish(uint64_t(number));
  return graph;
}

/// Runs a graph of which two tasks cannot run, and compares the report.
void check_stuck(const std::shared_ptr<sched::KeptGraph>& graph, uint32_t workers, const std::string& waits) {
  Assembler assembler(kTable);
  assembler.tensor(DType::i64, {3});
  const uint32_t i = assembler.loop(Op::PARALLEL_FOR, assembler.constant(3));
  assembler.task(0);
  assembler.param(assembler.constant(1));
  for (const Role role : {Role::inout, Role::in}) {
    assembler.io(role, 0);
    assembler.range(Assembler::reg(i), assembler.constant(1));
  }
  assembler.end();
  Array x(3);
  const prepared::Call call(assembler.bytes(), {ref(x)}, kTable, after_build(workers));
  auto crew = std::make_shared<sched::Crew>();
  crew->begin(call.plan, call.bases, after_build(workers), graph);
  try {
    crew->wait();
    throw *crew->run().failure()->error;
  } catch (const EngineError& error) {
    CHECK(error.code() == "stuck");
    CHECK_EQ(error.number("blocked"), 2);
    CHECK_EQ(error.number("slice"), 1);
    CHECK_EQ(error.number("pc"), call.plan->plan.sites[0].pc);
    for (const auto& [key, detail] : error.details()) {
      if (key == "waits") CHECK(detail.text == waits);
      if (key == "registers") CHECK_EQ(detail.list[i], 1);
    }
  }
}

}  // namespace

/// No graph that a walk builds can be stuck: here strands wait for each other, for a loop that nobody is in,
/// or for strands that never come. What can run does so before.
TEST(a_kept_graph_that_is_stuck_says_what_waits) {
  using sched::GraphWriter;
  const std::tuple<Write, Write, std::string> cases[] = {
      {[](GraphWriter& w) { w.wait(2, 1); }, [](GraphWriter& w) { w.wait(1, 1); },
       "task 1 of slice 2; task 1 of slice 1"},
      {[](GraphWriter& w) { w.wait(2, 7); }, [](GraphWriter& w) { w.wait_group(3, 2); },
       "task 7 of slice 2; an earlier iteration of a loop in order"},
      {[](GraphWriter& w) { w.wait_all(3); }, [](GraphWriter& w) { w.wait(1, 1); },
       "all slices before number 3; task 1 of slice 1"},
  };
  for (const auto& [first, second, waits] : cases) {
    for (const uint32_t workers : {1u, 3u}) {
      num_started = 0;
      const auto start = std::chrono::steady_clock::now();
      check_stuck(make_graph(first, second), workers, waits);
      CHECK(std::chrono::steady_clock::now() - start < check::kStuckLimit);
      CHECK_EQ(num_started.load(), 1);
    }
  }
}

}  // namespace test_kept_graph
