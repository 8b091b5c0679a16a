// SPDX-License-Identifier: MIT
/// \file
/// The expander: walks a plan and yields its tasks in program order, one at a time.
///
/// A state machine without recursion: a copy of an Expander is a place in the program to which one can
/// return, unless it fills in arguments.
#pragma once

#include <vector>

#include "pto/wsp/bytecode/arguments.hpp"

namespace pto::wsp::bytecode {

/// The result of `Expander::next`. A loop has events of its own only if its steps say so (LoopEvents).
struct Event {
  enum Kind : uint8_t {
    kTask,       ///< index = site
    kFlush,      ///< a variable needs a value that tasks write, through `assign`; index = set
    kUnit,       ///< a unit of work begins; index = loop
    kUnitEnd,    ///< the loop that makes units ended; index = loop
    kEnter,      ///< a loop of groups begins; index = loop
    kIteration,  ///< the next iteration of a loop of groups begins; index = loop
    kLeave,      ///< a loop of groups ended; index = loop
    kMove,       ///< a token begins or ends; index = move
    kNothing,    ///< many steps without a task; the next call continues
    kEnd,
  } kind;
  uint32_t index;
};

/// The actions of a walk at each kind of event. A visitor derives from this class and redefines the functions
/// that it needs; none is virtual. A function returns false to stop the walk.
struct EventVisitor {
  bool on_task(uint32_t /*site*/) { return true; }
  bool on_flush(uint32_t /*set*/) { return true; }
  bool on_unit(uint32_t /*loop*/) { return true; }
  bool on_unit_end(uint32_t /*loop*/) { return true; }
  bool on_enter(uint32_t /*loop*/) { return true; }
  bool on_iteration(uint32_t /*loop*/) { return true; }
  bool on_leave(uint32_t /*loop*/) { return true; }
  bool on_move(uint32_t /*move*/) { return false; }
  bool on_end() { return false; }
};

/// Calls the function of `visitor` for an event, and returns its result.
template <class Visitor>
[[gnu::always_inline]] inline bool visit(Event event, Visitor& visitor) {
  switch (event.kind) {
    case Event::kTask: return visitor.on_task(event.index);
    case Event::kFlush: return visitor.on_flush(event.index);
    case Event::kUnit: return visitor.on_unit(event.index);
    case Event::kUnitEnd: return visitor.on_unit_end(event.index);
    case Event::kEnter: return visitor.on_enter(event.index);
    case Event::kIteration: return visitor.on_iteration(event.index);
    case Event::kLeave: return visitor.on_leave(event.index);
    case Event::kMove: return visitor.on_move(event.index);
    case Event::kNothing: return true;
    case Event::kEnd: return visitor.on_end();
  }
  return false;
}

class Expander {
 public:
  /// Walks all steps of a plan, without events of loops. `arguments`, if given, is filled in except for the
  /// rest at each task.
  explicit Expander(const Plan& plan, Arguments* arguments = nullptr)
      : Expander(plan, plan.steps, arguments) {}

  /// Walks steps of the plan that outlive the expander.
  Expander(const Plan& plan, const std::vector<QuickStep>& steps, Arguments* arguments = nullptr)
      : plan_(&plan),
        steps_(steps.data()),
        arguments_(arguments),
        registers_(plan.program().header.num_registers, 0) {}

  /// Begins at a step, the first of a process. \pre nothing was walked
  void begin_at(uint32_t step) { step_ = step; }
  /// Gives a register that no axis owns a value.
  void set(uint32_t reg, int64_t value) { registers_[reg] = value; }
  /// Leaves the loop whose first step was the last event.
  void leave_loop() { step_ = steps_[step_ - 2].target; }

  /// Values of all registers; those of loops that are not open are stale.
  const int64_t* registers() const { return registers_.data(); }
  std::vector<int64_t> copy_registers() const { return registers_; }

  /// Number of tasks yielded so far.
  uint64_t num_tasks() const { return num_tasks_; }

  /// Whether the open loop at `depth` is in neither its first nor its last iteration.
  bool is_between(uint32_t depth) const {
    const LoopState& state = states_[depth];
    return state.index > 0 && state.index + 1 < state.trips;
  }

