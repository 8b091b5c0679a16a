// SPDX-License-Identifier: MIT
/// \file
/// Writes any range of a plan's descriptors. Every descriptor depends on its position alone, so that ranges
/// written by different threads join into the same bytes as one range written by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "../work_descriptor.hpp"
#include "chunk_count.hpp"

namespace pto {
namespace runtime {
namespace detail {

/// Where the chunks of one request start: evened out at floor(k * len / n), otherwise at k * chunk.
class ChunkStarts {
 public:
  ChunkStarts(uint32_t len, uint32_t num_chunks, uint32_t chunk_size, bool balance)
      : len_(len), num_chunks_(num_chunks), chunk_size_(chunk_size), balance_(balance) {}

  /// By division. \return where chunk `k <= num_chunks` starts; the length for `k == num_chunks`.
  uint32_t start(uint32_t k) const {
    if (k == 0) return 0;
    if (k == num_chunks_) return len_;
    const uint64_t k64 = k;
    return static_cast<uint32_t>(balance_ ? k64 * len_ / num_chunks_ : k64 * chunk_size_);
  }

  /// `start(k)` of `N` chunks, `N == num_chunks`: division by a constant.
  template <uint32_t N>
  uint32_t start_of(uint32_t k) const {
    if (k == N) return len_;
    return balance_ ? static_cast<uint32_t>(uint64_t{k} * len_ / N) : k * chunk_size_;
  }

  /// Calls `visit(k, start, end)` for chunks `[begin, end)` in ascending order, mostly without division.
  ///
  /// Positions are advanced in units of 2^-32 by a step rounded up, afresh after `kMaxSteps` chunks: a
  /// position is too high by at most (kMaxSteps + 1) / 2^32. Exact positions k * len / n lie at least 1 / n
  /// below the next whole number, so that the floor is right as long as n <= kMaxStepped.
  template <typename Visit>
  void for_each(uint32_t begin, uint32_t end, const Visit& visit) const {
    if (balance_ && num_chunks_ > kMaxStepped) {
      for (uint32_t k = begin; k < end; ++k) visit(k, start(k), start(k + 1));
      return;
    }
    const uint32_t regular_end = balance_ || end < num_chunks_ ? end : end - 1;
    const uint64_t step = balance_ ? ceil_ratio(len_) : static_cast<uint64_t>(chunk_size_) << 32;
    for (uint32_t k = begin; k < regular_end;) {
      uint64_t position = position_of(k);
      const uint32_t stop = regular_end - k < kMaxSteps ? regular_end : k + kMaxSteps;
      for (; k < stop; ++k, position += step) {
        visit(k, static_cast<uint32_t>(position >> 32), static_cast<uint32_t>((position + step) >> 32));
      }
    }
    if (regular_end < end) visit(regular_end, start(regular_end), len_);
  }

 private:
  static constexpr uint32_t kMaxSteps = 64;
  static constexpr uint32_t kMaxStepped = UINT32_MAX / (kMaxSteps + 1);

  /// \return x / num_chunks in units of 2^-32, rounded up. \pre `x < 2^31`
  uint64_t ceil_ratio(uint64_t x) const { return ((x << 32) + num_chunks_ - 1) / num_chunks_; }

  uint64_t position_of(uint32_t k) const {
    const uint64_t whole = static_cast<uint64_t>(start(k)) << 32;
    if (!balance_ || k == 0) return whole;
    return whole + ceil_ratio(static_cast<uint64_t>(k) * len_ % num_chunks_);
  }

