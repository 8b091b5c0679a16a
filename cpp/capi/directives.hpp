// SPDX-License-Identifier: MIT
/// \file
/// The schedule of a runtime: what its tasks state about the order and the place of their starts.
#pragma once

#include <optional>
#include <unordered_map>

#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/policy.hpp"
#include "pto/wsp/sched/pools.hpp"

namespace pto::wsp::capi {

/// A directive holds from the first task on that states a number for it. One thread uses this.
class Directives {
 public:
  /// Tasks that are compared at a time. The time of a comparison grows with the number of those that wait.
  static constexpr uint64_t kMaxCompared = 1024;

  enum Kind : uint8_t { kOrder, kCost, kAffinity, kNumKinds };

  bool are_stated() const { return are_stated_; }
  bool is_stated(Kind kind) const { return is_stated_[kind]; }
  void begin(Kind kind) { are_stated_ = is_stated_[kind] = true; }

  /// Of tasks with equal keys.
  void set_group(uint32_t workers) { group_workers_ = workers; }

  void state(uint32_t task, Kind kind, int64_t number) { statements_[task].numbers[kind] = number; }

  /// What the engine knows of a task, whose statements are then forgotten.
  sched::Traits take(uint32_t task, uint32_t num_workers) {
    sched::Traits traits;
    const auto found = statements_.find(task);
    if (found == statements_.end()) return traits;
    const auto& numbers = found->second.numbers;
    traits.rank[1] = numbers[kOrder].value_or(0);
    traits.rank.back() = -numbers[kCost].value_or(0);
    if (numbers[kAffinity])
      traits.lane = sched::detail::modulo(*numbers[kAffinity], num_groups(num_workers)) + 1;
    statements_.erase(found);
    return traits;
  }

  /// \pre some are stated
  void apply_to(sched::RunOptions& options) const {
    options.window = kMaxCompared;
    if (is_stated_[kOrder]) options.ready = sched::Ready::kOrdered;
    options.balances = is_stated_[kCost];
    if (is_stated_[kAffinity]) options.num_pools = num_groups(options.workers);
  }

  void clear() { *this = Directives(); }

 private:
  struct Statement {
    std::optional<int64_t> numbers[kNumKinds];
  };

  uint32_t num_groups(uint32_t num_workers) const {
    sched::PolicyOptions options;
    options.pool_size = group_workers_;
    return sched::pools_of(options, num_workers);
  }

  bool are_stated_ = false;
  bool is_stated_[kNumKinds] = {};
  uint32_t group_workers_ = 1;
  std::unordered_map<uint32_t, Statement> statements_;  ///< of tasks that are not submitted
};

}  // namespace pto::wsp::capi
