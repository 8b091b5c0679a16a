// SPDX-License-Identifier: MIT
/// \file
/// Prefetches of a simulated run: transfers into the shared cache that no task has asked for yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pto/wsp/sim/task.hpp"

namespace pto::wsp::sim {

class Prefetches {
 public:
  void begin() { *this = {}; }

  // Tasks, in program order, whose inputs are fetched

  /// A task of a value begins; 0 for none.
  void run(uint64_t value) { running_ = std::max(running_, value); }
  uint64_t running() const { return running_; }
  /// The next task, which is `oldest` or a later one.
  uint64_t next(uint64_t oldest) { return next_ = std::max(next_, oldest); }
  /// The task after it.
  uint64_t pass() { return ++next_; }

  // Regions that tasks have yet to store: what is fetched before is of no use.

  void add_stores(const std::vector<Use>& uses) {
    for (const Use& use : uses) {
      if (use.is_stored) ++stored_[use.region];
    }
  }
  void end_stores(const std::vector<Use>& uses) {
    for (const Use& use : uses) {
      const auto found = stored_.find(use.region);
      if (use.is_stored && --found->second == 0) stored_.erase(found);
    }
  }
  /// Whether another task has yet to store the region of a use.
  bool is_stored_elsewhere(const Use& use) const {
    const auto found = stored_.find(use.region);
    return found != stored_.end() && found->second > uint32_t(use.is_stored);
  }

  // Transfers. Their numbers are not those of tasks.

  static bool is_one(uint64_t number) { return (number & kFlag) != 0; }
  /// The number of a new transfer.
  uint64_t add(uint64_t region) {
    moving_[region] = transfers_.size();  // it may have been evicted while it moved
    transfers_.push_back({region, {}});
    return kFlag | (transfers_.size() - 1);
  }
  /// Makes a task wait for the transfer of a region; false if there is none.
  bool wait(uint64_t region, uint64_t task) {
    const auto found = moving_.find(region);
    if (found == moving_.end()) return false;
    transfers_[found->second].waiting.push_back(task);
    return true;
  }
  /// Ends a transfer, and returns the tasks that wait for it.
  std::vector<uint64_t> end(uint64_t number) {
    Transfer& transfer = transfers_[number & ~kFlag];
    const auto found = moving_.find(transfer.region);
    if (found != moving_.end() && found->second == (number & ~kFlag)) moving_.erase(found);
    return std::move(transfer.waiting);
  }

 private:
  static constexpr uint64_t kFlag = uint64_t{1} << 62;

  struct Transfer {
    uint64_t region;
    std::vector<uint64_t> waiting;
  };

  uint64_t running_ = 0, next_ = 0;
  std::unordered_map<uint64_t, uint32_t> stored_;  ///< tasks, by region
  std::vector<Transfer> transfers_;
  std::unordered_map<uint64_t, size_t> moving_;  ///< by region
};

}  // namespace pto::wsp::sim
