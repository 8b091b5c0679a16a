// SPDX-License-Identifier: MIT
/// \file
/// Random programs without a meaning of their own: nests of loops over affine regions, partitions that data
/// decides, and phases of independent iterations. Tests compare two ways of running or analysing them.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "assembler.hpp"
#include "check.hpp"
#include "choices.hpp"
#include "mix_kernels.hpp"
#include "random_program.hpp"

namespace random_loops {

using namespace assembler;

/// What the generators share.
class Loops {
 public:
  std::vector<uint8_t> bytes() const { return program_.bytes(); }
  const std::vector<std::vector<int64_t>>& shapes() const { return shapes_; }

 protected:
  explicit Loops(uint64_t seed) : choices_(seed), program_(mix::library().table()) {}

  int pick(int64_t lo, int64_t hi) { return int(choices_.pick(lo, hi)); }

  void add_tensor(uint16_t number, DType dtype, const std::vector<int64_t>& shape, bool is_written) {
    CHECK_EQ(number, program_.tensor(dtype, shape, is_written));
    shapes_.push_back(shape);
  }

  void finish() const { choices::note_program(program_.bytes()); }

  choices::Choices choices_;
  Assembler program_;
  std::vector<std::vector<int64_t>> shapes_;
};

/// Regions are affine: tiles, strided slices, windows that overlap. Bounds and conditions depend on the loops
/// around.
class Nest : public Loops {
 public:
  /// With `room` elements around what regions reach.
  explicit Nest(uint64_t seed, int64_t room = 0) : Loops(seed), room_(room) {
    for (int i = pick(1, 3); i > 0; --i) shapes_.push_back(std::vector<int64_t>(size_t(pick(1, 2)), 1));
    for (int i = pick(1, 2); i > 0; --i) add_loop();
    for (std::vector<int64_t>& shape : shapes_) {
      for (int64_t& size : shape) size += room_;
      program_.tensor(DType::u64, shape);
    }
    finish();
  }

 private:
  struct Loop {
    uint32_t reg;
    int64_t trips;
    int64_t tile;  ///< 0: none
    int64_t extent;
  };

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
      chosen.push_back(uint16_t(pick(0, int(shapes_.size()) - 1)));
      rank = std::min(rank, shapes_[chosen.back()].size());
    }
    program_.task(uint16_t(pattern * 3 + rank - 1));
    for (size_t i = 0; i < chosen.size(); ++i) {
      program_.io(mix::patterns()[pattern][i], chosen[i]);
      std::vector<int64_t>& shape = shapes_[chosen[i]];
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

  int64_t room_;
  std::vector<Loop> loops_;
};

/// Partitions that data decides: each iteration of a P loop writes a part of its own, and nothing else. So
/// iterations are independent, and as good as every change of a region makes them dependent.
///
/// Parts are ragged (from one offset up to the next), single elements (in an order that an array says), or
/// rows of a row set. Offsets and places are elements of arrays that are given, or that tasks write.
class Parts : public Loops {
 public:
  explicit Parts(uint64_t seed) : Loops(seed) {
    num_parts_ = pick(2, 6);
    is_written_ = pick(0, 1) == 0;
    offsets_ = {1};  // everything has room before and after
    for (int64_t part = 0; part < num_parts_; ++part) offsets_.push_back(offsets_.back() + pick(0, 3));
    places_.resize(size_t(num_parts_));
    std::iota(places_.begin(), places_.end(), 1);
    choices_.shuffle(places_);
    rows_.resize(size_t(num_parts_ * kPartRows + 2));
    std::iota(rows_.begin(), rows_.end(), 0);
    choices_.shuffle(rows_);
    const auto num_rows = int64_t(rows_.size());
    add_tensor(kOffsets, DType::u64, {num_parts_ + 1}, is_written_);
    add_tensor(kPlaces, DType::u64, {num_parts_}, is_written_);
    add_tensor(kRows, DType::i32, {num_rows, 1}, false);
    add_tensor(kRagged, DType::u64, {offsets_.back() + 1}, true);
    add_tensor(kSingle, DType::u64, {num_parts_ + 2}, true);
    add_tensor(kByRows, DType::u64, {num_rows, pick(1, 3)}, true);
    add_tensor(kRead, DType::u64, {3}, false);
    if (is_written_) add_writers();
    const int num_rounds = pick(1, 2);
    program_.loop(Op::RANGE_FOR, program_.constant(num_rounds));
    add_parts();
    program_.end();
    for (int round = 0; round < num_rounds; ++round) add_flushed();
    finish();
  }

