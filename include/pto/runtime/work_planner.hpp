// SPDX-License-Identifier: MIT
/// \file
/// `WorkPlanner`: from lengths to work descriptors (spec 6). No allocation, no exceptions, integers only.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "detail/chunk_count.hpp"
#include "detail/plan_job.hpp"
#include "iteration_space.hpp"
#include "tier_config.hpp"
#include "work_descriptor.hpp"

namespace pto {
namespace runtime {

namespace detail {

template <typename P, typename = void>
struct has_set : std::false_type {};
template <typename P>
struct has_set<P, std::void_t<decltype(P::set(std::declval<WorkDescriptor&>(), uint32_t{}, uint32_t{},
                                              uint32_t{}, uint32_t{}))>> : std::true_type {};

/// Static size of dimension `I`, `DYNAMIC` if there is none.
template <typename Space, size_t I>
constexpr int static_dim() {
  if constexpr (I < Space::num_dims) {
    return std::tuple_element_t<I, typename Space::DimsTuple>::static_size;
  } else {
    return DYNAMIC;
  }
}

}  // namespace detail

/// Cuts `batch_size * num_heads` sequences into chunks, one descriptor each.
///
/// A length has ceil(len / chunk) chunks; search, count and generation share that one function. Descriptors
/// come in the order batch, head, chunk with the chunk innermost; the tier is that of the whole length.
///
/// \tparam Space          `IterationSpace`. A static dimension 0 or 1 is a promise about `batch_size` or
/// `num_heads`,
///                        a static dimension 2 bounds the chunks of a request; calls that break it are
///                        invalid.
/// \tparam TierCfg        `TierConfig`.
/// \tparam PatternParams  has `set(WorkDescriptor&, uint32_t, uint32_t, uint32_t, uint32_t)`, called with
/// request,
///                        head, first position and number of positions.
template <typename Space, typename TierCfg, typename PatternParams>
class WorkPlanner {
  static_assert(is_iteration_space<Space>::value, "WorkPlanner: Space is an IterationSpace<> specialization");
  static_assert(is_tier_config<TierCfg>::value, "WorkPlanner: TierCfg is a TierConfig<> specialization");
  static_assert(
      detail::has_set<PatternParams>::value,
      "WorkPlanner: PatternParams has set(WorkDescriptor&, uint32_t, uint32_t, uint32_t, uint32_t)");

 public:
  /// \post The planner is ready for use; if `config` is out of range, every call reports invalid parameters.
  explicit WorkPlanner(const PlanConfig& config = {}, ZeroLength zero_length = ZeroLength::reject)
      : config_(config), zero_length_(zero_length) {}

  /// The smallest chunk size in `[chunk_min, chunk_max]` that gives at most `max_work_units` descriptors, or
  /// `chunk_max` if none does (`fits` tells).
  /// \pre   `seq_lens` points to `batch_size` lengths >= 0; `batch_size > 0`, `num_heads > 0`.
  /// \return the chunk size; 0, which is never a chunk size, if a precondition or the configuration is
  /// violated.
  /// \complexity O(batch_size * log(chunk_max - chunk_min)) at worst; commonly 1 to 5 passes over the
  /// lengths.
  int plan_chunk_size(const int* seq_lens, int batch_size, int num_heads) const {
    if (!is_callable(inputs(seq_lens, batch_size, num_heads, 1))) return 0;
    const detail::Lengths lengths = scan(seq_lens, batch_size);
    if (lengths.summary.min < 0) return 0;
    return detail::smallest_chunk(lengths, config_.chunk_min, config_.chunk_max,
                                  static_cast<uint64_t>(config_.max_work_units / num_heads));
  }

  /// Writes the whole plan.
  /// \pre  `seq_lens` points to `batch_size` lengths, `out_buffer` to `buffer_capacity` descriptors.
  /// \post OK: `*out_work_count` descriptors were written. Otherwise nothing was written, and
  /// `*out_work_count` is the
  ///       required capacity for BUFFER_OVERFLOW and 0 for other errors.
  /// \return the first that applies of INVALID_PARAMS (null pointer, size or chunk size <= 0, length < 0,
  /// more than
  ///         `INT_MAX` descriptors), UNSUPPORTED_SIZE, BUFFER_OVERFLOW; OK.
  PlanResult generate(const int* seq_lens, int batch_size, int num_heads, int chunk_size,
                      WorkDescriptor* out_buffer, int buffer_capacity, int* out_work_count) const {
    return parallel_generate(0, 1, seq_lens, batch_size, num_heads, chunk_size, out_buffer, buffer_capacity,
                             out_work_count);
  }

  /// The number of descriptors of a plan, whatever the tiers.
  /// \return -1 if `generate` would find the parameters invalid, a count above `INT_MAX` included.
  int get_total_work(const int* seq_lens, int batch_size, int num_heads, int chunk_size) const {
    const int64_t total = get_total_work_64(seq_lens, batch_size, num_heads, chunk_size);
    return total > INT_MAX ? -1 : static_cast<int>(total);
  }

  /// Like `get_total_work`; counts above `INT_MAX` are returned, `INT64_MAX` represents those above itself.
  int64_t get_total_work_64(const int* seq_lens, int batch_size, int num_heads, int chunk_size) const {
    const detail::PlanInputs in = inputs(seq_lens, batch_size, num_heads, chunk_size);
    if (!is_callable(in)) return -1;
    const detail::Lengths lengths = scan(seq_lens, batch_size);
    if (lengths.summary.min < 0 || !chunks_fit_space(lengths, chunk_size)) return -1;
    const uint64_t chunks = lengths.total_chunks(chunk_size);
    const uint64_t heads = static_cast<uint64_t>(num_heads);
    return chunks > INT64_MAX / heads ? INT64_MAX : static_cast<int64_t>(chunks * heads);
  }

