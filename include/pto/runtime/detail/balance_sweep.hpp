// SPDX-License-Identifier: MIT
/// \file
/// Deals rows to workers in one pass.
///
/// Rows lie end to end on a line of costs of length S, each `item_cost` and then its positions. A worker ends
/// at the last point where a cut is allowed (between rows, or inside a row at a multiple of the grain) that
/// is not beyond its share w * S / W plus half of G + o; G is the cost of one grain, o = `item_cost`. Allowed
/// points are at most G + o apart when the o that a cut adds to the next worker is counted, so that every
/// worker begins less than half of G + o before its share. Its load is therefore below S / W + G + o + 1.
#pragma once

#include <climits>
#include <cstdint>
#include <cstring>

#include "balance_rows.hpp"
#include "descriptor_writer.hpp"

#if defined(__GNUC__)
#define PTO_ALWAYS_INLINE __attribute__((always_inline))
#else
#define PTO_ALWAYS_INLINE
#endif

namespace pto {
namespace runtime {
namespace detail {

/// What the rows of one request have in common.
struct RowOwner {
  uint32_t request;
  uint8_t tier;
};

class BalanceSweep {
 public:
  /// \param total_cost  of all rows that will be added
  /// \param grain_cost  of one grain of the row whose positions cost most
  BalanceSweep(const BalancedConfig& config, int64_t total_cost, int64_t grain_cost, BalancedPlan* plan)
      : plan_(plan),
        item_cost_(config.item_cost),
        grain_(static_cast<uint32_t>(config.grain())),
        grain_mask_((grain_ & (grain_ - 1)) == 0 ? ~(grain_ - 1) : 0),
        num_workers_(config.num_workers),
        batch_invariant_(config.batch_invariant),
        share_(total_cost / config.num_workers),
        share_rest_(total_cost % config.num_workers),
        reach_((grain_cost + config.item_cost) / 2) {
    plan_->worker_indptr[0] = 0;
    plan_->merge_indptr[0] = 0;
    set_limit();
  }

  /// Adds the same row for each of heads `[head, head_end)`. \param cost of one of them
  PTO_ALWAYS_INLINE void add_heads(const RowOwner& owner, const RowSpan& span, int64_t cost, int head,
                                   int head_end) {
    // Inlined, so that the sweep stays in registers; with a cost of 0 the first branch is always taken.
    const int64_t all = cost * (head_end - head);
    if (position_ + all <= limit_) {
      write_whole(owner, span, head, head_end);
      position_ += all;
      return;
    }
    for (; head < head_end; ++head) {
      if (position_ + cost <= limit_) {
        write_whole(owner, span, head, head + 1);
      } else {
        cut_row(owner, span, head);
      }
      position_ += cost;
    }
  }

  /// Ends the last workers. \post The plan is complete.
  void finish() {
    while (worker_ < num_workers_) end_worker(position_, false);
    plan_->num_items = num_items_;
    plan_->num_merges = num_merges_;
    plan_->num_partials = num_partials_;
    plan_->total_cost = position_;
    plan_->makespan = makespan_;
  }

 private:
  /// The end of the current worker's share; the last one takes whatever comes.
  void set_limit() {
    // Without a branch: whether the rests carry is as good as random.
    share_end_rest_ += share_rest_;
    const int64_t carry = share_end_rest_ >= num_workers_;
    share_end_rest_ -= num_workers_ & -carry;
    share_end_ += share_ + carry;
    limit_ = worker_ + 1 < num_workers_ ? share_end_ + reach_ : INT64_MAX;
  }

  void end_worker(int64_t at, bool is_inside_row) {
    makespan_ = at - worker_begin_ > makespan_ ? at - worker_begin_ : makespan_;
    worker_begin_ = is_inside_row ? at - item_cost_ : at;
    plan_->worker_indptr[++worker_] = num_items_;
    set_limit();
  }

  /// Adds a row that goes beyond the current worker's limit.
  PTO_ALWAYS_INLINE void cut_row(const RowOwner& owner, const RowSpan& span, int head) {
    const int64_t cost = span.position_cost;
    const int64_t origin = position_ + item_cost_ - cost * span.kv_begin;  // of position 0
    const int64_t end = origin + cost * span.kv_end;
    const uint32_t first_item = static_cast<uint32_t>(num_items_);
    uint32_t begin = span.kv_begin;
    while (end > limit_) {
      const uint32_t cut = last_cut(limit_ - origin, span.position_cost);
      if (cut > begin) {
        write_piece(owner, span, head, begin, cut);
        begin = cut;
      }
      const bool is_inside_row = begin > span.kv_begin;
      end_worker(is_inside_row ? origin + cost * begin : position_, is_inside_row);
    }
    if (begin == span.kv_begin) {
      write_whole(owner, span, head, head + 1);
      return;
    }
    write_piece(owner, span, head, begin, span.kv_end);
    plan_->merge_rows[num_merges_] = {owner.request, static_cast<uint32_t>(head), span.q_start, first_item};
    plan_->merge_indptr[++num_merges_] = num_partials_;
  }

