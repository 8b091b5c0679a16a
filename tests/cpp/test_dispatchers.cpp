// SPDX-License-Identifier: MIT
/// \file
/// Several dispatchers: any number of them, any window and any ownership give program order's result, and
/// errors and cancelling come out as with one.
#include <chrono>
#include <thread>

#include "pto/wsp/engine.hpp"
#include "random_workload.hpp"

namespace test_dispatchers {

using namespace pto::wsp;
using random_workload::Tensor;
using random_workload::Workload;

namespace {

std::vector<bind::ArrayRef> to_arrays(std::vector<Tensor>& tensors) {
  std::vector<bind::ArrayRef> arrays;
  for (Tensor& tensor : tensors) {
    bind::ArrayRef ref;
    ref.data = tensor.data.data();
    ref.dtype = DType::u64;
    ref.rank = int(tensor.shape.size());
    for (int d = 0; d < ref.rank; ++d) {
      ref.shape[d] = tensor.shape[size_t(d)];
      ref.stride_bytes[d] = tensor.stride[size_t(d)] * 8;
    }
    arrays.push_back(ref);
  }
  return arrays;
}

/// A way of running that `seed` picks.
sched::RunOptions any_options(uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t windows[] = {1, 2, 3, 7, 64, 1024};
  sched::RunOptions options;
  options.workers = uint32_t(1 + random() % 4);
  options.dispatchers = uint32_t(1 + random() % 8);
  options.window = windows[random() % 6];
  options.ownership = random() % 2 == 0 ? sched::Ownership::kClaim : sched::Ownership::kRoundRobin;
  options.jitter = random() % 3 == 0 ? 0 : seed;
  options.tracks = true;
  return options;
}

void check_workload(uint64_t seed, size_t max_tasks, uint32_t rounds) {
  const Workload workload(seed, max_tasks);
  const std::vector<uint8_t> bytes = workload.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  for (uint32_t round = 0; round < rounds; ++round) {
    const sched::RunOptions options = any_options(seed * 64 + round);
    std::vector<Tensor> found = workload.tensors();
    mix::stamps().reset(workload.tasks().size());
    const RunResult result = executable.run(to_arrays(found), {}, options);
    CHECK_EQ(result.tasks, workload.tasks().size());
    CHECK(result.max_recorded <= options.window);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == workload.results()[i].data);
    workload.check_order(mix::stamps());
  }
}

}  // namespace

TEST(any_dispatchers_windows_and_owners_keep_every_order) {
  const auto start = std::chrono::steady_clock::now();
  const char* chosen = std::getenv("PTO_WSP_SEED");
  uint64_t seed = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1000;
  const uint64_t first = seed;
  do {
    if (chosen != nullptr) std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    check_workload(seed, seed % 8 == 0 ? 800 : 150, 6);
    ++seed;
  } while (chosen == nullptr && std::chrono::steady_clock::now() - start < std::chrono::seconds(6));
  std::printf("  %llu workloads\n", static_cast<unsigned long long>(seed - first));
}

}  // namespace test_dispatchers
