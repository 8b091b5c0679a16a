// SPDX-License-Identifier: MIT
/// \file
/// Control that data decides: conditions, variables, flush points, refusals, explicit edges, late errors.
#include <atomic>
#include <thread>

#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "pto/wsp/engine.hpp"
#include "record.hpp"

namespace test_control {

using namespace pto::wsp;
using arrays::ref;
using assembler::Assembler;
using assembler::Expr;
using bytecode::Op;

namespace {

std::atomic<int64_t> fails_with{-1};
std::atomic<int> num_started{0};

/// Appends its scalar to a log: log[0] counts, log[1 ...] are the entries.
int32_t note(const View* views, const Scalar* scalars, const TaskContext*) {
  num_started.fetch_add(1, std::memory_order_relaxed);
  auto* log = static_cast<int64_t*>(views[0].data);
  if (scalars[0].i64 == fails_with.load()) return 9;
  log[++log[0]] = scalars[0].i64;
  return 0;
}

/// Puts its scalar into every element, after a while.
int32_t fill(const View* views, const Scalar* scalars, const TaskContext*) {
  num_started.fetch_add(1, std::memory_order_relaxed);
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  if (scalars[0].i64 == fails_with.load()) return 9;
  auto* data = static_cast<int64_t*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) data[i] = scalars[0].i64;
  return 0;
}

constexpr int64_t kAny = INT64_MAX;
const ParamInfo kNoteParams[] = {{Role::inout, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const ParamInfo kFillParams[] = {{Role::out, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const KernelInfo kKernels[] = {{"note", note, kNoteParams, 1, 1, 0, 1, Unit::any, {}},
                               {"fill", fill, kFillParams, 1, 1, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 2, 42, kKernels};

using Array = std::vector<int64_t>;

/// A program over i64 tensors; tensor 0 is the log that `note` appends to.
class Program : public Assembler {
 public:
  Program() : Assembler(kTable) { log_ = tensor(DType::i64, {-1 - int64_t(size_symbol())}); }

  /// A tensor of any length.
  uint16_t array(bool written) { return tensor(DType::i64, {-1 - int64_t(size_symbol())}, written); }

  void note(const Expr& value) {
    task(0);
    param(value);
    io(Role::inout, log_);
    full();
  }
  uint32_t fill(uint16_t tensor, const Expr& value, const Expr& start, const Expr& extent) {
    const uint32_t name = task(1);
    param(value);
    io(Role::out, tensor);
    range(start, extent);
    return name;
  }

  std::unique_ptr<Executable> make() const {
    const std::vector<uint8_t> code = bytes();
    return std::make_unique<Executable>(
        code.data(), code.size(), std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  }

  /// The log of a run with the arrays (after the log) and so many workers.
  Array run(std::vector<Array*> arrays, sched::RunOptions options) const {
    Array log(100, 0);
    std::vector<bind::ArrayRef> refs{ref(log)};
    for (Array* array : arrays) refs.push_back(ref(*array));
    make()->run(refs, std::vector<std::optional<int64_t>>(refs.size()), options);
    return Array(log.begin() + 1, log.begin() + 1 + log[0]);
  }

 private:
  uint16_t log_;
};

/// Every way of running, told apart by workers and jitter.
std::vector<sched::RunOptions> ways() {
  std::vector<sched::RunOptions> all{{1, false, 0}};
  for (uint32_t workers = 1; workers <= 5; ++workers) {
    for (uint64_t jitter : {0u, 7u, 8u}) all.push_back({workers, false, jitter, nullptr, true});
  }
  return all;
}

void expect_log(const Program& program, const std::vector<Array>& arrays, const Array& expected) {
  for (const sched::RunOptions& options : ways()) {
    std::vector<Array> copies = arrays;
    std::vector<Array*> pointers;
    for (Array& copy : copies) pointers.push_back(&copy);
    CHECK(program.run(pointers, options) == expected);
  }
}

/// The error that every way of running makes, after so many tasks at least.
EngineError expect_error(const Program& program, const std::vector<Array>& arrays) {
  std::optional<EngineError> first;
  for (const sched::RunOptions& options : ways()) {
    std::vector<Array> copies = arrays;
    std::vector<Array*> pointers;
    for (Array& copy : copies) pointers.push_back(&copy);
    num_started = 0;
    try {
      program.run(pointers, options);
      CHECK(false);
    } catch (const EngineError& error) {
      if (!first) first = error;
      CHECK(error.code() == first->code());
      CHECK_EQ(error.number("late"), first->number("late"));
      CHECK_EQ(error.number("pc"), first->number("pc"));
      if (error.code() != "kernel-failed")
        CHECK_EQ(num_started.load(), std::max<int64_t>(error.number("late"), 0));
    }
  }
  return *first;
}

}  // namespace

TEST(conditions_choose_an_arm) {
  Program p;
  const uint16_t lengths = p.array(false);
  const uint32_t b = p.loop(Op::PARALLEL_FOR, p.symbol(1));
  const auto at_most = [&](int64_t limit) {
    return p.apply(Op::EXPR_LE, {p.element(lengths, {p.reg(b)}), p.constant(limit)});
  };
  p.cond(at_most(2));
  p.note(p.constant(1));
  p.otherwise();
  p.cond(at_most(8));
  p.note(p.constant(2));
  p.otherwise();
  p.note(p.constant(3));
  p.end_cond();
  p.end_cond();
  p.cond(at_most(-1));
  p.otherwise();
  p.cond(at_most(0));
  p.note(p.constant(4));
  p.end_cond();
  p.end_cond();
  p.end();
  expect_log(p, {{1, 9, 8, 0, 2, 64}}, {1, 3, 2, 1, 4, 1, 3});
  expect_log(p, {{}}, {});
}

TEST(variables_hold_values_in_program_order) {
  Program p;
  const uint16_t v = p.variable(), w = p.variable();
  p.note(p.reg(v));
  p.set(v, p.constant(5));
  const uint32_t i = p.loop(Op::RANGE_FOR, p.constant(3));
  p.set(w, p.add(p.reg(w), p.mul(p.reg(v), p.reg(i))));
  p.note(p.reg(w));
  p.set(v, p.add(p.reg(v), p.constant(1)));
  p.end();
  p.note(p.add(p.reg(v), p.reg(w)));
  expect_log(p, {}, {0, 0, 6, 20, 28});
}

TEST(flush_points_read_what_tasks_wrote) {
  Program p;
  const uint16_t lengths = p.array(true);
  const uint16_t n = p.variable();
  const uint32_t round = p.loop(Op::RANGE_FOR, p.constant(6));
  p.fill(lengths, p.reg(round), p.constant(0), p.constant(4));
  p.fill(lengths, p.constant(50), p.constant(4), p.constant(4));
  p.set(n, p.element(lengths, {p.apply(Op::EXPR_MOD, {p.reg(round), p.constant(5)})}));
  const uint32_t i = p.loop(Op::PARALLEL_FOR, p.apply(Op::EXPR_MOD, {p.reg(n), p.constant(48)}));
  p.note(p.add(p.mul(p.reg(round), p.constant(10)), p.reg(i)));
  p.end();
  p.end();
  expect_log(p, {Array(8, 7)}, {10, 20, 21, 30, 31, 32, 40, 41, 50, 51, 52, 53, 54});
}

TEST(an_element_may_decide_which_element_is_read) {
  Program p;
  const uint16_t a = p.array(true), b = p.array(true);
  const uint16_t v = p.variable();
  p.fill(a, p.constant(2), p.constant(1), p.constant(1));
  p.fill(b, p.constant(33), p.constant(2), p.constant(1));
  p.set(v, p.element(b, {p.element(a, {p.constant(1)})}));
  p.note(p.reg(v));
  expect_log(p, {{9, 9, 9}, {8, 8, 8}}, {33});
}

TEST(explicit_edges_order_tasks_without_data) {
  Program p;
  const uint16_t a = p.array(true), b = p.array(true);
  const uint32_t i = p.loop(Op::PARALLEL_FOR, p.constant(8));
  const uint32_t first = p.fill(a, p.constant(1), p.reg(i), p.constant(1));
  p.fill(b, p.constant(2), p.reg(i), p.constant(1));
  p.after(first);
  p.end();
  const auto executable = p.make();
  for (const sched::RunOptions& way : ways()) {
    sched::RunOptions options = way;
    options.trace = true;
    Array log(4), x(8), y(8);
    const RunResult result = executable->run({ref(log), ref(x), ref(y)}, {{}, {}, {}}, options);
    const record::Times times(*result.record);
    for (size_t t = 0; t < 8; ++t) CHECK(times.end[2 * t] <= times.start[2 * t + 1]);
  }
}

TEST(explicit_edges_lead_out_of_conditions) {
  Program p;
  const uint16_t a = p.array(true), b = p.array(true);
  const uint32_t i = p.loop(Op::PARALLEL_FOR, p.constant(8));
  const auto odd = p.apply(Op::EXPR_MOD, {p.reg(i), p.constant(2)});
  p.cond(p.apply(Op::EXPR_EQ, {odd, p.constant(1)}));
  const uint32_t first = p.fill(a, p.constant(1), p.reg(i), p.constant(1));
  p.end_cond();
  p.fill(b, p.constant(2), p.reg(i), p.constant(1));
  p.after(first);
  p.end();
  const auto executable = p.make();
  for (const sched::RunOptions& way : ways()) {
    sched::RunOptions options = way;
    options.trace = true;
    Array log(4), x(8), y(8);
    const RunResult result = executable->run({ref(log), ref(x), ref(y)}, {{}, {}, {}}, options);
    const record::Times times(*result.record);
    for (size_t pair = 0; pair < 4; ++pair) {  // a task of an even iteration, then two of an odd one
      const size_t made = 3 * pair + 1;
      CHECK(times.end[made] <= times.start[made + 1]);
      if (pair < 3) CHECK(times.end[made] <= times.start[made + 2]);
    }
  }
}

TEST(a_refusal_that_no_task_decides_comes_first) {
  Program p;
  const uint16_t lengths = p.array(false);
  p.note(p.constant(1));
  const uint32_t b = p.loop(Op::RANGE_FOR, p.symbol(1));
  p.cond(p.apply(Op::EXPR_LT, {p.constant(8), p.element(lengths, {p.reg(b)})}));
  p.fail(3, p.element(lengths, {p.reg(b)}));
  p.end_cond();
  p.end();
  expect_log(p, {{8, 0, -3}}, {1});
  const EngineError error = expect_error(p, {{8, 0, 9, 10}});
  CHECK(error.code() == "refused");
  CHECK_EQ(error.number("reason"), 3);
  CHECK_EQ(error.number("value"), 9);
  CHECK(!error.has("late"));
}

TEST(what_a_task_decides_is_checked_when_it_is_expanded) {
  const auto program = [](Op kind) {
    Program p;
    const uint16_t a = p.array(true);
    const uint16_t v = p.variable();
    p.note(p.constant(1));
    p.fill(a, p.constant(5), p.constant(0), p.constant(1));
    p.set(v, p.element(a, {p.constant(0)}));
    p.note(p.reg(v));
    if (kind == Op::FAIL) p.fail(2, p.reg(v));
    if (kind == Op::DIM_RANGE) p.fill(a, p.constant(0), p.reg(v), p.constant(1));
    if (kind == Op::EXPR_ELEMENT) p.set(v, p.element(a, {p.reg(v)}));
    if (kind == Op::RANGE_FOR) {
      p.loop(Op::RANGE_FOR, p.apply(Op::EXPR_NEG, {p.reg(v)}));
      p.end();
    }
    if (kind == Op::EXPR_WITHIN) p.note(p.apply(Op::EXPR_WITHIN, {p.reg(v), p.constant(4)}));
    if (kind == Op::EXPR_SHL) p.note(p.apply(Op::EXPR_SHL, {p.reg(v), p.constant(61)}));
    p.note(p.constant(2));
    return p;
  };
  const std::pair<Op, const char*> cases[] = {{Op::FAIL, "refused"},
                                              {Op::DIM_RANGE, "region-outside"},
                                              {Op::EXPR_ELEMENT, "element-outside"},
                                              {Op::RANGE_FOR, "negative-extent"},
                                              {Op::EXPR_WITHIN, "slice-outside"},
                                              {Op::EXPR_SHL, "expression-overflow"}};
  for (const auto& [kind, code] : cases) {
    const EngineError error = expect_error(program(kind), {Array(5, 0)});
    CHECK(error.code() == code);
    CHECK_EQ(error.number("late"), 3);
    CHECK(error.has("registers"));
  }
  CHECK(expect_error(program(Op::FAIL), {Array(0, 0)}).code() == "region-outside");
}

TEST(what_is_not_late_is_checked_first_even_beside_what_is) {
  Program p;
  const uint16_t a = p.array(true);
  const uint16_t v = p.variable(), w = p.variable();
  p.fill(a, p.constant(5), p.constant(0), p.constant(1));
  p.set(v, p.element(a, {p.constant(0)}));
  p.set(w, p.symbol(1));
  p.cond(p.apply(Op::EXPR_LT, {p.reg(w), p.constant(3)}));
  p.fill(a, p.reg(v), p.reg(w), p.constant(1));
  p.end_cond();
  CHECK(!expect_error(p, {Array(2, 0)}).has("late"));
  expect_log(p, {Array(3, 0)}, {});
}

TEST(a_run_that_waits_at_flush_points_can_be_cancelled) {
  Program p;
  const uint16_t a = p.array(true);
  const uint16_t v = p.variable();
  p.loop(Op::RANGE_FOR, p.constant(int64_t{1} << 40));
  p.fill(a, p.constant(0), p.constant(0), p.constant(1));
  p.set(v, p.element(a, {p.constant(0)}));
  // An empty stretch that only this value ends.
  p.loop(Op::RANGE_FOR, p.mul(p.reg(v), p.constant(int64_t{1} << 62)));
  p.end();
  p.end();
  const auto executable = p.make();
  for (const sched::RunOptions& options : ways()) {
    std::atomic<bool> is_over{false};
    std::thread canceller([&] {
      while (!is_over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        executable->cancel();
      }
    });
    Array log(4), array(1);
    CHECK_CODE("run-cancelled", executable->run({ref(log), ref(array)}, {{}, {}}, options));
    is_over = true;
    canceller.join();
  }
}

TEST(a_kernel_that_fails_before_a_late_error_is_the_error) {
  Program p;
  const uint16_t a = p.array(true);
  const uint16_t v = p.variable();
  p.fill(a, p.constant(5), p.constant(0), p.constant(1));
  p.set(v, p.element(a, {p.constant(0)}));
  p.fill(a, p.constant(6), p.constant(0), p.constant(1));
  p.fail(2, p.reg(v));
  for (int64_t value : {5, 6}) {
    fails_with = value;
    CHECK(expect_error(p, {Array(1, 0)}).code() == "kernel-failed");
  }
  fails_with = -1;
}

namespace {

std::vector<int64_t> deciding_lengths;
std::vector<int32_t> deciding_rows;
std::atomic<bool> is_spoiled{false};

/// Counts the rows that it gets. The first call changes all that decided, as another thread of the caller
/// may.
int32_t count_and_spoil(const View* views, const Scalar*, const TaskContext*) {
  auto* counts = static_cast<int64_t*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) ++counts[views[0].rows[i]];
  if (is_spoiled.exchange(true)) return 0;
  std::fill(deciding_lengths.begin(), deciding_lengths.end(), 1 << 20);
  std::fill(deciding_rows.begin(), deciding_rows.end(), 1 << 20);
  return 0;
}

const ParamInfo kSpoilParams[] = {{Role::inout, DType::i64, 2, 0, {0, 0, 0, 0}, {kAny, 1, 0, 0}}};
const KernelInfo kSpoil[] = {{"spoil", count_and_spoil, kSpoilParams, 1, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kSpoilTable{kAbiVersion, 1, 42, kSpoil};

}  // namespace

/// Arrays that decide are read once, so a run that was checked is the run that happens.
TEST(arrays_that_decide_are_read_once) {
  Assembler program(kSpoilTable);
  const uint16_t counts = program.tensor(DType::i64, {4, 1}),
                 lengths = program.tensor(DType::i64, {3}, false);
  const uint16_t rows = program.tensor(DType::i32, {4, 1}, false);
  const uint32_t i = program.loop(Op::RANGE_FOR, program.constant(3));
  program.loop(Op::RANGE_FOR, Assembler::element(lengths, {Assembler::reg(i)}));
  program.task(0);
  program.io(Role::inout, counts);
  program.rows(rows, Assembler::reg(i), program.constant(2));
  program.full();
  program.end();
  program.end();
  const std::vector<uint8_t> bytes = program.bytes();
  for (sched::RunOptions options : ways()) {
    for (const auto start : {sched::Start::kImmediate, sched::Start::kAfterBuild}) {
      options.start = start;
      options.trace = true;
      Executable executable(bytes.data(), bytes.size(), {std::shared_ptr<void>(), &kSpoilTable});
      for (int run = 1; run <= 2; ++run) {
        is_spoiled = false;
        deciding_lengths = {2, 0, 3};
        deciding_rows = {3, 0, 2, 1};
        Array found(4, 0);
        bind::ArrayRef table = ref(found), names = ref(deciding_rows);
        table.rank = names.rank = 2;
        table.shape[1] = names.shape[1] = 1;
        const RunResult result = executable.run({table, ref(deciding_lengths), names}, {}, options);
        CHECK((found == Array{2, 3, 3, 2}));
        CHECK_EQ(result.tasks, uint64_t{5});
        CHECK_EQ(record::Places(*result.record).pc.size(), size_t{5});
      }
    }
  }
}

}  // namespace test_control
