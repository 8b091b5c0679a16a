// SPDX-License-Identifier: MIT
/// \file
/// The dispatcher: expands a plan, orders its tasks, and runs them here or hands them to the others.
#pragma once

#include <deque>
#include <vector>

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/graph/hazards.hpp"
#include "pto/wsp/sched/lookout.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

/// Runs on the calling thread, which is worker 0.
///
/// Tasks are gathered into slices at the boundaries of units. While the other workers have enough to do, a
/// slice is run as it is expanded, without records; from the first task that must wait on, the rest of it is
/// recorded.
class Dispatcher {
 public:
  /// `flushed` takes the values that flush points read, in program order.
  Dispatcher(Run& run, graph::Hazards& hazards, const RunOptions& options, std::vector<int64_t>& flushed)
      : run_(run),
        hazards_(hazards),
        costs_(run.costs()),
        worker_(run.worker(0)),
        expander_(run.plan()),
        checker_(run.plan()),
        flushed_(flushed),
        latest_(run.plan().sites.size(), 0),
        waits_(run.counters()),
        enough_queued_(2 * size_t(run.num_workers())),
        jitter_(options.jitter),
        random_(options.jitter),
        lookout_(options.is_interrupted) {}

  /// Expands and runs everything, or returns early when the run was stopped. Throws what only the walk can
  /// find, with the detail `late`: the number of tasks before it, which have run if the run is not stopped.
  void run() {
    for (bool more = true; more && !is_stopped();) more = handle(next());
    if (run_.is_stopped()) return;
    if (open_ != nullptr) finish_last();
    finish();
  }

  uint64_t num_tasks() const { return expander_.num_tasks(); }

 private:
  /// A barrier loop that is being expanded. Its counter counts the complete tasks of its iterations.
  struct Group {
    uint32_t counter;
    uint64_t emitted;  ///< value of the counter once every task so far is complete
    uint64_t barrier;  ///< value at which the iterations before this one are complete
  };

  /// A counter that can be used anew once the watermark has passed its last task.
  struct Retired {
    uint32_t counter;
    uint64_t watermark;
  };

  static constexpr uint32_t kMaxSliceTasks = 256;
  static constexpr uint64_t kSliceNs = 10000;
  static constexpr uint64_t kMaxTasks = uint64_t{1} << 38;

  /// Goes on to the next event. A task's late arguments have been checked then.
  bytecode::Event next() {
    const uint64_t num_before = expander_.num_tasks();
    try {
      const bytecode::Event event = expander_.next();
      if (event.kind == bytecode::Event::kTask && run_.plan().sites[event.index].checks_late)
        checker_.check(run_.plan().sites[event.index], expander_.registers(), true);
      return event;
    } catch (EngineError& error) {
      fail_late(std::move(error), num_before);
    }
  }

  /// Ends a run that cannot go on behind `num_before` tasks. These complete first: should one of them fail,
  /// that is the error of the run.
  [[noreturn]] void fail_late(EngineError error, uint64_t num_before) {
    if (open_ != nullptr) finish_last();
    finish();
    const bool is_placed = error.has("registers");
    throw(is_placed ? std::move(error) : std::move(error).with("registers", expander_.copy_registers()))
        .with_int("late", int64_t(num_before));
  }

  /// Gives the variable of SET number `set` its value, which tasks write.
  void flush(uint32_t set) {
    try {
      flushed_.push_back(read_flushed(run_.plan().sets[set].value));
    } catch (EngineError& error) {
      if (run_.is_stopped()) return;
      fail_late(std::move(error), expander_.num_tasks());
    }
    expander_.assign(set, flushed_.back());
  }

  /// Evaluates with each element read after the tasks that write it. Meaningless if the run was stopped.
  int64_t read_flushed(const bytecode::Value& value) {
    const bytecode::Bindings& bindings = run_.plan().bindings;
    if (value.postfix == bytecode::kNoPostfix) return run_.plan().evaluate(value, expander_.registers());
    const auto read = [&](bytecode::Instruction in, uint32_t pc, const int64_t* indices) {
      const bool is_written = bindings.program->tensors[in.operand1].written != 0;
      if (is_written && !await_writers(in, indices)) return bytecode::Outcome{};
      return bytecode::detail::read_element(bindings, in, pc, indices);
    };
    return bytecode::evaluate_postfix(bindings, value.postfix, expander_.registers(), read);
  }

