// SPDX-License-Identifier: MIT
/// \file
/// Where the tasks of the processes of a network come from. Another walk cannot find that without the
/// channels.
#pragma once

#include <cstdint>
#include <vector>

namespace pto::wsp::trace {

/// The tasks of one process, in its program order.
struct ProcessPlaces {
  std::vector<uint32_t> sites;
  std::vector<int64_t> registers;  ///< all of them, per task

  void add(uint32_t site, const std::vector<int64_t>& values) {
    sites.push_back(site);
    registers.insert(registers.end(), values.begin(), values.end());
  }
};

/// The number of a task in the events of a worker: the process above, the task in its process below.
inline constexpr int kProcessShift = 40;

}  // namespace pto::wsp::trace
