// SPDX-License-Identifier: MIT
/// \file
/// The values that flush points read, in program order. Each is read once and shared by all dispatchers.
#pragma once

#include <optional>
#include <vector>

#include "pto/wsp/progress.hpp"

namespace pto::wsp::sched {

class FlushLog {
 public:
  /// \pre no thread uses the log
  void clear() { values_.clear(); }

  /// Returns the value of flush point `number`. The first dispatcher that asks calls `read`, which returns
  /// nothing while the value cannot be read yet, and may throw. A dispatcher runs tasks after the flush point
  /// only once it knows the value, so no later task overwrites the value before it is read.
  template <class Read>
  std::optional<int64_t> value(size_t number, Read read) {
    struct Unlock {
      SpinLock& lock;
      ~Unlock() { lock.unlock(); }
    };
    lock_.lock();
    const Unlock unlock{lock_};
    if (number == values_.size()) {
      const std::optional<int64_t> value = read();
      if (!value) return value;
      values_.push_back(*value);
    }
    return values_[number];
  }

  /// \pre no thread adds to the log
  const std::vector<int64_t>& values() const { return values_; }

 private:
  alignas(kLineBytes) SpinLock lock_;
  std::vector<int64_t> values_;
};

}  // namespace pto::wsp::sched