  /// Works until the tasks that write an element are complete; false if the run was stopped meanwhile.
  bool await_writers(bytecode::Instruction in, const int64_t* indices) {
    waits_.begin(kWatermark, run_.task_base() + expander_.num_tasks());
    hazards_.find_writers(in.operand1, indices, waits_);
    waits_.finish();
    if (waits_.size() > 0 && open_ != nullptr) close(false);
    for (int i = 0; i < waits_.size(); ++i) {
      for (int round = 0; !is_stopped() && !run_.counters().has_passed(waits_[i]);) help(round);
    }
    return !is_stopped();
  }

  /// Whether the run was stopped; stops it where the caller was interrupted.
  bool is_stopped() {
    if (lookout_.poll()) run_.stop();
    return run_.is_stopped();
  }

  /// False at the end of the program.
  bool handle(bytecode::Event event) {
    switch (event.kind) {
      case bytecode::Event::kTask: emit(event.index); return true;
      case bytecode::Event::kFlush: flush(event.index); return true;
      case bytecode::Event::kUnit:
        if (open_ != nullptr && is_full()) close(true);
        return true;
      case bytecode::Event::kEnter:
        if (open_ != nullptr) close(true);
        enter_group();
        return true;
      case bytecode::Event::kIteration:
        if (open_ != nullptr) close(true);
        groups_.back().barrier = groups_.back().emitted;
        return true;
      case bytecode::Event::kLeave:
        if (open_ != nullptr) close(true);
        retire(groups_.back().counter);
        groups_.pop_back();
        return true;
      case bytecode::Event::kNothing: return true;
      case bytecode::Event::kEnd: break;
    }
    return false;
  }

  void enter_group() {
    const uint32_t counter = run_.counters().allocate();
    groups_.push_back({counter, run_.counters()[counter].load(std::memory_order_relaxed), 0});
  }

  void emit(uint32_t site) {
    if (open_ != nullptr && is_full()) close(run_.plan().sites[site].is_unit);
    if (open_ == nullptr && !open()) return;
    const bool is_first = open_->num_tasks == 0;
    waits_.begin(open_->counter, open_->first_task);
    const Stamp stamp{make_name(open_->counter, open_->base + open_->num_tasks + 1),
                      open_->first_task + open_->num_tasks + 1};
    hazards_.access(site, expander_.registers(), stamp, waits_);
    add_afters(site, stamp.name);
    waits_.finish();
    if (is_first) add_slice_waits();
    weight_ += cost_of(site);
    if (is_inline_ && waits_.size() + num_slice_waits_ == 0) {
      run_here(site);
    } else {
      record(site, is_first);
    }
  }

  /// Adds the latest tasks of the sites that a task names, and makes it the latest of its own.
  void add_afters(uint32_t site, Name name) {
    const bytecode::SiteForm& form = run_.plan().program().sites[site];
    const uint32_t* after = run_.plan().program().afters.data() + form.first_after;
    for (uint32_t i = 0; i < form.num_afters; ++i) waits_.add(latest_[after[i]]);
    latest_[site] = name;
  }

  bool is_full() const { return weight_ >= kSliceNs || open_->num_tasks >= max_slice_tasks_; }

  /// The mean of what was measured, else what the task states, else enough to be alone in a slice.
  uint64_t cost_of(uint32_t site) const {
    const uint64_t measured = costs_[site];
    if (measured != 0) return measured;
    const bytecode::QuickAmount& stated = run_.plan().sites[site].cost;
    if (!stated.is_given) return kSliceNs;
    return std::min(uint64_t(run_.plan().evaluate(stated.value, expander_.registers())), kSliceNs);
  }

  /// What the whole slice must wait for: the strand's slice before it, and the barriers around it.
  void add_slice_waits() {
    num_slice_waits_ = 0;
    const auto add = [this](Name name) {
      if (!run_.counters().has_passed(name)) slice_waits_[num_slice_waits_++] = name;
    };
    add(make_name(open_->counter, open_->base));
    for (const Group& group : groups_) add(make_name(group.counter, group.barrier));
  }

  void run_here(uint32_t site) {
    Slice& slice = *open_;
    worker_.resume();
    if (!run_.run_task(worker_, site, expander_.registers(), slice.first_task + slice.num_tasks)) return;
    ++slice.num_tasks;
    slice.next = slice.num_tasks;
    run_.counters()[slice.counter].store(slice.base + slice.num_tasks, std::memory_order_release);
  }

  void record(uint32_t site_index, bool is_first) {
    is_inline_ = false;
    const bytecode::QuickSite& site = run_.plan().sites[site_index];
    std::vector<uint64_t>& words = open_->words;
    const uint32_t num_slice_waits = is_first ? num_slice_waits_ : 0;
    words.push_back(uint64_t(waits_.size() + int(num_slice_waits)) << 32 | site_index);
    words.insert(words.end(), slice_waits_, slice_waits_ + num_slice_waits);
    for (int i = 0; i < waits_.size(); ++i) words.push_back(waits_[i]);
    const uint32_t* index = run_.plan().registers.data() + site.first_register;
    for (uint32_t i = 0; i < site.num_registers; ++i)
      words.push_back(uint64_t(expander_.registers()[index[i]]));
    ++open_->num_tasks;
    num_slice_waits_ = 0;
  }

