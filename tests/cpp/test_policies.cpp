// SPDX-License-Identifier: MIT
/// \file
/// Policies of a schedule: whoever owns tasks and whatever starts first, results are program order's, and
/// every conflicting pair runs in order.
#include <atomic>
#include <chrono>
#include <thread>

#include "pto/wsp/engine.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_policies {

using namespace pto::wsp;
using random_workload::Tensor;
using random_workload::Workload;
using sched::Ownership;
using sched::Ready;

namespace {

/// What the tasks of a workload may be ordered by.
std::vector<sched::Deps> right_deps(const Workload& workload, Executable& executable) {
  std::vector<sched::Deps> deps = {sched::Deps::kExact, sched::Deps::kBytes};
  if (workload.has_enough_edges()) deps.push_back(sched::Deps::kNone);
  std::vector<Tensor> tensors = workload.tensors();
  sched::RunOptions options;
  options.workers = 1;
  options.checks_iterations = true;
  const std::string found =
      check::code_of([&] { executable.run(Workload::to_arrays(tensors), {}, options); });
  if (found == "none") deps.push_back(sched::Deps::kTrust);
  return deps;
}

sched::RunOptions any_policies(uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t windows[] = {1, 2, 3, 4, 5, 6, 7, 64, 8192};
  sched::RunOptions options;
  options.workers = uint32_t(1 + random() % 4);
  options.dispatchers = uint32_t(random() % 9);
  options.window = windows[random() % 9];
  options.ownership = Ownership(random() % 5);
  if (options.ownership == Ownership::kPartition) options.bounds = {5, 9, 60};
  options.streams = sched::Streams(random() % 3);
  options.num_streams =
      uint32_t(options.streams == sched::Streams::kInTurn ? 1 + random() % 4 : random() % 3);
  options.ready = Ready(random() % 3);
  if (random() % 2 == 0)
    options.start = random() % 2 == 0 ? sched::Start::kAfterBuild : sched::Start::kThreshold;
  options.threshold = random() % 100;
  if (random() % 3 == 0) options.batch = 1 + random() % 20;
  if (random() % 3 == 0 && options.ready != Ready::kFifo) options.turns = 1 + random() % 3;
  if (random() % 3 == 0) options.in_flight = 1 + random() % 3;
  if (random() % 8 == 0) options.starts_per_second = 200000;
  options.num_pools = random() % 2 == 0 ? 0 : uint32_t(1 + random() % 4);
  if (options.num_pools == 3 && random() % 2 == 0) options.pool_bounds = {1, 2};
  if (options.num_pools == 2) options.pool_shares = {1 + random() % 3, 2};
  options.pools_are_soft = options.num_pools != 0 && random() % 2 == 0;
  options.balances = options.ready != Ready::kFifo && random() % 3 == 0;
  options.jitter = random() % 3 == 0 ? 0 : seed;
  options.tracks = random() % 2 == 0;
  options.trace = random() % 4 == 0;
  options.verifies = random() % 4 == 0;
  return options;
}

void check_workload(uint64_t seed, size_t max_tasks, uint32_t rounds) {
  const Workload workload(seed, max_tasks, seed % 4 == 0);
  const std::vector<uint8_t> bytes = workload.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  mix::stamps().reset(0);
  const std::vector<sched::Deps> deps = right_deps(workload, executable);
  for (uint32_t round = 0; round < rounds; ++round) {
    sched::RunOptions options = any_policies(seed * 64 + round);
    options.deps = deps[(seed + round) % deps.size()];
    options.checks_edges = options.deps == sched::Deps::kNone;
    std::vector<Tensor> found = workload.tensors();
    mix::stamps().reset(workload.tasks().size());
    const RunResult result = executable.run(Workload::to_arrays(found), {}, options);
    CHECK_EQ(result.tasks, workload.tasks().size());
    CHECK(result.max_recorded <= options.window);
    CHECK_EQ(result.order_violations.value_or(0), 0u);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == workload.results()[i].data);
    workload.check_order(mix::stamps());
  }
}

std::atomic<int> num_met;

