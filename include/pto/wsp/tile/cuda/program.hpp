// SPDX-License-Identifier: MIT
/// \file
/// A program that the blocks of one launch run themselves.
///
/// Every block walks the program and numbers its tasks in program order. A block runs its tasks in this
/// order: those that it claims by ticket, or those that the schedule gives it. It passes over iterations
/// without tasks of its own, where all iterations of a loop make equally many tasks. With a window of W
/// tasks, task n is complete when element n mod W of a ring exceeds n / W, and begins after task n - W: waits
/// need memory for the window alone. Each wait is for earlier tasks, so the oldest task that is not complete
/// can always run, if all blocks of the launch are resident.
#pragma once

#include "pto/wsp/tile/cuda/waits.hpp"

namespace pto::wsp::cuda {

/// The part of a tensor that an argument of a task is. Its dimensions are described in order.
class Part {
 public:
  PTO_DEVICE_INLINE explicit Part(const Array& array) : array_(array) {
    for (int d = 0; d < kMaxViewRank; ++d) {
      view_.shape[d] = 1;
      view_.stride[d] = 0;
    }
    view_.rows = nullptr;
    view_.streams = false;
  }

  PTO_DEVICE_INLINE void full() { keep(array_.shape[dim_], array_.stride[dim_]); }
  PTO_DEVICE_INLINE void index(int64_t at) {
    failed_ |= !inside(at, 1, array_.shape[dim_]);
    offset_ += at * array_.stride[dim_++];
  }
  PTO_DEVICE_INLINE void range(int64_t start, int64_t extent) {
    failed_ |= extent < 0 || !inside(start, extent, array_.shape[dim_]);
    offset_ += start * array_.stride[dim_];
    keep(extent, array_.stride[dim_]);
  }
  /// The rows that elements [start, start + extent) of a list name, which count over this dimension and
  /// `merged` ones after it together.
  PTO_DEVICE_INLINE void rows(const Array& list, int64_t start, int64_t extent, int merged) {
    failed_ |= extent < 0 || !inside(start, extent, list.shape[0]) || (extent > 1 && list.stride[0] != 1);
    view_.rows = static_cast<const int32_t*>(list.data) + start * list.stride[0];
    limit_ = array_.shape[dim_];
    for (; merged > 0; --merged, ++dim_) {
      const bool is_dense = array_.stride[dim_] == array_.stride[dim_ + 1] * array_.shape[dim_ + 1];
      failed_ |= array_.shape[dim_] > 1 && !is_dense;
      limit_ *= array_.shape[dim_ + 1];
    }
    keep(extent, array_.stride[dim_]);
  }
  /// An extent of the view lies in [least, most].
  PTO_DEVICE_INLINE void fits(int kept, int64_t least, int64_t most) {
    failed_ |= view_.shape[kept] < least || view_.shape[kept] > most;
  }

  PTO_DEVICE_INLINE const View& view(int64_t element_bytes) {
    view_.data = static_cast<char*>(array_.data) + offset_ * element_bytes;
    return view_;
  }
  PTO_DEVICE_INLINE bool failed() const { return failed_; }
  PTO_DEVICE_INLINE const int32_t* list() const { return view_.rows; }
  PTO_DEVICE_INLINE int64_t num_rows() const { return view_.shape[0]; }
  /// What the numbers of its list are less than.
  PTO_DEVICE_INLINE int64_t limit() const { return limit_; }

 private:
  PTO_DEVICE_INLINE void keep(int64_t extent, int64_t stride) {
    view_.shape[kept_] = extent;
    view_.stride[kept_++] = stride;
    ++dim_;
  }

  const Array& array_;
  View view_;
  int64_t offset_ = 0, limit_ = 0;
  int dim_ = 0, kept_ = 0;
  bool failed_ = false;
};

/// A number modulo a positive one, as in Python.
PTO_DEVICE_INLINE int64_t modulo(int64_t a, int64_t b) {
  const int64_t rest = a % b;
  return rest < 0 ? rest + b : rest;
}

/// The walk of one block. All threads of the block make the same calls.
/// \tparam kRuns whether tasks run; otherwise their arguments are checked, up to the first flush point
template <bool kRuns>
class Run {
 public:
  /// \param board zeros
  /// \param scratch the rest of shared memory
  PTO_DEVICE_INLINE Run(const Program& program, Board& board, void* scratch)
      : program_(program), board_(board) {
    context_.scratch = scratch;
    context_.workspace = program.spilled + block() * program.spilled_bytes;
    context_.workspace_bytes = program.spilled_bytes;
    context_.monitor = program.monitors + block();
    while (pool_ + 1 < kMaxPools && block() >= program.pools[pool_ + 1]) ++pool_;
  }

  PTO_DEVICE_INLINE const Array& array(int i) const { return program_.arrays[i]; }
  PTO_DEVICE_INLINE const Scalar& symbol(int i) const { return program_.symbols[i]; }

