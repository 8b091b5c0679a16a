// SPDX-License-Identifier: MIT
/// \file
/// The engine under mutated programs: what passes validation runs on small arrays, with options of any kind,
/// or ends with an EngineError. Sanitizers see the rest. PTO_WSP_FUZZ sets the number of mutants.
#include <algorithm>
#include <cstring>
#include <random>

#include "pto/wsp/engine.hpp"
#include "random_rows.hpp"
#include "random_workload.hpp"

#if defined(__SANITIZE_ADDRESS__)
/// A workspace beyond all memory is an error of the run, as it is without the sanitizer.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
#endif

namespace test_fuzz {

using namespace pto::wsp;
using namespace pto::wsp::bytecode;
using assembler::Assembler;
using Bytes = std::vector<uint8_t>;

namespace {

constexpr int64_t kSize = 12;  ///< of dimensions that symbols name
constexpr int64_t kMaxElements = 4096;
constexpr int kMaxEvents = 400;

const KernelLibrary& library() { return mix::library().table(); }

/// Arrays for the tensors of a program, or none where they would be large.
class Arrays {
 public:
  Arrays(const Program& program, std::mt19937_64& random) {
    for (const TensorDescriptor& tensor : program.tensors) add(tensor, random);
  }

  bool are_small() const { return are_small_; }
  const std::vector<bind::ArrayRef>& refs() const { return refs_; }

 private:
  void add(const TensorDescriptor& tensor, std::mt19937_64& random) {
    bind::ArrayRef ref;
    ref.dtype = tensor.dtype;
    ref.rank = tensor.rank;
    int64_t stride = 1;
    for (int d = tensor.rank; d-- > 0;) {
      ref.shape[d] = tensor.dims[d] < 0 ? kSize : tensor.dims[d];
      ref.stride_bytes[d] = stride * dtype_bytes(tensor.dtype);
      if (ref.shape[d] > kMaxElements / std::max<int64_t>(stride, 1)) are_small_ = false;
      if (!are_small_) return;
      stride *= ref.shape[d] + (d > 0 && random() % 4 == 0 ? 1 : 0);
    }
    memory_.emplace_back(size_t(stride) + 1);
    for (uint64_t& word : memory_.back()) word = random() % 3 == 0 ? random() >> 1 : random() % 8;
    // Rows of a row set: most of them exist.
    if (tensor.dtype == DType::i32) {
      auto* indices = reinterpret_cast<int32_t*>(memory_.back().data());
      for (int64_t i = 0; i < stride; ++i)
        indices[i] = random() % 64 == 0 ? int32_t(random()) : int32_t(i % kSize);
    }
    ref.data = memory_.back().data();
    refs_.push_back(ref);
  }