/// Waits a while for the other one of the tasks 1 and 2; fails if that does not come.
int32_t meet(const View*, const Scalar*, const TaskContext* context) {
  if (context->task == 0) return 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
  for (++num_met; num_met < 2; std::this_thread::yield()) {
    if (std::chrono::steady_clock::now() > end) return 1;
  }
  return 0;
}
const ParamInfo kMeetParams[] = {{Role::inout, DType::u64, 1, 0, {}, {1}}};
const KernelInfo kMeet[] = {{"meet", meet, kMeetParams, 1, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 1, 42, kMeet};

/// Whether tasks in iterations of one P loop, which touch the same element, run at once.
bool run_at_once(sched::Deps deps, sched::Start start) {
  assembler::Assembler program(kTable);
  program.tensor(DType::u64, {1});
  program.loop(bytecode::Op::PARALLEL_FOR, program.constant(3));
  program.task(0);
  program.io(Role::inout, 0);
  program.range(program.constant(0), program.constant(1));
  program.end();
  const std::vector<uint8_t> bytes = program.bytes();
  Executable executable(bytes.data(), bytes.size(),
                        std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  std::vector<Tensor> tensors = {{{1}, {1}, {0}}};
  sched::RunOptions options;
  options.workers = 2;
  options.deps = deps;
  options.start = start;
  num_met = 0;
  return check::code_of([&] { executable.run(Workload::to_arrays(tensors), {}, options); }) == "none";
}

int32_t count(const View* views, const Scalar*, const TaskContext*) {
  ++*static_cast<uint64_t*>(views[0].data);
  return 0;
}
const ParamInfo kCountParams[] = {{Role::inout, DType::u64, 1, 0, {}, {1}}};
const KernelInfo kCount[] = {{"count", count, kCountParams, 1, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kCountTable{kAbiVersion, 1, 43, kCount};

}  // namespace

TEST(shares_of_workers_are_near_to_their_proportions) {
  const auto divided = [](std::vector<uint64_t> shares, uint32_t workers) {
    return sched::detail::divide(shares, workers);
  };
  using Bounds = std::vector<uint64_t>;
  CHECK(divided({8, 16}, 24) == Bounds{8});
  CHECK(divided({8, 16}, 3) == Bounds{1});
  CHECK(divided({8, 16}, 2) == Bounds{1});
  CHECK((divided({1, 100, 1}, 4) == Bounds{1, 3}));
  CHECK((divided({1, 1, 1}, 2) == Bounds{1, 2}));
  CHECK(divided({1, 2}, 1) == Bounds{0} || divided({1, 2}, 1) == Bounds{1});
}

TEST(owners_priorities_and_windows_keep_every_order) {
  seeds::for_seeds(5000, std::chrono::seconds(4),
                   [](uint64_t seed) { check_workload(seed, seed % 8 == 0 ? 800 : 150, 6); });
}

/// What a run would leave out of account is refused, before anything runs.
TEST(options_that_contradict_each_other_are_named) {
  using sched::RunOptions;
  const std::pair<const char*, void (*)(RunOptions&)> anywhere[] = {
      {"workers", [](RunOptions& o) { o.workers = 1025; }},
      {"dispatchers", [](RunOptions& o) { o.dispatchers = 65; }},
      {"window", [](RunOptions& o) { o.window = 0; }},
      {"bounds", [](RunOptions& o) { o.bounds = {3, 2}; }},
      {"num_streams", [](RunOptions& o) { o.streams = sched::Streams::kInTurn; }},
      {"turns", [](RunOptions& o) { o.turns = 1, o.ready = Ready::kFifo; }},
      {"num_pools", [](RunOptions& o) { o.num_pools = 32; }},
      {"pool_bounds", [](RunOptions& o) { o.num_pools = 3, o.pool_bounds = {1}; }},
      {"pool_bounds", [](RunOptions& o) { o.num_pools = 3, o.pool_bounds = {2, 1}; }},
      {"pool_shares", [](RunOptions& o) { o.num_pools = 3, o.pool_shares = {2, 1}; }},
      {"pool_shares", [](RunOptions& o) { o.num_pools = 2, o.pool_shares = {2, 1}, o.pool_bounds = {1}; }},
      {"pool_shares", [](RunOptions& o) { o.num_pools = 2, o.pool_shares = {2, 0}; }},
      {"pool_size", [](RunOptions& o) { o.num_pools = 2, o.pool_size = 1; }},
      {"pools_are_soft", [](RunOptions& o) { o.pools_are_soft = true; }},
      {"balances", [](RunOptions& o) { o.balances = true, o.ready = Ready::kFifo; }},
  };
  for (const auto start : {sched::Start::kImmediate, sched::Start::kThreshold, sched::Start::kAfterBuild}) {
    const auto refused = [&](void (*change)(RunOptions&)) {
      RunOptions options;
      options.start = start;
      change(options);
      try {
        sched::check_options(options);
      } catch (const EngineError& error) {
        CHECK(error.code() == "bad-option");
        return error.details().at(0).second.text;
      }
      return std::string();
    };
    for (const auto& [name, change] : anywhere) CHECK(refused(change) == name);
  }
}

TEST(what_is_taken_to_be_independent_runs_at_once) {
  for (const sched::Start start : {sched::Start::kImmediate, sched::Start::kAfterBuild}) {
    CHECK(!run_at_once(sched::Deps::kExact, start));
    CHECK(run_at_once(sched::Deps::kTrust, start));
    CHECK(run_at_once(sched::Deps::kNone, start));
  }
}

/// The window is full of what only others may run before the calling thread has done anything else. After a
/// short run nobody is called beforehand.
TEST(workers_of_other_pools_are_called_before_a_walk_stops) {
  constexpr int64_t kTasks = 20;
  assembler::Assembler program(kCountTable);
  program.tensor(DType::u64, {1});
  program.loop(bytecode::Op::RANGE_FOR, program.constant(kTasks));
  program.task(0);
  program.io(Role::inout, 0);
  program.range(program.constant(0), program.constant(1));
  program.pool(program.constant(1));
  program.end();
  const std::vector<uint8_t> bytes = program.bytes();
  Executable executable(bytes.data(), bytes.size(),
                        std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kCountTable));
  std::vector<Tensor> tensors = {{{1}, {1}, {0}}};
  sched::RunOptions options;
  options.workers = 1;
  executable.run(Workload::to_arrays(tensors), {}, options);
  options.workers = 2;
  options.dispatchers = 1;
  options.num_pools = 2;
  options.window = 1;
  const RunResult result = executable.run(Workload::to_arrays(tensors), {}, options);
  CHECK_EQ(tensors[0].data[0], uint64_t(2 * kTasks));
  CHECK_EQ(result.worker_tasks[1], uint64_t(kTasks));
}

}  // namespace test_policies
