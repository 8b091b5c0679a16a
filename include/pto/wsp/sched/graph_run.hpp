// SPDX-License-Identifier: MIT
/// \file
/// A run of a kept graph. Workers take strands in program order and put aside a strand that must wait.
///
/// Every wait is for strands that come earlier in program order. So the oldest incomplete strand is running
/// or can be taken. Therefore every run ends.
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "pto/wsp/sched/completion.hpp"
#include "pto/wsp/sched/graph_builder.hpp"
#include "pto/wsp/sched/graph_schedule.hpp"

namespace pto::wsp::sched {

class GraphRun {
 public:
  /// Prepares a run of `graph`. An empty graph is built first. A fed graph is built by the caller (see
  /// `open`).
  /// \pre no thread uses the graph
  GraphRun(Run& run, std::shared_ptr<KeptGraph> graph, bool is_fed)
      : run_(run),
        graph_(std::move(graph)),
        is_watched_(run.options().watches_tasks()),
        num_open_(graph_->num_strands()),
        is_built_(!is_fed && graph_->num_strands() > 0) {
    graph_->begin_run();
    if (run.options().is_scheduled()) schedule_.emplace(run_, *graph_);
    if (!is_built_ && !is_fed) builder_.emplace(*graph_, run_);
  }

  /// Whether a strand of `lanes` can begin or continue. Strands that must wait do not count.
  bool has_work(Lanes lanes) const {
    if (schedule_) return schedule_->has_work(num_open_.load(std::memory_order_acquire), lanes);
    const size_t num_waiting = num_waiting_.load(std::memory_order_relaxed);
    if (num_waiting < most_waiting() &&
        num_taken_.load(std::memory_order_relaxed) < num_open_.load(std::memory_order_relaxed))
      return true;
    if (num_waiting == 0) return false;
    const std::lock_guard<SpinLock> lock(lock_);
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [this](const StrandRun& waiting) { return can_go_on(waiting); });
  }

  /// Whether all strands are built.
  bool is_built() const { return is_built_.load(std::memory_order_acquire); }

  /// Whether every task that must complete is complete.
  bool is_over() const { return is_built() && is_drained(); }

  /// Builds the graph (on the calling thread of the run), or runs a strand on worker number `slot`. False if
  /// there was no work.
  bool work(Worker& worker, uint32_t slot, Lanes lanes) {
    if (slot == 0 && builder_ && build()) return true;
    StrandRun strands;
    if (!take(worker, slot, lanes, strands)) return false;
    execute(worker, strands);
    return true;
  }

  /// Lets workers take all built strands.
  void open() { num_open_.store(graph_->num_strands(), std::memory_order_seq_cst); }

  /// The graph is complete.
  void end_build() {
    builder_.reset();
    open();
    is_built_.store(true, std::memory_order_release);
  }

  // Simulated time: one thread runs the tasks of all workers and completes each at its time.

  /// A task whose body has run, and the strand that continues after it.
  struct Done {
    StrandRun strand;
    uint64_t task;
    uint32_t site;
  };

  /// Takes a strand that can start for a worker, if there is one. The worker runs only its tasks until it
  /// ends or must wait.
  std::optional<StrandRun> take_strand(Worker& worker, uint32_t slot, Lanes lanes) {
    StrandRun strand;
    if (!take(worker, slot, lanes, strand)) return {};
    restore(worker, strand.slice, strand.at);
    return strand;
  }

  /// Runs the next task of a strand. Returns nothing if the strand has ended, or was put aside because it
  /// must wait.
  std::optional<Done> run_task_of(Worker& worker, StrandRun strand) {
    const uint32_t site = site_of_next(strand);
    switch (run_strand<CompleteLater>(worker, strand, graph_->num_complete())) {
      case Stop::kTask: return Done{strand, strand.task - 1, site};
      case Stop::kWait: put_aside(worker, strand); return {};
      case Stop::kEnd: finish(1); return {};
    }
    return {};
  }

