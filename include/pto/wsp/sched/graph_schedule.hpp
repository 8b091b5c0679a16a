// SPDX-License-Identifier: MIT
/// \file
/// Decides which strands of a kept graph begin, in which order and on which worker, in a run with policies.
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "pto/wsp/sched/kept_graph.hpp"
#include "pto/wsp/sched/run.hpp"
#include "pto/wsp/sched/walk_stats.hpp"

namespace pto::wsp::sched {

/// Consecutive strands for one worker. The first of them runs, waits or has not begun.
struct StrandRun {
  uint64_t strand, end;
  GraphCursor slice;  ///< begin of the slice, which rebuilds the state
  GraphCursor at;     ///< next operation
  uint64_t task;      ///< the next one

  // In a run with policies
  uint32_t dispatcher = 0;    ///< that started or recorded it
  uint32_t list = 0;          ///< the list of strands that contains it
  uint32_t num_recorded = 0;  ///< its room in the window, in tasks
  bool is_stalled = false;    ///< it waits without room, so its dispatcher begins no strand
};

/// Returns a strand that has not begun.
inline StrandRun strand_run(const KeptGraph& graph, uint64_t strand, uint64_t end) {
  const KeptGraph::Strand& found = graph.strand(strand);
  return {strand, end, GraphCursor(found.ops), GraphCursor(found.ops), found.first_task};
}

/// Counts the remaining tasks of the strand, or of the slice.
inline uint32_t count_tasks(GraphCursor at, bool is_whole_strand) {
  uint32_t num_tasks = 0;
  for (; at.op() != GraphOp::kEnd && (is_whole_strand || at.op() != GraphOp::kSlice); at.advance())
    num_tasks += at.op() == GraphOp::kTask;
  return num_tasks;
}

/// Applies to a graph the policies that dispatchers apply to a program. Each dispatcher visits the strands
/// that it owns in program order. Strands without owners are in one list that all dispatchers share. A
/// dispatcher starts a strand on the worker that asks. It records the strand for any worker of its lane if
/// this worker may not run it, or if a policy orders ready tasks. A strand that must wait is recorded, too.
/// If the window has no room for a record, the dispatcher stops.
///
/// Why a run ends: everything that the oldest incomplete strand waits for is complete. If this strand is
/// recorded or waits, a worker of its lane can run it. If not, its dispatcher is at it. The dispatcher starts
/// it on a worker of its lane, or records it without room.
class GraphSchedule {
 public:
  /// \pre the graph is built with traits
  GraphSchedule(Run& run, KeptGraph& graph)
      : run_(run),
        graph_(graph),
        is_ordered_(run.is_ordered()),
        dispatchers_(run.options().ownership != Ownership::kClaim && !is_ordered_ ? num_dispatchers() : 1),
        queued_(run.pools().num_lanes()),
        made_(num_dispatchers()),
        stats_(num_dispatchers()) {}

  /// Takes one of the first `num_open` strands, of one of `lanes`, for worker number `slot`. False if none
  /// can start now.
  bool take(uint64_t num_open, uint32_t slot, Lanes lanes, StrandRun& out) {
    const std::lock_guard<SpinLock> lock(lock_);
    list_strands(num_open);
    if (is_ordered_) record_strands(slot);
    const Lanes preferred = run_.pools().preferred(slot);
    bool is_found = take_recorded(preferred, out) || (preferred != lanes && take_recorded(lanes, out));
    for (uint32_t i = 0; i < dispatchers_.size() && !is_found && !is_ordered_; ++i)
      is_found = begin_next(dispatchers_[(slot + i) % dispatchers_.size()], slot, lanes, out);
    return is_found;
  }

  /// Puts aside a strand that must wait. The rest of its slice is recorded if there is room.
  void put_aside(StrandRun strand) {
    const std::lock_guard<SpinLock> lock(lock_);
    if (strand.num_recorded == 0) {
      const uint32_t num_tasks = count_tasks(strand.at, false);
      strand.is_stalled = !run_.window().take(num_tasks);
      if (!strand.is_stalled) note_recorded(strand, num_tasks);
    }
    if (strand.is_stalled) {
      ++dispatcher_of(strand).num_stalled;
      stall(dispatcher_of(strand), Stall::kWindow, strand);
    }
    wait(strand);
  }

  /// Releases the room of a slice that has ended.
  void end_slice(StrandRun& strand) {
    if (strand.num_recorded != 0) run_.window().give_back(strand.num_recorded);
    strand.num_recorded = 0;
  }

