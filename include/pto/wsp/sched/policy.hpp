// SPDX-License-Identifier: MIT
/// \file
/// Applies a schedule to the tasks of a walk: owner, priority, lane and batch of each task. Dispatchers and
/// the builder of kept graphs ask the same policy.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/pools.hpp"
#include "pto/wsp/sched/random.hpp"

namespace pto::wsp::sched {

/// The owner of a strand that the first dispatcher claims.
inline constexpr uint32_t kNoOwner = UINT32_MAX;

/// A strand ends where one of these changes.
struct Traits {
  uint32_t owner = kNoOwner;
  int64_t priority = 0;
  uint32_t lane = kAnyLane;  ///< the workers that may run it: see pools.hpp
  uint64_t batch = 0;        ///< number of its batch

  bool operator!=(const Traits& other) const {
    return owner != other.owner || priority != other.priority || lane != other.lane || batch != other.batch;
  }
};

namespace detail {

inline uint32_t modulo(int64_t value, uint32_t n) {
  const int64_t rest = value % int64_t(n);
  return uint32_t(rest < 0 ? rest + n : rest);
}

inline uint32_t owner_of(const bytecode::Plan& plan, const PolicyOptions& options, uint32_t num_dispatchers,
                         const bytecode::QuickAmount& key, const int64_t* registers, uint64_t task) {
  if (options.ownership == Ownership::kPartition) {
    const auto part = std::upper_bound(options.bounds.begin(), options.bounds.end(), task);
    return uint32_t(part - options.bounds.begin()) % num_dispatchers;
  }
  if (!key.is_given || (options.ownership != Ownership::kKey && options.ownership != Ownership::kHash))
    return kNoOwner;
  const int64_t value = plan.evaluate(key.value, registers);
  if (options.ownership == Ownership::kHash) return Random(uint64_t(value)).next() % num_dispatchers;
  return modulo(value, num_dispatchers);
}

inline uint32_t lane_of(const bytecode::Plan& plan, const PolicyOptions& options,
                        const bytecode::QuickAmount& pool, const int64_t* registers) {
  if (options.num_pools == 0 || !pool.is_given) return kAnyLane;
  return modulo(plan.evaluate(pool.value, registers), options.num_pools) + 1;
}

}  // namespace detail

/// Returns the stream of task number `task` of `site`, if it has one.
inline std::optional<int64_t> stream_of(const bytecode::Plan& plan, const PolicyOptions& options,
                                        const bytecode::QuickSite& site, const int64_t* registers,
                                        uint64_t task) {
  const bool is_by_key = options.streams == Streams::kByKey;
  if (options.streams == Streams::kOff || (is_by_key && !site.stream.is_given)) return {};
  const int64_t stream = is_by_key ? plan.evaluate(site.stream.value, registers) : int64_t(task);
  return options.num_streams != 0 ? detail::modulo(stream, options.num_streams) : stream;
}

/// Priorities by which streams take turns. A fixed number of streams takes turns at a time, earlier streams
/// first. Among them the task with the lowest position in its stream goes first.
class Turns {
 public:
  void begin(uint64_t streams_at_a_time) {
    streams_at_a_time_ = int64_t(streams_at_a_time);
    streams_.clear();
  }

  /// The priority of the next task, a task of `stream`.
  int64_t next(int64_t stream) {
    const auto rank = int64_t(streams_.size());
    Stream& found = streams_.try_emplace(stream, Stream{rank, 0}).first->second;
    return priority_of(found.rank / streams_at_a_time_, ++found.num_tasks);
  }

  /// The priority of the task at `position` in its stream, in turn number `turn`. Priorities saturate beyond
  /// bounds that no run reaches.
  static int64_t priority_of(int64_t turn, int64_t position) {
    return -(std::min(turn, kMaxTurn) << kPositionBits | std::min(position, kMaxPosition));
  }

 private:
  static constexpr int kPositionBits = 36;
  static constexpr int64_t kMaxPosition = (int64_t{1} << kPositionBits) - 1;
  static constexpr int64_t kMaxTurn = (int64_t{1} << (63 - kPositionBits)) - 1;

  struct Stream {
    int64_t rank;       ///< streams that began before it
    int64_t num_tasks;  ///< so far
  };

  int64_t streams_at_a_time_ = 1;
  std::unordered_map<int64_t, Stream> streams_;
};

/// The traits of task number `task` of `site`.
inline Traits traits_of(const bytecode::Plan& plan, const PolicyOptions& options, uint32_t num_dispatchers,
                        const bytecode::QuickSite& site, const int64_t* registers, uint64_t task) {
  Traits traits;
  traits.owner = detail::owner_of(plan, options, num_dispatchers, site.key, registers, task);
  if (options.ready == Ready::kPriority && site.priority.is_given)
    traits.priority = plan.evaluate(site.priority.value, registers);
  traits.lane = detail::lane_of(plan, options, site.pool, registers);
  if (options.batch != 0) traits.batch = task / options.batch;
  return traits;
}

/// The policies of one walk.
class Policy {
 public:
  /// Begins a walk whose strands `num_dispatchers` dispatchers share.
  void begin(const bytecode::Plan& plan, const PolicyOptions& options, uint32_t num_dispatchers) {
    plan_ = &plan;
    options_ = &options;
    num_dispatchers_ = num_dispatchers;
    cuts_units_ = options.cuts_units();
    traits_ = {};
    turns_.begin(options.interleaved);
    num_tasks_ = 0;
    begins_batch_ = false;
  }

  /// Whether strands end where the traits of tasks change.
  bool cuts_units() const { return cuts_units_; }

  /// Finds the traits of the latest task of the expander. Returns true if they differ from those of the
  /// previous task.
  bool note(uint32_t site_index, const bytecode::Expander& expander) {
    if (num_tasks_ == expander.num_tasks()) return false;
    num_tasks_ = expander.num_tasks();
    const bytecode::QuickSite& site = plan_->sites[site_index];
    const int64_t* registers = expander.registers();
    Traits traits = traits_of(*plan_, *options_, num_dispatchers_, site, registers, num_tasks_ - 1);
    if (options_->interleaved != 0) {
      const auto stream = stream_of(*plan_, *options_, site, registers, num_tasks_ - 1);
      if (stream) traits.priority = turns_.next(*stream);
    }
    begins_batch_ = traits.batch != traits_.batch;
    const bool is_other = traits != traits_;
    traits_ = traits;
    return is_other;
  }

  /// Whether the task is the first one of another batch.
  bool begins_batch() const { return begins_batch_; }

  /// The traits of a strand that begins with the task. `num_strands` strands come before it.
  Traits strand_traits(uint64_t num_strands) const {
    Traits traits = traits_;
    if (options_->ownership == Ownership::kRoundRobin)
      traits.owner = uint32_t(num_strands % num_dispatchers_);
    return traits;
  }
  /// \pre the strand has begun
  const Traits& traits() const { return traits_; }

 private:
  const bytecode::Plan* plan_ = nullptr;
  const PolicyOptions* options_ = nullptr;
  uint32_t num_dispatchers_ = 1;
  bool cuts_units_ = false;
  Traits traits_;
  Turns turns_;
  uint64_t num_tasks_ = 0;  ///< up to the task that `traits_` are of
  bool begins_batch_ = false;
};

/// Whether strand or slice a starts before b: by priority, then in program order.
inline bool starts_before(int64_t priority_a, uint64_t number_a, int64_t priority_b, uint64_t number_b) {
  return priority_a != priority_b ? priority_a > priority_b : number_a < number_b;
}

}  // namespace pto::wsp::sched
