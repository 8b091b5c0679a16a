// SPDX-License-Identifier: MIT
/// \file
/// The state that dispatchers and workers of one run share: progress, recorded slices, and the end of the
/// run.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/bytecode/streaming.hpp"
#include "pto/wsp/graph/symbolic_waits.hpp"
#include "pto/wsp/sched/flush_log.hpp"
#include "pto/wsp/sched/imports.hpp"
#include "pto/wsp/sched/numbering.hpp"
#include "pto/wsp/sched/numbering_log.hpp"
#include "pto/wsp/sched/observer.hpp"
#include "pto/wsp/sched/pace.hpp"
#include "pto/wsp/sched/prefetcher.hpp"
#include "pto/wsp/sched/print.hpp"
#include "pto/wsp/sched/ready_slices.hpp"
#include "pto/wsp/sched/stalls.hpp"
#include "pto/wsp/sched/strands.hpp"
#include "pto/wsp/sched/stuck.hpp"
#include "pto/wsp/sched/units.hpp"
#include "pto/wsp/sched/window.hpp"
#include "pto/wsp/sched/worker.hpp"

namespace pto::wsp::sched {

/// Why a run ends early. Of several failures, the failure of the first task counts. All tasks before it
/// complete.
struct Failure {
  uint64_t task;
  int32_t check = 0;                 ///< number of the run-time check of a kernel that failed, or 0
  std::optional<EngineError> error;  ///< a task could not be run, or the walk cannot go on after `task` tasks
  bool is_of_walk = false;           ///< without an error: the walk had no memory
  std::vector<int64_t> values = {};  ///< what the check found
};

/// Adds the place to an error that a walk found after `num_before` tasks.
inline EngineError place_late(EngineError error, const bytecode::Expander& expander, uint64_t num_before) {
  const bool is_placed = error.has("registers");
  return (is_placed ? std::move(error) : std::move(error).with("registers", expander.copy_registers()))
      .with_int("late", int64_t(num_before));
}

/// A plan and everything that it refers to. Shared, because a thread that leaves a run may still read it.
struct Prepared {
  std::shared_ptr<const void> owner;  ///< of the program and the kernel library
  bytecode::Plan plan;
  Marks marks;                         ///< for tasks none of which is long: see Run::marks
  std::shared_ptr<SiteCosts> costs;    ///< measured by earlier runs with any plan
  std::vector<uint32_t> cost_guesses;  ///< per site, until it is measured
  std::vector<std::unique_ptr<graph::UnitSummary>> units;  ///< per loop: see units.hpp
  std::unique_ptr<graph::SymbolicWaits> waits{};           ///< null until a run asks for them
};

/// The rest of a run that one worker began, for its dispatchers.
struct Rest {
  bytecode::Expander expander;  ///< for Expander::go_on_from, as its steps may not exist any more
  bytecode::Event event;        ///< the next one
  size_t num_flushed;           ///< flush points before it
};

/// Threads that could help with a run.
class Others {
 public:
  virtual ~Others() = default;
  /// Wakes one of them if it has work.
  virtual void call() = 0;
};

class Run {
 public:
  explicit Run(Others& others) : others_(others) {}

  /// Prepares a run. \pre no thread is inside
  void begin(std::shared_ptr<Prepared> prepared, std::vector<char*> bases, const RunOptions& options) {
    prepared_ = std::move(prepared);
    plan_ = &prepared_->plan;
    bases_ = std::move(bases);
    options_ = options;
    if (workers_.size() < options.workers) workers_.resize(options.workers);
    for (auto& worker : workers_) {
      if (worker == nullptr) worker = std::make_unique<Worker>();
      worker->reset();
    }
    pools_.begin(options, options.workers);
    pace_.begin(options.starts_per_second, options.clock != nullptr ? *options.clock : HostClock::instance());
    observer_.begin(options_);
    ready_worker(0);
    num_in_slices_.store(0, std::memory_order_relaxed);
    window_.begin(options.window);
    max_live_slices_.store(0, std::memory_order_relaxed);
    stalls_.clear();
    flushed_.clear();
    numbering_log_.clear();
    // If slices are not taken oldest first, only the window bounds waiting slices.
    ready_.begin(pools_.num_lanes(), is_ordered(), is_ordered() ? SIZE_MAX : kMaxWaiting);
    failure_.reset();
    rest_.reset();
    is_cancelled_.store(false, std::memory_order_relaxed);
    stopped_task_.store(UINT64_MAX, std::memory_order_relaxed);
    task_limit_.store(UINT64_MAX, std::memory_order_relaxed);
    end_slice_.store(UINT64_MAX, std::memory_order_relaxed);
    if (!options.is_in_order()) fix_costs();
    if (!options.is_in_order() && !options.is_network) begin_numbering();
    prefetcher_.reset();
    if (options.prefetch != 0 && bytecode::reads_past_caches(*plan_))
      prefetcher_.emplace(*plan_, bases_, options.prefetch);
  }