  /// Whether a worker that takes strands of `lanes` could start one of the first `num_open`, or record one.
  bool has_work(uint64_t num_open, Lanes lanes) {
    const std::lock_guard<SpinLock> lock(lock_);
    list_strands(num_open);
    if (is_ordered_) record_strands(0);
    const auto is_ready = [&](const StrandRun& strand) {
      return has_lane(lanes, lane_of(strand)) && can_start(strand);
    };
    const auto has_ready = [&](const auto& strands) {
      return std::any_of(strands.begin(), strands.end(), is_ready);
    };
    return has_ready(waiting_) || std::any_of(queued_.begin(), queued_.end(), has_ready) ||
           (!is_ordered_ &&
            std::any_of(dispatchers_.begin(), dispatchers_.end(), [&](const Dispatcher& each) {
              if (!may_begin(each)) return false;
              const StrandRun next = next_strand(each, 0);
              return has_lane(lanes, lane_of(next)) || run_.window().has_room(count_tasks(next.at, false));
            }));
  }

  /// The first strand that the window has no room for, if there is one and it ends the run.
  std::optional<StrandRun> refused() {
    const std::lock_guard<SpinLock> lock(lock_);
    return refused_;
  }

  /// Strands that were taken and wait. \pre no thread is at work
  const std::vector<StrandRun>& waiting() const { return waiting_; }

  /// What each dispatcher has begun, in program order, if the run is traced. \pre the run is over
  std::vector<trace::MadeSlice> made(uint32_t dispatcher) const {
    std::vector<trace::MadeSlice> made = made_[dispatcher];
    std::sort(made.begin(), made.end(),
              [](const auto& a, const auto& b) { return a.first_task < b.first_task; });
    return made;
  }
  /// Waits are not counted, because they were found when the graph was built.
  const std::vector<WalkStats>& stats() const { return stats_; }
  const std::vector<StallEvent>& stall_events(uint32_t dispatcher) const {
    static const std::vector<StallEvent> none;
    return dispatcher < dispatchers_.size() ? dispatchers_[dispatcher].standstill.events() : none;
  }
  uint32_t num_dispatchers() const { return run_.options().num_dispatchers(); }

 private:
  /// Visits its strands in program order.
  struct Dispatcher {
    std::vector<uint32_t> strands;
    size_t next = 0;
    size_t num_stalled = 0;
    Standstill standstill;
  };

  Dispatcher& dispatcher_of(const StrandRun& strand) { return dispatchers_[strand.list]; }
  uint32_t lane_of(const StrandRun& strand) const { return graph_.traits(strand.strand).lane; }
  bool is_first(const StrandRun& a, const StrandRun& b) const {
    return starts_before(graph_.traits(a.strand).rank, a.strand, graph_.traits(b.strand).rank, b.strand);
  }
  bool can_start(const StrandRun& strand) const {
    return strand.task >= run_.task_limit() || !strand.at.is_wait() || graph_.has_passed(strand.at);
  }

  /// Adds built strands to the lists of their dispatchers.
  void list_strands(uint64_t num_open) {
    for (; num_listed_ < num_open; ++num_listed_) {
      const uint32_t owner = graph_.traits(num_listed_).owner;
      const size_t list = owner == kNoOwner ? 0 : owner % dispatchers_.size();
      dispatchers_[list].strands.push_back(uint32_t(num_listed_));
    }
  }

  /// Whether later strands may begin: the number of waiting strands is bounded.
  bool may_begin(const Dispatcher& dispatcher) const {
    if (dispatcher.next == dispatcher.strands.size() || dispatcher.num_stalled > 0) return false;
    const size_t most = run_.options().lookahead + run_.num_workers();
    if (waiting_.size() < most) return true;
    const uint64_t strand = dispatcher.strands[dispatcher.next];
    return std::all_of(waiting_.begin(), waiting_.end(),
                       [=](const StrandRun& waiting) { return waiting.strand > strand; });
  }

  /// Starts the next strand of a dispatcher for a worker, and records those before it that the worker may not
  /// run.
  bool begin_next(Dispatcher& dispatcher, uint32_t slot, Lanes lanes, StrandRun& out) {
    while (may_begin(dispatcher)) {
      StrandRun strand = next_strand(dispatcher, slot);
      const bool is_of_lane = has_lane(lanes, lane_of(strand));
      if (!is_of_lane && !record(strand)) {
        stall(dispatcher, Stall::kPool, strand);
        return false;
      }
      pass(dispatcher, strand);
      if (!is_of_lane) continue;
      out = strand;
      return true;
    }
    return false;
  }

  /// Records strands in program order, as far as there is room. The oldest that is not complete needs none.
  void record_strands(uint32_t slot) {
    Dispatcher& dispatcher = dispatchers_[0];
    while (dispatcher.next < dispatcher.strands.size()) {
      StrandRun strand = next_strand(dispatcher, slot);
      if (!record(strand)) {
        if (graph_.num_complete() != strand.strand) return stall(dispatcher, Stall::kWindow, strand);
        queue(strand);
      }
      pass(dispatcher, strand);
    }
  }

  /// A strand without an owner belongs to the dispatcher of its worker.
  StrandRun next_strand(const Dispatcher& dispatcher, uint32_t slot) const {
    const uint64_t number = dispatcher.strands[dispatcher.next];
    StrandRun strand = strand_run(graph_, number, number + 1);
    const uint32_t owner = graph_.traits(number).owner;
    strand.dispatcher = (owner == kNoOwner ? slot : owner) % num_dispatchers();
    strand.list = uint32_t(&dispatcher - dispatchers_.data());
    return strand;
  }

