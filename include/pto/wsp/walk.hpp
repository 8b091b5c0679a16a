// SPDX-License-Identifier: MIT
/// \file
/// What the generated source of a workload's walk is written with, and how the expander calls it.
///
/// The source is a function that goes on to the next event. Its place is the number of a step, so the
/// expander can enter it at any step, and can interpret a step instead: where an expression has no value, the
/// function stops before the step, and the interpreter reports the error. No standard header is included.
#pragma once

#include <stdint.h>

#include "pto/wsp/abi.hpp"

namespace pto::wsp::walk {

inline constexpr uint32_t kMaxLoopDepth = 16;
inline constexpr uint32_t kMaxSilentSteps = 1 << 16;  ///< without an event, until the walk reports kNothing

/// Where the walk of a loop makes events of its own.
enum class LoopEvents : uint8_t {
  kNone,
  kIterations,  ///< kUnit where an iteration begins, kUnitEnd after the last one
  kWhole,       ///< kUnit where the loop begins, kUnitEnd after it
  kGroups,      ///< kEnter, kIteration between iterations, kLeave
};

/// What a walk came to.
struct Event {
  enum Kind : uint8_t {
    kTask,       ///< index = site
    kFlush,      ///< a variable needs a value that tasks write; index = set
    kUnit,       ///< a unit of work begins; index = loop
    kUnitEnd,    ///< the loop that makes units ended; index = loop
    kEnter,      ///< a loop of groups begins; index = loop
    kIteration,  ///< the next iteration of a loop of groups begins; index = loop
    kLeave,      ///< a loop of groups ended; index = loop
    kMove,       ///< a token begins or ends; index = move
    kWait,       ///< time passes; index = register that has the cycles
    kNothing,    ///< many steps made no task; the walk goes on with the next call
    kEnd,
    kInterpret,  ///< of generated source alone: the interpreter takes the step, which may be an error
  } kind;
  uint32_t index;
};

/// A step as its structure is laid out; see bytecode::QuickStep.
struct Step {
  uint8_t kind;
  LoopEvents events;  ///< of the loop that begins or ends
  uint32_t index;
  uint32_t target;
};

/// Where the elements of a tensor lie that expressions read.
struct ElementSource {
  const char* base = nullptr;
  const int64_t* shape = nullptr;   ///< per dimension
  const int64_t* stride = nullptr;  ///< per dimension, in elements
  DType dtype = DType::i64;
};

/// Eight bytes of an argument: `base + coef * register`.
struct AffineWord {
  char* target;
  uint64_t base;
  uint64_t coef;
  uint32_t reg;
  int32_t tensor;  ///< whose address is part of `base`, or -1
};

/// Entries [first, end) of a table.
struct Section {
  uint32_t first, end;
  bool is_empty() const { return first == end; }
};

/// What is filled in where an iteration of a loop begins; forms are what is not a line.
struct Stores {
  Section lines, forms;
};

/// The arguments that a walk keeps filled in.
struct Arguments {
  const AffineWord* lines = nullptr;
  const Stores* loops = nullptr;  ///< per loop
  void* owner = nullptr;
  void (*store_forms)(void* owner, const Section& forms, const int64_t* registers) = nullptr;
};

/// An open loop.
struct LoopState {
  int64_t index;
  int64_t trips;
  int64_t extent;
  int64_t tile;
};

/// The place of a walk.
struct State {
  uint32_t step = 0;
  uint32_t changed_depth = 0;  ///< the outermost depth of loops that began an iteration
  uint64_t num_tasks = 0;
  LoopState loops[kMaxLoopDepth];  ///< by depth
};

/// What does not change during a walk.
struct Inputs {
  const int64_t* symbols;
  const ElementSource* elements;  ///< per tensor
  const Step* steps;
  const Arguments* arguments;  ///< or null
};

using WalkFn = Event (*)(State& state, int64_t* registers, const Inputs& inputs);

/// A number, unless there is none: exact i64 arithmetic, in which what has no value spreads.
struct Number {
  int64_t value;
  bool is_fault;
  Number(int64_t value_, bool is_fault_ = false) : value(value_), is_fault(is_fault_) {}
};

/// A variable of the walk.
struct Variable {
  int64_t& value;
  operator Number() const { return value; }
  void operator=(int64_t other) const { value = other; }
};

namespace detail {

inline Number after(Number a, Number b, int64_t value, bool is_fault = false) {
  return {value, a.is_fault || b.is_fault || is_fault};
}

}  // namespace detail

inline Number operator+(Number a, Number b) {
  int64_t r;
  const bool is_fault = __builtin_add_overflow(a.value, b.value, &r);
  return detail::after(a, b, r, is_fault);
}
inline Number operator-(Number a, Number b) {
  int64_t r;
  const bool is_fault = __builtin_sub_overflow(a.value, b.value, &r);
  return detail::after(a, b, r, is_fault);
}
inline Number operator*(Number a, Number b) {
  int64_t r;
  const bool is_fault = __builtin_mul_overflow(a.value, b.value, &r);
  return detail::after(a, b, r, is_fault);
}
inline Number operator-(Number a) { return Number(0) - a; }
inline Number operator~(Number a) { return {~a.value, a.is_fault}; }
inline Number operator!(Number a) { return {a.value == 0, a.is_fault}; }
inline Number operator<(Number a, Number b) { return detail::after(a, b, a.value < b.value); }
inline Number operator<=(Number a, Number b) { return detail::after(a, b, a.value <= b.value); }
inline Number operator>(Number a, Number b) { return detail::after(a, b, a.value > b.value); }
inline Number operator>=(Number a, Number b) { return detail::after(a, b, a.value >= b.value); }
inline Number operator==(Number a, Number b) { return detail::after(a, b, a.value == b.value); }
inline Number operator!=(Number a, Number b) { return detail::after(a, b, a.value != b.value); }
inline Number operator&(Number a, Number b) { return detail::after(a, b, a.value & b.value); }
inline Number operator|(Number a, Number b) { return detail::after(a, b, a.value | b.value); }
inline Number operator^(Number a, Number b) { return detail::after(a, b, a.value ^ b.value); }
/// Both operands are evaluated, and may have no value.
inline Number both(Number a, Number b) { return detail::after(a, b, a.value != 0 && b.value != 0); }
inline Number either(Number a, Number b) { return detail::after(a, b, a.value != 0 || b.value != 0); }
inline Number smaller(Number a, Number b) {
  return detail::after(a, b, a.value < b.value ? a.value : b.value);
}
inline Number larger(Number a, Number b) {
  return detail::after(a, b, a.value > b.value ? a.value : b.value);
}
/// Floor division, and its remainder.
inline Number floordiv(Number a, Number b) {
  if (b.value == 0) return {0, true};
  if (b.value == -1) return detail::after(a, b, 0) - a;
  const int64_t rest = a.value % b.value;
  return detail::after(a, b, a.value / b.value - (rest != 0 && (rest < 0) != (b.value < 0)));
}
inline Number mod(Number a, Number b) {
  if (b.value == 0) return {0, true};
  if (b.value == -1) return detail::after(a, b, 0);
  const int64_t rest = a.value % b.value;
  return detail::after(a, b, rest != 0 && (rest < 0) != (b.value < 0) ? rest + b.value : rest);
}
inline Number shift_left(Number a, Number b) {
  if (b.value < 0 || b.value > 63) return {0, true};
  const auto r = int64_t(uint64_t(a.value) << b.value);
  return detail::after(a, b, r, r >> b.value != a.value);
}
inline Number shift_right(Number a, Number b) {
  if (b.value < 0 || b.value > 63) return {0, true};
  return detail::after(a, b, a.value >> b.value);
}
inline Number truth(Number a) { return {a.value != 0, a.is_fault}; }
inline Number not_below_zero(Number a) { return {a.value, a.is_fault || a.value < 0}; }
/// `a`, unless it lies outside [0, limit].
inline Number within(Number a, Number limit) {
  return detail::after(a, limit, a.value, a.value < 0 || a.value > limit.value);
}
/// What has no value in the arm that is not chosen does no harm.
inline Number select(Number condition, Number then, Number other) {
  const Number chosen = condition.value != 0 ? then : other;
  return {chosen.value, condition.is_fault || chosen.is_fault};
}

/// A tensor of integers whose elements decide what runs.
template <class T>
struct Elements {
  const ElementSource& source;