  /// Completes a task, and the slice or strand that ends with it.
  void complete(const Done& done) {
    KeptGraph::StrandProgress progress = graph_->progress_of(done.strand.strand);
    progress.tasks(done.task + 1 - graph_->strand(done.strand.strand).first_task);
    for (GraphCursor at = done.strand.at;; at.advance()) {
      if (at.op() == GraphOp::kEnd) return progress.end();
      if (at.op() != GraphOp::kReach) return;
      graph_->reach_in_group(at.operand());
    }
  }

  // The end

  /// Returns the tasks that wait if no task can ever continue; else none. \pre no thread is at work, nor
  /// builds
  std::vector<BlockedTask> find_stuck(Worker& worker) const {
    if (can_go_on()) return {};
    std::vector<BlockedTask> blocked;
    for (const StrandRun& waiting : schedule_ ? schedule_->waiting() : waiting_)
      blocked.push_back(describe_blocked(worker, waiting));
    return blocked;
  }
  /// The number of leading strands that are complete.
  uint64_t num_complete() const { return graph_->num_complete(); }

  /// \pre is_over()
  bool can_be_kept() const { return !has_flushed_; }
  const std::shared_ptr<KeptGraph>& share_graph() const { return graph_; }
  int64_t build_ns() const { return build_ns_; }  ///< 0 if the graph was kept
  /// Null in a run without policies.
  const GraphSchedule* schedule() const { return schedule_ ? &*schedule_ : nullptr; }

 private:
  /// Why a strand stops.
  enum class Stop : uint8_t {
    kEnd,
    kWait,
    kTask,  ///< the caller must complete a task
  };

  bool is_drained() const {
    return num_finished_.load(std::memory_order_acquire) == num_open_.load(std::memory_order_relaxed);
  }

  bool can_go_on() const {
    if (schedule_) return has_work(kAllLanes);
    const bool can_begin =
        num_taken_.load(std::memory_order_relaxed) < num_open_.load(std::memory_order_relaxed);
    return (can_begin && waiting_.size() < most_waiting()) ||
           std::any_of(waiting_.begin(), waiting_.end(),
                       [this](const StrandRun& waiting) { return can_go_on(waiting); });
  }

  // Building

  /// False while the tasks built so far must run first.
  bool build() {
    if (is_at_flush_ && !pass_flush()) return false;
    const int64_t start = trace::now_ns();
    try {
      const GraphBuilder::Outcome outcome = builder_->step();
      if (outcome == GraphBuilder::Outcome::kFlush) is_at_flush_ = has_flushed_ = true;
      if (outcome == GraphBuilder::Outcome::kEnded) end_build();
    } catch (EngineError& error) {
      fail(std::move(error));
    }
    build_ns_ += trace::now_ns() - start;
    if (is_at_flush_ || has_enough()) open();
    return true;
  }

  bool has_enough() const {
    return builder_ && run_.options().start == Start::kThreshold &&
           builder_->num_tasks() >= run_.options().threshold;
  }

  bool pass_flush() {
    if (!is_drained()) return false;
    try {
      const auto read = [&] { return std::optional<int64_t>(builder_->read_flushed()); };
      builder_->pass_flush(*run_.flushed().value(num_flushes_, read));
      ++num_flushes_;
    } catch (EngineError& error) {
      fail(std::move(error));
    }
    is_at_flush_ = false;
    return builder_.has_value();
  }

  /// Ends a run whose walk failed. Strands that are not open never run.
  void fail(EngineError error) {
    const uint64_t open = num_open_.load(std::memory_order_relaxed);
    const uint64_t num_run =
        open == graph_->num_built() ? builder_->num_tasks() : graph_->strand(open).first_task;
    run_.fail({num_run, 0, place_late(std::move(error), builder_->expander(), num_run), true}, 0);
    builder_.reset();
    is_built_.store(true, std::memory_order_release);
  }