  /// The dispatcher has started or recorded its next strand.
  void pass(Dispatcher& dispatcher, const StrandRun& strand) {
    const RunOptions& options = run_.options();
    ++dispatcher.next;
    dispatcher.standstill.end(run_.stalls(), options.traces_walks);
    const uint32_t num_tasks = num_tasks_of(strand);
    stats_[strand.dispatcher].made += num_tasks;
    if (!options.trace) return;
    const int64_t now = options.traces_walks ? trace::ticks() : 0;
    made_[strand.dispatcher].push_back({strand.task, num_tasks, now});
  }

  /// False if the window has no room. A strand after a failure needs no room.
  bool record(StrandRun& strand) {
    if (strand.task < run_.task_limit()) {
      const uint32_t num_tasks = count_tasks(strand.at, false);
      if (!run_.window().take(num_tasks)) return false;
      note_recorded(strand, num_tasks);
    }
    queue(strand);
    return true;
  }

  void note_recorded(StrandRun& strand, uint32_t num_tasks) {
    strand.num_recorded = num_tasks;
    stats_[strand.dispatcher].recorded += num_tasks;
  }

  uint32_t num_tasks_of(const StrandRun& strand) const {
    const uint64_t next = strand.strand + 1;
    if (next < num_listed_) return uint32_t(graph_.strand(next).first_task - strand.task);
    return count_tasks(strand.at, true);
  }

  void queue(const StrandRun& strand) {
    std::vector<StrandRun>& queue = queued_[lane_of(strand)];
    queue.push_back(strand);
    std::push_heap(queue.begin(), queue.end(), Later{*this});
  }

  void wait(const StrandRun& strand) {
    const auto first = [this](const StrandRun& a, const StrandRun& b) { return is_first(a, b); };
    waiting_.insert(std::upper_bound(waiting_.begin(), waiting_.end(), strand, first), strand);
  }

  /// Takes the first strand, in the order of the policy, that is queued or waits and can start.
  bool take_recorded(Lanes lanes, StrandRun& out) {
    const auto ready = std::find_if(waiting_.begin(), waiting_.end(), [&](const StrandRun& strand) {
      return has_lane(lanes, lane_of(strand)) && can_start(strand);
    });
    const std::optional<StrandRun> waited =
        ready != waiting_.end() ? std::optional<StrandRun>(*ready) : std::nullopt;
    while (std::vector<StrandRun>* queue = first_queue(lanes)) {
      if (waited && is_first(*waited, queue->front())) break;
      std::pop_heap(queue->begin(), queue->end(), Later{*this});
      out = queue->back();
      queue->pop_back();
      if (can_start(out)) return true;
      wait(out);
    }
    if (!waited) return false;
    waiting_.erase(std::find_if(waiting_.begin(), waiting_.end(),
                                [&](const StrandRun& strand) { return strand.strand == waited->strand; }));
    out = *waited;
    if (out.is_stalled) {
      --dispatcher_of(out).num_stalled;
      dispatcher_of(out).standstill.end(run_.stalls(), run_.options().traces_walks);
    }
    out.is_stalled = false;
    return true;
  }

  /// The queue of one of `lanes` whose first strand is the first of all, or null.
  std::vector<StrandRun>* first_queue(Lanes lanes) {
    std::vector<StrandRun>* first = nullptr;
    for (uint32_t lane = 0; lane < queued_.size(); ++lane) {
      std::vector<StrandRun>& queue = queued_[lane];
      if (!has_lane(lanes, lane) || queue.empty()) continue;
      if (first == nullptr || is_first(queue.front(), first->front())) first = &queue;
    }
    return first;
  }

  void stall(Dispatcher& dispatcher, Stall why, const StrandRun& strand) {
    const bool is_refused = why == Stall::kWindow && run_.options().window_mode == WindowMode::kAbort;
    if (is_refused && !refused_) refused_ = strand;
    dispatcher.standstill.begin(why, run_.stalls(), run_.options().traces_walks);
  }

  struct Later {
    const GraphSchedule& self;
    bool operator()(const StrandRun& a, const StrandRun& b) const { return self.is_first(b, a); }
  };

  Run& run_;
  KeptGraph& graph_;
  const bool is_ordered_;
  SpinLock lock_;
  std::vector<Dispatcher> dispatchers_;
  std::vector<std::vector<StrandRun>> queued_;  ///< per lane: recorded and not begun, as heaps
  std::vector<StrandRun> waiting_;              ///< as the policy orders them
  std::vector<std::vector<trace::MadeSlice>> made_;
  std::vector<WalkStats> stats_;  ///< per dispatcher
  std::optional<StrandRun> refused_;
  uint64_t num_listed_ = 0;
};

}  // namespace pto::wsp::sched
