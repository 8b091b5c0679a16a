// SPDX-License-Identifier: MIT
/// \file
/// A dispatcher: walks a whole plan, orders all tasks, and runs or records those of the units that it owns.
#pragma once

#include <optional>
#include <vector>

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/sched/ordering.hpp"
#include "pto/wsp/sched/run.hpp"
#include "pto/wsp/sched/traits.hpp"
#include "pto/wsp/sched/walk_stats.hpp"

namespace pto::wsp::sched {

/// The dispatchers of a run number everything alike and differ in what they own. Whoever expands a task also
/// runs it, if it is ready; what must wait is recorded, and the walk goes on.
///
/// A dispatcher never blocks: `step` says that it cannot go on now, and the next step tries again. At most
/// one thread is in it at a time, whichever has the lock.
///
/// Why a run ends: every wait is for slices that come earlier in program order. So consider the oldest slice
/// that is not complete. If it is recorded, its moments have passed and it is the first to be taken. If not,
/// the dispatcher that owns it, or the last one if nobody does yet, is in it or before it, where all that it
/// could wait for is complete: a line for the slice, values that it must know, the moments of the task that
/// it is at. That task needs no room in the window, because it runs at once.
class Dispatcher {
 public:
  Dispatcher(Run& run, uint32_t index) : run_(run), index_(index), ordering_(run.progress()) {}

  /// Makes it start anew with the next step. \pre nobody uses it
  void reset(uint32_t num_dispatchers) {
    num_dispatchers_ = num_dispatchers;
    is_ready_ = false;
    owned_.clear();
    standstill_.clear();
    stats_ = {};
    is_ended_.store(false, std::memory_order_relaxed);
  }

  /// Goes on until a slice of its own is closed, for a while, or as far as it can. False if nothing came of
  /// it: no slice is closed, and it cannot go on. `worker` takes slices from `lanes`.
  bool step(Worker& worker, Lanes lanes) {
    worker_ = &worker;
    lanes_ = lanes;
    has_closed_ = false;
    // What it closed before it was stopped may be for others, who must hear of it.
    return go_on() || has_closed_;
  }

  /// Nobody will go on with it: what stopped it last did so until now. \pre nobody is in it
  void leave() { standstill_.end(run_.stalls(), run_.options().traces_walks); }

  /// The tasks that it owned, if the run is traced.
  const std::vector<trace::MadeSlice>& owned() const { return owned_; }
  /// \pre the run is over
  const WalkStats& stats() const { return stats_; }
  /// What stopped it, if the run traces walks.
  const std::vector<StallEvent>& stall_events() const { return standstill_.events(); }

  /// Adds the task that it cannot get past, if there is one. \pre nobody is in it
  void add_blocked(std::vector<BlockedTask>& blocked) const {
    if (!is_ready_ || has_ended() || !has_event_ || event_.kind != bytecode::Event::kTask) return;
    const std::string waits_for =
        waits().size() > 0 ? describe(waits()[0]) : kStallNames[int(standstill_.why())];
    blocked.push_back({num_tasks() - 1, numbering_.slice(), plan_->sites[event_.index].pc,
                       expander_->copy_registers(), waits_for});
  }

  /// Whether it has ended, or waits for what only others can do.
  bool is_stuck() const { return has_ended() || standstill_.is_on(); }

  /// Whether it waits for a worker of another pool than the last one that came. \pre nobody is in it
  bool waits_for_pool() const { return standstill_.is_on() && standstill_.why() == Stall::kPool; }

  /// Whether it might go on and nobody is in it.
  bool is_free() const { return !has_ended() && !lock.is_locked(); }

  /// Whether a worker that takes slices from `lanes` can go on with it, as far as is known: what it waits for
  /// may have come meanwhile.
  bool can_go_on(Lanes lanes) const {
    if (!is_free()) return false;
    return !standstill_.is_on() || (lanes & wanted_lanes_.load(std::memory_order_relaxed)) != 0;
  }

  SpinLock lock;

 private:
  static constexpr int kStepEvents = 1024;
  static constexpr uint64_t kTimedPeriod = 64;  ///< of tasks that may be timed

