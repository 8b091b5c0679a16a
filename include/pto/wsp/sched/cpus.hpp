// SPDX-License-Identifier: MIT
/// \file
/// How many CPUs the process may use.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "pto/wsp/trace/clock.hpp"

namespace pto::wsp::sched {

namespace detail {

/// Returns how many CPUs a quota of `quota_us` per `period_us` equals; 0 without a quota.
inline double cpus_of(double quota_us, double period_us) {
  return quota_us > 0 && period_us > 0 ? quota_us / period_us : 0;
}

/// Returns the quota of one control group; 0 without a quota. Version 2 has a file `cpu.max`, version 1 two
/// files.
inline double quota_of(const std::string& folder) {
  double quota = 0, period = 0;
  std::string text;
  if (std::ifstream file(folder + "/cpu.max"); file >> text >> period)
    return text == "max" ? 0 : cpus_of(std::atof(text.c_str()), period);
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  return quota_file >> quota && period_file >> period ? cpus_of(quota, period) : 0;
}

/// Returns the least quota of a group and its ancestors, up to `root`.
inline double least_quota(const std::string& root, std::string group) {
  double least = 0;
  for (;;) {
    const double quota = quota_of(root + group);
    if (quota > 0) least = least == 0 ? quota : std::min(least, quota);
    const size_t slash = group.rfind('/');
    if (slash == std::string::npos) return least;
    group.resize(slash);
  }
}

}  // namespace detail

/// CPUs that the control groups of the process allow, 0 where they set no limit.
/// \param proc  /proc, \param cgroups  /sys/fs/cgroup
inline double quota_cpus(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup") {
  std::ifstream file(proc + "/self/cgroup");
  double least = 0;
  for (std::string line; std::getline(file, line);) {
    // number:controllers:path
    std::istringstream parts(line);
    std::string number, controllers, path;
    if (!std::getline(parts, number, ':') || !std::getline(parts, controllers, ':') ||
        !std::getline(parts, path))
      continue;
    const bool is_cpu = controllers.empty() || ("," + controllers + ",").find(",cpu,") != std::string::npos;
    if (!is_cpu) continue;
    while (!path.empty() && path.back() == '/') path.pop_back();
    const double quota =
        detail::least_quota(controllers.empty() ? cgroups : cgroups + "/" + controllers, path);
    if (quota > 0) least = least == 0 ? quota : std::min(least, quota);
  }
  return least;
}

/// CPUs that the calling thread may run on.
inline uint32_t allowed_cpus() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return uint32_t(CPU_COUNT(&allowed));
#endif
  return std::max(1u, std::thread::hardware_concurrency());
}

/// The default number of workers: the CPUs that the calling thread may run on, no more than the quota of the
/// control groups allows. Quotas are read again after a second.
inline uint32_t default_workers() {
  static std::atomic<int64_t> read_ns{INT64_MIN};
  static std::atomic<uint32_t> quota{UINT32_MAX};
  const int64_t now = trace::now_ns();
  if (const int64_t last = read_ns.load(std::memory_order_relaxed); last < now - 1000000000) {
    const double cpus = quota_cpus();
    quota.store(cpus == 0 ? UINT32_MAX : uint32_t(std::max(1.0, std::ceil(cpus))), std::memory_order_relaxed);
    read_ns.store(now, std::memory_order_relaxed);
  }
  return std::max(1u, std::min(allowed_cpus(), quota.load(std::memory_order_relaxed)));
}

}  // namespace pto::wsp::sched
