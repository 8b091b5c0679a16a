// SPDX-License-Identifier: MIT
/// \file
/// Prints how often memory is allocated, by whatever name, during one replan: the mean over many.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include <pto/runtime/balanced_planner.hpp>

using namespace pto::runtime;

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t align, size_t size);
}

static long num_allocations = 0;

extern "C" {
void* malloc(size_t size) { return ++num_allocations, __libc_malloc(size); }
void* calloc(size_t count, size_t size) { return ++num_allocations, __libc_calloc(count, size); }
void* realloc(void* memory, size_t size) { return ++num_allocations, __libc_realloc(memory, size); }
void* aligned_alloc(size_t align, size_t size) { return ++num_allocations, __libc_memalign(align, size); }
}

int main() {
  constexpr int kBatch = 1000;
  constexpr int kSteps = 500;
  BalancedConfig config;
  config.num_workers = 264;
  config.num_heads = 8;
  const BalancedLayout layout = balanced_layout(config, {kBatch, 0});
  BalancedPlan plan = layout.attach(std::aligned_alloc(BalancedLayout::kAlign, layout.bytes));
  const BalancedPlanner<> planner(config);
  std::mt19937 random(1);
  std::vector<int> lens(kBatch);
  if (num_allocations == 0) return 1;  // they are not counted
  const long before = num_allocations;
  for (int step = 0; step < kSteps; ++step) {
    for (int& len : lens) len = static_cast<int>(random() % 131072);
    const int batch = 1 + static_cast<int>(random() % kBatch);
    if (planner.plan(lens.data(), nullptr, batch, &plan) != PlanResult::OK) return 1;
  }
  std::printf("%g\n", static_cast<double>(num_allocations - before) / kSteps);
  return 0;
}
