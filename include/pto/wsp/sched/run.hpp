// SPDX-License-Identifier: MIT
/// \file
/// What the threads of one run share: progress counters, slices on their way, and the state of the run.
///
/// Why it ends: every wait is for a moment made of tasks earlier in program order. Slices are taken oldest
/// first, or when older than every waiting slice; so the oldest unfinished slice is always being run, or
/// waiting with its moment passed, or at the front of the queue and allowed to be taken.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "pto/wsp/sched/pool.hpp"
#include "pto/wsp/sched/worker.hpp"

namespace pto::wsp::sched {

/// A task could not be run (`error`), or its kernel returned `check` (> 0: the number of a failed run-time
/// check).
struct TaskFailure {
  uint64_t task;
  int32_t check;
  std::optional<EngineError> error;
};

/// A plan and all that it refers to; shared, since a thread that is about to leave a run may still look at
/// it.
struct Prepared {
  std::shared_ptr<const void> owner;  ///< of the program and the kernel library
  bytecode::Plan plan;
  SiteCosts costs;
};

class Run final : public Job, public std::enable_shared_from_this<Run> {
 public:
  Run() : slices_(kMaxLiveSlices) {}

  /// Prepares a run. \pre is_idle()
  void begin(std::shared_ptr<Prepared> prepared, std::vector<char*> bases, const RunOptions& options) {
    prepared_ = std::move(prepared);
    plan_ = &prepared_->plan;
    task_base_ = counters_[kWatermark].load(std::memory_order_relaxed);
    if (workers_.size() < options.workers) workers_.resize(options.workers);
    for (auto& worker : workers_) {
      if (worker == nullptr) worker = std::make_unique<Worker>();
      worker->reset();
    }
    bases_ = std::move(bases);
    options_ = options;
    prepare(0);
    num_workers_ = options.workers;
    free_slots_.clear();
    for (uint32_t i = options.workers; i-- > 1;) free_slots_.push_back(int(i));
    max_waiting_ = 64 + 16 * size_t(options.workers);
    max_queued = max_waiting = 0;
    stop_.store(false, std::memory_order_relaxed);
    is_over_.store(false, std::memory_order_relaxed);
    failure_.reset();
  }

  /// No pool thread is inside. Only meaningful while the run is not in the pool.
  bool is_idle() const { return num_inside_.load(std::memory_order_acquire) == 0; }

  /// So many tasks have passed through this state that names could run out during another run.
  bool is_worn() const { return counters_[kWatermark].load(std::memory_order_relaxed) > kValueMask / 2; }

  // Job, called by the pool.
  int join() override {
    if (free_slots_.empty() || is_over_.load(std::memory_order_relaxed)) return -1;
    if (queue_.size() == 0 && waiting_.size() == 0) return -1;
    const int slot = free_slots_.back();
    free_slots_.pop_back();
    num_inside_.fetch_add(1, std::memory_order_relaxed);
    return slot;
  }
  void leave(int slot) override {
    free_slots_.push_back(slot);
    num_inside_.fetch_sub(1, std::memory_order_release);
  }
  bool wants_help() const override { return !free_slots_.empty() && queue_.size() > 0; }
  bool help(int slot) override {
    try {
      prepare(uint32_t(slot));
    } catch (const std::bad_alloc&) {
      return false;  // the others do the work
    }
    Worker& worker = *workers_[size_t(slot)];
    bool has_worked = false;
    for (int idle = 0; idle < kSpins && !is_over_.load(std::memory_order_acquire);) {
      if (work_once(worker)) {
        has_worked = true;
        idle = 0;
      } else {
        pause(idle++);
      }
    }
    return has_worked;
  }

  /// Runs one slice, or as much of it as can run now. False if there was none.
  bool work_once(Worker& worker) {
    // Sequentially consistent against finish_stopped: either it sees this worker active, or we see the stop.
    worker.is_active.store(true, std::memory_order_seq_cst);
    Slice* slice = stop_.load(std::memory_order_seq_cst) ? nullptr : take();
    if (slice != nullptr) {
      worker.resume();
      execute(*slice, worker);
    }
    worker.is_active.store(false, std::memory_order_release);
    return slice != nullptr;
  }

