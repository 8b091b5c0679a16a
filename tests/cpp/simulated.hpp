// SPDX-License-Identifier: MIT
/// \file
/// A run of a kept graph in simulated time: one thread steps the virtual worker whose clock is least.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "check.hpp"
#include "prepared.hpp"
#include "pto/wsp/sched/graph_run.hpp"

namespace simulated {

using namespace pto::wsp;

/// Where and when a task ran.
struct Start {
  uint64_t task;
  uint32_t worker;
  int64_t time;
};

struct Times {
  std::vector<Start> starts;  ///< in simulated time
  int64_t makespan = 0;

  std::vector<uint64_t> tasks() const {
    std::vector<uint64_t> tasks;
    for (const Start& start : starts) tasks.push_back(start.task);
    return tasks;
  }
};

/// Builds the graph of a call. \pre the program has no flush points
inline std::shared_ptr<sched::KeptGraph> build(const prepared::Call& call, const sched::RunOptions& options) {
  auto graph = std::make_shared<sched::KeptGraph>();
  sched::Run run{prepared::no_others};
  run.begin(call.plan, call.bases, options);
  sched::GraphBuilder builder(*graph, run);
  while (builder.step() == sched::GraphBuilder::Outcome::kMore) {
  }
  return graph;
}

class Simulation {
 public:
  Simulation(const prepared::Call& call, const sched::RunOptions& options,
             std::shared_ptr<sched::KeptGraph> graph)
      : workers_(options.workers) {
    run_.begin(call.plan, call.bases, options);
    graph_run_.emplace(run_, std::move(graph), false);
    for (uint32_t slot = 0; slot < options.workers; ++slot) run_.ready_worker(slot);
  }

  /// Runs all tasks: each takes `cost(task)`, and others learn `latency` later that it is complete.
  template <class Cost>
  Times run(Cost cost, int64_t latency = 0) {
    while (!graph_run_->is_over() || !pending_.empty()) {
      VirtualWorker& worker = *std::min_element(workers_.begin(), workers_.end(), is_earlier);
      const auto next = std::min_element(pending_.begin(), pending_.end(), completes_earlier);
      if (next != pending_.end() && next->time <= worker.time) {
        graph_run_->complete(next->done);
        pending_.erase(next);
        wake_all();
      } else if (worker.is_idle) {
        sleep(worker);
      } else {
        step(worker, cost, latency);
      }
    }
    return std::move(times_);
  }

  sched::Run& engine() { return run_; }

 private:
  struct VirtualWorker {
    int64_t time = 0;
    bool is_idle = false;  ///< there is nothing for it to do at this time
    std::optional<sched::StrandRun> strand;
  };
  struct Completion {
    int64_t time;
    sched::GraphRun::Done done;
  };

  static bool is_earlier(const VirtualWorker& a, const VirtualWorker& b) {
    return a.time != b.time ? a.time < b.time : a.is_idle < b.is_idle;
  }
  static bool completes_earlier(const Completion& a, const Completion& b) { return a.time < b.time; }

  template <class Cost>
  void step(VirtualWorker& worker, Cost cost, int64_t latency) {
    const auto slot = uint32_t(&worker - workers_.data());
    if (!worker.strand) {
      worker.strand = graph_run_->take_strand(run_.worker(slot), slot, run_.pools().lanes_of(slot));
      worker.is_idle = !worker.strand;
      if (worker.is_idle) return;
    }
    const auto done = graph_run_->run_task_of(run_.worker(slot), *worker.strand);
    if (!done) {
      worker.strand.reset();  // which may make room for others
      return wake_all();
    }
    has_retried_ = false;
    worker.strand = done->strand;
    times_.starts.push_back({done->task, slot, worker.time});
    worker.time += cost(done->task);
    times_.makespan = std::max(times_.makespan, worker.time);
    pending_.push_back({worker.time + latency, *done});
  }

  void wake_all() {
    for (VirtualWorker& each : workers_) each.is_idle = false;
  }

  /// Lets a worker sleep until something may change for it. \pre all that are awake are later
  void sleep(VirtualWorker& worker) {
    int64_t next = INT64_MAX;
    for (const Completion& each : pending_) next = std::min(next, each.time);
    for (const VirtualWorker& each : workers_) {
      if (each.time > worker.time) next = std::min(next, each.time);
    }
    if (next == INT64_MAX) {
      // One that found nothing may have recorded a strand for another.
      CHECK(!has_retried_);
      has_retried_ = true;
      return wake_all();
    }
    worker.time = next;
    worker.is_idle = false;
  }

  sched::Run run_{prepared::no_others};
  std::optional<sched::GraphRun> graph_run_;
  std::vector<VirtualWorker> workers_;
  std::vector<Completion> pending_;
  bool has_retried_ = false;
  Times times_;
};

}  // namespace simulated
