// SPDX-License-Identifier: MIT
/// \file
/// Tasks that take less than what it costs to order them are left to the calling thread.
#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "pto/wsp/engine.hpp"

namespace test_sharing {

using namespace pto::wsp;
using assembler::Assembler;
using bytecode::Op;

namespace {

constexpr int64_t kNumTasks = 4000;

int32_t count(const View* views, const Scalar*, const TaskContext*) {
  ++*static_cast<int32_t*>(views[0].data);
  return 0;
}

const ParamInfo kParams[] = {{Role::inout, DType::i32, 1, 0, {1, 0, 0, 0}, {1, 0, 0, 0}}};
const KernelInfo kKernels[] = {{"count", count, kParams, 1, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 1, 42, kKernels};

/// P i < n / inner: for j < inner: count(X[i : +1]), without the loop inside if `inner` is 1.
std::vector<uint8_t> make_program(int64_t inner) {
  Assembler program(kTable);
  program.tensor(DType::i32, {kNumTasks}, true);
  const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(kNumTasks / inner));
  if (inner > 1) program.loop(Op::RANGE_FOR, program.constant(inner));
  program.task(0);
  program.io(Role::inout, 0);
  program.range(Assembler::reg(i), program.constant(1));
  if (inner > 1) program.end();
  program.end();
  return program.bytes();
}

/// A plan of `make_program` whose tasks were measured to take so long.
class Measured {
 public:
  Measured(int64_t inner, std::optional<int64_t> ns)
      : bytes_(make_program(inner)), program_(bytecode::load_program(bytes_.data(), bytes_.size(), kTable)) {
    bytecode::TensorLayout layout{};
    layout.shape[0] = kNumTasks;
    layout.stride[0] = 1;
    prepared_.plan = bytecode::make_plan({&program_, {}}, {layout}, kTable);
    prepared_.costs = std::make_shared<sched::SiteCosts>(1);
    prepared_.marks = sched::mark_units(prepared_.plan, 2);
    prepared_.cost_guesses = sched::guess_costs(prepared_.plan, 2);
    prepared_.units = sched::summarize_units(prepared_.plan, prepared_.marks, false);
    if (ns) prepared_.costs->record(0, *ns);
  }

  sched::Division divide(sched::Sharing& sharing, uint32_t workers = 2) const {
    return sharing.divide(prepared_, workers);
  }
  bool is_worth_sharing(sched::Sharing& sharing, uint32_t workers = 2) const {
    return divide(sharing, workers) == sched::Division::kShared;
  }

