// SPDX-License-Identifier: MIT
/// \file
/// A library of one kernel, and programs of its tasks.
#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "pto/wsp/engine.hpp"

namespace kernels {

using namespace pto::wsp;
using assembler::Assembler;
using bytecode::Op;

/// A kernel that takes one element of an array of i64, or nothing.
class Library {
 public:
  Library(KernelFn kernel, bool has_array, int block_dim = 1)
      : kernel_{"kernel",
                kernel,
                has_array ? &kElement : nullptr,
                uint16_t(has_array ? 1 : 0),
                0,
                64,
                uint32_t(block_dim),
                Unit::any,
                {}} {}
  Library(const Library&) = delete;

  const KernelLibrary& table() const { return table_; }
  std::shared_ptr<const KernelLibrary> shared() const { return {std::shared_ptr<void>(), &table_}; }

 private:
  static constexpr ParamInfo kElement{Role::inout, DType::i64, 1, 0, {0, 0, 0, 0}, {64, 0, 0, 0}};

  KernelInfo kernel_;
  KernelLibrary table_{kAbiVersion, 1, 77, &kernel_};
};

/// for i < repeat: P over j < extent, the size of X if that is an array: kernel(X[j])
inline std::vector<uint8_t> loops(const Library& library, int64_t repeat, int64_t extent, bool has_array) {
  Assembler program(library.table());
  if (has_array) program.tensor(DType::i64, {extent});
  program.loop(Op::RANGE_FOR, program.constant(repeat));
  const uint32_t j = program.loop(Op::PARALLEL_FOR, program.constant(extent));
  program.task(0);
  if (has_array) {
    program.io(Role::inout, 0);
    program.range(Assembler::reg(j), program.constant(1));
  }
  program.end();
  program.end();
  return program.bytes();
}

inline Executable load(const Library& library, const std::vector<uint8_t>& bytes) {
  return Executable(bytes.data(), bytes.size(), library.shared());
}

/// Ends all threads of the pool, which has nothing to do.
inline void end_pool_threads() {
  sched::Pool& pool = sched::Pool::instance();
  pool.set_idle_limit(std::chrono::milliseconds(1));
  for (int round = 0; pool.num_threads() > 0; ++round) {
    CHECK(round < 1000);
    for (int i = 0; i < 8; ++i) pool.wake();  // those that sleep already have the old limit
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  pool.set_idle_limit(std::chrono::seconds(30));
}

inline sched::RunOptions with_workers(uint32_t workers) {
  sched::RunOptions options;
  options.workers = workers;
  return options;
}

}  // namespace kernels