  void begin() {
    const bytecode::Plan& plan = run_.plan();
    plan_ = &plan;
    ordering_.begin(run_);
    arguments_.bind(plan, run_.bases());
    expander_.emplace(plan, &arguments_);
    checker_.emplace(plan);
    numbering_.begin(run_.numbering_start());
    num_flushed_ = 0;
    has_event_ = has_waits_ = is_mine_ = is_silent_ = is_feeding_ = false;
    is_counted_ = is_free_ = false;
    is_watched_ = run_.options().watches_tasks();
    record_ = nullptr;
    has_run_.assign(plan.sites.size(), false);
    traits_.begin(run_.options().interleaved);
    is_ready_ = true;
  }

  /// False where it is stopped, or has ended.
  bool go_on() {
    try {
      if (!is_ready_) begin();
      for (int events = 0; events < kStepEvents && !has_closed_; ++events) {
        run_.look_out(*worker_);
        if (has_ended() || num_tasks() > run_.task_limit()) return end();
        if (is_free_ && !has_event_) run_free();
        if (!has_event_) event_ = next();
        has_event_ = true;
        if (has_ended()) return end();
        if (!handle(event_)) return false;
        has_event_ = false;
        standstill_.end(run_.stalls(), run_.options().traces_walks);
      }
    } catch (const std::bad_alloc&) {
      run_.fail({0, 0, {}, true}, 0);
      return end();
    }
    return true;
  }

  bool end() {
    is_ended_.store(true, std::memory_order_relaxed);
    return false;
  }

  bool has_ended() const { return is_ended_.load(std::memory_order_relaxed); }
  uint64_t num_tasks() const { return expander_->num_tasks(); }
  WaitList& waits() { return ordering_.waits(); }
  const WaitList& waits() const { return ordering_.waits(); }

  /// Goes on to the next event. A task's late arguments have been checked then.
  bytecode::Event next() {
    const uint64_t num_before = num_tasks();
    try {
      const bytecode::Event event = expander_->next();
      if (event.kind == bytecode::Event::kTask && plan_->sites[event.index].checks_late)
        checker_->check(plan_->sites[event.index], expander_->registers(), true);
      return event;
    } catch (EngineError& error) {
      fail(std::move(error), num_before);
      return {bytecode::Event::kNothing, 0};
    }
  }

  /// Ends a run that cannot go on behind `num_before` tasks. These complete first: should one of them fail,
  /// that is the error of the run.
  void fail(EngineError error, uint64_t num_before) {
    close_open(true);
    run_.fail({num_before, 0, place_late(std::move(error), *expander_, num_before), true},
              numbering_.slice());
    is_ended_.store(true, std::memory_order_relaxed);
  }

  /// False where the event must be handled again later.
  bool handle(bytecode::Event event) {
    switch (event.kind) {
      case bytecode::Event::kTask: return emit(event.index);
      case bytecode::Event::kFlush: return flush(event.index);
      case bytecode::Event::kUnit: end_unit(); return begin_unit(event.index);
      case bytecode::Event::kUnitEnd: end_unit(); return true;
      case bytecode::Event::kEnter:
        close_open(true);
        numbering_.enter_group();
        return true;
      case bytecode::Event::kIteration:
        close_open(true);
        numbering_.begin_iteration();
        return true;
      case bytecode::Event::kLeave:
        close_open(true);
        numbering_.leave_group();
        return true;
      case bytecode::Event::kNothing: return true;
      case bytecode::Event::kEnd:
        close_open(true);
        run_.end_at(numbering_.slice());
        is_ended_.store(true, std::memory_order_relaxed);
        return true;
    }
    return true;
  }

  // Units

  void end_unit() {
    is_counted_ = is_free_ = false;
    if (numbering_.is_open() && numbering_.is_over()) close(true);
  }

