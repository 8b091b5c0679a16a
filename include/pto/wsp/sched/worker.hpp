// SPDX-License-Identifier: MIT
/// \file
/// A worker: the state of one thread that runs the bodies of tasks.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/arguments.hpp"
#include "pto/wsp/bytecode/rows.hpp"
#include "pto/wsp/progress.hpp"
#include "pto/wsp/sched/instances.hpp"
#include "pto/wsp/sched/network_sharing.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/pace.hpp"
#include "pto/wsp/sched/random.hpp"
#include "pto/wsp/trace/order_check.hpp"
#include "pto/wsp/trace/process_places.hpp"
#include "pto/wsp/trace/recorder.hpp"

namespace pto::wsp::sched {

/// Estimated run time of a task, per site; 0 while unknown. Read by the dispatcher, written by workers.
class SiteCosts {
 public:
  explicit SiteCosts(size_t num_sites) : costs_(num_sites) {}

  SharingChoice network_sharing;  ///< of a network

  uint32_t operator[](size_t site) const { return costs_[site].load(std::memory_order_relaxed); }

  /// Whether the next run justifies waking others: the last run was long, or there was none.
  bool are_for_many() const { return run_ns_.load(std::memory_order_relaxed) >= kLongRunNs; }
  void record_run(int64_t ns) { run_ns_.store(ns, std::memory_order_relaxed); }

  void forget(size_t site) { costs_[site].store(0, std::memory_order_relaxed); }

  /// Adds a sample. Small changes are not published, because dispatchers share the cache line. A sample
  /// counts at most twice the mean, because the thread may have lost its core during the task.
  void record(size_t site, int64_t ns) {
    const int64_t old = (*this)[site];
    const int64_t most = old == 0 ? kMaxNs : std::min(5 * old, kMaxNs);
    const int64_t sample = std::clamp<int64_t>(ns, 1, most);
    const int64_t mean = old == 0 ? sample : old + (sample - old) / 4;
    if (old == 0 || mean * 4 > old * 5 || mean * 5 < old * 4) {
      costs_[site].store(uint32_t(mean), std::memory_order_relaxed);
    }
  }

 private:
  static constexpr int64_t kLongRunNs = 50000;
  static constexpr int64_t kMaxNs = 1000000000;

  std::vector<std::atomic<uint32_t>> costs_;
  std::atomic<int64_t> run_ns_{kLongRunNs};
};

/// The overhead of timing a task in nanoseconds: the best of some trials, measured once.
inline int64_t clock_overhead_ns() {
  static const int64_t overhead = [] {
    int64_t best = 1000;
    for (int i = 0; i < 32; ++i) {
      const int64_t start = trace::now_ns();
      best = std::min(best, trace::now_ns() - start);
    }
    return best;
  }();
  return overhead;
}

/// Memory for the current task, kScratchAlign-aligned. Growth loses the contents.
class Scratch {
 public:
  /// Reserves `bytes` without touching them, in huge pages if they fill one and the system supports them.
  /// False without memory.
  bool reserve(uint64_t bytes) {
    if (bytes <= size_) return true;
    if (bytes > uint64_t{1} << 62) return false;
    data_.reset();
    size_ = 0;
    const uint64_t align = bytes < kHugePage ? uint64_t{kScratchAlign} : kHugePage;
    const uint64_t rounded = (bytes + align - 1) / align * align;
    data_.reset(std::aligned_alloc(align, rounded));
    if (data_ == nullptr) return false;
#if defined(MADV_HUGEPAGE)
    if (align == kHugePage) madvise(data_.get(), rounded, MADV_HUGEPAGE);  // may be refused
#endif
    size_ = rounded;
    return true;
  }
  void* data() const { return data_.get(); }

 private:
  static constexpr uint64_t kHugePage = uint64_t{2} << 20;

  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  std::unique_ptr<void, Free> data_;
  uint64_t size_ = 0;
};

/// Calls a kernel for each block of a task, up to the first that fails.
inline int32_t run_blocks(KernelFn fn, const View* views, const Scalar* scalars, TaskContext& context) {
  for (;;) {
    const int32_t status = fn(views, scalars, &context);
    if (status != 0 || ++context.block_idx == context.block_num) return status;
  }
}

class Worker;

/// Connects the kernels of a worker to their run.
struct WorkerMonitor : Monitor {
  Worker* worker = nullptr;
  void* run = nullptr;
};

class alignas(kLineBytes) Worker {
 public:
  /// \pre the worker has begun; \param run  for the functions of `functions`
  void watch(const Monitor& functions, void* run) {
    static_cast<Monitor&>(monitor_) = functions;
    monitor_.worker = this;
    monitor_.run = run;
  }
  Monitor& monitor() { return monitor_; }

