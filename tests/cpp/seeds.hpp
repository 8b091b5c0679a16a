// SPDX-License-Identifier: MIT
/// \file
/// Seeds of random tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace seeds {

/// Calls `check(seed)` for so long, with seeds from `first` on; only with that in PTO_WSP_SEED, if it is set,
/// or from it on for PTO_WSP_SECONDS, if these are set too.
template <class Check>
void for_seeds(uint64_t first, std::chrono::milliseconds time, Check check) {
  if (const char* chosen = std::getenv("PTO_WSP_SEED")) {
    first = uint64_t(std::strtoull(chosen, nullptr, 10));
    const char* seconds = std::getenv("PTO_WSP_SECONDS");
    time = std::chrono::seconds(seconds != nullptr ? std::strtoll(seconds, nullptr, 10) : 0);
    std::printf("  from seed %s on\n", chosen);
  }
  const auto end = std::chrono::steady_clock::now() + time;
  uint64_t seed = first;
  do {
    check(seed++);
  } while (std::chrono::steady_clock::now() < end);
  std::printf("  %llu workloads\n", static_cast<unsigned long long>(seed - first));
}

}  // namespace seeds
