// SPDX-License-Identifier: MIT
/// \file
/// The floating-point environment of task bodies.
#pragma once

#include <cstdint>

namespace pto::wsp::sched {

/// While an instance lives, the calling thread rounds to nearest, keeps denormals and traps nothing: the
/// default of the C standard. Libraries may change these modes in the thread that calls us (torch flushes
/// denormals on request), and results must not depend on which thread runs a task. The destructor restores
/// what was set, status flags included.
class FloatEnvironment {
 public:
  FloatEnvironment() : saved_(read()) {
    if (!is_default(saved_)) write(kDefault);
  }
  ~FloatEnvironment() { write(saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
#if defined(__x86_64__)
  struct Control {
    uint32_t vector;
    uint16_t x87;
  };
  static constexpr Control kDefault{0x1F80, 0x037F};
  static constexpr uint32_t kStatus = 0x3F;

  static Control read() {
    Control control{__builtin_ia32_stmxcsr(), 0};
    asm volatile("fnstcw %0" : "=m"(control.x87));
    return control;
  }
  static void write(Control control) {
    __builtin_ia32_ldmxcsr(control.vector);
    asm volatile("fldcw %0" : : "m"(control.x87));
  }
  static bool is_default(Control control) {
    return (control.vector & ~kStatus) == kDefault.vector && control.x87 == kDefault.x87;
  }
#elif defined(__aarch64__)
  using Control = uint64_t;
  static constexpr Control kDefault = 0;

  static Control read() {
    Control control = 0;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void write(Control control) { asm volatile("msr fpcr, %0" : : "r"(control)); }
  static bool is_default(Control control) { return control == kDefault; }
#else
  struct Control {};
  static constexpr Control kDefault{};

  static Control read() { return {}; }
  static void write(Control) {}
  static bool is_default(Control) { return true; }
#endif

  const Control saved_;
};

}  // namespace pto::wsp::sched