  // Running

  bool take(Worker& worker, uint32_t slot, Lanes lanes, StrandRun& strands) {
    if (schedule_) return take_scheduled(worker, slot, lanes, strands);
    const size_t num_waiting = num_waiting_.load(std::memory_order_relaxed);
    if (num_waiting > 0 && take_waiting(strands, kFewWaiting)) return true;
    if (num_waiting < most_waiting() && take_next(strands)) return true;
    return num_waiting > kFewWaiting && take_waiting(strands, num_waiting);
  }

  [[gnu::noinline]] bool take_scheduled(Worker& worker, uint32_t slot, Lanes lanes, StrandRun& strand) {
    const bool is_found = schedule_->take(num_open_.load(std::memory_order_acquire), slot, lanes, strand);
    if (run_.options().window_mode == WindowMode::kAbort) {
      const std::optional<StrandRun> refused = schedule_->refused();
      if (refused && refused->task < run_.task_limit()) fail_for_room(worker, *refused);
    }
    return is_found;
  }

  /// Ends the run before a task that the window has no room for.
  void fail_for_room(Worker& worker, const StrandRun& strand) {
    const BlockedTask task = describe(worker, strand);
    EngineError error("window-full", "the window has no room for another task");
    run_.fail({strand.task, 0,
               std::move(error)
                   .with_int("pc", task.pc)
                   .with("registers", task.registers)
                   .with_int("late", int64_t(strand.task)),
               true},
              0);
  }

  bool take_next(StrandRun& strands) {
    uint64_t strand = num_taken_.load(std::memory_order_relaxed), end = 0;
    do {
      const uint64_t num_open = num_open_.load(std::memory_order_acquire);
      if (strand >= num_open) return false;
      end = end_of_group(strand, num_open);
    } while (!num_taken_.compare_exchange_weak(strand, end, std::memory_order_relaxed));
    strands = strand_run(*graph_, strand, end);
    return true;
  }

  /// Returns the end of a group of neighbouring strands for one worker, which then needs no waits for other
  /// workers. A chain that is too long for the number of open strands is not grouped.
  uint64_t end_of_group(uint64_t strand, uint64_t num_open) const {
    const uint64_t most = (num_open - strand) / (kMinGroupsPerWorker * run_.num_workers());
    uint64_t end = strand + 1;
    while (end < num_open && end - strand <= most && graph_->strand(end).follows) ++end;
    return end - strand <= most ? end : strand + 1;
  }

  /// Takes the first strand that can continue among the `most` oldest waiting ones.
  bool take_waiting(StrandRun& strands, size_t most) {
    const std::lock_guard<SpinLock> lock(lock_);
    const auto end = waiting_.begin() + std::ptrdiff_t(std::min(most, waiting_.size()));
    const auto found =
        std::find_if(waiting_.begin(), end, [this](const StrandRun& waiting) { return can_go_on(waiting); });
    if (found == end) return false;
    strands = *found;
    waiting_.erase(found);
    num_waiting_.store(waiting_.size(), std::memory_order_relaxed);
    return true;
  }

  /// The bound on strands that wait while later ones are begun.
  size_t most_waiting() const { return run_.options().lookahead + run_.num_workers(); }