  /// Runs the rest of a slice; if a task must wait, the slice becomes a waiting one.
  void execute(Slice& slice, Worker& worker) {
    while (slice.next < slice.num_tasks) {
      if (stop_.load(std::memory_order_relaxed)) return;
      const uint64_t* record = slice.words.data() + slice.cursor;
      const uint64_t num_waits = record[0] >> 32;
      for (uint64_t i = 1; i <= num_waits; ++i) {
        if (counters_.has_passed(record[i])) continue;
        ++worker.num_suspended;
        slice.blocked_on = record[i];
        waiting_.push(&slice);
        return;
      }
      // What a task waited for may have ended after the task before it.
      if (num_waits > 0) worker.resume();
      const auto site = uint32_t(record[0]);
      const size_t num_registers = load_registers(site, record + 1 + num_waits, worker.registers());
      if (!run_task(worker, site, worker.registers(), slice.first_task + slice.next)) return;
      ++slice.next;
      slice.cursor += 1 + num_waits + num_registers;
      counters_[slice.counter].store(slice.base + slice.next, std::memory_order_release);
    }
    complete(slice);
  }

  /// Runs one body; false (and the run stops) if the task failed. `task` counts over all runs of this state.
  bool run_task(Worker& worker, uint32_t site, const int64_t* registers, uint64_t task) {
    return succeeds(task - task_base_, [&] { return worker.run(site, registers, task - task_base_); });
  }

  /// Runs what `body` runs of task number `task`; false (and the run stops) if it failed.
  template <class Body>
  bool succeeds(uint64_t task, Body body) {
    try {
      const int32_t check = body();
      if (check == 0) return true;
      fail({task, check, {}});
    } catch (EngineError& error) {
      fail({task, 0, std::move(error)});
    } catch (const std::bad_alloc&) {
      fail({task, 0, EngineError("out-of-memory", "there is no memory to run a task")});
    }
    return false;
  }

  /// Marks a slice as complete and wakes who may wait for that.
  void complete(Slice& slice) {
    for (uint32_t i = 0; i < slice.num_groups; ++i) {
      counters_[slice.groups[i]].fetch_add(slice.num_tasks, std::memory_order_release);
    }
    slice.done.store(slice.number + 1, std::memory_order_seq_cst);
    if (waiting_.size() > 0) Pool::instance().wake();
    if (is_caller_asleep_.load(std::memory_order_seq_cst)) {
      const std::lock_guard<std::mutex> lock(caller_mutex_);
      caller_wake_.notify_one();
    }
  }

  /// Lets the calling thread sleep until a slice completes, for a short time at most.
  void sleep_until_progress() {
    std::unique_lock<std::mutex> lock(caller_mutex_);
    is_caller_asleep_.store(true, std::memory_order_seq_cst);
    if (!is_all_retired() && !is_stopped()) caller_wake_.wait_for(lock, std::chrono::microseconds(500));
    is_caller_asleep_.store(false, std::memory_order_relaxed);
  }

  /// Moves the watermark over complete slices.
  void advance_watermark() {
    if (!retire_lock_.try_lock()) return;
    while (num_retired_ < num_opened_.load(std::memory_order_acquire)) {
      Slice& slice = slice_at(num_retired_);
      if (slice.done.load(std::memory_order_acquire) != num_retired_ + 1) break;
      counters_[kWatermark].store(slice.first_task + slice.num_tasks, std::memory_order_release);
      spare_words_.push_back(std::move(slice.words));
      slice.words = {};
      ++num_retired_;
    }
    retired_.store(num_retired_, std::memory_order_release);
    retire_lock_.unlock();
  }

  // The dispatcher's side.

  /// A slice to fill, or null while too many are alive.
  Slice* open_slice() {
    const uint64_t number = num_opened_.load(std::memory_order_relaxed);
    if (number - retired_.load(std::memory_order_acquire) >= kMaxLiveSlices) return nullptr;
    Slice& slice = slice_at(number);
    slice.number = number;
    slice.num_tasks = slice.next = slice.num_groups = 0;
    slice.cursor = 0;
    return &slice;
  }

  /// Makes an opened slice, filled by now, known to `advance_watermark`.
  void commit_slice(const Slice& slice) { num_opened_.store(slice.number + 1, std::memory_order_release); }

  void publish(Slice& slice) {
    queue_.push(&slice);
    if (queue_.size() > max_queued) max_queued = queue_.size();
    if (!is_in_pool_) {
      Pool::instance().add(shared_from_this(), num_workers_ - 1);
      is_in_pool_ = true;
    }
    Pool::instance().wake();
  }

  std::vector<uint64_t> take_words() {
    retire_lock_.lock();
    std::vector<uint64_t> words;
    if (!spare_words_.empty()) {
      words = std::move(spare_words_.back());
      spare_words_.pop_back();
    }
    retire_lock_.unlock();
    words.clear();
    return words;
  }

  bool is_all_retired() {
    advance_watermark();
    return retired_.load(std::memory_order_acquire) == num_opened_.load(std::memory_order_relaxed);
  }

