// SPDX-License-Identifier: MIT
/// \file
/// One walk of a plan: it expands tasks in program order, numbers them, and finds their waits.
#pragma once

#include <optional>

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/sched/ordering.hpp"
#include "pto/wsp/sched/policy.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

/// The common part of dispatchers and of the builder of kept graphs.
///
/// All walks of a run number tasks identically: a slice name means the same task in each walk. So no code
/// here may depend on completed tasks, on the owner of a strand, or on time.
///
/// An engine drives the walk. It opens and closes slices and decides what happens to tasks. It provides
/// `open()` and `close(ends_strand)`, and for events: `on_task(site)`, `on_flush(set)`, `begin_unit(loop)`,
/// `end_unit()` and `on_end()`. A function that returns false gets the event again later.
class Walk {
 public:
  using Unit = graph::UnitSummary;

  /// A walk during which no wait is satisfied.
  Walk() = default;
  explicit Walk(Progress& progress) : ordering_(progress) {}

  /// Begins before the first task. `arguments`, if given, are kept filled in (see Expander).
  void begin(const Run& run, const NumberingStart& start, uint32_t num_dispatchers,
             bytecode::Arguments* arguments = nullptr) {
    plan_ = &run.plan();
    marks_ = run.marks().get();
    ordering_.begin(run);
    expander_.emplace(*plan_, marks_->steps, arguments);
    checker_.emplace(*plan_);
    numbering_.begin(start);
    policy_.begin(*plan_, run.options(), num_dispatchers);
  }

  /// Begins at the position of another expander, outside all units. All tasks before are complete.
  void go_on_from(const bytecode::Expander& other) {
    expander_->go_on_from(other, [this](uint32_t loop) {
      if (marks_->loops[loop] == bytecode::LoopEvents::kGroups) numbering_.enter_group();
    });
  }

  bytecode::Expander& expander() { return *expander_; }
  const bytecode::Expander& expander() const { return *expander_; }
  Numbering& numbering() { return numbering_; }
  const Numbering& numbering() const { return numbering_; }
  Ordering& ordering() { return ordering_; }
  const int64_t* registers() const { return expander_->registers(); }
  uint64_t num_tasks() const { return expander_->num_tasks(); }
  uint64_t slice() const { return numbering_.slice(); }
  const Policy& policy() const { return policy_; }
  /// The traits of the current task under the schedule.
  const Traits& traits() const { return policy_.traits(); }
  /// The waits of the current task or unit.
  WaitList& waits() { return ordering_.waits(); }
  const WaitList& waits() const { return ordering_.waits(); }

  /// Throws if a late argument of the current task is wrong.
  void check_late(uint32_t site) {
    const bytecode::QuickSite& quick = plan_->sites[site];
    if (quick.checks_late) checker_->check(quick, registers(), true);
  }

  /// Handles an event. False if `engine` needs it again later.
  template <class Engine>
  [[gnu::always_inline]] inline bool handle(bytecode::Event event, Engine& engine) {
    // Separate from the switch, because most events are tasks.
    if (event.kind == bytecode::Event::kTask) return engine.on_task(event.index);
    Visitor<Engine> visitor(*this, engine);
    return bytecode::visit(event, visitor);
  }

  /// Ensures an open slice for the current task. False if `engine` cannot open one now.
  template <class Engine>
  [[gnu::always_inline]] inline bool place(uint32_t site, Engine& engine) {
    if (policy_.cuts_units()) cut_at_traits(site, engine);
    if (numbering_.is_open()) {
      const bool is_unit = policy_.cuts_units() || marks_->sites[site].is_unit;
      if (is_unit ? numbering_.is_over() : numbering_.is_full()) engine.close(is_unit);
    }
    return numbering_.is_open() || engine.open();
  }

  /// Finds the waits of the current task of the open slice if this dispatcher owns it, and makes later tasks
  /// wait for it.
  void order(uint32_t site, bool is_ours) {
    ordering_.add_task(site, *expander_, numbering_, is_ours, is_between(site));
  }

  /// Whether a SET is inside a unit.
  bool continues_unit(uint32_t set) const { return marks_->continues_unit[set] != 0; }

  /// Whether the current task repeats in each iteration, and this is neither the first nor the last one.
  bool is_between(uint32_t site) const {
    const int32_t depth = marks_->sites[site].repeat_depth;
    return depth >= 0 && expander_->is_between(uint32_t(depth));
  }

 private:
  template <class Engine>
  struct Visitor : bytecode::EventVisitor {
    Visitor(Walk& walk_, Engine& engine_) : walk(walk_), engine(engine_) {}

    bool on_flush(uint32_t set) { return engine.on_flush(set); }
    bool on_unit(uint32_t loop) { return on_unit_end(loop) && engine.begin_unit(loop); }
    bool on_unit_end(uint32_t) {
      engine.end_unit();
      if (walk.numbering_.is_open() && walk.numbering_.is_over()) engine.close(true);
      return true;
    }
    bool on_enter(uint32_t) {
      close(true);
      walk.numbering_.enter_group();
      return true;
    }
    bool on_iteration(uint32_t) {
      close(true);
      walk.numbering_.begin_iteration();
      return true;
    }
    bool on_leave(uint32_t) {
      close(true);
      walk.numbering_.leave_group();
      return true;
    }
    bool on_end() {
      close(true);
      return engine.on_end();
    }

    void close(bool ends_strand) {
      if (walk.numbering_.is_open()) engine.close(ends_strand);
    }

    Walk& walk;
    Engine& engine;
  };

  /// Ends the strand at a task whose traits differ from the previous task.
  template <class Engine>
  void cut_at_traits(uint32_t site, Engine& engine) {
    if (!policy_.note(site, *expander_)) return;
    if (numbering_.is_open()) engine.close(true);
    if (policy_.begins_batch()) ordering_.begin_batch(numbering_.slice());
    if (policy_.begins_admission()) ordering_.admit(policy_.traits().admission, numbering_.slice());
  }

  const bytecode::Plan* plan_ = nullptr;
  const Marks* marks_ = nullptr;
  std::optional<bytecode::Expander> expander_;
  std::optional<bytecode::TaskChecker> checker_;
  Numbering numbering_;
  Ordering ordering_;
  Policy policy_;
};

}  // namespace pto::wsp::sched
