// SPDX-License-Identifier: MIT
/// \file
/// Options of a run. None of them changes its result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "pto/wsp/graph/deps.hpp"
#include "pto/wsp/sched/calendar.hpp"
#include "pto/wsp/sched/clock.hpp"

namespace pto::wsp::sched {

/// Which dispatcher owns a unit.
enum class Ownership : uint8_t {
  kClaim,       ///< the first that reaches it
  kRoundRobin,  ///< they take turns
  kKey,         ///< key modulo the number of dispatchers
  kHash,        ///< hash of the key modulo the number of dispatchers
  kPartition,   ///< number of the part that contains the task, modulo the number of dispatchers
};

/// Which tasks are in one stream: they start in program order, one at a time.
enum class Streams : uint8_t {
  kOff,     ///< none
  kInTurn,  ///< every n-th
  kByKey,   ///< tasks with equal STREAM, modulo n if n is given; tasks without STREAM are in no stream
};

/// Which ready task starts first.
enum class Ready : uint8_t {
  kOwn,      ///< a dispatcher runs a task that is ready as soon as it comes to it
  kFifo,     ///< the first in program order
  kOrdered,  ///< one with the least ORDER keys, of equal ones the first in program order
};

/// What happens if the window has no room.
enum class WindowMode : uint8_t {
  kStall,      ///< the walk waits
  kAbort,      ///< the run ends with `window-full`
  kBenchmark,  ///< the walk waits, and no kernel is called
};

/// When the first task starts.
enum class Start : uint8_t {
  kImmediate,   ///< when it is expanded
  kThreshold,   ///< when n tasks are built, or all of them
  kAfterBuild,  ///< when all of them are built
};

/// Why hazard maps or program order, and not symbolic waits, order the tasks of a run. `runtime/stats.py` has
/// a text for each.
enum class MapsReason : uint8_t {
  kNone,      ///< symbolic waits do
  kDeps,      ///< the policy of `deps` is another one, as that of networks, simulations and calendars
  kDispatch,  ///< as this and the following policies say
  kWindow,
  kReady,
  kStart,
  kStreams,
  kInterleave,
  kLoadBalance,
  kTiming,
  kConcurrent,
  kPools,
  kEarlierRuns,  ///< tasks wait for earlier runs of a session
  kOneWorker,    ///< one worker runs them in program order
  kTrace,        ///< the run is traced
  kSequence,     ///< an iteration of a `P` loop holds a `P.seq` loop of several units
};

/// How a run with several workers orders tasks.
enum class Waits : uint8_t {
  kMaps,      ///< by hazard maps
  kSymbolic,  ///< by symbolic waits if they cover the plan, and no other policy assigns or orders tasks
};

using graph::Deps;

class Completions;
class Imports;

/// The schedule of a run. check_options rejects contradictions.
struct PolicyOptions {
  static constexpr uint64_t kWindow = 8192;

  Deps deps = Deps::kExact;
  Waits waits = Waits::kMaps;
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
  size_t lookahead = 64;           ///< of a kept graph: strands that may wait while later ones begin
  uint64_t starts_per_second = 0;  ///< 0 = unlimited
  uint64_t batch = 0;              ///< not 0: tasks in a group; groups start one after the other
  uint64_t turns = 0;              ///< not 0: values of TURN that take turns at a time, one task each
  uint64_t in_flight = 0;          ///< not 0: values of ADMIT whose tasks may be in flight
  uint64_t prefetch = 0;           ///< not 0: values of PREFETCH ahead whose inputs are fetched
  uint32_t num_pools = 0;          ///< of workers; 0 = any worker runs any task
  std::vector<uint64_t> pool_bounds =
      {};  ///< the first worker of each pool but the first; empty: equal pools
  std::vector<uint64_t> pool_shares =
      {};                        ///< not empty: pools have workers in these proportions, and at least one
  uint32_t pool_size = 0;        ///< not 0: pools are groups of this many workers; their number follows
  bool pools_are_soft = false;   ///< a worker runs tasks of other pools where its own has none
  bool balances = false;         ///< of ready tasks that nothing else orders, the longest starts first
  uint64_t streaming_bytes = 0;  ///< least size of a tensor for streaming stores; 0 = default of the machine
  bool makes_calendar = false;   ///< tasks run by a calendar that is made for the arguments