  /// Passes over a unit of another, if it has a summary, and looks ahead in one of its own. False if no slice
  /// can be opened now.
  bool begin_unit(uint32_t loop) {
    const graph::UnitSummary* unit = run_.prepared()->units[loop].get();
    if (unit == nullptr) return true;
    if (expander_->registers()[plan_->loops[loop].reg] == 0)
      slices_before_loop_ = numbering_.slice() + (numbering_.is_open() && numbering_.num_tasks() > 0 ? 1 : 0);
    const graph::UnitSummary::Shape shape = unit->shape(expander_->registers());
    const auto [num_tasks, ns] = run_.size_of(*unit, shape, numbering_.max_unit_tasks());
    if (num_tasks == 0) return true;
    if (numbering_.is_open() && num_tasks > numbering_.max_tasks() - numbering_.num_tasks()) close(true);
    if (!numbering_.is_open() && !open()) return false;
    ordering_.begin_unit(loop, expander_->registers(), numbering_);
    if (is_mine_) {
      is_free_ = is_free(*unit, shape);
      is_counted_ = true;
      numbering_.add_weight(ns);
    } else {
      numbering_.add_unit(num_tasks, ns);
      if (!run_.progress().is_complete(numbering_.slice()))
        ordering_.add_unit(*unit, shape, expander_->registers(), numbering_);
      expander_->pass_over(num_tasks);
      stats_.passed_over += num_tasks;
    }
    return true;
  }

  /// Whether all that a unit must wait for has passed: its tasks need not be looked at then, and nobody who
  /// comes to this walk later need wait for them, since they run before it goes on. Iterations of the loop do
  /// not wait for each other.
  bool is_free(const graph::UnitSummary& unit, const graph::UnitSummary::Shape& shape) {
    if (record_ != nullptr || is_feeding_) return false;
    return run_.progress().watermark() >= slices_before_loop_ ||
           ordering_.is_ready(unit, shape, expander_->registers(), numbering_);
  }

  // Tasks

  bool emit(uint32_t site) {
    if (is_free_) {
      if (!place(site)) return false;
      numbering_.add_task(0);
      run_here(site);
      return true;
    }
    if (!has_waits_) {
      if (!place(site)) return false;
      find_waits(site);
      if (!is_mine_) return true;
    }
    has_waits_ = !run_or_record(site);
    return !has_waits_;
  }

  /// Sees to it that a slice is open for the task.
  bool place(uint32_t site) {
    const bool cuts = run_.options().cuts_units();
    if (cuts) note_traits(plan_->sites[site]);
    if (numbering_.is_open()) {
      const bool is_unit = cuts || plan_->sites[site].is_unit;
      if (is_unit ? numbering_.is_over() : numbering_.is_full()) close(is_unit);
    }
    return numbering_.is_open() || open();
  }

  /// Ends the strand where a task has other traits than the one before it.
  void note_traits(const bytecode::QuickSite& site) {
    if (!traits_.note(*plan_, run_.options(), num_dispatchers_, site, *expander_)) return;
    close_open(true);
    if (traits_.begins_batch()) ordering_.begin_batch(numbering_.slice());
  }

  /// Opens a slice for the task that was just expanded; false while too many are on their way.
  bool open() {
    const uint64_t slice = numbering_.slice();
    const uint32_t owner = owner_of_strand();
    if (numbering_.begins_strand() && owner != kNobody) is_mine_ = owner == index_;
    const bool is_undecided = numbering_.begins_strand() && owner == kNobody;
    if ((is_mine_ || is_undecided) && !run_.progress().admits(slice)) return block(Stall::kSlices);
    if (is_undecided) is_mine_ = run_.progress().claim(slice);
    is_silent_ = !is_mine_ && run_.progress().is_complete(slice);
    if (is_mine_) {
      own_slices_.add(slice);
      run_.count_live(slice);
      is_feeding_ = run_.is_ordered() || run_.is_held() || run_.wants_slices(slice, num_dispatchers_);
      first_task_ = num_tasks() - (event_.kind == bytecode::Event::kTask ? 1 : 0);
    }
    numbering_.open();
    return true;
  }

  /// The dispatcher whose strand begins, or kNobody: then it is that of the first who claims it.
  uint32_t owner_of_strand() const {
    if (run_.options().ownership != Ownership::kRoundRobin) return traits_->owner;
    return uint32_t(numbering_.num_strands() % num_dispatchers_);
  }

  /// Finds what the task must wait for, and makes later tasks wait for it.
  void find_waits(uint32_t site) {
    numbering_.add_task(is_counted_ ? 0 : run_.task_cost(site, expander_->registers()));
    // Nobody waits for what is complete.
    if (!is_silent_) ordering_.add_task(site, *expander_, numbering_, is_mine_);
  }

