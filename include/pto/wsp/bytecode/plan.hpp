// SPDX-License-Identifier: MIT
/// \file
/// A plan: a program quickened for one set of sizes, strides and symbol values.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <vector>

#include "pto/wsp/bytecode/affine.hpp"
#include "pto/wsp/bytecode/quick_code.hpp"

namespace pto::wsp::bytecode {

inline constexpr uint32_t kNoPostfix = 0xFFFFFFFFu;
inline constexpr uint32_t kNoQuick = 0xFFFFFFFFu;

/// An i64 that depends on registers: `c0 + sum(terms)`, or postfix code if it is not affine.
struct Value {
  int64_t c0 = 0;
  uint32_t first_term = 0;
  uint32_t num_terms = 0;
  uint32_t postfix = kNoPostfix;
  uint32_t quick = kNoQuick;  ///< begin of its quick code, if it has any

  bool is_constant() const { return num_terms == 0 && postfix == kNoPostfix; }
};

/// How a tensor is bound: extents and strides in elements. Tensors of one group are one memory.
struct TensorLayout {
  int64_t shape[kMaxTensorRank];
  int64_t stride[kMaxTensorRank];
  uint32_t group;

  bool operator==(const TensorLayout& other) const {
    return std::equal(shape, shape + kMaxTensorRank, other.shape) &&
           std::equal(stride, stride + kMaxTensorRank, other.stride) && group == other.group;
  }
};

struct QuickLoop {
  AxisKind kind;
  uint16_t reg;
  uint16_t depth;
  Op op;
  bool may_fail = false;  ///< its extent or tile could be an error
  Value extent;
  Value tile;
  Range trips{0, 0};

  /// From `reg` on.
  uint32_t num_registers() const { return kind == AxisKind::TILES ? 3 : 1; }
};

struct QuickCond {
  Value condition;
  bool may_fail;
};

struct QuickSet {
  uint16_t reg;
  bool is_flush;  ///< the run must wait before it evaluates the value
  bool may_fail;
  Value value;
};

using walk::LoopEvents;

/// A step of an Expander.
struct QuickStep {
  Step::Kind kind;
  LoopEvents events;  ///< of the loop of a kLoop or kEndLoop
  uint32_t index;
  /// The step after an empty loop (kLoop), of an iteration's begin (kEndLoop), after a condition that does
  /// not hold (kCond), after the whole condition (kElse).
  uint32_t target;
};

static_assert(sizeof(QuickStep) == sizeof(walk::Step) &&
                  offsetof(QuickStep, events) == offsetof(walk::Step, events),
              "generated walks read steps");

/// One dimension of a region. That of a DIM_ROWS lies in its index tensor.
struct QuickDim {
  Value start;
  Value extent;
  Abstract start_form;
  Abstract extent_form;
  Op op;
  int64_t tile = 0;      ///< DIM_TILE: the tile if it is one number, else 0
  int64_t tile_end = 0;  ///< DIM_TILE: the largest end of the axis
  bool is_proven = false;
  bool may_fail = false;
};

struct QuickIo {
  uint16_t tensor;
  Role role;
  uint8_t rank;
  uint8_t view_rank = 0;
  bool is_proven = true;  ///< region and view are inside their bounds for all values of the registers
  uint32_t first_dim;
  int32_t rows = -1;     ///< index in Plan::rows if the region is a row set
  bool is_late = false;  ///< see late.hpp
};

/// The memory layout of a row set, and facts about its indices.
struct QuickRows {
  uint16_t tensor;         ///< the index tensor
  uint8_t num_merged = 0;  ///< dimensions that are indexed together with the first one
  int8_t unmerged = -1;    ///< a dimension whose stride keeps it from merging with the next one, or -1
  int64_t size = 1;        ///< number of rows of the tensor
  int64_t stride = 0;      ///< between rows, in elements
  bool is_written;         ///< tasks write the indices, so they are checked when a task begins
  bool is_distinct;        ///< no two elements of the index tensor are equal
  bool is_inside = false;  ///< every element of the index tensor is a row
};

/// Fills in an open part of a view template: its data pointer, an extent or its indices.
struct Patch {
  enum Kind : uint8_t { kSetData, kAddData, kExtent, kRows } kind;
  uint8_t slot;   ///< kExtent: dimension of the view
  uint16_t view;  ///< within the site
  Value value;
  int64_t scale;  ///< kAddData: bytes per unit
};

struct QuickScalar {
  int64_t bits;  ///< if `value` is constant
  Value value;
  bool is_fixed;
  bool may_fail;
  bool is_late;  ///< see late.hpp
};

/// An optional number of a task: bytes of workspace, nanoseconds, or a mark.
struct QuickAmount {
  Value value;
  bool is_given = false;
  bool is_proven = true;  ///< its value is valid for all values of the registers
  bool is_late = false;   ///< see late.hpp
};

struct QuickSite {
  KernelFn fn;
  const KernelInfo* kernel;
  uint32_t pc;
  bool checks_early = false;      ///< an argument that is not late is not proven
  bool checks_late = false;       ///< a late argument is not proven
  bool is_plain = true;           ///< no workspace, no blocks, no written rows
  bool has_written_rows = false;  ///< some row set has indices that tasks write
  uint32_t first_io, num_io;
  uint32_t first_patch, num_patches;
  uint32_t first_scalar, num_scalars;
  uint32_t first_register, num_registers;  ///< the registers a task of this site needs to run
  QuickAmount workspace, cost;
  QuickAmount marks[kNumMarks];

