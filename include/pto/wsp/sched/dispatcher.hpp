// SPDX-License-Identifier: MIT
/// \file
/// A dispatcher: walks a whole plan, and runs or records the tasks of the strands that it owns.
#pragma once

#include <atomic>
#include <vector>

#include "pto/wsp/sched/run.hpp"
#include "pto/wsp/sched/walk.hpp"
#include "pto/wsp/sched/walk_stats.hpp"

namespace pto::wsp::sched {

/// All dispatchers of a run number tasks alike (see Walk) and differ in what they own. A dispatcher runs a
/// task of its own immediately if the task is ready. Otherwise it records the task and continues the walk.
///
/// A dispatcher never blocks: `step` returns false when it cannot continue, and the next step tries again. At
/// most one thread is in it at a time, the one that holds the lock.
///
/// Why a run ends: every wait is for slices that come earlier in program order. Consider the oldest slice
/// that is not complete. If it is recorded, its waits are satisfied and workers take it first. If not, the
/// dispatcher that owns it, or the last one if it has no owner yet, is in it or before it. Everything that
/// this dispatcher could wait for there is complete: a free line for the slice, values of flush points, the
/// waits of the current task. That task needs no room in the window, because it runs immediately.
class Dispatcher {
 public:
  Dispatcher(Run& run, uint32_t index) : run_(run), index_(index), walk_(run.progress()) {}

  /// Makes it start again with the next step. \pre no thread uses it
  void reset(uint32_t num_dispatchers) {
    num_dispatchers_ = num_dispatchers;
    set_stage(Stage::kNew);
    owned_.clear();
    standstill_.clear();
    stats_ = {};
  }

  /// Advances the walk until it closes one of its own slices, has handled kStepEvents events, or blocks.
  /// Returns false if it blocked without closing a slice. `worker` takes slices from `lanes`.
  bool step(Worker& worker, Lanes lanes) {
    worker_ = &worker;
    lanes_ = lanes;
    const uint64_t num_closed = num_closed_;
    // Other workers must be told of a slice that was closed before the walk stopped.
    return go_on() || num_closed_ != num_closed;
  }

  /// Ends a standstill, because no thread continues the walk. \pre no thread is in it
  void leave() { standstill_.end(run_.stalls(), run_.options().traces_walks); }

  /// The tasks that it owned, if the run is traced.
  const std::vector<trace::MadeSlice>& owned() const { return owned_; }
  /// \pre the run is over
  const WalkStats& stats() const { return stats_; }
  /// What stopped it, if the run traces walks.
  const std::vector<StallEvent>& stall_events() const { return standstill_.events(); }

  /// Adds the task that blocks it, if there is one. \pre no thread is in it
  void add_blocked(std::vector<BlockedTask>& blocked) const {
    const bool has_event = stage() == Stage::kHandle || stage() == Stage::kOrdered;
    if (!has_event || event_.kind != bytecode::Event::kTask) return;
    const std::string waits_for =
        walk_.waits().size() > 0 ? describe(walk_.waits()[0]) : kStallNames[int(standstill_.why())];
    blocked.push_back({walk_.num_tasks() - 1, walk_.slice(), run_.plan().sites[event_.index].pc,
                       walk_.expander().copy_registers(), waits_for});
  }

  /// Whether it waits for a worker of another pool than the last worker. \pre no thread is in it
  bool waits_for_pool() const { return standstill_.is_on() && standstill_.why() == Stall::kPool; }

  /// Whether it has not ended and no thread is in it.
  bool is_free() const { return !has_ended() && !lock.is_locked(); }

  /// Whether a worker that takes slices from `lanes` may be able to continue it. Its wait may be satisfied by
  /// now.
  bool can_go_on(Lanes lanes) const {
    if (!is_free()) return false;
    return !standstill_.is_on() || (lanes & wanted_lanes_.load(std::memory_order_relaxed)) != 0;
  }

  /// Whether it is stopped and no thread is in it. Its wait may be satisfied by now.
  bool is_stopped() const { return is_free() && standstill_.is_on(); }

  SpinLock lock;

 private:
  friend class Walk;  // which calls the functions of an engine

