// SPDX-License-Identifier: MIT
/// \file
/// Random workloads: any number of workers, with and without delays, gives program order's result bit for
/// bit, and a brute-force checker finds every conflicting pair in order.
#include <chrono>

#include "pto/wsp/engine.hpp"
#include "random_workload.hpp"

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
  const auto start = std::chrono::steady_clock::now();
  const char* chosen = std::getenv("PTO_WSP_SEED");
  uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
  const uint64_t first = seed;
  do {
    if (chosen != nullptr) std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    check_workload(seed, seed % 8 == 0 ? 800 : 150);
    ++seed;
  } while (chosen == nullptr && std::chrono::steady_clock::now() - start < std::chrono::seconds(8));
  std::printf("  %llu workloads\n", static_cast<unsigned long long>(seed - first));
}

}  // namespace test_random