  /// The outermost depth of the loops that began an iteration since `forget_changes`.
  uint32_t changed_depth() const { return changed_depth_; }
  void forget_changes() { changed_depth_ = kMaxLoopDepth; }

  /// Advances to the next event. Throws `negative-extent`, `bad-tile`, `refused` or an expression's error.
  [[gnu::always_inline]] inline Event next() {
    for (uint32_t silent = 0; silent < kMaxSilentSteps; ++silent) {
      const QuickStep step = steps_[step_];
      // Separate from the switch, because its jump would mispredict tasks as loops.
      if (step.kind == Step::kTask) {
        ++step_;
        ++num_tasks_;
        return {Event::kTask, step.index};
      }
      switch (step.kind) {
        case Step::kLoop:
          if (enter(step)) return {first_event(step.events), step.index};
          break;
        case Step::kEndLoop:
          if (advance(step)) return {next_event_, step.index};
          break;
        case Step::kCond: step_ = holds(plan_->conds[step.index]) ? step_ + 1 : step.target; break;
        case Step::kElse: step_ = step.target; break;
        case Step::kSet:
          ++step_;
          if (plan_->sets[step.index].is_flush) return {Event::kFlush, step.index};
          assign(step.index, plan_->evaluate(plan_->sets[step.index].value, registers_.data()));
          break;
        case Step::kMove: ++step_; return {Event::kMove, step.index};
        case Step::kFail: refuse(step.index);
        default: return {Event::kEnd, 0};
      }
    }
    return {Event::kNothing, 0};
  }

  /// Advances to the next task if it is the current task in the next iteration of its loop and the loop has
  /// no other task. Otherwise returns false and does nothing. The loop has no event then.
  [[gnu::always_inline]] inline bool repeat() {
    const QuickStep end = steps_[step_];
    if (end.kind != Step::kEndLoop || end.target + 1 != step_) return false;
    LoopState& state = states_[plan_->loops[end.index].depth];
    if (state.index + 1 >= state.trips) return false;
    ++state.index;
    set_registers(end.index, state);
    ++num_tasks_;
    return true;
  }

  /// Skips the iteration that has just begun, which would yield this number of tasks. \pre the event was
  /// kUnit, of a loop whose iterations are units
  void pass_over(uint64_t num_tasks) {
    num_tasks_ += num_tasks;
    step_ = steps_[step_ - 1].target - 1;
  }

  /// Continues at the position of another walk of the plan, whose loops may have other events. Calls
  /// `enter(loop)` for each open loop, outermost first.
  template <class Enter>
  void go_on_from(const Expander& other, Enter enter) {
    registers_ = other.registers_;
    step_ = other.step_;
    num_tasks_ = other.num_tasks_;
    changed_depth_ = 0;
    for (uint32_t i = 0; i < step_; ++i) {
      const bool is_open = steps_[i].kind == Step::kLoop && steps_[i].target > step_;
      if (!is_open) continue;
      const uint32_t depth = plan_->loops[steps_[i].index].depth;
      states_[depth] = other.states_[depth];
      if (arguments_ != nullptr) arguments_->enter(steps_[i].index, registers_.data());
      enter(steps_[i].index);
    }
  }

  /// Gives a variable the value of SET number `set`.
  void assign(uint32_t set, int64_t value) { registers_[plan_->sets[set].reg] = value; }

 private:
  static constexpr uint32_t kMaxSilentSteps = 1 << 16;

  struct LoopState {
    int64_t index;
    int64_t trips;
    int64_t extent;
    int64_t tile;
  };

  static Event::Kind first_event(LoopEvents events) {
    return events == LoopEvents::kGroups ? Event::kEnter : Event::kUnit;
  }

  bool holds(const QuickCond& cond) const { return plan_->evaluate(cond.condition, registers_.data()) != 0; }