  const QuickAmount& mark(Mark mark) const { return marks[size_t(mark)]; }
  /// Number `i` of the keys by which ready tasks start.
  const QuickAmount& order_key(uint32_t i) const { return marks[size_t(Mark::kOrder) + i]; }
};

struct Plan {
  Plan() = default;
  Plan(Plan&&) = default;
  Plan& operator=(Plan&&) = default;

  uint64_t number = 0;  ///< unique in the process; 0 is none
  Bindings bindings;
  std::vector<TensorLayout> layouts;
  std::vector<Term> terms;
  std::vector<QuickOp> quick_code;
  std::vector<QuickStep> steps;
  std::vector<QuickStep> check_steps;  ///< the steps of the check of parts that are not late
  std::vector<QuickLoop> loops;
  std::vector<QuickCond> conds;
  std::vector<QuickSet> sets;
  std::vector<Value> fails;
  std::vector<QuickSite> sites;
  std::vector<QuickIo> ios;
  std::vector<QuickDim> dims;
  std::vector<QuickRows> rows;
  std::vector<View> views;         ///< templates, one per io
  std::vector<uint64_t> streamed;  ///< tensors with streaming stores (see streaming.hpp)
  std::vector<Patch> patches;
  std::vector<QuickScalar> scalars;
  std::vector<uint32_t> registers;
  uint32_t max_scalars = 0;
  uint32_t max_scratch_bytes = 0;

  const Program& program() const { return *bindings.program; }

  int64_t evaluate(const Value& value, const int64_t* regs) const {
    if (value.postfix != kNoPostfix) {
      int64_t result = 0;
      const bool is_done =
          value.quick != kNoQuick && evaluate_quick(bindings, quick_code.data() + value.quick, regs, result);
      return is_done ? result : evaluate_postfix(bindings, value.postfix, regs);
    }
    // Wrap-around is harmless: the quickener proved that the sum itself fits.
    uint64_t sum = uint64_t(value.c0);
    const Term* term = terms.data() + value.first_term;
    for (uint32_t i = 0; i < value.num_terms; ++i)
      sum += uint64_t(term[i].coef) * uint64_t(regs[term[i].reg]);
    return int64_t(sum);
  }
};

/// The value of an expression in a run. Nothing while `is_known(tensor, indices)` is false for an element
/// that tasks write: it is asked once per such element, up to the first that is not known.
template <class IsKnown>
std::optional<int64_t> evaluate_known(const Plan& plan, const Value& value, const int64_t* registers,
                                      const IsKnown& is_known) {
  if (value.postfix == kNoPostfix) return plan.evaluate(value, registers);
  const Bindings& bindings = plan.bindings;
  bool are_known = true;
  const auto element = [&](Instruction in, uint32_t pc, const int64_t* indices) {
    const bool is_written = bindings.program->tensors[in.operand1].written != 0;
    are_known = are_known && (!is_written || is_known(in.operand1, indices));
    return are_known ? detail::read_element(bindings, in, pc, indices) : Outcome{};
  };
  try {
    const int64_t result = evaluate_postfix(bindings, value.postfix, registers, element);
    return are_known ? std::optional<int64_t>(result) : std::nullopt;
  } catch (EngineError&) {
    // The error may come from an element that is not written yet.
    if (are_known) throw;
    return {};
  }
}

/// Copies the steps of a plan for a walk in which loops make events: `events_of(loop)`, from its number.
template <class EventsOf>
std::vector<QuickStep> with_events(const Plan& plan, EventsOf events_of) {
  std::vector<QuickStep> steps = plan.steps;
  for (QuickStep& step : steps) {
    if (step.kind == Step::kLoop || step.kind == Step::kEndLoop) step.events = events_of(step.index);
  }
  return steps;
}

/// A number that no other plan of the process has.
inline uint64_t next_plan_number() {
  static std::atomic<uint64_t> num_plans{0};
  return ++num_plans;
}

/// Binds the elements that expressions of the plan read; `bases` holds the data of every tensor.
inline void bind_elements(Plan& plan, const std::vector<char*>& bases) {
  plan.bindings.elements.resize(bases.size());
  for (size_t i = 0; i < bases.size(); ++i) {
    plan.bindings.elements[i] = {bases[i], plan.layouts[i].shape, plan.layouts[i].stride,
                                 plan.program().tensors[i].dtype};
  }
}

}  // namespace pto::wsp::bytecode
