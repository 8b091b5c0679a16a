// SPDX-License-Identifier: MIT
/// \file
/// Policies of a schedule: whoever owns tasks and whatever starts first, results are program order's, and
/// every conflicting pair runs in order.
#include <chrono>

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
  options.held = random() % 3 == 0 ? 1 + random() % options.window : 0;
  if (random() % 3 == 0) options.batch = 1 + random() % 20;
  if (random() % 3 == 0 && options.streams != sched::Streams::kOff) options.interleaved = 1 + random() % 3;
  if (random() % 8 == 0) options.starts_per_second = 200000;
  options.num_pools = random() % 2 == 0 ? 0 : uint32_t(1 + random() % 4);
  if (options.num_pools == 3 && random() % 2 == 0) options.pool_bounds = {1, 2};
  options.jitter = random() % 3 == 0 ? 0 : seed;
  options.tracks = random() % 2 == 0;
  options.trace = random() % 4 == 0;
  options.verifies = random() % 4 == 0;
  return options;
}

void check_workload(uint64_t seed, size_t max_tasks, uint32_t rounds) {
  const Workload workload(seed, max_tasks);
  const std::vector<uint8_t> bytes = workload.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  for (uint32_t round = 0; round < rounds; ++round) {
    const sched::RunOptions options = any_policies(seed * 64 + round);
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

}  // namespace

TEST(owners_priorities_and_windows_keep_every_order) {
  seeds::for_seeds(5000, std::chrono::seconds(4),
                   [](uint64_t seed) { check_workload(seed, seed % 8 == 0 ? 800 : 150, 6); });
}

}  // namespace test_policies