  /// Prepares a worker when it joins, so that small runs do not pay for other workers.
  void ready_worker(uint32_t slot) {
    Worker& worker = *workers_[slot];
    if (worker.is_ready) return;
    worker.begin(*plan_, bases_, *prepared_->costs, options_, pace_, slot);
    worker.watch({Ticker::address(), 0, &is_kernel_stopped, &print_of_kernel, {}}, this);
    observer_.ready(worker);
    worker.is_ready = true;
  }

  // Tasks

  /// Runs one body; false if the task failed or must not run any more. Slices before `slice` complete.
  bool run_task(Worker& worker, uint32_t site, const int64_t* registers, uint64_t task, uint64_t slice) {
    if (!may_run(worker, task)) return false;
    return succeeds(worker, task, slice, [&] { return worker.run(site, registers, task); });
  }

  /// Whether `worker` may run a task: the run has not ended before it.
  bool may_run(Worker& worker, uint64_t task) {
    look_out(worker);
    return task < task_limit_.load(std::memory_order_relaxed);
  }

  /// Runs `body` of a task on `worker`; false if it failed.
  template <class Body>
  [[gnu::always_inline]] inline bool succeeds(Worker& worker, uint64_t task, uint64_t slice,
                                              const Body& body) {
    try {
      if (__builtin_expect(prefetcher_.has_value(), false)) prefetcher_->begin_task(task);
      const int32_t check = body();
      if (__builtin_expect(check != 0, false)) return end_in_task(worker, task, check, slice);
      if (__builtin_expect(options_.completions != nullptr, false)) options_.completions->complete(task);
      return true;
    } catch (EngineError& error) {
      return fail_in_task({task, 0, std::move(error)}, slice);
    } catch (const std::bad_alloc&) {
      return fail_in_task({task, 0, EngineError("out-of-memory", "there is no memory to run a task")}, slice);
    }
  }

  /// Runs the rest of a slice; if a task must wait, the slice becomes a waiting one.
  void execute(Slice& slice, Worker& worker) {
    while (slice.next < slice.num_tasks) {
      const uint64_t* record = slice.words.data() + slice.cursor;
      const uint64_t num_waits = record[0] >> 32;
      for (uint64_t i = 1; i <= num_waits; ++i) {
        if (progress_.has_passed(record[i])) continue;
        ++worker.num_suspended;
        slice.blocked_on = record[i];
        ready_.push_waiting(&slice);
        return;
      }
      // The wait may have ended after the previous task.
      if (num_waits > 0) worker.resume();
      const auto site = uint32_t(record[0]);
      const size_t num_registers = load_registers(site, record + 1 + num_waits, worker.registers());
      if (!run_task(worker, site, worker.registers(), slice.first_task + slice.next, slice.number)) return;
      ++slice.next;
      slice.cursor += 1 + num_waits + num_registers;
      if (slice.next < slice.num_tasks) reach(task_name(slice.number, slice.next), site);
    }
    for (uint32_t i = 0; i < slice.num_groups; ++i) progress_.reach_in_group(slice.groups[i]);
    window_.give_back(slice.num_records);
    const uint64_t number = slice.number;
    store_.give_back(&slice);
    progress_.reach(complete_name(number));
  }

  /// A task of `site`, which is not the last of its slice, is complete.
  [[gnu::always_inline]] inline void reach(Name task, uint32_t site) {
    progress_.reach(task);
    call_others_after(site);
  }

