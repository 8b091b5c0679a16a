// SPDX-License-Identifier: MIT
/// \file
/// Reports the progress of a run to its listener, and ends the run when its caller is interrupted or its time
/// limit is reached.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "pto/wsp/forks.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/ticker.hpp"
#include "pto/wsp/sched/worker.hpp"
#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::sched {

/// Workers call the observer between tasks when the ticker has advanced. The first of them calls the listener
/// about every 50 ms; the time inside the listener does not count. Only a lent thread of a caller asks
/// whether the caller was interrupted.
class Observer {
 public:
  ~Observer() { end(); }

  /// \pre it has ended
  void begin(const RunOptions& options) {
    options_ = &options;
    is_on_ = options.is_interrupted != nullptr || options.on_progress != nullptr || options.time_limit_ns > 0;
    is_late_.store(false, std::memory_order_relaxed);
    if (!is_on_) return;
    begin_ns_ = trace::now_ns();
    tell_ns_.store(begin_ns_ + kPeriodNs, std::memory_order_relaxed);
    num_told_ = 0;
    is_timed_.store(Ticker::instance().enter(), std::memory_order_relaxed);
    is_entered_ = true;
    forks_ = num_forks();
  }
  void end() {
    if (is_entered_ && forks_ == num_forks()) Ticker::instance().leave();
    is_entered_ = is_on_ = false;
  }

  /// Prepares a worker: it need not call before the ticker advances.
  void ready(Worker& worker) const {
    worker.seen_tick = is_on_ && !is_timed() ? kNever : Ticker::count();
    worker.monitor().seen_ticks = worker.seen_tick;
    worker.num_asked = 0;
    worker.ask_ns = begin_ns_ + kPeriodNs;
  }
  static bool is_due(const Worker& worker) { return worker.seen_tick != Ticker::count(); }

  /// Does what is due; true if the run must end. `count` returns the number of complete tasks.
  template <class Count>
  bool answer(Worker& worker, const Count& count) {
    worker.seen_tick = Ticker::count();
    if (!is_on_) return false;
    const int64_t now = trace::now_ns();
    if (!is_timed()) {
      const bool is_young = now - begin_ns_ < kYoungNs;
      if (is_young || !Ticker::instance().start()) {
        worker.seen_tick = kNever;
        if (is_young) return false;
      } else {
        is_timed_.store(true, std::memory_order_relaxed);
      }
    }
    return is_beyond_limit(now) || is_refused(now, count) || is_interrupted(worker, now);
  }

  /// The same inside a task, for the kernel on `worker`. The listener is called between tasks only. A kernel
  /// that asks often starts the ticker, even in a young run.
  bool stops_kernel(Worker& worker) {
    worker.monitor().seen_ticks = Ticker::acquire();
    if (!is_on_) return false;
    if (!is_timed()) {
      if (++worker.num_asked % kAsksPerLook != 0 || !Ticker::instance().start()) {
        worker.monitor().seen_ticks = kNever;
        if (worker.num_asked % kAsksPerLook != 0) return false;
      } else {
        is_timed_.store(true, std::memory_order_relaxed);
      }
    }
    const int64_t now = trace::now_ns();
    return is_beyond_limit(now) || is_interrupted(worker, now);
  }

  /// Whether the run must end because of its time limit.
  bool is_late() const { return is_late_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr int64_t kPeriodNs = 50000000;
  static constexpr int64_t kYoungNs = 1000000;
  static constexpr uint32_t kAsksPerLook = 64;

  bool is_timed() const { return is_timed_.load(std::memory_order_relaxed); }

  bool is_beyond_limit(int64_t now) {
    if (options_->time_limit_ns <= 0 || now - begin_ns_ < options_->time_limit_ns) return false;
    is_late_.store(true, std::memory_order_relaxed);
    return true;
  }

  template <class Count>
  bool is_refused(int64_t now, const Count& count) {
    int64_t due = tell_ns_.load(std::memory_order_relaxed);
    if (options_->on_progress == nullptr || now < due) return false;
    // Acquire: the previous caller of the listener has returned from it.
    if (!tell_ns_.compare_exchange_strong(due, INT64_MAX, std::memory_order_acquire)) return false;
    num_told_ = std::max(num_told_, count());
    const bool is_refused = options_->on_progress(options_->listener, num_told_);
    tell_ns_.store(trace::now_ns() + kPeriodNs, std::memory_order_release);
    return is_refused;
  }

  bool is_interrupted(Worker& worker, int64_t now) const {
    if (!worker.is_lent || options_->is_interrupted == nullptr || now < worker.ask_ns) return false;
    const bool is_interrupted = options_->is_interrupted();
    worker.ask_ns = trace::now_ns() + kPeriodNs;
    return is_interrupted;
  }

  const RunOptions* options_ = nullptr;
  bool is_on_ = false;
  bool is_entered_ = false;
  uint64_t forks_ = 0;  ///< when it began
  int64_t begin_ns_ = 0;
  std::atomic<bool> is_timed_{false};  ///< the ticker advances
  std::atomic<bool> is_late_{false};   ///< the time limit is reached
  std::atomic<int64_t> tell_ns_{0};    ///< time of the next report; infinite during a report
  uint64_t num_told_ = 0;
};

}  // namespace pto::wsp::sched
