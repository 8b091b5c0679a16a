// SPDX-License-Identifier: MIT
/// \file
/// The threads of a run, and what each does next.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "pto/wsp/sched/dispatcher.hpp"
#include "pto/wsp/sched/graph_run.hpp"
#include "pto/wsp/sched/pool.hpp"

namespace pto::wsp::sched {

/// The calling thread is worker 0; those of the pool join while there is something to do.
///
/// Whoever has nothing else to do takes a published slice, goes on with a dispatcher that nobody is in, its
/// own first, or waits. So neither dispatchers nor slices depend on any one thread.
class Crew final : public Job, public std::enable_shared_from_this<Crew> {
 public:
  /// Prepares a run: of `graph` if that is not null, which is built first if it is empty, or by the caller,
  /// who calls `feed`, if it is fed. \pre is_idle()
  void begin(std::shared_ptr<Prepared> prepared, std::vector<char*> bases, const RunOptions& options,
             std::shared_ptr<KeptGraph> graph, bool is_fed = false) {
    run_.begin(std::move(prepared), std::move(bases), options);
    graph_run_.reset();
    if (graph != nullptr) graph_run_.emplace(run_, std::move(graph), is_fed);
    free_slots_.clear();
    for (uint32_t i = options.workers; i-- > 1;) free_slots_.push_back(int(i));
    num_dispatchers_ = options.num_dispatchers();
    while (dispatchers_.size() < num_dispatchers_) {
      const auto index = uint32_t(dispatchers_.size());
      dispatchers_.push_back(std::make_unique<Dispatcher>(run_, index));
    }
    for (auto& dispatcher : dispatchers_) dispatcher->reset(num_dispatchers_);
    is_over_.store(false, std::memory_order_relaxed);
  }

  /// No pool thread is inside. Only meaningful while the run is not in the pool.
  bool is_idle() const { return num_inside_.load(std::memory_order_acquire) == 0; }

  /// Lets others run what has been added to a graph that is fed.
  void feed() {
    graph_run_->open();
    if (num_free_slots() > 0) call_others();
  }
  /// All has been added.
  void end_feed() { graph_run_->end_build(); }

  /// Works until the run is over. Others are called once there is more to do, or at once if the first slice,
  /// which the caller runs itself, may take long.
  void work() {
    for (uint32_t i = 1; i < run_.num_workers() && run_.may_be_long(); ++i) call_others();
    int64_t looked_ns = 0;  // when it was last made sure that the run is not stuck
    for (int round = 0; !has_ended();) {
      if (work_once(0)) {
        round = 0;
        if (num_free_slots() > 0) call_others();
      } else if (round < kSpins) {
        pause(round++);
        looked_ns = 0;
      } else {
        sleep_until_progress();
        check_stuck(looked_ns);
      }
      run_.look_out(run_.worker(0).num_tasks);
    }
  }

  /// Ends a run: pool threads leave on their own. Waits until none of them runs a body, or reads what belongs
  /// to the caller, any more.
  void end() {
    is_over_.store(true, std::memory_order_seq_cst);
    if (is_in_pool_) Pool::instance().remove(this);
    is_in_pool_ = false;
    for (uint32_t i = 1; i < run_.num_workers(); ++i) {
      for (int spins = 0; run_.worker(i).is_active.load(std::memory_order_seq_cst); ++spins) pause(spins);
    }
    for (uint32_t i = 0; i < num_dispatchers_; ++i) dispatchers_[i]->leave();
  }

  Run& run() { return run_; }
  uint32_t num_dispatchers() const { return num_dispatchers_; }
  const Dispatcher& dispatcher(uint32_t i) const { return *dispatchers_[i]; }
  /// Null if the run is not of a graph.
  const GraphRun* graph_run() const { return graph_run_ ? &*graph_run_ : nullptr; }