  /// Between two tasks of a slice or strand: wakes workers, as waits for the first task, of `site`, are
  /// satisfied.
  [[gnu::always_inline]] inline void call_others_after(uint32_t site) {
    if (num_idle.load(std::memory_order_relaxed) > 0) call_others_after_long(site);
  }

  /// Runs one published slice of `lanes`, or as much of it as can run now: one of `preferred` if there is
  /// one. False if there was none.
  bool run_slice(Worker& worker, Lanes lanes, Lanes preferred) {
    if (!ready_.has_slices(lanes)) return false;
    num_in_slices_.fetch_add(1, std::memory_order_relaxed);
    Slice* slice = ready_.take(preferred, progress_);
    if (slice == nullptr && preferred != lanes) slice = ready_.take(lanes, progress_);
    if (slice != nullptr) {
      worker.resume();
      execute(*slice, worker);
    }
    num_in_slices_.fetch_sub(1, std::memory_order_release);
    return slice != nullptr;
  }

  /// Whether no worker has a slice or can take one. \pre no dispatcher makes slices
  bool has_idle_slices() const {
    return num_in_slices_.load(std::memory_order_acquire) == 0 && !ready_.has_ready(kAllLanes, progress_);
  }

  /// The waits of the waiting slices. \pre has_idle_slices(), and nothing has changed since
  std::vector<BlockedTask> blocked_tasks() {
    std::vector<BlockedTask> blocked;
    for (const Slice* slice : ready_.waiting()) {
      const uint64_t* record = slice->words.data() + slice->cursor;
      const auto site = uint32_t(record[0]);
      std::vector<int64_t> registers(plan_->program().header.num_registers);
      load_registers(site, record + 1 + (record[0] >> 32), registers.data());
      blocked.push_back({slice->first_task + slice->next, slice->number, plan_->sites[site].pc,
                         std::move(registers), describe(slice->blocked_on)});
    }
    return blocked;
  }

  // A run that one worker begins

  /// Computes numbering and units for the dispatchers from the measured times.
  void prepare_rest() { begin_numbering(); }

  /// Lets dispatchers continue at `event`, outside of units. All tasks before it are complete. \pre
  /// prepare_rest()
  void share_rest(const bytecode::Expander& expander, bytecode::Event event, size_t num_flushed) {
    rest_.emplace(Rest{expander, event, num_flushed});
  }
  /// The place where dispatchers begin, if it is not the first task.
  const Rest* rest() const { return rest_ ? &*rest_ : nullptr; }
  /// Whether several workers were to run tasks. \pre the run is over
  bool is_shared() const { return !options_.is_alone && (!options_.begins_alone || rest_); }

  // Recorded slices

  /// A slice with room for `num_records` records, or null if the window has no room.
  Slice* record_slice(uint32_t num_records) {
    if (!window_.take(num_records)) return nullptr;
    Slice* slice = store_.take();
    slice->num_records = num_records;
    return slice;
  }

  /// Publishes a filled slice with `unused` fewer records than its room.
  void publish(Slice& slice, uint32_t unused) {
    if (unused > 0) window_.give_back(unused);
    slice.num_records -= unused;
    ready_.push(&slice);
  }

  /// Whether `slice` should be recorded for workers that have no dispatcher of their own.
  bool wants_slices(uint64_t slice, uint32_t num_dispatchers) const {
    if (options_.jitter != 0) return Random(options_.jitter + slice).next() % 4 != 0;
    return options_.workers > num_dispatchers &&
           ready_.num_queued() < 2 * size_t(options_.workers - num_dispatchers);
  }

  // The end

  /// States that no slice from `slice` on exists.
  void end_at(uint64_t slice) { lower(end_slice_, slice); }

  /// Ends the run after the tasks before a failure. They are in slices up to `slice`.
  void fail(Failure failure, uint64_t slice) {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    lower(task_limit_, failure.task);
    lower(end_slice_, slice);
    if (!failure_ || failure_->task > failure.task) failure_ = std::move(failure);
  }

  /// Ends the run immediately, without the tasks before the failure: no memory, or no task can continue.
  void abort(Failure failure) {
    fail(std::move(failure), 0);
    cancel();
  }

