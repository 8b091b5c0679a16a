// SPDX-License-Identifier: MIT
/// \file
/// Chooses the tensors with streaming stores, which bypass the caches.
///
/// An ordinary store first reads the line that it replaces, and evicts other lines from the caches. Both are
/// wasted for results that no task reads and that are too large to stay in the caches.
#pragma once

#include <unistd.h>

#include <thread>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bytecode {

/// The bytes that the caches hold: four times the second-level caches of all cores, or the size of the last
/// level if that is smaller. The last level alone is not a good bound, because a virtual machine shares the
/// one that it sees with others. Larger tensors have streaming stores, and larger inputs are prefetched.
inline uint64_t cached_bytes() {
  static const uint64_t limit = [] {
    constexpr long kUnknownL2 = 1 << 20;
    long l2 = 0, l3 = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
    l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);
    l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    const uint64_t cores = std::max(1u, std::thread::hardware_concurrency());
    const uint64_t all = 4 * cores * uint64_t(l2 > 0 ? l2 : kUnknownL2);
    return l3 > 0 ? std::min(all, uint64_t(l3)) : all;
  }();
  return limit;
}

namespace detail {

inline uint64_t tensor_bytes(const Plan& plan, size_t tensor) {
  const TensorDescriptor& descriptor = plan.program().tensors[tensor];
  uint64_t bytes = uint64_t(dtype_bytes(descriptor.dtype));
  for (int d = 0; d < descriptor.rank; ++d) bytes *= uint64_t(plan.layouts[tensor].shape[d]);
  return bytes;
}

}  // namespace detail

/// Whether tasks read tensors that the caches do not hold together.
inline bool reads_past_caches(const Plan& plan) {
  std::vector<bool> is_read(plan.program().tensors.size(), false);
  for (const QuickIo& io : plan.ios) is_read[io.tensor] = is_read[io.tensor] || io.role != Role::out;
  uint64_t bytes = 0;
  for (size_t i = 0; i < is_read.size(); ++i) bytes += is_read[i] ? detail::tensor_bytes(plan, i) : 0;
  return bytes > cached_bytes();
}

/// Selects the tensors with streaming stores: they have at least this number of bytes, tasks write them, no
/// task reads them, and no control depends on their elements.
inline void choose_streamed(Plan& plan, uint64_t least_bytes) {
  const Program& program = plan.program();
  std::vector<bool> is_kept(program.tensors.size(), false);  // per group
  const auto keep = [&](size_t tensor) { is_kept[plan.layouts[tensor].group] = true; };
  for (const IoForm& io : program.ios) {
    if (io.role != Role::out) keep(io.tensor);
  }
  for (size_t i = 0; i < is_kept.size(); ++i) {
    if (program.decides[i] || detail::tensor_bytes(plan, i) < least_bytes) keep(i);
  }
  for (size_t i = 0; i < is_kept.size(); ++i) {
    if (program.tensors[i].written != 0 && !is_kept[plan.layouts[i].group]) plan.streamed.push_back(i);
  }
  for (size_t i = 0; i < plan.ios.size(); ++i)
    plan.views[i].streams = plan.ios[i].role == Role::out && !is_kept[plan.layouts[plan.ios[i].tensor].group];
}

}  // namespace pto::wsp::bytecode
