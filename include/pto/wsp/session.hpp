// SPDX-License-Identifier: MIT
/// \file
/// Sessions: programs that are launched in an order and run concurrently, with the results of one after
/// another.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pto/wsp/launch.hpp"

namespace pto::wsp {

/// Programs that run concurrently on one pool of threads, with the results of one after another.
///
/// A task waits for the tasks of earlier launches that access the same elements where one of the two writes.
/// Any thread may call the functions; the order of the launches is that of the calls of `launch`.
class Session {
 public:
  Session() = default;
  Session(const Session&) = delete;
  /// Cancels what is not done, and waits until no task runs. In a forked child, the parent's launches are
  /// abandoned.
  ~Session() {
    if (forks_ != num_forks()) {
      for (std::unique_ptr<Launch>& launch : launches_) launch.release();
      return;
    }
    cancel();
    // A thread joins only threads of earlier launches.
    for (const std::unique_ptr<Launch>& launch : launches_) launch->join();
  }

  /// Begins a run that seems to begin after the earlier launches. Its arrays must neither be changed nor read
  /// elsewhere until it is done. Throws `contract-broken`, and what Executable::submit throws; if the launch
  /// has to begin later, its `wait` throws that.
  Launch& launch(std::shared_ptr<const ContractGraph> graph, SessionCall call) {
    detail::require_usable(forks_);
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Launch> launch(new Launch(*this, std::move(graph), std::move(call), launches_.size()));
    require_provided(*launch);
    launch->waits_ = find_waits(*launch);
    if (!launch->begin()) launch->start_later();
    launches_.push_back(std::move(launch));
    unsettled_.push_back(launches_.back().get());
    return *launches_.back();
  }

  /// Waits for all launches. Throws the first error that is not `launch-skipped`, or else the first one.
  void wait() {
    if (Launch* failed = first_failed()) failed->wait();
  }

  /// Waits for all launches. Returns the one whose error `wait` throws, or null.
  Launch* first_failed() {
    detail::require_usable(forks_);
    Launch* failed = nullptr;
    bool was_skipped = false;
    for (Launch* launch : launches()) {
      const EngineError* error = launch->report();
      if (error == nullptr || (failed != nullptr && !was_skipped)) continue;
      const bool is_skipped = error->code() == "launch-skipped";
      if (failed != nullptr && is_skipped) continue;
      failed = launch;
      was_skipped = is_skipped;
    }
    return failed;
  }

  /// Cancels all launches that are not done.
  void cancel() {
    for (Launch* launch : launches()) launch->cancel();
  }

  /// All launches, in order. None in a forked child.
  std::vector<Launch*> launches() const {
    if (forks_ != num_forks()) return {};
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Launch*> all;
    for (const std::unique_ptr<Launch>& launch : launches_) all.push_back(launch.get());
    return all;
  }

  /// An unfinished launch that writes some bytes, or null.
  const Launch* find_writer(const void* data, size_t bytes) const {
    if (forks_ != num_forks()) return nullptr;
    const auto first = reinterpret_cast<uintptr_t>(data);
    const ArrayAccess read{0, false, first, first + bytes};
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Launch* launch : unsettled_) {
      const auto& all = launch->accesses_;
      if (launch->is_done()) continue;
      if (std::any_of(all.begin(), all.end(), [&](const auto& a) { return a.conflicts_with(read); }))
        return launch;
    }
    return nullptr;
  }

  /// Checks that launches which read an array precede one that writes it, which may be null. Throws
  /// `contract-broken`.
  void order_reads(const void* array, const std::vector<const Launch*>& reads, const Launch* write) const {
    for (const Launch* read : reads) require_access(*read, array, false);
    if (write == nullptr) return;
    require_access(*write, array, true);
    for (const Launch* read : reads) require_order({read, write});
  }

  /// Checks that launches write an array, one after the other. Throws `contract-broken`.
  void order_writes(const void* array, const std::vector<const Launch*>& writes) const {
    for (const Launch* write : writes) require_access(*write, array, true);
    require_order(writes);
  }

 private:
  /// The launches that are not settled and conflict with a launch, each with its first reason.
  std::vector<LaunchWait> find_waits(const Launch& launch) {
    const auto is_settled = [](Launch* earlier) { return earlier->is_settled(); };
    unsettled_.erase(std::remove_if(unsettled_.begin(), unsettled_.end(), is_settled), unsettled_.end());
    std::vector<LaunchWait> found;
    for (Launch* earlier : unsettled_) {
      if (const std::optional<LaunchWait> wait = find_wait(*earlier, launch)) found.push_back(*wait);
    }
    return found;
  }

  static std::optional<LaunchWait> find_wait(Launch& earlier, const Launch& later) {
    for (const ArrayAccess& a : earlier.accesses_) {
      for (const ArrayAccess& b : later.accesses_) {
        if (!a.conflicts_with(b)) continue;
        const Hazard hazard = !a.is_written  ? Hazard::kWriteAfterRead
                              : b.is_written ? Hazard::kWriteAfterWrite
                                             : Hazard::kReadAfterWrite;
        return LaunchWait{&earlier, hazard, b.tensor};
      }
    }
    return std::nullopt;
  }

  void require_provided(const Launch& launch) const {
    for (const ContractGraph::Requirement& required : launch.graph_->requirements()) {
      const auto provides = [&](const std::unique_ptr<Launch>& earlier) {
        return earlier->graph_ == required.from &&
               is_provided(*earlier, launch.accesses_.at(required.tensor));
      };
      if (std::any_of(launches_.begin(), launches_.end(), provides)) continue;
      throw EngineError("contract-broken", "no earlier launch of `" + required.from->name() +
                                               "` provides the array of `" +
                                               launch.graph_->program().tensors[required.tensor] + "`");
    }
  }

  static bool is_provided(const Launch& earlier, const ArrayAccess& wanted) {
    const auto& all = earlier.accesses_;
    return std::any_of(all.begin(), all.end(), [&](const ArrayAccess& access) {
      return earlier.graph_->provides(access.tensor) && access.first == wanted.first &&
             access.end == wanted.end;
    });
  }

  void require_access(const Launch& launch, const void* array, bool is_written) const {
    if (&launch.session_ != this)
      throw EngineError("contract-broken", "`" + launch.graph_->name() + "` is of another session");
    const auto touches = [&](const ArrayAccess& access) {
      return access.first == reinterpret_cast<uintptr_t>(array) && (access.is_written || !is_written);
    };
    if (std::any_of(launch.accesses_.begin(), launch.accesses_.end(), touches)) return;
    throw EngineError("contract-broken", "expected that `" + launch.graph_->name() +
                                             (is_written ? "` writes" : "` reads") +
                                             " the array, found that it does not");
  }

  static void require_order(const std::vector<const Launch*>& chain) {
    const auto is_before = [](const Launch* a, const Launch* b) { return a->number_ < b->number_; };
    if (std::is_sorted(chain.begin(), chain.end(), is_before)) return;
    std::string names;
    for (const Launch* launch : chain)
      names += (names.empty() ? "`" : " before `") + launch->graph_->name() + "`";
    throw EngineError("contract-broken", "expected " + names + ", found another order");
  }

  const uint64_t forks_ = num_forks();
  mutable std::mutex mutex_;  ///< guards the following members
  std::vector<std::unique_ptr<Launch>> launches_;
  std::vector<Launch*> unsettled_;  ///< of them
};

}  // namespace pto::wsp
