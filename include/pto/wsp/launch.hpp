// SPDX-License-Identifier: MIT
/// \file
/// A launch: a run of a program in a session, which begins while earlier launches run.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "pto/wsp/contract.hpp"
#include "pto/wsp/engine.hpp"
#include "pto/wsp/forks.hpp"
#include "pto/wsp/sched/blocked_signals.hpp"

namespace pto::wsp {

/// The arguments of a launch.
struct SessionCall {
  std::vector<bind::ArrayRef> arrays;  ///< one per tensor
  std::vector<std::optional<int64_t>> symbols;
  sched::RunOptions options;
  std::shared_ptr<void> owner = nullptr;  ///< of memory that the run uses; released after it
};

enum class Hazard : uint8_t { kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite };

class Launch;
class Session;

/// Why tasks of a launch may wait for tasks of an earlier one.
struct LaunchWait {
  Launch* launch;  ///< the earlier one
  Hazard hazard;
  size_t tensor;  ///< of the later one
};

namespace detail {

/// Throws if a session of a process with `forks` cannot be used here.
inline void require_usable(uint64_t forks) {
  if (forks != wsp::num_forks())
    throw EngineError("run-in-flight-at-fork", "a session is of the process that made it");
  if (sched::is_inside_run())
    throw EngineError("nested-run", "a session was used inside a run on the same thread");
}

}  // namespace detail

/// A program that a session runs. It lives as long as its session.
class Launch {
 public:
  ~Launch() {
    cancel();
    join();
  }
  Launch(const Launch&) = delete;

  const ContractGraph& graph() const { return *graph_; }
  const Session& session() const { return session_; }
  /// Number of the launch in its session, from 0 on.
  size_t number() const { return number_; }
  /// The launches that it waits for; those that were settled before are left out.
  const std::vector<LaunchWait>& waits() const { return waits_; }
  const std::vector<ArrayAccess>& accesses() const { return accesses_; }

  /// Whether it and those that it waits for have ended, in whatever way.
  bool is_done() const {
    if (is_of_parent()) return true;
    if (!has_ended()) return false;
    const std::map<size_t, Launch*> all = unsettled();
    return std::all_of(all.begin(), all.end(), [](const auto& found) { return found.second->has_ended(); });
  }

  /// Lends the calling thread to the launch, and to those that it waits for, until it is done. Throws what
  /// SubmittedRun::wait throws, or `launch-skipped` if one that it waits for failed: tasks of it may have
  /// run.
  const RunResult& wait() {
    if (const EngineError* error = report()) throw EngineError(*error);
    return std::get<RunResult>(*outcome());
  }

  /// Waits as `wait` does. Returns the error, or null.
  const EngineError* report() {
    detail::require_usable(forks_);
    settle_all();
    const auto* error = std::get_if<EngineError>(outcome().get());
    if (error != nullptr) is_reported_.store(true, std::memory_order_relaxed);
    return error;
  }

