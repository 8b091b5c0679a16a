// SPDX-License-Identifier: MIT
/// \file
/// What a simulation reports. Times are in cycles.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sim/task.hpp"
#include "pto/wsp/trace/record.hpp"

namespace pto::wsp::sim {

/// Why cores were idle, and dispatchers stopped.
enum class Idle : uint8_t {
  kBegin,     ///< no dispatcher has begun
  kMaking,    ///< tasks were not made fast enough
  kTasks,     ///< the tasks that were made waited for others
  kOther,     ///< what was ready needs cores of another kind, or of another pool
  kValues,    ///< dispatchers waited for values that tasks write
  kSchedule,  ///< the schedule starts tasks later
  kEnd,       ///< all tasks had started
};
inline constexpr int kNumIdle = 7;

/// A process of a network as it went. Times are in cycles.
struct ProcessTime {
  uint64_t tasks = 0;
  double busy = 0;              ///< its tasks
  double cores = 0;             ///< it waited for a core
  double waited = 0;            ///< it let time pass
  double end = 0;               ///< when it ended
  std::vector<double> tokens;   ///< per tensor: it waited to receive, or for its turn to
  std::vector<double> buffers;  ///< per tensor: it waited to send, or for a receipt
};

/// A channel of a network as it went.
struct ChannelTime {
  uint32_t tensor;
  uint64_t tokens = 0;         ///< received
  double queued = 0;           ///< sum over tokens: from when one can be received until it is
  double in_use = 0;           ///< buffers that are in use, times cycles
  uint64_t most = 0;           ///< buffers in use at a time
  double first = 0, last = 0;  ///< when a token was received
};

/// A token as it went: when its send began and ended, when its receipt began and ended.
struct TokenTime {
  uint32_t tensor, sender, receiver;
  double opened, sent, received, freed;
};

/// A task of a process as it went.
struct ProcessSpan {
  uint32_t process, site;
  double start, end;
};

struct NetworkTimes {
  std::vector<ProcessTime> processes;
  std::vector<ChannelTime> channels;
  std::vector<TokenTime> tokens;   ///< in the order of their ends; the first ones
  std::vector<ProcessSpan> spans;  ///< in the order of their ends; the first ones
  sched::MergeOrders merges;       ///< see RunOptions
};

/// A task as it went.
struct TaskTime {
  uint32_t site;
  uint32_t cost;
  uint32_t dispatcher;
  uint32_t kind;        ///< of its first core
  uint32_t core;        ///< among those of its kind
  int32_t second_kind;  ///< -1 if it takes one core
  uint32_t second;      ///< core of its second kind
  Cause cause;
  uint64_t because;
  double made, ready, start, end;
};

struct SimResult {
  uint64_t tasks = 0;
  double cycles = 0;                      ///< until the last task is seen complete
  std::vector<double> busy;               ///< per kind: cycles of all its cores
  std::vector<std::vector<double>> idle;  ///< per kind, per Idle: cycles of all its cores
  std::vector<double> generating;         ///< per dispatcher
  std::vector<double> stalled;            ///< per dispatcher: it had no room for another task
  uint64_t stalls = 0;                    ///< how often
  std::vector<uint64_t> made;             ///< per dispatcher: tasks
  std::vector<uint32_t> kernels;          ///< per cost: its kernel
  std::vector<int64_t> flushed;           ///< what flush points read
  std::vector<uint64_t> calls;            ///< per cost: tasks
  std::vector<double> spent;              ///< per cost: cycles on cores
  uint64_t gm_bytes = 0, l2_bytes = 0;
  uint64_t hits = 0, misses = 0;  ///< regions that the cache held, or did not
  uint64_t prefetched_bytes = 0;  ///< that were moved into the cache before a task asked for them
  uint64_t operations = 0;
  uint64_t max_live = 0;        ///< most tasks between the oldest that is not complete and the newest
  double longest = 0;           ///< cycles of the longest chain of tasks
  std::vector<TaskTime> times;  ///< if asked for, by task
  std::shared_ptr<NetworkTimes> network;     ///< null for a workload
  std::shared_ptr<trace::RunRecord> record;  ///< if asked for: where tasks come from, without times
};

}  // namespace pto::wsp::sim
