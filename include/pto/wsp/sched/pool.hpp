// SPDX-License-Identifier: MIT
/// \file
/// The worker threads of the process: made once, shared by all runs, parked while there is nothing to do.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/sched/placement.hpp"

namespace pto::wsp::sched {

/// True while this thread executes tasks of some run: a run inside a run would wait for itself.
inline bool& is_inside_run() {
  thread_local bool inside = false;
  return inside;
}

/// Something that can use more threads. The pool calls everything but `help` with its lock held.
class Job {
 public:
  virtual ~Job() = default;
  /// A free worker slot, or -1 if no more threads are wanted now.
  virtual int join() = 0;
  virtual void leave(int slot) = 0;
  /// Works until there is nothing to do; false if there was nothing from the start.
  virtual bool help(int slot) = 0;
  /// Whether there is work and a free slot.
  virtual bool wants_help() const = 0;
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

  /// Number of forks between the first process and this one: tells a child from its parent.
  static uint64_t generation() { return generation_counter().load(std::memory_order_relaxed); }

  void add(std::shared_ptr<Job> job, uint32_t threads) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (num_threads_ < threads) start_thread();
    if (jobs_.empty()) placement_.keep_off_caller();
    jobs_.push_back(std::move(job));
  }

  /// After this no thread joins the job; threads inside leave on their own.
  void remove(const Job* job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    jobs_.erase(std::remove_if(jobs_.begin(), jobs_.end(), [job](const auto& j) { return j.get() == job; }),
                jobs_.end());
  }

  /// Wakes a parked thread, if there is one. Call after publishing work with a sequentially consistent store.
  void wake() {
    if (num_parked_.load(std::memory_order_seq_cst) == 0) return;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
    }
    wake_.notify_one();
  }

  /// Guards what must not change while runs begin and end (see Executable).
  std::mutex gate_mutex;
  std::condition_variable gate_open;

 private:
  static std::atomic<Pool*>& current() {
    static std::atomic<Pool*> pool{nullptr};
    return pool;
  }
  static std::atomic<uint64_t>& generation_counter() {
    static std::atomic<uint64_t> generation{0};
    return generation;
  }
  /// Locks and threads of the parent mean nothing here; its pool is left alone, locked or not.
  static void forget_after_fork() {
    current().store(nullptr, std::memory_order_release);
    generation_counter().fetch_add(1, std::memory_order_relaxed);
    is_inside_run() = false;
  }

  /// Signals are left to the threads of the program, but for those of a thread's own crash: blocked, they
  /// would end the process without a word.
  void start_thread() {
    sigset_t others, before;
    sigfillset(&others);
    for (int crash : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&others, crash);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    pthread_t handle{};
    try {
      std::thread thread([this] { work(); });
      handle = thread.native_handle();
      thread.detach();
      ++num_threads_;
    } catch (const std::system_error&) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw EngineError("no-thread", "the system refuses to start another worker thread")
          .with_int("threads", num_threads_);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    placement_.add(handle);
  }

  void work() {
    is_inside_run() = true;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      int slot = -1;
      std::shared_ptr<Job> job = pick(slot);
      bool has_worked = false;
      if (job != nullptr) {
        lock.unlock();
        has_worked = job->help(slot);
        lock.lock();
        job->leave(slot);
        job.reset();
      }
      if (!has_worked) park(lock);
    }
  }

  std::shared_ptr<Job> pick(int& slot) {
    for (size_t i = 0; i < jobs_.size(); ++i) {
      slot = jobs_[i]->join();
      if (slot < 0) continue;
      std::shared_ptr<Job> job = jobs_[i];
      std::rotate(jobs_.begin() + std::ptrdiff_t(i), jobs_.begin() + std::ptrdiff_t(i) + 1, jobs_.end());
      return job;
    }
    return nullptr;
  }

  /// Sleeps until woken. While runs are active it looks up now and then: a slice may have become ready in the
  /// middle of another one, which wakes nobody.
  void park(std::unique_lock<std::mutex>& lock) {
    num_parked_.fetch_add(1, std::memory_order_seq_cst);
    const bool is_needed =
        std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) { return job->wants_help(); });
    if (jobs_.empty()) {
      wake_.wait(lock);
    } else {
      // Work that was queued while this thread came here woke nobody: look again soon.
      wake_.wait_for(lock, std::chrono::microseconds(is_needed ? 20 : 500));
    }
    num_parked_.fetch_sub(1, std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::shared_ptr<Job>> jobs_;
  uint32_t num_threads_ = 0;
  Placement placement_;
  alignas(128) std::atomic<int> num_parked_{0};
};

}  // namespace pto::wsp::sched
