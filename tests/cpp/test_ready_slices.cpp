// SPDX-License-Identifier: MIT
/// \file
/// What may be begun does not depend on whether another thread looks at the same time.
#include "pto/wsp/sched/ready_slices.hpp"

#include <thread>

#include "check.hpp"

namespace test_ready_slices {

using namespace pto::wsp::sched;

/// As many slices wait as may, and one that is younger is queued: no thread may begin it.
TEST(a_younger_slice_is_never_begun_while_as_many_wait_as_may) {
  Progress progress;
  ReadySlices ready;
  ready.begin(1, false, 2);
  Slice slices[3];
  for (uint64_t i = 0; i < 3; ++i) {
    slices[i].number = i;
    slices[i].blocked_on = task_name(5000, 1);
  }
  ready.push_waiting(&slices[0]);
  ready.push_waiting(&slices[1]);
  ready.push(&slices[2]);
  std::atomic<int> num_begun{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 20000; ++round) num_begun += ready.take(kAllLanes, progress) != nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(num_begun.load(), 0);
}

}  // namespace test_ready_slices
