// SPDX-License-Identifier: MIT
/// \file
/// Whether the tasks of a run are worth more than one worker.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

/// Several workers share the bodies, but each dispatcher orders all tasks that it cannot pass over. One
/// worker alone orders none. Where measured task times do not show which way is faster, runs try both.
class Sharing {
 public:
  /// Whether so many workers are expected to end before one alone would. Yes as long as no task was timed.
  /// \pre prepared for a run that orders tasks
  bool is_worth_it(const Prepared& prepared, uint32_t workers) {
    const Estimate estimate = estimate_of(prepared);
    if (workers != workers_) *this = {};
    workers_ = workers;
    size_ = std::min(size_t(std::log2(1 + estimate.tasks)), of_sizes_.size() - 1);
    if (!estimate.is_timed) return true;
    const double saved_ns = estimate.body_ns * (workers - 1) / workers;
    if (saved_ns * kClear < estimate.order_ns) return false;
    const double task_ns = estimate.body_ns / estimate.tasks;
    const bool is_clear = task_ns > kSureNs && saved_ns > kClear * estimate.order_ns;
    return is_clear || of_sizes_[size_].is_shared_next();
  }

  /// The class of sizes of the run that was asked about last.
  size_t size_of_last() const { return size_; }

  /// What a run of a class of sizes took.
  void record(size_t size, bool is_shared, double ns_per_task) {
    (is_shared ? of_sizes_[size].shared : of_sizes_[size].alone).record(ns_per_task);
  }

 private:
  /// What it takes to find the place of a task, or of a whole unit, of another dispatcher, and to share what
  /// that needs.
  static constexpr double kTaskNs = 50;
  static constexpr double kUnitNs = 400;
  static constexpr double kClear = 4;      ///< estimates that are so far apart are believed
  static constexpr double kSureNs = 1000;  ///< what is shorter takes longer when it is timed
  static constexpr uint32_t kTrials = 2;
  static constexpr uint32_t kTrialPeriod = 64;  ///< of runs; in between, the faster way is taken

  struct Estimate {
    double tasks = 0, body_ns = 0, order_ns = 0;
    bool is_timed = false;
  };

  struct Way {
    uint32_t num_runs = 0;
    double ns = 0;  ///< per task: the best of the first runs, then a mean in which the latest count most

    /// One run that had no core for long does not count for much.
    void record(double ns_per_task) {
      const double change = ns_per_task - ns;
      if (num_runs == 0 || (num_runs < kTrials && change < 0)) {
        ns = ns_per_task;
      } else if (num_runs >= kTrials) {
        ns += change < 0 ? change / 2 : std::min(change, ns) / 4;
      }
      ++num_runs;
    }
  };

  struct Ways {
    Way shared, alone;

    bool is_shared_next() const {
      if (std::min(shared.num_runs, alone.num_runs) < kTrials) return shared.num_runs <= alone.num_runs;
      const bool is_trial = (shared.num_runs + alone.num_runs) % kTrialPeriod == 0;
      return (shared.ns < alone.ns) != is_trial;
    }
  };

  static Estimate estimate_of(const Prepared& prepared) {
    const bytecode::Plan& plan = prepared.plan;
    Estimate estimate;
    for (uint32_t site = 0; site < plan.sites.size(); ++site) {
      const int32_t loop = plan.program().sites[site].loop;
      const double tasks = detail::count_iterations(plan, loop);
      const uint32_t measured = (*prepared.costs)[site];
      estimate.tasks += tasks;
      estimate.is_timed = estimate.is_timed || measured != 0;
      estimate.body_ns += tasks * double(measured != 0 ? measured : prepared.cost_guesses[site]);
      if (!is_passed_over(prepared, loop)) estimate.order_ns += tasks * kTaskNs;
    }
    for (uint32_t loop = 0; loop < prepared.units.size(); ++loop) {
      if (prepared.units[loop] != nullptr)
        estimate.order_ns += detail::count_iterations(plan, int32_t(loop)) * kUnitNs;
    }
    return estimate;
  }

  /// Whether the body of a loop is in a unit that can be passed over.
  static bool is_passed_over(const Prepared& prepared, int32_t loop) {
    for (; loop >= 0; loop = prepared.plan.program().loops[size_t(loop)].parent) {
      if (prepared.units[size_t(loop)] != nullptr) return true;
    }
    return false;
  }

  uint32_t workers_ = 0;
  std::array<Ways, 64> of_sizes_{};  ///< by the binary logarithm of the number of tasks
  size_t size_ = 0;                  ///< of the run that was asked about last
};

}  // namespace pto::wsp::sched
