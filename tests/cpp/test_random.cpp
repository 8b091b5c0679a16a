// SPDX-License-Identifier: MIT
/// \file
/// Random workloads: any number of workers, with and without delays, gives program order's result bit for
/// bit, and a brute-force checker finds every conflicting pair in order.
#include <chrono>

#include "pto/wsp/engine.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_random {

using namespace pto::wsp;
using random_workload::Tensor;
using random_workload::Workload;

namespace {

void check_workload(uint64_t seed, size_t max_tasks) {
  const Workload workload(seed, max_tasks);
  const std::vector<uint8_t> bytes = workload.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  for (uint32_t round = 0; round < 4; ++round) {
    const uint32_t workers = round == 0 ? 1 : uint32_t(1 + (seed + round * 3) % 8);
    std::vector<Tensor> found = workload.tensors();
    mix::stamps().reset(workload.tasks().size());
    sched::RunOptions options{workers, false, round % 2 == 1 ? seed * 8 + round : 0, nullptr, round > 0};
    options.verifies = seed % 4 == 0;
    options.deps = seed % 5 == 0 ? sched::Deps::kBytes : sched::Deps::kExact;
    const RunResult result = executable.run(Workload::to_arrays(found), {}, options);
    CHECK_EQ(result.tasks, workload.tasks().size());
    CHECK(result.order_violations.value_or(0) == 0);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == workload.results()[i].data);
    workload.check_order(mix::stamps());
  }
}

}  // namespace

TEST(random_workloads_keep_every_order) {
  seeds::for_seeds(1, std::chrono::seconds(4),
                   [](uint64_t seed) { check_workload(seed, seed % 8 == 0 ? 800 : 150); });
}

}  // namespace test_random
