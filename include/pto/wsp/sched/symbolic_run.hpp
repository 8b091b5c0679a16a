// SPDX-License-Identifier: MIT
/// \file
/// Runs a plan whose waits are symbolic. Each worker walks the whole plan and claims units by tickets.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <optional>
#include <vector>

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/graph/unit_history.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

/// Units have numbers in program order, and a ticket is the number of a unit. A worker takes the next tickets
/// and runs their units in order. Its front is the number of the first unit that it may not have completed.
/// So all units before the least front are complete, and a wait is one comparison with it. Nothing is
/// recorded.
///
/// Why a run ends: every wait is for units with smaller numbers. The worker with the least front waits for
/// nothing, because all units before its own are complete.
class SymbolicRun {
 public:
  SymbolicRun(Run& run, Others& others, const graph::SymbolicWaits& waits)
      : run_(run), others_(others), waits_(waits), walkers_(run.num_workers()) {
    const auto& events = waits.events();
    steps_ = bytecode::with_events(run.plan(), [&](uint32_t loop) { return events[loop]; });
    for (uint32_t site = 0; site < run.plan().sites.size(); ++site)
      is_inside_.push_back(waits.place_of_site(site) < 0 && !waits.is_looked_up(site));
  }

  /// Whether a worker that is not in the run could go on with a walk or begin one.
  bool has_work() const {
    const bool can_begin = num_ended_.load(std::memory_order_seq_cst) == 0 &&
                           num_joined_.load(std::memory_order_relaxed) < walkers_.size();
    return can_begin || has_idle_walker();
  }

  bool is_over() const {
    const uint32_t num_ended = num_ended_.load(std::memory_order_seq_cst);
    return num_ended > 0 && num_ended == num_joined_.load(std::memory_order_seq_cst);
  }

  /// Goes on with a walk: the worker's own, or one that no thread is in. False if no unit was run.
  bool work(Worker& worker, uint32_t slot) {
    for (uint32_t i = 0; i < walkers_.size(); ++i) {
      Walker& walker = walkers_[(slot + i) % walkers_.size()];
      if (!may_enter(walker, i == 0) || !walker.lock.try_lock()) continue;
      const std::lock_guard<SpinLock> lock(walker.lock, std::adopt_lock);
      if (!may_enter(walker, i == 0)) continue;
      const bool has_worked = step(walker, worker);
      if (is_over()) others_.call();
      if (has_worked) return true;
    }
    return false;
  }