  template <class... Indices>
  Number operator()(Indices... indices) const {
    const Number at[] = {indices...};
    int64_t offset = 0;
    for (int d = 0; d < int(sizeof...(indices)); ++d) {
      if (at[d].is_fault || uint64_t(at[d].value) >= uint64_t(source.shape[d])) return {0, true};
      offset += at[d].value * source.stride[d];
    }
    T value;
    __builtin_memcpy(&value, source.base + offset * int64_t(sizeof value), sizeof value);
    return {int64_t(value), sizeof(T) == 8 && T(-1) > T(0) && int64_t(value) < 0};
  }
};

/// The walk of a function: where it is, and what its loops do.
class Walk {
 public:
  Walk(State& state, int64_t* registers, const Inputs& inputs)
      : state_(state), registers_(registers), inputs_(inputs) {}

  /// Enters a loop with this number and depth, whose variable has the first of its registers; at `step`.
  void begin(uint32_t step, uint32_t loop, uint32_t depth, uint32_t reg, Number extent) {
    begin_loop<false>(step, loop, depth, reg, extent, 1);
  }
  /// The same for a loop over tiles.
  void begin_tiles(uint32_t step, uint32_t loop, uint32_t depth, uint32_t reg, Number extent, Number tile) {
    begin_loop<true>(step, loop, depth, reg, extent, tile);
  }
  /// Ends an iteration of a loop without other loops; at `step`, where the iteration ends.
  void next(uint32_t step, uint32_t loop, uint32_t depth, uint32_t reg) {
    next_iteration<false>(step, loop, depth, reg);
  }
  void next_tile(uint32_t step, uint32_t loop, uint32_t depth, uint32_t reg) {
    next_iteration<true>(step, loop, depth, reg);
  }
  /// The same for a loop around others. It is not inlined, as `begin` is not: a workload may have hundreds of
  /// loops, and the compiler's time grows with each copy.
  [[gnu::noinline]] void next_outer(uint32_t step, uint32_t loop, uint32_t depth, uint32_t reg) {
    next_iteration<false>(step, loop, depth, reg);
  }
  [[gnu::noinline]] void next_outer_tile(uint32_t step, uint32_t loop, uint32_t depth, uint32_t reg) {
    next_iteration<true>(step, loop, depth, reg);
  }
  /// Whether an iteration begins.
  bool goes_on() const { return goes_on_; }

