// SPDX-License-Identifier: MIT
/// \file
/// The worker threads of the process. They start when runs need them, serve all runs, and sleep without work.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "pto/wsp/forks.hpp"
#include "pto/wsp/sched/blocked_signals.hpp"
#include "pto/wsp/sched/event_count.hpp"
#include "pto/wsp/sched/placement.hpp"

namespace pto::wsp::sched {

/// True while this thread executes tasks of a run. A run inside a run would wait for itself.
inline bool& is_inside_run() {
  thread_local bool inside = false;
  return inside;
}

/// Work that can use more threads. The pool calls `join` and `leave` with its lock held.
class Job {
 public:
  virtual ~Job() = default;
  /// A free worker slot that has work, or -1.
  virtual int join() = 0;
  virtual void leave(int slot) = 0;
  /// Works while there is work. Then it calls `sleepers.prepare()` and looks once more before it returns, so
  /// that every later publication wakes a thread.
  virtual void help(int slot, EventCount& sleepers) = 0;
};

class Pool {
 public:
  /// The process' pool. Never destroyed: its threads may outlive static destruction. A forked child gets a
  /// new one.
  static Pool& instance() {
    static const int hook = pthread_atfork(nullptr, nullptr, &Pool::forget_after_fork);
    (void)hook;
    Pool* pool = current().load(std::memory_order_acquire);
    if (pool != nullptr) return *pool;
    auto* fresh = new Pool();
    if (current().compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return *fresh;
    delete fresh;
    return *pool;
  }

  /// Offers a job to the threads. Starts threads until there are `threads`, or until the system refuses.
  void add(std::shared_ptr<Job> job, uint32_t threads) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (num_threads_ < threads && start_thread()) {
    }
    if (jobs_.empty()) placement_.keep_off_caller();
    jobs_.push_back(std::move(job));
  }

  /// After this no thread joins the job; threads inside leave on their own.
  void remove(const Job* job) {
    std::shared_ptr<Job> removed;  // destroyed without the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto is_it = [job](const auto& other) { return other.get() == job; };
    const auto found = std::find_if(jobs_.begin(), jobs_.end(), is_it);
    if (found == jobs_.end()) return;
    removed = std::move(*found);
    jobs_.erase(found);
  }

  /// A slot of `job` for the calling thread, or -1; `leave` gives it back.
  int lend(Job& job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return job.join();
  }
  void leave(Job& job, int slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    job.leave(slot);
  }

  /// Wakes a sleeping thread, if there is one. EventCount states what must come before.
  void wake() { sleepers_.notify_one(); }
  bool has_sleepers() const { return sleepers_.has_waiters(); }

  uint32_t num_threads() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return num_threads_;
  }
  /// How long a thread sleeps before it ends.
  void set_idle_limit(std::chrono::milliseconds limit) { idle_limit_ms_ = limit.count(); }

 private:
  static std::atomic<Pool*>& current() {
    static std::atomic<Pool*> pool{nullptr};
    return pool;
  }
  /// Abandons the pool of the parent, whose locks and threads do not exist in the child.
  static void forget_after_fork() {
    current().store(nullptr, std::memory_order_release);
    is_inside_run() = false;
  }

  /// False if the system refuses a thread. Runs then use the existing threads.
  bool start_thread() {
    const BlockedSignals blocked;
    try {
      std::thread thread([this] { work(); });
      const pthread_t handle = thread.native_handle();
      thread.detach();
      ++num_threads_;
      placement_.add(handle);
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  void work() {
    is_inside_run() = true;
    for (bool is_announced = false;;) {
      if (!is_announced) sleepers_.prepare();
      int slot = -1;
      std::shared_ptr<Job> job = pick(slot);
      is_announced = job != nullptr;
      if (job != nullptr) {
        sleepers_.cancel();
        job->help(slot, sleepers_);
        leave(*job, slot);
      } else if (!sleepers_.wait(std::chrono::milliseconds(idle_limit_ms_)) && retire()) {
        return;
      }
    }
  }

  std::shared_ptr<Job> pick(int& slot) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < jobs_.size(); ++i) {
      slot = jobs_[i]->join();
      if (slot < 0) continue;
      std::shared_ptr<Job> job = jobs_[i];
      std::rotate(jobs_.begin() + std::ptrdiff_t(i), jobs_.begin() + std::ptrdiff_t(i) + 1, jobs_.end());
      return job;
    }
    return nullptr;
  }

  /// Whether the thread ends because it was idle for long.
  bool retire() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!jobs_.empty()) return false;
    placement_.remove(pthread_self());
    --num_threads_;
    return true;
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Job>> jobs_;
  uint32_t num_threads_ = 0;
  Placement placement_;
  std::atomic<int64_t> idle_limit_ms_{30000};
  alignas(128) EventCount sleepers_;
};

}  // namespace pto::wsp::sched