  // Job, called by the pool.
  int join() override {
    if (!has_work(kAllLanes)) return -1;
    const auto found = std::find_if(free_slots_.rbegin(), free_slots_.rend(), [this](int slot) {
      return has_work(run_.pools().lanes_of(uint32_t(slot)));
    });
    if (found == free_slots_.rend()) return -1;
    const int slot = *found;
    free_slots_.erase(found.base() - 1);
    num_inside_.fetch_add(1, std::memory_order_relaxed);
    return slot;
  }
  void leave(int slot) override {
    // With pools every worker must get its turn; without, one that is warm had better come again.
    const bool has_pools = run_.pools().num_pools() > 0;
    free_slots_.insert(has_pools ? free_slots_.begin() : free_slots_.end(), slot);
    num_inside_.fetch_sub(1, std::memory_order_release);
  }
  bool wants_help() const override { return !free_slots_.empty() && has_work(kAllLanes); }
  bool help(int slot) override {
    bool has_worked = false;
    for (int idle = 0; idle < kSpins && !is_over_.load(std::memory_order_relaxed);) {
      if (work_once(uint32_t(slot))) {
        has_worked = true;
        idle = 0;
        run_.note_complete(uint32_t(slot));
        wake_caller();
      } else {
        pause(idle++);
      }
    }
    return has_worked;
  }

 private:
  static constexpr int kSpins = 200;

  /// Whether there is something to do for workers that take slices from `lanes`.
  bool has_work(Lanes lanes) const {
    if (is_over_.load(std::memory_order_relaxed)) return false;
    if (graph_run_) return graph_run_->has_work(lanes);
    if (run_.ready().has_slices(lanes)) return true;
    for (uint32_t i = 0; i < num_dispatchers_; ++i) {
      if (dispatchers_[i]->is_free()) return true;
    }
    return false;
  }

  /// Whether all that must complete is complete.
  bool has_ended() { return graph_run_ ? run_.is_cancelled() || graph_run_->is_over() : run_.is_over(); }

  /// A strand of a graph, a slice, or a stretch of a dispatcher. False if nothing could be done.
  bool work_once(uint32_t slot) {
    Worker& worker = run_.worker(slot);
    // Sequentially consistent against those who wait for workers (`end`, `are_others_idle`): either they see
    // this worker active, or it sees them.
    worker.is_active.store(true, std::memory_order_seq_cst);
    const bool is_paused = slot != 0 && is_paused_.load(std::memory_order_seq_cst);
    const bool is_over = is_paused || is_over_.load(std::memory_order_seq_cst) || has_ended();
    const bool has_worked = !is_over && is_ready(slot) && find_work(worker, slot);
    worker.is_active.store(false, std::memory_order_release);
    return has_worked;
  }