  static constexpr int kStepEvents = 1024;
  static constexpr uint64_t kTimedPeriod = 64;  ///< one of this many tasks is timed

  /// What the next step begins with.
  enum class Stage : uint8_t {
    kNew,      ///< the walk has not begun
    kAdvance,  ///< go to the next event
    kHandle,   ///< handle `event_`; a blocked walk continues here
    kOrdered,  ///< run or record the task of `event_`: what it waits for is known
    kEnded,
  };

  /// Who runs the tasks of the open slice. Between slices of a strand, the value of the last slice.
  enum class Share : uint8_t {
    kTheirs,    ///< another dispatcher runs them
    kComplete,  ///< another dispatcher has completed them: no task needs to wait for them
    kOurs,      ///< a task that is ready runs immediately
    kFed,       ///< ours, and all are recorded, because other workers need slices or a policy orders them
  };

  /// How the current unit is walked.
  enum class UnitMode : uint8_t {
    kTracked,  ///< its tasks are ordered and weighed one by one
    kCounted,  ///< its weight was added to the slice as a whole
    kFree,     ///< counted, and none of its tasks waits for anything
  };

  Stage stage() const { return stage_.load(std::memory_order_relaxed); }
  void set_stage(Stage stage) { stage_.store(stage, std::memory_order_relaxed); }
  bool has_ended() const { return stage() == Stage::kEnded; }
  bool is_ours() const { return share_ == Share::kOurs || share_ == Share::kFed; }
  Numbering& numbering() { return walk_.numbering(); }

  void begin() {
    arguments_.bind(run_.plan(), run_.bases());
    walk_.begin(run_, run_.numbering_start(), num_dispatchers_, &arguments_);
    num_flushed_ = num_closed_ = 0;
    share_ = Share::kTheirs;
    unit_ = UnitMode::kTracked;
    record_ = nullptr;
    has_run_.assign(run_.plan().sites.size(), false);
    set_stage(Stage::kAdvance);
    if (run_.rest() != nullptr) go_on_from(*run_.rest());
  }

  void go_on_from(const Rest& rest) {
    walk_.go_on_from(rest.expander);
    slices_before_loop_ = walk_.slice();
    num_flushed_ = rest.num_flushed;
    event_ = rest.event;
    set_stage(Stage::kHandle);
  }

  /// Returns false if it is blocked or has ended.
  bool go_on() {
    try {
      if (stage() == Stage::kNew) begin();
      const uint64_t num_closed = num_closed_;
      for (int events = 0; events < kStepEvents && num_closed_ == num_closed; ++events) {
        run_.look_out(*worker_);
        if (walk_.num_tasks() > run_.task_limit()) set_stage(Stage::kEnded);
        if (unit_ == UnitMode::kFree && stage() == Stage::kAdvance) run_free();
        if (stage() == Stage::kAdvance) advance();
        if (has_ended()) return false;
        if (!walk_.handle(event_, *this)) return false;
        if (!has_ended()) set_stage(Stage::kAdvance);
        standstill_.end(run_.stalls(), run_.options().traces_walks);
      }
    } catch (const std::bad_alloc&) {
      run_.fail({0, 0, {}, true}, 0);
      set_stage(Stage::kEnded);
      return false;
    }
    return true;
  }

  /// Goes to the next event, and checks the late arguments of a task.
  void advance() {
    const uint64_t num_before = walk_.num_tasks();
    try {
      event_ = walk_.expander().next();
      if (event_.kind == bytecode::Event::kTask) walk_.check_late(event_.index);
      set_stage(Stage::kHandle);
    } catch (EngineError& error) {
      fail(std::move(error), num_before);
    }
  }

  /// Ends a run whose walk fails after the first `num_before` tasks. These tasks complete. If one of them
  /// fails, its error is the error of the run.
  void fail(EngineError error, uint64_t num_before) {
    set_stage(Stage::kEnded);
    if (numbering().is_open()) close(true);
    run_.fail({num_before, 0, place_late(std::move(error), walk_.expander(), num_before), true},
              walk_.slice());
  }

  bool on_end() {
    run_.end_at(walk_.slice());
    set_stage(Stage::kEnded);
    return true;
  }

  // Units

