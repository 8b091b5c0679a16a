// SPDX-License-Identifier: MIT
/// \file
/// How a run behaves besides its result.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "pto/wsp/graph/deps.hpp"
#include "pto/wsp/sched/clock.hpp"

namespace pto::wsp::sched {

/// Which dispatcher runs a unit of work.
enum class Ownership : uint8_t {
  kClaim,       ///< the first that comes to it
  kRoundRobin,  ///< they take turns
  kKey,         ///< that with the number of its key, modulo their number
  kHash,        ///< that with the number of its key's hash, modulo their number
  kPartition,   ///< that with the number of the part which the task's number lies in, modulo their number
};

/// Which tasks are in one stream: they start in program order, one at a time.
enum class Streams : uint8_t {
  kOff,     ///< none
  kInTurn,  ///< every n-th
  kByKey,   ///< those with equal STREAM, modulo n if there is one; tasks without it are in none
};

/// Which of the tasks that are ready starts first.
enum class Ready : uint8_t {
  kOwn,      ///< a dispatcher runs a task that is ready as soon as it comes to it
  kFifo,     ///< the first in program order
  kOrdered,  ///< one with the least ORDER keys, of equal ones the first in program order
};

/// What happens where the window has no room.
enum class WindowMode : uint8_t {
  kStall,      ///< the walk waits
  kAbort,      ///< the run ends with `window-full`
  kBenchmark,  ///< the walk waits, and no kernel is called at all
};

/// When the first task starts.
enum class Start : uint8_t {
  kImmediate,   ///< as soon as it is known
  kThreshold,   ///< when n tasks are built, or all of them
  kAfterBuild,  ///< when all of them are built
};

using graph::Deps;

/// What a schedule says of a run. See check_options for what does not go together.
struct PolicyOptions {
  static constexpr uint64_t kWindow = 8192;

  Deps deps = Deps::kExact;
  uint32_t dispatchers = 0;  ///< 0 = one per worker, up to kDefaultDispatchers
  Ownership ownership = Ownership::kClaim;
  std::vector<uint64_t> bounds =
      {};  ///< kPartition: the first task of each dispatcher but the first, ascending
  Streams streams = Streams::kOff;
  uint32_t num_streams = 0;   ///< 0 = one per key
  uint64_t window = kWindow;  ///< tasks that may be recorded and not complete, over all dispatchers
  WindowMode window_mode = WindowMode::kStall;
  Ready ready = Ready::kOwn;
  Start start = Start::kImmediate;
  uint64_t threshold = 0;          ///< of Start::kThreshold
  size_t lookahead = 64;           ///< of a kept graph: strands that may wait while later ones are begun
  uint64_t starts_per_second = 0;  ///< 0 = as many as there can be
  uint64_t batch = 0;              ///< not 0: tasks in a group; groups start one after the other
  uint64_t turns = 0;              ///< not 0: values of TURN that take turns at a time, one task each
  uint64_t in_flight = 0;          ///< not 0: values of ADMIT whose tasks may be in flight
  uint32_t num_pools = 0;          ///< of workers; 0 = any worker runs any task
  std::vector<uint64_t> pool_bounds =
      {};                        ///< the first worker of each pool but the first; empty: equal pools
  uint64_t streaming_bytes = 0;  ///< least of a tensor that is stored past the caches; 0 = the machine's

  /// What shapes a graph, in addition to the plan and the workers.
  auto graph_shape() const {
    return std::tie(deps, dispatchers, ownership, bounds, streams, num_streams, window, window_mode, ready,
                    batch, turns, in_flight, num_pools);
  }

  /// Whether a graph that was built for these options is the one of `other`, if plan and workers are equal.
  bool build_like(const PolicyOptions& other) const { return graph_shape() == other.graph_shape(); }