  /// Forgets the run before. \pre no thread uses the worker
  void reset() {
    is_ready = false;
    first_task_ = 0;
    recorder_ = {};
    order_.clear();
    num_tasks_.store(0, std::memory_order_relaxed);
    num_suspended = max_workspace_bytes = 0;
    is_lent = false;
  }

  /// Prepares the worker for a run. The thread of the worker calls it.
  void begin(const bytecode::Plan& plan, const std::vector<char*>& bases, SiteCosts& costs,
             const RunOptions& options, Pace& pace, uint32_t slot) {
    plan_ = &plan;
    pace_ = &pace;
    costs_ = &costs;
    options_ = options;
    random_ = Random(options.jitter + slot * 7919);
    arguments_.bind(plan, bases);
    registers_.resize(plan.program().header.num_registers);
    const bool is_untimed = options.workers == 1 && options.is_in_order();
    period_ = options.watches_tasks() ? 0 : is_untimed ? INT32_MAX : kSamplePeriod;
    countdown_.assign(plan.sites.size(), is_untimed ? period_ : 0);
    if (!scratch_.reserve(plan.max_scratch_bytes)) throw std::bad_alloc();
    context_ = {scratch_.data(), nullptr, 0, 0, 0, 1, &monitor_};
    if (options.trace) ns_per_tick_ = trace::ns_per_tick();
    resume();
  }

  /// The thread returns to tasks from other work.
  void resume() {
    if (options_.trace) recorder_.resume();
  }
  /// The next task is one of a process, which records it. The time since the last one belongs to no task.
  void begin_task_of(uint32_t process) {
    first_task_ = uint64_t{process} << trace::kProcessShift;
    recorder_.resume();
  }
  /// Notes that the worker has looked for work since `start`, in a run that traces walks.
  void note_stretch(int64_t start, bool has_worked) { recorder_.note_stretch(start, has_worked); }
  trace::Events take_events() { return recorder_.take_events(); }
  std::vector<trace::Stretch> take_stretches() { return recorder_.take_stretches(); }
  /// Begin and end of tasks by number, in a run that verifies.
  const std::vector<std::pair<uint64_t, trace::OrderStamp>>& order() const { return order_; }

  int64_t* registers() { return registers_.data(); }
  /// Arguments for the one expander whose tasks this thread runs during its walk. Other tasks of the thread
  /// overwrite them.
  bytecode::Arguments& arguments() { return arguments_; }

  /// Runs the body of a task and returns the result of the kernel. Throws `out-of-memory`, and the errors of
  /// RowChecker for row sets whose indices tasks write.
  int32_t run(uint32_t site, const int64_t* registers, uint64_t task) {
    arguments_.fill(site, registers);
    return run_filled(arguments_, site, registers, task);
  }

  /// Runs the body of a task that `arguments` are filled in for.
  int32_t run_filled(const bytecode::Arguments& arguments, uint32_t site, const int64_t* registers,
                     uint64_t task) {
    const bytecode::Arguments::Call& call = arguments.call(site);
    count_task();
    context_.task = task;
    const bool is_sampled = --countdown_[site] < 0;
    if (!call.is_plain || is_sampled) return run_watched(arguments, site, registers, is_sampled);
    return call.fn(call.views, call.scalars, &context_);
  }

  /// Runs the body of a task that `arguments` are filled in for, and that is neither recorded nor timed.
  int32_t run_simple(const bytecode::Arguments::Call& call, uint64_t task) {
    count_task();
    context_.task = task;
    return call.fn(call.views, call.scalars, &context_);
  }

  /// The next task of the site is timed.
  void time_next(uint32_t site) { countdown_[site] = 0; }

  /// Tasks that the worker has begun. Any thread may ask.
  uint64_t num_tasks() const { return num_tasks_.load(std::memory_order_relaxed); }

  bool is_ready = false;  ///< `begin` was called for this run
  uint64_t num_suspended = 0;
  uint64_t max_workspace_bytes = 0;  ///< the largest workspace of a task
  // See observer.hpp
  bool is_lent = false;    ///< the thread belongs to a caller that can be interrupted
  uint64_t seen_tick = 0;  ///< of the ticker, when the worker answered last
  int64_t ask_ns = 0;      ///< time of the next question to the caller
  uint32_t num_asked = 0;  ///< questions of kernels while no ticker advanced
  /// True while the worker may be running a body. The end of a stopped run waits for it.
  std::atomic<bool> is_active{false};

 private:
  static constexpr int32_t kSamplePeriod = 255;  ///< untimed tasks between two timed tasks of a site

