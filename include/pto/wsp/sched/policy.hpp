// SPDX-License-Identifier: MIT
/// \file
/// Applies a schedule to the tasks of a walk: owner, priority, lane and batch of each task. Dispatchers and
/// the builder of kept graphs ask the same policy.
#pragma once

#include <algorithm>
#include <array>
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

/// Where a strand comes among those that can start: the lesser rank goes first. The first number is that of
/// the values which take turns at a time. The keys of an order follow, and last the predicted time, negative.
using Rank = std::array<int64_t, 2 + bytecode::kMaxOrderKeys>;

/// A strand ends where one of these changes.
struct Traits {
  uint32_t owner = kNoOwner;
  Rank rank{};
  uint32_t lane = kAnyLane;  ///< the workers that may run it: see pools.hpp
  uint64_t batch = 0;        ///< number of its batch
  uint64_t admission = 0;    ///< number of the value that it is admitted with; 0 = it needs none

  bool operator!=(const Traits& other) const {
    return owner != other.owner || lane != other.lane || batch != other.batch ||
           admission != other.admission || rank != other.rank;
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

/// The cost that a task states, or else the number of elements in its regions.
inline int64_t predicted_cost(const bytecode::Plan& plan, const bytecode::QuickSite& site,
                              const int64_t* registers) {
  if (site.cost.is_given) return plan.evaluate(site.cost.value, registers);
  int64_t elements = 0;
  for (uint32_t i = site.first_io; i < site.first_io + site.num_io; ++i) {
    const bytecode::QuickIo& io = plan.ios[i];
    int64_t volume = 1;
    for (uint32_t d = io.first_dim; d < io.first_dim + io.rank; ++d) {
      if (plan.dims[d].op != bytecode::Op::DIM_MERGED)
        volume *= plan.evaluate(plan.dims[d].extent, registers);
    }
    elements += volume;
  }
  return elements;
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
  const bytecode::QuickAmount& key = site.mark(bytecode::Mark::kStream);
  if (options.streams == Streams::kOff || (is_by_key && !key.is_given)) return {};
  const int64_t stream = is_by_key ? plan.evaluate(key.value, registers) : int64_t(task);
  return options.num_streams != 0 ? detail::modulo(stream, options.num_streams) : stream;
}

/// Values of a key that take turns: those that begin first go first, a fixed number at a time, and of these
/// the task with the fewest before it of its value.
class Turns {
 public:
  void begin(uint64_t values_at_a_time) {
    values_at_a_time_ = int64_t(values_at_a_time);
    values_.clear();
  }

  struct Place {
    int64_t group;     ///< of values that take turns
    int64_t position;  ///< in its value, from 1 on
  };

  /// The place of the next task, which is of `value`.
  Place next(int64_t value) {
    const auto group = int64_t(values_.size()) / values_at_a_time_;
    Place& next = values_.try_emplace(value, Place{group, 0}).first->second;
    ++next.position;
    return next;
  }

 private:
  int64_t values_at_a_time_ = 1;
  std::unordered_map<int64_t, Place> values_;  ///< of the latest task of each
};

/// Numbers the values of a key in program order, from 1 on. A value that follows another one has a new
/// number.
class ValueNumbers {
 public:
  uint64_t next(int64_t value) {
    if (number_ == 0 || value != latest_) ++number_;
    latest_ = value;
    return number_;
  }

 private:
  uint64_t number_ = 0;
  int64_t latest_ = 0;
};

/// The traits of task number `task` of `site`.
inline Traits traits_of(const bytecode::Plan& plan, const PolicyOptions& options, uint32_t num_dispatchers,
                        const bytecode::QuickSite& site, const int64_t* registers, uint64_t task) {
  Traits traits;
  const auto& key = site.mark(bytecode::Mark::kKey);
  traits.owner = detail::owner_of(plan, options, num_dispatchers, key, registers, task);
  for (uint32_t i = 0; options.ready == Ready::kOrdered && i < bytecode::kMaxOrderKeys; ++i) {
    const bytecode::QuickAmount& order = site.order_key(i);
    if (order.is_given) traits.rank[i + 1] = plan.evaluate(order.value, registers);
  }
  if (options.balances) traits.rank.back() = -detail::predicted_cost(plan, site, registers);
  traits.lane = detail::lane_of(plan, options, site.mark(bytecode::Mark::kPool), registers);
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
    turns_.begin(options.turns);
    num_tasks_ = 0;
    admitted_ = {};
    begins_batch_ = begins_admission_ = false;
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
    if (options_->turns != 0) take_turn(site, registers, traits);
    if (options_->in_flight != 0) admit(site, registers, traits);
    begins_batch_ = traits.batch != traits_.batch;
    begins_admission_ = traits.admission != traits_.admission;
    const bool is_other = traits != traits_;
    traits_ = traits;
    return is_other;
  }

  /// Whether the task is the first one of another batch.
  bool begins_batch() const { return begins_batch_; }
  /// Whether the task is admitted with another value than the one before it, or needs no admission.
  bool begins_admission() const { return begins_admission_; }

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
  void take_turn(const bytecode::QuickSite& site, const int64_t* registers, Traits& traits) {
    const bytecode::QuickAmount& value = site.mark(bytecode::Mark::kTurn);
    if (!value.is_given) return;
    const Turns::Place place = turns_.next(plan_->evaluate(value.value, registers));
    traits.rank[0] = place.group;
    if (options_->ready != Ready::kOrdered) traits.rank[1] = place.position;
  }

  /// A value is admitted again where it follows another one.
  void admit(const bytecode::QuickSite& site, const int64_t* registers, Traits& traits) {
    const bytecode::QuickAmount& value = site.mark(bytecode::Mark::kAdmit);
    if (value.is_given) traits.admission = admitted_.next(plan_->evaluate(value.value, registers));
  }

  const bytecode::Plan* plan_ = nullptr;
  const PolicyOptions* options_ = nullptr;
  uint32_t num_dispatchers_ = 1;
  bool cuts_units_ = false;
  Traits traits_;
  Turns turns_;
  uint64_t num_tasks_ = 0;  ///< up to the task that `traits_` are of
  ValueNumbers admitted_;
  bool begins_batch_ = false;
  bool begins_admission_ = false;
};

/// Whether of two strands or slices that can start the one of `a` starts first: by rank, then in program
/// order.
inline bool starts_before(const Rank& rank_a, uint64_t number_a, const Rank& rank_b, uint64_t number_b) {
  return rank_a != rank_b ? rank_a < rank_b : number_a < number_b;
}

}  // namespace pto::wsp::sched
