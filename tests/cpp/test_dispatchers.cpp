// SPDX-License-Identifier: MIT
/// \file
/// Several dispatchers: any number of them, any window and any ownership give program order's result, and
/// errors and cancelling come out as with one.
#include <chrono>
#include <thread>

#include "arrays.hpp"
#include "prepared.hpp"
#include "pto/wsp/engine.hpp"
#include "pto/wsp/sched/numbering_log.hpp"
#include "random_loops.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_dispatchers {

using namespace pto::wsp;
using arrays::ref;
using random_workload::Tensor;
using random_workload::Workload;

namespace {

std::atomic<bool> fails[40 * 30];

/// Adds one to its element; fails where that is asked for.
int32_t count_up(const View* views, const Scalar*, const TaskContext* context) {
  if (context->task < std::size(fails) && fails[context->task]) return 3;
  ++*static_cast<uint64_t*>(views[0].data);
  return 0;
}
const ParamInfo kCountParams[] = {{Role::inout, DType::u64, 1, 0, {}, {1}}};
const KernelInfo kCount[] = {{"count", count_up, kCountParams, 1, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 1, 42, kCount};

/// P(i < n): `repeat` times count_up(X[i]).
std::vector<uint8_t> counting_bytes(int64_t n, int64_t repeat) {
  assembler::Assembler program(kTable);
  program.tensor(DType::u64, {n});
  const uint32_t i = program.loop(bytecode::Op::PARALLEL_FOR, program.constant(n));
  program.loop(bytecode::Op::RANGE_FOR, program.constant(repeat));
  program.task(0);
  program.io(Role::inout, 0);
  program.range(program.reg(i), program.constant(1));
  program.end();
  program.end();
  return program.bytes();
}

Executable counting_program(int64_t n, int64_t repeat) {
  const std::vector<uint8_t> bytes = counting_bytes(n, repeat);
  return Executable(bytes.data(), bytes.size(),
                    std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
}

/// A way of running that `seed` picks.
sched::RunOptions any_options(uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t windows[] = {1, 2, 3, 7, 64, 1024};
  sched::RunOptions options;
  options.workers = uint32_t(1 + random() % 4);
  options.dispatchers = uint32_t(1 + random() % 8);
  options.window = windows[random() % 6];
  options.ownership = random() % 2 == 0 ? sched::Ownership::kClaim : sched::Ownership::kRoundRobin;
  options.jitter = random() % 3 == 0 ? 0 : seed;
  options.begins_alone = random() % 3 == 0;
  options.tracks = true;
  return options;
}

/// Every way of running gives what one worker gives.
void check_phases(uint64_t seed, uint32_t rounds) {
  const random_loops::Phases phases(seed);
  const std::vector<uint8_t> bytes = phases.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  mix::stamps().reset(0);
  std::vector<Tensor> expected = phases.tensors();
  sched::RunOptions options;
  options.workers = 1;
  const uint64_t num_tasks = executable.run(Workload::to_arrays(expected), {}, options).tasks;
  options.checks_iterations = true;
  std::vector<Tensor> checked = phases.tensors();
  const bool is_true =
      check::code_of([&] { executable.run(Workload::to_arrays(checked), {}, options); }) == "none";
  for (uint32_t round = 0; round < rounds; ++round) {
    options = any_options(seed * 64 + round);
    if (is_true && round % 2 == 0) options.deps = sched::Deps::kTrust;
    std::vector<Tensor> found = phases.tensors();
    CHECK_EQ(executable.run(Workload::to_arrays(found), {}, options).tasks, num_tasks);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == expected[i].data);
  }
}

void check_workload(uint64_t seed, size_t max_tasks, uint32_t rounds) {
  const Workload workload(seed, max_tasks);
  const std::vector<uint8_t> bytes = workload.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  for (uint32_t round = 0; round < rounds; ++round) {
    const sched::RunOptions options = any_options(seed * 64 + round);
    std::vector<Tensor> found = workload.tensors();
    mix::stamps().reset(workload.tasks().size());
    const RunResult result = executable.run(Workload::to_arrays(found), {}, options);
    CHECK_EQ(result.tasks, workload.tasks().size());
    CHECK(result.max_recorded <= options.window);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == workload.results()[i].data);
    workload.check_order(mix::stamps());
  }
}

}  // namespace

TEST(any_dispatchers_windows_and_owners_keep_every_order) {
  seeds::for_seeds(1, std::chrono::seconds(4),
                   [](uint64_t seed) { check_workload(seed, seed % 8 == 0 ? 800 : 150, 6); });
}

TEST(units_that_are_passed_over_keep_every_order) {
  seeds::for_seeds(1, std::chrono::seconds(4), [](uint64_t seed) { check_phases(seed, 12); });
}

