// SPDX-License-Identifier: MIT
/// \file
/// The caches of a simulated machine: one that all cores share, and one of each core.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pto/wsp/sim/machine.hpp"
#include "pto/wsp/sim/memory.hpp"
#include "pto/wsp/sim/task.hpp"

namespace pto::wsp::sim {

/// What the transfers of a task move.
struct Moved {
  uint64_t shared_bytes = 0;  ///< between the core and what all cores share
  uint64_t gm_bytes = 0;      ///< of these, past the shared cache
  uint64_t hits = 0;          ///< regions that a cache held
  uint64_t misses = 0;        ///< regions that none held

  /// Cycles until the first byte.
  double latency(const Machine& machine) const {
    if (machine.l2_bytes == 0 || shared_bytes == 0) return 0;
    return machine.l2_hit + (misses > 0 ? machine.l2_miss : 0);
  }
};

class Caches {
 public:
  void begin(const Machine& machine) {
    shared_.begin(machine.l2_bytes);
    own_.clear();
    first_.clear();
    for (const uint32_t count : machine.cores) {
      first_.push_back(uint32_t(own_.size()));
      if (machine.own_bytes > 0) own_.resize(own_.size() + count);
    }
    for (RegionCache& each : own_) each.begin(machine.own_bytes);
  }

  /// Takes a region into the shared cache if it fits, and returns the bytes that the cache did not hold.
  uint64_t fetch(const Use& use) {
    return shared_.fits(use.extent) ? use.extent - shared_.use(use.region, use.extent) : 0;
  }

  /// Moves the regions of a task that starts on a core.
  Moved move(uint32_t kind, uint32_t core, const std::vector<Use>& uses, uint64_t spilled) {
    Moved result;
    result.shared_bytes = spilled;
    if (!shared_.is_there()) result.gm_bytes = spilled;
    for (const Use& use : uses) {
      if (use.is_streamed) {
        forget(use.region);
        result.shared_bytes += use.bytes;
        result.gm_bytes += use.bytes;
        continue;
      }
      const uint64_t own = own_.empty() ? 0 : use_own(first_[kind] + core, use);
      const uint64_t from_shared = bytes_past(own, use);
      if (from_shared == 0) {
        ++result.hits;
        continue;
      }
      result.shared_bytes += from_shared;
      const uint64_t held = shared_.is_there() ? shared_.use(use.region, use.extent) : 0;
      const uint64_t from_gm = bytes_past(std::max(own, held), use);
      ++(from_gm == 0 ? result.hits : result.misses);
      result.gm_bytes += from_gm;
    }
    return result;
  }

 private:
  void forget(uint64_t region) {
    if (shared_.is_there()) shared_.forget(region);
    for (RegionCache& each : own_) each.forget(region);
  }

  /// The bytes of a use that go past a cache which holds the first `held` bytes of its region.
  static uint64_t bytes_past(uint64_t held, const Use& use) {
    if (held == 0) return use.bytes;
    return uint64_t(double(use.bytes) * double(use.extent - held) / double(use.extent));
  }

  /// Uses a region in the cache of a core, and returns the bytes that the cache held. What is stored leaves
  /// the caches of all other cores.
  uint64_t use_own(uint32_t core, const Use& use) {
    for (uint32_t other = 0; use.is_stored && other < own_.size(); ++other) {
      if (other != core) own_[other].forget(use.region);
    }
    return own_[core].use(use.region, use.extent);
  }

  RegionCache shared_;
  std::vector<RegionCache> own_;  ///< of all cores, kind after kind; empty if cores have none
  std::vector<uint32_t> first_;   ///< per kind, the number of its first core
};

}  // namespace pto::wsp::sim