  void end_unit() { unit_ = UnitMode::kTracked; }

  /// If the unit has a summary, skips a unit of another dispatcher and prepares one of its own. Returns false
  /// if no slice can be opened now.
  bool begin_unit(uint32_t loop) {
    const graph::UnitSummary* unit = run_.prepared()->units[loop].get();
    // Each task is compared with those of earlier runs.
    if (unit == nullptr || run_.options().imports != nullptr) return true;
    const int64_t* registers = walk_.registers();
    if (registers[run_.plan().loops[loop].reg] == 0)
      slices_before_loop_ = walk_.slice() + (numbering().is_open() && numbering().num_tasks() > 0 ? 1 : 0);
    const graph::UnitSummary::Shape shape = unit->shape(registers);
    const auto [num_tasks, ns] = run_.size_of(*unit, shape, numbering().max_unit_tasks());
    if (num_tasks == 0) return true;
    if (numbering().is_open() && num_tasks > numbering().max_tasks() - numbering().num_tasks()) close(true);
    if (!numbering().is_open() && !open()) return false;
    walk_.ordering().begin_unit(loop, registers, numbering());
    if (is_ours()) {
      unit_ = is_free(*unit, shape) ? UnitMode::kFree : UnitMode::kCounted;
      numbering().add_weight(ns);
    } else {
      numbering().add_unit(num_tasks, ns);
      if (!run_.progress().is_complete(walk_.slice()))
        walk_.ordering().add_unit(*unit, shape, registers, numbering());
      walk_.expander().pass_over(num_tasks);
      stats_.passed_over += num_tasks;
    }
    return true;
  }

  /// Whether all waits of a unit are satisfied. Then its tasks need no hazard lookups. Later tasks of this
  /// walk need not wait for them, because they run before the walk continues. Iterations of the loop do not
  /// wait for each other.
  bool is_free(const graph::UnitSummary& unit, const graph::UnitSummary::Shape& shape) {
    if (record_ != nullptr || share_ == Share::kFed) return false;
    return run_.progress().watermark() >= slices_before_loop_ ||
           walk_.ordering().is_ready(unit, shape, walk_.registers(), numbering());
  }

  // Tasks

  bool on_task(uint32_t site) {
    if (unit_ == UnitMode::kFree) {
      if (!walk_.place(site, *this)) return false;
      numbering().add_task(0);
      worker_->resume();
      run_here(site);
      return true;
    }
    if (stage() == Stage::kHandle) {
      if (!walk_.place(site, *this)) return false;
      find_waits(site);
      if (!is_ours()) return true;
      set_stage(Stage::kOrdered);
    }
    return run_or_record(site);
  }

  /// Opens a slice for the current task or unit; false while too many slices are incomplete.
  bool open() {
    const uint64_t slice = walk_.slice();
    const uint32_t owner = walk_.policy().strand_traits(numbering().num_strands()).owner;
    bool is_ours = this->is_ours();
    if (numbering().begins_strand() && owner != kNoOwner) is_ours = owner == index_;
    const bool is_undecided = numbering().begins_strand() && owner == kNoOwner;
    if ((is_ours || is_undecided) && !run_.progress().admits(slice)) return block(Stall::kSlices);
    if (is_undecided) is_ours = run_.progress().claim(slice);
    if (is_ours) {
      own_slices_.add(slice);
      run_.count_live(slice);
      const bool is_fed = run_.is_ordered() || run_.wants_slices(slice, num_dispatchers_);
      share_ = is_fed ? Share::kFed : Share::kOurs;
      first_task_ = walk_.num_tasks() - (event_.kind == bytecode::Event::kTask ? 1 : 0);
    } else {
      share_ = run_.progress().is_complete(slice) ? Share::kComplete : Share::kTheirs;
    }
    numbering().open();
    return true;
  }

  /// Finds what the task must wait for, and makes later tasks wait for it.
  void find_waits(uint32_t site) {
    numbering().add_task(unit_ == UnitMode::kCounted ? 0 : run_.task_cost(site, walk_.registers()));
    if (share_ != Share::kComplete) walk_.order(site, is_ours());
  }