  /// The data of the arrays that decide.
  std::vector<char*> bases() {
    return {reinterpret_cast<char*>(offsets_.data()), reinterpret_cast<char*>(places_.data()),
            reinterpret_cast<char*>(rows_.data())};
  }
  /// What flush points read, in program order.
  const std::vector<int64_t>& flushed() const { return flushed_; }

 private:
  enum : uint16_t { kOffsets, kPlaces, kRows, kRagged, kSingle, kByRows, kRead };
  static constexpr int64_t kPartRows = 2;

  void add_writers() {
    for (const uint16_t tensor : {kOffsets, kPlaces}) {
      begin_task({Role::out}, 1);
      program_.io(Role::out, tensor);
      program_.full();
    }
  }

  void add_flushed() {
    for (size_t part = 0; part < size_t(num_parts_) && is_written_; ++part)
      flushed_.insert(flushed_.end(), {offsets_[part], offsets_[part + 1], places_[part]});
  }

  void add_parts() {
    const uint16_t begin = program_.variable(), end = program_.variable(), place = program_.variable();
    const Expr i = Assembler::reg(program_.loop(Op::PARALLEL_FOR, program_.constant(num_parts_)));
    program_.set(begin, Assembler::element(kOffsets, {i}));
    program_.set(end, Assembler::element(kOffsets, {program_.add(i, program_.constant(1))}));
    program_.set(place, Assembler::element(kPlaces, {i}));
    const Expr length = Assembler::apply(Op::EXPR_SUB, {Assembler::reg(end), Assembler::reg(begin)});
    const Expr first_row = program_.add(program_.mul(i, program_.constant(kPartRows)), program_.constant(1));
    for (int n = pick(1, 3); n > 0; --n) {
      const int kind = pick(0, 2);
      const bool reads = pick(0, 1) == 0;
      begin_task(reads ? std::vector<Role>{Role::in, Role::inout} : std::vector<Role>{Role::out},
                 kind == 2 ? 2 : 1);
      if (reads) {
        program_.io(Role::in, kind == 2 ? kByRows : kRead);
        if (kind == 2) program_.rows(kRows, first_row, program_.constant(1));
        program_.full();
      }
      program_.io(reads ? Role::inout : Role::out, uint16_t(kRagged + kind));
      if (kind == 0) program_.range(Assembler::reg(begin), length);
      if (kind == 1) program_.range(Assembler::reg(place), program_.constant(1));
      if (kind != 2) continue;
      program_.rows(kRows, first_row, program_.constant(pick(1, kPartRows)));
      program_.full();
    }
    program_.end();
  }

  /// Begins a task of the kernel that has these roles, for views of `rank` dimensions.
  void begin_task(const std::vector<Role>& roles, int rank) {
    const auto& patterns = mix::patterns();
    const auto found = std::find(patterns.begin(), patterns.end(), roles);
    program_.task(uint16_t((found - patterns.begin()) * 3 + rank - 1));
  }

  int64_t num_parts_ = 0;
  bool is_written_ = false;
  std::vector<int64_t> offsets_, places_;
  std::vector<int32_t> rows_;
  std::vector<int64_t> flushed_;
};

/// Phases of loops whose iterations are independent: iteration i writes the tiles i of some tensors, and
/// reads them and any tile of the others. So dispatchers pass over the units of others, and meet what they
/// wrote.
class Phases : public Loops {
 public:
  explicit Phases(uint64_t seed) : Loops(seed) {
    num_tiles_ = pick(5, 40);
    for (int i = 0; i < kTensors; ++i) add_tensor(uint16_t(i), DType::u64, {num_tiles_ * kTile}, true);
    const int outer = pick(0, 3);
    if (outer > 0) program_.loop(outer == 1 ? Op::FOR_EACH : Op::RANGE_FOR, count(pick(1, 4)));
    for (int i = pick(1, 4); i > 0; --i) add_phase();
    if (outer > 0) program_.end();
    finish();
  }

  std::vector<random_workload::Tensor> tensors() const {
    random_workload::Tensor tensor{
        {num_tiles_ * kTile}, {1}, std::vector<uint64_t>(size_t(num_tiles_ * kTile))};
    for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = mix::scramble(i + 1);
    return std::vector<random_workload::Tensor>(kTensors, tensor);
  }

 private:
  static constexpr int kTensors = 5;
  static constexpr int64_t kTile = 2;

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

  int64_t num_tiles_;
  int num_written_ = 1;
  bool is_wrong_ = false;
};

}  // namespace random_loops
