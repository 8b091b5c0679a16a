// SPDX-License-Identifier: MIT
/// \file
/// A watermark that represents many accesses.
#pragma once

#include <cstdint>

#include "pto/wsp/graph/touch.hpp"

namespace pto::wsp::graph {

/// The watermark at which all accesses of one kind are complete. A second watermark excludes the strand of
/// the latest access, because a strand need not wait for itself. Accesses are added in program order of
/// strands.
class FoldedAccesses {
 public:
  /// Adds the latest access, of the strand of `waits`.
  void add_latest(uint64_t watermark, const sched::WaitList& waits) {
    before_ = for_strand(waits);
    last_ = watermark;
  }

  /// Adds an access of the strand of `waits`, or of an earlier one.
  void add(uint64_t watermark, const sched::WaitList& waits) {
    const bool is_own = waits.is_own_watermark(watermark), is_last_own = waits.is_own_watermark(last_);
    if (is_own && !is_last_own) before_ = last_;
    uint64_t& mine = is_last_own && !is_own ? before_ : last_;
    mine = watermark > mine ? watermark : mine;
  }

  /// The watermark that an access of the strand of `waits` must wait for.
  uint64_t for_strand(const sched::WaitList& waits) const {
    return waits.is_own_watermark(last_) ? before_ : last_;
  }

  /// Whether all accesses are complete.
  bool has_passed(const sched::WaitList& waits) const {
    return waits.has_passed(sched::watermark_name(last_));
  }

  /// Whether an access of the strand of `waits` has no wait here.
  bool is_past(const sched::WaitList& waits) const {
    return waits.has_passed(sched::watermark_name(for_strand(waits)));
  }

 private:
  uint64_t last_ = 0;
  uint64_t before_ = 0;
};

/// The accesses to a part of a space.
struct AccessMarks {
  FoldedAccesses writes, reads;

  /// Whether a read or a write has no waits here.
  bool are_past(bool for_write, const sched::WaitList& waits) const {
    return writes.is_past(waits) && (!for_write || reads.is_past(waits));
  }

  void wait(bool for_write, sched::WaitList& waits) const {
    waits.add_watermark(writes.for_strand(waits));
    if (for_write) waits.add_watermark(reads.for_strand(waits));
  }
};

}  // namespace pto::wsp::graph
