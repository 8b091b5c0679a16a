// SPDX-License-Identifier: MIT
/// \file
/// Clocks that never go back: nanoseconds, and the ticks of the quickest counter of the machine.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace pto::wsp::trace {

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

namespace detail {

/// Whether the processor's time stamp counter runs at one rate, whatever the cores do.
inline bool has_steady_counter() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
#else
  return false;
#endif
}

inline const bool uses_counter = has_steady_counter();

}  // namespace detail

inline int64_t ticks() {
#if defined(__x86_64__)
  if (detail::uses_counter) return int64_t(__builtin_ia32_rdtsc());
#endif
  return now_ns();
}

/// Ticks that are read only after all earlier instructions are done.
inline int64_t ticks_after() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#endif
  return ticks();
}

namespace detail {

/// A moment early in the life of the process, on both clocks.
struct Anchor {
  int64_t ns = now_ns();
  int64_t ticks = trace::ticks();
};

inline const Anchor anchor{};

}  // namespace detail

/// The longer the process has lived, the more exact.
inline double ns_per_tick() {
  if (!detail::uses_counter) return 1;
  constexpr int64_t kEnoughNs = 100000;
  int64_t ns = 0;
  do {
    ns = now_ns() - detail::anchor.ns;
  } while (ns < kEnoughNs);
  return double(ns) / double(ticks() - detail::anchor.ticks);
}

}  // namespace pto::wsp::trace
