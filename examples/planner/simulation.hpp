// SPDX-License-Identifier: MIT
/// \file
/// What a device and its driver would give, for CPU simulation: the element type, launch, copy and block
/// index.
#pragma once

#include <cstdio>
#include <cstdlib>

#include <pto/runtime/runtime.hpp>

#define __global__
#define __aicore__

using half = float;  ///< represents the device's 16-bit type

namespace simulation {

inline int block_idx = 0;

struct Dim3 {
  int x;
  explicit Dim3(int size) : x(size) {}
};

}  // namespace simulation

using dim3 = simulation::Dim3;

inline int get_block_idx() { return simulation::block_idx; }

/// Runs every block of the grid, one after the other, in ascending order.
template <typename Kernel, typename... Args>
void launch_kernel(const Kernel& kernel, dim3 grid, dim3 /*block*/, Args... args) {
  for (int block = 0; block < grid.x; ++block) {
    simulation::block_idx = block;
    kernel(args...);
  }
  simulation::block_idx = 0;
}

/// Host memory is device memory here.
inline void copy_to_device(const pto::runtime::WorkDescriptor*, int) {}

inline void synchronize() {}

inline void handle_error(pto::runtime::PlanResult result) {
  std::fprintf(stderr, "no plan: PlanResult %d\n", static_cast<int>(result));
  std::exit(1);
}
