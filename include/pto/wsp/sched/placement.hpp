// SPDX-License-Identifier: MIT
/// \file
/// Decides on which CPUs the threads of the pool may run.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <vector>

namespace pto::wsp::sched {

/// Lets sleeping threads wake on the CPUs of the waking thread, except its current CPU.
///
/// The system wakes a thread on a CPU that seems idle. A halted CPU of a virtual machine can look busy, and
/// so does a CPU with spinning threads (a BLAS spins for 0.1 s after a product). A worker then shares the CPU
/// of its caller for 4 to 30 ms. The placement has no effect if the caller has one CPU, or if the system
/// lacks the calls.
class Placement {
 public:
#if defined(__linux__)
  void add(pthread_t thread) {
    threads_.push_back(thread);
    avoided_ = kNone;
  }
  /// The thread ends.
  void remove(pthread_t thread) {
    const auto is_it = [thread](pthread_t other) { return pthread_equal(thread, other) != 0; };
    threads_.erase(std::remove_if(threads_.begin(), threads_.end(), is_it), threads_.end());
  }

  /// Reads the affinity of the caller every time, because it can change.
  void keep_off_caller() {
    const int cpu = sched_getcpu();
    if (cpu < 0 || cpu >= CPU_SETSIZE) return;
    cpu_set_t allowed;
    if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) != 0) return;
    if (cpu == avoided_ && CPU_EQUAL(&allowed, &allowed_)) return;
    avoided_ = cpu;
    allowed_ = allowed;
    keep_off(cpu, allowed);
  }

  /// \param allowed where the caller may run
  void keep_off(int cpu, cpu_set_t allowed) {
    CPU_CLR(cpu, &allowed);
    if (CPU_COUNT(&allowed) == 0) return;
    for (pthread_t thread : threads_) pthread_setaffinity_np(thread, sizeof allowed, &allowed);
  }

 private:
  static constexpr int kNone = -1;
  std::vector<pthread_t> threads_;
  int avoided_ = kNone;
  cpu_set_t allowed_{};
#else
  void add(pthread_t) {}
  void remove(pthread_t) {}
  void keep_off_caller() {}
#endif
};

}  // namespace pto::wsp::sched
