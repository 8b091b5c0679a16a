// SPDX-License-Identifier: MIT
/// \file
/// Large graphs of the simplest kinds: a chain, tasks that do not know each other, readers of one element
/// between its writers, and a wavefront. However they are run, the stack does not grow with them, and nothing
/// stalls.
#include <pthread.h>

#include <functional>

#include "assembler.hpp"
#include "check.hpp"
#include "pto/wsp/engine.hpp"

namespace test_scale {

using namespace pto::wsp;
using assembler::Assembler;
using bytecode::Op;

namespace {

uint64_t& first_of(const View& view) { return *static_cast<uint64_t*>(view.data); }

int32_t count_up(const View* views, const Scalar*, const TaskContext*) {
  ++first_of(views[0]);
  return 0;
}

int32_t copy(const View* views, const Scalar*, const TaskContext*) {
  first_of(views[1]) = first_of(views[0]);
  return 0;
}

int32_t add(const View* views, const Scalar*, const TaskContext*) {
  first_of(views[2]) = first_of(views[0]) * 3 + first_of(views[1]);
  return 0;
}

constexpr ParamInfo param(Role role) { return {role, DType::u64, 2, 0, {}, {1, 1, 1, 1}}; }
const ParamInfo kParams[] = {param(Role::in), param(Role::in), param(Role::out), param(Role::inout)};
const KernelInfo kKernels[] = {{"count_up", count_up, kParams + 3, 1, 0, 0, 1, Unit::any, {}},
                               {"copy", copy, kParams + 1, 2, 0, 0, 1, Unit::any, {}},
                               {"add", add, kParams, 3, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 3, 42, kKernels};

void element(Assembler& program, Role role, uint16_t tensor, const assembler::Expr& row,
             const assembler::Expr& column) {
  program.io(role, tensor);
  program.range(row, program.constant(1));
  program.range(column, program.constant(1));
}

struct Graph {
  std::vector<uint8_t> bytes;
  std::vector<std::vector<int64_t>> shapes;
  std::function<void(const std::vector<std::vector<uint64_t>>&)> check;  ///< tensors begin as zeros
};

Graph chain(int64_t n) {
  Assembler program(kTable);
  program.tensor(DType::u64, {1, 1});
  program.loop(Op::RANGE_FOR, program.constant(n));
  program.task(0);
  element(program, Role::inout, 0, program.constant(0), program.constant(0));
  program.end();
  return {program.bytes(), {{1, 1}}, [n](const auto& tensors) { CHECK_EQ(tensors[0][0], uint64_t(n)); }};
}

Graph independent(int64_t n) {
  Assembler program(kTable);
  program.tensor(DType::u64, {n, 1});
  const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(n));
  program.task(0);
  element(program, Role::inout, 0, program.reg(i), program.constant(0));
  program.end();
  return {program.bytes(), {{n, 1}}, [](const auto& tensors) {
            for (const uint64_t x : tensors[0]) CHECK_EQ(x, 1u);
          }};
}

Graph fan(int64_t n) {
  Assembler program(kTable);
  program.tensor(DType::u64, {1, 1});
  program.tensor(DType::u64, {n, 1});
  program.loop(Op::RANGE_FOR, program.constant(3));
  program.task(0);
  element(program, Role::inout, 0, program.constant(0), program.constant(0));
  const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(n));
  program.task(1);
  element(program, Role::in, 0, program.constant(0), program.constant(0));
  element(program, Role::out, 1, program.reg(i), program.constant(0));
  program.end();
  program.end();
  return {program.bytes(), {{1, 1}, {n, 1}}, [](const auto& tensors) {
            for (const uint64_t x : tensors[1]) CHECK_EQ(x, 3u);
          }};
}

Graph wavefront(int64_t n) {
  Assembler program(kTable);
  program.tensor(DType::u64, {n + 1, n + 1});
  program.task(0);
  element(program, Role::inout, 0, program.constant(0), program.constant(1));
  const uint32_t i = program.loop(Op::RANGE_FOR, program.constant(n));
  const uint32_t j = program.loop(Op::RANGE_FOR, program.constant(n));
  const auto next = [&](uint32_t reg) { return Assembler::add(program.reg(reg), program.constant(1)); };
  program.task(2);
  element(program, Role::in, 0, program.reg(i), next(j));
  element(program, Role::in, 0, next(i), program.reg(j));
  element(program, Role::out, 0, next(i), next(j));
  program.end();
  program.end();
  return {program.bytes(), {{n + 1, n + 1}}, [n](const auto& tensors) {
            std::vector<uint64_t> expected(size_t(n) + 1, 0);
            expected[1] = 1;
            for (int64_t row = 0; row < n; ++row) {
              expected[0] = 0;
              for (size_t k = 1; k < expected.size(); ++k) expected[k] = expected[k] * 3 + expected[k - 1];
            }
            for (size_t k = 0; k < expected.size(); ++k)
              CHECK_EQ(tensors[0][size_t(n) * expected.size() + k], expected[k]);
          }};
}

void run(const Graph& graph, const sched::RunOptions& options) {
  Executable executable(graph.bytes.data(), graph.bytes.size(),
                        std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  std::vector<std::vector<uint64_t>> tensors;
  std::vector<bind::ArrayRef> arrays;
  for (const std::vector<int64_t>& shape : graph.shapes)
    tensors.emplace_back(size_t(shape[0] * shape[1]), uint64_t{0});
  for (size_t i = 0; i < tensors.size(); ++i) {
    bind::ArrayRef ref;
    ref.data = tensors[i].data();
    ref.dtype = DType::u64;
    ref.rank = 2;
    for (int d = 0; d < 2; ++d) ref.shape[d] = graph.shapes[i][size_t(d)];
    ref.stride_bytes[0] = ref.shape[1] * 8;
    ref.stride_bytes[1] = 8;
    arrays.push_back(ref);
  }
  executable.run(arrays, {}, options);
  graph.check(tensors);
}

/// In program order, by hazards, on two threads, through a small window, and as a graph that is built first.
std::vector<sched::RunOptions> ways() {
  std::vector<sched::RunOptions> ways(5);
  for (sched::RunOptions& options : ways) options.workers = 2;
  ways[0].workers = ways[1].workers = 1;
  for (size_t i = 1; i < 4; ++i) ways[i].tracks = true;
  ways[3].window = 64;
  ways[4].start = sched::Start::kAfterBuild;
  return ways;
}

/// Calls `body` on a thread with a stack of 1 MB.
void call_with_small_stack(std::function<void()> body) {
  pthread_attr_t attributes;
  CHECK_EQ(pthread_attr_init(&attributes), 0);
  CHECK_EQ(pthread_attr_setstacksize(&attributes, 1 << 20), 0);
  const auto start = [](void* function) -> void* {
    (*static_cast<std::function<void()>*>(function))();
    return nullptr;
  };
  pthread_t thread;
  CHECK_EQ(pthread_create(&thread, &attributes, start, &body), 0);
  CHECK_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

}  // namespace

TEST(large_graphs_need_neither_stack_nor_luck) {
  call_with_small_stack([] {
    for (const Graph& graph : {chain(200000), independent(200000), fan(50000), wavefront(300)}) {
      for (const sched::RunOptions& options : ways()) run(graph, options);
    }
  });
}

}  // namespace test_scale
