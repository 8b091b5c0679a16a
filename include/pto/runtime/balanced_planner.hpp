// SPDX-License-Identifier: MIT
/// \file
/// `BalancedPlanner`: deals the rows of a batch to a fixed number of workers, evenly, and says how the rows
/// that were split are merged. No allocation, no exceptions, integers only; one pass after the sums of the
/// lengths.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "balanced_plan.hpp"
#include "detail/balance_sweep.hpp"
#include "detail/plan_job.hpp"
#include "tier_config.hpp"

namespace pto {
namespace runtime {

namespace detail {

/// One call of a balanced planner. `Tiers` has `select_tier(size)` and `covers(low, high)`.
template <typename Tiers>
class BalanceJob {
 public:
  /// \param qo_lens query lengths, or null: every request has one query.
  BalanceJob(const RowRules& rules, const Tiers& tiers, const int* kv_lens, const int* qo_lens,
             int batch_size)
      : rules_(rules), tiers_(tiers), kv_lens_(kv_lens), qo_lens_(qo_lens), batch_size_(batch_size) {
    result_ = check();
  }

  /// `OK`, `INVALID_PARAMS` or `UNSUPPORTED_SIZE`.
  PlanResult result() const { return result_; }

  /// \pre `result() == OK`
  int64_t rows() const { return rows_; }

  /// \pre `result() == OK`, and `plan` has room for `max_items(config, rows())` items.
  void write(BalancedPlan* plan) const {
    const int64_t total = total_cost();
    const BalancedConfig& config = rules_.config();
    const BalanceSweep sweep(config, total, config.grain() * largest_position_cost(), plan);
    if (is_plain_decode()) {
      add_decodes(sweep);
    } else {
      add_requests(sweep);
    }
  }

 private:
  int qo_len(int request) const { return qo_lens_ == nullptr ? 1 : qo_lens_[request]; }

  PlanResult check() {
    const size_t count = static_cast<size_t>(batch_size_);
    const BalancedConfig& config = rules_.config();
    kv_ = summarize(kv_lens_, count);
    qo_.max = 1;
    if (qo_lens_ != nullptr) qo_ = summarize(qo_lens_, count);
    if (kv_.min < 0 || (qo_lens_ != nullptr && qo_.min < 0)) return PlanResult::INVALID_PARAMS;
    if (qo_.max > INT_MAX / config.group_size) return PlanResult::INVALID_PARAMS;
    const uint64_t tiles = count_tiles();
    if (tiles > static_cast<uint64_t>((INT_MAX - config.num_workers) / config.num_heads)) {
      return PlanResult::INVALID_PARAMS;
    }
    rows_ = static_cast<int64_t>(tiles) * config.num_heads;
    const int64_t largest_cost = config.item_cost + int64_t{kv_.max} * largest_position_cost();
    if (rows_ > kMaxTotalCost / (largest_cost + 1)) return PlanResult::INVALID_PARAMS;
    if (config.batch_invariant && !blocks_fit()) return PlanResult::INVALID_PARAMS;
    return check_tiers();
  }

  PlanResult check_tiers() const {
    const bool reject_zero = rules_.config().zero_length == ZeroLength::reject;
    if (reject_zero && kv_.min == 0) return PlanResult::UNSUPPORTED_SIZE;
    if (tiers_.covers(tier_length(kv_.min), tier_length(kv_.max))) return PlanResult::OK;
    for (int b = 0; b < batch_size_; ++b) {
      if (tiers_.select_tier(tier_length(kv_lens_[b])) < 0) return PlanResult::UNSUPPORTED_SIZE;
    }
    return PlanResult::OK;
  }

  static int tier_length(int kv_len) { return kv_len == 0 ? 1 : kv_len; }

  int64_t largest_position_cost() const {
    const BalancedConfig& config = rules_.config();
    const int64_t q_rows = int64_t{qo_.max} * config.group_size;
    return q_rows == 0 ? 1 : config.position_cost(q_rows < config.q_tile ? q_rows : config.q_tile);
  }

  uint64_t count_tiles() const {
    if (qo_lens_ == nullptr)
      return static_cast<uint64_t>(rules_.num_tiles(1)) * static_cast<uint64_t>(batch_size_);
    uint64_t tiles = 0;
    for (int b = 0; b < batch_size_; ++b) tiles += static_cast<uint64_t>(rules_.num_tiles(qo_lens_[b]));
    return tiles;
  }

  /// Whether slots for the blocks of all rows, and two more per worker, are counted by an int.
  bool blocks_fit() const {
    const int64_t blocks = rows_ * (kv_.max / kCanonicalBlock + 1);
    return blocks <= INT_MAX - 2 * int64_t{BalancedConfig::kMaxWorkers};
  }

  bool is_plain_decode() const {
    return qo_lens_ == nullptr && rules_.decodes_everything() && rules_.num_tiles(1) == 1;
  }

  int64_t total_cost() const {
    const BalancedConfig& config = rules_.config();
    if (is_plain_decode()) {
      const int64_t positions = static_cast<int64_t>(kv_.sum) * config.position_cost(config.group_size);
      return (positions + int64_t{batch_size_} * config.item_cost) * config.num_heads;
    }
    int64_t cost = 0;
    for (int b = 0; b < batch_size_; ++b) {
      const int64_t tiles = rules_.num_tiles(qo_len(b));
      for (int64_t t = 0; t < tiles; ++t) cost += rules_.cost(rules_.span(kv_lens_[b], qo_len(b), t));
    }
    return cost * config.num_heads;
  }