  /// Opens a slice for the task that was just expanded; false if the run was stopped meanwhile.
  bool open() {
    release_retired();
    Slice* slice = run_.open_slice();
    for (int round = 0; slice == nullptr && !is_stopped(); slice = run_.open_slice()) help(round);
    if (slice == nullptr) return false;
    slice->first_task = run_.task_base() + expander_.num_tasks() - 1;
    if (slice->first_task - run_.task_base() > kMaxTasks) {
      throw EngineError("too-many-tasks", "the workload has more tasks than the engine can name");
    }
    if (!has_strand_) {
      strand_ = run_.counters().allocate();
      strand_end_ = run_.counters()[strand_].load(std::memory_order_relaxed);
      has_strand_ = true;
    }
    slice->counter = strand_;
    slice->base = strand_end_;
    slice->words = run_.take_words();
    for (const Group& group : groups_) slice->groups[slice->num_groups++] = group.counter;
    open_ = slice;
    weight_ = 0;
    is_inline_ = run_.num_queued() >= enough_queued_;
    max_slice_tasks_ = kMaxSliceTasks;
    if (jitter_ != 0) {
      max_slice_tasks_ = 1 + random_.next() % 8;
      is_inline_ = random_.next() % 4 == 0;
    }
    return true;
  }

  /// Ends the open slice and passes it on. The strand ends with it at the boundary of a unit only.
  void close(bool ends_strand) {
    Slice& slice = *take_open(ends_strand);
    if (slice.next == slice.num_tasks) {
      run_.complete(slice);
    } else {
      run_.publish(slice);
    }
    for (int round = 0; run_.num_queued() > 4 * enough_queued_ && !is_stopped();) {
      if (!run_.work_once(worker_)) {
        Run::pause(round++);
        if (round > kPatience) break;
      }
    }
  }

  /// Ends the last slice. It goes to nobody: this thread has nothing else to do.
  void finish_last() {
    Slice& slice = *take_open(true);
    run_.execute(slice, worker_);
  }

  Slice* take_open(bool ends_strand) {
    Slice* slice = open_;
    open_ = nullptr;
    strand_end_ = slice->base + slice->num_tasks;
    for (Group& group : groups_) group.emitted += slice->num_tasks;
    run_.commit_slice(*slice);
    if (ends_strand) {
      retire(strand_);
      has_strand_ = false;
    }
    return slice;
  }

  /// A counter is free once everything expanded so far is complete.
  void retire(uint32_t counter) {
    const uint64_t next_task = run_.task_base() + expander_.num_tasks();
    retired_.push_back({counter, next_task});
  }

  void release_retired() {
    const uint64_t watermark = run_.counters()[kWatermark].load(std::memory_order_acquire);
    while (!retired_.empty() && retired_.front().watermark <= watermark) {
      run_.counters().release(retired_.front().counter);
      retired_.pop_front();
    }
  }

  void help(int& round) {
    run_.advance_watermark();
    if (run_.work_once(worker_)) {
      round = 0;
    } else if (round < Run::kSpins) {
      Run::pause(round++);
    } else {
      run_.sleep_until_progress();
    }
  }

  /// Works until every slice is complete.
  void finish() {
    for (int round = 0; !is_stopped() && !run_.is_all_retired();) help(round);
    release_retired();
  }

  static constexpr int kPatience = 20;

  Run& run_;
  graph::Hazards& hazards_;
  SiteCosts& costs_;
  Worker& worker_;
  bytecode::Expander expander_;
  bytecode::TaskChecker checker_;
  std::vector<int64_t>& flushed_;
  std::vector<Name> latest_;  ///< per site, its latest task
  WaitList waits_;
  const size_t enough_queued_;  ///< queued slices from which this thread rather runs than feeds
  const uint64_t jitter_;
  Random random_;
  Lookout lookout_;

  Slice* open_ = nullptr;
  uint64_t weight_ = 0;
  uint32_t max_slice_tasks_ = kMaxSliceTasks;
  bool is_inline_ = false;
  bool has_strand_ = false;
  uint32_t strand_ = 0;
  uint64_t strand_end_ = 0;
  Name slice_waits_[bytecode::kMaxLoopDepth + 1];
  uint32_t num_slice_waits_ = 0;
  std::vector<Group> groups_;
  std::deque<Retired> retired_;
};

}  // namespace pto::wsp::sched
