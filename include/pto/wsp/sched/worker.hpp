// SPDX-License-Identifier: MIT
/// \file
/// A worker: what one thread needs to run the bodies of tasks.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "pto/wsp/bytecode/rows.hpp"
#include "pto/wsp/sched/counters.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/slice.hpp"
#include "pto/wsp/trace/trace.hpp"

namespace pto::wsp::sched {

/// Estimated run time of a task, per site; 0 while unknown. Read by the dispatcher, written by workers.
class SiteCosts {
 public:
  explicit SiteCosts(size_t num_sites) : costs_(num_sites) {}
  uint32_t operator[](size_t site) const { return costs_[site].load(std::memory_order_relaxed); }

  /// Folds in a sample. Small changes are not published: the line is shared with the dispatcher.
  void record(size_t site, int64_t ns) {
    const int64_t sample = ns < 1 ? 1 : ns > 1000000000 ? 1000000000 : ns;
    const int64_t old = (*this)[site];
    const int64_t mean = old == 0 ? sample : old + (sample - old) / 4;
    if (old == 0 || mean * 4 > old * 5 || mean * 5 < old * 4) {
      costs_[site].store(uint32_t(mean), std::memory_order_relaxed);
    }
  }

 private:
  std::vector<std::atomic<uint32_t>> costs_;
};

/// What timing a task adds to its time, in nanoseconds: the best of some tries, measured once.
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

/// xorshift64*: delays for tests.
class Random {
 public:
  explicit Random(uint64_t seed = 1) : state_(seed * 0x9E3779B97F4A7C15ull | 1) {}
  uint32_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return uint32_t((state_ * 0x2545F4914F6CDD1Dull) >> 32);
  }

 private:
  uint64_t state_;
};

/// Memory for one task after another, kScratchAlign-aligned. Growing it loses the contents.
class Scratch {
 public:
  /// Makes room for `bytes`; false if there is no memory.
  bool reserve(uint64_t bytes) {
    if (bytes <= size_) return true;
    if (bytes > uint64_t{1} << 62) return false;
    data_.reset();
    size_ = 0;
    const uint64_t rounded = (bytes + kScratchAlign - 1) / kScratchAlign * kScratchAlign;
    data_.reset(std::aligned_alloc(kScratchAlign, rounded));
    if (data_ == nullptr) return false;
    size_ = rounded;
    return true;
  }
  void* data() const { return data_.get(); }

 private:
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

class alignas(kLineBytes) Worker {
 public:
  /// Forgets the run before. \pre no thread uses the worker
  void reset() {
    is_ready = false;
    events.clear();
    num_tasks = num_suspended = max_workspace_bytes = 0;
  }

  /// Makes the worker ready for a run. Called by the thread that is the worker.
  void begin(const bytecode::Plan& plan, const std::vector<char*>& bases, SiteCosts& costs,
             const RunOptions& options, uint32_t slot) {
    plan_ = &plan;
    costs_ = &costs;
    options_ = options;
    random_ = Random(options.jitter + slot * 7919);
    views_ = plan.views;
    bases_.clear();
    index_bases_.clear();
    for (const bytecode::QuickIo& io : plan.ios) {
      bases_.push_back(bases[io.tensor]);
      const char* indices = io.rows < 0 ? nullptr : bases[plan.rows[size_t(io.rows)].tensor];
      index_bases_.push_back(reinterpret_cast<const int32_t*>(indices));
    }
    scalars_.resize(plan.scalars.size());
    for (size_t i = 0; i < plan.scalars.size(); ++i) scalars_[i].i64 = plan.scalars[i].bits;
    registers_.resize(plan.program().header.num_registers);
    countdown_.assign(plan.sites.size(), 0);
    if (!scratch_.reserve(plan.max_scratch_bytes)) throw std::bad_alloc();
  }

  int64_t* registers() { return registers_.data(); }

  /// Runs the body of a task; returns what the kernel returned. Throws `out-of-memory`, and what RowChecker
  /// throws for row sets whose indices tasks write.
  int32_t run(uint32_t site_index, const int64_t* registers, uint64_t task) {
    const bytecode::QuickSite& site = plan_->sites[site_index];
    fill_arguments(site, registers);
    TaskContext context{scratch_.data(), nullptr, 0, task, 0, 1};
    if (!site.is_plain) prepare(site, registers, context);
    ++num_tasks;
    if (options_.jitter != 0) delay();
    if (options_.trace) return run_traced(site, context);
    if (countdown_[site_index]-- > 0) return run_body(site, context);
    countdown_[site_index] = kSampleEvery;
    const int64_t start = trace::now_ns();
    const int32_t status = run_body(site, context);
    costs_->record(site_index, trace::now_ns() - start - clock_overhead_ns());
    return status;
  }