TEST(of_several_kernels_that_fail_the_first_in_program_order_is_the_error) {
  Executable executable = counting_program(40, 30);
  const uint64_t num_tasks = 40 * 30;
  std::vector<uint64_t> data(40);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const std::vector<uint64_t> bad = {seed * 37 % num_tasks, seed * 91 % num_tasks, seed * 53 % num_tasks};
    for (const uint64_t task : bad) fails[task] = true;
    try {
      executable.run({ref(data)}, {}, any_options(seed));
      CHECK(false);
    } catch (const EngineError& error) {
      CHECK(error.code() == "kernel-failed");
      CHECK_EQ(uint64_t(error.number("task")), *std::min_element(bad.begin(), bad.end()));
    }
    for (const uint64_t task : bad) fails[task] = false;
    std::fill(data.begin(), data.end(), 0);
    CHECK_EQ(executable.run({ref(data)}, {}, any_options(seed)).tasks, num_tasks);
    for (const uint64_t count : data) CHECK_EQ(count, 30u);
  }
}

TEST(a_run_of_several_dispatchers_can_be_cancelled_at_any_time) {
  Executable executable = counting_program(16, int64_t{1} << 40);
  std::vector<uint64_t> data(16);
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::atomic<bool> is_over{false};
    std::thread canceller([&] {
      for (uint64_t i = 0; !is_over; ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(seed * 137 % 3000));
        executable.cancel();
      }
    });
    CHECK_CODE("run-cancelled", executable.run({ref(data)}, {}, any_options(seed)));
    is_over = true;
    canceller.join();
  }
}

TEST(progress_is_told_and_can_stop_a_run) {
  struct Listener {
    uint64_t last = 0, calls = 0, most = 0;
    static bool hear(void* listener, uint64_t num_complete) {
      auto& self = *static_cast<Listener*>(listener);
      CHECK(num_complete >= self.last);
      self.last = num_complete;
      return ++self.calls >= self.most;
    }
  };
  std::vector<uint64_t> data(16);
  for (const uint32_t workers : {1u, 2u, 3u}) {
    Listener listener;
    listener.most = 3;
    sched::RunOptions options;
    options.workers = workers;
    options.listener = &listener;
    options.on_progress = &Listener::hear;
    CHECK_CODE("run-cancelled", counting_program(16, int64_t{1} << 40).run({ref(data)}, {}, options));
    CHECK(listener.last > 0);
    listener = {};
    listener.most = UINT64_MAX;
    CHECK_EQ(counting_program(16, 10).run({ref(data)}, {}, options).tasks, 160u);
    CHECK_EQ(listener.last, 160u);
  }
}

/// Nothing can make a run stuck but a state that no run comes to: here a slice waits for a moment that never
/// comes, and one that nobody walks through is taken away from all dispatchers.
/// A slice that nobody can begin, because as many as may wait do so already, is no way on either.
TEST(a_run_that_is_stuck_says_what_waits) {
  const std::vector<uint8_t> bytes = counting_bytes(16, 40);  // so many that iterations are units
  std::vector<uint64_t> data(16);
  for (const uint64_t num_slices : {1, 0, 1200}) {
    sched::RunOptions options;
    options.workers = 2;
    const prepared::Call call(bytes, {ref(data)}, kTable, options);
    auto crew = std::make_shared<sched::Crew>();
    crew->begin(call.plan, call.bases, options, nullptr);
    CHECK(crew->run().progress().claim(0));
    for (uint64_t number = 0; number < num_slices; ++number) {
      sched::Slice* slice = crew->run().record_slice(1);
      slice->number = number;
      slice->num_tasks = 1;
      slice->words = {uint64_t{1} << 32, sched::task_name(1000, 5), 0, 0};
      crew->run().publish(*slice, 0);
    }
    const auto start = std::chrono::steady_clock::now();
    try {
      crew->wait();
      throw *crew->run().failure()->error;
    } catch (const EngineError& error) {
      CHECK(error.code() == "stuck");
      CHECK_EQ(error.number("blocked") > 0, num_slices > 0);
      CHECK_EQ(error.number("slice"), 0);
      CHECK(error.has("waits") == (num_slices > 0));
    }
    CHECK(std::chrono::steady_clock::now() - start < check::kStuckLimit);
  }
}

/// In this build every run compares its walks; a log that cannot tell them apart would hide a difference.
TEST(walks_that_number_differently_are_told_apart) {
  sched::NumberingLog log;
  for (int walk = 0; walk < 2; ++walk) {
    CHECK(log.agrees(1, 3, 40));
    CHECK(log.agrees(2, 4, 55));
  }
  CHECK(!log.agrees(2, 5, 55));
  CHECK(!log.agrees(2, 4, 56));
  CHECK(!log.agrees(4, 5, 60));
  CHECK(!log.agrees(0, 0, 0));
  log.clear();
  CHECK(log.agrees(1, 2, 40));
}

}  // namespace test_dispatchers