  /// False while the task is not ready and there is no room to record it.
  bool run_or_record(uint32_t site) {
    if (record_ == nullptr) {
      const bool is_ready = waits().have_passed(), is_of_pool = has_lane(lanes_, traits_->lane);
      const bool has_record = (!is_ready || is_feeding_ || !is_of_pool) && begin_record();
      if (!has_record && !(is_ready && may_run_here())) return block(Stall::kWindow);
      if (!has_record && !is_of_pool) return block(Stall::kPool, Lanes{1} << traits_->lane);
      if (!has_record) {
        worker_->resume();
        run_here(site);
        if (!has_ended()) run_.reach(task_name(numbering_.slice(), numbering_.num_tasks()), site);
        return true;
      }
    }
    record(site);
    return true;
  }

  /// Where a policy decides what starts first, only the oldest slice goes past it, since it must not wait for
  /// room.
  bool may_run_here() {
    if (run_.is_held()) return false;
    if (!run_.is_ordered()) return true;
    run_.progress().advance_watermark();
    return run_.progress().watermark() == numbering_.slice();
  }

  /// Runs the tasks of a free unit up to another event, or until its slice is full.
  void run_free() {
    uint64_t task = num_tasks();
    const uint64_t last = task + numbering_.max_tasks() - numbering_.num_tasks();
    for (bool goes_on = true; task < last && goes_on; ++task) {
      const bytecode::Event event = expander_->next();
      if (event.kind != bytecode::Event::kTask) {
        event_ = event;
        has_event_ = true;
        break;
      }
      const bytecode::Arguments::Call& call = arguments_.call(event.index);
      const bool may_be_timed = task % kTimedPeriod == 0 || !has_run_[event.index];
      if (!call.is_simple || is_watched_ || may_be_timed) {
        has_run_[event.index] = true;
        run_here(event.index);
        goes_on = !has_ended();
        continue;
      }
      run_.look_out(*worker_);
      goes_on = task < run_.task_limit() &&
                run_.succeeds(task, numbering_.slice(), [&] { return worker_->run_simple(call, task); });
      if (!goes_on) end();
    }
    numbering_.add_tasks(uint32_t(task + numbering_.max_tasks() - numbering_.num_tasks() - last));
  }

  void run_here(uint32_t site) {
    const uint64_t task = num_tasks() - 1;
    const int64_t* registers = expander_->registers();
    arguments_.fill_rest(site, registers);
    const auto body = [&] { return worker_->run_filled(arguments_, site, registers, task); };
    if (!run_.may_run(*worker_, task) || !run_.succeeds(task, numbering_.slice(), body))
      is_ended_.store(true, std::memory_order_relaxed);
  }

  /// From the present task on, the slice is recorded. Room for all that it may hold is taken at once, so that
  /// it never waits, half recorded, for what others have.
  bool begin_record() {
    const uint32_t num_before = numbering_.num_tasks() - 1;
    record_ = run_.record_slice(numbering_.max_tasks() - num_before);
    if (record_ == nullptr) return false;
    record_->number = numbering_.slice();
    record_->first_task = num_tasks() - 1 - num_before;
    record_->next = num_before;
    record_->cursor = 0;
    record_->priority = traits_->priority;
    record_->lane = traits_->lane;
    record_->num_groups = 0;
    for (const Group& group : numbering_.groups()) record_->groups[record_->num_groups++] = group.line;
    return true;
  }

  void record(uint32_t site_index) {
    const bytecode::QuickSite& site = plan_->sites[site_index];
    std::vector<uint64_t>& words = record_->words;
    words.push_back(uint64_t(waits().size()) << 32 | site_index);
    for (int i = 0; i < waits().size(); ++i) {
      const Name name = waits()[i];
      words.push_back(name);
      if (is_task_name(name)) ++(own_slices_.has(slice_of(name)) ? stats_.local_waits : stats_.remote_waits);
    }
    const uint32_t* index = plan_->registers.data() + site.first_register;
    for (uint32_t i = 0; i < site.num_registers; ++i)
      words.push_back(uint64_t(expander_->registers()[index[i]]));
    if (run_.is_held()) run_.note_held();
  }

  void close_open(bool ends_strand) {
    if (numbering_.is_open()) close(ends_strand);
  }