  bool is_ready = false;  ///< `begin` was called for this run
  std::vector<trace::TaskEvent> events;
  uint64_t num_tasks = 0;
  uint64_t num_suspended = 0;
  uint64_t max_workspace_bytes = 0;  ///< the most that a task asked for
  /// True while the worker may be running a body. The end of a stopped run waits for it.
  std::atomic<bool> is_active{false};

 private:
  static constexpr int32_t kSampleEvery = 63;

  void fill_arguments(const bytecode::QuickSite& site, const int64_t* registers) {
    const bytecode::Patch* patch = plan_->patches.data() + site.first_patch;
    for (const bytecode::Patch* end = patch + site.num_patches; patch != end; ++patch) {
      const size_t io = site.first_io + patch->view;
      const int64_t value = plan_->evaluate(patch->value, registers);
      switch (patch->kind) {
        case bytecode::Patch::kSetData: views_[io].data = bases_[io] + value; break;
        case bytecode::Patch::kAddData:
          views_[io].data = static_cast<char*>(views_[io].data) + value * patch->scale;
          break;
        case bytecode::Patch::kExtent: views_[io].shape[patch->slot] = value; break;
        case bytecode::Patch::kRows: views_[io].rows = index_bases_[io] + value; break;
      }
    }
    for (uint32_t i = site.first_scalar; i < site.first_scalar + site.num_scalars; ++i) {
      if (!plan_->scalars[i].is_fixed) scalars_[i].i64 = plan_->evaluate(plan_->scalars[i].value, registers);
    }
  }

  /// Looks at the indices that tasks write, now that those tasks are complete.
  void check_rows(const bytecode::QuickSite& site) {
    for (uint32_t i = 0; i < site.num_io; ++i) {
      const bytecode::QuickIo& io = plan_->ios[site.first_io + i];
      if (io.rows < 0 || !plan_->rows[size_t(io.rows)].is_written) continue;
      const View& view = views_[site.first_io + i];
      try {
        row_checker_.check(plan_->rows[size_t(io.rows)], io, view.rows,
                           view.rows - index_bases_[site.first_io + i], view.shape[0]);
      } catch (EngineError& error) {
        throw std::move(error).with_int("io", i);
      }
    }
  }

  void prepare(const bytecode::QuickSite& site, const int64_t* registers, TaskContext& context) {
    if (site.has_written_rows) check_rows(site);
    if (site.workspace.is_given) add_workspace(site, registers, context);
    context.block_num = site.kernel->block_dim;
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

  int32_t run_body(const bytecode::QuickSite& site, TaskContext& context) const {
    const View* views = views_.data() + site.first_io;
    const Scalar* scalars = scalars_.data() + site.first_scalar;
    return site.is_plain ? site.fn(views, scalars, &context) : run_blocks(site.fn, views, scalars, context);
  }

  int32_t run_traced(const bytecode::QuickSite& site, TaskContext& context) {
    const int64_t start = trace::now_ns();
    const int32_t status = run_body(site, context);
    const int64_t end = trace::now_ns();
    events.push_back({context.task, start, end});
    costs_->record(size_t(&site - plan_->sites.data()), end - start);
    return status;
  }

  void delay() {
    const uint32_t dice = random_.next();
    if (dice % 4 == 0) {
      for (uint32_t i = 0; i < (dice >> 8) % 512; ++i) relax();
    }
    if (dice % 32 == 1) std::this_thread::yield();
  }

  const bytecode::Plan* plan_ = nullptr;
  SiteCosts* costs_ = nullptr;
  RunOptions options_;
  Random random_;
  std::vector<View> views_;                  ///< one per io, filled in anew for each task
  std::vector<char*> bases_;                 ///< per io
  std::vector<const int32_t*> index_bases_;  ///< per io: its index tensor, if it is a row set
  std::vector<Scalar> scalars_;              ///< one per scalar argument
  std::vector<int64_t> registers_;
  std::vector<int32_t> countdown_;  ///< tasks until the next one is timed, per site
  bytecode::RowChecker row_checker_;
  Scratch scratch_;
  Scratch workspace_;
};

}  // namespace pto::wsp::sched
