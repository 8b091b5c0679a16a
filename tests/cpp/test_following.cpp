// SPDX-License-Identifier: MIT
/// \file
/// Runs that begin while earlier ones are under way: task by task, with the results of one after another.
#include <numeric>
#include <thread>

#include "check.hpp"
#include "kernels.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_following {

using namespace pto::wsp;
using namespace std::chrono_literals;
using kernels::with_workers;
using random_workload::Workload;
using Runs = std::vector<std::unique_ptr<SubmittedRun>>;

namespace {

std::atomic<int64_t> first_held{-1};  ///< tasks from this one on wait, of a first run
std::atomic<int64_t> fails_at{-1};    ///< a task of a first run
std::atomic<int64_t> num_later{0};    ///< tasks of later runs

/// Multiplies by three and adds one: what runs first shows. A first run finds ones.
int32_t step(const View* views, const Scalar*, const TaskContext* context) {
  auto& element = *static_cast<int64_t*>(views[0].data);
  const auto task = int64_t(context->task);
  if (element != 1) ++num_later;
  while (element == 1 && first_held >= 0 && task >= first_held) std::this_thread::sleep_for(100us);
  if (element == 1 && task == fails_at) return 3;
  element = element * 3 + 1;
  return 0;
}

const kernels::Library kStep(step, true);

Executable stepping(int64_t repeat, int64_t extent) {
  return kernels::load(kStep, kernels::loops(kStep, repeat, extent, true));
}

void wait_for(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    CHECK(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(100us);
  }
}

std::vector<const SubmittedRun*> unfinished(const Runs& runs) {
  std::vector<const SubmittedRun*> all;
  for (const auto& run : runs) {
    if (!run->is_done()) all.push_back(run.get());
  }
  return all;
}

/// Submits a run after all earlier ones; those that cannot be compared task by task are waited for.
void submit(Executable& executable, const std::vector<bind::ArrayRef>& arrays,
            const sched::RunOptions& options, Runs& runs, size_t& num_whole) {
  for (;;) {
    const std::vector<const SubmittedRun*> earlier = unfinished(runs);
    auto run = executable.submit_after(earlier, arrays, {}, options);
    if (run != nullptr) return runs.push_back(std::move(run));
    ++num_whole;
    for (const auto& other : runs) {
      if (!earlier.empty() && other.get() == earlier.front()) other->wait();
    }
  }
}

struct Launch {
  Executable executable;
  std::vector<bind::ArrayRef> arrays;
  sched::RunOptions options;
};

void check_launches(uint64_t seed) {
  std::vector<uint64_t> memory(20000);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = mix::scramble(i + 1);
  const std::vector<uint64_t> before = memory;
  std::vector<std::unique_ptr<Launch>> launches;
  for (uint64_t i = 0; i < 6; ++i) {
    // Launches of one program, and of several.
    const Workload workload(seed * 4 + i % 4, 60);
    const std::vector<uint8_t> bytes = workload.bytes();
    sched::RunOptions options = with_workers(uint32_t(1 + (seed + i) % 4));
    options.jitter = seed % 2 == 0 ? seed * 8 + i + 1 : 0;
    if (i == 4) options.ready = sched::Ready::kFifo;
    launches.push_back(
        std::make_unique<Launch>(Launch{Executable(bytes.data(), bytes.size(), mix::library().shared()),
                                        random_workload::place(workload, memory, seed * 64 + i), options}));
  }
  mix::stamps().reset(0);
  for (const auto& launch : launches) launch->executable.run(launch->arrays, {}, with_workers(1));
  const std::vector<uint64_t> expected = memory;
  memory = before;
  Runs runs;
  size_t num_whole = 0;
  for (const auto& launch : launches)
    submit(launch->executable, launch->arrays, launch->options, runs, num_whole);
  for (size_t i = runs.size(); i-- > 0;) runs[seed % 3 == 0 ? i : runs.size() - 1 - i]->wait();
  CHECK(memory == expected);
}

std::vector<sched::RunOptions> every_way() {
  std::vector<sched::RunOptions> all = {with_workers(1), with_workers(2), with_workers(4)};
  all.push_back(with_workers(2));
  all.back().start = sched::Start::kAfterBuild;
  all.push_back(with_workers(2));
  all.back().waits = sched::Waits::kSymbolic;
  return all;
}

}  // namespace

TEST(random_launches_have_the_results_of_one_after_another) { seeds::for_seeds(1, 4s, check_launches); }

