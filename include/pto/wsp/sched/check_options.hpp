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
  const bool takes_turns = options.interleaved != 0;
  const auto ascend = [](const auto& bounds) { return std::is_sorted(bounds.begin(), bounds.end()); };
  const Rule rules[] = {
      {options.workers > kMaxWorkers, "workers", "there are 1024 at most"},
      {options.dispatchers > kMaxDispatchers, "dispatchers", "there are 64 at most"},
      {options.window == 0, "window", "there must be room for one task"},
      {!ascend(options.bounds), "bounds", "they must ascend"},
      {options.streams == Streams::kInTurn && options.num_streams == 0, "num_streams", "there are none"},
      {takes_turns && options.streams == Streams::kOff, "interleaved", "there are no streams to take turns"},
      {takes_turns && options.ready != Ready::kOwn, "interleaved", "`ready` decides what starts first"},
      {options.num_pools > kMaxPools, "num_pools", "there are 8 at most"},
      {!options.pool_bounds.empty() && options.pool_bounds.size() + 1 != options.num_pools, "pool_bounds",
       "each pool but the first has one"},
      {!ascend(options.pool_bounds), "pool_bounds", "they must ascend"},
  };
  for (const Rule& rule : rules) {
    if (rule.is_broken) throw EngineError("bad-option", rule.reason).with("option", std::string(rule.option));
  }
}

}  // namespace pto::wsp::sched
