// SPDX-License-Identifier: MIT
/// \file
/// A small ragged batch, and attention written out in double precision to compare with.
#pragma once

#include <cmath>
#include <cstdio>
#include <vector>

#include "decode_attention.hpp"

/// Requests of four tiers; the KV rows of all requests are contiguous.
struct Problem {
  static constexpr int num_heads = 2;
  static constexpr int head_dim = 8;
  std::vector<int> kv_lengths{5, 300, 1024, 2500, 9000, 1, 20000};
  std::vector<int> first_row{0};
  std::vector<half> Q, K_cache, V_cache, Output;

  Problem() {
    for (const int length : kv_lengths) first_row.push_back(first_row.back() + length);
    Q = values(kv_lengths.size(), 1);
    K_cache = values(static_cast<size_t>(first_row.back()), 2);
    V_cache = values(static_cast<size_t>(first_row.back()), 3);
    Output.assign(Q.size(), NAN);
    kv_layout = KvLayout{first_row.data(), num_heads};
  }

  int batch_size() const { return static_cast<int>(kv_lengths.size()); }

  /// \return whether `Output` is attention, to 1e-5 of the largest value of V; prints the error.
  bool check(const char* name) const {
    double worst = 0;
    for (size_t r = 0; r < kv_lengths.size(); ++r) {
      for (size_t h = 0; h < num_heads; ++h) worst = std::fmax(worst, error_of(r, h));
    }
    std::printf("%s: %d requests, worst error %.1e\n", name, batch_size(), worst);
    return worst < 1e-5;
  }

 private:
  static std::vector<half> values(size_t rows, unsigned seed) {
    std::vector<half> all(rows * num_heads * head_dim);
    unsigned state = seed * 2654435761u;
    for (half& value : all) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<half>(state >> 8) / (1 << 23) - 1;
    }
    return all;
  }

  double error_of(size_t r, size_t h) const {
    const size_t stride = num_heads * head_dim;
    const half* q = &Q[r * stride + h * head_dim];
    double sum = 0;
    double acc[head_dim] = {};
    for (size_t row = static_cast<size_t>(first_row[r]); row < static_cast<size_t>(first_row[r + 1]); ++row) {
      double score = 0;
      for (size_t d = 0; d < head_dim; ++d) score += double{q[d]} * K_cache[row * stride + h * head_dim + d];
      const double weight = std::exp(score / std::sqrt(double{head_dim}));
      sum += weight;
      for (size_t d = 0; d < head_dim; ++d) acc[d] += weight * V_cache[row * stride + h * head_dim + d];
    }
    double worst = 0;
    for (size_t d = 0; d < head_dim; ++d) {
      const double error = std::fabs(acc[d] / sum - Output[r * stride + h * head_dim + d]);
      if (!(error <= worst)) worst = error;
    }
    return worst;
  }
};
