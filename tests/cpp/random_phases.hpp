// SPDX-License-Identifier: MIT
/// \file
/// Random phases of loops whose iterations are independent: what dispatchers pass over.
#pragma once

#include <random>
#include <vector>

#include "random_program.hpp"

namespace random_phases {

using namespace assembler;

/// Phases of loops whose iterations are independent: iteration i writes the tiles i of some tensors, and
/// reads them and any tile of the others. So dispatchers pass over the units of others, and meet what they
/// wrote.
class Workload {
 public:
  explicit Workload(uint64_t seed) : random_(seed), program_(mix::library().table()) {
    num_tiles_ = pick(5, 40);
    for (int i = 0; i < kTensors; ++i) program_.tensor(DType::u64, {num_tiles_ * kTile});
    const int outer = pick(0, 3);
    if (outer > 0) program_.loop(outer == 1 ? Op::FOR_EACH : Op::RANGE_FOR, count(pick(1, 4)));
    for (int i = pick(1, 4); i > 0; --i) add_phase();
    if (outer > 0) program_.end();
  }

  std::vector<uint8_t> bytes() const { return program_.bytes(); }
  std::vector<random_workload::Tensor> tensors() const {
    random_workload::Tensor tensor{
        {num_tiles_ * kTile}, {1}, std::vector<uint64_t>(size_t(num_tiles_ * kTile))};
    for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = mix::scramble(i + 1);
    return std::vector<random_workload::Tensor>(kTensors, tensor);
  }

 private:
  static constexpr int kTensors = 5;
  static constexpr int64_t kTile = 2;

  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random_); }
  Expr count(int64_t n) { return program_.constant(n); }

  void add_phase() {
    num_written_ = pick(1, kTensors - 1);
    // Seldom a statement that is false: then iterations are ordered one task after the other.
    is_wrong_ = pick(0, 5) == 0;
    const uint32_t i = program_.tiles(Op::PARALLEL_FOR, count(num_tiles_ * kTile), count(kTile));
    for (int n = pick(1, 4); n > 0; --n) add_task(i, i);
    if (pick(0, 2) == 0) {
      program_.cond(program_.apply(Op::EXPR_MOD, {program_.reg(i), count(2)}));
      add_task(i, i);
      program_.end_cond();
    }
    if (pick(0, 1) == 0) {
      const auto extent = pick(0, 1) == 0 ? count(pick(0, int(num_tiles_)) * kTile)
                                          : program_.mul(program_.reg(i), count(kTile));
      const uint32_t k = program_.tiles(Op::RANGE_FOR, extent, count(kTile));
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
  Assembler program_;
  int64_t num_tiles_;
  int num_written_ = 1;
  bool is_wrong_ = false;
};

}  // namespace random_phases
