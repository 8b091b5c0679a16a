// SPDX-License-Identifier: MIT
/// \file
/// The regions of memory that tasks name, each kept once.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "pto/wsp/sched/kept_graph.hpp"

namespace pto::wsp::capi {

/// `rows * cols` elements, the first of which is `row * cols + col` elements after `tensor`.
struct Region {
  static constexpr int kElementBytes = 4;
  static constexpr int64_t kMostExtent = INT32_MAX;  ///< of columns and of the rows of one region

  /// Of any numbers, also those of a region that cannot be.
  Region(const void* tensor, int64_t row, int64_t col, int64_t rows, int64_t cols)
      : first(uintptr_t(tensor) + (uint64_t(row) * uint64_t(cols) + uint64_t(col)) * kElementBytes),
        tensor(uintptr_t(tensor)),
        row(row),
        col(col),
        rows(rows),
        cols(cols) {}

  bool can_be() const {
    if (tensor == 0 || (row | col | rows | cols) < 0 || row > INT64_MAX - kMostExtent) return false;
    if (col > kMostExtent || rows > kMostExtent || cols > kMostExtent) return false;
    const __int128 elements = (__int128(row) + rows) * cols + col;
    return __int128(tensor) + elements * kElementBytes <= __int128(UINTPTR_MAX);
  }
  uintptr_t last() const { return first + uint64_t(rows) * uint64_t(cols) * kElementBytes; }
  void* data() const { return reinterpret_cast<void*>(first); }

  /// Columns follow from the rest.
  bool operator==(const Region& other) const {
    return first == other.first && tensor == other.tensor && row == other.row && rows == other.rows &&
           cols == other.cols;
  }

  uintptr_t first;   ///< address of its first byte
  uintptr_t tensor;  ///< address
  int64_t row, col, rows, cols;
};

/// Orchestrations name the same regions again and again, so a task holds their numbers. One thread adds,
/// others read what is published to them.
class Regions {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kMaxRegions = uint32_t{1} << 26;

  Regions() : slots_(kFirstSlots, kNone), mask_(kFirstSlots - 1), recent_(kNumRecent) {}

  const Region& operator[](uint32_t number) const { return regions_[number]; }
  uint32_t size() const { return size_.load(std::memory_order_relaxed); }

  /// Says the number of a region that was found or added lately, by the numbers of the call; false if it was
  /// not.
  [[gnu::always_inline]] inline bool find_recent(const void* tensor, int64_t row, int64_t col, int64_t rows,
                                                 int64_t cols, uint32_t& number) const {
    const Recent& found = recent_.data()[place_of_recent(tensor, row, col, cols)];
    number = found.number;
    return found.tensor == tensor && found.row == row && found.col == col && found.rows == rows &&
           found.cols == cols;
  }
  /// \pre the region can be
  void make_recent(const void* tensor, int64_t row, int64_t col, int64_t rows, int64_t cols,
                   uint32_t number) {
    recent_[place_of_recent(tensor, row, col, cols)] = {tensor,        row,           int32_t(col),
                                                        int32_t(rows), int32_t(cols), number};
  }
  /// The numbers of calls mean something else from now on.
  void forget_recent() { recent_.assign(kNumRecent, {}); }

  /// The number of a region, or kNone if it was never added.
  uint32_t find(const Region& region) const {
    for (size_t i = home_of(region);; i = (i + 1) & mask_) {
      const uint32_t number = slots_[i];
      if (number == kNone || regions_[number] == region) return number;
    }
  }

  /// Adds a region that is not there; returns its number. \pre size() < kMaxRegions
  uint32_t add(const Region& region) {
    const uint32_t number = size();
    if (2 * size_t(number) >= slots_.size()) grow();
    regions_.extend(number) = region;
    put(number);
    size_.store(number + 1, std::memory_order_relaxed);
    return number;
  }

  /// Drops all; memory stays warm for about as many.
  void clear() {
    const bool is_sparse = slots_.size() > 16 * std::max(size_t(size()), kFirstSlots);
    slots_.assign(is_sparse ? kFirstSlots : slots_.size(), kNone);
    mask_ = slots_.size() - 1;
    size_.store(0, std::memory_order_relaxed);
    forget_recent();
  }

  uint64_t num_bytes() const { return size() * (sizeof(Region) + 2 * sizeof(uint32_t)); }

 private:
  static constexpr size_t kFirstSlots = 1024;
  static constexpr uint64_t kChunk = 1 << 12;
  static constexpr int kRecentBits = 12;
  static constexpr size_t kNumRecent = size_t{1} << kRecentBits;
  static constexpr char kNoTensor = 0;  ///< no caller has its address

  /// A region as a call has named it.
  struct Recent {
    const void* tensor = &kNoTensor;
    int64_t row = 0;
    int32_t col = 0, rows = 0, cols = 0;
    uint32_t number = kNone;
  };
  static_assert(sizeof(Recent) == 32);

  static size_t place_of_recent(const void* tensor, int64_t row, int64_t col, int64_t cols) {
    const uint32_t first = uint32_t(uintptr_t(tensor) >> 2) + uint32_t(row) * uint32_t(cols) + uint32_t(col);
    return first * 0x9E3779B1u >> (32 - kRecentBits);
  }

  size_t home_of(const Region& region) const {
    return size_t((uint64_t(region.first) * 0x9E3779B97F4A7C15u) >> 24) & mask_;
  }

  void put(uint32_t number) {
    size_t i = home_of(regions_[number]);
    while (slots_[i] != kNone) i = (i + 1) & mask_;
    slots_[i] = number;
  }

  void grow() {
    slots_.assign(2 * slots_.size(), kNone);
    mask_ = slots_.size() - 1;
    for (uint32_t number = 0; number < size(); ++number) put(number);
  }

  sched::StableArray<Region, kChunk> regions_;
  std::vector<uint32_t> slots_;  ///< open addressing, by the first byte
  size_t mask_;
  std::vector<Recent> recent_;
  std::atomic<uint32_t> size_{0};
};

}  // namespace pto::wsp::capi