  /// Whether the graph of tasks is built as a whole, and kept for runs that are alike.
  bool keeps_graph() const { return start != Start::kImmediate; }
  /// Keys, ranks, admissions and pools of tasks cut program order where they change, and batches where they
  /// end.
  bool cuts_units() const {
    return ownership == Ownership::kKey || ownership == Ownership::kHash ||
           ownership == Ownership::kPartition || ready == Ready::kOrdered || batch != 0 || turns != 0 ||
           in_flight != 0 || num_pools != 0;
  }
  /// Whether a policy decides which of the ready tasks starts first.
  bool is_ordered() const { return ready != Ready::kOwn || turns != 0; }
  /// Whether a policy decides which worker starts a strand, or when, in addition to what the strand waits
  /// for.
  bool is_scheduled() const {
    return is_ordered() || dispatchers != 0 || ownership != Ownership::kClaim || window != kWindow ||
           window_mode == WindowMode::kAbort || num_pools != 0;
  }
};

/// What is watched in a run, or checked: for people and tests.
struct DebugOptions {
  bool trace = false;
  bool traces_walks = false;  ///< with `trace`: record what dispatchers do too
  uint64_t jitter = 0;  ///< not 0: seed of random delays before bodies and of random slice sizes (for tests)
  bool tracks = false;  ///< order tasks by their hazards with one worker too (for tests)
  bool verifies = false;  ///< check afterwards that tasks kept their order (for tests)
  bool checks_iterations =
      false;                  ///< check that iterations of P loops, and instances of tasks, are independent
  bool checks_edges = false;  ///< check that what the program says of order suffices (for Deps::kNone)
};

struct RunOptions : PolicyOptions, DebugOptions {
  static constexpr uint32_t kDefaultDispatchers = 8;

  RunOptions() = default;
  /// What tests ask for most often.
  RunOptions(uint32_t num_workers, bool is_traced = false, uint64_t jitter_seed = 0,
             bool (*asks_for_interrupt)() = nullptr, bool tracks_hazards = false)
      : workers(num_workers), is_interrupted(asks_for_interrupt) {
    trace = is_traced;
    jitter = jitter_seed;
    tracks = tracks_hazards;
  }

  uint32_t workers = 0;       ///< 0 = one per core
  bool is_alone = false;      ///< the calling thread runs all tasks, though there may be more workers
  bool begins_alone = false;  ///< the calling thread begins, and others join if tasks are worth it
  int64_t time_limit_ns = 0;  ///< the run ends so long after it began; 0 = it has no limit
  Clock* clock = nullptr;     ///< by which a limited rate starts tasks; null = the host's
  /// Asked now and then by the calling thread, between tasks; true cancels the run. Null: it is not asked.
  bool (*is_interrupted)() = nullptr;
  /// Told, by the calling thread, how many tasks are complete, now and then and at the end; true cancels the
  /// run. Null: it is not told.
  bool (*on_progress)(void* listener, uint64_t num_complete) = nullptr;
  void* listener = nullptr;
  /// Given what kernels print, whole lines, by any worker within a task. Null: it goes to standard output.
  void (*on_print)(void* printer, const std::string& text) = nullptr;
  void* printer = nullptr;

  uint32_t num_dispatchers() const {
    return dispatchers != 0 ? dispatchers : workers < kDefaultDispatchers ? workers : kDefaultDispatchers;
  }
  /// Whether workers look at every task: it is delayed, recorded or verified.
  bool watches_tasks() const { return trace || verifies || jitter != 0 || starts_per_second != 0; }
  /// With one worker, program order satisfies every hazard and every barrier, and the first task is ready.
  bool is_in_order() const {
    const bool is_open =
        dispatchers <= 1 && ownership == Ownership::kClaim && ready != Ready::kOrdered && turns == 0;
    return (workers == 1 || is_alone) && !tracks && is_open && !keeps_graph();
  }
  /// Whether the calling thread may run all tasks: no option says which worker runs a task, or when.
  bool may_be_alone() const {
    return workers > 1 && dispatchers == 0 && streams == Streams::kOff && ready == Ready::kOwn &&
           ownership == Ownership::kClaim && window_mode == WindowMode::kStall && !cuts_units() &&
           !keeps_graph() && !watches_tasks() && !tracks;
  }
};

}  // namespace pto::wsp::sched
