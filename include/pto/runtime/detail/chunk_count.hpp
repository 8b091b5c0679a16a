// SPDX-License-Identifier: MIT
/// \file
/// How many chunks a length has, and the smallest chunk size that stays inside a budget. Integers only, so
/// that a plan is the same on every machine. Search, count and generation all use `ChunkDivider::chunks`.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "avx2.hpp"

namespace pto {
namespace runtime {

/// What a request of length 0 means.
enum class ZeroLength : uint8_t {
  reject = 0,      ///< it has no chunks, and no tier: `UNSUPPORTED_SIZE`
  empty_item = 1,  ///< one descriptor with both FIRST and LAST set and a length of 0, in the tier of length 1
};

namespace detail {

/// Division of `x < 2^31` by a chunk size, as a multiplication and a shift.
///
/// With L = ceil(log2(chunk)), shift = 31 + L and multiplier = floor(2^shift / chunk) + 1, the error
/// e = multiplier * chunk - 2^shift lies in [1, chunk] and chunk <= 2^L, so x * e < 2^31 * 2^L = 2^shift: the
/// quotient is exact. The multiplier fits 32 bits because 2^L < 2 * chunk.
class ChunkDivider {
 public:
  /// \pre `chunk > 0`
  explicit constexpr ChunkDivider(int chunk, ZeroLength zero_length = ZeroLength::reject)
      : multiplier_(0), shift_(31), zero_length_(zero_length) {
    while ((uint64_t{1} << (shift_ - 31)) < static_cast<uint64_t>(chunk)) ++shift_;
    multiplier_ = static_cast<uint32_t>((uint64_t{1} << shift_) / static_cast<uint64_t>(chunk) + 1);
  }

  /// \return floor(x / chunk) \pre `x < 2^31`
  constexpr uint64_t quotient(uint32_t x) const { return static_cast<uint64_t>(x) * multiplier_ >> shift_; }

  /// \return floor((len - 1) / chunk) for `len > 0`, 0 for `len == 0`: the chunks after the first.
  constexpr uint64_t further_chunks(int len) const {
    return quotient(static_cast<uint32_t>(len - (len > 0)));
  }

  /// \return ceil(len / chunk), or 1 for an empty item. \pre `len >= 0`
  constexpr uint64_t chunks(int len) const {
    return further_chunks(len) + (len > 0 || zero_length_ == ZeroLength::empty_item ? 1u : 0u);
  }

  constexpr uint32_t multiplier() const { return multiplier_; }
  constexpr int shift() const { return shift_; }

 private:
  uint32_t multiplier_;
  int shift_;
  ZeroLength zero_length_;
};

/// What one pass over the lengths tells.
struct LengthSummary {
  int min = INT_MAX;
  int max = INT_MIN;
  uint64_t sum = 0;  ///< right only if `min >= 0`
  uint64_t num_zero = 0;
};

inline LengthSummary summarize(const int* lens, size_t count) {
  LengthSummary s;
  size_t i = 0;
#if PTO_HAS_AVX2_PATH
  if (has_avx2()) {
    i = count - count % kAvx2Lanes;
    summarize_avx2(lens, i, &s.min, &s.max, &s.sum, &s.num_zero);
  }
#endif
  for (; i < count; ++i) {
    const int len = lens[i];
    s.min = len < s.min ? len : s.min;
    s.max = len > s.max ? len : s.max;
    s.sum += static_cast<uint32_t>(len);
    s.num_zero += len == 0;
  }
  return s;
}

/// \return the sum of `further_chunks`. \pre all lengths >= 0
inline uint64_t sum_further_chunks(const int* lens, size_t count, ChunkDivider divider) {
  uint64_t total = 0;
  size_t i = 0;
#if PTO_HAS_AVX2_PATH
  if (has_avx2()) {
    i = count - count % kAvx2Lanes;
    total = sum_quotients_avx2(lens, i, divider.multiplier(), divider.shift());
  }
#endif
  for (; i < count; ++i) total += divider.further_chunks(lens[i]);
  return total;
}

/// Lengths that passed the check "all >= 0", and what they sum to.
struct Lengths {
  const int* lens;
  size_t count;
  LengthSummary summary;
  ZeroLength zero_length;