  /// The options that a graph depends on, in addition to the plan and the workers.
  auto graph_shape() const {
    return std::tie(deps, dispatchers, ownership, bounds, streams, num_streams, window, window_mode, ready,
                    batch, turns, in_flight, num_pools, balances);
  }

  /// Whether a graph that was built for these options is the one of `other`, if plan and workers are equal.
  bool build_like(const PolicyOptions& other) const { return graph_shape() == other.graph_shape(); }

  /// Whether the graph of tasks is built and kept for equal runs.
  bool keeps_graph() const { return start != Start::kImmediate; }
  /// Keys, ranks, admissions and pools of tasks cut program order where they change, and batches where they
  /// end.
  bool cuts_units() const {
    return ownership == Ownership::kKey || ownership == Ownership::kHash ||
           ownership == Ownership::kPartition || ready == Ready::kOrdered || batch != 0 || turns != 0 ||
           in_flight != 0 || num_pools != 0 || balances;
  }
  /// Whether a policy decides which of the ready tasks starts first.
  bool is_ordered() const { return ready != Ready::kOwn || turns != 0 || balances || pools_are_soft; }
  /// Whether a policy decides which worker starts a strand, or when, in addition to what the strand waits
  /// for.
  bool is_scheduled() const {
    return is_ordered() || dispatchers != 0 || ownership != Ownership::kClaim || window != kWindow ||
           window_mode == WindowMode::kAbort || num_pools != 0;
  }
};

/// What a run records or checks, for users and tests.
struct DebugOptions {
  bool trace = false;
  bool traces_walks = false;  ///< with `trace`: record dispatchers, too
  uint64_t jitter = 0;  ///< not 0: seed of random delays before bodies and of random slice sizes (for tests)
  bool tracks = false;  ///< order tasks by their hazards with one worker too (for tests)
  bool verifies = false;           ///< check afterwards that tasks kept their order (for tests)
  bool checks_iterations = false;  ///< check that iterations of P loops are independent
  bool checks_instances = false;   ///< check that instances of tasks are independent
  bool checks_edges = false;       ///< check that the stated edges suffice (for Deps::kNone)
  // Whether a proof shows the same for every call whose tensors are different arrays. Such a call leaves out
  // the check.
  bool proves_iterations = false;
  bool proves_instances = false;
  bool proves_edges = false;
};

/// Statements about a program that runs check.
enum Statement : uint8_t { kIterations, kInstances, kEdges };

/// Per tensor, the senders of the tokens of a channel whose tokens are merged by time, in order.
using MergeOrders = std::vector<std::vector<uint32_t>>;

struct RunOptions : PolicyOptions, DebugOptions {
  static constexpr uint32_t kDefaultDispatchers = 8;

  RunOptions() = default;
  /// The options that tests use most.
  RunOptions(uint32_t num_workers, bool is_traced = false, uint64_t jitter_seed = 0,
             bool (*asks_for_interrupt)() = nullptr, bool tracks_hazards = false)
      : workers(num_workers), is_interrupted(asks_for_interrupt) {
    trace = is_traced;
    jitter = jitter_seed;
    tracks = tracks_hazards;
  }

