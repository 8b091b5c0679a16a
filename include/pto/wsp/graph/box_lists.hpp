// SPDX-License-Identifier: MIT
/// \file
/// Lists of named boxes in one pool of memory.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/graph/cell_grid.hpp"
#include "pto/wsp/graph/touch.hpp"

namespace pto::wsp::graph {

/// A list has the latest entry first. An entry has only the words of its rank, so that it usually fits one
/// cache line. Cache lines limit the speed of maps with many cells.
class BoxLists {
 public:
  struct List {
    uint32_t first = 0;
    uint32_t size = 0;
  };

  struct Entry {
    sched::Name name;
    const int64_t* lo;
    const int64_t* hi;
  };

  /// What happens to a visited entry.
  enum class Next : uint8_t { kKeep, kDrop, kStop };

  explicit BoxLists(int rank) : rank_(rank), words_(size_t(words_per_entry())) {}

  void push(List& list, const Box& box, sched::Name name) {
    const uint32_t entry = take();
    int64_t* const words = words_of(entry);
    words[kName] = int64_t(name);
    words[kLink] = list.first;
    std::copy(box.lo, box.lo + rank_, words + kBox);
    std::copy(box.hi, box.hi + rank_, words + kBox + rank_);
    list.first = entry;
    ++list.size;
  }

  /// Calls `visit(entry)` for the entries until it returns kStop. That entry and those after it are kept.
  /// Returns how many were visited. `visit` adds no entries.
  template <class Visit>
  uint32_t scan(List& list, Visit visit) {
    uint32_t num_visited = 0, previous = 0;
    for (uint32_t at = list.first; at != 0;) {
      int64_t* const words = words_of(at);
      const auto after = uint32_t(words[kLink]);
      ++num_visited;
      const Next next = visit(entry_at(at));
      if (next == Next::kStop) break;
      if (next == Next::kDrop) {
        if (previous == 0) list.first = after;
        if (previous != 0) words_of(previous)[kLink] = after;
        words[kLink] = free_;
        free_ = at;
        --list.size;
      } else {
        previous = at;
      }
      at = after;
    }
    return num_visited;
  }

  /// Calls `visit(entry)` for all entries.
  template <class Visit>
  void for_entries(const List& list, Visit visit) const {
    for (uint32_t at = list.first; at != 0; at = uint32_t(words_of(at)[kLink])) visit(entry_at(at));
  }

 private:
  static constexpr size_t kName = 0, kLink = 1, kBox = 2;

  size_t words_per_entry() const { return kBox + 2 * size_t(rank_); }
  int64_t* words_of(uint32_t entry) { return words_.data() + entry * words_per_entry(); }
  const int64_t* words_of(uint32_t entry) const { return words_.data() + entry * words_per_entry(); }

  Entry entry_at(uint32_t entry) const {
    const int64_t* const words = words_of(entry);
    return {sched::Name(words[kName]), words + kBox, words + kBox + rank_};
  }

  /// Number 0 is the end of a list.
  uint32_t take() {
    if (free_ == 0) {
      words_.resize(words_.size() + words_per_entry());
      return uint32_t(words_.size() / words_per_entry() - 1);
    }
    const uint32_t entry = free_;
    free_ = uint32_t(words_of(entry)[kLink]);
    return entry;
  }

  int rank_;
  std::vector<int64_t> words_;
  uint32_t free_ = 0;
};

}  // namespace pto::wsp::graph
