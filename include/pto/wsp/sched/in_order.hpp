// SPDX-License-Identifier: MIT
/// \file
/// Runs tasks on one worker, each as it is expanded. Program order satisfies every hazard and every barrier.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/sched/beginning.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

class InOrder : private bytecode::EventVisitor {
 public:
  /// For a whole run, or for the beginning of a run that other workers may join.
  explicit InOrder(Run& run)
      : run_(run),
        plan_(run.plan()),
        worker_(run.worker(0)),
        marks_(begins(run) ? run.marks() : nullptr),
        expander_(run.plan(), begins(run) ? marks_->steps : run.plan().steps, &worker_.arguments()),
        checker_(run.plan()),
        is_watched_(run.options().watches_tasks()),
        untimed_(run.options().is_alone || begins(run) ? kTimedPeriod - 1 : UINT64_MAX) {
    if (begins(run)) beginning_.emplace(run);
  }

  /// Runs all tasks, or ends early because of a failure, a cancellation or because others join. Returns true
  /// if others join; the run then knows where they begin.
  bool work() {
    try {
      while (goes_on() && (bytecode::visit(expander_.next(), *this) || std::exchange(was_paused_, false))) {
      }
    } catch (EngineError& error) {
      run_.fail({num_run_, 0, place_late(std::move(error), expander_, num_run_), true}, 0);
    }
    return run_.rest() != nullptr;
  }

 private:
  template <class Visitor>
  friend bool bytecode::visit(bytecode::Event event, Visitor& visitor);

  static constexpr uint64_t kTimedPeriod = 64;  ///< one of this many tasks is timed, if times are of use

  static bool begins(const Run& run) { return run.options().begins_alone; }

  [[gnu::always_inline]] inline bool on_task(uint32_t site) {
    if (beginning_ && !begin_task(site)) return false;
    do {
      if (!run_task(site, num_run_)) return false;
      ++num_run_;
    } while (goes_on() && expander_.repeat());
    return true;
  }

  /// False if others join before the iteration or the loop.
  bool on_unit(uint32_t loop) {
    using bytecode::Event;
    using bytecode::LoopEvents;
    if (!others_join_) return true;
    // After the timing of tasks, the iterations of the loop may not be units any more.
    const LoopEvents events = run_.marks()->loops[loop];
    const bool is_unit = events == LoopEvents::kIterations || events == LoopEvents::kWhole;
    const Event event = is_unit ? Event{Event::kUnit, loop} : Event{Event::kNothing, 0};
    run_.share_rest(expander_, event, num_flushed_);
    return false;
  }

  bool goes_on() {
    run_.look_out(worker_);
    return !run_.is_cancelled();
  }

  [[gnu::always_inline]] inline bool run_task(uint32_t site, uint64_t task) {
    const bytecode::Arguments::Call& call = worker_.arguments().call(site);
    if (call.is_simple && !is_watched_ && (task & untimed_) != 0)
      return run_.succeeds(worker_, task, 0, [&] { return worker_.run_simple(call, task); });
    const int64_t* registers = expander_.registers();
    if (plan_.sites[site].checks_late) checker_.check(plan_.sites[site], registers, true);
    worker_.arguments().fill_rest(site, registers);
    if (beginning_) worker_.time_next(site);
    const auto body = [&] { return worker_.run_filled(worker_.arguments(), site, registers, task); };
    return run_.succeeds(worker_, task, 0, body) && (!beginning_ || goes_on_alone());
  }

  // Runs that others may join: at an event that begins a unit, or before a task that is one

  /// False if others join before the task.
  bool begin_task(uint32_t site) {
    if (others_join_ && run_.marks()->sites[site].is_unit) {
      if (plan_.sites[site].checks_late) checker_.check(plan_.sites[site], expander_.registers(), true);
      run_.share_rest(expander_, {bytecode::Event::kTask, site}, num_flushed_);
      return false;
    }
    if (!beginning_->is_new(site)) return true;
    beginning_->attend(site);
    untimed_ = 0;
    return true;
  }

  /// Checks after a task whether others should join. False if the loop around the task must return to the
  /// next event, where others can join.
  bool goes_on_alone() {
    if (others_join_) return true;
    others_join_ = beginning_->is_over();
    if (!beginning_->is_attentive()) untimed_ = kTimedPeriod - 1;
    if (!others_join_) return true;
    run_.prepare_rest();
    ++num_run_;
    was_paused_ = true;
    return false;
  }

  bool on_flush(uint32_t set) {
    const auto read = [&] {
      return std::optional<int64_t>(plan_.evaluate(plan_.sets[set].value, expander_.registers()));
    };
    expander_.assign(set, *run_.flushed().value(num_flushed_++, read));
    return true;
  }

  Run& run_;
  const bytecode::Plan& plan_;
  Worker& worker_;
  const std::shared_ptr<const Marks> marks_;  ///< of a run that others may join, as it begins
  bytecode::Expander expander_;
  bytecode::TaskChecker checker_;
  const bool is_watched_;
  uint64_t untimed_;      ///< tasks with one of these bits in their number are not timed
  uint64_t num_run_ = 0;  ///< tasks
  size_t num_flushed_ = 0;
  std::optional<Beginning> beginning_;  ///< of a run that others may join
  bool others_join_ = false;            ///< at the next event that allows it
  bool was_paused_ = false;
};

}  // namespace pto::wsp::sched
