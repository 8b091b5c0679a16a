// SPDX-License-Identifier: MIT
/// \file
/// The unfinished runs of the process, and the memory that they use.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/sched/crew.hpp"

namespace pto::wsp {

/// The facts about an unfinished run that other runs need.
class Flight {
 public:
  /// \param program  identifies what runs: a call waits for another call of the same program
  /// \param arrays   one per tensor; they must not move until the run is done
  Flight(const void* program, bool is_call, const std::vector<bind::ArrayRef>& arrays,
         const std::vector<bytecode::TensorDescriptor>& tensors)
      : program_(program), is_call_(is_call), arrays_(arrays), tensors_(tensors) {}

  const void* program() const { return program_; }
  bool is_call() const { return is_call_; }
  uint64_t number() const { return number_; }
  bool is_cancelled() const { return is_cancelled_.load(std::memory_order_relaxed); }

 private:
  friend class InFlight;

  const void* program_;
  const bool is_call_;
  const std::vector<bind::ArrayRef>& arrays_;
  const std::vector<bytecode::TensorDescriptor>& tensors_;
  uint64_t number_ = 0;
  const pthread_t thread_ = pthread_self();
  std::atomic<bool> is_cancelled_{false};
  std::shared_ptr<sched::Crew> crew_;  ///< from its begin to its end
  bool is_done_ = false;
};

/// One lock guards all flights, and the turns in which runs of one program are prepared.
class InFlight {
 public:
  using Question = bool (*)();

