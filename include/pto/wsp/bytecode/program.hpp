// SPDX-License-Identifier: MIT
/// \file
/// A decoded workload: the sections of the bytecode, and the structure the validator found in them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "pto/wsp/bytecode/format.hpp"
#include "pto/wsp/error.hpp"
#include "pto/wsp/walk.hpp"

namespace pto::wsp::bytecode {

/// A loop, in the order of the loop instructions. `parent` is a loop or -1.
struct LoopForm {
  Op op;
  uint16_t axis;
  uint16_t depth;
  int32_t parent;
  uint32_t begin_pc;
  uint32_t end_pc;
  uint32_t num_conds;  ///< conditions around it
};

/// A COND instruction.
struct CondForm {
  uint32_t pc;
  uint32_t condition;  ///< expression
};

/// A SET instruction.
struct SetForm {
  uint32_t pc;
  uint16_t reg;
  uint32_t value;  ///< expression
  bool is_flush;   ///< it reads a tensor that some task writes
};

/// A FAIL instruction.
struct FailForm {
  uint32_t pc;
  uint16_t reason;
  uint32_t value;  ///< expression
};

/// A PROCESS instruction.
struct ProcessForm {
  uint32_t pc;
};

/// A SEND, END_SEND, RECEIVE, END_RECEIVE or RECEIVE_EACH instruction.
struct MoveForm {
  Op op;
  uint32_t pc;       ///< of the SEND or RECEIVE, also of one that ends
  uint16_t tensor;   ///< the ring
  uint16_t reg;      ///< the first register of the token
  uint32_t process;  ///< in Program::processes
};

struct DimForm {
  Op op;            ///< DIM_INDEX, DIM_RANGE, DIM_TILE, DIM_FULL, DIM_ROWS or DIM_MERGED
  uint16_t axis;    ///< DIM_TILE
  int32_t loop;     ///< DIM_TILE: the enclosing loop over `axis`
  uint32_t start;   ///< DIM_INDEX, DIM_RANGE, DIM_ROWS: expression
  uint32_t extent;  ///< DIM_RANGE, DIM_ROWS: expression
  uint16_t tensor;  ///< DIM_ROWS: the index tensor
};

struct IoForm {
  Role role;
  uint16_t tensor;
  uint32_t first_dim;    ///< rank of the tensor many
  bool is_late = false;  ///< see late.hpp
};

inline constexpr uint32_t kNoExpression = 0xFFFFFFFFu;

struct ParamForm {
  Op op;
  uint32_t operand;
  bool is_late = false;  ///< see late.hpp
};

/// An optional number of a task besides its arguments, and its valid range.
struct AmountForm {
  uint32_t expression = kNoExpression;
  bool is_late = false;  ///< see late.hpp
  int64_t least = 0;
  int64_t most = INT64_MAX;
};

/// The most keys by which ready tasks start.
inline constexpr uint32_t kMaxOrderKeys = 4;

/// Numbers that a task states for its schedule, in the order of their instructions.
enum class Mark : uint8_t {
  kKey,
  kOrder,
  kStream = kOrder + kMaxOrderKeys,
  kTurn,
  kAdmit,
  kPool,
  kGroup,
  kPrefetch
};
inline constexpr size_t kNumMarks = size_t(Mark::kPrefetch) + 1;

/// The instruction of each mark; those of `num` keys state their number.
struct MarkForm {
  Op op;
  Mark first;
  uint32_t num = 1;
};
inline constexpr MarkForm kMarks[] = {
    {Op::KEY, Mark::kKey},       {Op::ORDER, Mark::kOrder, kMaxOrderKeys},
    {Op::STREAM, Mark::kStream}, {Op::TURN, Mark::kTurn},
    {Op::ADMIT, Mark::kAdmit},   {Op::POOL, Mark::kPool},
    {Op::GROUP, Mark::kGroup},   {Op::PREFETCH, Mark::kPrefetch},
};

/// A TASK instruction: the place in the program that makes tasks of one kernel.
struct SiteForm {
  uint32_t pc;
  uint16_t kernel;     ///< index in the library
  int32_t loop;        ///< innermost enclosing loop or -1
  uint32_t num_conds;  ///< conditions around it
  uint32_t first_io;
  uint32_t num_io;
  uint32_t first_param;
  uint32_t num_params;
  AmountForm workspace, cost;
  AmountForm marks[kNumMarks];
  uint32_t first_after;  ///< in Program::afters
  uint32_t num_afters;
};

/// The statements in order: one step per instruction of structure and per TASK, then one HALT.
struct Step {
  enum Kind : uint8_t {
    kLoop,
    kEndLoop,
    kCond,
    kElse,
    kEndCond,
    kSet,
    kFail,
    kTask,
    kHalt,
    kMove,
    kProcess,
    kEndProcess,
    kWait
  } kind;
  uint32_t index;        ///< loop, condition, set, fail, site, move or process; register of a wait
  bool is_late = false;  ///< see late.hpp
};

/// Facts about an expression in the code after HALT.
struct ExpressionForm {
  std::vector<uint32_t> registers;       ///< that it reads
  std::vector<uint32_t> loop_registers;  ///< those of them that axes own
  bool reads_written = false;            ///< whether it reads a tensor that some task writes
  bool has_select = false;
};

struct Program {
  Header header;
  std::vector<Instruction> instructions;
  std::vector<AxisDescriptor> axes;
  std::vector<KernelDescriptor> kernels;
  std::vector<TensorDescriptor> tensors;
  std::vector<SymbolDescriptor> symbols;
  std::vector<int64_t> constants;

