// SPDX-License-Identifier: MIT
/// \file
/// The hazards of a space whose accesses lie on no common grid: exact boxes, found through coarse cells.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/bytecode/format.hpp"
#include "pto/wsp/graph/touch.hpp"

namespace pto::wsp::graph {

/// A region in elements: [lo, hi) per dimension.
struct Box {
  int64_t lo[kMaxTensorRank];
  int64_t hi[kMaxTensorRank];
};

/// Keeps the live accesses in lists, one list per coarse cell they meet. An entry leaves when its task is
/// complete or a later access covers it, so lists stay as short as the number of live tasks around the cell.
class BoxMap {
 public:
  /// `typical[d]` is the usual extent of an access in dimension d: the size of the coarse cells.
  BoxMap(int rank, const int64_t* size, const int64_t* typical) : rank_(rank) {
    int64_t num_cells = 1;
    for (int d = rank_; d-- > 0;) {
      const int64_t most = std::max<int64_t>(kMaxCells / num_cells, 1);
      const int64_t finest = (size[d] + most - 1) / most;
      step_[d] = std::max({typical[d], finest, int64_t{1}});
      cells_[d] = std::max<int64_t>((size[d] + step_[d] - 1) / step_[d], 1);
      num_cells *= cells_[d];
    }
    lists_.resize(size_t(num_cells));
  }

  void access(const Box& box, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    const bool writes = how != Touch::kRead;
    int64_t count = 1;
    CellRange cells;
    for (int d = 0; d < rank_; ++d) {
      if (box.lo[d] >= box.hi[d]) return;
      cells.lo[d] = box.lo[d] / step_[d];
      cells.hi[d] = (box.hi[d] - 1) / step_[d] + 1;
      count *= cells.hi[d] - cells.lo[d];
    }
    const uint32_t self = make_entry(box, how, stamp);
    scan(wide_, self, waits);
    if (count > kWide) {
      wide_.push_back(self);
      entries_[self].num_lists = 1;
      wait_for_all(writes, waits);
    } else {
      entries_[self].num_lists = uint32_t(count);
      for_cells(cells, [&](std::vector<uint32_t>& list) {
        scan(list, self, waits);
        list.push_back(self);
      });
    }
    (writes ? last_write_ : last_read_) = stamp.watermark;
  }

  /// Adds what writes the element at `indices`.
  void find_writers(const int64_t* indices, sched::WaitList& waits) const {
    int64_t cell = 0;
    for (int d = 0; d < rank_; ++d) cell = cell * cells_[d] + indices[d] / step_[d];
    for (const std::vector<uint32_t>* list : {&lists_[size_t(cell)], &wide_}) {
      for (const uint32_t index : *list) {
        const Entry& entry = entries_[index];
        if (!entry.is_dead && entry.writes() && contains(entry.box, indices)) waits.add(entry.name);
      }
    }
  }

 private:
  static constexpr int64_t kMaxCells = 1 << 16;
  static constexpr int64_t kWide = 64;

  struct CellRange {
    int64_t lo[kMaxTensorRank];
    int64_t hi[kMaxTensorRank];
  };

  struct Entry {
    Box box;
    sched::Name name;
    uint32_t num_lists;
    Touch how;
    bool is_dead;
    bool writes() const { return how != Touch::kRead; }
  };

  uint32_t make_entry(const Box& box, Touch how, const sched::Stamp& stamp) {
    if (free_.empty()) {
      free_.push_back(uint32_t(entries_.size()));
      entries_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    entries_[index] = {box, stamp.name, 0, how, false};
    return index;
  }

  /// An access over very many cells waits for the whole tensor instead of visiting them.
  void wait_for_all(bool writes, sched::WaitList& waits) const {
    waits.add_watermark(last_write_);
    if (writes) waits.add_watermark(last_read_);
  }

  /// Finds what access `self` conflicts with in a list, and drops entries that no later access need meet.
  void scan(std::vector<uint32_t>& list, uint32_t self, sched::WaitList& waits) {
    size_t kept = 0;
    for (const uint32_t index : list) {
      Entry& other = entries_[index];
      if (!other.is_dead) meet(other, entries_[self], waits);
      if (other.is_dead) {
        if (--other.num_lists == 0) free_.push_back(index);
      } else {
        list[kept++] = index;
      }
    }
    list.resize(kept);
  }

  void meet(Entry& other, const Entry& self, sched::WaitList& waits) const {
    if (waits.has_passed(other.name)) {
      other.is_dead = true;
      return;
    }
    if (!intersects(other.box, self.box)) return;
    if (self.writes() || other.writes()) waits.add(other.name);
    // A covering write orders everything after it behind `other`; a covering read does so for reads of its
    // strand.
    const bool replaces = self.how == Touch::kWrite ||
                          (self.how == Touch::kRead && !other.writes() && waits.is_own(other.name));
    other.is_dead = replaces && covers(self.box, other.box);
  }

  bool intersects(const Box& a, const Box& b) const {
    for (int d = 0; d < rank_; ++d) {
      if (a.lo[d] >= b.hi[d] || b.lo[d] >= a.hi[d]) return false;
    }
    return true;
  }

  bool contains(const Box& box, const int64_t* indices) const {
    for (int d = 0; d < rank_; ++d) {
      if (indices[d] < box.lo[d] || indices[d] >= box.hi[d]) return false;
    }
    return true;
  }

  bool covers(const Box& outer, const Box& inner) const {
    for (int d = 0; d < rank_; ++d) {
      if (inner.lo[d] < outer.lo[d] || inner.hi[d] > outer.hi[d]) return false;
    }
    return true;
  }

  template <class Visit>
  void for_cells(const CellRange& cells, Visit visit) {
    int64_t at[kMaxTensorRank];
    std::copy(cells.lo, cells.lo + rank_, at);
    for (;;) {
      int64_t linear = 0;
      for (int d = 0; d < rank_; ++d) linear = linear * cells_[d] + at[d];
      visit(lists_[size_t(linear)]);
      int d = rank_ - 1;
      while (d >= 0 && ++at[d] == cells.hi[d]) {
        at[d] = cells.lo[d];
        --d;
      }
      if (d < 0) return;
    }
  }

  int rank_;
  int64_t step_[kMaxTensorRank];
  int64_t cells_[kMaxTensorRank];
  std::vector<std::vector<uint32_t>> lists_;
  std::vector<uint32_t> wide_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  uint64_t last_write_ = 0;
  uint64_t last_read_ = 0;
};

}  // namespace pto::wsp::graph
