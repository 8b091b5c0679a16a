// SPDX-License-Identifier: MIT
/// \file
/// The validator: named mistakes are found, and mutated or random bytes are an error or a program that runs.
#include <ctime>
#include <random>

#include "pto/wsp/engine.hpp"
#include "random_workload.hpp"

namespace test_validate {

using namespace pto::wsp;
using namespace pto::wsp::bytecode;
using assembler::Assembler;
using random_workload::Tensor;
using random_workload::Workload;

namespace {

const KernelLibrary& library() { return mix::library().table(); }

std::vector<uint8_t> small_program() {
  Assembler program(library());
  program.tensor(DType::u64, {-1, 8});
  program.size_symbol();
  const uint32_t reg = program.tiles(Op::PARALLEL_FOR, program.symbol(0), program.constant(4));
  program.task(4);  // {inout}, rank 2
  program.io(Role::inout, 0);
  program.tile(program.axis_of(reg));
  program.full();
  program.end();
  return program.bytes();
}

std::string load(const std::vector<uint8_t>& bytes) {
  return check::code_of([&] { load_program(bytes.data(), bytes.size(), library()); });
}

/// Changes one field of the small program.
template <class T>
std::vector<uint8_t> with(size_t offset, T value) {
  std::vector<uint8_t> bytes = small_program();
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
  return bytes;
}

constexpr size_t kCode = sizeof(Header);
constexpr size_t code_at(size_t pc) { return kCode + pc * sizeof(Instruction); }

/// Loads, and if that works binds and runs with small arrays of the sizes that the program names.
void try_to_run(const std::vector<uint8_t>& bytes) {
  try {
    const Executable executable(bytes.data(), bytes.size(), mix::library().shared());
    const Program& program = executable.program();
    const Bindings bindings{&program, std::vector<int64_t>(program.symbols.size(), 12)};
    std::vector<TensorLayout> layouts;
    for (const TensorDescriptor& tensor : program.tensors) {
      TensorLayout layout{};
      for (int d = 0; d < tensor.rank; ++d) {
        layout.shape[d] = tensor.dims[d] < 0 ? 12 : tensor.dims[d] % 1000;
        if (program.decides[layouts.size()]) layout.shape[d] = 0;  // there is no data to read
        layout.stride[d] = 1;
      }
      layout.group = uint32_t(layouts.size());
      layouts.push_back(layout);
    }
    Plan plan = make_plan(bindings, layouts, library());
    bind_elements(plan, std::vector<char*>(layouts.size(), nullptr));
    const sched::Marks marks = sched::mark_units(plan, 2);
    graph::Hazards hazards(plan);
    sched::guess_costs(plan, 2);
    Expander expander(plan, marks.steps);
    for (int i = 0; i < 2000; ++i) {
      const Event event = expander.next();
      if (event.kind == Event::kEnd) break;
      if (event.kind == Event::kFlush) expander.assign(event.index, i);
    }
  } catch (const EngineError&) {
  }
}

}  // namespace

TEST(a_sound_program_loads) { CHECK_EQ(load(small_program()) == "none", true); }

TEST(every_truncation_is_an_error) {
  const std::vector<uint8_t> bytes = small_program();
  for (size_t n = 0; n < bytes.size(); ++n) {
    CHECK(load(std::vector<uint8_t>(bytes.begin(), bytes.begin() + std::ptrdiff_t(n))) == "bad-bytecode");
  }
  std::vector<uint8_t> longer = bytes;
  longer.resize(longer.size() + 8);
  CHECK(load(longer) == "bad-bytecode");
}

TEST(named_mistakes_are_found) {
  CHECK(load(with<uint32_t>(0, 1)) == "bad-bytecode");
  CHECK(load(with<uint32_t>(4, kVersion + 1)) == "bytecode-version");
  CHECK(load(with<uint64_t>(40, 7)) == "kernel-table-mismatch");
  for (size_t section = 8; section < 32; section += 4)
    CHECK(load(with<uint32_t>(section, 0x10000000)) == "bad-bytecode");
  CHECK(load(with<uint8_t>(code_at(0) + 1, 1)) == "bad-bytecode");   // flags
  CHECK(load(with<uint32_t>(code_at(0) + 4, 0)) == "bad-bytecode");  // jump target
  CHECK(load(with<uint32_t>(code_at(0) + 4, 9)) == "bad-bytecode");
  CHECK(load(with<uint16_t>(code_at(0) + 2, 5)) == "bad-bytecode");                 // axis
  CHECK(load(with<uint16_t>(code_at(1) + 2, 99)) == "bad-bytecode");                // kernel
  CHECK(load(with<uint32_t>(code_at(1) + 4, 0)) == "bad-bytecode");                 // arity
  CHECK(load(with<uint8_t>(code_at(2), uint8_t(Op::IO_INPUT))) == "bad-bytecode");  // role
  CHECK(load(with<uint16_t>(code_at(2) + 2, 1)) == "bad-bytecode");                 // tensor
  CHECK(load(with<uint16_t>(code_at(3) + 2, 1)) == "bad-bytecode");                 // tile of which axis
  CHECK(load(with<uint8_t>(code_at(4), uint8_t(Op::DIM_INDEX))) == "bad-bytecode");
  CHECK(load(with<uint8_t>(code_at(5), uint8_t(Op::NOP))) == "bad-bytecode");  // loop not closed
}

TEST(expressions_are_checked) {
  const auto with_extent = [](const assembler::Expr& expr) {
    Assembler program(library());
    program.tensor(DType::u64, {8});
    program.constant(1);
    program.scalar_symbol(DType::f32);
    program.loop(Op::RANGE_FOR, expr);
    program.end();
    return load(program.bytes());
  };
  using assembler::Expr;
  CHECK(with_extent({}) == "bad-bytecode");
  CHECK(with_extent({{Op::EXPR_CONST, 0, 0, 0}}) == "none");
  CHECK(with_extent({{Op::EXPR_CONST, 0, 0, 1}}) == "bad-bytecode");
  CHECK(with_extent({{Op::EXPR_CONST, 0, 0, 0}, {Op::EXPR_ADD, 0, 0, 0}}) == "bad-bytecode");
  CHECK(with_extent({{Op::EXPR_CONST, 0, 0, 0}, {Op::EXPR_CONST, 0, 0, 0}}) == "bad-bytecode");
  CHECK(with_extent({{Op::EXPR_REG, 0, 0, 0}}) == "bad-bytecode");     // the loop's own register
  CHECK(with_extent({{Op::EXPR_SYMBOL, 0, 0, 0}}) == "bad-bytecode");  // a float
  CHECK(with_extent({{Op::TASK, 0, 0, 0}}) == "bad-bytecode");
  for (uint32_t n : {kMaxExprStack, kMaxExprStack + 1}) {
    Expr deep(n, {Op::EXPR_CONST, 0, 0, 0});
    deep.resize(n + n - 1, {Op::EXPR_ADD, 0, 0, 0});
    CHECK(with_extent(deep) == (n == kMaxExprStack ? "none" : "bad-bytecode"));
  }
}

TEST(control_is_checked) {
  const auto with_body = [](const std::function<void(Assembler&)>& build) {
    Assembler program(library());
    program.tensor(DType::i64, {8}, false);
    program.tensor(DType::i64, {8}, true);
    program.variable();
    program.constant(1);
    build(program);
    return load(program.bytes());
  };
  const auto element = [](uint16_t tensor) {
    return Assembler::element(tensor, {{{Op::EXPR_CONST, 0, 0, 0}}});
  };
  const assembler::Expr one{{Op::EXPR_CONST, 0, 0, 0}};
  const auto task = [](Assembler& p) {
    p.tensor(DType::u64, {8});
    const uint32_t name = p.task(0);  // {out}, rank 1
    p.io(Role::out, 2);
    p.full();
    return name;
  };
  const auto bad = [&](const std::function<void(Assembler&)>& build) {
    return with_body(build) == "bad-bytecode";
  };
  // Conditions.
  CHECK(with_body([&](Assembler& p) { p.cond(one), p.otherwise(), p.end_cond(); }) == "none");
  CHECK(bad([&](Assembler& p) { p.cond(one); }));
  CHECK(bad([&](Assembler& p) { p.emit(Op::END_COND, 0, 0); }));
  CHECK(bad([&](Assembler& p) { p.emit(Op::ELSE, 0, 0); }));
  CHECK(bad([&](Assembler& p) { p.cond(one), p.otherwise(), p.otherwise(), p.end_cond(); }));
  CHECK(bad([&](Assembler& p) { p.cond(one), p.emit(Op::END_COND, 0, 1); }));
  CHECK(bad([&](Assembler& p) {
    p.cond(one), p.loop(Op::RANGE_FOR, one), p.emit(Op::END_COND, 0, 0), p.emit(Op::END_LOOP, 0, 1);
  }));
  CHECK(bad([&](Assembler& p) { p.cond(one), p.loop(Op::RANGE_FOR, one), p.emit(Op::ELSE, 0, 0), p.end(); }));
  CHECK(bad([&](Assembler& p) { p.cond(element(1)), p.end_cond(); }));
  CHECK(with_body([&](Assembler& p) { p.cond(element(0)), p.end_cond(); }) == "none");
  // Variables.
  CHECK(with_body([&](Assembler& p) { p.set(0, element(1)), p.cond(p.reg(0)), p.end_cond(); }) == "none");
  CHECK(bad([&](Assembler& p) { p.set(1, one); }));
  CHECK(bad([&](Assembler& p) { p.set(uint16_t(p.loop(Op::RANGE_FOR, one)), one), p.end(); }));
  CHECK(bad([&](Assembler& p) { p.loop(Op::RANGE_FOR, one), p.end(), p.set(1, one); }));
  CHECK(bad([&](Assembler& p) { p.loop(Op::RANGE_FOR, one), p.end(), p.set(0, p.reg(1)); }));
  CHECK(bad([&](Assembler& p) { p.loop(Op::RANGE_FOR, element(1)), p.end(); }));
  CHECK(bad([&](Assembler& p) { p.fail(1, element(1)); }));
  // Explicit edges.
  CHECK(with_body([&](Assembler& p) {
          const uint32_t t = task(p);
          task(p), p.after(t);
        }) == "none");
  CHECK(with_body([&](Assembler& p) {
          const uint32_t t = task(p);
          p.cond(one), task(p), p.after(t), p.end_cond();
        }) == "none");
  CHECK(bad([&](Assembler& p) { p.after(task(p)); }));
  CHECK(bad([&](Assembler& p) { task(p), task(p), p.after(1); }));
  CHECK(bad([&](Assembler& p) { task(p), task(p), p.after(3); }));
  CHECK(bad([&](Assembler& p) {
    p.loop(Op::RANGE_FOR, one);
    const uint32_t t = task(p);
    p.end(), task(p), p.after(t);
  }));
  CHECK(with_body([&](Assembler& p) {
          p.cond(one);
          const uint32_t t = task(p);
          p.end_cond(), task(p), p.after(t);
        }) == "none");
}

TEST(conditions_are_bounded) {
  for (uint32_t depth : {kMaxCondDepth, kMaxCondDepth + 1}) {
    Assembler program(library());
    for (uint32_t i = 0; i < depth; ++i) program.cond(program.constant(1));
    for (uint32_t i = 0; i < depth; ++i) program.end_cond();
    CHECK(load(program.bytes()) == (depth == kMaxCondDepth ? "none" : "bad-bytecode"));
  }
}

TEST(nesting_is_bounded) {
  for (uint32_t depth : {kMaxLoopDepth, kMaxLoopDepth + 1}) {
    Assembler program(library());
    for (uint32_t i = 0; i < depth; ++i) program.loop(Op::RANGE_FOR, program.constant(1));
    for (uint32_t i = 0; i < depth; ++i) program.end();
    CHECK(load(program.bytes()) == (depth == kMaxLoopDepth ? "none" : "bad-bytecode"));
  }
}

/// A program of 2 MB whose variables follow from each other against the order of the statements.
std::vector<uint8_t> long_chain(uint32_t num_variables) {
  Assembler program(library());
  const uint16_t lengths = program.tensor(DType::i64, {8}, true);
  const uint16_t out = program.tensor(DType::u64, {8}, true);
  for (uint32_t i = 0; i < num_variables; ++i) program.variable();
  program.loop(Op::RANGE_FOR, program.constant(1));
  for (uint32_t i = 0; i + 1 < num_variables; ++i) program.set(uint16_t(i), Assembler::reg(i + 1));
  program.set(uint16_t(num_variables - 1), Assembler::element(lengths, {program.constant(0)}));
  program.cond(Assembler::apply(Op::EXPR_MOD, {program.constant(1), Assembler::reg(0)}));
  program.end_cond();
  program.end();
  program.task(0);  // {out}, rank 1
  program.io(Role::out, out);
  program.full();
  return program.bytes();
}

/// A program of 2 MB in which one expression of many registers is used many times.
std::vector<uint8_t> wide_expression(uint32_t num_uses) {
  Assembler program(library());
  assembler::Expr sum = program.constant(0);
  for (uint32_t i = 0; i < 60000; ++i) {
    const assembler::Expr next = Assembler::reg(program.variable());
    sum.insert(sum.end(), next.begin(), next.end());
    sum.push_back({Op::EXPR_MAX, 0, 0, 0});
  }
  program.cond(sum);
  for (uint32_t i = 0; i < num_uses; ++i) program.emit(Op::FAIL, 1, 0);  // the first expression
  program.end_cond();
  return program.bytes();
}

/// A program of 2 MB with a sum of many variables.
std::vector<uint8_t> wide_sum(uint32_t num_variables) {
  Assembler program(library());
  const uint16_t lengths = program.tensor(DType::u8, {8}, false);
  assembler::Expr sum = program.constant(0);
  for (uint32_t i = 0; i < num_variables; ++i) {
    const uint16_t variable = program.variable();
    program.set(variable, Assembler::element(lengths, {program.constant(1)}));
    sum.push_back(Assembler::reg(variable)[0]);
    sum.push_back({Op::EXPR_ADD, 0, 0, 0});
  }
  program.cond(sum);
  program.end_cond();
  return program.bytes();
}

constexpr double kGenerousSeconds = 10;  // of the processor, under sanitizers too

/// Calls `body` with a large program and checks the time, which is minutes where it grows with the square of
/// the size.
void check_time(const std::vector<uint8_t>& bytes, const std::function<void(const Program&)>& body) {
  CHECK(bytes.size() > 1500000 && bytes.size() < 2500000);
  const std::clock_t start = std::clock();
  body(load_program(bytes.data(), bytes.size(), library()));
  CHECK(double(std::clock() - start) < kGenerousSeconds * CLOCKS_PER_SEC);
}

TEST(large_programs_load_in_linear_time) {
  check_time(wide_expression(130000), [](const Program&) {});
  for (const auto& bytes : {long_chain(65000), wide_sum(36000)}) {
    check_time(bytes, [](const Program& program) {
      std::vector<TensorLayout> layouts(program.tensors.size());
      for (TensorLayout& layout : layouts) layout = {{8}, {1}, uint32_t(&layout - layouts.data())};
      const Plan plan = make_plan({&program, {}}, layouts, library());
      CHECK(!plan.steps.empty() && !plan.check_steps.empty());
    });
  }
}

/// What is not late and could fail is checked before the run, with the variables that it reads.
TEST(checks_keep_what_they_read) {
  Assembler program(library());
  const uint16_t lengths = program.tensor(DType::i64, {8}, false);
  for (int i = 0; i < 3; ++i) program.variable();
  program.set(2, program.constant(1));                                 // read by nothing
  program.set(1, Assembler::element(lengths, {program.constant(3)}));  // read by the next
  program.set(0, Assembler::reg(1));
  program.cond(Assembler::reg(0));
  program.loop(Op::RANGE_FOR, program.constant(2));
  program.fail(1, Assembler::reg(0));
  program.end();
  program.otherwise();
  program.set(2, program.constant(2));
  program.end_cond();
  const std::vector<uint8_t> bytes = program.bytes();
  const Program loaded = load_program(bytes.data(), bytes.size(), library());
  const Plan plan = make_plan({&loaded, {}}, {TensorLayout{{8}, {1}, 0}}, library());
  std::vector<Step::Kind> kinds;
  for (const QuickStep& step : plan.check_steps) kinds.push_back(step.kind);
  const std::vector<Step::Kind> expected{Step::kSet,  Step::kSet,     Step::kCond, Step::kLoop,
                                         Step::kFail, Step::kEndLoop, Step::kElse, Step::kHalt};
  CHECK(kinds == expected);
}

TEST(mutated_programs_fail_or_run) {
  std::mt19937_64 random(1);
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const std::vector<uint8_t> bytes = Workload(seed, 50).bytes();
    for (int round = 0; round < 300; ++round) {
      std::vector<uint8_t> mutant = bytes;
      for (int i = int(random() % 3); i >= 0; --i) {
        const size_t at = random() % mutant.size();
        mutant[at] = random() % 3 == 0 ? uint8_t(random()) : uint8_t(mutant[at] ^ (1u << random() % 8));
      }
      try_to_run(mutant);
    }
  }
}

TEST(random_bytes_behind_a_header_fail_or_run) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::vector<uint8_t> bytes = small_program();
    for (size_t i = kCode; i < bytes.size(); ++i) {
      if (random() % 4 == 0) bytes[i] = uint8_t(random() % 4 == 0 ? random() : random() % 0x30);
    }
    try_to_run(bytes);
  }
}

}  // namespace test_validate