  /// The chunks that exist whatever the chunk size: one per request that has any.
  uint64_t first_chunks() const {
    return zero_length == ZeroLength::empty_item ? count : count - summary.num_zero;
  }

  uint64_t total_chunks(int chunk) const {
    return first_chunks() + sum_further_chunks(lens, count, ChunkDivider(chunk));
  }
};

/// Guesses where a count that falls like a / chunk + b crosses `room`, from the last two counts taken.
class CrossingGuess {
 public:
  /// Before any count: a = spread, and half a chunk lost per request.
  CrossingGuess(uint64_t spread, uint64_t requests, uint64_t room) : spread_(spread), room_(room) {
    guess_ = spread / (room + requests / 2 + 1) + 1;
  }

  uint64_t value() const { return guess_; }

  void add(uint64_t chunk, uint64_t count) {
    const bool has_slope = last_chunk_ != 0 && last_chunk_ != chunk && last_count_ != count;
    // Counts are below 2^32 near the crossing. Farther out the slope is not worth having, and may wrap.
    const bool small = (count >> 32) == 0 && (last_count_ >> 32) == 0;
    const uint64_t a = has_slope && small ? slope(chunk, count) : spread_;
    const uint64_t curve = a / chunk + room_;
    guess_ = curve > count ? a / (curve - count) + 1 : UINT64_MAX;
    last_chunk_ = chunk;
    last_count_ = count;
  }

 private:
  uint64_t slope(uint64_t chunk, uint64_t count) const {
    const uint64_t rise = count > last_count_ ? count - last_count_ : last_count_ - count;
    const uint64_t run = chunk > last_chunk_ ? chunk - last_chunk_ : last_chunk_ - chunk;
    return rise * chunk / run * last_chunk_;
  }

  uint64_t spread_;
  uint64_t room_;
  uint64_t guess_;
  uint64_t last_chunk_ = 0;
  uint64_t last_count_ = 0;
};

/// The smallest chunk size in `[low, high]` with at most `budget` chunks in all; `high` if there is none.
///
/// The number of chunks never grows with the chunk size, so every search finds the same answer as bisection.
/// With S = sum of max(len - 1, 0) over n non-zero lengths and `room` for further chunks, (S + n) / chunk - n
/// <= further chunks <= S / chunk bounds the answer before a single count; guesses and bisection then take
/// turns.
inline int smallest_chunk(const Lengths& lengths, int low, int high, uint64_t budget) {
  if (low >= high) return low;
  if (lengths.first_chunks() > budget) return high;
  const uint64_t room = budget - lengths.first_chunks();
  const uint64_t n = lengths.count - lengths.summary.num_zero;
  const uint64_t spread = lengths.summary.sum - n;
  if (spread == 0) return low;

  uint64_t lo = static_cast<uint64_t>(low);
  uint64_t hi = static_cast<uint64_t>(high);
  const uint64_t infeasible_below = (spread + n + room + n - 1) / (room + n);
  const uint64_t feasible_from = spread / (room + 1) + 1;
  lo = infeasible_below > hi ? hi : infeasible_below > lo ? infeasible_below : lo;
  hi = feasible_from < lo ? lo : feasible_from < hi ? feasible_from : hi;

  constexpr int kGuessesFirst = 5;
  CrossingGuess guess(spread, n, room);
  for (int probes = 0; lo < hi; ++probes) {
    const bool use_guess = probes < kGuessesFirst || probes % 2 == 0;
    const uint64_t wanted = use_guess ? guess.value() : (lo + hi) / 2;
    const uint64_t chunk = wanted < lo ? lo : wanted >= hi ? hi - 1 : wanted;
    const uint64_t further =
        sum_further_chunks(lengths.lens, lengths.count, ChunkDivider(static_cast<int>(chunk)));
    if (further > room) {
      lo = chunk + 1;
    } else {
      hi = chunk;
    }
    guess.add(chunk, further);
  }
  return static_cast<int>(lo);
}

}  // namespace detail
}  // namespace runtime
}  // namespace pto
