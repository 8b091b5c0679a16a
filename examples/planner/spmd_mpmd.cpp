// SPDX-License-Identifier: MIT
/// \file
/// The two programming models (spec 2.5) over one plan, with P threads that represent AICPU threads.
///
/// SPMD: every core runs the same kernel on its own share of the plan. MPMD: what a core runs is in the
/// descriptor: a kernel per tier, and FIRST and LAST pick prologue and epilogue. Each thread writes its share
/// of the descriptors itself: the plan has the same bytes for any number of threads.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include <pto/runtime/runtime.hpp>

using namespace pto::runtime;

namespace {

using Tokens = std::atomic<long long>;
struct Totals {
  Tokens positions{0};
  Tokens per_tier[4]{};
  Tokens firsts{0};
  Tokens lasts{0};
};

/// SPMD: one kernel for all.
AICORE void count_positions(const WorkDescriptor& desc, Totals& totals) {
  totals.positions += params::Attention::kv_len(desc);
}

/// MPMD: one kernel per tier.
PTO_TIERED_KERNEL(count_by_tier, 4, const WorkDescriptor& desc, Totals& totals);
template <int Tier>
AICORE void count_by_tier_impl(const WorkDescriptor& desc, Totals& totals) {
  totals.per_tier[Tier] += params::Attention::kv_len(desc);
  if (desc.flags & WorkDescriptor::FLAG_FIRST) ++totals.firsts;
  if (desc.flags & WorkDescriptor::FLAG_LAST) ++totals.lasts;
}

struct Batch {
  std::vector<int> lengths{700, 3000, 90000, 12, 5000, 131072, 1024, 1025};
  int num_heads = 3;
  int size() const { return static_cast<int>(lengths.size()); }
};

/// One AICPU thread: writes its share of the descriptors, then dispatches exactly those.
AICPU void plan_and_dispatch(const Batch& batch, int thread_id, int num_threads,
                             std::vector<WorkDescriptor>& plan, Totals& totals, std::atomic<int>& failures) {
  const AttentionPlanner planner;
  const int chunk_size = planner.plan_chunk_size(batch.lengths.data(), batch.size(), batch.num_heads);
  int work_count = 0;
  const PlanResult result =
      planner.parallel_generate(thread_id, num_threads, batch.lengths.data(), batch.size(), batch.num_heads,
                                chunk_size, plan.data(), static_cast<int>(plan.size()), &work_count);
  if (result != PlanResult::OK) {
    ++failures;
    return;
  }
  const WorkRange share = AttentionPlanner::thread_share(work_count, thread_id, num_threads);
  for (int i = share.begin; i < share.end; ++i) {
    const WorkDescriptor& desc = plan[static_cast<size_t>(i)];
    count_positions(desc, totals);
    PTO_DISPATCH_TIER(count_by_tier, desc, totals);
  }
}

}  // namespace

int main() {
  const Batch batch;
  const AttentionPlanner planner;
  const int chunk_size = planner.plan_chunk_size(batch.lengths.data(), batch.size(), batch.num_heads);
  const int total = planner.get_total_work(batch.lengths.data(), batch.size(), batch.num_heads, chunk_size);
  long long positions = 0;
  for (const int length : batch.lengths) positions += static_cast<long long>(length) * batch.num_heads;

  std::vector<WorkDescriptor> first_plan;
  for (const int num_threads : {1, 2, 3, 16}) {
    std::vector<WorkDescriptor> plan(static_cast<size_t>(total));
    Totals totals;
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < num_threads; ++t) {
      threads.emplace_back([&, t] { plan_and_dispatch(batch, t, num_threads, plan, totals, failures); });
    }
    for (std::thread& thread : threads) thread.join();
    if (first_plan.empty()) first_plan = plan;
    const bool same = std::memcmp(plan.data(), first_plan.data(), plan.size() * sizeof(WorkDescriptor)) == 0;
    const long long by_tier =
        totals.per_tier[0] + totals.per_tier[1] + totals.per_tier[2] + totals.per_tier[3];
    const int sequences = batch.size() * batch.num_heads;
    std::printf("%2d threads: %d descriptors, %lld positions, %s\n", num_threads, total,
                totals.positions.load(), same ? "same bytes" : "DIFFERENT BYTES");
    if (failures != 0 || !same || totals.positions != positions || by_tier != positions ||
        totals.firsts != sequences || totals.lasts != sequences) {
      return 1;
    }
  }
  return 0;
}
