// SPDX-License-Identifier: MIT
/// \file
/// Whatever floating-point modes the calling thread has set, tasks run in the default ones, on every thread.
#include <cfenv>
#include <cmath>
#include <limits>

#include "check.hpp"
#include "kernels.hpp"

namespace test_floats {

using namespace pto::wsp;

namespace {

std::atomic<int> num_wrong{0};

/// One third is rounded to nearest, and half of the least normal number is not flushed.
int32_t look(const View* views, const Scalar*, const TaskContext*) {
  volatile double one = 1, three = 3, least = std::numeric_limits<double>::min();
  if (one / three != 0x1.5555555555555p-2 || -one / three != -0x1.5555555555555p-2) ++num_wrong;
  if (least / 2 == 0) ++num_wrong;
  ++*static_cast<int64_t*>(views[0].data);
  return 0;
}

/// Sets modes that change results, until it is destroyed.
class Changed {
 public:
  Changed() {
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#endif
  }
  ~Changed() { std::fesetenv(FE_DFL_ENV); }
  static bool are_modes_kept() {
    volatile double one = 1, three = 3;
#if defined(__x86_64__)
    if ((__builtin_ia32_stmxcsr() & 0x8040) != 0x8040) return false;
#endif
    return one / three == 0x1.5555555555556p-2 && std::fegetround() == FE_UPWARD;
  }
};

}  // namespace

TEST(tasks_run_in_the_default_floating_point_modes) {
  const kernels::Library library(look, true);
  const auto bytes = kernels::loops(library, 20, 64, true);
  Executable executable = kernels::load(library, bytes);
  std::vector<int64_t> data(64);
  for (uint32_t workers : {1u, 2u, 4u}) {
    for (const bool keeps_graph : {false, true}) {
      sched::RunOptions options = kernels::with_workers(workers);
      if (keeps_graph) options.start = sched::Start::kAfterBuild;
      const Changed changed;
      executable.run({arrays::ref(data)}, {}, options);
      CHECK(Changed::are_modes_kept());
    }
  }
  CHECK_EQ(num_wrong.load(), 0);
}

}  // namespace test_floats
