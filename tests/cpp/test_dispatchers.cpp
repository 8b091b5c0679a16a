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

/// Phases of loops whose iterations are independent: iteration i writes the tiles i of some tensors, and
/// reads them and any tile of the others. So dispatchers pass over the units of others, and meet what they
/// wrote.
class Phases {
 public:
  explicit Phases(uint64_t seed) : random_(seed), program_(mix::library().table()) {
    num_tiles_ = pick(5, 40);
    for (int i = 0; i < kTensors; ++i) program_.tensor(DType::u64, {num_tiles_ * kTile});
    const int outer = pick(0, 3);
    if (outer > 0)
      program_.loop(outer == 1 ? bytecode::Op::FOR_EACH : bytecode::Op::RANGE_FOR, count(pick(1, 4)));
    for (int i = pick(1, 4); i > 0; --i) add_phase();
    if (outer > 0) program_.end();
  }

  std::vector<uint8_t> bytes() const { return program_.bytes(); }
  std::vector<Tensor> tensors() const {
    Tensor tensor{{num_tiles_ * kTile}, {1}, std::vector<uint64_t>(size_t(num_tiles_ * kTile))};
    for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = mix::scramble(i + 1);
    return std::vector<Tensor>(kTensors, tensor);
  }

 private:
  static constexpr int kTensors = 5;
  static constexpr int64_t kTile = 2;

  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random_); }
  assembler::Expr count(int64_t n) { return program_.constant(n); }

  void add_phase() {
    num_written_ = pick(1, kTensors - 1);
    // Seldom a statement that is false: then iterations are ordered one task after the other.
    is_wrong_ = pick(0, 5) == 0;
    const uint32_t i = program_.tiles(bytecode::Op::PARALLEL_FOR, count(num_tiles_ * kTile), count(kTile));
    for (int n = pick(1, 4); n > 0; --n) add_task(i, i);
    if (pick(0, 2) == 0) {
      program_.cond(program_.apply(bytecode::Op::EXPR_MOD, {program_.reg(i), count(2)}));
      add_task(i, i);
      program_.end_cond();
    }
    if (pick(0, 1) == 0) {
      const auto extent = pick(0, 1) == 0 ? count(pick(0, int(num_tiles_)) * kTile)
                                          : program_.mul(program_.reg(i), count(kTile));
      const uint32_t k = program_.tiles(bytecode::Op::RANGE_FOR, extent, count(kTile));
      for (int n = pick(1, 3); n > 0; --n) add_task(i, k);
      program_.end();
    }
    program_.end();
  }

  /// A task of iteration i, which may read tile k of what the phase does not write.
  void add_task(uint32_t i, uint32_t k) {
    const auto pattern = uint16_t(pick(0, int(mix::patterns().size()) - 1));
    program_.task(uint16_t(pattern * 3));
    for (const Role role : mix::patterns()[pattern]) {
      const bool reads_others = role == Role::in && pick(0, 1) == 0;
      const int tensor = is_wrong_ || reads_others ? pick(0, kTensors - 1) : pick(0, num_written_ - 1);
      program_.io(role, uint16_t(tensor));
      const bool is_own = !is_wrong_ && tensor < num_written_;
      program_.tile(program_.axis_of(is_own ? i : k));
    }
  }

  std::mt19937_64 random_;
  assembler::Assembler program_;
  int64_t num_tiles_;
  int num_written_ = 1;
  bool is_wrong_ = false;
};

/// Every way of running gives what one worker gives.
void check_phases(uint64_t seed, uint32_t rounds) {
  const Phases phases(seed);
  const std::vector<uint8_t> bytes = phases.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  mix::stamps().reset(0);
  std::vector<Tensor> expected = phases.tensors();
  sched::RunOptions options;
  options.workers = 1;
  const uint64_t num_tasks = executable.run(to_arrays(expected), {}, options).tasks;
  for (uint32_t round = 0; round < rounds; ++round) {
    options = any_options(seed * 64 + round);
    std::vector<Tensor> found = phases.tensors();
    CHECK_EQ(executable.run(to_arrays(found), {}, options).tasks, num_tasks);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == expected[i].data);
  }
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

/// Calls `check` with one seed after the other for so many seconds, or with the one that is chosen.
void for_seeds(int seconds, const std::function<void(uint64_t)>& check) {
  const char* chosen = std::getenv("PTO_WSP_SEED");
  if (chosen != nullptr) return check(std::strtoull(chosen, nullptr, 10));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  uint64_t seed = 1;
  for (; std::chrono::steady_clock::now() < end; ++seed) check(seed);
  std::printf("  %llu workloads\n", static_cast<unsigned long long>(seed - 1));
}

}  // namespace

TEST(any_dispatchers_windows_and_owners_keep_every_order) {
  for_seeds(4, [](uint64_t seed) { check_workload(seed, seed % 8 == 0 ? 800 : 150, 6); });
}

TEST(units_that_are_passed_over_keep_every_order) {
  for_seeds(4, [](uint64_t seed) { check_phases(seed, 12); });
}

}  // namespace test_dispatchers
