// SPDX-License-Identifier: MIT
/// \file
/// What the balanced planner is told and what it makes: work items dealt to workers, and the merge plan of
/// the rows that were split.
///
/// A *row* is one (request, KV head, query tile): the unit that needs one result. Query rows are packed: the
/// `group_size` query heads that share a KV head are rows of one tile, packed row = query position *
/// group_size + query head of the group.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "detail/chunk_count.hpp"
#include "work_descriptor.hpp"

namespace pto {
namespace runtime {

/// Positions of a canonical block. With `BalancedConfig::batch_invariant` a kernel computes each block
/// `[i * kCanonicalBlock, (i + 1) * kCanonicalBlock)` of a row from a fresh state and folds the blocks in
/// ascending order, whether the row was split or not.
inline constexpr int kCanonicalBlock = 1024;

/// How rows are made, what they cost, and where they may be cut. One for all steps: lengths come with each
/// plan.
struct BalancedConfig {
  int num_workers = 1;  ///< 1..2^20
  int num_heads = 1;    ///< KV heads, > 0
  int group_size = 1;   ///< query heads per KV head, > 0
  int q_tile = 128;     ///< packed query rows per row of work, > 0
  int kv_tile = 128;    ///< positions; rows are cut at common multiples of `kv_tile` and `page_size` only
  int page_size = 1;    ///< positions
  int item_cost = 32;   ///< what an item costs besides its positions, in positions, 0..2^20
  /// 0: a position costs 1 in every item. n > 0: it costs ceil(packed query rows of the item / n), at most
  /// 256.
  int q_rows_per_cost = 0;
  int window_left = -1;  ///< a query attends at most this many positions before its own; -1: all of them
  bool causal = false;   ///< a query attends no position after its own; queries are the last positions
  bool batch_invariant = false;  ///< cut between canonical blocks only; partial results are those of blocks
  ZeroLength zero_length = ZeroLength::empty_item;  ///< whether a `kv_len` of 0 is a request

  static constexpr int kMaxWorkers = 1 << 20;
  static constexpr int kMaxItemCost = 1 << 20;
  static constexpr int kMaxPositionCost = 256;
  static constexpr int64_t kMaxGrain = 1 << 30;

  /// Rows are cut at multiples of this. \return 0 if `kv_tile` and `page_size` have no usable common
  /// multiple, or, in batch-invariant mode, none that divides a canonical block.
  constexpr int64_t grain() const {
    if (kv_tile <= 0 || page_size <= 0) return 0;
    int64_t a = kv_tile;
    int64_t b = page_size;
    while (b != 0) {
      const int64_t rest = a % b;
      a = b;
      b = rest;
    }
    const int64_t multiple = kv_tile / a * page_size;
    if (batch_invariant) return kCanonicalBlock % multiple == 0 ? kCanonicalBlock : 0;
    return multiple <= kMaxGrain ? multiple : 0;
  }

  /// What one position costs in an item with `q_rows` packed query rows.
  constexpr int position_cost(int64_t q_rows) const {
    return q_rows_per_cost == 0 ? 1 : static_cast<int>((q_rows + q_rows_per_cost - 1) / q_rows_per_cost);
  }

  /// \return whether every field is in its range.
  constexpr bool is_valid() const {
    return num_workers > 0 && num_workers <= kMaxWorkers && num_heads > 0 && group_size > 0 && q_tile > 0 &&
           item_cost >= 0 && item_cost <= kMaxItemCost && q_rows_per_cost >= 0 &&
           position_cost(q_tile) <= kMaxPositionCost && window_left >= -1 && grain() > 0;
  }
};

/// One piece of a row, for one worker. Each worker has at most one piece of a row, so `FLAG_INIT` is always
/// set.
struct alignas(8) BalancedItem {
  WorkDescriptor work;  ///< `params::Attention`; FIRST and LAST: the piece begins, ends its row
  uint32_t q_start;     ///< first packed query row; there are min(q_tile, query rows - q_start)
  /// First slot for partial results; `kWriteThrough` if the piece is the whole row and writes the output
  /// itself. A piece fills one slot; in batch-invariant mode a piece without FIRST fills one slot per block.
  int32_t partial;