  /// False while the task is not ready and there is no room to record it.
  bool run_or_record(uint32_t site) {
    if (record_ == nullptr) {
      const bool is_ready = walk_.waits().have_passed(), is_of_pool = has_lane(lanes_, walk_.traits().lane);
      const bool is_fed = share_ == Share::kFed;
      const bool has_record = (!is_ready || is_fed || !is_of_pool) && begin_record();
      if (!has_record && !(is_ready && may_run_here())) return block(Stall::kWindow);
      if (!has_record && !is_of_pool) return block(Stall::kPool, Lanes{1} << walk_.traits().lane);
      if (!has_record) {
        worker_->resume();
        run_here(site);
        if (!has_ended()) run_.reach(task_name(walk_.slice(), numbering().num_tasks()), site);
        return true;
      }
    }
    record(site);
    return true;
  }

  /// Under a policy that orders ready tasks, only the oldest slice bypasses the policy, because it must not
  /// wait for room.
  bool may_run_here() {
    if (!run_.is_ordered()) return true;
    run_.progress().advance_watermark();
    return run_.progress().watermark() == walk_.slice();
  }

  /// Runs the tasks of a free unit until another event, or until its slice is full.
  void run_free() {
    worker_->resume();
    uint64_t task = walk_.num_tasks();
    const uint64_t last = task + numbering().max_tasks() - numbering().num_tasks();
    const bool is_watched = run_.options().watches_tasks();
    for (bool goes_on = true; task < last && goes_on; ++task) {
      const bytecode::Event event = walk_.expander().next();
      if (event.kind != bytecode::Event::kTask) {
        event_ = event;
        set_stage(Stage::kHandle);
        break;
      }
      const bytecode::Arguments::Call& call = arguments_.call(event.index);
      const bool may_be_timed = task % kTimedPeriod == 0 || !has_run_[event.index];
      if (!call.is_simple || is_watched || may_be_timed) {
        has_run_[event.index] = true;
        run_here(event.index);
        goes_on = !has_ended();
        continue;
      }
      run_.look_out(*worker_);
      goes_on = task < run_.task_limit() &&
                run_.succeeds(*worker_, task, walk_.slice(), [&] { return worker_->run_simple(call, task); });
      if (!goes_on) set_stage(Stage::kEnded);
    }
    numbering().add_tasks(uint32_t(task + numbering().max_tasks() - numbering().num_tasks() - last));
  }

  void run_here(uint32_t site) {
    const uint64_t task = walk_.num_tasks() - 1;
    const int64_t* registers = walk_.registers();
    arguments_.fill_rest(site, registers);
    const auto body = [&] { return worker_->run_filled(arguments_, site, registers, task); };
    if (!run_.may_run(*worker_, task) || !run_.succeeds(*worker_, task, walk_.slice(), body))
      set_stage(Stage::kEnded);
  }

  /// Records the slice from the current task on. It takes room for all tasks of the slice in one step. So a
  /// half recorded slice never waits for room that others hold.
  bool begin_record() {
    const uint32_t num_before = numbering().num_tasks() - 1;
    record_ = run_.record_slice(numbering().max_tasks() - num_before);
    if (record_ == nullptr) return false;
    record_->number = walk_.slice();
    record_->first_task = walk_.num_tasks() - 1 - num_before;
    record_->next = num_before;
    record_->cursor = 0;
    record_->rank = walk_.traits().rank;
    record_->lane = walk_.traits().lane;
    record_->num_groups = 0;
    for (const Group& group : numbering().groups()) record_->groups[record_->num_groups++] = group.line;
    return true;
  }

  void record(uint32_t site_index) {
    const bytecode::Plan& plan = run_.plan();
    const bytecode::QuickSite& site = plan.sites[site_index];
    const WaitList& waits = walk_.waits();
    std::vector<uint64_t>& words = record_->words;
    words.push_back(uint64_t(waits.size()) << 32 | site_index);
    for (int i = 0; i < waits.size(); ++i) {
      const Name name = waits[i];
      words.push_back(name);
      if (is_task_name(name)) ++(own_slices_.has(slice_of(name)) ? stats_.local_waits : stats_.remote_waits);
    }
    const uint32_t* index = plan.registers.data() + site.first_register;
    for (uint32_t i = 0; i < site.num_registers; ++i) words.push_back(uint64_t(walk_.registers()[index[i]]));
  }

