// SPDX-License-Identifier: MIT
/// \file
/// Rejects options of a run that contradict each other.
#pragma once

#include <algorithm>

#include "pto/wsp/error.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/pools.hpp"

namespace pto::wsp::sched {

inline constexpr uint32_t kMaxWorkers = 1024;
inline constexpr uint32_t kMaxDispatchers = 64;

/// Throws `bad-option` with the name of an option that has no effect or contradicts another. No option is
/// ignored.
inline void check_options(const RunOptions& options) {
  struct Rule {
    bool is_broken;
    const char* option;
    const char* reason;
  };
  const std::vector<uint64_t>& shares = options.pool_shares;
  const auto ascend = [](const auto& bounds) { return std::is_sorted(bounds.begin(), bounds.end()); };
  const Rule rules[] = {
      {options.workers > kMaxWorkers, "workers", "there are 1024 at most"},
      {options.dispatchers > kMaxDispatchers, "dispatchers", "there are 64 at most"},
      {options.window == 0, "window", "there must be room for one task"},
      {!ascend(options.bounds), "bounds", "they must ascend"},
      {options.streams == Streams::kInTurn && options.num_streams == 0, "num_streams", "there are none"},
      {options.turns != 0 && options.ready == Ready::kFifo, "turns", "`ready` decides what starts first"},
      {options.num_pools > kMaxPools, "num_pools", "there are 31 at most"},
      {options.pool_size != 0 && options.num_pools != 0, "pool_size", "it decides the number of pools"},
      {!options.pool_bounds.empty() && options.pool_bounds.size() + 1 != options.num_pools, "pool_bounds",
       "each pool but the first has one"},
      {!ascend(options.pool_bounds), "pool_bounds", "they must ascend"},
      {!shares.empty() && (shares.size() != options.num_pools || !options.pool_bounds.empty()), "pool_shares",
       "each pool has one, and no bounds"},
      {std::find(shares.begin(), shares.end(), 0u) != shares.end(), "pool_shares", "they must be above 0"},
      {options.pools_are_soft && options.num_pools == 0, "pools_are_soft", "there are no pools"},
      {options.balances && options.ready == Ready::kFifo, "balances", "`ready` decides what starts first"},
      {options.has_calendar() && (options.is_scheduled() || options.turns != 0 || options.keeps_graph()),
       "calendar", "another policy decides where or in which order tasks run"},
      {options.has_calendar() && options.waits == Waits::kSymbolic, "calendar", "it has waits of its own"},
      {options.calendar != nullptr && options.calendar->num_cores() != options.workers &&
           !options.is_simulated,
       "workers", "the calendar has another number of workers"},
  };
  for (const Rule& rule : rules) {
    if (rule.is_broken) throw EngineError("bad-option", rule.reason).with("option", std::string(rule.option));
  }
}

}  // namespace pto::wsp::sched
