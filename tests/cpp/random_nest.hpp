// SPDX-License-Identifier: MIT
/// \file
/// Random nests of loops over affine regions: tiles, strided slices, windows that overlap, bounds and
/// conditions that depend on the loops around.
#pragma once

#include <random>
#include <vector>

#include "assembler.hpp"
#include "mix_kernels.hpp"

namespace random_nest {

using namespace assembler;

class Workload {
 public:
  /// With so many elements of room around what regions reach.
  explicit Workload(uint64_t seed, int64_t room = 0)
      : random_(seed), program_(mix::library().table()), room_(room) {
    for (int i = pick(1, 3); i > 0; --i) tensors_.push_back(std::vector<int64_t>(size_t(pick(1, 2)), 1));
    for (int i = pick(1, 2); i > 0; --i) add_loop();
    for (std::vector<int64_t>& shape : tensors_) {
      for (int64_t& size : shape) size += room_;
      program_.tensor(DType::u64, shape);
    }
  }

  std::vector<uint8_t> bytes() const { return program_.bytes(); }
  const std::vector<std::vector<int64_t>>& shapes() const { return tensors_; }

 private:
  struct Loop {
    uint32_t reg;
    int64_t trips;
    int64_t tile;  ///< 0: none
    int64_t extent;
  };

  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random_); }

  void add_loop() {
    const Op ops[] = {Op::PARALLEL_FOR, Op::PARALLEL_FOR, Op::RANGE_FOR, Op::FOR_EACH};
    Loop loop{0, pick(1, 5), pick(0, 2) == 0 ? pick(1, 4) : 0, 0};
    loop.extent = loop.tile == 0 ? loop.trips : loop.trips * loop.tile - pick(0, int(loop.tile) - 1);
    Expr extent = program_.constant(loop.extent);
    if (!loops_.empty() && pick(0, 4) == 0)
      extent = program_.apply(Op::EXPR_MIN,
                              {extent, program_.reg(loops_[size_t(pick(0, int(loops_.size()) - 1))].reg)});
    const Op op = ops[pick(0, 3)];
    loop.reg =
        loop.tile == 0 ? program_.loop(op, extent) : program_.tiles(op, extent, program_.constant(loop.tile));
    loops_.push_back(loop);
    for (int i = pick(1, 2); i > 0; --i) add_statement();
    loops_.pop_back();
    program_.end();
  }

  void add_statement() {
    if (loops_.size() < 3 && pick(0, 1) == 0) {
      add_loop();
    } else if (pick(0, 5) == 0) {
      const Expr reg = program_.reg(loops_[size_t(pick(0, int(loops_.size()) - 1))].reg);
      program_.cond(program_.apply(Op::EXPR_LT, {reg, program_.constant(pick(1, 3))}));
      add_task();
      if (pick(0, 1) == 0) program_.otherwise(), add_task();
      program_.end_cond();
    } else {
      add_task();
    }
  }

  void add_task() {
    const auto pattern = uint16_t(pick(0, int(mix::patterns().size()) - 1));
    std::vector<uint16_t> chosen;
    size_t rank = 2;
    for (size_t i = 0; i < mix::patterns()[pattern].size(); ++i) {
      chosen.push_back(uint16_t(pick(0, int(tensors_.size()) - 1)));
      rank = std::min(rank, tensors_[chosen.back()].size());
    }
    program_.task(uint16_t(pattern * 3 + rank - 1));
    for (size_t i = 0; i < chosen.size(); ++i) {
      program_.io(mix::patterns()[pattern][i], chosen[i]);
      std::vector<int64_t>& shape = tensors_[chosen[i]];
      const bool drops = shape.size() > rank;
      for (size_t d = 0; d < shape.size(); ++d) add_dim(shape[d], drops && d == 0);
    }
  }

  void add_dim(int64_t& size, bool drops) {
    const Loop& loop = loops_[size_t(pick(0, int(loops_.size()) - 1))];
    if (!drops && loop.tile != 0 && pick(0, 2) != 0) {
      size = std::max(size, loop.extent);
      return program_.tile(program_.axis_of(loop.reg));
    }
    const int64_t extent = drops ? 1 : pick(1, 4);
    Expr start = program_.constant(pick(0, 3) + room_);
    int64_t end = program_.constant_at(start[0].operand2) + extent;
    int64_t coef = pick(0, 1) == 0 ? extent : pick(0, 4);
    for (size_t i = loops_.size(); i-- > 0;) {
      if (pick(0, 2) == 0) continue;
      start = program_.add(start, program_.mul(program_.reg(loops_[i].reg), program_.constant(coef)));
      end += coef * (loops_[i].trips - 1);
      coef = pick(0, 2) != 0 ? coef * loops_[i].trips : pick(0, 6);
    }
    size = std::max(size, end);
    if (drops) return program_.index(start);
    program_.range(start, program_.constant(extent));
  }

  std::mt19937_64 random_;
  Assembler program_;
  int64_t room_;
  std::vector<std::vector<int64_t>> tensors_;
  std::vector<Loop> loops_;
};

}  // namespace random_nest