  /// Closes the open slice and publishes its records.
  void close(bool ends_strand) {
    if (is_ours()) {
      if (record_ != nullptr) {
        record_->num_tasks = numbering().num_tasks();
        stats_.recorded += record_->num_tasks - record_->next;
        run_.publish(*record_, numbering().max_tasks() - numbering().num_tasks());
        record_ = nullptr;
      } else {
        for (const Group& group : numbering().groups()) run_.progress().reach_in_group(group.line);
        run_.progress().reach(complete_name(walk_.slice()));
      }
      stats_.made += numbering().num_tasks();
      run_.progress().advance_watermark();
      ++num_closed_;
      const RunOptions& options = run_.options();
      if (options.trace)
        owned_.push_back({first_task_, numbering().num_tasks(), options.traces_walks ? trace::ticks() : 0});
    }
    if (kComparesNumbering && ends_strand && !has_ended()) compare_numbering();
    numbering().close(ends_strand);
  }

  /// Compares the end of the strand with the other dispatchers. They may continue a strand that a failure
  /// ends here.
  void compare_numbering() {
    run_.numbering_log().check(numbering().num_strands(), walk_.slice() + 1, numbering().num_numbered());
  }

  // Flush points

  /// Assigns the variable of SET number `set` a value that tasks write; false until these tasks are complete.
  bool on_flush(uint32_t set) {
    if (numbering().is_open()) close(!walk_.continues_unit(set));
    try {
      const auto value = run_.flushed().value(num_flushed_, [&] {
        return walk_.ordering().read(run_.plan().sets[set].value, walk_.registers(), walk_.slice());
      });
      if (!value) return block(Stall::kFlush);
      ++num_flushed_;
      walk_.expander().assign(set, *value);
    } catch (EngineError& error) {
      fail(std::move(error), walk_.num_tasks());
    }
    return true;
  }

  // Stalls

  /// Blocks the walk. A worker that takes slices from `wanted` can continue it immediately.
  bool block(Stall stall, Lanes wanted = 0) {
    wanted_lanes_.store(wanted, std::memory_order_relaxed);
    if (stall == Stall::kWindow && run_.options().window_mode == WindowMode::kAbort) return abort();
    // The task may wait for a watermark that no other thread advances.
    run_.progress().advance_watermark();
    standstill_.begin(stall, run_.stalls(), run_.options().traces_walks);
    return false;
  }

  /// Ends the run before the current task, for which the window has no room. Returns true: the event is
  /// handled.
  bool abort() {
    const bytecode::QuickSite& site = run_.plan().sites[event_.index];
    fail(EngineError("window-full", "the window has no room for another task").with_int("pc", site.pc),
         walk_.num_tasks() - 1);
    return true;
  }

  Run& run_;
  const uint32_t index_;
  uint32_t num_dispatchers_ = 0;
  bytecode::Arguments arguments_;  ///< of the task that is being walked
  Walk walk_;
  bytecode::Event event_{bytecode::Event::kNothing, 0};
  std::atomic<Stage> stage_{Stage::kNew};
  Share share_ = Share::kTheirs;
  UnitMode unit_ = UnitMode::kTracked;
  uint64_t num_closed_ = 0;  ///< slices of its own
  size_t num_flushed_ = 0;
  std::vector<trace::MadeSlice> owned_;
  Standstill standstill_;
  WalkStats stats_;
  OwnSlices own_slices_;
  uint64_t first_task_ = 0;             ///< of the open slice
  Worker* worker_ = nullptr;            ///< of the thread whose step this is
  Lanes lanes_ = kAllLanes;             ///< that it takes slices from
  std::atomic<Lanes> wanted_lanes_{0};  ///< workers of these lanes can continue it while it is blocked
  Slice* record_ = nullptr;             ///< the open slice, if some of it is recorded
  uint64_t slices_before_loop_ = 0;     ///< slices before the current run of a loop of units
  std::vector<uint8_t> has_run_;        ///< per site: one of its tasks was in a free unit
};

}  // namespace pto::wsp::sched