  /// Ends a run: pool threads leave on their own. After a stop, waits until no body runs any more.
  void end() {
    is_over_.store(true, std::memory_order_release);
    if (is_in_pool_) Pool::instance().remove(this);
    is_in_pool_ = false;
    if (!is_stopped()) return;
    for (uint32_t i = 1; i < num_workers_; ++i) {
      for (int spins = 0; workers_[i]->is_active.load(std::memory_order_seq_cst); ++spins) pause(spins);
    }
  }

  /// Spins for a while, then gives the core to others.
  static void pause(int round) {
    if (round < kSpins / 2) {
      for (int i = 0; i < 16; ++i) relax();
    } else {
      std::this_thread::yield();
    }
  }
  static constexpr int kSpins = 200;

  Counters& counters() { return counters_; }
  Worker& worker(uint32_t i) { return *workers_[i]; }
  uint32_t num_workers() const { return num_workers_; }
  SiteCosts& costs() { return prepared_->costs; }
  uint64_t num_slices() const { return num_opened_.load(std::memory_order_relaxed); }
  size_t num_queued() const { return queue_.size(); }
  uint64_t task_base() const { return task_base_; }
  const bytecode::Plan& plan() const { return *plan_; }
  void stop() { stop_.store(true, std::memory_order_seq_cst); }
  bool is_stopped() const { return stop_.load(std::memory_order_relaxed); }
  /// \pre end() has returned
  const std::optional<TaskFailure>& failure() const { return failure_; }

  size_t max_queued = 0;
  std::atomic<size_t> max_waiting{0};

 private:
  /// Stops the run. Of several failures that of the first task counts.
  void fail(TaskFailure failure) {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (!failure_ || failure_->task > failure.task) failure_ = std::move(failure);
    stop_.store(true, std::memory_order_seq_cst);
  }

  /// Readies a worker when it first takes part in a run, so that small runs pay for no other.
  void prepare(uint32_t slot) {
    Worker& worker = *workers_[slot];
    if (!worker.is_ready) worker.begin(*plan_, bases_, prepared_->costs, options_, slot);
    worker.is_ready = true;
  }

  Slice& slice_at(uint64_t number) { return slices_[number % kMaxLiveSlices]; }

  Slice* take() {
    uint64_t oldest = UINT64_MAX;
    const size_t num_waiting = waiting_.size();
    if (num_waiting > 0) {
      if (num_waiting > max_waiting.load(std::memory_order_relaxed))
        max_waiting.store(num_waiting, std::memory_order_relaxed);
      advance_watermark();
      if (Slice* slice = waiting_.pop_ready(counters_, oldest)) return slice;
    }
    return queue_.pop(num_waiting < max_waiting_ ? UINT64_MAX : oldest);
  }

  size_t load_registers(uint32_t site_index, const uint64_t* words, int64_t* registers) const {
    const bytecode::QuickSite& site = plan_->sites[site_index];
    const uint32_t* index = plan_->registers.data() + site.first_register;
    for (uint32_t i = 0; i < site.num_registers; ++i) registers[index[i]] = int64_t(words[i]);
    return site.num_registers;
  }

  const bytecode::Plan* plan_ = nullptr;
  std::shared_ptr<Prepared> prepared_;
  std::vector<char*> bases_;
  RunOptions options_;
  uint64_t task_base_ = 0;
  Counters counters_;
  std::vector<Slice> slices_;
  std::vector<std::unique_ptr<Worker>> workers_;
  uint32_t num_workers_ = 0;
  bool is_in_pool_ = false;      ///< set when the first slice is published: small runs need no pool
  std::vector<int> free_slots_;  ///< guarded by the pool's lock
  size_t max_waiting_ = 0;
  SliceQueue queue_;
  WaitingSlices waiting_;

  std::mutex caller_mutex_;
  std::condition_variable caller_wake_;
  std::atomic<bool> is_caller_asleep_{false};

  std::mutex failure_mutex_;
  std::optional<TaskFailure> failure_;

  alignas(kLineBytes) std::atomic<uint64_t> num_opened_{0};
  alignas(kLineBytes) std::atomic<uint64_t> retired_{0};
  alignas(kLineBytes) SpinLock retire_lock_;
  uint64_t num_retired_ = 0;
  std::vector<std::vector<uint64_t>> spare_words_;
  alignas(kLineBytes) std::atomic<bool> stop_{false};
  std::atomic<bool> is_over_{false};
  alignas(kLineBytes) std::atomic<int> num_inside_{0};
};

}  // namespace pto::wsp::sched