  /// Enters a loop or steps over an empty one. True if that is an event.
  bool enter(QuickStep step) {
    const QuickLoop& loop = plan_->loops[step.index];
    LoopState& state = states_[loop.depth];
    state.index = 0;
    state.extent = plan_->evaluate(loop.extent, registers_.data());
    if (state.extent < 0) fail_loop("negative-extent", "a loop has a negative extent", step, state.extent);
    state.trips = state.extent;
    if (loop.kind == AxisKind::TILES) {
      state.tile = plan_->evaluate(loop.tile, registers_.data());
      if (state.tile < 1) fail_loop("bad-tile", "a loop has a tile below 1", step, state.tile);
      state.trips = state.extent == 0 ? 0 : (state.extent - 1) / state.tile + 1;
    }
    if (state.trips == 0) {
      step_ = step.target;
      return false;
    }
    ++step_;
    set_registers(step.index, state);
    return step.events != LoopEvents::kNone;
  }

  /// Starts the next iteration or leaves the loop. True if that is an event.
  [[gnu::always_inline]] inline bool advance(QuickStep step) {
    LoopState& state = states_[plan_->loops[step.index].depth];
    if (++state.index < state.trips) {
      step_ = step.target;
      set_registers(step.index, state);
      next_event_ = step.events == LoopEvents::kGroups ? Event::kIteration : Event::kUnit;
      return step.events == LoopEvents::kGroups || step.events == LoopEvents::kIterations;
    }
    ++step_;
    next_event_ = step.events == LoopEvents::kGroups ? Event::kLeave : Event::kUnitEnd;
    return step.events != LoopEvents::kNone;
  }

  [[gnu::always_inline]] inline void set_registers(uint32_t index, const LoopState& state) {
    const QuickLoop& loop = plan_->loops[index];
    int64_t* reg = registers_.data() + loop.reg;
    reg[0] = state.index;
    if (loop.kind == AxisKind::TILES) {
      reg[1] = state.index * state.tile;
      const int64_t rest = state.extent - reg[1];
      reg[2] = rest < state.tile ? rest : state.tile;
    }
    if (loop.depth < changed_depth_) changed_depth_ = loop.depth;
    if (arguments_ != nullptr) arguments_->enter(index, registers_.data());
  }

  [[noreturn]] void fail_loop(const char* code, const char* message, QuickStep step, int64_t value) const {
    const LoopForm& form = plan_->program().loops[step.index];
    throw EngineError(code, message)
        .with_int("pc", form.begin_pc)
        .with_int("axis", form.axis)
        .with_int("value", value)
        .with("registers", registers_);
  }

  [[noreturn]] void refuse(uint32_t fail) const {
    const int64_t value = plan_->evaluate(plan_->fails[fail], registers_.data());
    const FailForm& form = plan_->program().fails[fail];
    throw EngineError("refused", "the workload refuses a value")
        .with_int("pc", form.pc)
        .with_int("reason", form.reason)
        .with_int("value", value)
        .with("registers", registers_);
  }

  const Plan* plan_;
  const QuickStep* steps_;
  Arguments* arguments_;
  std::vector<int64_t> registers_;
  LoopState states_[kMaxLoopDepth];
  uint32_t step_ = 0;
  uint32_t changed_depth_ = 0;
  Event::Kind next_event_ = Event::kEnd;
  uint64_t num_tasks_ = 0;
};

/// Walks a run again with the values that its flush points read, because memory may contain other values now.
/// The walk ends at the first flush point whose value is unknown.
class Replay {
 public:
  Replay(const Plan& plan, const std::vector<int64_t>& flushed) : Replay(plan, plan.steps, flushed) {}
  /// \pre the steps outlive the replay
  Replay(const Plan& plan, const std::vector<QuickStep>& steps, const std::vector<int64_t>& flushed)
      : expander_(plan, steps), flushed_(flushed) {}

  /// The next event that is not a flush point.
  Event next() {
    for (;;) {
      const Event event = expander_.next();
      if (event.kind != Event::kFlush) return event;
      if (num_flushes_ == flushed_.size()) return {Event::kEnd, 0};
      expander_.assign(event.index, flushed_[num_flushes_++]);
    }
  }

  /// Advances to the next task. Returns its site, or -1 at the end of the run.
  int64_t next_task() {
    for (;;) {
      const Event event = next();
      if (event.kind == Event::kTask) return event.index;
      if (event.kind == Event::kEnd) return -1;
    }
  }

  const Expander& expander() const { return expander_; }

 private:
  Expander expander_;
  const std::vector<int64_t>& flushed_;
  size_t num_flushes_ = 0;
};

}  // namespace pto::wsp::bytecode
