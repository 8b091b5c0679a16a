// SPDX-License-Identifier: MIT
/// \file
/// Pools: which workers run which tasks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace pto::wsp::sched {

/// The most pools of a run.
inline constexpr uint32_t kMaxPools = 8;

/// Ready slices are queued in lanes: lane 0 for any worker, lane p + 1 for pool p.
inline constexpr uint32_t kAnyLane = 0;
inline constexpr uint32_t kMaxLanes = kMaxPools + 1;

/// A set of lanes, one bit each.
using Lanes = uint32_t;
inline constexpr Lanes kAllLanes = ~Lanes{0};

constexpr bool has_lane(Lanes lanes, uint32_t lane) { return (lanes >> lane & 1) != 0; }

/// The lanes of each worker. Pools are disjoint sets of consecutive workers. A pool without a worker of its
/// own shares one with another pool.
class Pools {
 public:
  /// `bounds` are the first workers of all pools but the first, ascending. If empty, pools are equal.
  void begin(uint32_t num_pools, const std::vector<uint64_t>& bounds, uint32_t num_workers) {
    num_pools_ = num_pools;
    of_worker_.assign(num_workers, Lanes{1} << kAnyLane);
    for (uint32_t pool = 0; pool < num_pools; ++pool) {
      const uint64_t first = begin_of(pool, bounds, num_workers);
      const uint64_t last = begin_of(pool + 1, bounds, num_workers);
      for (uint64_t worker = first; worker < last; ++worker) add(worker, pool);
      if (first == last) add(pool % num_workers, pool);
    }
  }

  uint32_t num_pools() const { return num_pools_; }
  uint32_t num_lanes() const { return num_pools_ + 1; }
  Lanes lanes_of(uint32_t worker) const { return of_worker_[worker]; }

 private:
  uint64_t begin_of(uint32_t pool, const std::vector<uint64_t>& bounds, uint32_t num_workers) const {
    if (pool == 0) return 0;
    if (pool == num_pools_) return num_workers;
    if (bounds.empty()) return uint64_t(num_workers) * pool / num_pools_;
    return std::min<uint64_t>(bounds[pool - 1], num_workers);
  }

  void add(uint64_t worker, uint32_t pool) { of_worker_[worker] |= Lanes{1} << (pool + 1); }

  uint32_t num_pools_ = 0;
  std::vector<Lanes> of_worker_;
};

}  // namespace pto::wsp::sched