  /// Only one thread counts, so no increment is lost between the load and the store.
  [[gnu::always_inline]] inline void count_task() {
    num_tasks_.store(num_tasks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// Runs a task that needs more than its arguments, or that is delayed, recorded or timed.
  int32_t run_watched(const bytecode::Arguments& arguments, uint32_t site, const int64_t* registers,
                      bool is_sampled) {
    if (is_sampled) countdown_[site] = period_;
    if (options_.jitter != 0) delay();
    if (pace_->is_on()) {
      pace_->wait();
      resume();
    }
    if (options_.verifies) return run_verified(arguments, site, registers);
    if (options_.trace) {
      const int32_t status = run_body(arguments, site, registers);
      costs_->record(site, int64_t(double(recorder_.note_end(first_task_ + context_.task)) * ns_per_tick_));
      return status;
    }
    if (!is_sampled) return run_body(arguments, site, registers);
    const int64_t start = trace::now_ns();
    const int32_t status = run_body(arguments, site, registers);
    costs_->record(site, trace::now_ns() - start - clock_overhead_ns());
    return status;
  }

  int32_t run_verified(const bytecode::Arguments& arguments, uint32_t site, const int64_t* registers) {
    const uint64_t start = trace::draw_order();
    const int32_t status = run_body(arguments, site, registers);
    order_.push_back({context_.task, {start, trace::draw_order()}});
    return status;
  }

  /// Checks the indices that tasks write, after those tasks are complete.
  void check_rows(const bytecode::Arguments& arguments, const View* views, const bytecode::QuickSite& site) {
    for (uint32_t i = 0; i < site.num_io; ++i) {
      const bytecode::QuickIo& io = plan_->ios[site.first_io + i];
      if (io.rows < 0 || !plan_->rows[size_t(io.rows)].is_written) continue;
      try {
        row_checker_.check(plan_->rows[size_t(io.rows)], io, views[i].rows,
                           views[i].rows - arguments.indices(site.first_io + i), views[i].shape[0]);
      } catch (EngineError& error) {
        throw std::move(error).with_int("io", i);
      }
    }
  }

  int32_t run_body(const bytecode::Arguments& arguments, uint32_t site_index, const int64_t* registers) {
    const bytecode::Arguments::Call& call = arguments.call(site_index);
    if (call.is_plain) return call.fn(call.views, call.scalars, &context_);
    const bytecode::QuickSite& site = plan_->sites[site_index];
    TaskContext context = context_;
    context.block_num = site.kernel->block_dim;
    if (site.has_written_rows) check_rows(arguments, call.views, site);
    if (site.workspace.is_given) add_workspace(site, registers, context);
    if (options_.checks_instances && context.block_num > 1)
      instance_checker_.check(*site.kernel, call.fn, call.views, call.scalars, context);
    return run_blocks(call.fn, call.views, call.scalars, context);
  }

  void add_workspace(const bytecode::QuickSite& site, const int64_t* registers, TaskContext& context) {
    const auto bytes = uint64_t(plan_->evaluate(site.workspace.value, registers));
    max_workspace_bytes = std::max(max_workspace_bytes, bytes);
    if (!workspace_.reserve(bytes)) {
      throw EngineError("out-of-memory", "there is no memory for the workspace of a task")
          .with_int("bytes", int64_t(bytes));
    }
    context.workspace = bytes == 0 ? nullptr : workspace_.data();
    context.workspace_bytes = bytes;
  }

  void delay() {
    const uint32_t dice = random_.next();
    if (dice % 4 == 0) {
      for (uint32_t i = 0; i < (dice >> 8) % 512; ++i) relax();
    }
    if (dice % 32 == 1) std::this_thread::yield();
  }

  std::atomic<uint64_t> num_tasks_{0};
  const bytecode::Plan* plan_ = nullptr;
  SiteCosts* costs_ = nullptr;
  Pace* pace_ = nullptr;
  RunOptions options_;
  Random random_;
  bytecode::Arguments arguments_;
  std::vector<int64_t> registers_;
  std::vector<int32_t> countdown_;  ///< tasks until the next one is watched, per site
  int32_t period_ = 0;
  TaskContext context_{};
  WorkerMonitor monitor_{};
  trace::Recorder recorder_;
  std::vector<std::pair<uint64_t, trace::OrderStamp>> order_;
  double ns_per_tick_ = 1;
  uint64_t first_task_ = 0;  ///< added to numbers of tasks in the record
  bytecode::RowChecker row_checker_;
  InstanceChecker instance_checker_;
  Scratch scratch_;
  Scratch workspace_;
};

}  // namespace pto::wsp::sched