  uint32_t workers = 0;                        ///< 0 = one per core
  bool is_network = false;                     ///< of a network of processes
  std::shared_ptr<const MergeOrders> merges;   ///< of a network: the order to keep; null = as they come
  bool records_merges = false;                 ///< of a network whose tokens are merged as they come
  std::shared_ptr<const Calendar> calendar{};  ///< tasks run by this calendar; null = by none, or a made one
  bool is_simulated = false;  ///< a walk makes tasks for a simulation, each a strand of its own
  bool is_alone = false;      ///< the calling thread runs all tasks, even with more workers
  bool begins_alone = false;  ///< the calling thread begins, and others join if that pays
  int64_t time_limit_ns = 0;  ///< time limit; 0 = none
  /// Receives the completed tasks. Null: no later run follows this one.
  Completions* completions = nullptr;
  /// What the run waits for besides its own tasks; null for nothing. With it, `tracks` is set.
  Imports* imports = nullptr;
  Clock* clock = nullptr;  ///< clock of rate limits; null = the host's
  /// The calling thread asks it periodically between tasks; true cancels the run. May be null.
  bool (*is_interrupted)() = nullptr;
  /// Receives the number of complete tasks periodically and at the end; true cancels the run. May be null.
  bool (*on_progress)(void* listener, uint64_t num_complete) = nullptr;
  void* listener = nullptr;
  /// Receives the output of kernels in whole lines, from any worker inside a task. Null: standard output.
  void (*on_print)(void* printer, const std::string& text) = nullptr;
  void* printer = nullptr;

  uint32_t num_dispatchers() const {
    return dispatchers != 0 ? dispatchers : workers < kDefaultDispatchers ? workers : kDefaultDispatchers;
  }
  /// Whether workers delay, record or verify every task.
  bool watches_tasks() const { return trace || verifies || jitter != 0 || starts_per_second != 0; }
  /// With one worker, program order satisfies every hazard and every barrier, and the first task is ready.
  bool is_in_order() const {
    const bool is_open = dispatchers <= 1 && ownership == Ownership::kClaim && ready != Ready::kOrdered &&
                         turns == 0 && !balances;
    return (workers == 1 || is_alone) && !tracks && is_open && !keeps_graph() && !is_simulated &&
           !is_network && !has_calendar();
  }
  /// Whether a calendar decides where and in which order tasks run.
  bool has_calendar() const { return makes_calendar || calendar != nullptr; }
  /// Whether the calling thread may run all tasks: no option decides which worker runs a task, or when.
  bool may_be_alone() const { return is_free() && !watches_tasks() && waits != Waits::kSymbolic; }
  /// Why symbolic waits cannot order tasks, as far as options decide.
  MapsReason maps_reason() const {
    if (waits != Waits::kSymbolic || deps != Deps::kExact) return MapsReason::kDeps;
    if (const MapsReason found = restriction(); found != MapsReason::kNone) return found;
    return trace ? MapsReason::kTrace : MapsReason::kNone;
  }
  /// Whether symbolic waits may order tasks.
  bool may_be_symbolic() const { return maps_reason() == MapsReason::kNone; }

 private:
  bool is_free() const { return restriction() == MapsReason::kNone; }

  /// The first option that decides which worker runs a task, or when.
  MapsReason restriction() const {
    struct Rule {
      bool holds;
      MapsReason reason;
    };
    const Rule rules[] = {
        {is_network || is_simulated || has_calendar(), MapsReason::kDeps},
        {dispatchers != 0 || ownership != Ownership::kClaim, MapsReason::kDispatch},
        {window_mode != WindowMode::kStall, MapsReason::kWindow},
        {ready != Ready::kOwn, MapsReason::kReady},
        {keeps_graph(), MapsReason::kStart},
        {streams != Streams::kOff, MapsReason::kStreams},
        {turns != 0, MapsReason::kInterleave},
        {balances, MapsReason::kLoadBalance},
        {batch != 0, MapsReason::kTiming},
        {in_flight != 0, MapsReason::kConcurrent},
        {num_pools != 0, MapsReason::kPools},
        {tracks, MapsReason::kEarlierRuns},
        {workers <= 1, MapsReason::kOneWorker},
    };
    for (const Rule& rule : rules) {
      if (rule.holds) return rule.reason;
    }
    return MapsReason::kNone;
  }
};

}  // namespace pto::wsp::sched
