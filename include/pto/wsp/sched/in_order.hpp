// SPDX-License-Identifier: MIT
/// \file
/// The run of one worker: each task as it is expanded. Program order satisfies every hazard and every
/// barrier.
#pragma once

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

class InOrder : private bytecode::EventVisitor {
 public:
  explicit InOrder(Run& run)
      : run_(run),
        plan_(run.plan()),
        worker_(run.worker(0)),
        expander_(run.plan(), &worker_.arguments()),
        checker_(run.plan()),
        is_watched_(run.options().watches_tasks()),
        untimed_(run.options().is_alone ? kTimedPeriod - 1 : UINT64_MAX) {}

  /// Runs everything, or ends early with a failure in the run, or because it was cancelled.
  void work() {
    try {
      while (goes_on() && bytecode::visit(expander_.next(), *this)) {
      }
    } catch (EngineError& error) {
      run_.fail({num_run_, 0, place_late(std::move(error), expander_, num_run_), true}, 0);
    }
  }

 private:
  template <class Visitor>
  friend bool bytecode::visit(bytecode::Event event, Visitor& visitor);

  static constexpr uint64_t kTimedPeriod = 64;  ///< of tasks that may be timed, where it is of use

  [[gnu::always_inline]] inline bool on_task(uint32_t site) {
    do {
      if (!run_task(site, num_run_)) return false;
      ++num_run_;
    } while (goes_on() && expander_.repeat());
    return true;
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
    return run_.succeeds(worker_, task, 0,
                         [&] { return worker_.run_filled(worker_.arguments(), site, registers, task); });
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
  bytecode::Expander expander_;
  bytecode::TaskChecker checker_;
  const bool is_watched_;
  const uint64_t untimed_;  ///< tasks with one of these bits in their number are not timed
  uint64_t num_run_ = 0;    ///< tasks
  size_t num_flushed_ = 0;
};

}  // namespace pto::wsp::sched