  uint32_t len_;
  uint32_t num_chunks_;
  uint32_t chunk_size_;
  bool balance_;
};

/// One request of a plan: `num_heads * num_chunks` descriptors from `first_id` on.
struct RequestItems {
  uint32_t first_id;
  uint32_t request;
  uint32_t num_heads;
  uint32_t num_chunks;
  uint8_t tier;
  ChunkStarts starts;
};

inline uint8_t chunk_flags(uint32_t k, uint32_t num_chunks) {
  return static_cast<uint8_t>((k == 0 ? WorkDescriptor::FLAG_FIRST : 0) |
                              (k + 1 == num_chunks ? WorkDescriptor::FLAG_LAST : 0));
}

/// Chunks `[chunk_begin, chunk_end)` of heads `[head_begin, head_end)` through `Params::set`, for any
/// `Params`.
template <typename Params>
void write_block_by_set(const RequestItems& r, uint32_t head_begin, uint32_t head_end, uint32_t chunk_begin,
                        uint32_t chunk_end, WorkDescriptor* plan) {
  for (uint32_t h = head_begin; h < head_end; ++h) {
    for (uint32_t k = chunk_begin; k < chunk_end; ++k) {
      const uint32_t id = r.first_id + h * r.num_chunks + k;
      const uint32_t start = r.starts.start(k);
      WorkDescriptor d{};
      d.work_id = id;
      d.tier = r.tier;
      d.flags = chunk_flags(k, r.num_chunks);
      Params::set(d, r.request, h, start, r.starts.start(k + 1) - start);
      plan[id] = d;
    }
  }
}

#if defined(__GNUC__) && defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && \
    !PTO_DEVICE_COMPILER
#define PTO_HAS_WORD_WRITER 1
#else
#define PTO_HAS_WORD_WRITER 0
#endif

#if PTO_HAS_WORD_WRITER
typedef uint64_t Pair __attribute__((vector_size(16)));

/// Writes descriptors as 64-bit words: `work_id | tier << 32 | flags << 40`, `params[0] | params[1] << 32`,
/// `params[2] | params[3] << 32`.
///
/// The descriptors of one request are the same for each head, but for work_id and head: one head is written
/// chunk by chunk, and copied to the others with constants added, three 16-byte stores for two descriptors.
class WordWriter {
 public:
  /// \param end one past the last descriptor that this writer may touch.
  WordWriter(WorkDescriptor* plan, const WorkDescriptor* end)
      : plan_(reinterpret_cast<char*>(plan)), end_(reinterpret_cast<const char*>(end)) {}

  /// Chunks `[chunk_begin, chunk_end)` of heads `[head_begin, head_end)`: all chunks, or those of one head.
  /// Blocks are written in ascending order.
  void write_block(const RequestItems& r, uint32_t head_begin, uint32_t head_end, uint32_t chunk_begin,
                   uint32_t chunk_end) const {
    if (chunk_end - chunk_begin == r.num_chunks) {
      switch (r.num_chunks) {
        case 1: return write_few<1>(r, head_begin, head_end);
        case 2: return write_few<2>(r, head_begin, head_end);
        case 3: return write_few<3>(r, head_begin, head_end);
        case 4: return write_few<4>(r, head_begin, head_end);
        default: break;
      }
    }
    write_run(r, head_begin, chunk_begin, chunk_end);
    if (head_begin + 1 < head_end) copy_to_heads(r, head_begin, head_end);
  }

 private:
  static Pair id_and_request(const RequestItems& r, uint32_t head, uint32_t chunk) {
    const uint64_t id = r.first_id + head * r.num_chunks + chunk;
    return Pair{id | static_cast<uint64_t>(r.tier) << 32, r.request | static_cast<uint64_t>(head) << 32};
  }

  static uint64_t flag_bits(const RequestItems& r, uint32_t chunk) {
    return static_cast<uint64_t>(chunk_flags(chunk, r.num_chunks)) << 40;
  }

  char* address(const RequestItems& r, uint32_t head, uint32_t chunk) const {
    return plan_ + sizeof(WorkDescriptor) * (static_cast<size_t>(r.first_id) + head * r.num_chunks + chunk);
  }