  /// \return whether a plan with this chunk size has at most `max_work_units` descriptors.
  bool fits(const int* seq_lens, int batch_size, int num_heads, int chunk_size) const {
    const int64_t total = get_total_work_64(seq_lens, batch_size, num_heads, chunk_size);
    return total >= 0 && total <= config_.max_work_units;
  }

  /// Writes the descriptors of requests `[batch_begin, batch_end)` to their places in the plan of the whole
  /// batch. Calls for different requests may run at the same time. Parameters, results and `*out_work_count`
  /// (of the whole plan) are those of `generate`.
  PlanResult generate_subset(int batch_begin, int batch_end, const int* seq_lens, int batch_size,
                             int num_heads, int chunk_size, WorkDescriptor* out_buffer, int buffer_capacity,
                             int* out_work_count) const {
    const bool is_subset = batch_begin >= 0 && batch_begin <= batch_end && batch_end <= batch_size;
    const auto range = [&](const auto& job) {
      return WorkRange{job.first_id(batch_begin), job.first_id(batch_end)};
    };
    return run(is_subset, inputs(seq_lens, batch_size, num_heads, chunk_size), out_buffer, buffer_capacity,
               out_work_count, range);
  }

  /// Writes the share of one of `num_threads` threads, `thread_share(*out_work_count, thread_id,
  /// num_threads)`, of the plan of the whole batch. Shares differ by at most one descriptor, however skewed
  /// the lengths are. Each thread makes the same call; together they leave the bytes of one `generate`.
  /// Parameters, results and
  /// `*out_work_count` (of the whole plan) are those of `generate`.
  PlanResult parallel_generate(int thread_id, int num_threads, const int* seq_lens, int batch_size,
                               int num_heads, int chunk_size, WorkDescriptor* out_buffer, int buffer_capacity,
                               int* out_work_count) const {
    const bool is_thread = thread_id >= 0 && thread_id < num_threads;
    const auto range = [&](const auto& job) { return thread_share(job.total(), thread_id, num_threads); };
    return run(is_thread, inputs(seq_lens, batch_size, num_heads, chunk_size), out_buffer, buffer_capacity,
               out_work_count, range);
  }

  /// \pre `0 <= thread_id < num_threads`, `total >= 0`
  static constexpr WorkRange thread_share(int total, int thread_id, int num_threads) {
    const int64_t t = total;
    return {static_cast<int>(t * thread_id / num_threads),
            static_cast<int>(t * (thread_id + 1) / num_threads)};
  }

  const PlanConfig& config() const { return config_; }
  ZeroLength zero_length() const { return zero_length_; }

 private:
  detail::PlanInputs inputs(const int* seq_lens, int batch_size, int num_heads, int chunk_size) const {
    return {seq_lens, batch_size, num_heads, chunk_size, config_.balance_chunks, zero_length_};
  }

  detail::Lengths scan(const int* seq_lens, int batch_size) const {
    const size_t count = static_cast<size_t>(batch_size);
    return {seq_lens, count, detail::summarize(seq_lens, count), zero_length_};
  }

  bool is_callable(const detail::PlanInputs& in) const {
    constexpr int batch = detail::static_dim<Space, 0>();
    constexpr int heads = detail::static_dim<Space, 1>();
    return config_.is_valid() && in.are_valid() && (batch == DYNAMIC || batch == in.batch_size) &&
           (heads == DYNAMIC || heads == in.num_heads);
  }

  bool chunks_fit_space([[maybe_unused]] const detail::Lengths& lengths,
                        [[maybe_unused]] int chunk_size) const {
    constexpr int most_chunks = detail::static_dim<Space, 2>();
    if constexpr (most_chunks == DYNAMIC) {
      return true;
    } else {
      const detail::ChunkDivider divider(chunk_size, zero_length_);
      return divider.chunks(lengths.summary.max) <= static_cast<uint64_t>(most_chunks);
    }
  }

  template <typename RangeOf>
  PlanResult run(bool is_valid, const detail::PlanInputs& in, WorkDescriptor* out_buffer, int buffer_capacity,
                 int* out_work_count, const RangeOf& range_of) const {
    if (out_work_count == nullptr) return PlanResult::INVALID_PARAMS;
    *out_work_count = 0;
    if (!is_valid || out_buffer == nullptr || buffer_capacity < 0 || !is_callable(in)) {
      return PlanResult::INVALID_PARAMS;
    }
    const detail::PlanJob<TierCfg> job(in, TierCfg{});
    if (job.result() == PlanResult::INVALID_PARAMS || !chunks_fit_space(job.lengths(), in.chunk_size)) {
      return PlanResult::INVALID_PARAMS;
    }
    if (job.result() != PlanResult::OK) return job.result();
    *out_work_count = job.total();
    if (job.total() > buffer_capacity) return PlanResult::BUFFER_OVERFLOW;
    job.template write<PatternParams>(range_of(job), out_buffer);
    return PlanResult::OK;
  }

  PlanConfig config_;
  ZeroLength zero_length_;
};

using AttentionPlanner =
    WorkPlanner<AttentionSpace<DYNAMIC, DYNAMIC, DYNAMIC>, DecodeAttentionTiers, params::Attention>;

/// Tokens per batch entry, for each of `num_heads` experts.
using MoEPlanner = WorkPlanner<MoESpace<DYNAMIC, DYNAMIC>, DecodeAttentionTiers, params::MoE>;

}  // namespace runtime
}  // namespace pto
