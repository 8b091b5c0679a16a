// SPDX-License-Identifier: MIT
/// \file
/// What the blocks of a launch share, what a block keeps of its walk, and its waits.
///
/// Thread 0 of a block notes in shared memory how many tasks came before a moment of the walk. No thread
/// keeps these numbers in registers while kernels run.
#pragma once

#include "pto/wsp/tile/cuda/scalar.hpp"

namespace pto::wsp::cuda {

/// A tensor of a program.
struct Array {
  void* data;
  int64_t shape[kMaxTensorRank], stride[kMaxTensorRank];
};

/// Why a run ends early.
enum class Cause : int32_t {
  kNone,
  kWalk,    ///< an expression of the walk has no value, or an assumption does not hold; `place` of the walk
  kRegion,  ///< an argument of a task is outside its tensor, or does not fit its parameter
  kCheck,   ///< the check `code` of the kernel failed
  kStuck,   ///< a wait took too long: for tasks before `awaited`; at kMeeting for the block `awaited`
  kKey,     ///< the key `awaited` of the task names no block
};

struct Failure {
  uint64_t order;  ///< of two failures the one with the lower order counts
  uint64_t task;
  uint64_t awaited;
  Cause cause;
  int32_t place;  ///< the number of the task in the text, or of the place of the walk
  int32_t code;
  int32_t reserved;
};

/// When a task ran, in nanoseconds of `clock_ns`, and where.
struct Span {
  uint64_t begin, end, block;
};

inline constexpr uint64_t kNoLimit = UINT64_MAX, kAccepted = 1, kRefused = 2;
inline constexpr int kMaxPools = 32;

/// The place of the walk where all blocks meet, after they have checked their tasks.
inline constexpr int32_t kMeeting = -1;

/// What the blocks of a launch share, in global memory. There is one counter of each kind, one failure and
/// one monitor per block.
struct Program {
  const Array* arrays;
  const Scalar* symbols;
  uint64_t* limit;         ///< the order of the first failure; kNoLimit before the launch
  uint64_t* completed;     ///< tasks that the block has run; 0 before the launch
  uint64_t* tickets;       ///< tasks that were claimed, per pool; 0 before the launch
  uint64_t* checked;       ///< kAccepted or kRefused after the arguments were checked; 0 before the launch
  uint64_t* flushed;       ///< flush points that were read; 0 before the launch
  uint64_t* done;          ///< the ring of the window; 0 before the launch
  Failure* failures;       ///< zeros before the launch
  Monitor* monitors;       ///< values of failed checks
  uint64_t max_polls;      ///< of one wait, after which the run ends as stuck
  uint64_t window;         ///< tasks of the ring
  Span* spans;             ///< of the tasks before `max_spans`
  uint64_t max_spans;      ///< 0: nothing is recorded
  char* spilled;           ///< memory for tiles, of each block; with any contents
  uint64_t spilled_bytes;  ///< of one block
  /// The first block of each pool. Those after the last pool are the number of blocks.
  uint32_t pools[kMaxPools + 1];
  uint32_t num_pools;
};

/// Tasks by number, from `first` to the one before `end`; none if that is not larger.
struct Tasks {
  uint64_t first = 0, end = 0;
};

/// The last task before `until`, if it was made since `since`.
PTO_DEVICE_INLINE Tasks latest(uint64_t since, uint64_t until) {
  return until > since ? Tasks{until - 1, until} : Tasks{};
}

/// What a block keeps of its walk in shared memory. Thread 0 writes it, and others read it in waits.
struct Board {
  Tasks floor;            ///< all later tasks wait for these
  Tasks until;            ///< what a flush point waits for
  Tasks complete;         ///< tasks from 0 on that are known to be complete
  uint64_t num_complete;  ///< tasks that the block has run
  uint64_t begin;         ///< when the task began
  uint64_t has_ended;
};

/// The run ends because of what one block has found. All its threads call this.
PTO_DEVICE_APART inline void end_run(const Program& program, Board& board, uint64_t order, uint64_t awaited,
                                     Cause cause, int32_t place, int32_t code) {
  if (thread() != 0) return;
  board.has_ended = 1;
  program.failures[block()] = {order, order / 2, awaited, cause, place, code, 0};
  lower_to(program.limit, order);
}

/// Polls until `waits()` is false in all threads. False if the run ends before `order`.
/// \param awaited returns what a failure says is awaited, where the wait takes too long
template <class Awaited, class Waits>
PTO_DEVICE_INLINE bool await(const Program& program, Board& board, uint64_t order, int32_t place,
                             const Awaited& awaited, const Waits& waits) {
  for (uint64_t polls = 0;; ++polls) {
    const bool is_over = thread() == threads() - 1 && acquire(program.limit) <= order;
    if (!any(is_over | waits())) return true;
    if (any(is_over)) return false;
    if (polls == program.max_polls) {
      end_run(program, board, order, awaited(), Cause::kStuck, place, 0);
      return false;
    }
    pause();
  }
}

PTO_DEVICE_INLINE bool is_done(const Program& program, uint64_t number) {
  return acquire(program.done + number % program.window) > number / program.window;
}

/// A row of complete tasks that `tasks` continues: `known`, or none.
PTO_DEVICE_INLINE Tasks continued(const Tasks& known, const Tasks& tasks) {
  return known.first <= tasks.first && known.end >= tasks.first ? known : Tasks{tasks.first, tasks.first};
}

/// Whether a task is not complete, of those that this thread looks at. All threads call it.
/// \param known earlier tasks in one row that are complete; thread 0 adds to it. Or null
/// \param warp the warp that looks first: reads of different warps do not wait for each other
PTO_DEVICE_INLINE bool misses_of(const Program& program, const Tasks& tasks, Tasks* known, int warp) {
  Tasks row = known == nullptr ? Tasks{tasks.first, tasks.first} : continued(*known, tasks);
  const uint64_t before = row.end, step = kBlockThreads;
  const uint64_t own = static_cast<uint64_t>(thread() + warp * kWarp) % kBlockThreads;
  bool misses = false;
  while (row.end + step < tasks.end) {
    misses = any(!is_done(program, row.end + own));
    if (misses) break;
    row.end += step;
  }
  // All threads have read `known` before they met.
  if (row.end > before && known != nullptr && thread() == 0) *known = row;
  return misses || (row.end + own < tasks.end && !is_done(program, row.end + own));
}

/// Waits for tasks; a task also waits for the floor, and for room in the window. False if the run ends before
/// `order`.
/// \param order twice the number of the next task; less 1 for the task that was just numbered
/// \param waits the tasks that are waited for, all of them earlier ones; thread 0 has written them
/// \param known for each of the first `num_known` of `waits`, earlier tasks that are complete, in one row
PTO_DEVICE_APART inline bool wait_for(const Program& program, Board& board, uint64_t order, int32_t place,
                                      const Tasks* waits, int num_waits, Tasks* known, int num_known) {
  const uint64_t number = order / 2;
  const bool is_task = order % 2 != 0, needs_room = is_task && number >= program.window;
  const auto last = [&] {
    uint64_t most = is_task ? board.floor.end : 0;
    for (int k = 0; k < num_waits; ++k) most = waits[k].end > most ? waits[k].end : most;
    return most;
  };
  const auto is_missing = [&] {
    bool misses = is_task && misses_of(program, board.floor, &board.complete, 0);
    if (needs_room) misses |= thread() == kWarp && !is_done(program, number - program.window);
    for (int k = 0; k < num_waits; ++k) {
      misses |= misses_of(program, waits[k], k < num_known ? known + k : nullptr, k);
    }
    return misses;
  };
  sync();
  const bool goes_on = await(program, board, order, place, last, is_missing);
  if (!goes_on || thread() != 0) return goes_on;
  for (int k = 0; k < num_known; ++k) {
    known[k] = continued(known[k], waits[k]);
    if (known[k].end < waits[k].end) known[k].end = waits[k].end;
  }
  if (is_task && board.complete.end < board.floor.end) board.complete.end = board.floor.end;
  return true;
}

}  // namespace pto::wsp::cuda
