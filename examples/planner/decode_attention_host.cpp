// SPDX-License-Identifier: MIT
/// \file
/// Planning on the host, one launch for the whole plan (spec 13.2). C++17.
#include "problem.hpp"

using namespace pto::runtime;

void run_decode_attention_host(int batch_size, int num_heads, int head_dim, const int* kv_lengths, half* d_Q,
                               half* d_K_cache, half* d_V_cache, half* d_Output) {
  // 1. Create planner
  PlanConfig config;
  config.chunk_min = 256;
  config.chunk_max = 4096;
  config.max_work_units = 65536;
  AttentionPlanner planner(config);

  // 2. Plan chunk size
  int chunk_size = planner.plan_chunk_size(kv_lengths, batch_size, num_heads);

  // 3. Compute buffer size
  int max_work = planner.get_total_work(kv_lengths, batch_size, num_heads, chunk_size);

  // 4. Allocate descriptor buffer
  auto desc_buffer = allocate_descriptors(max_work);

  // 5. Generate descriptors
  int work_count;
  auto result =
      planner.generate(kv_lengths, batch_size, num_heads, chunk_size, desc_buffer, max_work, &work_count);
  if (result != PlanResult::OK) {
    handle_error(result);
    return;
  }

  // 6. Copy descriptors to device
  copy_to_device(desc_buffer, work_count);

  // 7. Launch kernel
  launch_kernel(decode_attention_entry,
                /*grid=*/dim3(work_count),
                /*block=*/dim3(1), desc_buffer, d_Q, d_K_cache, d_V_cache, d_Output, head_dim);

  // 8. Cleanup
  synchronize();
  free_descriptors(desc_buffer);
}

int main() {
  Problem p;
  run_decode_attention_host(p.batch_size(), p.num_heads, p.head_dim, p.kv_lengths.data(), p.Q.data(),
                            p.K_cache.data(), p.V_cache.data(), p.Output.data());
  return p.check("planned on the host") ? 0 : 1;
}
