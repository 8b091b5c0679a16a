// SPDX-License-Identifier: MIT
/// \file
/// A run of a graph that is kept: strands are taken in program order, and one that must wait is put aside.
///
/// Every wait is for strands that come earlier in program order. So the oldest strand that is not complete is
/// being run, or ready to be taken: that is why a run ends.
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "pto/wsp/sched/graph_builder.hpp"

namespace pto::wsp::sched {

class GraphRun {
 public:
  /// Prepares a run of `graph`, which is built first if it is empty, or by the caller (see `open`) if it is
  /// fed.
  /// \pre nobody uses the graph
  GraphRun(Run& run, std::shared_ptr<KeptGraph> graph, bool is_fed)
      : run_(run),
        graph_(std::move(graph)),
        is_watched_(run.options().watches_tasks()),
        num_open_(graph_->num_strands()),
        is_built_(!is_fed && graph_->num_strands() > 0) {
    graph_->begin_run();
    if (!is_built_ && !is_fed) builder_.emplace(*graph_, run_);
  }

  /// Whether a strand can be begun, or can go on. One that waits does not count.
  bool has_work() const {
    const size_t num_waiting = num_waiting_.load(std::memory_order_relaxed);
    if (num_waiting < most_waiting() &&
        num_taken_.load(std::memory_order_relaxed) < num_open_.load(std::memory_order_relaxed))
      return true;
    if (num_waiting == 0) return false;
    const std::lock_guard<SpinLock> lock(lock_);
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [this](const Aside& waiting) { return can_go_on(waiting); });
  }

  /// Whether all strands are built.
  bool is_built() const { return is_built_.load(std::memory_order_acquire); }

  /// Whether all that must complete is complete.
  bool is_over() const { return is_built() && is_drained(); }

  /// Builds, on the calling thread of the run, or runs a strand. False if nothing could be done.
  bool work(Worker& worker, bool is_caller) {
    if (is_caller && builder_ && build()) return true;
    Aside aside;
    if (!take(aside)) return false;
    worker.resume();
    execute(worker, aside);
    return true;
  }

  /// Lets all strands that are built be taken.
  void open() { num_open_.store(graph_->num_strands(), std::memory_order_seq_cst); }

  /// Nothing is built behind these.
  void end_build() {
    builder_.reset();
    open();
    is_built_.store(true, std::memory_order_release);
  }

  /// The tasks that wait, if nothing can ever go on; else none. \pre nobody is at work, nor builds
  std::vector<BlockedTask> find_stuck(Worker& worker) const {
    const bool can_begin =
        num_taken_.load(std::memory_order_relaxed) < num_open_.load(std::memory_order_relaxed);
    const auto goes_on = [this](const Aside& waiting) { return can_go_on(waiting); };
    if (can_begin && waiting_.size() < most_waiting()) return {};
    if (std::any_of(waiting_.begin(), waiting_.end(), goes_on)) return {};
    std::vector<BlockedTask> blocked;
    for (const Aside& waiting : waiting_) blocked.push_back(describe_blocked(worker, waiting));
    return blocked;
  }
  /// So many strands, the first ones, are.
  uint64_t num_complete() const { return graph_->num_complete(); }

  /// \pre is_over()
  bool can_be_kept() const { return !has_flushed_; }
  const std::shared_ptr<KeptGraph>& share_graph() const { return graph_; }
  int64_t build_ns() const { return build_ns_; }  ///< 0 if the graph was there

 private:
  /// Strands that one worker runs one after another, the first of which is put aside, or is about to be run.
  struct Aside {
    uint64_t strand, end;
    const uint32_t* slice;  ///< from where the state is written down
    const uint32_t* at;     ///< where to go on
    uint64_t task;          ///< the next one
  };

  bool is_drained() const {
    return num_finished_.load(std::memory_order_acquire) == num_open_.load(std::memory_order_relaxed);
  }

  // Building

  /// False where that must wait until what is built has run.
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

  /// Ends a run whose program cannot be walked on. What was not yet open never runs.
  void fail(EngineError error) {
    const uint64_t open = num_open_.load(std::memory_order_relaxed);
    const uint64_t num_run =
        open == graph_->num_built() ? builder_->num_tasks() : graph_->strand(open).first_task;
    run_.fail({num_run, 0, place_late(std::move(error), builder_->expander(), num_run), true}, 0);
    builder_.reset();
    is_built_.store(true, std::memory_order_release);
  }

  // Running

  bool take(Aside& aside) {
    const size_t num_waiting = num_waiting_.load(std::memory_order_relaxed);
    if (num_waiting > 0 && take_waiting(aside, kFewWaiting)) return true;
    if (num_waiting < most_waiting() && take_next(aside)) return true;
    return num_waiting > kFewWaiting && take_waiting(aside, num_waiting);
  }