  /// Ends the run as soon as no worker is in a task any more. Any thread may call it.
  void cancel() {
    is_cancelled_.store(true, std::memory_order_relaxed);
    pace_.stop();
    task_limit_.store(0, std::memory_order_seq_cst);
    end_slice_.store(0, std::memory_order_seq_cst);
    Ticker::advance();  // kernels ask
  }

  /// Whether every task that must complete is complete. Sequentially consistent against `Worker::is_active`.
  bool is_over() {
    const uint64_t end = end_slice_.load(std::memory_order_seq_cst);
    if (end == UINT64_MAX) return false;
    if (progress_.watermark() < end) progress_.advance_watermark();
    return progress_.watermark() >= end;
  }

  /// Between two tasks, or two steps of a walk without tasks: checks for an interrupt and reports progress if
  /// that is due.
  [[gnu::always_inline]] inline void look_out(Worker& worker) {
    if (__builtin_expect(Observer::is_due(worker), false)) answer(worker);
  }
  /// Ends the observation of a run that is over. \pre no thread is inside
  void end_observation() { observer_.end(); }

  bool is_cancelled() const { return is_cancelled_.load(std::memory_order_relaxed); }
  /// Whether it was cancelled because of its time limit.
  bool is_late() const { return observer_.is_late(); }
  /// The first task, in program order, whose kernel was stopped; UINT64_MAX if there is none.
  uint64_t stopped_task() const { return stopped_task_.load(std::memory_order_relaxed); }
  /// Tasks from this one on do not run.
  uint64_t task_limit() const { return task_limit_.load(std::memory_order_relaxed); }
  /// \pre no thread is in a task
  const std::optional<Failure>& failure() const { return failure_; }

  // Parts

  const bytecode::Plan& plan() const { return *plan_; }
  const std::vector<char*>& bases() const { return bases_; }
  const std::shared_ptr<Prepared>& prepared() const { return prepared_; }
  const RunOptions& options() const { return options_; }
  /// Whether a policy orders ready tasks. All tasks are recorded then.
  bool is_ordered() const { return options_.is_ordered(); }
  Progress& progress() { return progress_; }
  const Progress& progress() const { return progress_; }
  Window& window() { return window_; }
  const Pools& pools() const { return pools_; }
  const ReadySlices& ready() const { return ready_; }
  FlushLog& flushed() { return flushed_; }
  Stalls& stalls() { return stalls_; }
  const NumberingStart& numbering_start() const { return numbering_start_; }
  /// The units of work, which all walks of the run share.
  const std::shared_ptr<const Marks>& marks() const { return marks_; }
  NumberingLog& numbering_log() { return numbering_log_; }
  Worker& worker(uint32_t i) { return *workers_[i]; }
  uint32_t num_workers() const { return options_.workers; }
  /// The measured time of a task of a site in earlier runs, in nanoseconds; 0 if it never ran.
  uint32_t measured_cost(uint32_t site) const { return costs_[site]; }
  uint32_t guessed_cost(uint32_t site) const { return prepared_->cost_guesses[site]; }
  /// Whether the run may take longer than waking others.
  bool may_be_long() const { return prepared_->costs->are_for_many(); }
  /// The estimated time of a task in nanoseconds: the measured mean, else its stated cost, else a guess.
  uint64_t task_cost(uint32_t site, const int64_t* registers) const {
    if (measured_cost(site) != 0) return measured_cost(site);
    const bytecode::QuickAmount& stated = plan_->sites[site].cost;
    if (!stated.is_given) return guessed_cost(site);
    return std::min(uint64_t(plan_->evaluate(stated.value, registers)), detail::kGatherNs);
  }

  struct UnitSize {
    uint64_t tasks = 0;  ///< 0 also if they are too many to skip
    uint64_t ns = 0;     ///< their estimated time
  };
  UnitSize size_of(const graph::UnitSummary& unit, const graph::UnitSummary::Shape& shape,
                   uint64_t most_tasks) const {
    UnitSize size;
    unit.for_sites(shape, [&](uint32_t site, uint64_t count) {
      const uint64_t measured = measured_cost(site);
      const uint64_t cost = std::min(measured != 0 ? measured : guessed_cost(site), detail::kGatherNs);
      size.tasks += std::min(count, most_tasks);
      size.ns += std::min(count, most_tasks) * cost;
    });
    return size.tasks < most_tasks ? size : UnitSize{};
  }

