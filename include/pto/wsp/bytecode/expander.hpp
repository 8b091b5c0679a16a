// SPDX-License-Identifier: MIT
/// \file
/// The expander: walks a plan and yields its tasks in program order, one at a time.
///
/// A state machine without recursion: a copy of an Expander is a place in the program to which one can
/// return.
#pragma once

#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bytecode {

/// What `Expander::next` came to. Only marked loops make events of their own.
struct Event {
  enum Kind : uint8_t {
    kTask,       ///< index = site
    kUnit,       ///< a unit of work begins, or the loop that makes them ended; index = loop
    kEnter,      ///< a barrier loop begins; index = loop
    kIteration,  ///< the next iteration of a barrier loop begins
    kLeave,      ///< a barrier loop ended
    kNothing,    ///< many iterations made no task; the walk goes on with the next call
    kEnd,
  } kind;
  uint32_t index;
};

class Expander {
 public:
  explicit Expander(const Plan& plan)
      : plan_(&plan),
        steps_(plan.program().steps.data()),
        registers_(plan.program().header.num_registers, 0) {}

  /// Values of all registers; those that no enclosing loop owns are stale.
  const int64_t* registers() const { return registers_.data(); }
  size_t num_registers() const { return registers_.size(); }

  /// Number of tasks yielded so far.
  uint64_t num_tasks() const { return num_tasks_; }

  /// Goes on to the next event. Throws `negative-extent`, `bad-tile` or an expression's error.
  Event next() {
    for (uint32_t steps = 0; steps < kMaxSilentSteps; ++steps) {
      const Step step = steps_[step_];
      switch (step.kind) {
        case Step::kTask:
          ++step_;
          ++num_tasks_;
          return {Event::kTask, step.index};
        case Step::kLoop:
          if (enter(plan_->loops[step.index])) return {first_event(step.index), step.index};
          break;
        case Step::kEnd:
          if (advance(plan_->loops[step.index])) return {next_event_, step.index};
          break;
        case Step::kHalt: return {Event::kEnd, 0};
      }
    }
    return {Event::kNothing, 0};
  }

  /// Goes on to the next task; returns its site, or -1 at the end.
  int64_t next_task() {
    for (;;) {
      const Event event = next();
      if (event.kind == Event::kTask) return event.index;
      if (event.kind == Event::kEnd) return -1;
    }
  }

 private:
  static constexpr uint32_t kMaxSilentSteps = 1 << 16;

  struct LoopState {
    int64_t index;
    int64_t trips;
    int64_t extent;
    int64_t tile;
  };

  Event::Kind first_event(uint32_t loop) const {
    return plan_->loops[loop].mark == QuickLoop::Mark::kBarrier ? Event::kEnter : Event::kUnit;
  }

  /// Enters a loop or steps over an empty one. True if that is an event.
  bool enter(const QuickLoop& loop) {
    LoopState& state = states_[loop.depth];
    state.index = 0;
    state.extent = plan_->evaluate(loop.extent, registers_.data());
    if (state.extent < 0) fail_loop("negative-extent", "a loop has a negative extent", loop, state.extent);
    state.trips = state.extent;
    if (loop.kind == AxisKind::TILES) {
      state.tile = plan_->evaluate(loop.tile, registers_.data());
      if (state.tile < 1) fail_loop("bad-tile", "a loop has a tile below 1", loop, state.tile);
      state.trips = state.extent == 0 ? 0 : (state.extent - 1) / state.tile + 1;
    }
    if (state.trips == 0) {
      step_ = loop.end_step + 1;
      return false;
    }
    ++step_;
    set_registers(loop, state);
    return loop.mark != QuickLoop::Mark::kNone;
  }

  /// Starts the next iteration or leaves the loop. True if that is an event.
  bool advance(const QuickLoop& loop) {
    LoopState& state = states_[loop.depth];
    if (++state.index < state.trips) {
      step_ = loop.begin_step + 1;
      set_registers(loop, state);
      next_event_ = loop.mark == QuickLoop::Mark::kBarrier ? Event::kIteration : Event::kUnit;
      return loop.mark == QuickLoop::Mark::kBarrier || loop.mark == QuickLoop::Mark::kUnitIterations;
    }
    ++step_;
    next_event_ = loop.mark == QuickLoop::Mark::kBarrier ? Event::kLeave : Event::kUnit;
    return loop.mark != QuickLoop::Mark::kNone;
  }

  void set_registers(const QuickLoop& loop, const LoopState& state) {
    int64_t* reg = registers_.data() + loop.reg;
    reg[0] = state.index;
    if (loop.kind == AxisKind::TILES) {
      reg[1] = state.index * state.tile;
      const int64_t rest = state.extent - reg[1];
      reg[2] = rest < state.tile ? rest : state.tile;
    }
  }

  [[noreturn]] void fail_loop(const char* code, const char* message, const QuickLoop& loop,
                              int64_t value) const {
    const LoopForm& form = plan_->program().loops[size_t(&loop - plan_->loops.data())];
    throw EngineError(code, message)
        .with_int("pc", form.begin_pc)
        .with_int("axis", form.axis)
        .with_int("value", value)
        .with("registers", registers_);
  }

  const Plan* plan_;
  const Step* steps_;
  std::vector<int64_t> registers_;
  LoopState states_[kMaxLoopDepth];
  uint32_t step_ = 0;
  Event::Kind next_event_ = Event::kEnd;
  uint64_t num_tasks_ = 0;
};

/// The place of one task: found again by expanding, so that nothing need be kept per task.
struct TaskPlace {
  uint32_t site;
  std::vector<int64_t> registers;
};

/// Finds task number `task`; throws `no-such-task`. \complexity linear in `task`
inline TaskPlace locate(const Plan& plan, uint64_t task) {
  Expander expander(plan);
  for (int64_t site = expander.next_task(); site >= 0; site = expander.next_task()) {
    if (expander.num_tasks() == task + 1) {
      return {uint32_t(site), {expander.registers(), expander.registers() + expander.num_registers()}};
    }
  }
  throw EngineError("no-such-task", "the run had fewer tasks").with_int("task", int64_t(task));
}

/// Calls `visit(task, site, registers)` for the tasks [0, count) in program order.
template <class Visit>
void locate_all(const Plan& plan, uint64_t count, Visit visit) {
  Expander expander(plan);
  for (uint64_t task = 0; task < count; ++task) {
    const int64_t site = expander.next_task();
    if (site < 0) return;
    visit(task, uint32_t(site), expander.registers());
  }
}

}  // namespace pto::wsp::bytecode
