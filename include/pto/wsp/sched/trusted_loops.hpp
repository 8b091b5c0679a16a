// SPDX-License-Identifier: MIT
/// \file
/// Finds the earlier slices that a task need not wait for if iterations of P loops are trusted to be
/// independent.
#pragma once

#include <vector>

#include "pto/wsp/bytecode/plan.hpp"
#include "pto/wsp/progress.hpp"

namespace pto::wsp::sched {

/// Follows a walk by the indices of its loops; the walk may skip iterations. Two instances of a loop differ
/// in the iteration of an outer loop.
class TrustedLoops {
 public:
  /// A new walk begins.
  void begin(const bytecode::Plan& plan) {
    plan_ = &plan;
    loops_.assign(plan.loops.size(), {});
    num_iterations_ = 0;
  }

  /// The walk reaches a task or an iteration of `loop`; -1 is outside all loops. With `begins_slice`, the
  /// slice contains no earlier task outside the iteration.
  /// \return the spans of the P loops around it, from the outside in
  const std::vector<TrustedSpan>& visit(int32_t loop, const int64_t* registers, uint64_t slice,
                                        bool begins_slice) {
    spans_.clear();
    follow(loop, registers, slice, begins_slice);
    return spans_;
  }

 private:
  struct Loop {
    uint64_t around = 0;     ///< number of the iteration around the instance
    uint64_t iteration = 0;  ///< number of the current iteration; 0 before the first
    int64_t index = 0;
    TrustedSpan span;
  };

  /// Returns the number of the current iteration of `loop`. Loops are nested kMaxLoopDepth deep at most.
  uint64_t follow(int32_t loop, const int64_t* registers, uint64_t slice, bool begins_slice) {
    if (loop < 0) return 0;
    const uint64_t around =
        follow(plan_->program().loops[size_t(loop)].parent, registers, slice, begins_slice);
    const bytecode::QuickLoop& quick = plan_->loops[size_t(loop)];
    Loop& at = loops_[size_t(loop)];
    const int64_t index = registers[quick.reg];
    if (at.iteration == 0 || at.around != around) {
      at = {around, ++num_iterations_, index, {begins_slice ? slice : slice + 1, slice}};
    } else if (at.index != index) {
      at.iteration = ++num_iterations_;
      at.index = index;
      at.span.iteration = slice;
    }
    if (quick.op == bytecode::Op::PARALLEL_FOR) spans_.push_back(at.span);
    return at.iteration;
  }

  const bytecode::Plan* plan_ = nullptr;
  std::vector<Loop> loops_;
  std::vector<TrustedSpan> spans_;
  uint64_t num_iterations_ = 0;
};

}  // namespace pto::wsp::sched
