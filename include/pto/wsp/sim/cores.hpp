// SPDX-License-Identifier: MIT
/// \file
/// The cores of a simulated machine, and the ready tasks that wait for them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

#include "pto/wsp/sched/policy.hpp"
#include "pto/wsp/sched/pools.hpp"
#include "pto/wsp/sim/machine.hpp"

namespace pto::wsp::sim {

/// A set of cores, by number.
class CoreSet {
 public:
  void begin(uint32_t count) { words_.assign(count / 64 + 1, 0); }
  bool is_empty() const {
    return std::all_of(words_.begin(), words_.end(), [](uint64_t word) { return word == 0; });
  }
  void add(uint32_t core) { words_[core / 64] |= uint64_t{1} << core % 64; }
  void remove(uint32_t core) { words_[core / 64] &= ~(uint64_t{1} << core % 64); }
  /// \pre it is not empty
  uint32_t lowest() const {
    uint32_t word = 0;
    while (words_[word] == 0) ++word;
    return 64 * word + uint32_t(__builtin_ctzll(words_[word]));
  }

 private:
  std::vector<uint64_t> words_;
};

/// Cores by kind and pool. Each pool of a schedule has an equal share of every kind.
class Cores {
 public:
  void begin(const Machine& machine, const sched::PolicyOptions& options) {
    num_pools_ = std::max(1u, options.num_pools);
    const auto num_kinds = uint32_t(machine.cores.size());
    idle_.assign(num_kinds * num_pools_, {});
    for (uint32_t i = 0; i < idle_.size(); ++i) idle_[i].begin(machine.cores[i / num_pools_]);
    home_.clear();
    pool_of_.assign(num_kinds, {});
    num_idle_.assign(num_kinds, 0);
    for (uint32_t kind = 0; kind < num_kinds; ++kind) {
      const uint32_t count = machine.cores[kind];
      const std::vector<uint64_t> bounds = sched::bounds_of_pools(options, count);
      for (uint32_t core = 0; core < count; ++core) {
        const uint32_t pool = pool_of(core, count, bounds);
        pool_of_[kind].push_back(pool);
        give_back(kind, core);
      }
      find_homes(kind);
    }
  }

  uint32_t num_idle(uint32_t kind) const { return num_idle_[kind]; }
  /// Whether each kind of `kinds` has an idle core for tasks of a lane.
  bool has_idle(uint32_t kinds, uint32_t lane) const {
    for (uint32_t kind = 0; kinds >> kind != 0; ++kind) {
      if ((kinds >> kind & 1) != 0 && !find(kind, lane)) return false;
    }
    return true;
  }
  /// Takes the idle core with the lowest number. \pre there is one
  uint32_t take(uint32_t kind, uint32_t lane) {
    CoreSet& cores = idle_[kind * num_pools_ + *find(kind, lane)];
    const uint32_t core = cores.lowest();
    cores.remove(core);
    --num_idle_[kind];
    return core;
  }
  /// Takes an idle core.
  uint32_t take_core(uint32_t kind, uint32_t core) {
    idle_[kind * num_pools_ + pool_of_[kind][core]].remove(core);
    --num_idle_[kind];
    return core;
  }
  void give_back(uint32_t kind, uint32_t core) {
    idle_[kind * num_pools_ + pool_of_[kind][core]].add(core);
    ++num_idle_[kind];
  }

 private:
  uint32_t pool_of(uint32_t core, uint32_t count, const std::vector<uint64_t>& bounds) const {
    if (bounds.empty()) return uint32_t(uint64_t(core) * num_pools_ / count);
    return uint32_t(std::upper_bound(bounds.begin(), bounds.end(), core) - bounds.begin());
  }

  /// A pool with an idle core for a lane: its own, or any for tasks without a pool.
  std::optional<uint32_t> find(uint32_t kind, uint32_t lane) const {
    if (lane != sched::kAnyLane) {
      const uint32_t pool = home_[kind * num_pools_ + lane - 1];
      return idle_[kind * num_pools_ + pool].is_empty() ? std::nullopt : std::optional<uint32_t>(pool);
    }
    std::optional<uint32_t> found;
    for (uint32_t pool = 0; pool < num_pools_; ++pool) {
      const CoreSet& cores = idle_[kind * num_pools_ + pool];
      if (cores.is_empty()) continue;
      if (!found || cores.lowest() < idle_[kind * num_pools_ + *found].lowest()) found = pool;
    }
    return found;
  }

  /// A pool that gets no core of a kind shares those of another, so that none is empty.
  void find_homes(uint32_t kind) {
    for (uint32_t pool = 0; pool < num_pools_; ++pool) {
      const bool has_cores = !idle_[kind * num_pools_ + pool].is_empty();
      home_.push_back(has_cores ? pool : pool_of_[kind][pool % pool_of_[kind].size()]);
    }
  }

  uint32_t num_pools_ = 1;
  std::vector<CoreSet> idle_;   ///< per kind and pool
  std::vector<uint32_t> home_;  ///< per kind and pool: the pool whose cores its tasks take
  std::vector<std::vector<uint32_t>> pool_of_;
  std::vector<uint32_t> num_idle_;
};

/// Tasks that are ready, by the kinds of cores that they take and their lane. Of those that can start, the
/// one that the schedule puts first does.
class ReadyTasks {
 public:
  void begin() {
    queues_.clear();
    size_ = 0;
  }
  bool is_empty() const { return size_ == 0; }

  void add(uint32_t kinds, uint32_t lane, const sched::Rank& rank, uint64_t task) {
    queue(kinds, lane).push({rank, task});
    ++size_;
  }

  /// Takes the first task for which there are idle cores.
  std::optional<uint64_t> take(const Cores& cores) {
    Queue* best = nullptr;
    for (Queue& each : queues_) {
      if (each.tasks.empty() || !cores.has_idle(each.kinds, each.lane)) continue;
      if (best == nullptr || best->tasks.top() < each.tasks.top()) best = &each;
    }
    if (best == nullptr) return {};
    const uint64_t task = best->tasks.top().task;
    best->tasks.pop();
    --size_;
    return task;
  }

 private:
  struct Entry {
    sched::Rank rank;
    uint64_t task;
    bool operator<(const Entry& other) const {
      return sched::starts_before(other.rank, other.task, rank, task);
    }
  };
  struct Queue {
    uint32_t kinds, lane;
    std::priority_queue<Entry> tasks;
  };

  std::priority_queue<Entry>& queue(uint32_t kinds, uint32_t lane) {
    for (Queue& each : queues_) {
      if (each.kinds == kinds && each.lane == lane) return each.tasks;
    }
    queues_.push_back({kinds, lane, {}});
    return queues_.back().tasks;
  }

  std::vector<Queue> queues_;
  size_t size_ = 0;
};

}  // namespace pto::wsp::sim