  /// Whether there is an event. The walk then goes on at `step`.
  bool stops(uint32_t step) {
    if (event_.kind == kNone) return false;
    if (event_.kind != Event::kInterpret) state_.step = step;
    return true;
  }
  Event event() const { return event_; }

  /// Whether the step has to be interpreted because the number has no value. Keeps the value otherwise.
  bool has_none(uint32_t step, Number number) {
    value_ = number.value;
    if (number.is_fault) interpret(step);
    return number.is_fault;
  }
  int64_t value() const { return value_; }
  Event interpret(uint32_t step) {
    state_.step = step;
    return event_ = {Event::kInterpret, 0};
  }
  Event task(uint32_t site, uint32_t next_step) {
    state_.step = next_step;
    ++state_.num_tasks;
    return {Event::kTask, site};
  }
  Event flush(uint32_t set, uint32_t next_step) {
    state_.step = next_step;
    return {Event::kFlush, set};
  }
  /// A token begins or ends.
  Event move(uint32_t move, uint32_t next_step) {
    state_.step = next_step;
    return {Event::kMove, move};
  }
  /// Time passes: as many cycles as the register holds.
  Event wait(uint32_t reg, uint32_t next_step) {
    state_.step = next_step;
    return {Event::kWait, reg};
  }
  Event end(uint32_t step) {
    state_.step = step;
    return {Event::kEnd, 0};
  }