TEST(tasks_begin_before_the_earlier_run_has_ended) {
  Executable first = stepping(1, 64), second = stepping(1, 64);
  for (const sched::RunOptions& options : every_way()) {
    std::vector<int64_t> data(64, 1);
    Runs runs;
    num_later = 0;
    first_held = 32;
    runs.push_back(first.submit_after({}, {arrays::ref(data)}, {}, options));
    runs.push_back(second.submit_after({runs[0].get()}, {arrays::ref(data)}, {}, with_workers(2)));
    CHECK(runs[1] != nullptr);
    wait_for([] { return num_later == 32; });
    CHECK(!runs[0]->is_done() && !runs[1]->is_done());
    first_held = -1;
    CHECK_EQ(runs[1]->wait().tasks, 64u);
    CHECK_EQ(runs[0]->wait().tasks, 64u);
    CHECK(std::all_of(data.begin(), data.end(), [](int64_t x) { return x == 13; }));
  }
}

TEST(one_thread_serves_runs_that_follow_each_other) {
  kernels::end_pool_threads();
  Executable program = stepping(1, 300);
  std::vector<int64_t> data(300, 1);
  Runs runs;
  size_t num_whole = 0;
  for (int i = 0; i < 12; ++i) submit(program, {arrays::ref(data)}, with_workers(1), runs, num_whole);
  runs.back()->wait();
  int64_t expected = 1;
  for (int i = 0; i < 12; ++i) expected = expected * 3 + 1;
  CHECK(std::all_of(data.begin(), data.end(), [&](int64_t x) { return x == expected; }));
}

TEST(a_failure_ends_the_runs_that_follow_and_no_others) {
  Executable program = stepping(1, 64);
  for (const sched::RunOptions& options : every_way()) {
    std::vector<int64_t> data(64, 1), apart(64, 1);
    Runs runs;
    first_held = 8;
    fails_at = 40;
    for (std::vector<int64_t>* array : {&data, &data, &data}) {
      runs.push_back(program.submit_after(unfinished(runs), {arrays::ref(*array)}, {}, options));
      if (runs.back() == nullptr) runs.pop_back();  // a kept graph follows nothing
    }
    fails_at = runs.size() == 1 ? -1 : 40;
    first_held = -1;
    if (fails_at >= 0) {
      CHECK_CODE("kernel-failed", runs[0]->wait());
      for (size_t i = 1; i < runs.size(); ++i) CHECK_CODE("run-cancelled", runs[i]->wait());
      CHECK(program.submit_after({runs[0].get()}, {arrays::ref(data)}, {}, options) == nullptr);
      CHECK_EQ(data[40], 1);  // no task that waits for the failed one has run
    }
    fails_at = -1;
    const auto other = program.submit_after({}, {arrays::ref(apart)}, {}, options);
    CHECK_EQ(other->wait().tasks, 64u);
  }
}

TEST(cancelling_a_run_ends_those_that_follow) {
  Executable program = stepping(1, 64);
  std::vector<int64_t> data(64, 1);
  Runs runs;
  first_held = 60;
  for (int i = 0; i < 3; ++i)
    runs.push_back(program.submit_after(unfinished(runs), {arrays::ref(data)}, {}, with_workers(2)));
  runs[1]->cancel();
  CHECK_CODE("run-cancelled", runs[2]->wait());
  CHECK_CODE("run-cancelled", runs[1]->wait());
  CHECK(!runs[0]->is_done());
  first_held = -1;
  CHECK_EQ(runs[0]->wait().tasks, 64u);
}

TEST(bytes_of_other_views_are_found) {
  std::vector<int64_t> memory(120);
  bind::ArrayRef whole = arrays::ref(memory);
  bind::ArrayRef grid = whole;
  grid.rank = 2;
  grid.shape[0] = 10, grid.shape[1] = 12;
  grid.stride_bytes[0] = 96, grid.stride_bytes[1] = 8;
  const auto is = [](const graph::Box& box, std::vector<int64_t> lo, std::vector<int64_t> hi) {
    return std::equal(lo.begin(), lo.end(), box.lo) && std::equal(hi.begin(), hi.end(), box.hi);
  };
  CHECK(is(sched::box_in(grid, grid, {{2, 3}, {4, 5}}), {2, 3}, {4, 5}));
  CHECK(is(sched::box_in(grid, whole, {{26}, {30}}), {2, 2}, {3, 6}));
  CHECK(is(sched::box_in(grid, whole, {{26}, {40}}), {2, 0}, {4, 12}));
  CHECK(is(sched::box_in(whole, grid, {{2, 3}, {3, 5}}), {27}, {29}));
  CHECK(is(sched::box_in(whole, grid, {{2, 3}, {4, 5}}), {27}, {41}));
  bind::ArrayRef columns = grid;  // of which only some elements are in the array
  columns.shape[1] = 5;
  CHECK(is_empty(sched::box_in(columns, whole, {{30}, {34}}), 2));
  CHECK(is(sched::box_in(columns, whole, {{30}, {37}}), {2, 0}, {4, 5}));
  whole.data = memory.data() + 60;
  whole.shape[0] = 60;
  CHECK(is_empty(sched::box_in(whole, grid, {{0, 0}, {2, 12}}), 1));
}

}  // namespace test_following