  /// \pre the run is complete and not in order
  uint64_t num_slices() const {
    const uint64_t end = end_slice_.load(std::memory_order_relaxed);
    return options_.is_in_order() || options_.is_network ? 0 : end - numbering_start_.first_slice;
  }
  /// Tasks whose inputs were fetched ahead. \pre the run is over
  uint64_t num_prefetched() const { return prefetcher_ ? prefetcher_->num_fetched() : 0; }
  /// Bytes of these inputs. \pre the run is over
  uint64_t prefetched_bytes() const { return prefetcher_ ? prefetcher_->num_bytes() : 0; }
  uint64_t max_recorded() const { return window_.max_taken(); }
  uint64_t max_live_slices() const { return max_live_slices_.load(std::memory_order_relaxed); }
  /// Counts a slice that begins. If more slices seem live than one dispatcher can have, the watermark may
  /// lag.
  void count_live(uint64_t slice) {
    uint64_t live = slice + 1 - progress_.watermark();
    if (live > kMaxLiveSlices) {
      progress_.advance_watermark();
      live = slice + 1 - progress_.oldest();
    }
    raise(max_live_slices_, live);
  }

  /// Workers of the run without work or without a thread. Written by the crew.
  std::atomic<int> num_idle{0};

 private:
  static constexpr uint32_t kLongTaskNs = 5000;
  /// Slices that may wait while later ones begin. A search through them takes less time than one body.
  static constexpr size_t kMaxWaiting = 1024;

  [[gnu::noinline]] void answer(Worker& worker) {
    if (is_cancelled()) return;
    if (observer_.answer(worker, [&] { return count_complete(worker); })) cancel();
  }

  /// A lower bound on complete tasks. `own` is between two tasks; another active worker may be in one.
  uint64_t count_complete(const Worker& own) const {
    uint64_t count = 0;
    for (uint32_t i = 0; i < options_.workers; ++i) {
      const Worker& worker = *workers_[i];
      const uint64_t begun = worker.num_tasks();
      // Under a calendar, the thread of another worker may be in a task of this one.
      const bool is_active = options_.has_calendar() || worker.is_active.load(std::memory_order_relaxed);
      const bool is_inside = &worker != &own && is_active;
      count += begun - (is_inside && begun > 0 ? 1 : 0);
    }
    return count;
  }

  /// For long tasks. After a short task, the slice ends soon anyway.
  [[gnu::noinline]] void call_others_after_long(uint32_t site) {
    if ((*prepared_->costs)[site] >= kLongTaskNs) others_.call();
  }

  /// Handles a kernel that ended early: its run must end, or a check failed.
  [[gnu::noinline]] bool end_in_task(Worker& worker, uint64_t task, int32_t check, uint64_t slice) {
    if (check == kStopped) {
      lower(stopped_task_, task);
      return false;
    }
    const int64_t* values = worker.monitor().values;
    return fail_in_task({task, check, {}, false, {values, values + kMaxCheckValues}}, slice);
  }

  static bool is_kernel_stopped(Monitor* monitor) {
    auto* own = static_cast<WorkerMonitor*>(monitor);
    return static_cast<Run*>(own->run)->stops_kernel(*own->worker);
  }
  static void print_of_kernel(Monitor* monitor, const TaskContext* context, const char* kernel,
                              const Printed* parts, int32_t num_parts) {
    const RunOptions& options = static_cast<Run*>(static_cast<WorkerMonitor*>(monitor)->run)->options_;
    print_parts(options.on_print, options.printer, *context, kernel, parts, num_parts);
  }
  [[gnu::noinline]] bool stops_kernel(Worker& worker) {
    const bool is_stopped = observer_.stops_kernel(worker);
    if (is_cancelled()) return true;
    if (is_stopped) cancel();
    return is_stopped;
  }

  [[gnu::noinline]] bool fail_in_task(Failure failure, uint64_t slice) {
    fail(std::move(failure), slice);
    return false;
  }

