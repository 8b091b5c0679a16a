// SPDX-License-Identifier: MIT
/// \file
/// Checks that all walks of a run number tasks identically.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "pto/wsp/spin.hpp"

namespace pto::wsp::sched {

/// Whether walks are compared: in debug builds and in tests.
#if defined(NDEBUG)
inline constexpr bool kComparesNumbering = false;
#else
inline constexpr bool kComparesNumbering = true;
#endif

/// The ends of strands, as the first walk numbered them.
class NumberingLog {
 public:
  /// \pre no thread uses the log
  void clear() { ends_.clear(); }

  /// Whether this walk agrees with the others that strand number `strand`, counted from 1, ends before slice
  /// `slice` and after `num_tasks` tasks.
  bool agrees(uint64_t strand, uint64_t slice, uint64_t num_tasks) {
    const std::lock_guard<SpinLock> lock(lock_);
    // Each walk ends the strands in order, so a strand that is not in the log is the next one.
    const bool is_next = strand == ends_.size() + 1;
    if (is_next) ends_.push_back({slice, num_tasks});
    const bool is_known = is_next || (strand > 0 && strand <= ends_.size());
    return is_known && ends_[strand - 1].slice == slice && ends_[strand - 1].num_tasks == num_tasks;
  }

  /// Ends the process if this walk disagrees, because its slice names would mean different tasks.
  void check(uint64_t strand, uint64_t slice, uint64_t num_tasks) {
    if (agrees(strand, slice, num_tasks)) return;
    std::fprintf(stderr,
                 "pto-wsp: walks number tasks differently: strand %llu ends at slice %llu, task %llu\n",
                 static_cast<unsigned long long>(strand), static_cast<unsigned long long>(slice),
                 static_cast<unsigned long long>(num_tasks));
    std::abort();
  }

 private:
  struct End {
    uint64_t slice;
    uint64_t num_tasks;
  };

  SpinLock lock_;
  std::vector<End> ends_;
};

}  // namespace pto::wsp::sched