  /// \return the last multiple of the grain whose cost from position 0 on is at most `cost`.
  uint32_t last_cut(int64_t cost, uint32_t position_cost) const {
    if (cost <= 0) return 0;
    const uint32_t position = static_cast<uint32_t>(position_cost == 1 ? cost : cost / position_cost);
    return grain_mask_ != 0 ? position & grain_mask_ : position - position % grain_;
  }

  void write_piece(const RowOwner& owner, const RowSpan& span, int head, uint32_t begin, uint32_t end) {
    const bool is_first = begin == span.kv_begin;
    const bool is_last = end == span.kv_end;
    const int flags = WorkDescriptor::FLAG_INIT | (is_first ? WorkDescriptor::FLAG_FIRST : 0) |
                      (is_last ? WorkDescriptor::FLAG_LAST : 0);
    write({owner, span.q_start, begin, end - begin, static_cast<uint8_t>(flags), num_partials_}, head, 1);
    const uint32_t blocks = is_first || !batch_invariant_ ? 1 : (end - 1) / grain_ - begin / grain_ + 1;
    num_partials_ += static_cast<int>(blocks);
  }

  void write_whole(const RowOwner& owner, const RowSpan& span, int head_begin, int head_end) {
    constexpr uint8_t kFlags =
        WorkDescriptor::FLAG_FIRST | WorkDescriptor::FLAG_LAST | WorkDescriptor::FLAG_INIT;
    const uint32_t kv_len = span.kv_end - span.kv_begin;
    write({owner, span.q_start, span.kv_begin, kv_len, kFlags, BalancedItem::kWriteThrough}, head_begin,
          head_end - head_begin);
  }

  /// An item without its place.
  struct Piece {
    RowOwner owner;
    uint32_t q_start;
    uint32_t kv_start;
    uint32_t kv_len;
    uint8_t flags;
    int32_t partial;
  };

  /// The same piece for `count` heads.
  void write(const Piece& piece, int head, int count) {
    BalancedItem* out = plan_->items + num_items_;
#if PTO_HAS_WORD_WRITER
    const uint64_t id = static_cast<uint32_t>(num_items_);
    Pair first = {
        id | static_cast<uint64_t>(piece.owner.tier) << 32 | static_cast<uint64_t>(piece.flags) << 40,
        piece.owner.request | static_cast<uint64_t>(head) << 32};
    const Pair second = {piece.kv_start | static_cast<uint64_t>(piece.kv_len) << 32,
                         piece.q_start | static_cast<uint64_t>(static_cast<uint32_t>(piece.partial)) << 32};
    for (int i = 0; i < count; ++i) {
      std::memcpy(reinterpret_cast<char*>(out + i), &first, 16);
      std::memcpy(reinterpret_cast<char*>(out + i) + 16, &second, 16);
      first += Pair{1, uint64_t{1} << 32};
    }
#else
    for (int i = 0; i < count; ++i) {
      BalancedItem item{};
      item.work.work_id = static_cast<uint32_t>(num_items_ + i);
      item.work.tier = piece.owner.tier;
      item.work.flags = piece.flags;
      params::Attention::set(item.work, piece.owner.request, static_cast<uint32_t>(head + i), piece.kv_start,
                             piece.kv_len);
      item.q_start = piece.q_start;
      item.partial = piece.partial;
      out[i] = item;
    }
#endif
    num_items_ += count;
  }

  BalancedPlan* plan_;
  int64_t item_cost_;
  uint32_t grain_;
  uint32_t grain_mask_;  ///< clears the bits below the grain; 0 if it is not a power of two
  int num_workers_;
  bool batch_invariant_;
  int64_t share_;
  int64_t share_rest_;
  int64_t reach_;
  int64_t share_end_ = 0;
  int64_t share_end_rest_ = 0;
  int64_t limit_ = 0;
  int64_t position_ = 0;
  int64_t worker_begin_ = 0;  ///< less `item_cost` where the worker continues a row
  int64_t makespan_ = 0;
  int worker_ = 0;
  int num_items_ = 0;
  int num_merges_ = 0;
  int num_partials_ = 0;
};

}  // namespace detail
}  // namespace runtime
}  // namespace pto

#undef PTO_ALWAYS_INLINE