  /// The sweep comes by value, so that the compiler can keep it in registers.
  void add_decodes(BalanceSweep sweep) const {
    const BalancedConfig& config = rules_.config();
    const uint32_t position_cost = static_cast<uint32_t>(config.position_cost(config.group_size));
    for (int b = 0; b < batch_size_; ++b) {
      const RowSpan span{0, 0, static_cast<uint32_t>(kv_lens_[b]), position_cost};
      sweep.add_heads(owner_of(b), span, rules_.cost(span), 0, config.num_heads);
    }
    sweep.finish();
  }

  void add_requests(BalanceSweep sweep) const {
    const int num_heads = rules_.config().num_heads;
    for (int b = 0; b < batch_size_; ++b) {
      const RowOwner owner = owner_of(b);
      const int queries = qo_len(b);
      const int64_t tiles = rules_.num_tiles(queries);
      // One row per head: equal rows. Otherwise the rows of a head follow each other.
      const int heads_at_once = tiles == 1 ? num_heads : 1;
      for (int head = 0; head < num_heads; head += heads_at_once) {
        for (int64_t t = 0; t < tiles; ++t) {
          const RowSpan span = rules_.span(kv_lens_[b], queries, t);
          sweep.add_heads(owner, span, rules_.cost(span), head, head + heads_at_once);
        }
      }
    }
    sweep.finish();
  }

  RowOwner owner_of(int request) const {
    const int tier = tiers_.select_tier(tier_length(kv_lens_[request]));
    return {static_cast<uint32_t>(request), static_cast<uint8_t>(tier)};
  }

  static constexpr int64_t kMaxTotalCost = INT64_MAX / 4;

  RowRules rules_;
  Tiers tiers_;
  const int* kv_lens_;
  const int* qo_lens_;
  int batch_size_;
  LengthSummary kv_;
  LengthSummary qo_;
  int64_t rows_ = 0;
  PlanResult result_;
};

}  // namespace detail

/// Every length from 1 on goes to tier 0.
using AnyLengthTiers = TierConfig<Tier<0, 1, INT_MAX>>;

/// Deals rows to workers: worker w gets items `[worker_indptr[w], worker_indptr[w + 1])`.
///
/// With LB = max(total cost / workers, cost of one grain), no worker has more than LB + one grain +
/// `item_cost`. There are fewer than rows + `num_workers` items, at most `num_workers - 1` rows to merge,
/// and, unless batch-invariant, at most `2 * (num_workers - 1)` partial results: all known before any length
/// is.
///
/// \tparam TierCfg `TierConfig`; the tier is that of the whole `kv_len`, or of 1 if it is 0.
template <typename TierCfg = AnyLengthTiers>
class BalancedPlanner {
  static_assert(is_tier_config<TierCfg>::value, "BalancedPlanner: TierCfg is a TierConfig<> specialization");

 public:
  /// \post The planner is ready for use; if `config` is out of range, every call reports invalid parameters.
  explicit BalancedPlanner(const BalancedConfig& config) : config_(config) {}

  /// Makes a plan.
  /// \param kv_lens `[batch_size]` lengths >= 0
  /// \param qo_lens `[batch_size]` query lengths >= 0; a request without queries has no rows. Null: one each.
  /// \param plan    its pointers and `item_capacity` are read, the memory and the other fields are written.
  /// \post OK: `*plan` is complete. Otherwise no memory of the plan was written, and `plan->num_items` is the
  ///       required capacity, `max_items` of the rows, for BUFFER_OVERFLOW and 0 for other errors. That
  ///       capacity depends on the number of rows alone, never on how long they are.
  /// \return the first that applies of INVALID_PARAMS (null pointer, batch size <= 0, length < 0, a row of
  /// more
  ///         than `INT_MAX` packed queries, more than `INT_MAX` items or slots, rows * longest row beyond
  ///         2^61), UNSUPPORTED_SIZE (no tier, or a `kv_len` of 0 that is rejected), BUFFER_OVERFLOW; OK.
  /// \complexity O(batch_size + items + num_workers)
  PlanResult plan(const int* kv_lens, const int* qo_lens, int batch_size, BalancedPlan* plan) const {
    return make_plan(config_, TierCfg{}, kv_lens, qo_lens, batch_size, plan);
  }

  /// The same with `Tiers` that are known at run time: has `select_tier(size)` and `covers(low, high)`.
  template <typename Tiers>
  static PlanResult make_plan(const BalancedConfig& config, const Tiers& tiers, const int* kv_lens,
                              const int* qo_lens, int batch_size, BalancedPlan* plan) {
    if (plan == nullptr) return PlanResult::INVALID_PARAMS;
    plan->num_items = plan->num_merges = plan->num_partials = 0;
    plan->total_cost = plan->makespan = 0;
    if (!config.is_valid() || kv_lens == nullptr || batch_size <= 0 || !has_memory(*plan)) {
      return PlanResult::INVALID_PARAMS;
    }
    const detail::BalanceJob<Tiers> job(detail::RowRules(config), tiers, kv_lens, qo_lens, batch_size);
    if (job.result() != PlanResult::OK) return job.result();
    const int64_t required = max_items(config, job.rows());
    if (required > plan->item_capacity) {
      plan->num_items = static_cast<int>(required);
      return PlanResult::BUFFER_OVERFLOW;
    }
    job.write(plan);
    return PlanResult::OK;
  }

  const BalancedConfig& config() const { return config_; }

 private:
  static bool has_memory(const BalancedPlan& plan) {
    return plan.items != nullptr && plan.item_capacity >= 0 && plan.worker_indptr != nullptr &&
           plan.merge_rows != nullptr && plan.merge_indptr != nullptr;
  }

  BalancedConfig config_;
};

}  // namespace runtime
}  // namespace pto