  bool take_next(Aside& aside) {
    uint64_t strand = num_taken_.load(std::memory_order_relaxed), end = 0;
    do {
      const uint64_t num_open = num_open_.load(std::memory_order_acquire);
      if (strand >= num_open) return false;
      end = end_of_group(strand, num_open);
    } while (!num_taken_.compare_exchange_weak(strand, end, std::memory_order_relaxed));
    aside = beginning(strand, end);
    return true;
  }

  /// Strands that follow each other go to one worker, who then need not wait for the others, if as many
  /// remain for each worker several times.
  uint64_t end_of_group(uint64_t strand, uint64_t num_open) const {
    const uint64_t most = (num_open - strand) / (kMinGroupsPerWorker * run_.num_workers());
    uint64_t end = strand + 1;
    while (end < num_open && end - strand <= most && graph_->strand(end).follows) ++end;
    return end - strand <= most ? end : strand + 1;
  }

  Aside beginning(uint64_t strand, uint64_t end) const {
    const KeptGraph::Strand& found = graph_->strand(strand);
    return {strand, end, found.ops, found.ops, found.first_task};
  }

  /// The oldest of as many waiting strands that can go on.
  bool take_waiting(Aside& aside, size_t most) {
    const std::lock_guard<SpinLock> lock(lock_);
    const auto end = waiting_.begin() + std::ptrdiff_t(std::min(most, waiting_.size()));
    const auto found =
        std::find_if(waiting_.begin(), end, [this](const Aside& waiting) { return can_go_on(waiting); });
    if (found == end) return false;
    aside = *found;
    waiting_.erase(found);
    num_waiting_.store(waiting_.size(), std::memory_order_relaxed);
    return true;
  }

  /// So many strands may wait while later ones are begun.
  size_t most_waiting() const { return run_.options().lookahead + run_.num_workers(); }