  std::vector<std::vector<uint64_t>> memory_;
  std::vector<bind::ArrayRef> refs_;
  bool are_small_ = true;
};

sched::RunOptions random_options(std::mt19937_64& random) {
  const auto chance = [&random](int n) { return random() % uint64_t(n) == 0; };
  sched::RunOptions options;
  options.workers = uint32_t(random() % 3 + 1);
  options.tracks = chance(2);
  options.trace = chance(4);
  options.verifies = chance(4);
  options.deps = sched::Deps(chance(2) ? random() % 4 : 0);
  options.ownership = sched::Ownership(chance(4) ? random() % 4 : 0);
  options.ready = sched::Ready(chance(4) ? random() % 3 : 0);
  options.streams = chance(4) ? sched::Streams::kByKey : sched::Streams::kOff;
  options.turns = chance(8) ? random() % 3 : 0;
  options.in_flight = chance(8) ? random() % 3 : 0;
  options.num_pools = chance(8) ? uint32_t(random() % 4) : 0;
  options.window = chance(4) ? random() % 20 + 1 : sched::RunOptions::kWindow;
  options.start = chance(4) ? sched::Start::kAfterBuild : sched::Start::kImmediate;
  options.checks_iterations = options.checks_instances = chance(8);
  options.checks_edges = chance(8);
  options.is_interrupted = [] { return true; };  // the first question comes after 50 ms
  return options;
}

/// Whether a program ends soon, as far as that can be seen without running it.
bool ends_soon(const Program& program, const std::vector<bind::ArrayRef>& arrays,
               const std::vector<std::optional<int64_t>>& symbols) {
  const bind::Arguments arguments = bind::bind_arguments(program, arrays, symbols);
  Plan plan = make_plan({&program, arguments.symbols}, arguments.layouts, library());
  bind_elements(plan, arguments.bases);
  Expander expander(plan);
  for (int i = 0; i < kMaxEvents; ++i) {
    const Event event = expander.next();
    if (event.kind == Event::kEnd) return true;
    if (event.kind == Event::kFlush) expander.assign(event.index, i);
  }
  return false;
}

/// What became of mutants.
struct Outcomes {
  int loaded = 0, begun = 0, complete = 0;
};

void try_to_run(const Bytes& bytes, std::mt19937_64& random, Outcomes& outcomes) {
  try {
    Executable executable(bytes.data(), bytes.size(), mix::library().shared());
    ++outcomes.loaded;
    const Program& program = executable.program();
    const Arrays arrays(program, random);
    if (!arrays.are_small()) return;
    std::vector<std::optional<int64_t>> symbols;
    for (const SymbolDescriptor& symbol : program.symbols) {
      const int64_t values[] = {0, 1, kSize, INT64_MIN, INT64_MAX};
      symbols.push_back(symbol.kind == SymbolKind::SIZE ? kSize : values[random() % 5]);
    }
    try {
      if (!ends_soon(program, arrays.refs(), symbols)) return;
    } catch (const EngineError&) {  // which the run finds too
    }
    ++outcomes.begun;
    mix::stamps().reset(0);
    for (int run = 0; run < 2; ++run) {
      const sched::RunOptions options = random_options(random);
      const RunResult result = executable.run(arrays.refs(), symbols, options);
      if (result.record != nullptr && result.tasks < 300) result.record->find_dependences();
      const bool is_ordered = options.deps == sched::Deps::kExact || options.deps == sched::Deps::kBytes;
      if (is_ordered && options.verifies) CHECK_EQ(*result.order_violations, uint64_t{0});
    }
    ++outcomes.complete;
  } catch (const EngineError&) {
  } catch (const std::bad_alloc&) {
  }
}

/// A program with what random workloads do not have.
Bytes rare_program() {
  Assembler p(library());
  const uint16_t out = p.tensor(DType::u64, {-1, 6}), lengths = p.tensor(DType::i64, {-1}, false);
  p.size_symbol();
  const uint32_t scalar = p.scalar_symbol(DType::i32);
  const uint16_t variable = p.variable();
  const assembler::Expr two = p.constant(2), six = p.constant(6);
  const uint32_t i = p.tiles(Op::PARALLEL_FOR, p.symbol(0), two);
  p.set(variable, Assembler::apply(Op::EXPR_SELECT, {Assembler::element(lengths, {p.reg(i)}), two, six}));
  const uint32_t k = p.loop(Op::FOR_EACH, Assembler::apply(Op::EXPR_MIN, {p.reg(variable), two}));
  p.cond(Assembler::apply(Op::EXPR_LT, {p.reg(k), Assembler::apply(Op::EXPR_SHR, {p.symbol(scalar), two})}));
  p.fail(3, Assembler::apply(Op::EXPR_BITAND, {p.reg(k), six}));
  p.otherwise();
  p.task(4);  // {inout}, rank 2
  p.io(Role::inout, out);
  p.tile(p.axis_of(i));
  p.range(p.reg(k), Assembler::apply(Op::EXPR_SHL, {two, p.reg(k)}));
  p.workspace(p.mul(p.reg(k), p.constant(64)));
  p.cost(Assembler::apply(Op::EXPR_BITOR, {p.reg(k), six}));
  p.key(p.reg(k), 4);
  p.order(Assembler::apply(Op::EXPR_NEG, {p.reg(i)}));
  p.stream(Assembler::apply(Op::EXPR_XOR, {p.reg(i), six}));
  p.turn(p.reg(k));
  p.admit(p.reg(i));
  p.pool(Assembler::apply(Op::EXPR_INVERT, {p.reg(k)}));
  p.group(p.reg(k));
  p.end_cond();
  p.end();
  p.end();
  return p.bytes();
}

/// Changes one thing: a bit, a byte, an operand, a constant, or the order of two instructions.
/// `header` is that of the program before any change.
void mutate(Bytes& bytes, const Header& header, std::mt19937_64& random) {
  const size_t num_instructions = header.num_instructions;
  const auto instruction = [&](size_t i) { return bytes.data() + sizeof(Header) + 8 * i; };
  uint8_t* const one = instruction(random() % num_instructions);
  uint8_t* const other = instruction(random() % num_instructions);
  switch (random() % 8) {
    case 0: bytes[random() % bytes.size()] ^= uint8_t(1u << random() % 8); break;
    case 1: bytes[random() % bytes.size()] = uint8_t(random()); break;
    case 2: std::memcpy(one + 4, other + 4, 4); break;  // operand2
    case 3: std::memcpy(one, other, 8); break;          // all of an instruction
    case 4: std::swap_ranges(one, one + 8, other); break;
    case 5: one[0] = uint8_t(one[0] + random() % 5 - 2); break;  // its opcode
    default: {
      if (header.num_constants == 0) break;
      const int64_t values[] = {
          0,         1,         -1,           2,  7,  kSize,    INT64_MIN, INT64_MAX, INT32_MAX, INT32_MIN,
          1LL << 40, 1LL << 62, -(1LL << 62), 63, 64, 1LL << 32};
      uint8_t* const constants = bytes.data() + bytes.size() - 8 * header.num_constants;
      std::memcpy(constants + 8 * (random() % header.num_constants), &values[random() % 16], 8);
    }
  }
}

Bytes original(uint64_t seed) {
  if (seed % 8 == 0) return rare_program();
  return seed % 3 == 0 ? random_rows::Workload(seed).bytes()
                       : random_workload::Workload(seed, 30, seed % 5 == 0).bytes();
}

}  // namespace

TEST(code_that_never_runs_may_be_far_outside) {
  Assembler p(library());
  const uint16_t out = p.tensor(DType::u64, {kSize});
  p.cond(p.constant(0));
  p.task(0);  // {out}, rank 1
  p.io(Role::out, out);
  p.range(p.constant(INT64_MAX), p.constant(INT64_MAX));
  p.end_cond();
  std::mt19937_64 random(1);
  Executable executable(p.bytes().data(), p.bytes().size(), mix::library().shared());
  const Arrays arrays(executable.program(), random);
  sched::RunOptions options;
  options.workers = 2;
  CHECK_EQ(executable.run(arrays.refs(), {}, options).tasks, uint64_t{0});
}

TEST(mutants_that_load_run_or_fail) {
  const char* wanted = std::getenv("PTO_WSP_FUZZ");
  const uint64_t num_mutants = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 4000;
  const char* chosen = std::getenv("PTO_WSP_SEED");
  Outcomes outcomes;
  Bytes bytes;
  for (uint64_t i = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 0, end = i + num_mutants;
       i < end; ++i) {
    const uint64_t seed = i / 100;
    if (bytes.empty() || i % 100 == 0) bytes = original(seed);
    std::mt19937_64 random(i);
    Bytes mutant = bytes;
    Header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    for (uint64_t n = random() % 3 + 1; n > 0; --n) mutate(mutant, header, random);
    try_to_run(mutant, random, outcomes);
  }
  std::printf("  %d loaded, %d begun, %d complete\n", outcomes.loaded, outcomes.begun, outcomes.complete);
  CHECK(uint64_t(outcomes.complete) > num_mutants / 50);
}

}  // namespace test_fuzz
