// SPDX-License-Identifier: MIT
/// \file
/// Simulated time: a kept graph asks the same policies, and the caller says when each task is complete.
#include <cstdlib>
#include <numeric>
#include <thread>

#include "arrays.hpp"
#include "assembler.hpp"
#include "pto/wsp/engine.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"
#include "simulated.hpp"

namespace test_simulated {

using namespace pto::wsp;
using arrays::ref;
using assembler::Assembler;
using bytecode::Op;
using random_workload::Tensor;
using random_workload::Workload;
using simulated::Times;

namespace {

int32_t count(const View* views, const Scalar*, const TaskContext*) {
  ++*static_cast<uint64_t*>(views[0].data);
  return 0;
}
const ParamInfo kParams[] = {{Role::inout, DType::u64, 1, 0, {}, {1}}};
const KernelInfo kKernels[] = {{"count", count, kParams, 1, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 1, 42, kKernels};

/// P(i < n): count(X[i % elements]), with the order key -i, the pool i % 2 and the stream i % 3.
struct Tasks {
  explicit Tasks(int64_t n, int64_t elements) : x(size_t(elements)) {
    Assembler program(kTable);
    program.tensor(DType::u64, {elements});
    const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(n));
    const auto modulo = [&](int64_t m) {
      return Assembler::apply(Op::EXPR_MOD, {Assembler::reg(i), program.constant(m)});
    };
    program.task(0);
    program.io(Role::inout, 0);
    program.range(modulo(elements), program.constant(1));
    program.order(Assembler::apply(Op::EXPR_NEG, {Assembler::reg(i)}));
    program.stream(modulo(3));
    program.turn(modulo(3));
    program.admit(Assembler::apply(Op::EXPR_FLOORDIV, {Assembler::reg(i), program.constant(4)}));
    program.pool(modulo(2));
    program.end();
    bytes = program.bytes();
  }

  Times run(sched::RunOptions options, int64_t latency = 0) {
    std::fill(x.begin(), x.end(), 0);
    const prepared::Call call(bytes, {ref(x)}, kTable, options);
    simulated::Simulation simulation(call, options, simulated::build(call, options));
    const Times times = simulation.run([](uint64_t) { return 10; }, latency);
    CHECK_EQ(std::accumulate(x.begin(), x.end(), uint64_t{0}), uint64_t(times.starts.size()));
    CHECK(simulation.engine().max_recorded() <= options.window);
    return times;
  }

  std::vector<uint64_t> x;
  std::vector<uint8_t> bytes;
};

sched::RunOptions after_build(uint32_t workers) {
  sched::RunOptions options(workers);
  options.start = sched::Start::kAfterBuild;
  return options;
}

/// A clock that stands still but where a run waits.
class SteppedClock final : public sched::Clock {
 public:
  int64_t now_ns() override { return now_.load(); }
  void wait_until(int64_t time_ns, const std::atomic<bool>&) override {
    int64_t now = now_.load();
    while (now < time_ns && !now_.compare_exchange_weak(now, time_ns)) {
    }
  }

