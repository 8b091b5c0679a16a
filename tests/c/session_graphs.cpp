// SPDX-License-Identifier: MIT
/// \file
/// The programs of session_graphs.h, built as those that `Program.export` writes.
#include "session_graphs.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "../cpp/assembler.hpp"
#include "pto/wsp/host/session.hpp"

namespace {

using namespace pto::wsp;
using assembler::Assembler;
using bytecode::Op;

std::atomic<bool> is_held{false}, fails{false};
std::atomic<uint32_t> num_tasks{0};

/// Waits at random, or as the test says. Returns the number of a check that failed, or 0.
int32_t begin(uint32_t read) {
  if (num_tasks++ * 2654435761u % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  while (read == HELD && is_held) std::this_thread::sleep_for(std::chrono::microseconds(100));
  return read == HELD && fails ? 7 : 0;
}

uint32_t& element(const View& view) { return *static_cast<uint32_t*>(view.data); }

int32_t copy(const View* views, const Scalar*, const TaskContext*) {
  const int32_t failed = begin(element(views[0]));
  if (failed == 0) element(views[1]) = 3 * element(views[0]) + 1;
  return failed;
}

int32_t mix(const View* views, const Scalar*, const TaskContext*) {
  const int32_t failed = begin(element(views[0]));
  if (failed == 0) element(views[1]) = 5 * element(views[1]) + element(views[0]);
  return failed;
}

int32_t change(const View* views, const Scalar*, const TaskContext*) {
  element(views[0]) = 3 * element(views[0]) + 1;
  return 0;
}

constexpr ParamInfo parameter(Role role) { return {role, DType::u32, 1, 0, {0, 0, 0, 0}, {64, 0, 0, 0}}; }
const ParamInfo copied[] = {parameter(Role::in), parameter(Role::out)};
const ParamInfo mixed[] = {parameter(Role::in), parameter(Role::inout)};
const KernelInfo kernels[] = {{"copy", copy, copied, 2, 0, 64, 1, Unit::any, {}},
                              {"mix", mix, mixed, 2, 0, 64, 1, Unit::any, {}},
                              {"change", change, mixed + 1, 1, 0, 64, 1, Unit::any, {}}};
const KernelLibrary table{kAbiVersion, 3, 5, kernels};

/// P over i: kernel(X[i], Y[i])
std::vector<uint8_t> pairs(uint16_t kernel) {
  Assembler program(table);
  program.tensor(DType::u32, {SIZE}, false);
  program.tensor(DType::u32, {SIZE});
  const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(SIZE));
  program.task(kernel);
  for (const uint16_t tensor : {uint16_t(0), uint16_t(1)}) {
    program.io(kernels[kernel].params[tensor].role, tensor);
    program.range(Assembler::reg(i), program.constant(1));
  }
  program.end();
  return program.bytes();
}

/// P over r: for i < offsets[r + 1] - offsets[r]: change(Y[offsets[r] + i])
std::vector<uint8_t> ragged_rows() {
  Assembler program(table);
  const uint32_t rows = program.size_symbol(), num_offsets = program.size_symbol();
  const auto dim = [](uint32_t symbol) { return -1 - int64_t(symbol); };
  const uint16_t offsets = program.tensor(DType::i64, {dim(num_offsets)}, false);
  const uint16_t y = program.tensor(DType::u32, {SIZE});
  const uint32_t r = program.loop(Op::PARALLEL_FOR, Assembler::symbol(rows));
  const auto next = Assembler::add(Assembler::reg(r), program.constant(1));
  const auto first = Assembler::element(offsets, {Assembler::reg(r)});
  const auto length = Assembler::apply(Op::EXPR_SUB, {Assembler::element(offsets, {next}), first});
  const uint32_t i = program.loop(Op::RANGE_FOR, length);
  program.task(2);
  program.io(Role::inout, y);
  program.range(Assembler::add(first, Assembler::reg(i)), program.constant(1));
  program.end();
  program.end();
  return program.bytes();
}

host::Program named(const char* name, const std::vector<uint8_t>& bytes) {
  host::Program program{};
  program.name = name;
  program.bytecode = bytes.data();
  program.bytecode_size = bytes.size();
  program.tensors = {{"X", host::TensorKind::kArray, true}, {"Y", host::TensorKind::kArray, true}};
  program.checks = {{"copy", 7, "a number is held", "", 0, {}}};
  program.derive = [](host::Values&) {};
  return program;
}

host::Callable& copying_callable() {
  static const std::vector<uint8_t> bytes = pairs(0);
  static host::Callable callable{named("copying", bytes)};
  return callable;
}

host::Callable& mixing_callable() {
  static const std::vector<uint8_t> bytes = pairs(1);
  static host::Callable callable{named("mixing", bytes)};
  return callable;
}

host::Callable& rows_callable() {
  static const std::vector<uint8_t> bytes = ragged_rows();
  static host::Callable callable{[] {
    host::Program program = named("rows", bytes);
    program.symbols = {{"rows", std::nullopt}, {"offsets.count", std::nullopt, true}};
    program.tensors[0] = {"offsets", host::TensorKind::kOffsets, true, 0};
    return program;
  }()};
  return callable;
}

host::Given given(const pair_arguments* arguments) {
  return {{}, {arguments->X, arguments->Y}, arguments->workers};
}

}  // namespace

extern "C" const KernelLibrary* pto_wsp_kernel_library() { return &table; }

void hold(int is_on) { is_held = is_on != 0; }
void fail(int is_on) { fails = is_on != 0; }

const char* copying(const pair_arguments* arguments) {
  return host::call(copying_callable(), given(arguments));
}
const char* copying_launch(PTOSession* session, const pair_arguments* arguments, const PTOGraph* graph,
                           PTOLaunch** launch) {
  return host::launch(copying_callable(), given(arguments), session, graph, launch);
}
const char* copying_graph(PTOSession* session, const char* title, PTOGraph** graph) {
  return host::make_graph(copying_callable(), session, title, graph);
}

const char* mixing(const pair_arguments* arguments) {
  return host::call(mixing_callable(), given(arguments));
}
const char* mixing_launch(PTOSession* session, const pair_arguments* arguments, const PTOGraph* graph,
                          PTOLaunch** launch) {
  return host::launch(mixing_callable(), given(arguments), session, graph, launch);
}
const char* mixing_graph(PTOSession* session, const char* title, PTOGraph** graph) {
  return host::make_graph(mixing_callable(), session, title, graph);
}

const char* rows_launch(PTOSession* session, const rows_arguments* arguments, const PTOGraph* graph,
                        PTOLaunch** launch) {
  host::Given given{{arguments->rows, std::nullopt}, {arguments->offsets, arguments->Y}, 2};
  return host::launch(rows_callable(), std::move(given), session, graph, launch);
}