  /// Ends the open slice and passes it on.
  void close(bool ends_strand) {
    if (is_mine_) {
      if (record_ != nullptr) {
        record_->num_tasks = numbering_.num_tasks();
        stats_.recorded += record_->num_tasks - record_->next;
        run_.publish(*record_, numbering_.max_tasks() - numbering_.num_tasks());
        record_ = nullptr;
      } else {
        for (const Group& group : numbering_.groups()) run_.progress().reach_in_group(group.line);
        run_.progress().reach(complete_name(numbering_.slice()));
      }
      stats_.made += numbering_.num_tasks();
      run_.progress().advance_watermark();
      has_closed_ = true;
      const RunOptions& options = run_.options();
      if (options.trace)
        owned_.push_back({first_task_, numbering_.num_tasks(), options.traces_walks ? trace::ticks() : 0});
    }
    numbering_.close(ends_strand);
  }

  // Flush points

  /// Gives the variable of SET number `set` its value, which tasks write; false until they are complete.
  bool flush(uint32_t set) {
    close_open(!plan_->sets[set].is_in_unit);
    try {
      const auto value = run_.flushed().value(num_flushed_, [&] {
        return ordering_.read(plan_->sets[set].value, expander_->registers(), numbering_.slice());
      });
      if (!value) return block(Stall::kFlush);
      ++num_flushed_;
      expander_->assign(set, *value);
    } catch (EngineError& error) {
      fail(std::move(error), num_tasks());
    }
    return true;
  }

  // Stalls

  /// With a worker that takes slices from `wanted` it could go on at once.
  bool block(Stall stall, Lanes wanted = 0) {
    wanted_lanes_.store(wanted, std::memory_order_relaxed);
    if (stall == Stall::kWindow && run_.options().window_mode == WindowMode::kAbort) return abort();
    // The waits of a task may be for a watermark that nobody else has a reason to move.
    run_.progress().advance_watermark();
    standstill_.begin(stall, run_.stalls(), run_.options().traces_walks);
    return false;
  }

  /// Ends the run before the present task, for which the window has no room. True: there is nothing to do
  /// again.
  bool abort() {
    const bytecode::QuickSite& site = plan_->sites[event_.index];
    fail(EngineError("window-full", "the window has no room for another task").with_int("pc", site.pc),
         num_tasks() - 1);
    return true;
  }

  Run& run_;
  const uint32_t index_;
  uint32_t num_dispatchers_ = 0;
  const bytecode::Plan* plan_ = nullptr;
  bytecode::Arguments arguments_;  ///< of the task that is being walked
  std::optional<bytecode::Expander> expander_;
  std::optional<bytecode::TaskChecker> checker_;
  Numbering numbering_;
  Ordering ordering_;
  std::vector<trace::MadeSlice> owned_;
  Standstill standstill_;
  WalkStats stats_;
  OwnSlices own_slices_;
  uint64_t first_task_ = 0;   ///< of the open slice
  TaskTraits traits_;         ///< of the present task
  Worker* worker_ = nullptr;  ///< of the thread whose step this is
  Lanes lanes_ = kAllLanes;   ///< that it takes slices from
  Slice* record_ = nullptr;   ///< the open slice, if some of it is recorded
  bytecode::Event event_{bytecode::Event::kNothing, 0};
  size_t num_flushed_ = 0;
  bool is_ready_ = false;
  std::atomic<bool> is_ended_{false};
  std::atomic<Lanes> wanted_lanes_{0};
  bool has_event_ = false;   ///< `event_` must be handled again
  bool has_waits_ = false;   ///< those of the present task are known
  bool is_mine_ = false;     ///< the strand
  bool is_silent_ = false;   ///< the slice is another's, and complete
  bool is_counted_ = false;  ///< the unit has a summary
  bool is_free_ = false;     ///< and nothing to wait for
  bool is_watched_ = false;  ///< workers look at every task
  bool is_feeding_ = false;  ///< others wait for slices
  bool has_closed_ = false;
  uint64_t slices_before_loop_ = 0;  ///< what comes before the present run of a loop of units is in these
  std::vector<uint8_t> has_run_;     ///< per site: one of its tasks was in a free unit
};

}  // namespace pto::wsp::sched
