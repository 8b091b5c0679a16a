// SPDX-License-Identifier: MIT
/// \file
/// What both sides of the seam between Python and C++ name: the numbers of the format, and the options of a
/// run.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "pto/wsp/bytecode/format.hpp"
#include "pto/wsp/sched/options.hpp"

namespace nb = nanobind;
using namespace pto::wsp;

namespace {

nb::dict opcodes() {
  using bytecode::Op;
  nb::dict codes;
#define PTO_OP(name) codes[#name] = int(Op::name)
  PTO_OP(HALT);
  PTO_OP(NOP);
  PTO_OP(PARALLEL_FOR);
  PTO_OP(FOR_EACH);
  PTO_OP(RANGE_FOR);
  PTO_OP(COND);
  PTO_OP(END_LOOP);
  PTO_OP(ELSE);
  PTO_OP(END_COND);
  PTO_OP(SET);
  PTO_OP(FAIL);
  PTO_OP(PROCESS);
  PTO_OP(END_PROCESS);
  PTO_OP(SEND);
  PTO_OP(END_SEND);
  PTO_OP(RECEIVE);
  PTO_OP(END_RECEIVE);
  PTO_OP(RECEIVE_EACH);
  PTO_OP(WAIT);
  PTO_OP(TASK);
  PTO_OP(PARAM_CONST);
  PTO_OP(PARAM_LOOPVAR);
  PTO_OP(PARAM_SYMBOL);
  PTO_OP(PARAM_EXPR);
  PTO_OP(IO_INPUT);
  PTO_OP(IO_OUTPUT);
  PTO_OP(IO_INOUT);
  PTO_OP(DIM_INDEX);
  PTO_OP(DIM_RANGE);
  PTO_OP(DIM_EXTENT);
  PTO_OP(DIM_TILE);
  PTO_OP(DIM_FULL);
  PTO_OP(DIM_ROWS);
  PTO_OP(DIM_MERGED);
  PTO_OP(AFTER);
  PTO_OP(WORKSPACE);
  PTO_OP(COST);
  PTO_OP(KEY);
  PTO_OP(ORDER);
  PTO_OP(STREAM);
  PTO_OP(POOL);
  PTO_OP(TURN);
  PTO_OP(ADMIT);
  PTO_OP(GROUP);
  PTO_OP(PREFETCH);
  PTO_OP(EXPR_END);
  PTO_OP(EXPR_CONST);
  PTO_OP(EXPR_REG);
  PTO_OP(EXPR_SYMBOL);
  PTO_OP(EXPR_ELEMENT);
  PTO_OP(EXPR_ADD);
  PTO_OP(EXPR_SUB);
  PTO_OP(EXPR_MUL);
  PTO_OP(EXPR_FLOORDIV);
  PTO_OP(EXPR_MOD);
  PTO_OP(EXPR_MIN);
  PTO_OP(EXPR_MAX);
  PTO_OP(EXPR_NEG);
  PTO_OP(EXPR_LT);
  PTO_OP(EXPR_LE);
  PTO_OP(EXPR_EQ);
  PTO_OP(EXPR_NE);
  PTO_OP(EXPR_AND);
  PTO_OP(EXPR_OR);
  PTO_OP(EXPR_NOT);
  PTO_OP(EXPR_SELECT);
  PTO_OP(EXPR_BITAND);
  PTO_OP(EXPR_BITOR);
  PTO_OP(EXPR_XOR);
  PTO_OP(EXPR_INVERT);
  PTO_OP(EXPR_SHL);
  PTO_OP(EXPR_SHR);
  PTO_OP(EXPR_BOOL);
  PTO_OP(EXPR_U64);
  PTO_OP(EXPR_F32);
  PTO_OP(EXPR_WITHIN);
#undef PTO_OP
  return codes;
}

void add_constants(nb::module_& module) {
  module.attr("ABI_VERSION") = kAbiVersion;
  module.attr("BYTECODE_VERSION") = bytecode::kVersion;
  nb::dict dtypes, roles, axis_kinds, symbol_kinds;
  const char* names[kNumDTypes] = {"f32", "f16", "bf16", "f64", "i8",  "i16", "i32",
                                   "i64", "u8",  "u16",  "u32", "u64", "b1"};
  for (int i = 0; i < kNumDTypes; ++i) dtypes[names[i]] = i;
  roles["in"] = int(Role::in);
  roles["out"] = int(Role::out);
  roles["inout"] = int(Role::inout);
  axis_kinds["DENSE"] = int(bytecode::AxisKind::DENSE);
  axis_kinds["TILES"] = int(bytecode::AxisKind::TILES);
  symbol_kinds["SIZE"] = int(bytecode::SymbolKind::SIZE);
  symbol_kinds["SCALAR"] = int(bytecode::SymbolKind::SCALAR);
  module.attr("DTYPES") = dtypes;
  module.attr("ROLES") = roles;
  module.attr("AXIS_KINDS") = axis_kinds;
  module.attr("SYMBOL_KINDS") = symbol_kinds;
  nb::dict channel_kinds;
  channel_kinds["NONE"] = int(bytecode::ChannelKind::NONE);
  channel_kinds["RING"] = int(bytecode::ChannelKind::RING);
  channel_kinds["RENDEZVOUS"] = int(bytecode::ChannelKind::RENDEZVOUS);
  module.attr("CHANNEL_KINDS") = channel_kinds;
  nb::dict merge_kinds;
  merge_kinds["TURNS"] = int(bytecode::MergeKind::TURNS);
  merge_kinds["TIME"] = int(bytecode::MergeKind::TIME);
  module.attr("MERGE_KINDS") = merge_kinds;
  module.attr("OPCODES") = opcodes();
}

void bind_options(nb::module_& module) {
  using sched::RunOptions;
  nb::enum_<sched::Ownership>(module, "Ownership")
      .value("CLAIM", sched::Ownership::kClaim)
      .value("ROUND_ROBIN", sched::Ownership::kRoundRobin)
      .value("KEY", sched::Ownership::kKey)
      .value("HASH", sched::Ownership::kHash)
      .value("PARTITION", sched::Ownership::kPartition);
  nb::enum_<sched::Streams>(module, "Streams")
      .value("OFF", sched::Streams::kOff)
      .value("IN_TURN", sched::Streams::kInTurn)
      .value("BY_KEY", sched::Streams::kByKey);
  nb::enum_<sched::Deps>(module, "Deps")
      .value("EXACT", sched::Deps::kExact)
      .value("BYTES", sched::Deps::kBytes)
      .value("TRUST", sched::Deps::kTrust)
      .value("NONE", sched::Deps::kNone);
  nb::enum_<sched::Waits>(module, "Waits")
      .value("MAPS", sched::Waits::kMaps)
      .value("SYMBOLIC", sched::Waits::kSymbolic);
  nb::enum_<sched::Ready>(module, "Ready")
      .value("OWN", sched::Ready::kOwn)
      .value("FIFO", sched::Ready::kFifo)
      .value("ORDERED", sched::Ready::kOrdered);
  nb::enum_<sched::WindowMode>(module, "WindowMode")
      .value("STALL", sched::WindowMode::kStall)
      .value("ABORT", sched::WindowMode::kAbort)
      .value("BENCHMARK", sched::WindowMode::kBenchmark);
  nb::enum_<sched::Start>(module, "Start")
      .value("IMMEDIATE", sched::Start::kImmediate)
      .value("THRESHOLD", sched::Start::kThreshold)
      .value("AFTER_BUILD", sched::Start::kAfterBuild);
  nb::class_<RunOptions>(module, "RunOptions")
      .def(nb::init<>())
      .def_prop_rw(
          "merges",
          [](const RunOptions& options) {
            return options.merges == nullptr ? sched::MergeOrders{} : *options.merges;
          },
          [](RunOptions& options, sched::MergeOrders merges) {
            options.merges = std::make_shared<const sched::MergeOrders>(std::move(merges));
          })
      .def_rw("records_merges", &RunOptions::records_merges)
      .def_rw("verifies", &RunOptions::verifies)
      .def_rw("waits", &RunOptions::waits)
      .def_rw("deps", &RunOptions::deps)
      .def_rw("checks_edges", &RunOptions::checks_edges)
      .def_rw("proves_iterations", &RunOptions::proves_iterations)
      .def_rw("proves_instances", &RunOptions::proves_instances)
      .def_rw("proves_edges", &RunOptions::proves_edges)
      .def_rw("dispatchers", &RunOptions::dispatchers)
      .def_rw("ownership", &RunOptions::ownership)
      .def_rw("bounds", &RunOptions::bounds)
      .def_rw("streams", &RunOptions::streams)
      .def_rw("num_streams", &RunOptions::num_streams)
      .def_rw("window", &RunOptions::window)
      .def_rw("window_mode", &RunOptions::window_mode)
      .def_rw("batch", &RunOptions::batch)
      .def_rw("turns", &RunOptions::turns)
      .def_rw("in_flight", &RunOptions::in_flight)
      .def_rw("prefetch", &RunOptions::prefetch)
      .def_rw("starts_per_second", &RunOptions::starts_per_second)
      .def_rw("streaming_bytes", &RunOptions::streaming_bytes)
      .def_rw("num_pools", &RunOptions::num_pools)
      .def_rw("pool_bounds", &RunOptions::pool_bounds)
      .def_rw("pool_shares", &RunOptions::pool_shares)
      .def_rw("pool_size", &RunOptions::pool_size)
      .def_rw("pools_are_soft", &RunOptions::pools_are_soft)
      .def_rw("balances", &RunOptions::balances)
      .def_rw("makes_calendar", &RunOptions::makes_calendar)
      .def_rw("ready", &RunOptions::ready)
      .def_rw("start", &RunOptions::start)
      .def_rw("threshold", &RunOptions::threshold);
}

}  // namespace

void bind_seam(nb::module_& module) {
  add_constants(module);
  bind_options(module);
}
