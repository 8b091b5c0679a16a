// SPDX-License-Identifier: MIT
/// \file
/// The monitor of kernels that are called outside of runs.
#pragma once

#include <cstdint>
#include <string>

#include "pto/wsp/abi.hpp"
#include "pto/wsp/sched/print.hpp"
#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::sched {

class LoneMonitor : public Monitor {
 public:
  /// \param is_interrupted  asked about every 50 ms whether kernels must end; null: they do not end early
  /// \param on_print        receives the output of kernels; null: standard output
  explicit LoneMonitor(bool (*is_interrupted)() = nullptr,
                       void (*on_print)(void* printer, const std::string& text) = nullptr,
                       void* printer = nullptr)
      : Monitor{&kTicks, is_interrupted == nullptr ? 0u : 1u, &asks, &prints, {}},
        is_interrupted_(is_interrupted),
        on_print_(on_print),
        printer_(printer) {}

 private:
  static constexpr uint64_t kTicks = 0;  ///< differs from `seen_ticks` if the question must be asked
  static constexpr uint32_t kAsksPerLook = 64;
  static constexpr int64_t kPeriodNs = 50000000;

  static bool asks(Monitor* monitor) { return static_cast<LoneMonitor*>(monitor)->ask(); }
  bool ask() {
    if (++num_asked_ % kAsksPerLook != 0) return false;
    const int64_t now = trace::now_ns();
    if (ask_ns_ == 0) ask_ns_ = now + kPeriodNs;
    if (now < ask_ns_) return false;
    ask_ns_ = now + kPeriodNs;
    return is_interrupted_();
  }
  static void prints(Monitor* monitor, const TaskContext* context, const char* kernel, const Printed* parts,
                     int32_t num_parts) {
    const auto* own = static_cast<LoneMonitor*>(monitor);
    print_parts(own->on_print_, own->printer_, *context, kernel, parts, num_parts);
  }

  bool (*is_interrupted_)();
  void (*on_print_)(void* printer, const std::string& text);
  void* printer_;
  uint32_t num_asked_ = 0;
  int64_t ask_ns_ = 0;
};

}  // namespace pto::wsp::sched