  /// False if there is no memory for the worker: the others do its work.
  bool is_ready(uint32_t slot) {
    try {
      run_.ready_worker(slot);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  /// Where a policy decides what starts first, tasks are made before one is chosen.
  bool find_work(Worker& worker, uint32_t slot) {
    const Lanes lanes = run_.pools().lanes_of(slot);
    if (graph_run_) return graph_run_->work(worker, slot, lanes);
    if (run_.is_ordered()) return step_any(slot) || run_.run_slice(worker, lanes);
    return run_.run_slice(worker, lanes) || step_any(slot);
  }

  bool step_any(uint32_t slot) {
    const uint64_t jitter = run_.options().jitter;
    const uint32_t first = jitter == 0 ? slot : Random(jitter + num_turns_.fetch_add(1)).next();
    for (uint32_t i = 0; i < num_dispatchers_; ++i) {
      Dispatcher& dispatcher = *dispatchers_[(first + i) % num_dispatchers_];
      if (!dispatcher.is_free() || !dispatcher.lock.try_lock()) continue;
      const bool has_worked = dispatcher.step(run_.worker(slot), run_.pools().lanes_of(slot));
      dispatcher.lock.unlock();
      if (has_worked) return true;
    }
    return false;
  }

  /// Throws `stuck` if nothing can go on. Looks every now and then while there is nothing to do.
  void check_stuck(int64_t& looked_ns) {
    constexpr int64_t kPeriodNs = 100000000;
    const int64_t now = trace::now_ns();
    if (looked_ns == 0) looked_ns = now;
    if (now - looked_ns < kPeriodNs) return;
    looked_ns = now;
    is_paused_.store(true, std::memory_order_seq_cst);
    std::vector<BlockedTask> blocked;
    const bool is_stuck = are_others_idle() && is_ready(0) && find_stuck(blocked);
    is_paused_.store(false, std::memory_order_seq_cst);
    if (!is_stuck) return;
    run_.cancel();
    const uint64_t oldest = graph_run_ ? graph_run_->num_complete() : run_.progress().watermark();
    throw stuck_error(std::move(blocked), oldest);
  }

  /// Whether no other worker is at work, soon after they were told to pause.
  bool are_others_idle() {
    for (uint32_t i = 1; i < run_.num_workers(); ++i) {
      for (int round = 0; run_.worker(i).is_active.load(std::memory_order_seq_cst); pause(round++)) {
        if (round == kSpins) return false;
      }
    }
    return true;
  }

  /// Whether nothing can ever go on, and the tasks that wait then. \pre nobody else is at work
  bool find_stuck(std::vector<BlockedTask>& blocked) {
    if (graph_run_) {
      blocked = graph_run_->find_stuck(run_.worker(0));
      return !blocked.empty();
    }
    if (!run_.has_idle_slices()) return false;
    for (uint32_t i = 0; i < num_dispatchers_; ++i) {
      Dispatcher& dispatcher = *dispatchers_[i];
      if (dispatcher.step(run_.worker(0), run_.pools().lanes_of(0)) || dispatcher.waits_for_pool())
        return false;
    }
    if (!run_.has_idle_slices() || run_.is_over()) return false;
    blocked = run_.blocked_tasks();
    for (uint32_t i = 0; i < num_dispatchers_; ++i) dispatchers_[i]->add_blocked(blocked);
    return true;
  }

  void call_others() {
    if (!has_work(kAllLanes)) return;
    if (!is_in_pool_) {
      Pool::instance().add(shared_from_this(), run_.num_workers() - 1);
      is_in_pool_ = true;
    }
    Pool::instance().wake();
  }

  uint32_t num_free_slots() const {
    return run_.num_workers() - 1 - uint32_t(num_inside_.load(std::memory_order_relaxed));
  }

  void wake_caller() {
    if (!is_caller_asleep_.load(std::memory_order_seq_cst)) return;
    const std::lock_guard<std::mutex> lock(caller_mutex_);
    caller_wake_.notify_one();
  }

  /// Lets the calling thread sleep until somebody has done something, for a short time at most.
  void sleep_until_progress() {
    std::unique_lock<std::mutex> lock(caller_mutex_);
    is_caller_asleep_.store(true, std::memory_order_seq_cst);
    if (!has_ended()) caller_wake_.wait_for(lock, std::chrono::microseconds(100));
    is_caller_asleep_.store(false, std::memory_order_relaxed);
  }

  /// Spins for a while, then gives the core to others.
  static void pause(int round) {
    if (round < kSpins / 2) {
      for (int i = 0; i < 16; ++i) relax();
    } else {
      std::this_thread::yield();
    }
  }

  Run run_;
  std::optional<GraphRun> graph_run_;
  uint32_t num_dispatchers_ = 0;
  std::vector<std::unique_ptr<Dispatcher>> dispatchers_;
  std::atomic<uint64_t> num_turns_{0};
  bool is_in_pool_ = false;      ///< set when others are first called: small runs need no pool
  std::vector<int> free_slots_;  ///< guarded by the pool's lock

  std::mutex caller_mutex_;
  std::condition_variable caller_wake_;
  alignas(kLineBytes) std::atomic<bool> is_caller_asleep_{false};
  alignas(kLineBytes) std::atomic<bool> is_over_{false};
  std::atomic<bool> is_paused_{false};  ///< workers begin nothing; the calling thread may
  alignas(kLineBytes) std::atomic<int> num_inside_{0};
};

}  // namespace pto::wsp::sched
