// SPDX-License-Identifier: MIT
/// \file
/// One call of a planner: its inputs, checked once, and the walk over the requests. `WorkPlanner` runs it
/// with tiers fixed at compile time; a binding runs it with tiers it learns at run time.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "chunk_count.hpp"
#include "descriptor_writer.hpp"

namespace pto {
namespace runtime {

/// How `generate` ended.
enum class PlanResult {
  OK = 0,            ///< success
  BUFFER_OVERFLOW,   ///< output buffer too small
  UNSUPPORTED_SIZE,  ///< a length that no tier covers
  INVALID_PARAMS,    ///< null pointers, invalid sizes, or more than `INT_MAX` descriptors
};

/// Limits of a plan. A planner with a configuration out of range refuses every call.
struct PlanConfig {
  int chunk_min = 256;         ///< smallest chunk size, > 0
  int chunk_max = 4096;        ///< largest chunk size, >= chunk_min
  int max_work_units = 65536;  ///< `plan_chunk_size` aims at no more descriptors than this, > 0
  /// A length of `len` has n = ceil(len / chunk) chunks in any case. true: chunk k starts at floor(k * len /
  /// n), so that sizes differ by at most 1. false: it starts at k * chunk, and the last one is short.
  bool balance_chunks = true;

  /// \return whether every field is in its range.
  constexpr bool is_valid() const { return chunk_min > 0 && chunk_max >= chunk_min && max_work_units > 0; }
};

/// Descriptors `[begin, end)` of a plan.
struct WorkRange {
  int begin;
  int end;
};

namespace detail {

struct PlanInputs {
  const int* seq_lens;
  int batch_size;
  int num_heads;
  int chunk_size;
  bool balance_chunks;
  ZeroLength zero_length;

  /// \return whether pointers and sizes are usable; lengths are checked by `PlanJob`.
  bool are_valid() const { return seq_lens != nullptr && batch_size > 0 && num_heads > 0 && chunk_size > 0; }
};

/// Checked inputs of one plan. `Tiers` has `select_tier(size)` and `covers(low, high)`.
template <typename Tiers>
class PlanJob {
 public:
  /// \pre `in.are_valid()`
  PlanJob(const PlanInputs& in, const Tiers& tiers)
      : in_(in),
        tiers_(tiers),
        divider_(in.chunk_size, in.zero_length),
        lengths_{in.seq_lens, static_cast<size_t>(in.batch_size),
                 summarize(in.seq_lens, static_cast<size_t>(in.batch_size)), in.zero_length} {
    result_ = check();
  }

  /// `OK`, `INVALID_PARAMS` or `UNSUPPORTED_SIZE`.
  PlanResult result() const { return result_; }

  /// Number of descriptors. \pre `result() == OK`
  int total() const { return total_; }

  const Lengths& lengths() const { return lengths_; }

  /// Id of the first descriptor of `request`, `0 <= request <= batch_size`.
  int first_id(int request) const { return static_cast<int>(chunks_before(request)) * in_.num_heads; }

  /// Writes descriptors `[range.begin, range.end)` to the same places of `plan`, and nothing else.
  template <typename Params>
  void write(WorkRange range, WorkDescriptor* plan) const {
    if (range.begin >= range.end) return;
#if PTO_HAS_WORD_WRITER
    if constexpr (params::stores_verbatim<Params>::value) {
      const WordWriter writer(plan, plan + range.end);
      walk(range,
           [&](const RequestItems& r, uint32_t head_begin, uint32_t head_end, uint32_t chunk_begin,
               uint32_t chunk_end) { writer.write_block(r, head_begin, head_end, chunk_begin, chunk_end); });
      return;
    }
#endif
    walk(range, [&](const RequestItems& r, uint32_t head_begin, uint32_t head_end, uint32_t chunk_begin,
                    uint32_t chunk_end) {
      write_block_by_set<Params>(r, head_begin, head_end, chunk_begin, chunk_end, plan);
    });
  }

 private:
  /// The length whose tier a request takes.
  static int tier_length(int len, ZeroLength zero_length) {
    return len == 0 && zero_length == ZeroLength::empty_item ? 1 : len;
  }