  /// Units that were not ready when their worker came to them.
  uint64_t num_waits() const { return num_waits_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kEnded = std::numeric_limits<int64_t>::max();
  static constexpr int kStepUnits = 64;
  static constexpr uint64_t kTimedPeriod = 64;  ///< one of this many tasks is timed
  static constexpr int64_t kClaimNs = 2000;     ///< of the tasks that are claimed together
  static constexpr int64_t kMaxClaim = 64;

  /// One walk. At most one thread is in it.
  struct alignas(kLineBytes) Walker {
    std::atomic<int64_t> front{kEnded};  ///< see SymbolicRun; kEnded before the walk and after it
    std::atomic<bool> has_begun{false}, has_ended{false};
    SpinLock lock;
    bytecode::Arguments arguments;
    std::optional<bytecode::Expander> expander;
    std::optional<bytecode::TaskChecker> checker;
    std::optional<graph::UnitHistory> history;
    bytecode::Event event{bytecode::Event::kNothing, 0};
    bool has_event = false;   ///< `event` is handled again
    bool is_ours = false;     ///< the current unit
    bool is_waiting = false;  ///< the current unit or task has begun, and its wait is not satisfied
    int64_t wait = -1;        ///< of the current unit or task
    int64_t claim = 0, claim_end = 0;
    int64_t complete = 0;          ///< all units of others before this one are complete
    size_t num_flushed = 0;        ///< flush points that it has passed
    std::vector<uint8_t> has_run;  ///< per site
  };

  /// Only its own worker begins a walk, and only while no walk has reached the end.
  bool may_enter(const Walker& walker, bool is_own) const {
    if (walker.has_ended.load(std::memory_order_relaxed)) return false;
    return walker.has_begun.load(std::memory_order_relaxed) ||
           (is_own && num_ended_.load(std::memory_order_seq_cst) == 0);
  }

  bool has_idle_walker() const {
    for (const Walker& walker : walkers_) {
      if (walker.has_begun.load(std::memory_order_relaxed) &&
          !walker.has_ended.load(std::memory_order_relaxed) && !walker.lock.is_locked())
        return true;
    }
    return false;
  }

  void begin(Walker& walker) {
    // Sequentially consistent: a thread that sees no front of this walker has a smaller ticket.
    walker.has_begun.store(true, std::memory_order_relaxed);
    num_joined_.fetch_add(1, std::memory_order_seq_cst);
    walker.front.store(0, std::memory_order_seq_cst);
    walker.arguments.bind(run_.plan(), run_.bases());
    walker.expander.emplace(run_.plan(), steps_, &walker.arguments);
    walker.checker.emplace(run_.plan());
    walker.history.emplace(waits_);
    walker.has_run.assign(run_.plan().sites.size(), false);
    claim(walker, 1);
  }

  /// Takes the next tickets.
  void claim(Walker& walker, int64_t count) {
    walker.claim = next_.fetch_add(count, std::memory_order_seq_cst);
    walker.claim_end = walker.claim + count;
    walker.front.store(walker.claim, std::memory_order_seq_cst);
  }

  /// False if the walk waits or has ended, and nothing was run.
  bool step(Walker& walker, Worker& worker) {
    const uint64_t num_before = worker.num_tasks();
    try {
      if (!walker.has_begun.load(std::memory_order_relaxed)) begin(walker);
      worker.resume();
      Visitor visitor{{}, *this, walker, worker};
      while (visitor.units < kStepUnits) {
        run_.look_out(worker);
        if (!walker.has_event) walker.event = walker.expander->next();
        walker.has_event = !bytecode::visit(walker.event, visitor);
        if (walker.has_event) break;
      }
    } catch (EngineError& error) {
      const uint64_t num_tasks = walker.expander->num_tasks();
      run_.fail({num_tasks, 0, place_late(std::move(error), *walker.expander, num_tasks), true}, 0);
      end(walker);
    } catch (const std::bad_alloc&) {
      run_.fail({0, 0, {}, true}, 0);
      end(walker);
    }
    return worker.num_tasks() != num_before;
  }

  void end(Walker& walker) {
    walker.has_ended.store(true, std::memory_order_relaxed);
    walker.front.store(kEnded, std::memory_order_seq_cst);
    num_ended_.fetch_add(1, std::memory_order_seq_cst);
  }

  struct Visitor : bytecode::EventVisitor {
    SymbolicRun& run;
    Walker& walker;
    Worker& worker;
    int units = 0;  ///< of this walker

    Visitor(bytecode::EventVisitor, SymbolicRun& run_, Walker& walker_, Worker& worker_)
        : run(run_), walker(walker_), worker(worker_) {}

    [[gnu::always_inline]] inline bool on_task(uint32_t site) {
      if (!run.is_inside_[site]) {
        if (!walker.is_waiting && !run.begin_task(*this, site)) return false;
        if (walker.is_ours && !run.has_passed(walker)) return false;
      }
      return !walker.is_ours || run.run_task(walker, worker, site);
    }
    bool on_unit(uint32_t loop) {
      const int32_t place = run.waits_.place_of_loop(loop);
      if (place < 0) return true;
      if (!walker.is_waiting && !run.begin_unit(*this, uint32_t(place), UINT32_MAX)) return false;
      if (walker.is_ours) return run.has_passed(walker);
      if (!run.waits_.has_looked_up(uint32_t(place))) run.pass_over(walker, loop);
      return true;
    }
    bool on_unit_end(uint32_t) { return true; }
    bool on_enter(uint32_t loop) {
      walker.history->enter(loop);
      return true;
    }
    bool on_iteration(uint32_t loop) {
      walker.history->begin_iteration(loop);
      return true;
    }
    bool on_flush(uint32_t set) { return run.pass_flush(walker, set); }
    bool on_end() {
      run.end(walker);
      return false;
    }
  };

  /// False if the run has failed before.
  bool begin_unit(Visitor& visitor, uint32_t place, uint32_t site) {
    Walker& walker = visitor.walker;
    if (walker.expander->num_tasks() > run_.task_limit()) {
      end(walker);
      return false;
    }
    graph::UnitHistory& history = *walker.history;
    const int64_t* registers = walker.expander->registers();
    const int64_t unit = history.begin(place, registers);
    if (unit >= walker.claim_end) {
      walker.front.store(walker.claim_end, std::memory_order_release);
      claim(walker, site == UINT32_MAX ? 1 : num_claimed(site));
    }
    walker.is_ours = unit >= walker.claim;
    if (walker.is_ours) {
      if (unit > walker.claim) walker.front.store(unit, std::memory_order_release);
      walker.wait = history.find_wait(place, registers);
      ++visitor.units;
    }
    history.note(place);
    return true;
  }

  /// Begins a task, and its unit if it is one. False if the run has failed before.
  bool begin_task(Visitor& visitor, uint32_t site) {
    Walker& walker = visitor.walker;
    const int32_t place = waits_.place_of_site(site);
    walker.wait = -1;
    if (place >= 0 && !begin_unit(visitor, uint32_t(place), site)) return false;
    if (!waits_.is_looked_up(site)) return true;
    const bool checks_late = run_.plan().sites[site].checks_late;
    if (checks_late && !check_late(walker, site, walker.expander->num_tasks() - 1)) return false;
    const int64_t wait = walker.history->look_up(site, walker.expander->registers(), walker.is_ours);
    walker.wait = std::max(walker.wait, wait);
    return true;
  }

  /// False while the current unit or task must wait.
  bool has_passed(Walker& walker) {
    if (walker.wait >= walker.complete) look_for_complete(walker);
    const bool is_new = !walker.is_waiting;
    walker.is_waiting = walker.wait >= walker.complete;
    if (walker.is_waiting && is_new) num_waits_.fetch_add(1, std::memory_order_relaxed);
    return !walker.is_waiting;
  }

  /// Gives a variable the value that its flush point reads. False while that is unknown. Inside a unit only
  /// the worker that runs the unit reads it; the others find it in the log.
  bool pass_flush(Walker& walker, uint32_t set) {
    const int64_t num_units = walker.history->num_units();
    const bool is_inside = run_.prepared()->marks.continues_unit[set] != 0 && num_units > 0;
    const bool is_ours = is_inside && walker.is_ours;
    // Its own units before this place are complete.
    if (!is_ours) walker.front.store(std::max(walker.claim, num_units), std::memory_order_release);
    const auto is_complete = [&](int64_t unit) {
      return unit < least_front(walker, num_units) || (is_ours && unit == num_units - 1);
    };
    const auto value = run_.flushed().value(walker.num_flushed, [&]() -> std::optional<int64_t> {
      if (is_inside && !is_ours) return {};
      const bytecode::Value& expression = run_.plan().sets[set].value;
      return walker.history->read(expression, walker.expander->registers(), is_complete);
    });
    if (!value) {
      // A unit that fails may leave the value unread.
      if (walker.expander->num_tasks() >= run_.task_limit()) end(walker);
      return false;
    }
    ++walker.num_flushed;
    walker.expander->assign(set, *value);
    return true;
  }

  /// The least of `most` and the fronts of other workers.
  int64_t least_front(const Walker& walker, int64_t most) const {
    for (const Walker& other : walkers_) {
      if (&other != &walker) most = std::min(most, other.front.load(std::memory_order_seq_cst));
    }
    return most;
  }

  int64_t num_claimed(uint32_t site) const {
    const auto ns = int64_t(run_.task_cost(site, nullptr));
    return std::clamp<int64_t>(kClaimNs / std::max<int64_t>(ns, 1), 1, kMaxClaim);
  }

  /// Units before the walker's own were claimed before. Those of other workers are complete up to the least
  /// front, and its own are complete.
  void look_for_complete(Walker& walker) {
    walker.complete = std::max(walker.complete, least_front(walker, walker.history->num_units() - 1));
  }

  void pass_over(Walker& walker, uint32_t loop) {
    const auto& units = run_.prepared()->units;
    const graph::UnitSummary* unit = loop < units.size() ? units[loop].get() : nullptr;
    if (unit != nullptr) walker.expander->pass_over(unit->count(unit->shape(walker.expander->registers())));
  }

  [[gnu::always_inline]] inline bool run_task(Walker& walker, Worker& worker, uint32_t site) {
    const uint64_t task = walker.expander->num_tasks() - 1;
    const bytecode::Arguments::Call& call = walker.arguments.call(site);
    const bool is_timed = task % kTimedPeriod == 0 || !walker.has_run[site];
    bool succeeds;
    if (call.is_simple && !is_timed && !run_.options().watches_tasks()) {
      succeeds = task < run_.task_limit() &&
                 run_.succeeds(worker, task, 0, [&] { return worker.run_simple(call, task); });
    } else {
      walker.has_run[site] = true;
      const int64_t* registers = walker.expander->registers();
      if (run_.plan().sites[site].checks_late && !check_late(walker, site, task)) return false;
      walker.arguments.fill_rest(site, registers);
      const auto body = [&] { return worker.run_filled(walker.arguments, site, registers, task); };
      succeeds = run_.may_run(worker, task) && run_.succeeds(worker, task, 0, body);
    }
    if (!succeeds) end(walker);
    return succeeds;
  }

  /// False if a late argument of a task is wrong: the run then ends before the task.
  bool check_late(Walker& walker, uint32_t site, uint64_t task) {
    try {
      walker.checker->check(run_.plan().sites[site], walker.expander->registers(), true);
      return true;
    } catch (EngineError& error) {
      run_.fail({task, 0, place_late(std::move(error), *walker.expander, task), true}, 0);
      end(walker);
      return false;
    }
  }

  Run& run_;
  Others& others_;
  const graph::SymbolicWaits& waits_;
  std::vector<bytecode::QuickStep> steps_;
  std::vector<uint8_t> is_inside_;                    ///< per site: its tasks begin no unit and no lookup
  std::vector<Walker> walkers_;                       ///< per worker
  alignas(kLineBytes) std::atomic<int64_t> next_{0};  ///< ticket
  alignas(kLineBytes) std::atomic<uint32_t> num_joined_{0};
  std::atomic<uint32_t> num_ended_{0};
  std::atomic<uint64_t> num_waits_{0};
};

}  // namespace pto::wsp::sched
