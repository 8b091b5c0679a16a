// SPDX-License-Identifier: MIT
/// \file
/// Runs that are submitted: several at a time, waited for, cancelled, dropped, refused.
#include <numeric>
#include <thread>

#include "check.hpp"
#include "kernels.hpp"
#include "pto/wsp/tile/monitor.hpp"

namespace test_runs {

using namespace pto::wsp;
using namespace std::chrono_literals;
using kernels::with_workers;

namespace {

std::atomic<bool> is_begun{false}, may_end{true};

/// Adds one, once it may.
int32_t add(const View* views, const Scalar*, const TaskContext*) {
  is_begun = true;
  while (!may_end) std::this_thread::sleep_for(100us);
  ++*static_cast<int64_t*>(views[0].data);
  return 0;
}

int32_t fail(const View*, const Scalar*, const TaskContext* context) { return context->task == 5 ? 3 : 0; }

/// Never ends unless its run shall end, as generated loops do.
int32_t spin(const View*, const Scalar*, const TaskContext* context) {
  is_begun = true;
  while (!tile::must_stop(context)) std::this_thread::yield();
  return kStopped;
}

std::atomic<bool> is_released{false};

/// The last of 16 tasks takes until another run releases it.
int32_t hold_last(const View* views, const Scalar*, const TaskContext*) {
  const bool is_last = *static_cast<int64_t*>(views[0].data) == 15;
  std::this_thread::sleep_for(50us);
  while (is_last && !is_released) std::this_thread::sleep_for(100us);
  return 0;
}

int32_t release(const View*, const Scalar*, const TaskContext*) {
  is_released = true;
  return 0;
}

const kernels::Library kHoldLast(hold_last, true);
const kernels::Library kRelease(release, true);
const kernels::Library kAdd(add, true);
const kernels::Library kSpin(spin, true);
const kernels::Library kFail(fail, true);

Executable adding(int64_t repeat) { return kernels::load(kAdd, kernels::loops(kAdd, repeat, 64, true)); }

bool is_all(const std::vector<int64_t>& data, int64_t value) {
  return std::all_of(data.begin(), data.end(), [value](int64_t x) { return x == value; });
}

void wait_for(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    CHECK(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(100us);
  }
}

/// Lets tasks end only once it is destroyed.
struct Held {
  Held() { is_begun = may_end = false; }
  ~Held() { may_end = true; }
};

std::vector<sched::RunOptions> every_way() {
  std::vector<sched::RunOptions> all = {with_workers(1), with_workers(2), with_workers(4)};
  for (uint32_t workers : {1u, 3u}) {
    all.push_back(with_workers(workers));
    all.back().start = sched::Start::kAfterBuild;
  }
  all.push_back(with_workers(2));
  all.back().tracks = true;
  return all;
}

}  // namespace

TEST(a_run_is_submitted_and_waited_for) {
  Executable executable = adding(10);
  std::vector<int64_t> data(64);
  int64_t rounds = 0;
  for (const sched::RunOptions& options : every_way()) {
    for (int round = 0; round < 20; ++round) {
      const auto run = executable.submit({arrays::ref(data)}, {}, options);
      if (round % 2 == 0) wait_for([&] { return run->is_done(); });
      const RunResult& result = run->wait();
      CHECK_EQ(result.tasks, 640u);
      CHECK_EQ(result.run, run->number());
      CHECK(run->is_done() && is_all(data, 10 * ++rounds));
      CHECK_EQ(run->wait().tasks, 640u);
    }
  }
}

TEST(runs_of_one_program_are_under_way_at_once) {
  Executable executable = adding(3);
  std::vector<std::vector<int64_t>> data(6, std::vector<int64_t>(64));
  for (const sched::RunOptions& options : every_way()) {
    for (auto& values : data) std::fill(values.begin(), values.end(), 0);
    std::vector<std::unique_ptr<SubmittedRun>> runs;
    {
      const Held held;
      for (auto& values : data) runs.push_back(executable.submit({arrays::ref(values)}, {}, options));
      for (const auto& run : runs) CHECK(!run->is_done());
    }
    for (size_t i = runs.size(); i-- > 0;) CHECK_EQ(runs[i]->wait().tasks, 192u);
    for (const auto& values : data) CHECK(is_all(values, 3));
  }
}

/// Two pool threads serve both runs. The one without work in the first run may be its keeper.
TEST(a_thread_without_work_in_a_run_works_for_another) {
  kernels::end_pool_threads();
  Executable first = kernels::load(kHoldLast, kernels::loops(kHoldLast, 1, 16, true));
  Executable second = kernels::load(kRelease, kernels::loops(kRelease, 1, 1, true));
  std::vector<int64_t> data(16), other(1);
  std::iota(data.begin(), data.end(), 0);
  for (int round = 0; round < 60; ++round) {
    is_released = false;
    const auto held = first.submit({arrays::ref(data)}, {}, with_workers(2));
    if (round % 2 == 0) std::this_thread::sleep_for(1ms);
    const auto releasing = second.submit({arrays::ref(other)}, {}, with_workers(1));
    if (round % 3 == 0) held->wait();
    wait_for([&] { return held->is_done() && releasing->is_done(); });
  }
  CHECK(sched::Pool::instance().num_threads() <= 2);
}

TEST(many_threads_wait_for_one_run) {
  Executable executable = adding(5);
  std::vector<int64_t> data(64);
  for (uint32_t workers : {1u, 2u, 4u}) {
    std::fill(data.begin(), data.end(), 0);
    const auto run = executable.submit({arrays::ref(data)}, {}, with_workers(workers));
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { CHECK_EQ(run->wait().tasks, 320u); });
    for (std::thread& thread : threads) thread.join();
    CHECK(is_all(data, 5));
  }
}

