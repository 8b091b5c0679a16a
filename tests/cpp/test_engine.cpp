// SPDX-License-Identifier: MIT
/// \file
/// The engine around the tasks: argument rules, region errors, kernel errors, cancelling, threads, tracing.
#include "pto/wsp/engine.hpp"

#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "mix_kernels.hpp"

namespace test_engine {

using namespace pto::wsp;
using arrays::ref;
using assembler::Assembler;
using bytecode::Op;

namespace {

std::shared_ptr<const KernelLibrary> share(const KernelLibrary& table) {
  return {std::shared_ptr<void>(), &table};
}

std::atomic<int64_t> fail_at{-1};
Executable* nested = nullptr;

int32_t touch(const View* views, const Scalar* scalars, const TaskContext* context) {
  if (nested != nullptr) {
    CHECK_CODE("nested-run", nested->run({}, {}, {}));
  }
  if (int64_t(context->task) == fail_at.load()) return 3;
  auto* data = static_cast<float*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) data[i] += float(scalars[0].i64);
  return 0;
}
const ParamInfo kTouchParams[] = {{Role::inout, DType::f32, 1, 0, {0, 0, 0, 0}, {64, 0, 0, 0}}};
const KernelInfo kTouch[] = {{"touch", touch, kTouchParams, 1, 1, 128, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 1, 42, kTouch};

std::mutex meeting_mutex;
std::set<std::thread::id> meeting;

/// Waits until two threads have begun a task.
int32_t meet(const View*, const Scalar*, const TaskContext*) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (;; std::this_thread::sleep_for(std::chrono::microseconds(20))) {
    const std::lock_guard<std::mutex> lock(meeting_mutex);
    meeting.insert(std::this_thread::get_id());
    if (meeting.size() == 2) return 0;
    if (std::chrono::steady_clock::now() > limit) return 1;
  }
}
const KernelInfo kMeet[] = {{"meet", meet, nullptr, 0, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kMeetTable{kAbiVersion, 1, 43, kMeet};

/// P over tiles of X[n]: touch(X[tile], 1).
Executable tiles_program(int64_t tile, int64_t repeat = 1) {
  Assembler program(kTable);
  const uint32_t n = program.size_symbol();
  program.tensor(DType::f32, {-1 - int64_t(n)});
  program.loop(Op::RANGE_FOR, program.constant(repeat));
  const uint32_t reg = program.tiles(Op::PARALLEL_FOR, program.symbol(n), program.constant(tile));
  program.task(0);
  program.param(program.constant(1));
  program.io(Role::inout, 0);
  program.tile(program.axis_of(reg));
  program.end();
  program.end();
  const auto bytes = program.bytes();
  return Executable(bytes.data(), bytes.size(), share(kTable));
}

/// for i < n: touch(X[i * step : +extent], 1) over X[100].
std::string run_ranges(int64_t n, int64_t step, int64_t extent, bool triangular = false) {
  Assembler program(kTable);
  program.tensor(DType::f32, {100});
  const uint32_t i = program.loop(Op::RANGE_FOR, program.constant(n));
  uint32_t reg = i;
  if (triangular) reg = program.loop(Op::RANGE_FOR, program.reg(i));
  program.task(0);
  program.param(program.constant(1));
  program.io(Role::inout, 0);
  const auto start =
      triangular ? program.apply(Op::EXPR_SUB, {program.reg(i), program.reg(reg)}) : program.reg(i);
  program.range(program.mul(start, program.constant(step)), program.constant(extent));
  if (triangular) program.end();
  program.end();
  const auto bytes = program.bytes();
  Executable executable(bytes.data(), bytes.size(), share(kTable));
  std::vector<float> data(100, 0.0f);
  const std::string code = check::code_of([&] { executable.run({ref(data)}, {}, {2, false, 0}); });
  if (code != "none") CHECK(std::all_of(data.begin(), data.end(), [](float x) { return x == 0.0f; }));
  return code;
}

}  // namespace

TEST(others_are_called_before_a_long_first_unit) {
  Assembler program(kMeetTable);
  program.loop(Op::PARALLEL_FOR, program.constant(2));
  program.loop(Op::FOR_EACH, program.constant(20));
  program.task(0);
  program.end();
  program.end();
  const auto bytes = program.bytes();
  for (int round = 0; round < 3; ++round) {
    // One that knows nothing of its tasks: most of these are too short to be shared.
    Executable executable(bytes.data(), bytes.size(), share(kMeetTable));
    meeting.clear();
    executable.run({}, {}, {2, false, 0});
    CHECK(meeting.size() == 2);
  }
}

TEST(tails_are_clipped) {
  Executable executable = tiles_program(7);
  for (size_t n : {0u, 1u, 6u, 7u, 8u, 700u, 703u}) {
    std::vector<float> data(n, 1.0f);
    for (uint32_t workers : {1u, 2u, 5u, 40u})
      executable.run({ref(data)}, {std::nullopt}, {workers, false, 0});
    for (float x : data) CHECK(x == 5.0f);
  }
}

TEST(regions_are_checked_before_anything_runs) {
  CHECK(run_ranges(10, 10, 10) == "none");
  CHECK(run_ranges(11, 10, 10) == "region-outside");
  CHECK(run_ranges(10, 10, 11) == "region-outside");
  CHECK(run_ranges(10, -1, 1) == "region-outside");
  CHECK(run_ranges(2, 10, 65) == "view-shape");
  CHECK(run_ranges(2, 10, -1) == "region-outside");
  CHECK(run_ranges(-1, 10, 10) == "negative-extent");
  CHECK(run_ranges(0, 1000, 1000) == "none");
  // i - j is never outside, though the ranges of i and j alone do not show it.
  CHECK(run_ranges(10, 9, 9, true) == "none");
  CHECK(run_ranges(20, 9, 9, true) == "region-outside");
}

TEST(expression_errors_come_before_anything_runs) {
  const auto run = [](Op op, int64_t a, int64_t b) {
    Assembler program(kTable);
    program.loop(Op::RANGE_FOR, program.apply(op, {program.constant(a), program.constant(b)}));
    program.end();
    const auto bytes = program.bytes();
    return check::code_of([&] { Executable(bytes.data(), bytes.size(), share(kTable)).run({}, {}, {}); });
  };
  CHECK(run(Op::EXPR_ADD, INT64_MAX, 1) == "expression-overflow");
  CHECK(run(Op::EXPR_SUB, -2, INT64_MAX) == "expression-overflow");
  CHECK(run(Op::EXPR_MUL, int64_t{1} << 32, int64_t{1} << 31) == "expression-overflow");
  CHECK(run(Op::EXPR_FLOORDIV, INT64_MIN, -1) == "expression-overflow");
  CHECK(run(Op::EXPR_FLOORDIV, 1, 0) == "division-by-zero");
  CHECK(run(Op::EXPR_MOD, 1, 0) == "division-by-zero");
  CHECK(run(Op::EXPR_MOD, INT64_MIN, -1) == "none");
  CHECK(run(Op::EXPR_MOD, -7, -3) == "negative-extent");
  CHECK(run(Op::EXPR_FLOORDIV, -7, 2) == "negative-extent");
}

TEST(a_region_error_says_where) {
  Assembler program(kTable);
  program.tensor(DType::f32, {100});
  const uint32_t i = program.loop(Op::PARALLEL_FOR, program.constant(12));
  program.task(0);
  program.param(program.constant(1));
  program.io(Role::inout, 0);
  program.range(program.mul(program.reg(i), program.constant(9)), program.constant(10));
  program.end();
  const auto bytes = program.bytes();
  Executable executable(bytes.data(), bytes.size(), share(kTable));
  std::vector<float> data(100);
  try {
    executable.run({ref(data)}, {}, {});
    CHECK(false);
  } catch (const EngineError& error) {
    CHECK(error.code() == "region-outside");
    CHECK_EQ(error.number("pc"), 1);
    CHECK(!error.has("late"));
    CHECK_EQ(error.number("start"), 99);
    CHECK_EQ(error.number("extent"), 10);
    CHECK_EQ(error.number("size"), 100);
  }
}

TEST(a_kernel_error_stops_the_run_and_names_the_task) {
  Executable executable = tiles_program(4);
  for (uint32_t workers = 1; workers <= 4; ++workers) {
    std::vector<float> data(4000);
    fail_at = 777;
    try {
      executable.run({ref(data)}, {std::nullopt}, {workers, false, 0});
      CHECK(false);
    } catch (const EngineError& error) {
      CHECK(error.code() == "kernel-failed");
      CHECK_EQ(error.number("task"), 777);
      CHECK_EQ(error.number("check"), 3);
      CHECK_EQ(error.number("pc"), 2);
    }
    fail_at = -1;
    CHECK_EQ(executable.run({ref(data)}, {std::nullopt}, {workers, false, 0}).tasks, 1000u);
  }
}

TEST(a_run_inside_a_run_is_refused) {
  Executable executable = tiles_program(4);
  std::vector<float> data(400);
  nested = &executable;
  executable.run({ref(data)}, {std::nullopt}, {2, false, 0});
  nested = nullptr;
}

TEST(threads_take_turns_and_programs_share_the_pool) {
  Executable first = tiles_program(4, 3), second = tiles_program(8, 3);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> data(6, std::vector<float>(4000));
  for (size_t i = 0; i < data.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        (i % 2 == 0 ? first : second).run({ref(data[i])}, {std::nullopt}, {3, false, 0});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& values : data) {
    for (float x : values) CHECK(x == 60.0f);
  }
}

TEST(a_run_can_be_cancelled) {
  Executable executable = tiles_program(1, 1000000);
  std::vector<float> data(1000);
  for (uint32_t workers : {1u, 3u}) {
    std::atomic<bool> is_over{false};
    std::thread canceller([&] {
      while (!is_over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        executable.cancel();
      }
    });
    CHECK_CODE("run-cancelled", executable.run({ref(data)}, {std::nullopt}, {workers, false, 0}));
    is_over = true;
    canceller.join();
  }
}

TEST(overlap_is_decided_exactly) {
  std::vector<float> memory(10000);
  const auto column_slice = [&](int64_t first, int64_t width) {
    bind::ArrayRef ref;
    ref.data = memory.data() + first;
    ref.rank = 2;
    ref.shape[0] = 50;
    ref.shape[1] = width;
    ref.stride_bytes[0] = 400;
    ref.stride_bytes[1] = 4;
    return ref;
  };
  using bind::Overlap;
  CHECK(bind::find_overlap(column_slice(0, 50), column_slice(50, 50)) == Overlap::kNone);
  CHECK(bind::find_overlap(column_slice(0, 51), column_slice(50, 50)) == Overlap::kSome);
  CHECK(bind::find_overlap(column_slice(60, 40), column_slice(100, 60)) == Overlap::kNone);
  CHECK(bind::find_overlap(column_slice(60, 41), column_slice(100, 60)) == Overlap::kSome);
  CHECK(bind::find_overlap(column_slice(0, 0), column_slice(0, 5)) == Overlap::kNone);
}

TEST(overlap_agrees_with_brute_force) {
  std::mt19937 random(3);
  const auto pick = [&random](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random); };
  std::vector<uint8_t> memory(100000);
  for (int round = 0; round < 2000; ++round) {
    bind::ArrayRef refs[2];
    std::vector<bool> used[2] = {std::vector<bool>(memory.size()), std::vector<bool>(memory.size())};
    for (int k = 0; k < 2; ++k) {
      const int offset = pick(0, 300);
      refs[k].data = memory.data() + offset;
      refs[k].dtype = pick(0, 1) != 0 ? DType::u16 : DType::u8;
      refs[k].rank = 2;
      for (int d = 0; d < 2; ++d) {
        refs[k].shape[d] = pick(1, 12);
        refs[k].stride_bytes[d] = pick(1, 40);
      }
      for (int64_t i = 0; i < refs[k].shape[0]; ++i)
        for (int64_t j = 0; j < refs[k].shape[1]; ++j)
          for (int64_t b = 0; b < dtype_bytes(refs[k].dtype); ++b)
            used[k][size_t(offset + i * refs[k].stride_bytes[0] + j * refs[k].stride_bytes[1] + b)] = true;
    }
    bool meets = false;
    for (size_t i = 0; i < memory.size(); ++i) meets = meets || (used[0][i] && used[1][i]);
    CHECK((bind::find_overlap(refs[0], refs[1]) == bind::Overlap::kSome) == meets);
  }
}

}  // namespace test_engine
