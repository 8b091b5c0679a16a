// SPDX-License-Identifier: MIT
/// \file
/// Threads of the pool are kept off the CPU of whoever wakes them, within what they may use.
#include "check.hpp"
#include "pto/wsp/sched/pool.hpp"

#if defined(__linux__)

namespace test_placement {

using namespace pto::wsp;

namespace {

cpu_set_t mask_of(pthread_t thread) {
  cpu_set_t mask;
  CHECK(pthread_getaffinity_np(thread, sizeof mask, &mask) == 0);
  return mask;
}

void restrict_to(pthread_t thread, const cpu_set_t& mask) {
  CHECK(pthread_setaffinity_np(thread, sizeof mask, &mask) == 0);
}

cpu_set_t only(int cpu) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  CPU_SET(cpu, &mask);
  return mask;
}

/// The first two CPUs of `mask`; the same one twice if it has no other.
std::pair<int, int> two_of(const cpu_set_t& mask) {
  int first = 0;
  while (!CPU_ISSET(first, &mask)) ++first;
  for (int cpu = first + 1; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) return {first, cpu};
  }
  return {first, first};
}

/// A thread that sleeps.
class Sleeper {
 public:
  ~Sleeper() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_over_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  pthread_t handle() { return thread_.native_handle(); }

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_over_ = false;
  std::thread thread_{[this] {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [this] { return is_over_; });
  }};
};

/// Holds the pool's thread until it was seen.
class Visit final : public sched::Job {
 public:
  int join() override { return is_taken_.exchange(true) ? -1 : 0; }
  void leave(int) override { has_left_.store(true); }
  void help(int, sched::EventCount& sleepers) override {
    mask_ = mask_of(pthread_self());
    sleepers.prepare();
  }
  const cpu_set_t& wait() const {
    while (!has_left_.load()) std::this_thread::yield();
    return mask_;
  }

 private:
  std::atomic<bool> is_taken_{false}, has_left_{false};
  cpu_set_t mask_;
};

cpu_set_t visit_pool() {
  const auto visit = std::make_shared<Visit>();
  sched::Pool::instance().add(visit, 1);
  sched::Pool::instance().wake();
  const cpu_set_t found = visit->wait();
  sched::Pool::instance().remove(visit.get());
  return found;
}

}  // namespace

TEST(a_thread_runs_where_its_caller_may_but_not_on_its_cpu) {
  Sleeper sleeper;
  const cpu_set_t all = mask_of(pthread_self());
  const auto [first, second] = two_of(all);
  sched::Placement placement;
  placement.add(sleeper.handle());
  for (int cpu : {first, second, first}) {
    placement.keep_off(cpu, all);
    cpu_set_t expected = all;
    if (first != second) CPU_CLR(cpu, &expected);
    const cpu_set_t found = mask_of(sleeper.handle());
    CHECK(CPU_EQUAL(&found, &expected));
  }
}

TEST(a_caller_with_one_cpu_changes_nothing) {
  Sleeper sleeper;
  const auto [first, second] = two_of(mask_of(pthread_self()));
  sched::Placement placement;
  placement.add(sleeper.handle());
  const cpu_set_t given = only(first);
  restrict_to(sleeper.handle(), given);
  for (int cpu : {first, second}) {
    placement.keep_off(cpu, only(cpu));
    const cpu_set_t found = mask_of(sleeper.handle());
    CHECK(CPU_EQUAL(&found, &given));
  }
}

TEST(the_pool_keeps_off_its_caller) {
  const cpu_set_t all = mask_of(pthread_self());
  const auto [first, second] = two_of(all);
  int num_seen = 0;
  for (int round = 0; round < 100 && num_seen < 4; ++round) {
    restrict_to(pthread_self(), only(round % 2 != 0 ? second : first));
    restrict_to(pthread_self(), all);
    const int cpu = sched_getcpu();
    const cpu_set_t found = visit_pool();
    if (sched_getcpu() != cpu) continue;  // moved meanwhile
    ++num_seen;
    CHECK(CPU_COUNT(&found) > 0 && (first == second || !CPU_ISSET(cpu, &found)));
  }
  CHECK(num_seen == 4);
}

}  // namespace test_placement
#endif