  void put_aside(Worker& worker, const StrandRun& strands) {
    ++worker.num_suspended;
    if (schedule_) return schedule_->put_aside(strands);
    const std::lock_guard<SpinLock> lock(lock_);
    const auto is_before = [](const StrandRun& a, const StrandRun& b) { return a.strand < b.strand; };
    waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), strands, is_before), strands);
    num_waiting_.store(waiting_.size(), std::memory_order_seq_cst);
  }

  bool can_go_on(const StrandRun& strands) const {
    return strands.task >= run_.task_limit() || graph_->has_passed(strands.at);
  }

  bool has_passed_soon(GraphCursor wait) const {
    for (int spins = 0; spins < kSpins; ++spins) {
      if (graph_->has_passed(wait)) return true;
      if (run_.num_workers() == 1) return false;
      relax();
    }
    return false;
  }

  /// Whether a wait is satisfied, spinning for a moment. The first `num_complete` strands are known to be
  /// complete.
  [[gnu::always_inline]] inline bool passes(Worker& worker, GraphCursor wait, uint64_t num_complete) const {
    if (wait.op() == GraphOp::kWait && wait.operand() < num_complete) return true;
    if (!graph_->has_passed(wait) && !has_passed_soon(wait)) return false;
    worker.resume();
    return true;
  }

  /// Runs strands until the last one ends or one must wait.
  void execute(Worker& worker, StrandRun& strands) {
    const uint64_t first = strands.strand, num_complete = graph_->num_complete();
    worker.resume();  // after the tasks of the first `num_complete` strands ended
    if (strands.at != strands.slice) restore(worker, strands.slice, strands.at);
    while (run_strand<CompleteAtOnce>(worker, strands, num_complete) == Stop::kEnd) {
      if (strands.strand + 1 == strands.end) return finish(strands.end - first);
      strands = strand_run(*graph_, strands.strand + 1, strands.end);
    }
    if (strands.strand != first) finish(strands.strand - first);
    put_aside(worker, strands);
  }

  /// Runs a strand until its end, until it must wait, or until the caller must complete a task. The first
  /// `num_complete` strands are complete.
  template <class Completion>
  Stop run_strand(Worker& worker, StrandRun& strand, uint64_t num_complete) {
    const uint64_t first_task = graph_->strand(strand.strand).first_task;
    KeptGraph::StrandProgress progress = graph_->progress_of(strand.strand);
    uint64_t task = strand.task;
    for (GraphCursor at = strand.at;;) {
      // Most tasks follow another task or the advance of a loop.
      for (; at.op() == GraphOp::kTask; at.skip(1)) {
        run_.look_out(worker);
        if (task >= run_.task_limit() || !run_task(worker, at.operand(), task)) return end(strand);
        ++task;
        if constexpr (Completion::kIsDelayed) {
          at.advance();
          return stop(strand, at, task, Stop::kTask);
        }
        progress.tasks(task - first_task);
        run_.call_others_after(at.operand());
      }
      switch (at.op()) {
        case GraphOp::kWait:
        case GraphOp::kWaitAll:
        case GraphOp::kWaitGroup:
          if (!passes(worker, at, num_complete)) {
            if (task >= run_.task_limit()) return end(strand);
            return stop(strand, at, task, Stop::kWait);
          }
          at.skip(kGraphOpWords[int(at.op())]);
          break;
        case GraphOp::kReach:
          if constexpr (!Completion::kIsDelayed) graph_->reach_in_group(at.operand());
          at.skip(1);
          break;
        case GraphOp::kSlice:
          at.skip(1);
          begin_slice(strand, at);
          break;
        case GraphOp::kEnd:
          if constexpr (!Completion::kIsDelayed) progress.end();
          return end(strand);
        case GraphOp::kJump: at.jump(); break;
        default: change_state(worker, at);
      }
    }
  }

  Stop stop(StrandRun& strand, GraphCursor at, uint64_t task, Stop why) const {
    strand.at = at;
    strand.task = task;
    return why;
  }

  Stop end(StrandRun& strand) {
    if (strand.num_recorded != 0) schedule_->end_slice(strand);
    return Stop::kEnd;
  }

  void begin_slice(StrandRun& strand, GraphCursor at) {
    if (strand.num_recorded != 0) schedule_->end_slice(strand);
    strand.slice = at;
  }

  void finish(uint64_t num_strands) { num_finished_.fetch_add(num_strands, std::memory_order_release); }

  /// Runs a body; false if the task failed.
  [[gnu::always_inline]] inline bool run_task(Worker& worker, uint32_t site, uint64_t task) {
    bytecode::Arguments& arguments = worker.arguments();
    const bytecode::Arguments::Call& call = arguments.call(site);
    return run_.succeeds(worker, task, 0, [&] {
      if (call.is_simple && !is_watched_) return worker.run_simple(call, task);
      arguments.fill_rest(site, worker.registers());
      return worker.run_filled(arguments, site, worker.registers(), task);
    });
  }

  /// Applies an operation on loops or variables, and moves to the next word.
  [[gnu::always_inline]] inline void change_state(Worker& worker, GraphCursor& at) const {
    const uint32_t operand = at.operand();
    if (at.op() == GraphOp::kSet) {
      worker.registers()[operand] = at.value();
    } else {
      at.read_registers(worker.registers() + run_.plan().loops[operand].reg);
      worker.arguments().enter(operand, worker.registers());
    }
    at.skip(kGraphOpWords[int(at.op())]);
  }

  /// Restores the state at `to` from the operations of the strand that begin at `at`.
  void restore(Worker& worker, GraphCursor at, GraphCursor to) const {
    for (; at != to; at.advance()) {
      GraphCursor state = at;
      if (at.is_enter() || at.op() == GraphOp::kSet) change_state(worker, state);
    }
  }

  /// The site of the next task; any if there is none.
  uint32_t site_of_next(const StrandRun& strand) const {
    GraphCursor at = strand.at;
    while (at.op() != GraphOp::kTask && at.op() != GraphOp::kEnd) at.advance();
    return at.operand();
  }

  /// The next task of a strand, and its registers.
  BlockedTask describe(Worker& worker, const StrandRun& strand) const {
    GraphCursor task = strand.at;
    while (task.op() != GraphOp::kTask) task.advance();
    restore(worker, strand.slice, task);
    const bytecode::Plan& plan = run_.plan();
    const int64_t* registers = worker.registers();
    return {strand.task,
            strand.strand,
            plan.sites[task.operand()].pc,
            {registers, registers + plan.program().header.num_registers},
            {}};
  }

  /// The task after a wait, and what that is for.
  BlockedTask describe_blocked(Worker& worker, const StrandRun& waiting) const {
    BlockedTask task = describe(worker, waiting);
    task.waits_for = sched::describe(name_of(waiting.at));
    return task;
  }

  /// The name of a wait, with strands in place of slices.
  static Name name_of(GraphCursor wait) {
    switch (wait.op()) {
      case GraphOp::kWait: return task_name(wait.operand(), std::min<uint64_t>(wait.count(), kTaskMask));
      case GraphOp::kWaitAll: return watermark_name(wait.operand());
      default: return group_name(wait.operand(), wait.count());
    }
  }

  static constexpr int kSpins = 20;
  static constexpr size_t kFewWaiting = 32;
  static constexpr uint64_t kMinGroupsPerWorker = 4;

  Run& run_;
  std::shared_ptr<KeptGraph> graph_;
  std::optional<GraphBuilder> builder_;
  mutable std::optional<GraphSchedule> schedule_;  ///< of a run with policies; it has a lock of its own
  size_t num_flushes_ = 0;
  int64_t build_ns_ = 0;
  bool is_at_flush_ = false;
  bool has_flushed_ = false;
  const bool is_watched_;

  mutable SpinLock lock_;
  std::vector<StrandRun> waiting_;  ///< oldest first
  alignas(kLineBytes) std::atomic<size_t> num_waiting_{0};
  alignas(kLineBytes) std::atomic<uint64_t> num_taken_{0};
  alignas(kLineBytes) std::atomic<uint64_t> num_open_{0};  ///< strands that may be taken
  std::atomic<bool> is_built_;
  alignas(kLineBytes) std::atomic<uint64_t> num_finished_{0};
};

}  // namespace pto::wsp::sched