  static constexpr int32_t kWriteThrough = -1;
};
static_assert(sizeof(BalancedItem) == 32 && offsetof(BalancedItem, q_start) == 24, "two 16-byte words");
static_assert(std::is_trivial_v<BalancedItem> && std::is_standard_layout_v<BalancedItem>, "plain bytes");

/// A row that was split. Its pieces are consecutive items, its slots are consecutive and in ascending order.
struct MergeRow {
  uint32_t request_idx;
  uint32_t head_idx;
  uint32_t q_start;
  uint32_t first_item;
};
static_assert(sizeof(MergeRow) == 16 && std::is_trivial_v<MergeRow>, "plain bytes");

/// The largest batches that a plan's memory is made for.
struct BalancedLimits {
  int max_batch = 0;            ///< requests, > 0
  int64_t max_query_total = 0;  ///< sum of the query lengths; 0: every request has one query
};

/// A plan, in memory that someone else keeps: the same addresses for every step.
struct BalancedPlan {
  BalancedItem* items = nullptr;     ///< `[num_items]`, in order of request, head, query tile, position
  int64_t item_capacity = 0;         ///< room in `items`
  int32_t* worker_indptr = nullptr;  ///< `[num_workers + 1]`: worker w has items `[indptr[w], indptr[w + 1])`
  MergeRow* merge_rows = nullptr;    ///< `[num_merges]`, room for `num_workers - 1`
  int32_t* merge_indptr = nullptr;   ///< `[num_merges + 1]` slots, room for `num_workers`
  int num_items = 0;
  int num_merges = 0;
  int num_partials = 0;    ///< slots for partial results
  int64_t total_cost = 0;  ///< of all rows, unsplit
  int64_t makespan = 0;  ///< of the worker with most: at most total_cost / num_workers + one grain + one item
};

/// Where the parts of a plan lie in one block of memory, aligned to 64 bytes. Items come last: the bytes that
/// a plan uses are the first `used_bytes(plan.num_items)`.
struct BalancedLayout {
  int64_t item_capacity;
  size_t merge_indptr_offset;  ///< `worker_indptr` is at 0
  size_t merge_rows_offset;
  size_t items_offset;
  size_t bytes;

  static constexpr size_t kAlign = 64;

  constexpr size_t used_bytes(int num_items) const {
    return items_offset + sizeof(BalancedItem) * static_cast<size_t>(num_items);
  }

  /// \return the plan in `memory`, which holds `bytes` bytes.
  BalancedPlan attach(void* memory) const {
    char* base = static_cast<char*>(memory);
    BalancedPlan plan;
    plan.worker_indptr = reinterpret_cast<int32_t*>(base);
    plan.merge_indptr = reinterpret_cast<int32_t*>(base + merge_indptr_offset);
    plan.merge_rows = reinterpret_cast<MergeRow*>(base + merge_rows_offset);
    plan.items = reinterpret_cast<BalancedItem*>(base + items_offset);
    plan.item_capacity = item_capacity;
    return plan;
  }
};

/// \return room for every plan of `rows` rows: a plan has fewer than `num_workers` cuts.
constexpr int64_t max_items(const BalancedConfig& config, int64_t rows) {
  return rows + config.num_workers - 1;
}

/// Rows of any batch inside the limits: at most one incomplete query tile per request.
/// \return -1 for limits or a configuration out of range, or more than `INT_MAX` items.
constexpr int64_t max_rows(const BalancedConfig& config, const BalancedLimits& limits) {
  if (!config.is_valid() || limits.max_batch <= 0 || limits.max_query_total < 0) return -1;
  const int64_t queries = limits.max_query_total;
  if (queries > INT64_MAX / 2 / config.group_size) return -1;
  const int64_t own_tiles = (int64_t{config.group_size} + config.q_tile - 1) / config.q_tile;
  if (own_tiles > INT_MAX) return -1;
  const int64_t tiles = queries == 0 ? limits.max_batch * own_tiles
                                     : limits.max_batch + queries * config.group_size / config.q_tile;
  if (tiles > (INT64_MAX / 2) / config.num_heads) return -1;
  const int64_t rows = tiles * config.num_heads;
  return max_items(config, rows) <= INT_MAX ? rows : -1;
}

/// \return the layout for these limits; `bytes` is 0 if `max_rows` is -1.
constexpr BalancedLayout balanced_layout(const BalancedConfig& config, const BalancedLimits& limits) {
  const int64_t rows = max_rows(config, limits);
  if (rows < 0) return {0, 0, 0, 0, 0};
  const auto aligned = [](size_t bytes) {
    return (bytes + BalancedLayout::kAlign - 1) / BalancedLayout::kAlign * BalancedLayout::kAlign;
  };
  const size_t workers = static_cast<size_t>(config.num_workers);
  BalancedLayout layout{max_items(config, rows), 0, 0, 0, 0};
  layout.merge_indptr_offset = aligned(sizeof(int32_t) * (workers + 1));
  layout.merge_rows_offset = aligned(layout.merge_indptr_offset + sizeof(int32_t) * workers);
  layout.items_offset = aligned(layout.merge_rows_offset + sizeof(MergeRow) * (workers - 1));
  layout.bytes =
      aligned(layout.items_offset + sizeof(BalancedItem) * static_cast<size_t>(layout.item_capacity));
  return layout;
}

/// \param kv_total upper bound of the positions of all rows: sum of kv_len * query tiles * heads. Only
/// batch-invariant mode depends on it.
/// \return room for the partial results of every such plan.
constexpr int64_t max_partials(const BalancedConfig& config, int64_t kv_total) {
  const int64_t pieces = 2 * (int64_t{config.num_workers} - 1);
  return config.batch_invariant && pieces > 0 ? kv_total / kCanonicalBlock + pieces : pieces;
}

/// What a row of a slot holds after its `head_dim` weighted sums of values: the maximum of its scores, and
/// the sum of its weights. All are f32.
inline constexpr int kPartialStatistics = 2;

/// \return bytes of `num_partials` slots of `q_rows` rows each.
constexpr int64_t partial_bytes(int64_t num_partials, int64_t q_rows, int64_t head_dim) {
  return num_partials * q_rows * (head_dim + kPartialStatistics) * static_cast<int64_t>(sizeof(float));
}

}  // namespace runtime
}  // namespace pto