  std::vector<Step> steps;
  std::vector<LoopForm> loops;
  std::vector<CondForm> conds;
  std::vector<SetForm> sets;
  std::vector<FailForm> fails;
  std::vector<ProcessForm> processes;  ///< of a network; else none
  std::vector<MoveForm> moves;
  std::vector<SiteForm> sites;
  std::vector<IoForm> ios;
  std::vector<DimForm> dims;
  std::vector<ParamForm> params;
  std::vector<uint32_t> afters;  ///< sites
  std::vector<ExpressionForm> expressions;
  std::vector<int32_t> expression_at;  ///< per instruction: the expression that starts there, or -1
  std::vector<bool> is_variable;       ///< per register: whether no axis owns it
  std::vector<bool> decides;  ///< per tensor: whether an expression or a row set reads elements of it

  walk::WalkFn walk = nullptr;  ///< the walk as generated source, of the same steps; null if there is none

  bool is_network() const { return !processes.empty(); }
  bool has_expression(uint64_t pc) const { return pc < expression_at.size() && expression_at[pc] >= 0; }
  const ExpressionForm& expression(uint32_t pc) const { return expressions[size_t(expression_at[pc])]; }
};

/// Whether no condition is between `loop` and a task inside it.
inline bool is_in_every_iteration(const LoopForm& loop, const SiteForm& site) {
  return site.num_conds == loop.num_conds;
}

/// Calls `visit(expression)` for the expressions of a dimension.
template <class Visit>
void for_expressions(const DimForm& dim, Visit visit) {
  const bool has_extent = dim.op == Op::DIM_RANGE || dim.op == Op::DIM_ROWS;
  if (dim.op == Op::DIM_INDEX || has_extent) visit(dim.start);
  if (has_extent) visit(dim.extent);
}

/// Calls `visit(expression)` for the expressions of a task.
template <class Visit>
void for_expressions(const Program& program, const SiteForm& site, Visit visit) {
  for (uint32_t i = 0; i < site.num_params; ++i) {
    const ParamForm& param = program.params[site.first_param + i];
    if (param.op == Op::PARAM_EXPR) visit(param.operand);
  }
  for (uint32_t i = 0; i < site.num_io; ++i) {
    const IoForm& io = program.ios[site.first_io + i];
    for (uint32_t d = 0; d < program.tensors[io.tensor].rank; ++d)
      for_expressions(program.dims[io.first_dim + d], visit);
  }
  const auto visit_amount = [&](const AmountForm& amount) {
    if (amount.expression != kNoExpression) visit(amount.expression);
  };
  visit_amount(site.workspace);
  visit_amount(site.cost);
  for (const AmountForm& mark : site.marks) visit_amount(mark);
}

/// Calls `visit(expression)` for the expressions that decide a step itself, without those of tasks.
template <class Visit>
void for_expressions(const Program& program, const Step& step, Visit visit) {
  switch (step.kind) {
    case Step::kLoop: {
      const AxisDescriptor& axis = program.axes[program.loops[step.index].axis];
      visit(axis.extent_expr);
      if (axis.kind == AxisKind::TILES) visit(axis.tile_expr);
      return;
    }
    case Step::kCond: return visit(program.conds[step.index].condition);
    case Step::kSet: return visit(program.sets[step.index].value);
    case Step::kFail: return visit(program.fails[step.index].value);
    default: return;
  }
}

[[noreturn]] inline void fail_at(const char* reason, const char* unit, int64_t position) {
  throw EngineError("bad-bytecode", std::string("malformed bytecode: ") + reason)
      .with("reason", std::string(reason))
      .with_int(unit, position);
}

namespace detail {

class SectionReader {
 public:
  SectionReader(const uint8_t* bytes, size_t size) : bytes_(bytes), size_(size) {}

  template <class T>
  void read(std::vector<T>& out, uint64_t count) {
    static_assert(sizeof(T) % 8 == 0, "sections stay multiples of 8 bytes");
    if (count > (size_ - offset_) / sizeof(T))
      fail_at("a section ends after the bytecode", "offset", int64_t(offset_));
    out.resize(count);
    if (count > 0) std::memcpy(out.data(), bytes_ + offset_, count * sizeof(T));
    offset_ += count * sizeof(T);
  }
  size_t offset() const { return offset_; }

 private:
  const uint8_t* bytes_;
  size_t size_;
  size_t offset_ = sizeof(Header);
};

}  // namespace detail

/// Splits bytecode into its sections. Throws `bad-bytecode` or `bytecode-version`.
inline Program read_sections(const uint8_t* bytes, size_t size) {
  Program program{};
  if (size < sizeof(Header)) fail_at("shorter than a header", "offset", int64_t(size));
  std::memcpy(&program.header, bytes, sizeof(Header));
  const Header& header = program.header;
  if (header.magic != kMagic) fail_at("wrong magic", "offset", 0);
  if (header.version != kVersion) {
    throw EngineError("bytecode-version", "the bytecode has another version than the engine")
        .with_int("expected", kVersion)
        .with_int("found", header.version);
  }
  if (header.total_bytes != size) fail_at("total_bytes is not the size of the bytecode", "offset", 36);
  detail::SectionReader reader(bytes, size);
  reader.read(program.instructions, header.num_instructions);
  reader.read(program.axes, header.num_axes);
  reader.read(program.kernels, header.num_kernels);
  reader.read(program.tensors, header.num_tensors);
  reader.read(program.symbols, header.num_symbols);
  reader.read(program.constants, header.num_constants);
  if (reader.offset() != size) fail_at("bytes after the last section", "offset", int64_t(reader.offset()));
  return program;
}

}  // namespace pto::wsp::bytecode
