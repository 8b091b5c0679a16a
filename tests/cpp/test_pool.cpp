// SPDX-License-Identifier: MIT
/// \file
/// The threads of the pool: who is woken, who sleeps, and who ends.
#include "pto/wsp/sched/pool.hpp"

#include <time.h>

#include <thread>

#include "check.hpp"
#include "kernels.hpp"
#include "prepared.hpp"

namespace test_pool {

using namespace pto::wsp;
using namespace std::chrono_literals;

namespace {

void wait_for(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    CHECK(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(100us);
  }
}

/// Has nothing to do, and counts how often the pool asks.
class Idle final : public sched::Job {
 public:
  int join() override {
    ++num_asked;
    return -1;
  }
  void leave(int) override {}
  void help(int, sched::EventCount&) override {}

  std::atomic<int> num_asked{0};
};

/// Wants one thread, once, and uses the pool when it is destroyed, as the end of a kernel library may.
class Last final : public sched::Job {
 public:
  explicit Last(std::atomic<bool>& is_gone) : is_gone_(is_gone) {}
  ~Last() override {
    sched::Pool::instance().num_threads();
    is_gone_ = true;
  }
  int join() override { return has_joined_.exchange(true) ? -1 : 1; }
  void leave(int) override {}
  void help(int, sched::EventCount& sleepers) override {
    is_inside = true;
    while (!may_leave) std::this_thread::yield();
    sleepers.prepare();
  }

  std::atomic<bool> is_inside{false}, may_leave{false};

 private:
  std::atomic<bool>& is_gone_;
  std::atomic<bool> has_joined_{false};
};

std::atomic<bool> is_slow_begun{false}, may_end{false};
std::atomic<int> num_met{0};

/// Task 0 lasts until it is told to end.
int32_t hold_first(const View*, const Scalar*, const TaskContext* context) {
  if (context->task != 0) return 0;
  is_slow_begun = true;
  while (!may_end) std::this_thread::sleep_for(1ms);
  return 0;
}

/// Task 0 lasts until two others have met.
int32_t meet(const View*, const Scalar*, const TaskContext* context) {
  if (context->task < 2) {
    if (context->task == 0) wait_for([] { return num_met == 2; });
    return 0;
  }
  ++num_met;
  wait_for([] { return num_met == 2; });
  return 0;
}

int64_t thread_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t{1000000000} + time.tv_nsec;
}

}  // namespace

TEST(threads_sleep_while_nothing_is_to_do) {
  const auto idle = std::make_shared<Idle>();
  sched::Pool& pool = sched::Pool::instance();
  pool.add(idle, 4);
  pool.wake();
  std::this_thread::sleep_for(50ms);
  const int num_asked = idle->num_asked;
  std::this_thread::sleep_for(200ms);
  CHECK(idle->num_asked - num_asked <= 4);
  pool.remove(idle.get());
}

TEST(a_job_is_destroyed_without_the_lock) {
  std::atomic<bool> is_gone{false};
  auto last = std::make_shared<Last>(is_gone);
  Last* raw = last.get();
  sched::Pool& pool = sched::Pool::instance();
  pool.add(last, 1);
  pool.wake();
  wait_for([&] { return raw->is_inside.load(); });
  pool.remove(raw);
  last->may_leave = true;
  last.reset();
  wait_for([&] { return is_gone.load(); });
}

TEST(threads_that_are_idle_for_long_end) {
  sched::Pool& pool = sched::Pool::instance();
  const auto idle = std::make_shared<Idle>();
  pool.set_idle_limit(1ms);
  pool.add(idle, 3);
  std::this_thread::sleep_for(50ms);
  CHECK(pool.num_threads() >= 3);  // there may be something to do soon
  pool.remove(idle.get());
  kernels::end_pool_threads();
}

/// The caller is in a task, one worker completes another, and what this allows needs a third thread.
TEST(whoever_completes_something_wakes_another_thread) {
  const kernels::Library library(meet, true);
  kernels::Assembler program(library.table());
  program.tensor(DType::i64, {4});
  const auto task = [&](int64_t first, int64_t count) {
    const uint32_t i = program.loop(kernels::Op::PARALLEL_FOR, program.constant(count));
    program.task(0);
    program.io(Role::inout, 0);
    program.range(program.add(kernels::Assembler::reg(i), program.constant(first)), program.constant(1));
    program.end();
  };
  task(0, 2);
  task(1, 2);
  const auto bytes = program.bytes();
  for (int round = 0; round < 5; ++round) {
    std::vector<int64_t> data(4);
    sched::RunOptions options = kernels::with_workers(3);
    num_met = 0;
    Executable executable = kernels::load(library, bytes);
    CHECK_EQ(executable.run({arrays::ref(data)}, {}, options).tasks, 4u);
  }
}

TEST(the_end_of_a_run_sleeps_until_bodies_have_ended) {
  const kernels::Library library(hold_first, false);
  const auto bytes = kernels::loops(library, 1, 2, false);
  sched::RunOptions options = kernels::with_workers(2);
  const prepared::Call call(bytes, {}, library.table(), options);
  auto crew = std::make_shared<sched::Crew>();
  crew->begin(call.plan, call.bases, options, nullptr);
  is_slow_begun = may_end = false;
  crew->offer();
  wait_for([] { return is_slow_begun.load(); });
  crew->cancel();
  std::thread ending([&] {
    std::this_thread::sleep_for(300ms);
    may_end = true;
  });
  const int64_t before = thread_cpu_ns();
  crew->wait();
  CHECK(thread_cpu_ns() - before < 100000000);
  ending.join();
}

/// Tasks with blocks, a workspace or written row sets are timed as others are.
TEST(tasks_with_blocks_are_timed) {
  const kernels::Library library(
      [](const View*, const Scalar*, const TaskContext*) {
        std::this_thread::sleep_for(1ms);
        return 0;
      },
      false, 2);
  sched::RunOptions options = kernels::with_workers(2);
  const prepared::Call call(kernels::loops(library, 1, 4, false), {}, library.table(), options);
  auto crew = std::make_shared<sched::Crew>();
  crew->begin(call.plan, call.bases, options, nullptr);
  crew->wait();
  CHECK((*call.plan->costs)[0] >= 2000000u);
}

}  // namespace test_pool