 private:
  static constexpr Event::Kind kNone = Event::Kind(255);

  template <bool kHasTiles>
  [[gnu::noinline]] void begin_loop(uint32_t step, uint32_t loop, uint32_t depth, uint32_t reg, Number extent,
                                    Number tile) {
    goes_on_ = false;
    if (extent.is_fault || extent.value < 0 || tile.is_fault || tile.value < 1) {
      interpret(step);
      return;
    }
    LoopState& state = state_.loops[depth];
    state.index = 0;
    state.extent = extent.value;
    state.tile = tile.value;
    state.trips = extent.value == 0 ? 0 : (extent.value - 1) / tile.value + 1;
    if (state.trips == 0) return;
    goes_on_ = true;
    const LoopEvents events = inputs_.steps[step].events;
    if (events != LoopEvents::kNone)
      event_ = {events == LoopEvents::kGroups ? Event::kEnter : Event::kUnit, loop};
    enter<kHasTiles>(loop, depth, reg, state);
  }

  template <bool kHasTiles>
  void next_iteration(uint32_t step, uint32_t loop, uint32_t depth, uint32_t reg) {
    LoopState& state = state_.loops[depth];
    const LoopEvents events = inputs_.steps[step].events;
    goes_on_ = ++state.index < state.trips;
    if (goes_on_) {
      if (events == LoopEvents::kGroups || events == LoopEvents::kIterations)
        event_ = {events == LoopEvents::kGroups ? Event::kIteration : Event::kUnit, loop};
      else if (++num_silent_ == kMaxSilentSteps)
        event_ = {Event::kNothing, 0};
      enter<kHasTiles>(loop, depth, reg, state);
    } else if (events != LoopEvents::kNone) {
      event_ = {events == LoopEvents::kGroups ? Event::kLeave : Event::kUnitEnd, loop};
    }
  }

  template <bool kHasTiles>
  void enter(uint32_t loop, uint32_t depth, uint32_t reg, const LoopState& state) {
    int64_t* own = registers_ + reg;
    own[0] = state.index;
    if (kHasTiles) {
      own[1] = state.index * state.tile;
      const int64_t rest = state.extent - own[1];
      own[2] = rest < state.tile ? rest : state.tile;
    }
    if (depth < state_.changed_depth) state_.changed_depth = depth;
    if (inputs_.arguments == nullptr) return;
    const Arguments& arguments = *inputs_.arguments;
    const Stores& stores = arguments.loops[loop];
    for (const AffineWord *line = arguments.lines + stores.lines.first,
                          *end = arguments.lines + stores.lines.end;
         line != end; ++line) {
      const uint64_t value = line->base + line->coef * uint64_t(registers_[line->reg]);
      __builtin_memcpy(line->target, &value, sizeof(value));
    }
    if (!stores.forms.is_empty()) arguments.store_forms(arguments.owner, stores.forms, registers_);
  }

  State& state_;
  int64_t* const registers_;
  const Inputs& inputs_;
  Event event_{kNone, 0};
  bool goes_on_ = false;
  int64_t value_ = 0;
  uint32_t num_silent_ = 0;
};

}  // namespace pto::wsp::walk

/// The one symbol that the library of a walk exports.
extern "C" pto::wsp::walk::Event pto_wsp_walk(pto::wsp::walk::State& state, int64_t* registers,
                                              const pto::wsp::walk::Inputs& inputs);
