// SPDX-License-Identifier: MIT
/// \file
/// Pools: which workers run which tasks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "pto/wsp/sched/options.hpp"

namespace pto::wsp::sched {

/// The most pools of a run: as many lanes, and one more, fit a set of lanes.
inline constexpr uint32_t kMaxPools = 31;

/// Ready slices are queued in lanes: lane 0 for any worker, lane p + 1 for pool p.
inline constexpr uint32_t kAnyLane = 0;
inline constexpr uint32_t kMaxLanes = kMaxPools + 1;

/// A set of lanes, one bit each.
using Lanes = uint32_t;
inline constexpr Lanes kAllLanes = ~Lanes{0};

constexpr bool has_lane(Lanes lanes, uint32_t lane) { return (lanes >> lane & 1) != 0; }

namespace detail {

/// Divides workers by shares, each as near to its proportion as can be, but not 0 where there are enough
/// workers. Returns the first worker of each pool but the first.
inline std::vector<uint64_t> divide(const std::vector<uint64_t>& shares, uint32_t num_workers) {
  const double total = double(std::accumulate(shares.begin(), shares.end(), uint64_t{0}));
  const size_t num_pools = shares.size();
  std::vector<uint64_t> workers(num_pools, num_workers < num_pools ? 0 : 1);
  const auto lacks = [&](size_t pool) {
    return double(shares[pool]) / total * num_workers - double(workers[pool]);
  };
  for (uint64_t given = num_workers < num_pools ? 0 : num_pools; given < num_workers; ++given) {
    size_t next = 0;
    for (size_t pool = 1; pool < num_pools; ++pool) next = lacks(pool) > lacks(next) ? pool : next;
    ++workers[next];
  }
  std::partial_sum(workers.begin(), workers.end(), workers.begin());
  workers.pop_back();
  return workers;
}

}  // namespace detail

/// The number of pools that `num_workers` workers make: it follows from the size of groups if one is given.
/// Groups are larger where there would be too many.
inline uint32_t pools_of(const PolicyOptions& options, uint32_t num_workers) {
  if (options.pool_size == 0) return options.num_pools;
  return std::clamp(num_workers / options.pool_size, 1u, kMaxPools);
}

/// The first worker of each pool but the first, for a number of workers; empty if pools are equal.
inline std::vector<uint64_t> bounds_of_pools(const PolicyOptions& options, uint32_t num_workers) {
  return options.pool_shares.empty() ? options.pool_bounds : detail::divide(options.pool_shares, num_workers);
}

/// The lanes of each worker. Pools are disjoint sets of consecutive workers. A pool without a worker of its
/// own shares one with another pool. A worker of soft pools prefers the lanes of its own.
class Pools {
 public:
  void begin(const PolicyOptions& options, uint32_t num_workers) {
    num_pools_ = options.num_pools;
    is_soft_ = options.pools_are_soft;
    own_.assign(num_workers, Lanes{1} << kAnyLane);
    num_workers_.clear();
    const std::vector<uint64_t> bounds = bounds_of_pools(options, num_workers);
    for (uint32_t pool = 0; pool < num_pools_; ++pool) {
      const uint64_t first = begin_of(pool, bounds, num_workers);
      const uint64_t last = begin_of(pool + 1, bounds, num_workers);
      for (uint64_t worker = first; worker < last; ++worker) add(worker, pool);
      if (first == last) add(pool % num_workers, pool);
      num_workers_.push_back(std::max<uint64_t>(last - first, 1));
    }
  }

  uint32_t num_pools() const { return num_pools_; }
  uint32_t num_lanes() const { return num_pools_ + 1; }
  /// The lanes that a worker takes slices from.
  Lanes lanes_of(uint32_t worker) const { return is_soft_ ? kAllLanes : own_[worker]; }
  /// Of some lanes of a worker, those that it looks at first.
  Lanes preferred(uint32_t worker) const { return own_[worker]; }
  bool is_soft() const { return is_soft_; }
  /// Per pool.
  const std::vector<uint64_t>& num_workers() const { return num_workers_; }

 private:
  uint64_t begin_of(uint32_t pool, const std::vector<uint64_t>& bounds, uint32_t num_workers) const {
    if (pool == 0) return 0;
    if (pool == num_pools_) return num_workers;
    if (bounds.empty()) return uint64_t(num_workers) * pool / num_pools_;
    return std::min<uint64_t>(bounds[pool - 1], num_workers);
  }

  void add(uint64_t worker, uint32_t pool) { own_[worker] |= Lanes{1} << (pool + 1); }

  uint32_t num_pools_ = 0;
  bool is_soft_ = false;
  std::vector<Lanes> own_;  ///< per worker
  std::vector<uint64_t> num_workers_;
};

}  // namespace pto::wsp::sched