  static InFlight& instance() {
    static auto* all = [] {
      pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().forget_after_fork(); });
      return new InFlight;
    }();
    return *all;
  }

  /// Gives a flight a number. Throws `arrays-in-flight` if it writes memory that an unfinished run uses, or
  /// uses memory that one writes. A call waits for a conflicting call of the same program instead, and throws
  /// `run-cancelled` where `is_interrupted`, which may be null, says so. Returns whether it has waited.
  /// Conflicts with `ordered` flights are left to the run.
  bool add(Flight& flight, Question is_interrupted, const std::vector<const Flight*>& ordered = {}) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (is_closed_) throw EngineError("process-exit", "the process is exiting");
    if (is_left(flight.program_)) throw at_fork();
    flight.number_ = ++num_flights_;
    flights_.reserve(flights_.size() + 1);
    bool has_waited = false;
    while (const std::optional<Conflict> conflict = find_conflict(flight, ordered)) {
      const Flight& other = *conflict->other;
      if (!flight.is_call_ || !other.is_call_ || flight.program_ != other.program_) throw error_of(*conflict);
      wait_for_change(lock, flight, is_interrupted);
      has_waited = true;
      flights_.reserve(flights_.size() + 1);
    }
    flights_.push_back(&flight);
    return has_waited;
  }

  /// The run has a crew from now on.
  void begin(Flight& flight, std::shared_ptr<sched::Crew> crew) {
    const std::lock_guard<std::mutex> lock(mutex_);
    flight.crew_ = std::move(crew);
    if (flight.is_cancelled()) flight.crew_->cancel();
  }

  /// The run is done: its arrays may be used, and its crew may begin another run.
  void end(Flight& flight) {
    const std::lock_guard<std::mutex> lock(mutex_);
    flight.crew_.reset();
    flight.is_done_ = true;
  }

  void remove(Flight& flight) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      flights_.erase(std::remove(flights_.begin(), flights_.end(), &flight), flights_.end());
    }
    changed_.notify_all();
  }

  /// Any thread may call these.
  void cancel(Flight& flight) {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancel_locked(flight);
  }
  void cancel_all(const void* program) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Flight* flight : flights_) {
      if (flight->program_ == program) cancel_locked(*flight);
    }
  }

  /// Cancels all flights and refuses later ones, until the process ends. False while some are not done.
  bool close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
    bool are_done = true;
    for (Flight* flight : flights_) {
      if (is_done(*flight)) continue;
      cancel_locked(*flight);
      are_done = false;
    }
    return are_done;
  }

  /// Lets one thread at a time prepare runs of a program.
  struct Turn {
    bool is_taken = false;
    uint64_t forks = 0;
  };
  /// Throws `run-cancelled` as `add` does, or `run-in-flight-at-fork`.
  void enter(Turn& turn, const Flight& flight, Question is_interrupted) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (turn.is_taken) {
      if (turn.forks != num_forks()) throw at_fork();
      wait_for_change(lock, flight, is_interrupted);
    }
    turn = {true, num_forks()};
  }
  void leave(Turn& turn) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      turn.is_taken = false;
    }
    changed_.notify_all();
  }

  static EngineError cancelled() { return EngineError("run-cancelled", "the run was cancelled"); }

 private:
  static constexpr std::chrono::milliseconds kAskPeriod{50};

  InFlight() = default;

  static EngineError at_fork() {
    return EngineError("run-in-flight-at-fork", "the process was forked while this program was running");
  }

  void cancel_locked(Flight& flight) {
    flight.is_cancelled_.store(true, std::memory_order_relaxed);
    if (flight.crew_ != nullptr) flight.crew_->cancel();
  }

  void wait_for_change(std::unique_lock<std::mutex>& lock, const Flight& flight, Question is_interrupted) {
    const bool is_changed = changed_.wait_for(lock, kAskPeriod) == std::cv_status::no_timeout;
    if (flight.is_cancelled()) throw cancelled();
    if (is_changed || is_interrupted == nullptr) return;
    lock.unlock();
    const bool is_over = is_interrupted();
    lock.lock();
    if (is_over) throw cancelled();
  }

  static bool is_done(const Flight& flight) {
    return flight.is_done_ || (flight.crew_ != nullptr && flight.crew_->is_done());
  }

  struct Conflict {
    const Flight* other;
    size_t tensor, other_tensor;
  };

  std::optional<Conflict> find_conflict(const Flight& flight,
                                        const std::vector<const Flight*>& ordered) const {
    for (const Flight* other : flights_) {
      if (is_done(*other) || std::find(ordered.begin(), ordered.end(), other) != ordered.end()) continue;
      for (size_t i = 0; i < flight.arrays_.size(); ++i) {
        for (size_t j = 0; j < other->arrays_.size(); ++j) {
          const bool is_written = flight.tensors_[i].written != 0 || other->tensors_[j].written != 0;
          if (is_written && bind::find_overlap(flight.arrays_[i], other->arrays_[j]) != bind::Overlap::kNone)
            return Conflict{other, i, j};
        }
      }
    }
    return std::nullopt;
  }

  static EngineError error_of(const Conflict& conflict) {
    return EngineError("arrays-in-flight",
                       "an array overlaps one of an unfinished run, and one of them is written")
        .with_int("tensor", int64_t(conflict.tensor))
        .with_int("other_tensor", int64_t(conflict.other_tensor))
        .with_int("run", int64_t(conflict.other->number_))
        .with_int("thread", conflict.other->is_call_ ? int64_t(conflict.other->thread_) : 0);
  }

  /// Runs of the parent do not exist in a forked child. Their state is undefined, and the lock is held.
  void forget_after_fork() {
    new (&changed_) std::condition_variable;
    for (const Flight* flight : flights_) {
      if (!is_done(*flight)) left_.push_back(flight->program_);
    }
    flights_.clear();
    mutex_.unlock();
  }

  /// Whether the program was running in the parent when this process was forked.
  bool is_left(const void* program) const {
    return std::find(left_.begin(), left_.end(), program) != left_.end();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Flight*> flights_;
  std::vector<const void*> left_;  ///< programs that ran in the parent when this process was forked
  uint64_t num_flights_ = 0;
  bool is_closed_ = false;
};

}  // namespace pto::wsp
