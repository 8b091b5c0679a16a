// SPDX-License-Identifier: MIT
/// \file
/// Fetches inputs of tasks while tasks of an earlier value of a key run.
#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/arguments.hpp"
#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/sched/policy.hpp"
#include "pto/wsp/spin.hpp"

namespace pto::wsp::sched {

/// Walks a plan ahead of its workers. A worker that begins a task first issues prefetch instructions for the
/// inputs of up to two tasks of the next values, so that these tasks find them in a cache. It skips an input
/// that the latest task with it had, too. It orders nothing, writes nothing, and ends at the first flush
/// point.
class Prefetcher {
 public:
  /// \param ahead  values whose inputs are fetched while tasks of a value run
  Prefetcher(const bytecode::Plan& plan, const std::vector<char*>& bases, uint64_t ahead)
      : plan_(plan), ahead_(ahead), latest_(plan.ios.size()) {
    arguments_.bind(plan, bases);
    expander_.emplace(plan, plan.steps, &arguments_);
  }

  /// A worker begins a task. One worker fetches at a time; others go on.
  void begin_task(uint64_t task) {
    if (is_over_.load(std::memory_order_relaxed) || !lock_.try_lock()) return;
    const std::lock_guard<SpinLock> lock(lock_, std::adopt_lock);
    try {
      move_to(task);
      fetch_next();
    } catch (const EngineError&) {  // the run finds it, too
      end();
    } catch (const std::bad_alloc&) {  // the run needs no prefetch
      end();
    }
  }

  /// Tasks whose inputs were fetched. \pre the run is over
  uint64_t num_fetched() const { return num_fetched_; }
  /// Bytes of these inputs. \pre the run is over
  uint64_t num_bytes() const { return num_bytes_; }

 private:
  static constexpr int kTasksAtOnce = 2;
  static constexpr int kEventsAtOnce = 4096;     ///< a walk with fewer tasks ends the prefetch
  static constexpr int64_t kMaxBytes = 1 << 13;  ///< of a task
  static constexpr int64_t kCacheLine = 64;

  bool has_task() const { return !is_over_.load(std::memory_order_relaxed); }
  void end() { is_over_.store(true, std::memory_order_relaxed); }

  /// Moves past the tasks that have begun, and finds the latest value that has.
  void move_to(uint64_t task) {
    num_begun_ = std::max(num_begun_, task + 1);
    while (has_task() && num_walked_ <= num_begun_) advance();
    for (; !begins_.empty() && begins_.front() < num_begun_; begins_.pop_front()) ++running_;
  }

  /// Fetches inputs of the current task and of those after it.
  void fetch_next() {
    for (int fetched = 0; fetched < kTasksAtOnce && has_task() && value_ <= running_ + ahead_; advance()) {
      if (!is_keyed_ || value_ <= running_) continue;
      fetch();
      ++fetched;
    }
  }

  /// Goes to the next task.
  void advance() {
    for (int events = 0; events < kEventsAtOnce; ++events) {
      const bytecode::Event event = expander_->next();
      if (event.kind == bytecode::Event::kEnd || event.kind == bytecode::Event::kFlush) break;
      if (event.kind == bytecode::Event::kTask) return stop_at(event.index);
    }
    end();
  }

  void stop_at(uint32_t site) {
    site_ = site;
    num_walked_ = expander_->num_tasks();
    const bytecode::QuickAmount& key = plan_.sites[site].mark(bytecode::Mark::kPrefetch);
    is_keyed_ = key.is_given;
    if (!is_keyed_) return;
    const uint64_t value = numbers_.next(plan_.evaluate(key.value, expander_->registers()));
    if (value != value_) begins_.push_back(num_walked_ - 1);
    value_ = value;
  }

  /// Fetches the inputs of the current task, unless a task of the run decides where they are.
  void fetch() {
    const bytecode::QuickSite& site = plan_.sites[site_];
    if (site.checks_late) return;
    arguments_.fill_rest(site_, expander_->registers());
    const View* views = arguments_.call(site_).views;
    int64_t bytes = kMaxBytes;  // that it may still fetch
    for (uint32_t i = 0; i < site.num_io; ++i) {
      const bytecode::QuickIo& io = plan_.ios[site.first_io + i];
      const bool is_known = io.rows < 0 || !plan_.rows[size_t(io.rows)].is_written;
      const int64_t size = dtype_bytes(plan_.program().tensors[io.tensor].dtype);
      if (io.role == Role::out || !is_known) continue;
      const void* data = views[i].rows != nullptr ? nullptr : views[i].data;
      if (data != nullptr && data == std::exchange(latest_[site.first_io + i], data)) continue;
      fetch_view(views[i], site.kernel->params[i].rank, size, bytes);
    }
    num_bytes_ += uint64_t(kMaxBytes - bytes);
    ++num_fetched_;
  }

  /// Fetches a view up to `bytes`, and subtracts what it has.
  static void fetch_view(const View& view, int rank, int64_t size, int64_t& bytes) {
    const int last = rank - 1;
    const bool is_row = rank > 0 && view.stride[last] == 1;
    int64_t extent[kMaxViewRank] = {1, 1, 1, 1}, stride[kMaxViewRank] = {};
    for (int d = 0; d < (is_row ? last : rank); ++d) extent[d] = view.shape[d], stride[d] = view.stride[d];
    const int64_t row_bytes = is_row ? view.shape[last] * size : size;
    for (int64_t a = 0; a < extent[0]; ++a) {
      const int64_t row = view.rows != nullptr && (!is_row || last > 0) ? view.rows[a] : a;
      for (int64_t b = 0; b < extent[1]; ++b) {
        for (int64_t c = 0; c < extent[2]; ++c) {
          for (int64_t d = 0; d < extent[3] && bytes > 0; ++d) {
            const int64_t at = row * stride[0] + b * stride[1] + c * stride[2] + d * stride[3];
            const char* first = static_cast<const char*>(view.data) + at * size;
            for (int64_t byte = 0; byte < row_bytes && bytes > 0; byte += kCacheLine, bytes -= kCacheLine)
              __builtin_prefetch(first + byte, 0, 2);
          }
        }
      }
      if (bytes <= 0) return;
    }
  }

  const bytecode::Plan& plan_;
  const uint64_t ahead_;
  SpinLock lock_;
  bytecode::Arguments arguments_;
  std::optional<bytecode::Expander> expander_;
  ValueNumbers numbers_;
  std::atomic<bool> is_over_{false};
  uint32_t site_ = 0;            ///< of the current task
  uint64_t num_walked_ = 0;      ///< up to the current task
  uint64_t value_ = 0;           ///< number of its value, or of the latest one before it
  bool is_keyed_ = false;        ///< it has one
  uint64_t num_begun_ = 0;       ///< up to the latest task that has begun
  uint64_t running_ = 0;         ///< number of the latest value that has begun
  std::deque<uint64_t> begins_;  ///< the first tasks of the values after it
  uint64_t num_fetched_ = 0;
  uint64_t num_bytes_ = 0;
  std::vector<const void*> latest_;  ///< per input of a task: the one that was fetched last, unless rows
};

}  // namespace pto::wsp::sched
