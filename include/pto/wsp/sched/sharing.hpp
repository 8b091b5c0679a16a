// SPDX-License-Identifier: MIT
/// \file
/// Decides whether the workers of a run share its tasks.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "pto/wsp/sched/estimate.hpp"

namespace pto::wsp::sched {

/// How a run divides its tasks if its schedule does not decide that.
enum class Division : uint8_t {
  kAlone,   ///< one worker runs all
  kShared,  ///< all workers share them
  kLater,   ///< one worker begins, and the others join if measured times justify it
};

/// If task times do not show which way is faster, runs try both.
class Sharing {
 public:
  /// How the next run divides its tasks to end early.
  /// \pre prepared for a run that orders tasks
  Division divide(const Prepared& prepared, uint32_t workers) {
    const Estimate estimate = Estimate::of(prepared);
    workers_ = workers;
    size_ = std::min(size_t(std::log2(1 + estimate.tasks)), kNumSizes - 1);
    if (!estimate.is_timed) return may_be_short(prepared, estimate) ? Division::kLater : Division::kShared;
    return is_worth_it(estimate) ? Division::kShared : Division::kAlone;
  }

  /// The size class of the last run.
  size_t size_of_last() const { return size_; }

  /// Records the time of a run of a size class, for which `workers` could join.
  void record(size_t size, uint32_t workers, bool is_shared, double ns_per_task) {
    (is_shared ? shared_[workers][size] : alone_[size]).record(ns_per_task);
  }

 private:
  static constexpr double kClear = 4;      ///< estimates that differ by this factor decide
  static constexpr double kSureNs = 1000;  ///< timing distorts shorter tasks
  static constexpr double kGain = 0.75;    ///< a gain: at most this part of the time alone
  /// The same, of the time of the bodies, where no run alone is known: bodies of shared runs take longer.
  static constexpr double kClearGain = 0.6;
  static constexpr double kMaxTrialNs = 20e6;  ///< longer runs are not tried with one worker
  static constexpr double kFewTasks = 64;
  static constexpr double kForget = 1.05;
  static constexpr uint32_t kTrials = 2;
  static constexpr uint32_t kTrialPeriod = 64;  ///< one in this many runs tries again
  /// The same for long tasks whose sharing gained nothing: other programs may have used the cores.
  static constexpr uint32_t kSureTrialPeriod = 16;

  struct Way {
    uint32_t num_runs = 0;
    double ns = 0;  ///< per task: the best of the first runs, then a moving mean

    /// The least time of a run, forgotten slowly: temporary load of the cores does not count.
    double least_ns = 0;

    void record(double ns_per_task) {
      least_ns = num_runs == 0 ? ns_per_task : std::min(ns_per_task, least_ns * kForget);
      const double change = ns_per_task - ns;
      if (num_runs == 0 || (num_runs < kTrials && change < 0)) {
        ns = ns_per_task;
      } else if (num_runs >= kTrials) {
        ns += change < 0 ? change / 2 : std::min(change, ns) / 4;
      }
      ++num_runs;
    }
  };

  static constexpr size_t kNumSizes = 64;
  using Sizes = std::array<Way, kNumSizes>;  ///< by the binary logarithm of the number of tasks

  struct Ways {
    const Way &shared, &alone;

    bool is_shared_next(uint32_t trial_period) const {
      if (std::min(shared.num_runs, alone.num_runs) < kTrials) return shared.num_runs <= alone.num_runs;
      const bool is_trial = (shared.num_runs + alone.num_runs) % trial_period == 0;
      return (shared.ns < alone.ns) != is_trial;
    }
  };

  /// For tasks without times: whether ordering them may cost more than running them, because they are many
  /// and small. Others join only after the first task.
  static bool may_be_short(const Prepared& prepared, const Estimate& estimate) {
    if (estimate.tasks <= kFewTasks) return false;
    for (uint32_t site = 0; site < prepared.plan.sites.size(); ++site) {
      if (detail::guess_ns(prepared.plan, site) > kSureNs * kClear) return false;
    }
    return true;
  }

  bool is_worth_it(Estimate estimate) {
    const Ways ways{shared_[workers_][size_], alone_[size_]};
    if (ways.alone.num_runs > 0)
      estimate.body_ns = std::min(estimate.body_ns, ways.alone.least_ns * estimate.tasks);
    const double saved_ns = estimate.saved_ns(workers_);
    if (saved_ns * kClear < estimate.order_ns) return false;
    const bool is_sure = estimate.task_ns() > kSureNs && saved_ns > kClear * estimate.order_ns;
    // Dependent tasks gain nothing from sharing.
    const double gain = ways.alone.num_runs > 0 ? kGain : kClearGain;
    const bool has_gained = ways.shared.num_runs == 0 || ways.shared.ns < gain * estimate.task_ns();
    // Bodies of shared runs may take twice as long, so a short program tries one worker before it believes
    // them.
    const bool is_tried =
        ways.alone.num_runs > 0 || ways.shared.num_runs < kTrials || estimate.body_ns > kMaxTrialNs;
    if (is_sure && has_gained) return is_tried;
    return ways.is_shared_next(is_sure ? kSureTrialPeriod : kTrialPeriod);
  }

  uint32_t workers_ = 0;
  Sizes alone_{};                     ///< what one worker takes does not depend on the number of workers
  std::map<uint32_t, Sizes> shared_;  ///< by the number of workers
  size_t size_ = 0;                   ///< size class of the last run
};

}  // namespace pto::wsp::sched
