// SPDX-License-Identifier: MIT
/// \file
/// Planning where the dispatcher runs (spec 13.1). C++20: designated initializers.
#define MAX_WORK_BUFFER 4096

#include "problem.hpp"

using pto::runtime::WorkDescriptor;

// AICPU manager thread: plan and dispatch
AICPU void decode_attention_aicpu(__gm__ int* kv_lengths, int batch_size, int num_heads, int head_dim,
                                  __gm__ WorkDescriptor* desc_buffer, __gm__ half* Q, __gm__ half* K_cache,
                                  __gm__ half* V_cache, __gm__ half* Output) {
  using namespace pto::runtime;

  // 1. Create planner (on AICPU)
  AttentionPlanner planner(PlanConfig{.chunk_min = 256, .chunk_max = 4096, .max_work_units = 65536});

  // 2. Plan chunk size (AICPU has direct access to GM)
  int chunk_size = planner.plan_chunk_size(kv_lengths, batch_size, num_heads);

  // 3. Generate descriptors (writes directly to GM)
  int work_count;
  PlanResult result = planner.generate(kv_lengths, batch_size, num_heads, chunk_size, desc_buffer,
                                       MAX_WORK_BUFFER, &work_count);
  if (result != PlanResult::OK) handle_error(result);

  // 4. Dispatch to AICores
  for (int i = 0; i < work_count; i++) {
    aicpu_dispatch_kernel(decode_attention_entry, desc_buffer + i, Q, K_cache, V_cache, Output, head_dim);
  }
}

int main() {
  Problem p;
  WorkDescriptor* desc_buffer = pto::runtime::allocate_descriptors(MAX_WORK_BUFFER);
  decode_attention_aicpu(p.kv_lengths.data(), p.batch_size(), p.num_heads, p.head_dim, desc_buffer,
                         p.Q.data(), p.K_cache.data(), p.V_cache.data(), p.Output.data());
  pto::runtime::free_descriptors(desc_buffer);
  return p.check("planned on the AICPU") ? 0 : 1;
}