  /// Ends the launch: no task of it begins any more. `wait` then throws `run-cancelled`.
  void cancel() {
    if (is_of_parent()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    is_cancelled_ = true;
    if (running_ != nullptr) running_->run->cancel();
  }

 private:
  friend class Session;

  using Outcome = std::variant<RunResult, EngineError>;

  /// A run, which ends before the memory that it uses.
  struct Running {
    std::shared_ptr<void> owner;
    std::unique_ptr<SubmittedRun> run;
  };

  Launch(const Session& session, std::shared_ptr<const ContractGraph> graph, SessionCall call, size_t number)
      : session_(session), graph_(std::move(graph)), call_(std::move(call)), number_(number) {
    const std::vector<bytecode::TensorDescriptor>& tensors = graph_->program().executable.program().tensors;
    for (size_t i = 0; i < std::min(tensors.size(), call_.arrays.size()); ++i)
      accesses_.push_back(access_of(i, call_.arrays[i], tensors[i].written != 0));
  }

  bool is_of_parent() const { return forks_ != num_forks(); }

  // Its begin

  /// Begins the run if it need not wait for the end of another launch.
  bool begin() {
    for (const LaunchWait& wait : waits_) {
      if (!wait.launch->has_begun()) return false;
    }
    try {
      if (!try_begin()) return false;
    } catch (const EngineError& error) {
      if (error.code() != "launch-skipped") throw;
      error_ = error;
    }
    has_begun_ = true;
    return true;
  }

  /// Begins the run as soon as it can, on a thread of its own.
  void start_later() {
    const sched::BlockedSignals blocked;
    try {
      later_ = std::thread([this] { begin_later(); });
    } catch (const std::system_error&) {
      throw EngineError("out-of-memory", "there is no thread for a launch that begins later");
    }
  }

  void begin_later() noexcept {
    std::optional<EngineError> error;
    try {
      for (const LaunchWait& wait : waits_) wait.launch->wait_for_begin();
      while (!try_begin()) {
        const auto oldest = std::find_if(waits_.begin(), waits_.end(),
                                         [](const LaunchWait& wait) { return !wait.launch->is_done(); });
        if (oldest != waits_.end()) require(*oldest);
      }
    } catch (const EngineError& found) {
      error = found;
    } catch (const std::bad_alloc&) {
      error = EngineError("out-of-memory", "there is no memory to begin a launch");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    error_ = std::move(error);
    has_begun_ = true;
    begun_.notify_all();
  }

  /// Begins the run while launches that it waits for are in progress. False if it cannot.
  bool try_begin() {
    if (is_cancelled_) throw InFlight::cancelled();
    std::vector<std::shared_ptr<Running>> others;
    std::vector<const SubmittedRun*> earlier;
    for (const LaunchWait& wait : waits_) {
      std::shared_ptr<Running> other = wait.launch->is_done() ? nullptr : wait.launch->running();
      if (other == nullptr) {
        require(wait);
      } else {
        earlier.push_back(other->run.get());
        others.push_back(std::move(other));
      }
    }
    auto run = graph_->program().executable.submit_after(earlier, call_.arrays, call_.symbols, call_.options);
    if (run == nullptr) return false;
    auto running = std::make_shared<Running>(Running{call_.owner, std::move(run)});
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_cancelled_) running->run->cancel();
    running_ = std::move(running);
    return true;
  }

  /// Waits for a launch. Throws `launch-skipped` if it failed.
  void require(const LaunchWait& wait) const {
    Launch& first = *wait.launch;
    if (const std::optional<EngineError> error = first.begin_error()) throw skipped_for(first, *error);
    first.settle_all();
    if (const auto* error = std::get_if<EngineError>(first.outcome().get())) throw skipped_for(first, *error);
  }

  EngineError skipped_for(const Launch& first, const EngineError& error) const {
    return EngineError("launch-skipped", "`" + graph_->name() + "` was skipped, since `" +
                                             first.graph_->name() + "` before it failed")
        .with("error", error.code());
  }

  bool has_begun() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return has_begun_;
  }
  void wait_for_begin() {
    std::unique_lock<std::mutex> lock(mutex_);
    begun_.wait(lock, [this] { return has_begun_; });
  }
  std::optional<EngineError> begin_error() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return error_;
  }
  std::shared_ptr<Running> running() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return running_;
  }

  // Its end

  bool has_ended() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return has_begun_ && (running_ == nullptr || running_->run->is_done());
  }
  /// Null until it is settled. It never changes afterwards.
  std::shared_ptr<const Outcome> outcome() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return outcome_;
  }

  /// The launch and those that it depends on, by number, without those that are settled.
  std::map<size_t, Launch*> unsettled() const {
    std::map<size_t, Launch*> found;
    std::vector<Launch*> pending{const_cast<Launch*>(this)};
    while (!pending.empty()) {
      Launch* launch = pending.back();
      pending.pop_back();
      if (launch->outcome() != nullptr || !found.emplace(launch->number_, launch).second) continue;
      for (const LaunchWait& wait : launch->waits_) pending.push_back(wait.launch);
    }
    return found;
  }

  void settle_all() {
    for (const auto& [number, launch] : unsettled()) launch->settle();
  }

  /// Waits for the outcome, and releases the run. A failure of a launch that it waits for counts more than
  /// its own end. \pre those are settled
  void settle() {
    wait_for_begin();
    std::shared_ptr<Running> running = this->running();
    std::shared_ptr<const Outcome> found = outcome();
    if (found == nullptr) found = find_outcome(running.get());
    for (const LaunchWait& wait : waits_) {
      const std::shared_ptr<const Outcome> first = wait.launch->outcome();
      const auto* error = std::get_if<EngineError>(first.get());
      if (error == nullptr) continue;
      found = std::make_shared<const Outcome>(skipped_for(*wait.launch, *error));
      break;
    }
    SessionCall call;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (outcome_ != nullptr) return;
      outcome_ = std::move(found);
      running_.reset();  // `running` refers to it
      std::swap(call, call_);
    }
    join();
  }

  /// Waits for the end of the thread that begins the run, unless another thread does.
  void join() {
    std::thread later;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      std::swap(later, later_);
    }
    if (later.joinable()) later.join();
  }

  std::shared_ptr<const Outcome> find_outcome(Running* running) const {
    try {
      if (const std::optional<EngineError> error = begin_error())
        return std::make_shared<const Outcome>(*error);
      return std::make_shared<const Outcome>(running->run->wait());
    } catch (const EngineError& error) {
      return std::make_shared<const Outcome>(error);
    }
  }

  /// Whether it is done, and `wait` has thrown its error if it has one.
  bool is_settled() {
    if (!is_done()) return false;
    if (is_reported_.load(std::memory_order_relaxed)) return true;
    settle_all();
    return std::holds_alternative<RunResult>(*outcome());
  }

  const Session& session_;
  const std::shared_ptr<const ContractGraph> graph_;
  SessionCall call_;  ///< of the thread that begins the run; empty when it is settled
  const size_t number_;
  const uint64_t forks_ = num_forks();
  std::vector<ArrayAccess> accesses_;
  std::vector<LaunchWait> waits_;
  std::atomic<bool> is_reported_{false};
  std::atomic<bool> is_cancelled_{false};

  mutable std::mutex mutex_;  ///< guards the following members
  std::condition_variable begun_;
  bool has_begun_ = false;
  std::optional<EngineError> error_;  ///< instead of a run
  std::shared_ptr<Running> running_;  ///< until it is settled
  std::shared_ptr<const Outcome> outcome_;
  std::thread later_;  ///< begins the run, if it had to wait for the end of another
};

}  // namespace pto::wsp
