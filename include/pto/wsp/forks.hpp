// SPDX-License-Identifier: MIT
/// \file
/// Tells a forked child from its parent.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace pto::wsp {

namespace detail {
inline std::atomic<uint64_t> num_forks{0};
inline const int forks_are_counted = pthread_atfork(nullptr, nullptr, [] { ++num_forks; });
}  // namespace detail

/// Number of forks between the first process and this one. Threads of a process with another number do not
/// exist here, and their locks stay locked.
inline uint64_t num_forks() { return detail::num_forks.load(std::memory_order_relaxed); }

}  // namespace pto::wsp
