// SPDX-License-Identifier: MIT
/// \file
/// The rows of a request: which positions the queries of a tile attend to, and what that costs.
#pragma once

#include <cstdint>

#include "../balanced_plan.hpp"

namespace pto {
namespace runtime {
namespace detail {

/// The positions `[kv_begin, kv_end)` that the query rows from `q_start` on attend to. May be empty.
struct RowSpan {
  uint32_t q_start;
  uint32_t kv_begin;
  uint32_t kv_end;
  uint32_t position_cost;
};

/// Makes rows. \pre `config.is_valid()`
class RowRules {
 public:
  explicit RowRules(const BalancedConfig& config) : config_(config) {}

  /// \pre `0 <= qo_len * group_size <= INT_MAX`
  int64_t num_tiles(int qo_len) const {
    return (int64_t{qo_len} * config_.group_size + config_.q_tile - 1) / config_.q_tile;
  }

  /// \pre `0 <= tile < num_tiles(qo_len)`
  RowSpan span(int kv_len, int qo_len, int64_t tile) const {
    const int64_t q_rows = int64_t{qo_len} * config_.group_size;
    const int64_t q_start = tile * config_.q_tile;
    const int64_t q_end = q_rows - q_start < config_.q_tile ? q_rows : q_start + config_.q_tile;
    int64_t begin = 0;
    int64_t end = kv_len;
    const int64_t first_query_position = int64_t{kv_len} - qo_len;
    if (config_.causal) {
      const int64_t last = q_end == q_rows ? qo_len - 1 : (q_end - 1) / config_.group_size;
      end = max_of(0, first_query_position + last + 1);
    }
    if (config_.window_left >= 0) {
      const int64_t first = q_start == 0 ? 0 : q_start / config_.group_size;
      begin = max_of(0, first_query_position + first - config_.window_left);
      begin = begin < end ? begin : end;
    }
    return {static_cast<uint32_t>(q_start), static_cast<uint32_t>(begin), static_cast<uint32_t>(end),
            static_cast<uint32_t>(config_.position_cost(q_end - q_start))};
  }

  int64_t cost(const RowSpan& span) const {
    return config_.item_cost + static_cast<int64_t>(span.kv_end - span.kv_begin) * span.position_cost;
  }

  /// Whether all rows of a request with one query attend to all its positions.
  bool decodes_everything() const { return config_.window_left < 0; }

  const BalancedConfig& config() const { return config_; }

 private:
  static int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

  BalancedConfig config_;
};

}  // namespace detail
}  // namespace runtime
}  // namespace pto
