// SPDX-License-Identifier: MIT
/// \file
/// The run of one worker: each task as it is expanded. Program order satisfies every hazard and every
/// barrier.
#pragma once

#include <vector>

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/sched/lookout.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

class InOrder {
 public:
  /// `flushed` takes the values that flush points read, in program order.
  InOrder(Run& run, const RunOptions& options, std::vector<int64_t>& flushed)
      : run_(run),
        plan_(run.plan()),
        worker_(run.worker(0)),
        expander_(run.plan(), &worker_.arguments()),
        checker_(run.plan()),
        flushed_(flushed),
        is_watched_(options.trace || options.jitter != 0),
        lookout_(options.is_interrupted) {}

  /// Runs everything, or returns early when the run was stopped; returns the number of tasks. Throws what
  /// only the walk can find, with the detail `late`: the number of tasks before it, which have run.
  uint64_t run() {
    uint64_t num_run = 0;
    try {
      walk(num_run);
      worker_.num_tasks = num_run;
    } catch (EngineError& error) {
      const bool is_placed = error.has("registers");
      throw(is_placed ? std::move(error) : std::move(error).with("registers", expander_.copy_registers()))
          .with_int("late", int64_t(num_run));
    }
    return num_run;
  }

 private:
  void walk(uint64_t& num_run) {
    while (!is_stopped()) {
      const bytecode::Event event = expander_.next();
      switch (event.kind) {
        case bytecode::Event::kTask:
          if (!run_task(event.index, num_run)) return;
          ++num_run;
          break;
        case bytecode::Event::kFlush:
          expander_.assign(event.index, flush(plan_.sets[event.index].value));
          break;
        case bytecode::Event::kEnd: return;
        default: break;
      }
    }
  }

  bool run_task(uint32_t site, uint64_t task) {
    const bytecode::Arguments::Call& call = worker_.arguments().call(site);
    if (call.is_simple && !is_watched_)
      return run_.succeeds(task, [&] { return worker_.run_simple(call, task); });
    const int64_t* registers = expander_.registers();
    if (plan_.sites[site].checks_late) checker_.check(plan_.sites[site], registers, true);
    worker_.arguments().fill_rest(site, registers);
    return run_.succeeds(task,
                         [&] { return worker_.run_filled(worker_.arguments(), site, registers, task); });
  }

  int64_t flush(const bytecode::Value& value) {
    flushed_.push_back(plan_.evaluate(value, expander_.registers()));
    return flushed_.back();
  }

  /// Whether the run was stopped; stops it where the caller was interrupted.
  bool is_stopped() {
    if (lookout_.poll()) run_.stop();
    return run_.is_stopped();
  }

  Run& run_;
  const bytecode::Plan& plan_;
  Worker& worker_;
  bytecode::Expander expander_;
  bytecode::TaskChecker checker_;
  std::vector<int64_t>& flushed_;
  const bool is_watched_;
  Lookout lookout_;
};

}  // namespace pto::wsp::sched
