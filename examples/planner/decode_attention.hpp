// SPDX-License-Identifier: MIT
/// \file
/// The tiered decode attention kernel of the examples (spec 13.2): one descriptor is one (request, head) over
/// a range of its KV positions. Chunks of one sequence follow each other on one core, which keeps the running
/// softmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "simulation.hpp"

inline constexpr int kMaxHeadDim = 128;

/// Where request r's rows of the KV cache begin; what an entry point finds in global memory.
struct KvLayout {
  const int* first_row;
  int num_heads;
};
inline KvLayout kv_layout;

/// The running softmax of the sequence that a core is working on.
struct SoftmaxState {
  float max;
  float sum;
  float acc[kMaxHeadDim];
};
inline SoftmaxState softmax_state;

PTO_TIERED_KERNEL(decode_attention, 4, const pto::runtime::WorkDescriptor& desc, __gm__ half* Q,
                  __gm__ half* K_cache, __gm__ half* V_cache, __gm__ half* Output, int head_dim);
static_assert(pto::runtime::covers_tiers<pto::runtime::DecodeAttentionTiers>(decode_attention_dispatch));

/// Adds positions [begin, end) of one tile to the running softmax.
inline void attend_tile(const half* q, const half* K, const half* V, std::size_t stride, int begin, int end,
                        int head_dim) {
  SoftmaxState& s = softmax_state;
  for (int i = begin; i < end; ++i) {
    const half* k = K + static_cast<std::size_t>(i) * stride;
    const half* v = V + static_cast<std::size_t>(i) * stride;
    float score = 0;
    for (int d = 0; d < head_dim; ++d) score += q[d] * k[d];
    score /= std::sqrt(static_cast<float>(head_dim));
    const float new_max = std::max(s.max, score);
    const float keep = std::exp(s.max - new_max);
    const float weight = std::exp(score - new_max);
    s.max = new_max;
    s.sum = s.sum * keep + weight;
    for (int d = 0; d < head_dim; ++d) s.acc[d] = s.acc[d] * keep + weight * v[d];
  }
}

template <int Tier>
AICORE void decode_attention_impl(const pto::runtime::WorkDescriptor& desc, __gm__ half* Q,
                                  __gm__ half* K_cache, __gm__ half* V_cache, __gm__ half* Output,
                                  int head_dim) {
  using namespace pto::runtime;
  const auto req = params::Attention::request_idx(desc);
  const auto head = params::Attention::head_idx(desc);
  const int kv_begin = static_cast<int>(params::Attention::kv_start(desc));
  const int kv_end = static_cast<int>(params::Attention::kv_end(desc));

  constexpr int TILE_K = (Tier == 0) ? 256 : (Tier == 1) ? 512 : (Tier == 2) ? 1024 : 2048;

  const std::size_t dim = static_cast<std::size_t>(head_dim);
  const std::size_t stride = dim * static_cast<std::size_t>(kv_layout.num_heads);
  const std::size_t out = req * stride + head * dim;
  const std::size_t cache = static_cast<std::size_t>(kv_layout.first_row[req]) * stride + head * dim;
  SoftmaxState& s = softmax_state;
  if (desc.flags & WorkDescriptor::FLAG_FIRST) s = SoftmaxState{-INFINITY, 0, {}};
  for (int i = kv_begin; i < kv_end; i += TILE_K) {  // a tile never reaches past the chunk
    attend_tile(Q + out, K_cache + cache, V_cache + cache, stride, i, std::min(i + TILE_K, kv_end), head_dim);
  }
  if (desc.flags & WorkDescriptor::FLAG_LAST) {
    for (std::size_t d = 0; d < dim; ++d) Output[out + d] = s.sum > 0 ? s.acc[d] / s.sum : 0;
  }
}

/// Entry point: the block's descriptor decides which tier runs.
__global__ __aicore__ inline void decode_attention_entry(__gm__ pto::runtime::WorkDescriptor* descs,
                                                         __gm__ half* Q, __gm__ half* K_cache,
                                                         __gm__ half* V_cache, __gm__ half* Output,
                                                         int head_dim) {
  auto desc = descs[get_block_idx()];
  PTO_DISPATCH_TIER(decode_attention, desc, Q, K_cache, V_cache, Output, head_dim);
}