  /// Fixes costs until the run is over, because all dispatchers must compute the same numbers.
  void fix_costs() {
    costs_.resize(plan_->sites.size());
    for (size_t i = 0; i < costs_.size(); ++i) costs_[i] = (*prepared_->costs)[i];
  }

  /// Fixes sizes until the run is over.
  void begin_numbering() {
    // A slice takes room for all its tasks. If missing room is an error, a slice has one task.
    const bool is_exact = options_.window_mode == WindowMode::kAbort;
    const uint64_t most = is_exact ? 1 : std::max<uint64_t>(options_.window / 8, 1);
    numbering_start_.first_slice = progress_.watermark();
    if (options_.imports != nullptr) numbering_start_.first_slice += options_.imports->num_slices();
    numbering_start_.max_tasks = uint32_t(std::min<uint64_t>(most, kMaxSliceTasks));
    numbering_start_.jitter = options_.jitter;
    for (uint32_t i = 0; i < kNumGroupLines; ++i)
      numbering_start_.group_slices[i] = progress_.slices_in_group(i);
    mark_long_tasks();
  }

  /// One worker runs a whole unit. Units with long tasks are divided, because ordering costs little in
  /// comparison.
  void mark_long_tasks() {
    marks_ = std::shared_ptr<const Marks>(prepared_, &prepared_->marks);
    bool is_any = false;
    std::vector<bool> is_long(plan_->sites.size());
    for (uint32_t site = 0; site < plan_->sites.size(); ++site) {
      is_long[site] = usual_cost(site) >= detail::kGatherNs;
      is_any = is_any || (is_long[site] && !marks_->sites[site].is_unit);
    }
    if (!is_any) return;
    marks_ = std::make_shared<const Marks>(
        mark_units(*plan_, options_.workers, options_.cuts_units(), std::move(is_long)));
  }

  /// The estimated time of any task of a site, in nanoseconds.
  uint64_t usual_cost(uint32_t site) const {
    const bytecode::QuickAmount& stated = plan_->sites[site].cost;
    const bool is_known = measured_cost(site) != 0 || !stated.is_given || stated.value.is_constant();
    return is_known ? task_cost(site, nullptr) : 0;
  }

  size_t load_registers(uint32_t site_index, const uint64_t* words, int64_t* registers) const {
    const bytecode::QuickSite& site = plan_->sites[site_index];
    const uint32_t* index = plan_->registers.data() + site.first_register;
    for (uint32_t i = 0; i < site.num_registers; ++i) registers[index[i]] = int64_t(words[i]);
    return site.num_registers;
  }

  static void lower(std::atomic<uint64_t>& value, uint64_t to) {
    for (uint64_t now = value.load(); now > to && !value.compare_exchange_weak(now, to);) {
    }
  }
  static void raise(std::atomic<uint64_t>& value, uint64_t to) {
    for (uint64_t now = value.load(std::memory_order_relaxed);
         now < to && !value.compare_exchange_weak(now, to, std::memory_order_relaxed);) {
    }
  }

  const bytecode::Plan* plan_ = nullptr;
  std::shared_ptr<Prepared> prepared_;
  std::vector<char*> bases_;
  RunOptions options_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Observer observer_;
  Others& others_;
  std::vector<uint32_t> costs_;
  std::shared_ptr<const Marks> marks_;
  std::optional<Rest> rest_;
  NumberingStart numbering_start_;
  NumberingLog numbering_log_;

  Progress progress_;
  SliceStore store_;
  ReadySlices ready_;
  Pools pools_;
  Pace pace_;
  Window window_;
  FlushLog flushed_;
  Stalls stalls_;
  std::optional<Prefetcher> prefetcher_;

  std::mutex failure_mutex_;
  std::optional<Failure> failure_;

  alignas(kLineBytes) std::atomic<uint32_t> num_in_slices_{0};  ///< workers
  std::atomic<uint64_t> max_live_slices_{0};
  alignas(kLineBytes) std::atomic<uint64_t> task_limit_{UINT64_MAX};
  std::atomic<uint64_t> end_slice_{UINT64_MAX};
  std::atomic<bool> is_cancelled_{false};
  std::atomic<uint64_t> stopped_task_{UINT64_MAX};
};

}  // namespace pto::wsp::sched