  PlanResult check() {
    if (lengths_.summary.min < 0) return PlanResult::INVALID_PARAMS;
    const uint64_t chunks =
        lengths_.first_chunks() + sum_further_chunks(in_.seq_lens, lengths_.count, divider_);
    if (chunks > static_cast<uint64_t>(INT_MAX / in_.num_heads)) return PlanResult::INVALID_PARAMS;
    total_ = static_cast<int>(chunks) * in_.num_heads;
    const int shortest = tier_length(lengths_.summary.min, in_.zero_length);
    if (tiers_.covers(shortest, lengths_.summary.max)) return PlanResult::OK;
    for (size_t b = 0; b < lengths_.count; ++b) {
      if (tiers_.select_tier(tier_length(in_.seq_lens[b], in_.zero_length)) < 0)
        return PlanResult::UNSUPPORTED_SIZE;
    }
    return PlanResult::OK;
  }

  uint64_t chunks_before(int request) const {
    const size_t count = static_cast<size_t>(request);
    if (count == lengths_.count) return static_cast<uint64_t>(total_ / in_.num_heads);
    uint64_t first_chunks = count;
    if (lengths_.summary.num_zero != 0 && in_.zero_length == ZeroLength::reject) {
      first_chunks -= summarize(in_.seq_lens, count).num_zero;
    }
    return first_chunks + sum_further_chunks(in_.seq_lens, count, divider_);
  }

  /// \return the request that holds descriptor `id`; sets `*first_id` to that request's first descriptor.
  int find_request(int id, uint32_t* first_id) const {
    int low = 0;
    int high = in_.batch_size;
    if (id == 0) high = 1;
    while (high - low > 1) {
      const int mid = low + (high - low) / 2;
      if (this->first_id(mid) <= id) {
        low = mid;
      } else {
        high = mid;
      }
    }
    *first_id = static_cast<uint32_t>(this->first_id(low));
    return low;
  }

  /// Calls `block` for each rectangle (heads x chunks) of `range`, in ascending order.
  template <typename Block>
  void walk(WorkRange range, const Block& block) const {
    uint32_t first_id = 0;
    const uint32_t begin = static_cast<uint32_t>(range.begin);
    const uint32_t end = static_cast<uint32_t>(range.end);
    const uint32_t heads = static_cast<uint32_t>(in_.num_heads);
    for (int b = find_request(range.begin, &first_id); first_id < end; ++b) {
      const int len = in_.seq_lens[b];
      const uint32_t n = static_cast<uint32_t>(divider_.chunks(len));
      const RequestItems r{first_id,
                           static_cast<uint32_t>(b),
                           heads,
                           n,
                           static_cast<uint8_t>(tiers_.select_tier(tier_length(len, in_.zero_length))),
                           ChunkStarts(static_cast<uint32_t>(len), n, static_cast<uint32_t>(in_.chunk_size),
                                       in_.balance_chunks)};
      const uint32_t items = n * heads;
      if (begin <= first_id && first_id + items <= end) {
        block(r, 0, heads, 0, n);
      } else if (items > 0) {
        const uint32_t from = begin > first_id ? begin - first_id : 0;
        const uint32_t to = end - first_id < items ? end - first_id : items;
        walk_part(r, from, to, block);
      }
      first_id += items;
    }
  }

  /// Items `[from, to)` of one request: the end of a head, whole heads, the beginning of a head.
  template <typename Block>
  static void walk_part(const RequestItems& r, uint32_t from, uint32_t to, const Block& block) {
    const uint32_t n = r.num_chunks;
    uint32_t head = from / n;
    if (const uint32_t chunk = from % n; chunk != 0) {
      const uint32_t chunk_end = to - head * n < n ? to - head * n : n;
      block(r, head, head + 1, chunk, chunk_end);
      ++head;
    }
    const uint32_t last_head = to / n;
    if (head < last_head) block(r, head, last_head, 0, n);
    if (head <= last_head && to % n != 0) block(r, last_head, last_head + 1, 0, to % n);
  }

  PlanInputs in_;
  Tiers tiers_;
  ChunkDivider divider_;
  Lengths lengths_;
  PlanResult result_ = PlanResult::OK;
  int total_ = 0;
};

}  // namespace detail
}  // namespace runtime
}  // namespace pto