  /// The number of the next task.
  PTO_DEVICE_INLINE uint64_t next() const { return next_; }
  /// Notes the number of the next task, or another one, which thread 0 alone reads.
  PTO_DEVICE_INLINE void note(uint64_t& moment) { note(moment, next_); }
  PTO_DEVICE_INLINE void note(uint64_t& moment, const uint64_t& number) {
    if (kRuns && thread() == 0) moment = number;
  }

  /// Iterations of a loop that a block passes over: those without tasks of its own, except for the last one,
  /// and for the one before its own, to which later tasks refer.
  /// \tparam kClaims whether blocks claim tasks; otherwise they take turns
  /// \param per tasks of each iteration; 0 if that has no value
  /// \param left iterations from the current one on
  template <bool kClaims>
  PTO_DEVICE_INLINE int64_t skip(uint64_t per, int64_t left) {
    if (per == 0) return 0;
    const uint64_t others = (kRuns && kClaims ? claimed(0) : turn()) - next_;
    if (others < 2 * per) return 0;
    const uint64_t until = others / per, most = static_cast<uint64_t>(left);
    const uint64_t skipped = (until < most ? until : most) - 1;
    next_ += skipped * per;
    return static_cast<int64_t>(skipped);
  }

  // Each of these numbers a task, and returns whether this block runs it. While arguments are checked, blocks
  // take turns.

  PTO_DEVICE_INLINE bool takes_turn() { return turn() == next_++; }
  /// The task is for a block by its number.
  PTO_DEVICE_INLINE bool takes_of(int64_t owner) {
    return !kRuns ? takes_turn() : (++next_, modulo(owner, blocks()) == block());
  }
  /// The tasks before the first bound are for block 0, those before the second one for block 1, ...
  template <int kBounds>
  PTO_DEVICE_INLINE bool takes_part(const uint64_t (&bounds)[kBounds]) {
    int64_t owner = 0;
    for (int k = 0; k < kBounds; ++k) owner += bounds[k] <= next_;
    return takes_of(owner);
  }
  /// The task is for the block that claims it.
  PTO_DEVICE_INLINE bool claims() {
    if constexpr (!kRuns) return takes_turn();
    has_ticket_ = claimed(0) != next_++;
    return !has_ticket_;
  }
  /// The task is for the block that claims it, of the pool with the number of its key.
  PTO_DEVICE bool claims_of(int64_t key) {
    if constexpr (!kRuns) return takes_turn();
    ++next_;
    const int pool = static_cast<int>(modulo(key, program_.num_pools));
    if (pool != pool_) return false;
    has_ticket_ = claimed(pool) != num_in_pool_++;
    return !has_ticket_;
  }

  /// The key of the task that comes next names no block.
  PTO_DEVICE_INLINE void refuse_key(int32_t site, int64_t key) {
    end(2 * next_, static_cast<uint64_t>(key), Cause::kKey, site, 0);
  }

  /// The expression at a place of the walk has no value.
  PTO_DEVICE_INLINE void fail(int32_t place) { end(2 * next_, 0, Cause::kWalk, place, 0); }
  /// An argument of the task that was just numbered is refused.
  PTO_DEVICE_INLINE void refuse(int32_t site, int32_t argument) {
    end(2 * next_ - 1, 0, Cause::kRegion, site, argument);
  }

  /// Waits before the task that was just numbered. False if the run ends before this task.
  PTO_DEVICE_INLINE bool wait(int32_t site, const Tasks* waits, int num_waits, Tasks* known, int num_known) {
    if (!wait_for(program_, board_, 2 * next_ - 1, site, waits, num_waits, known, num_known)) return false;
    if (next_ <= program_.max_spans && thread() == 0) board_.begin = clock_ns();
    return true;
  }

  /// Waits until all blocks have read the flush points so far: their elements may then be written.
  PTO_DEVICE bool wait_for_readers(int32_t site) {
    const auto waits = [&] {
      bool found = false;
      PTO_EACH(b, blocks()) found |= acquire(program_.flushed + b) < num_flushed_;
      return found;
    };
    return await(program_, board_, 2 * next_ - 1, site, [&] { return next_; }, waits);
  }

  /// Waits for the tasks of `Board::until`, whose results decide how the walk goes on.
  PTO_DEVICE_INLINE bool wait_for_flush(int32_t place) {
    return wait_for(program_, board_, 2 * next_, place, &board_.until, 1, &board_.complete, 1);
  }
  /// The elements of a flush point were read.
  PTO_DEVICE void flush() {
    sync();
    ++num_flushed_;
    if (thread() == 0) release(program_.flushed + block(), num_flushed_);
  }

  /// Whether all numbers of the list of a part name a row.
  /// \tparam kDiffer whether each must name another row
  template <bool kDiffer>
  PTO_DEVICE bool names_rows(const Part& part) {
    const int32_t* rows = part.list();
    bool is_bad = false, falls = false;
    PTO_EACH(k, part.num_rows()) {
      is_bad |= rows[k] < 0 || rows[k] >= part.limit();
      falls |= kDiffer && k > 0 && rows[k] <= rows[k - 1];
    }
    if (any(is_bad)) return false;
    if constexpr (kDiffer) {
      if (!any(falls)) return true;
      PTO_EACH(k, part.num_rows()) {
        for (int64_t j = 0; j < k; ++j) is_bad |= rows[j] == rows[k];
      }
      return !any(is_bad);
    }
    return true;
  }

