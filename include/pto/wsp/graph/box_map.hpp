// SPDX-License-Identifier: MIT
/// \file
/// The hazards of a space whose accesses lie on no common grid: exact boxes, found through coarse cells.
#pragma once

#include <vector>

#include "pto/wsp/graph/cell_grid.hpp"
#include "pto/wsp/graph/touch.hpp"

namespace pto::wsp::graph {

/// Keeps the live accesses in lists: one per coarse cell, for those that meet it, and one for accesses that
/// meet very many. An entry leaves when its task is complete or a later access covers it. A list that gets
/// long all the same is folded into two watermarks, so that no access meets many entries, however many tasks
/// are alive.
class BoxMap {
 public:
  /// `typical[d]` is the usual extent of an access in dimension d: the size of the coarse cells.
  BoxMap(int rank, const int64_t* size, const int64_t* typical)
      : grid_(rank, size, typical, kMaxCells), lists_(size_t(grid_.num_cells())) {}

  void access(const Box& box, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    if (grid_.is_empty(box)) return;
    const uint32_t self = make_entry(box, how, stamp);
    const bool writes = how != Touch::kRead;
    scan(wide_, self, waits);
    if (const int64_t count = grid_.count(box); count > kWide) {
      // Waiting for the whole tensor instead of visiting so many cells.
      waits.add_watermark(last_write_);
      if (writes) waits.add_watermark(last_read_);
      add(wide_, self, stamp);
    } else {
      grid_.for_cells(box, [&](int64_t cell) {
        scan(lists_[size_t(cell)], self, waits);
        add(lists_[size_t(cell)], self, stamp);
      });
    }
    (writes ? last_write_ : last_read_) = stamp.watermark;
  }

  /// Adds what an access would have to wait for.
  void find(const Box& box, bool writes, sched::WaitList& waits) const {
    const bool is_past = waits.has_passed(sched::watermark_name(last_write_)) &&
                         (!writes || waits.has_passed(sched::watermark_name(last_read_)));
    if (is_past || grid_.is_empty(box)) return;
    if (grid_.count(box) > kWide) {
      waits.add_watermark(last_write_);
      if (writes) waits.add_watermark(last_read_);
      return;
    }
    find_in(wide_, box, writes, waits);
    grid_.for_cells(box, [&](int64_t cell) { find_in(lists_[size_t(cell)], box, writes, waits); });
  }

  /// Adds what writes the element at `indices`.
  void find_writers(const int64_t* indices, sched::WaitList& waits) const {
    for (const List* list : {&lists_[size_t(grid_.cell_at(indices))], &wide_}) {
      waits.add_watermark(list->folded_write);
      for (const uint32_t index : list->entries) {
        const Entry& entry = entries_[index];
        if (!entry.is_dead && entry.how != Touch::kRead && grid_.contains(entry.box, indices))
          waits.add(entry.name);
      }
    }
  }

 private:
  static constexpr int64_t kMaxCells = 1 << 16;
  static constexpr int64_t kWide = 64;
  static constexpr size_t kMaxEntries = 64;

  struct Entry {
    Box box;
    sched::Name name;
    uint32_t num_lists;
    Touch how;
    bool is_dead;
  };

  /// Entries, and watermarks at which those that were folded are complete.
  struct List {
    std::vector<uint32_t> entries;
    uint64_t folded_write = 0;
    uint64_t folded_read = 0;
  };

  void find_in(const List& list, const Box& box, bool writes, sched::WaitList& waits) const {
    waits.add_watermark(list.folded_write);
    if (writes) waits.add_watermark(list.folded_read);
    for (const uint32_t index : list.entries) {
      const Entry& other = entries_[index];
      const bool is_met = !other.is_dead && (writes || other.how != Touch::kRead);
      if (is_met && grid_.intersects(other.box, box)) waits.add(other.name);
    }
  }

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

  void add(List& list, uint32_t self, const sched::Stamp& stamp) {
    if (list.entries.size() == kMaxEntries) fold(list, stamp);
    list.entries.push_back(self);
    ++entries_[self].num_lists;
  }

  /// What is in the list is complete when everything before this access is.
  void fold(List& list, const sched::Stamp& stamp) {
    for (const uint32_t index : list.entries) {
      (entries_[index].how == Touch::kRead ? list.folded_read : list.folded_write) = stamp.watermark;
      release(index);
    }
    list.entries.clear();
  }

  void release(uint32_t index) {
    if (--entries_[index].num_lists == 0) free_.push_back(index);
  }

  /// Finds what access `self` conflicts with in a list, and drops entries that no later access need meet.
  void scan(List& list, uint32_t self, sched::WaitList& waits) {
    waits.add_watermark(list.folded_write);
    if (entries_[self].how != Touch::kRead) waits.add_watermark(list.folded_read);
    size_t kept = 0;
    for (const uint32_t index : list.entries) {
      Entry& other = entries_[index];
      if (!other.is_dead) meet(other, entries_[self], waits);
      if (other.is_dead) {
        release(index);
      } else {
        list.entries[kept++] = index;
      }
    }
    list.entries.resize(kept);
  }

  void meet(Entry& other, const Entry& self, sched::WaitList& waits) const {
    if (waits.has_passed(other.name)) {
      other.is_dead = true;
      return;
    }
    if (!grid_.intersects(other.box, self.box)) return;
    const bool is_read = other.how == Touch::kRead;
    if (self.how != Touch::kRead || !is_read) waits.add(other.name);
    // A covering write orders everything after it behind `other`; a covering read does so for reads of its
    // strand.
    const bool replaces =
        self.how == Touch::kWrite || (self.how == Touch::kRead && is_read && waits.is_own(other.name));
    other.is_dead = replaces && grid_.covers(self.box, other.box);
  }

  CellGrid grid_;
  std::vector<List> lists_;
  List wide_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  uint64_t last_write_ = 0;
  uint64_t last_read_ = 0;
};

}  // namespace pto::wsp::graph
