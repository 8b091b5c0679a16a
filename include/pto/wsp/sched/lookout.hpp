// SPDX-License-Identifier: MIT
/// \file
/// Asks for an interrupt of the caller while the calling thread checks or builds.
#pragma once

#include <cstdint>

#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::sched {

/// Asks a question about every 50 ms, at any rate of polls. The time of the answer does not count, because
/// the question may wait for a lock.
///
/// Polls must be microseconds apart, because only some of them read the clock.
class Lookout {
 public:
  /// `question` may be null: the answer is then `false`.
  explicit Lookout(bool (*question)())
      : question_(question), asked_ns_(trace::now_ns()), seen_ns_(asked_ns_) {}

  /// Asks the question when it is due.
  bool poll() {
    if (question_ == nullptr || !is_due()) return false;
    const bool answer = question_();
    asked_ns_ = seen_ns_ = trace::now_ns();
    return answer;
  }

 private:
  bool is_due() {
    if (--countdown_ > 0) return false;
    const int64_t now = trace::now_ns();
    const int64_t since = now - seen_ns_;
    stride_ = since > kPeriodNs / 8                            ? 1
              : since < kPeriodNs / 64 && stride_ < kMaxStride ? 2 * stride_
                                                               : stride_;
    countdown_ = stride_;
    seen_ns_ = now;
    return now - asked_ns_ >= kPeriodNs;
  }

  static constexpr int64_t kPeriodNs = 50000000;
  static constexpr int32_t kMaxStride = 64;

  bool (*question_)();
  int64_t asked_ns_;
  int64_t seen_ns_;
  int32_t stride_ = 1;
  int32_t countdown_ = 1;
};

}  // namespace pto::wsp::sched