  /// What a kernel finds around it, in one of its instances.
  PTO_DEVICE const TaskContext* context(uint32_t instance, uint32_t instances) {
    context_.task = next_ - 1;
    context_.block_idx = instance;
    context_.block_num = instances;
    return &context_;
  }

  /// An instance of the task that was just numbered returned `code`; false if the run ends here.
  PTO_DEVICE bool returned(int32_t site, int32_t code) {
    finish_copies();
    sync();
    if (code == 0) return true;
    end(2 * next_ - 1, 0, Cause::kCheck, site, code);
    return false;
  }
  /// The task that was just numbered is complete.
  PTO_DEVICE void complete() {
    if (thread() != 0) return;
    const uint64_t number = next_ - 1;
    if (number < program_.max_spans) program_.spans[number] = {board_.begin, clock_ns(), block()};
    count(program_.completed + block(), ++board_.num_complete);
    release(program_.done + number % program_.window, number / program_.window + 1);
  }

  /// Waits until all blocks have checked their tasks. False if one has refused something, or does not come.
  /// A run that another block has begun may have failed already: that does not count here.
  PTO_DEVICE bool meet() {
    sync();
    if (thread() == 0) release(program_.checked + block(), board_.has_ended != 0 ? kRefused : kAccepted);
    bool is_refused = false;
    const auto missing = [&] {
      uint32_t b = 0;
      while (b < blocks() && acquire(program_.checked + b) != 0) ++b;
      return uint64_t{b};
    };
    const auto waits = [&] {
      bool found = false;
      is_refused = false;
      PTO_EACH(b, blocks()) {
        const uint64_t said = acquire(program_.checked + b);
        found |= said == 0;
        is_refused |= said == kRefused;
      }
      return found;
    };
    return await(program_, board_, 0, kMeeting, missing, waits) && !any(is_refused);
  }

 private:
  /// The number, in its pool, of the next task that this block claims.
  PTO_DEVICE_INLINE uint64_t claimed(int pool) {
    if (!has_ticket_) ticket_ = broadcast(thread() == 0 ? take_ticket(program_.tickets + pool) : 0);
    has_ticket_ = true;
    return ticket_;
  }
  /// The number of the next task that is this block's by turn.
  PTO_DEVICE_INLINE uint64_t turn() {
    if (turn_ < next_) turn_ = next_ + (block() + blocks() - next_ % blocks()) % blocks();
    return turn_;
  }

  PTO_DEVICE_INLINE void end(uint64_t order, uint64_t awaited, Cause cause, int32_t place, int32_t code) {
    end_run(program_, board_, order, awaited, cause, place, code);
  }

  const Program& program_;
  Board& board_;
  TaskContext context_;
  uint64_t next_ = 0, num_flushed_ = 0, ticket_ = 0, turn_ = block(), num_in_pool_ = 0;
  int pool_ = 0;
  bool has_ticket_ = false;
};

/// The iterations of a loop over tiles of `tile` elements.
PTO_DEVICE_INLINE uint64_t num_iterations(int64_t extent, int64_t tile) {
  return extent > 0 ? static_cast<uint64_t>((extent - 1) / tile + 1) : 0;
}

/// The number of the task after the first `count` iterations of a loop, from its first task, the tasks of an
/// iteration, and the task after it.
PTO_DEVICE_INLINE uint64_t after_iterations(uint64_t begin, uint64_t per, int64_t count, uint64_t end) {
  const uint64_t after = begin + (count > 0 ? static_cast<uint64_t>(count) * per : 0);
  return after < end ? after : end;
}

namespace scalar {

PTO_DEVICE_INLINE int64_t b1(int64_t a, bool&) { return a != 0; }
/// `a`, unless it lies outside [0, limit].
PTO_DEVICE_INLINE int64_t within(int64_t a, int64_t limit, bool& failed) {
  failed |= a < 0 || a > limit;
  return a;
}

/// The element of a tensor that decides what runs; outside of it, or of i64, is a failure.
template <class T, class... Indices>
PTO_DEVICE_INLINE int64_t element(const Array& array, bool& failed, Indices... indices) {
  const int64_t at[] = {indices...};
  int64_t offset = 0;
  for (int d = 0; d < static_cast<int>(sizeof...(indices)); ++d) {
    if (at[d] < 0 || at[d] >= array.shape[d]) {
      failed = true;
      return 0;
    }
    offset += at[d] * array.stride[d];
  }
  const T value = static_cast<const volatile T*>(array.data)[offset];
  failed |= sizeof(T) == 8 && T(-1) > T(0) && static_cast<int64_t>(value) < 0;
  return static_cast<int64_t>(value);
}

}  // namespace scalar

}  // namespace pto::wsp::cuda
