// SPDX-License-Identifier: MIT
/// \file
/// Timed calls of the balanced planner. Built like a user's program for any x86-64: no -march.
#include <algorithm>
#include <chrono>
#include <vector>

#include <pto/runtime/balanced_planner.hpp>

using namespace pto::runtime;

/// Median time of one plan over `steps` batches of the same size, `[steps, batch]` lengths, planned in turn
/// as a decode loop does: no batch is like the one before. \return microseconds; negative if a plan fails.
extern "C" double replan_us(const int* lens, int steps, int batch, int heads, int workers, double* makespan) {
  BalancedConfig config;
  config.num_workers = workers;
  config.num_heads = heads;
  const BalancedLayout layout = balanced_layout(config, {batch, 0});
  std::vector<char> memory(layout.bytes + BalancedLayout::kAlign);
  const size_t address = reinterpret_cast<size_t>(memory.data());
  BalancedPlan plan = layout.attach(memory.data() + (0 - address) % BalancedLayout::kAlign);
  const BalancedPlanner<> planner(config);
  std::vector<double> times;
  *makespan = 0;
  for (int step = -1; step < steps; ++step) {
    const int* step_lens = lens + static_cast<size_t>(std::max(step, 0)) * static_cast<size_t>(batch);
    const auto begin = std::chrono::steady_clock::now();
    const PlanResult result = planner.plan(step_lens, nullptr, batch, &plan);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    if (result != PlanResult::OK) return -1;
    if (step >= 0) times.push_back(time.count());
    const double share = static_cast<double>(plan.total_cost) / workers;
    *makespan = std::max(*makespan, static_cast<double>(plan.makespan) / std::max(share, 128.0));
  }
  std::nth_element(times.begin(), times.begin() + steps / 2, times.end());
  return times[static_cast<size_t>(steps / 2)];
}
