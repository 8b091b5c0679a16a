// SPDX-License-Identifier: MIT
/// \file
/// The result of a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pto/wsp/sched/crew.hpp"
#include "pto/wsp/trace/record.hpp"

namespace pto::wsp {

/// The counters and records of a run.
struct RunResult {
  uint64_t run = 0;  ///< its number in this process
  uint64_t tasks = 0;
  int64_t run_ns = 0;
  uint32_t workers = 0;
  uint32_t dispatchers = 0;
  std::vector<sched::WalkStats> walks;  ///< per dispatcher
  bool is_benchmark = false;            ///< no kernel was called
  uint32_t symbolic_accesses = 0;       ///< of task calls, that symbolic waits ordered
  uint32_t mapped_accesses = 0;         ///< the same that hazard maps ordered in such a run
  bool has_calendar = false;            ///< tasks ran by a calendar
  /// Why symbolic waits did not order the tasks; kNone if they did.
  sched::MapsReason maps_reason = sched::MapsReason::kNone;
  uint64_t slices = 0;                 ///< slices that were scheduled
  uint64_t waits = 0;                  ///< times a worker put a slice aside because a task had to wait
  uint64_t max_queued = 0;             ///< most slices that waited for a worker
  std::vector<uint64_t> lanes_queued;  ///< the same, of those for any worker and of each pool
  std::vector<uint64_t> pool_workers;  ///< workers of each pool
  uint64_t max_waiting = 0;            ///< most slices that waited for a task
  uint64_t max_recorded = 0;           ///< most tasks that were recorded and not complete
  uint64_t max_live_slices = 0;  ///< most slices between the oldest that was not complete and the newest
  uint64_t stalls[sched::kNumStalls] = {};   ///< times a dispatcher was stopped, per sched::Stall
  int64_t stall_ns[sched::kNumStalls] = {};  ///< for how long
  bool is_replay = false;                    ///< a graph that was kept from a run before was run
  int64_t build_ns = 0;                      ///< time of building the graph, if one was built
  uint64_t graph_tasks = 0;                  ///< tasks of the kept graph
  uint64_t graph_bytes = 0;                  ///< its size
  uint64_t max_workspace_bytes = 0;          ///< the largest workspace that a task asked for
  uint64_t prefetched_tasks = 0;             ///< tasks whose inputs were fetched ahead
  uint64_t prefetched_bytes = 0;             ///< of these inputs
  std::vector<uint64_t> streamed;            ///< tensors whose stores went past the caches
  std::vector<uint64_t> left_out;            ///< proved statements that were not checked: sched::Statement
  std::vector<uint64_t> worker_tasks;
  std::shared_ptr<trace::RunRecord> record;  ///< null unless asked for
  std::optional<uint64_t> order_violations;  ///< of a run that verifies
  std::vector<int64_t> flushed;              ///< what flush points read, in program order
  sched::MergeOrders merges;                 ///< of a network: see RunOptions

  /// Whether symbolic waits ordered the tasks, not hazard maps.
  bool is_symbolic() const { return maps_reason == sched::MapsReason::kNone; }
};

/// Calls `add(name, value)` for each figure that Python and reports know by name: a number, or one number per
/// dispatcher, lane, worker or tensor.
template <class Add>
void for_counters(const RunResult& result, Add add) {
  const auto add_walks = [&](const char* name, uint64_t sched::WalkStats::* figure) {
    std::vector<uint64_t> figures;
    for (const sched::WalkStats& walk : result.walks) figures.push_back(walk.*figure);
    add(name, figures);
  };
  add("dispatchers", result.dispatchers);
  add_walks("dispatcher_tasks", &sched::WalkStats::made);
  add_walks("dispatcher_recorded", &sched::WalkStats::recorded);
  add_walks("dispatcher_passed_over", &sched::WalkStats::passed_over);
  add_walks("dispatcher_local_waits", &sched::WalkStats::local_waits);
  add_walks("dispatcher_remote_waits", &sched::WalkStats::remote_waits);
  add("is_benchmark", int(result.is_benchmark));
  add("is_symbolic", int(result.is_symbolic()));
  add("maps_reason", int(result.maps_reason));
  add("symbolic_accesses", result.symbolic_accesses);
  add("mapped_accesses", result.mapped_accesses);
  add("has_calendar", int(result.has_calendar));
  add("slices", result.slices);
  add("waits", result.waits);
  add("max_queued", result.max_queued);
  add("lanes_queued", result.lanes_queued);
  add("pool_workers", result.pool_workers);
  add("max_waiting", result.max_waiting);
  add("max_recorded", result.max_recorded);
  add("max_live_slices", result.max_live_slices);
  for (int i = 0; i < sched::kNumStalls; ++i) {
    const std::string name = sched::kStallNames[i];
    add(name + "_stalls", result.stalls[i]);
    add(name + "_stall_ns", result.stall_ns[i]);
  }
  add("max_workspace_bytes", result.max_workspace_bytes);
  add("prefetched_tasks", result.prefetched_tasks);
  add("prefetched_bytes", result.prefetched_bytes);
  add("worker_tasks", result.worker_tasks);
  if (result.order_violations) add("order_violations", *result.order_violations);
  add("replayed", int(result.is_replay));
  add("build_ns", result.build_ns);
  add("graph_tasks", result.graph_tasks);
  add("graph_bytes", result.graph_bytes);
  add("streamed_tensors", result.streamed);
  add("left_out", result.left_out);
}

namespace detail {

/// Adds up what workers and dispatchers counted. \pre the run is done
inline RunResult summarize(sched::Run& run) {
  RunResult result;
  result.workers = run.num_workers();
  result.slices = run.num_slices();
  for (uint32_t lane = 0; lane < run.ready().num_lanes(); ++lane) {
    result.lanes_queued.push_back(run.ready().most_queued(lane));
    result.max_waiting = std::max<uint64_t>(result.max_waiting, run.ready().most_waiting(lane));
  }
  result.pool_workers = run.pools().num_workers();
  result.max_queued = *std::max_element(result.lanes_queued.begin(), result.lanes_queued.end());
  result.max_recorded = run.max_recorded();
  result.prefetched_tasks = run.num_prefetched();
  result.prefetched_bytes = run.prefetched_bytes();
  result.max_live_slices = run.max_live_slices();
  for (int i = 0; i < sched::kNumStalls; ++i) {
    result.stalls[i] = run.stalls()[sched::Stall(i)].count.load(std::memory_order_relaxed);
    result.stall_ns[i] = run.stalls()[sched::Stall(i)].ns.load(std::memory_order_relaxed);
  }
  for (uint32_t i = 0; i < run.num_workers(); ++i) {
    const sched::Worker& worker = run.worker(i);
    result.worker_tasks.push_back(worker.num_tasks());
    result.tasks += worker.num_tasks();
    result.waits += worker.num_suspended;
    result.max_workspace_bytes = std::max(result.max_workspace_bytes, worker.max_workspace_bytes);
  }
  return result;
}

}  // namespace detail

}  // namespace pto::wsp