 private:
  std::atomic<int64_t> now_{0};
};

/// The policies that a graph may be run with.
sched::RunOptions any_policies(std::mt19937_64& random) {
  sched::RunOptions options = after_build(uint32_t(1 + random() % 4));
  options.dispatchers = uint32_t(random() % 4);
  options.ownership = sched::Ownership(random() % 5);
  if (options.ownership == sched::Ownership::kPartition) options.bounds = {7, 30};
  options.window = random() % 2 == 0 ? 1 + random() % 20 : sched::RunOptions::kWindow;
  options.ready = sched::Ready(random() % 3);
  options.streams = sched::Streams(random() % 3);
  options.num_streams = options.streams == sched::Streams::kInTurn ? 2 : 0;
  if (options.ready != sched::Ready::kFifo) options.turns = random() % 3;
  options.in_flight = random() % 3;
  options.batch = random() % 3 == 0 ? 1 + random() % 20 : 0;
  options.num_pools = uint32_t(random() % 3);
  return options;
}

}  // namespace

TEST(tasks_take_their_time_on_as_many_workers_as_there_are) {
  Tasks apart(12, 12), chained(5, 1);
  CHECK_EQ(apart.run(after_build(1)).makespan, 120);
  CHECK_EQ(apart.run(after_build(3)).makespan, 40);
  CHECK_EQ(apart.run(after_build(5)).makespan, 30);
  CHECK_EQ(chained.run(after_build(3)).makespan, 50);
}

/// Others learn of a task's end later; its own worker goes on at once.
TEST(completion_takes_its_time_between_workers) {
  Tasks pairs(6, 3);  // task i + 3 follows task i
  const Times late = pairs.run(after_build(3), 1000);
  CHECK(late.makespan >= 1020);
  CHECK_EQ(pairs.run(after_build(3)).makespan, 20);
}

TEST(priorities_decide_what_starts_first_in_a_graph) {
  Tasks apart(12, 12);
  sched::RunOptions options = after_build(1);
  options.ready = sched::Ready::kOrdered;
  std::vector<uint64_t> expected(12);
  std::iota(expected.rbegin(), expected.rend(), 0);
  CHECK(apart.run(options).tasks() == expected);
  // Of as many as the window has room for: one starts, the next one is seen.
  options.window = 8;
  const std::vector<uint64_t> found = apart.run(options).tasks();
  CHECK(found.size() == 12);
  CHECK_EQ(found.front(), 7u);
  options.ready = sched::Ready::kFifo;
  std::reverse(expected.begin(), expected.end());
  CHECK(apart.run(options).tasks() == expected);
}

TEST(pools_decide_which_worker_runs_a_task_of_a_graph) {
  Tasks apart(20, 20);
  for (const uint64_t window : {1, 4, 8192}) {
    sched::RunOptions options = after_build(2);
    options.num_pools = 2;
    options.window = window;
    const Times times = apart.run(options);
    CHECK_EQ(times.starts.size(), size_t{20});
    for (const auto& start : times.starts) CHECK_EQ(start.worker, uint32_t(start.task % 2));
    if (window > 1) CHECK_EQ(times.makespan, 100);
  }
}

TEST(batches_and_streams_of_a_graph_start_in_turn) {
  Tasks apart(12, 12);
  sched::RunOptions options = after_build(4);
  options.batch = 4;
  Times times = apart.run(options);
  CHECK_EQ(times.makespan, 30);
  for (const auto& start : times.starts) CHECK_EQ(start.time, int64_t(start.task / 4) * 10);
  options = after_build(4);
  options.in_flight = 2;  // of four tasks each
  times = apart.run(options);
  CHECK_EQ(times.makespan, 30);
  options = after_build(12);
  options.in_flight = 2;
  times = apart.run(options);
  CHECK_EQ(times.makespan, 20);
  for (const auto& start : times.starts) CHECK_EQ(start.time, start.task < 8 ? 0 : 10);
  options = after_build(1);
  options.turns = 2;  // values 0 and 1 take turns, then value 2 follows
  CHECK(apart.run(options).tasks() == (std::vector<uint64_t>{0, 1, 3, 4, 6, 7, 9, 10, 2, 5, 8, 11}));
}

TEST(a_graph_whose_window_must_not_stall_ends_at_the_first_task_without_room) {
  Tasks chained(40, 1);
  std::vector<uint64_t>& x = chained.x;
  Executable executable(chained.bytes.data(), chained.bytes.size(),
                        std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  sched::RunOptions options = after_build(2);
  options.ready = sched::Ready::kFifo;
  options.window_mode = sched::WindowMode::kAbort;
  options.window = 8;
  try {
    executable.run({ref(x)}, {}, options);
    CHECK(false);
  } catch (const EngineError& error) {
    CHECK(error.code() == "window-full");
    CHECK_EQ(x[0], uint64_t(error.number("late")));
  }
  options.window = 40;
  x[0] = 0;
  executable.run({ref(x)}, {}, options);
  CHECK_EQ(x[0], uint64_t{40});
}

/// A graph that was built for other policies has other waits, strands and owners.
TEST(policies_shape_a_graph) {
  Tasks apart(30, 30);
  Executable executable(apart.bytes.data(), apart.bytes.size(),
                        std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  const auto is_replay = [&](const sched::RunOptions& options) {
    return executable.run({ref(apart.x)}, {}, options).is_replay;
  };
  sched::RunOptions options = after_build(2);
  options.streams = sched::Streams::kInTurn;
  options.num_streams = 2;
  CHECK(!is_replay(options));
  CHECK(is_replay(options));
  options.num_streams = 3;
  CHECK(!is_replay(options));
  options.batch = 5;
  CHECK(!is_replay(options));
  options.batch = 6;
  CHECK(!is_replay(options));
  options.window = 100;
  CHECK(!is_replay(options));
  options.starts_per_second = 1000000;
  CHECK(is_replay(options));
}

TEST(dispatchers_take_the_strands_of_a_graph_in_turn) {
  Tasks apart(30, 30);
  Executable executable(apart.bytes.data(), apart.bytes.size(),
                        std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  sched::RunOptions options = after_build(2);
  options.dispatchers = 3;
  options.ownership = sched::Ownership::kRoundRobin;
  const RunResult result = executable.run({ref(apart.x)}, {}, options);
  CHECK_EQ(result.dispatchers, 3u);
  CHECK_EQ(result.walks.size(), size_t{3});
  for (const sched::WalkStats& walk : result.walks) {
    CHECK_EQ(walk.made, uint64_t{10});
    CHECK(walk.recorded <= walk.made);
  }
}

TEST(a_clock_of_the_caller_paces_a_run) {
  Tasks apart(50, 50);
  SteppedClock clock;
  sched::RunOptions options = after_build(2);
  options.starts_per_second = 1;
  options.clock = &clock;
  Executable executable(apart.bytes.data(), apart.bytes.size(),
                        std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  for (const sched::Start start : {sched::Start::kImmediate, sched::Start::kAfterBuild}) {
    options.start = start;
    const int64_t before = clock.now_ns();
    executable.run({ref(apart.x)}, {}, options);
    CHECK_EQ(clock.now_ns() - before, int64_t{49} * 1000000000);
  }
}

TEST(random_workloads_keep_their_meaning_in_simulated_time) {
  seeds::for_seeds(2000, std::chrono::seconds(3), [](uint64_t seed) {
    std::mt19937_64 random(seed);
    const Workload workload(seed, 150);
    if (!workload.flushed().empty() || workload.tasks().empty()) return;
    std::vector<Tensor> found = workload.tensors();
    const sched::RunOptions options = any_policies(random);
    const prepared::Call call(workload.bytes(), Workload::to_arrays(found), mix::library().table(), options);
    mix::stamps().reset(workload.tasks().size());
    simulated::Simulation simulation(call, options, simulated::build(call, options));
    const int64_t latency = int64_t(random() % 3) * 50;
    const Times times = simulation.run([](uint64_t task) { return 1 + int64_t(task * 7 % 20); }, latency);
    CHECK_EQ(times.starts.size(), workload.tasks().size());
    CHECK(simulation.engine().max_recorded() <= options.window);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == workload.results()[i].data);
    workload.check_order(mix::stamps());
  });
}

}  // namespace test_simulated