 private:
  std::vector<uint8_t> bytes_;
  bytecode::Program program_;
  sched::Prepared prepared_;
};

bool is_worth_sharing(int64_t inner, std::optional<int64_t> ns) {
  sched::Sharing sharing;
  return Measured(inner, ns).is_worth_sharing(sharing);
}

/// How many of so many runs are shared, if that takes `shared_ns` per task, and else `alone_ns`.
int count_shared(const Measured& measured, sched::Sharing& sharing, int runs, double shared_ns,
                 double alone_ns) {
  int num_shared = 0;
  for (int run = 0; run < runs; ++run) {
    const bool is_shared = measured.is_worth_sharing(sharing);
    sharing.record(sharing.size_of_last(), 2, is_shared, is_shared ? shared_ns : alone_ns);
    num_shared += is_shared;
  }
  return num_shared;
}

}  // namespace

TEST(tasks_are_shared_if_they_take_longer_than_their_order) {
  sched::Sharing sharing;
  CHECK(Measured(1, {}).divide(sharing) == sched::Division::kLater);  // nothing is known
  CHECK(!is_worth_sharing(1, 5));
  CHECK(is_worth_sharing(1, 2000));
  CHECK(is_worth_sharing(400, 5));  // what is passed over costs little
}

/// Tasks are timed one at a time, which takes longer than they do in a row: where estimates are close, only
/// runs tell.
TEST(where_estimates_are_close_runs_tell_what_is_faster) {
  for (const auto& [inner, ns] : {std::pair(1, 100), std::pair(20, 50)}) {
    const Measured measured(inner, ns);
    sched::Sharing sharing;
    CHECK_EQ(count_shared(measured, sharing, 4, 80, 40), 2);  // both ways are tried
    CHECK_EQ(count_shared(measured, sharing, 640, 80, 40), 10);
    CHECK_EQ(count_shared(measured, sharing, 640, 20, 40) > 500, true);  // what was once slow may be fast
    CHECK(measured.is_worth_sharing(sharing, 3));                        // of other workers nothing is known
  }
}

/// Tasks that take so long that one trial is enough, though other work may keep cores busy for a while.
TEST(clear_estimates_are_believed) {
  const Measured measured(400, 2000);
  sched::Sharing sharing;
  CHECK_EQ(count_shared(measured, sharing, 200, 1100, 2000), 199);  // one worker is tried once
}

/// A run of one worker shows what bodies take at most.
TEST(a_run_alone_bounds_what_its_tasks_take) {
  const Measured measured(1, 100);
  sched::Sharing sharing;
  CHECK(measured.divide(sharing) != sched::Division::kLater);
  sharing.record(sharing.size_of_last(), 2, false, 12);
  CHECK_EQ(count_shared(measured, sharing, 100, 80, 12), 0);
  CHECK_EQ(count_shared(measured, sharing, 5, 80, 1000), 0);    // something keeps the core busy for a while
  CHECK(count_shared(measured, sharing, 200, 80, 1000) > 100);  // the tasks have become longer
}

/// Tasks that wait for each other gain nothing, however long they are. Other work that keeps cores busy for a
/// while looks the same.
TEST(runs_find_that_sharing_gains_nothing) {
  const Measured measured(400, 2000);
  sched::Sharing sharing;
  const int num_shared = count_shared(measured, sharing, 160, 2100, 2000);
  CHECK(num_shared >= 160 / 16 && num_shared <= 160 / 16 + 3);
  CHECK(count_shared(measured, sharing, 160, 1100, 2000) > 140);
}

/// Runs with other numbers of workers in between do not bring back what sharing does not gain.
TEST(what_is_known_of_a_number_of_workers_is_kept) {
  const Measured measured(400, 2000);
  sched::Sharing sharing;
  count_shared(measured, sharing, 40, 2100, 2000);
  int num_shared = 0;
  for (int i = 0; i < 32; ++i) {
    measured.divide(sharing, 4);
    sharing.record(sharing.size_of_last(), 4, true, 2100);
    num_shared += count_shared(measured, sharing, 1, 2100, 2000);
  }
  CHECK(num_shared <= 32 / 16 + 3);
}

/// Cores that pass data to each other take longer for the bodies too, so those do not show what is lost.
TEST(bodies_that_sharing_makes_longer_do_not_hide_that_it_gains_nothing) {
  const Measured measured(400, 1200);
  sched::Sharing sharing;
  CHECK(count_shared(measured, sharing, 160, 800, 500) <= 160 / 16 + 3);
  CHECK(measured.is_worth_sharing(sharing, 3));  // of other workers nothing is known
  sharing.record(sharing.size_of_last(), 3, true, 800);
  CHECK(measured.is_worth_sharing(sharing, 3));
  sharing.record(sharing.size_of_last(), 3, true, 800);
  CHECK(!measured.is_worth_sharing(sharing, 3));  // but what one worker takes is
}

TEST(one_run_does_not_decide_which_way_is_faster) {
  const Measured measured(1, 100);
  sched::Sharing sharing;
  count_shared(measured, sharing, 70, 80, 40);
  sharing.record(sharing.size_of_last(), 2, false, 40000);
  CHECK(count_shared(measured, sharing, 50, 80, 40) <= 1);
}

/// A sample may hold the time in which the thread had no core.
TEST(one_sample_does_not_decide_what_tasks_take) {
  sched::SiteCosts costs(1);
  for (int i = 0; i < 20; ++i) costs.record(0, 1000);
  costs.record(0, 4000000);
  CHECK(costs[0] <= 2000);
  for (int i = 0; i < 20; ++i) costs.record(0, 100000);
  CHECK(costs[0] > 50000);
}

/// Whether other workers joined the first run of `make_program(inner)`.
bool is_first_run_shared(int64_t inner) {
  const std::vector<uint8_t> bytes = make_program(inner);
  Executable executable(bytes.data(), bytes.size(), {std::shared_ptr<void>(), &kTable});
  std::vector<int32_t> data(kNumTasks, 0);
  return executable.run({arrays::ref(data)}, {}, sched::RunOptions(2)).slices > 0;
}

/// Other work on the machine may make the tasks of one run seem long; sanitizers always do.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST(a_first_run_of_short_tasks_is_one_workers) {
  for (const int64_t inner : {1, 20}) {
    int num_shared = 0;
    for (int i = 0; i < 5; ++i) num_shared += is_first_run_shared(inner);
    CHECK(num_shared <= 2);
  }
}
#endif

TEST(who_says_which_task_runs_where_gets_it) {
  const std::vector<uint8_t> bytes = make_program(1);
  Executable executable(bytes.data(), bytes.size(), {std::shared_ptr<void>(), &kTable});
  std::vector<int32_t> data(kNumTasks, 0);
  for (int32_t run = 1; run <= 12; ++run) {
    sched::RunOptions options;
    options.workers = 2;
    options.dispatchers = run % 3 == 1 ? 2 : 0;
    if (run % 3 == 2) options.ownership = sched::Ownership::kRoundRobin;
    const RunResult result = executable.run({arrays::ref(data)}, {}, options);
    CHECK(result.slices > 0 || run % 3 == 0);
    CHECK(std::all_of(data.begin(), data.end(), [&](int32_t x) { return x == run; }));
  }
}

}  // namespace test_sharing
