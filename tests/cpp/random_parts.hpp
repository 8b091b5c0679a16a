// SPDX-License-Identifier: MIT
/// \file
/// Random partitions that data decides: each iteration of a P loop writes a part of its own, and no element
/// that is none of its business. So iterations are independent, and as good as every change of a region is
/// not.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "assembler.hpp"
#include "check.hpp"
#include "mix_kernels.hpp"

namespace random_parts {

using namespace assembler;

/// Parts are ragged (from one offset up to the next), single elements (in an order that an array says), or
/// rows of a row set. Offsets and places are elements of arrays that are given, or that tasks write.
class Workload {
 public:
  explicit Workload(uint64_t seed) : random_(seed), program_(mix::library().table()) {
    num_parts_ = pick(2, 6);
    is_written_ = pick(0, 1) == 0;
    offsets_ = {1};  // everything has room before and behind
    for (int64_t part = 0; part < num_parts_; ++part) offsets_.push_back(offsets_.back() + pick(0, 3));
    places_.resize(size_t(num_parts_));
    std::iota(places_.begin(), places_.end(), 1);
    std::shuffle(places_.begin(), places_.end(), random_);
    rows_.resize(size_t(num_parts_ * kPartRows + 2));
    std::iota(rows_.begin(), rows_.end(), 0);
    std::shuffle(rows_.begin(), rows_.end(), random_);
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
  }

  std::vector<uint8_t> bytes() const { return program_.bytes(); }
  const std::vector<std::vector<int64_t>>& shapes() const { return shapes_; }
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

  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random_); }

  void add_tensor(uint16_t number, DType dtype, const std::vector<int64_t>& shape, bool is_written) {
    CHECK_EQ(number, program_.tensor(dtype, shape, is_written));
    shapes_.push_back(shape);
  }

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

  /// Begins a task of the kernel that has these roles, for views of so many dimensions.
  void begin_task(const std::vector<Role>& roles, int rank) {
    const auto& patterns = mix::patterns();
    const auto found = std::find(patterns.begin(), patterns.end(), roles);
    program_.task(uint16_t((found - patterns.begin()) * 3 + rank - 1));
  }

  std::mt19937_64 random_;
  Assembler program_;
  int64_t num_parts_ = 0;
  bool is_written_ = false;
  std::vector<int64_t> offsets_, places_;
  std::vector<int32_t> rows_;
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<int64_t> flushed_;
};

}  // namespace random_parts