  void put_aside(const Aside& aside) {
    const std::lock_guard<SpinLock> lock(lock_);
    const auto is_before = [](const Aside& a, const Aside& b) { return a.strand < b.strand; };
    waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), aside, is_before), aside);
    num_waiting_.store(waiting_.size(), std::memory_order_seq_cst);
  }

  bool can_go_on(const Aside& aside) const { return aside.task >= run_.task_limit() || has_passed(aside.at); }

  /// Whether the wait that is written at `op` is over.
  [[gnu::always_inline]] inline bool has_passed(const uint32_t* op) const {
    const uint32_t operand = operand_of(*op);
    switch (op_of(*op)) {
      case GraphOp::kWait: return graph_->has_reached(operand, op[1]);
      case GraphOp::kWaitAll: return graph_->num_complete() >= operand;
      default: return graph_->has_reached_in_group(operand, uint64_t(read_wide(op + 1)));
    }
  }

  bool has_passed_soon(const uint32_t* op) const {
    for (int spins = 0; spins < kSpins; ++spins) {
      if (has_passed(op)) return true;
      if (run_.num_workers() == 1) return false;
      relax();
    }
    return false;
  }

  /// Whether the wait at `op` is over, or soon is. So many strands, the first ones, are known to be complete.
  [[gnu::always_inline]] inline bool passes(Worker& worker, const uint32_t* op, uint64_t num_complete) const {
    if (op_of(*op) == GraphOp::kWait && operand_of(*op) < num_complete) return true;
    if (!has_passed(op) && !has_passed_soon(op)) return false;
    worker.resume();
    return true;
  }

  /// Runs strands until the end of the last one, or until one must wait.
  void execute(Worker& worker, Aside& strands) {
    const uint64_t first = strands.strand, num_complete = graph_->num_complete();
    if (strands.at != strands.slice) restore(worker, strands.slice, strands.at);
    while (run_strand(worker, strands, num_complete)) {
      if (strands.strand + 1 == strands.end) return finish(strands.end - first);
      strands = beginning(strands.strand + 1, strands.end);
    }
    if (strands.strand != first) finish(strands.strand - first);
    ++worker.num_suspended;
    put_aside(strands);
  }

  /// Runs a strand until its end, or until it must wait: false. The first `num_complete` strands are
  /// complete.
  bool run_strand(Worker& worker, Aside& strand, uint64_t num_complete) {
    const uint64_t first_task = graph_->strand(strand.strand).first_task;
    KeptGraph::Reach reach = graph_->reach(strand.strand);
    uint64_t task = strand.task;
    for (const uint32_t* at = strand.at;;) {
      // Most tasks come right behind another one, or behind a loop that goes on.
      for (; op_of(*at) == GraphOp::kTask; ++at) {
        run_.look_out(worker);
        if (task >= run_.task_limit() || !run_task(worker, operand_of(*at), task)) return true;
        reach.tasks(++task - first_task);
        run_.call_others_after(operand_of(*at));
      }
      const uint32_t operand = operand_of(*at);
      switch (op_of(*at)) {
        case GraphOp::kWait:
        case GraphOp::kWaitAll:
        case GraphOp::kWaitGroup:
          if (!passes(worker, at, num_complete)) {
            if (task >= run_.task_limit()) return true;
            strand.at = at;
            strand.task = task;
            return false;
          }
          at += num_words(at);
          break;
        case GraphOp::kReach:
          graph_->reach_in_group(operand);
          ++at;
          break;
        case GraphOp::kSlice: strand.slice = ++at; break;
        case GraphOp::kEnd: reach.end(); return true;
        default: at = change_state(worker, at);
      }
    }
  }

  void finish(uint64_t num_strands) { num_finished_.fetch_add(num_strands, std::memory_order_release); }

  /// Runs a body; false if the task failed.
  [[gnu::always_inline]] inline bool run_task(Worker& worker, uint32_t site, uint64_t task) {
    bytecode::Arguments& arguments = worker.arguments();
    const bytecode::Arguments::Call& call = arguments.call(site);
    return run_.succeeds(task, 0, [&] {
      if (call.is_simple && !is_watched_) return worker.run_simple(call, task);
      arguments.fill_rest(site, worker.registers());
      return worker.run_filled(arguments, site, worker.registers(), task);
    });
  }

  /// Makes the state at `to` of a strand whose state is written down from `at` on.
  void restore(Worker& worker, const uint32_t* at, const uint32_t* to) const {
    while (at != to) at = skip(worker, at);
  }

  /// Passes an operation that neither runs nor waits for anything; returns the operation after it.
  const uint32_t* skip(Worker& worker, const uint32_t* at) const {
    const GraphOp op = op_of(*at);
    const bool is_state = op == GraphOp::kEnter || op == GraphOp::kEnterNear || op == GraphOp::kSet;
    return is_state || op == GraphOp::kJump ? change_state(worker, at) : at + num_words(at);
  }

  /// The task behind a wait, and what that is for.
  BlockedTask describe_blocked(Worker& worker, const Aside& waiting) const {
    restore(worker, waiting.slice, waiting.at);
    const uint32_t* at = waiting.at;
    while (op_of(*at) != GraphOp::kTask) at = skip(worker, at);
    const bytecode::Plan& plan = run_.plan();
    const int64_t* registers = worker.registers();
    return {waiting.task,
            waiting.strand,
            plan.sites[operand_of(*at)].pc,
            {registers, registers + plan.program().header.num_registers},
            describe(name_of(waiting.at))};
  }

  /// The moment that a wait is for, with strands for slices.
  static Name name_of(const uint32_t* wait) {
    const uint32_t operand = operand_of(*wait);
    switch (op_of(*wait)) {
      case GraphOp::kWait: return task_name(operand, std::min<uint64_t>(wait[1], kTaskMask));
      case GraphOp::kWaitAll: return watermark_name(operand);
      default: return group_name(operand, uint64_t(read_wide(wait + 1)));
    }
  }

  /// Does what an operation says of loops and variables; returns the operation after it.
  [[gnu::always_inline]] inline const uint32_t* change_state(Worker& worker, const uint32_t* at) const {
    const uint32_t operand = operand_of(*at);
    switch (op_of(*at++)) {
      case GraphOp::kEnter:
      case GraphOp::kEnterNear: {
        const bool is_near = op_of(at[-1]) == GraphOp::kEnterNear;
        const bytecode::QuickLoop& loop = run_.plan().loops[operand];
        int64_t* reg = worker.registers() + loop.reg;
        for (const int64_t* last = reg + loop.num_registers(); reg != last; ++reg) {
          *reg = is_near ? int64_t(int32_t(*at)) : read_wide(at);
          at += is_near ? 1 : 2;
        }
        worker.arguments().enter(operand, worker.registers());
        return at;
      }
      case GraphOp::kSet: worker.registers()[operand] = read_wide(at); return at + 2;
      default: {
        const uint32_t* to = nullptr;
        std::memcpy(&to, at, sizeof(to));
        return to;
      }
    }
  }

  /// Of an operation that says nothing of loops and variables.
  static int num_words(const uint32_t* at) {
    switch (op_of(*at)) {
      case GraphOp::kWait: return 2;
      case GraphOp::kWaitGroup: return 3;
      default: return 1;
    }
  }

  static constexpr int kSpins = 20;
  static constexpr size_t kFewWaiting = 32;
  static constexpr uint64_t kMinGroupsPerWorker = 4;

  Run& run_;
  std::shared_ptr<KeptGraph> graph_;
  std::optional<GraphBuilder> builder_;
  size_t num_flushes_ = 0;
  int64_t build_ns_ = 0;
  bool is_at_flush_ = false;
  bool has_flushed_ = false;
  const bool is_watched_;

  mutable SpinLock lock_;
  std::vector<Aside> waiting_;  ///< oldest first
  alignas(kLineBytes) std::atomic<size_t> num_waiting_{0};
  alignas(kLineBytes) std::atomic<uint64_t> num_taken_{0};
  alignas(kLineBytes) std::atomic<uint64_t> num_open_{0};  ///< strands that may be taken
  std::atomic<bool> is_built_;
  alignas(kLineBytes) std::atomic<uint64_t> num_finished_{0};
};

}  // namespace pto::wsp::sched
