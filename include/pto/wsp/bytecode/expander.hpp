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
using walk::Event;

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
  bool on_wait(uint32_t /*register*/) { return false; }
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
    case Event::kWait: return visitor.on_wait(event.index);
    case Event::kNothing:
    case Event::kInterpret: return true;
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
        registers_(plan.program().header.num_registers, 0),
        // A check walks fewer steps, which the source does not have.
        walk_(steps.size() == plan.steps.size() ? plan.program().walk : nullptr),
        inputs_{plan.bindings.symbols.data(), plan.bindings.elements.data(),
                reinterpret_cast<const walk::Step*>(steps.data()),
                arguments == nullptr ? nullptr : &arguments->of_walk()} {}

  /// Begins at a step, the first of a process. \pre nothing was walked
  void begin_at(uint32_t step) { place_.step = step; }
  /// Gives a register that no axis owns a value.
  void set(uint32_t reg, int64_t value) { registers_[reg] = value; }
  /// Leaves the loop whose first step was the last event.
  void leave_loop() { place_.step = steps_[place_.step - 2].target; }

  /// Values of all registers; those of loops that are not open are stale.
  const int64_t* registers() const { return registers_.data(); }
  std::vector<int64_t> copy_registers() const { return registers_; }

  /// Number of tasks yielded so far.
  uint64_t num_tasks() const { return place_.num_tasks; }

  /// Whether the open loop at `depth` is in neither its first nor its last iteration.
  bool is_between(uint32_t depth) const {
    const LoopState& state = place_.loops[depth];
    return state.index > 0 && state.index + 1 < state.trips;
  }

  /// The outermost depth of the loops that began an iteration since `forget_changes`.
  uint32_t changed_depth() const { return place_.changed_depth; }
  void forget_changes() { place_.changed_depth = kMaxLoopDepth; }

  /// Advances to the next event. Throws `negative-extent`, `bad-tile`, `refused` or an expression's error.
  [[gnu::always_inline]] inline Event next() {
    if (walk_ == nullptr) return interpret();
    // A call costs more than a task that follows another one.
    if (steps_[place_.step].kind != Step::kTask) {
      const Event event = walk_(place_, registers_.data(), inputs_);
      if (event.kind != Event::kInterpret) return event;
    }
    return interpret();
  }

 private:
  [[gnu::always_inline]] inline Event interpret() {
    for (uint32_t silent = 0; silent < walk::kMaxSilentSteps; ++silent) {
      const QuickStep step = steps_[place_.step];
      // Separate from the switch, because its jump would mispredict tasks as loops.
      if (step.kind == Step::kTask) {
        ++place_.step;
        ++place_.num_tasks;
        return {Event::kTask, step.index};
      }
      switch (step.kind) {
        case Step::kLoop:
          if (enter(step)) return {first_event(step.events), step.index};
          break;
        case Step::kEndLoop:
          if (advance(step)) return {next_event_, step.index};
          break;
        case Step::kCond:
          place_.step = holds(plan_->conds[step.index]) ? place_.step + 1 : step.target;
          break;
        case Step::kElse: place_.step = step.target; break;
        case Step::kSet:
          ++place_.step;
          if (plan_->sets[step.index].is_flush) return {Event::kFlush, step.index};
          assign(step.index, plan_->evaluate(plan_->sets[step.index].value, registers_.data()));
          break;
        case Step::kMove: ++place_.step; return {Event::kMove, step.index};
        case Step::kWait: ++place_.step; return {Event::kWait, step.index};
        case Step::kFail: refuse(step.index);
        default: return {Event::kEnd, 0};
      }
    }
    return {Event::kNothing, 0};
  }

 public:
  /// Advances to the next task if it is the current task in the next iteration of its loop and the loop has
  /// no other task. Otherwise returns false and does nothing. The loop has no event then.
  [[gnu::always_inline]] inline bool repeat() {
    const QuickStep end = steps_[place_.step];
    if (end.kind != Step::kEndLoop || end.target + 1 != place_.step) return false;
    LoopState& state = place_.loops[plan_->loops[end.index].depth];
    if (state.index + 1 >= state.trips) return false;
    ++state.index;
    set_registers(end.index, state);
    ++place_.num_tasks;
    return true;
  }

  /// Skips the iteration that has just begun, which would yield this number of tasks. \pre the event was
  /// kUnit, of a loop whose iterations are units
  void pass_over(uint64_t num_tasks) {
    place_.num_tasks += num_tasks;
    place_.step = steps_[place_.step - 1].target - 1;
  }

  /// Continues at the position of another walk of the plan, whose loops may have other events. Calls
  /// `enter(loop)` for each open loop, outermost first.
  template <class Enter>
  void go_on_from(const Expander& other, Enter enter) {
    registers_ = other.registers_;
    place_.step = other.place_.step;
    place_.num_tasks = other.place_.num_tasks;
    place_.changed_depth = 0;
    for (uint32_t i = 0; i < place_.step; ++i) {
      const bool is_open = steps_[i].kind == Step::kLoop && steps_[i].target > place_.step;
      if (!is_open) continue;
      const uint32_t depth = plan_->loops[steps_[i].index].depth;
      place_.loops[depth] = other.place_.loops[depth];
      if (arguments_ != nullptr) arguments_->enter(steps_[i].index, registers_.data());
      enter(steps_[i].index);
    }
  }

  /// Gives a variable the value of SET number `set`.
  void assign(uint32_t set, int64_t value) { registers_[plan_->sets[set].reg] = value; }

 private:
  using LoopState = walk::LoopState;

  static Event::Kind first_event(LoopEvents events) {
    return events == LoopEvents::kGroups ? Event::kEnter : Event::kUnit;
  }

  bool holds(const QuickCond& cond) const { return plan_->evaluate(cond.condition, registers_.data()) != 0; }

  /// Enters a loop or steps over an empty one. True if that is an event.
  bool enter(QuickStep step) {
    const QuickLoop& loop = plan_->loops[step.index];
    LoopState& state = place_.loops[loop.depth];
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
      place_.step = step.target;
      return false;
    }
    ++place_.step;
    set_registers(step.index, state);
    return step.events != LoopEvents::kNone;
  }

  /// Starts the next iteration or leaves the loop. True if that is an event.
  [[gnu::always_inline]] inline bool advance(QuickStep step) {
    LoopState& state = place_.loops[plan_->loops[step.index].depth];
    if (++state.index < state.trips) {
      place_.step = step.target;
      set_registers(step.index, state);
      next_event_ = step.events == LoopEvents::kGroups ? Event::kIteration : Event::kUnit;
      return step.events == LoopEvents::kGroups || step.events == LoopEvents::kIterations;
    }
    ++place_.step;
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
    if (loop.depth < place_.changed_depth) place_.changed_depth = loop.depth;
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
  walk::WalkFn walk_;  ///< null if the steps are interpreted
  walk::Inputs inputs_;
  walk::State place_;
  Event::Kind next_event_ = Event::kEnd;
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