TEST(arrays_of_an_unfinished_run_are_refused) {
  Executable executable = adding(1), other = adding(1);
  std::vector<int64_t> data(128);
  const auto part = [&](size_t first) {
    bind::ArrayRef ref = arrays::ref(data);
    ref.data = data.data() + first;
    ref.shape[0] = 64;
    return ref;
  };
  {
    std::unique_ptr<SubmittedRun> first;
    const Held held;
    first = executable.submit({part(0)}, {}, with_workers(2));
    CHECK_CODE("arrays-in-flight", executable.submit({part(0)}, {}, with_workers(2)));
    CHECK_CODE("arrays-in-flight", other.submit({part(63)}, {}, with_workers(2)));
    CHECK_CODE("arrays-in-flight", other.run({part(32)}, {}, with_workers(2)));
    const auto apart = other.submit({part(64)}, {}, with_workers(2));
    may_end = true;
    first->wait();
    apart->wait();
  }
  executable.run({part(32)}, {}, with_workers(2));
}

TEST(calls_of_one_program_wait_for_each_other) {
  Executable executable = adding(2);
  std::vector<int64_t> data(64);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 25; ++round) executable.run({arrays::ref(data)}, {}, with_workers(2));
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(is_all(data, 200));
}

TEST(a_run_is_cancelled) {
  Executable executable = adding(int64_t{1} << 40);
  std::vector<int64_t> data(64);
  for (sched::RunOptions options : every_way()) {
    options.start = sched::Start::kImmediate;
    const auto run = executable.submit({arrays::ref(data)}, {}, options);
    if (options.workers > 1) std::this_thread::sleep_for(2ms);
    run->cancel();
    CHECK_CODE("run-cancelled", run->wait());
    CHECK(run->is_done());
    const auto second = executable.submit({arrays::ref(data)}, {}, options);
    std::thread canceller([&] {
      std::this_thread::sleep_for(5ms);
      executable.cancel();
    });
    CHECK_CODE("run-cancelled", second->wait());
    canceller.join();
  }
}

/// \post the run has ended, though nothing asks its caller whether it was interrupted
TEST(kernels_stop_where_their_run_is_cancelled) {
  Executable executable = kernels::load(kSpin, kernels::loops(kSpin, 10, 64, true));
  std::vector<int64_t> data(64);
  for (const sched::RunOptions& options : every_way()) {
    is_begun = false;
    const auto run = executable.submit({arrays::ref(data)}, {}, options);
    wait_for([] { return is_begun.load(); });
    run->cancel();
    CHECK_CODE("run-cancelled", run->wait());
  }
}

TEST(kernels_stop_at_the_time_limit_of_their_run) {
  Executable executable = kernels::load(kSpin, kernels::loops(kSpin, 10, 64, true));
  std::vector<int64_t> data(64);
  for (sched::RunOptions options : every_way()) {
    options.time_limit_ns = 20000000;
    CHECK_CODE("time-limit", executable.run({arrays::ref(data)}, {}, options));
  }
}

TEST(a_run_that_is_dropped_is_cancelled_and_waited_for) {
  Executable executable = adding(int64_t{1} << 40);
  for (const uint32_t workers : {1u, 3u}) {
    std::vector<int64_t> data(64);
    executable.submit({arrays::ref(data)}, {}, with_workers(workers)).reset();
    auto run = executable.submit({arrays::ref(data)}, {}, with_workers(workers));
    wait_for([] { return is_begun.load(); });
    run.reset();
    const std::vector<int64_t> before = data;
    std::this_thread::sleep_for(5ms);
    CHECK(before == data);
  }
}

TEST(a_run_outlives_its_program) {
  std::vector<int64_t> data(64);
  auto executable = std::make_unique<Executable>(adding(4));
  const auto run = executable->submit({arrays::ref(data)}, {}, with_workers(2));
  executable.reset();
  CHECK_EQ(run->wait().tasks, 256u);
  CHECK(is_all(data, 4));
}

TEST(a_run_that_fails_says_so_to_all_who_wait) {
  Executable executable = kernels::load(kFail, kernels::loops(kFail, 1, 64, true));
  std::vector<int64_t> data(64);
  const auto run = executable.submit({arrays::ref(data)}, {}, with_workers(2));
  wait_for([&] { return run->is_done(); });
  CHECK_CODE("kernel-failed", run->wait());
  CHECK_CODE("kernel-failed", run->wait());
}

/// No pool thread is started, and the calling thread runs all tasks.
TEST(a_call_with_one_worker_starts_no_thread) {
  kernels::end_pool_threads();
  Executable executable = adding(1);
  std::vector<int64_t> data(64);
  executable.run({arrays::ref(data)}, {}, with_workers(1));
  CHECK_EQ(sched::Pool::instance().num_threads(), 0u);
}

TEST(progress_comes_while_nobody_waits) {
  Executable executable = adding(int64_t{1} << 40);
  std::vector<int64_t> data(64);
  for (const uint32_t workers : {1u, 2u}) {
    struct Told {
      std::atomic<uint64_t> times{0}, last{0};
    } told;
    sched::RunOptions options = with_workers(workers);
    options.listener = &told;
    options.on_progress = [](void* listener, uint64_t num_complete) {
      auto& told = *static_cast<Told*>(listener);
      CHECK(num_complete >= told.last);
      told.last = num_complete;
      return ++told.times >= 3;
    };
    const auto run = executable.submit({arrays::ref(data)}, {}, options);
    wait_for([&] { return run->is_done(); });
    CHECK_CODE("run-cancelled", run->wait());
    CHECK(told.times >= 3 && told.last > 0);
  }
}

}  // namespace test_runs
