// SPDX-License-Identifier: MIT
/// \file
/// Decides when other workers join a run that one worker begins.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/sched/estimate.hpp"
#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::sched {

/// Task times are unknown before the first run of a program. So one worker begins the run and times tasks:
/// the first kAttentive tasks of each site, then every 64th task. The others join when the times show that
/// sharing pays.
class Beginning {
 public:
  explicit Beginning(Run& run)
      : run_(run), start_ns_(trace::now_ns()), has_begun_(run.plan().sites.size(), false) {}

  /// Whether no task of the site has begun yet.
  bool is_new(uint32_t site) const { return !has_begun_[site]; }

  /// Notes that the first task of a site comes next.
  void attend(uint32_t site) {
    has_begun_[site] = true;
    site_ = site;
    num_timed_ = 0;
  }
  /// Whether each task is timed.
  bool is_attentive() const { return num_timed_ < kAttentive; }

  /// Called after a timed task. Returns whether the times show that the others should join.
  bool is_over() {
    const uint64_t jitter = run_.options().jitter;
    if (jitter != 0) return Random(jitter + ++num_looks_).next() % 8 == 0;
    const int64_t now = trace::now_ns();
    if (is_attentive() && num_timed_++ == 0) begin_look(now);
    if (now < std::max(look_ns_, rest_ns_)) return false;
    look_ns_ = now + std::max(now - start_ns_, kLookNs);
    const Estimate estimate = Estimate::of(*run_.prepared());
    const int64_t end = trace::now_ns();
    rest_ns_ = end + kLookRest * (end - now);
    return estimate.saved_ns(run_.num_workers()) > kMargin * estimate.order_ns + kJoinNs;
  }

 private:
  static constexpr int64_t kLookNs = 20000;  ///< least time between two looks; less than a wake-up takes
  static constexpr int64_t kLookRest = 20;   ///< least time between two looks, in times of a look
  static constexpr double kMargin = 2;
  static constexpr double kJoinNs = 100000;  ///< gain from which a wake-up pays
  static constexpr double kFewTasks = 64;    ///< fewer tasks cost little to order
  static constexpr uint32_t kAttentive = 8;  ///< tasks

  /// Excludes the first task of a site, whose caches are cold, if many follow.
  void begin_look(int64_t now) {
    const int32_t loop = run_.plan().program().sites[site_].loop;
    if (detail::count_iterations(run_.plan(), loop) <= kFewTasks) {
      look_ns_ = std::min(look_ns_, std::max(now, start_ns_ + kLookNs));
      return;
    }
    run_.prepared()->costs->forget(site_);
    look_ns_ = now + kLookNs;
  }

  Run& run_;
  const int64_t start_ns_;
  std::vector<bool> has_begun_;  ///< per site
  uint32_t site_ = 0;            ///< the last new site
  uint32_t num_timed_ = 0;       ///< timed tasks since then, up to kAttentive
  int64_t look_ns_ = INT64_MAX;
  int64_t rest_ns_ = 0;     ///< no look before: it visits all sites, which may be thousands
  uint64_t num_looks_ = 0;  ///< of runs whose order is shaken
};

}  // namespace pto::wsp::sched