  static void put(char* out, Pair first_words, uint64_t last_word) {
    std::memcpy(out, &first_words, 16);
    std::memcpy(out + 16, &last_word, 8);
  }

  /// All `N` chunks of some heads, with everything that heads share in registers.
  template <uint32_t N>
  void write_few(const RequestItems& r, uint32_t head_begin, uint32_t head_end) const {
    uint64_t spans[N];
    for (uint32_t k = 0; k < N; ++k) {
      const uint32_t start = r.starts.start_of<N>(k);
      spans[k] = start | static_cast<uint64_t>(r.starts.start_of<N>(k + 1) - start) << 32;
    }
    Pair pair = id_and_request(r, head_begin, 0);
    char* out = address(r, head_begin, 0);
    for (uint32_t h = head_begin; h < head_end; ++h) {
      for (uint32_t k = 0; k < N; ++k, out += sizeof(WorkDescriptor)) {
        put(out, pair + Pair{k + flag_bits(r, k), 0}, spans[k]);
      }
      pair += Pair{N, uint64_t{1} << 32};
    }
  }

  void write_run(const RequestItems& r, uint32_t head, uint32_t chunk_begin, uint32_t chunk_end) const {
    const Pair first = id_and_request(r, head, 0);
    const uint64_t id_word = first[0];
    const uint64_t request_word = first[1];
    char* const out = address(r, head, 0);
    r.starts.for_each(chunk_begin, chunk_end, [=](uint32_t k, uint32_t start, uint32_t end) {
      put(out + sizeof(WorkDescriptor) * k, Pair{id_word + k, request_word},
          start | static_cast<uint64_t>(end - start) << 32);
    });
    add_flags(r, head, chunk_begin);
    if (chunk_end - 1 != chunk_begin) add_flags(r, head, chunk_end - 1);
  }

  void add_flags(const RequestItems& r, uint32_t head, uint32_t chunk) const {
    const uint64_t id_word = id_and_request(r, head, chunk)[0] + flag_bits(r, chunk);
    std::memcpy(address(r, head, chunk), &id_word, sizeof(id_word));
  }

  /// Copies all chunks of `head_begin` to the heads after it.
  void copy_to_heads(const RequestItems& r, uint32_t head_begin, uint32_t head_end) const {
    const char* from = address(r, head_begin, 0);
    const size_t bytes = sizeof(WorkDescriptor) * r.num_chunks;
    const size_t pairs = (bytes + 15) / 16;
    Pair add = {0, 0};
    for (uint32_t h = head_begin + 1; h < head_end; ++h) {
      add += Pair{r.num_chunks, uint64_t{1} << 32};
      char* out = address(r, h, 0);
      // After an odd count half a pair belongs to the next descriptor: written later, if it is ours at all.
      const bool whole_pairs = bytes % 16 == 0 || end_ - out >= static_cast<ptrdiff_t>(16 * pairs);
      copy_adding(out, from, whole_pairs ? pairs : pairs - 1, add);
      if (!whole_pairs) std::memcpy(out + bytes - 8, from + bytes - 8, 8);
    }
  }

  static void copy_adding(char* out, const char* from, size_t pairs, Pair add) {
    const Pair add1 = {0, add[0]};
    const Pair add2 = {add[1], 0};
    for (; pairs >= 3; pairs -= 3, from += 48, out += 48) {
      copy_pair(out, from, add);
      copy_pair(out + 16, from + 16, add1);
      copy_pair(out + 32, from + 32, add2);
    }
    if (pairs >= 1) copy_pair(out, from, add);
    if (pairs == 2) copy_pair(out + 16, from + 16, add1);
  }

  static void copy_pair(char* out, const char* from, Pair add) {
    Pair pair;
    std::memcpy(&pair, from, 16);
    pair += add;
    std::memcpy(out, &pair, 16);
  }

  char* plan_;
  const char* end_;
};
#endif

}  // namespace detail
}  // namespace runtime
}  // namespace pto
