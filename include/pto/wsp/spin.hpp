// SPDX-License-Identifier: MIT
/// \file
/// Waiting without the operating system.
#pragma once

#include <atomic>
#include <thread>

namespace pto::wsp {

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class SpinLock {
 public:
  void lock() {
    for (int spins = 0; !try_lock(); ++spins) {
      if (spins < 100) {
        relax();
      } else {
        std::this_thread::yield();
      }
    }
  }
  bool try_lock() {
    return !locked_.load(std::memory_order_relaxed) && !locked_.exchange(true, std::memory_order_acquire);
  }
  bool is_locked() const { return locked_.load(std::memory_order_relaxed); }
  void unlock() { locked_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> locked_{false};
};

}  // namespace pto::wsp
