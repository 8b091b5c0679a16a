// SPDX-License-Identifier: MIT
/// \file
/// The hazards of a space whose accesses lie on no common grid: exact boxes, found through coarse cells.
#pragma once

#include <vector>

#include "pto/wsp/graph/cell_grid.hpp"
#include "pto/wsp/graph/touch.hpp"

namespace pto::wsp::graph {

/// Keeps the live accesses in lists, one per coarse cell that they meet. An entry leaves when its task is
/// complete or a later access covers it. A list that gets long all the same is folded into two watermarks, so
/// that no access meets many entries, however many tasks are alive.
class BoxMap {
 public:
  /// `typical[d]` is the usual extent of an access in dimension d: the size of the coarse cells.
  BoxMap(int rank, const int64_t* size, const int64_t* typical)
      : rank_(rank), grid_(rank, size, typical, kMaxCells) {}

  void access(const Box& box, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    if (is_empty(box, rank_)) return;
    const uint32_t self = make_entry(box, how, stamp);
    const bool writes = how != Touch::kRead;
    for (const auto& layer : grid_.layers()) {
      Lists& lists = layer->content;
      if (layer->grid.count(box) > kMaxVisits) {
        wait_for_all(lists, writes, waits);
      } else {
        layer->grid.for_cells(box, [&](int64_t cell) { scan(lists.of_cell[size_t(cell)], self, waits); });
      }
    }
    auto& own = grid_.layer_of(box);
    own.grid.for_cells(box, [&](int64_t cell) { add(own.content.of_cell[size_t(cell)], self, stamp); });
    (writes ? own.content.last_write : own.content.last_read) = stamp.watermark;
  }

  /// Adds what an access would have to wait for.
  void find(const Box& box, bool writes, sched::WaitList& waits) const {
    if (is_empty(box, rank_)) return;
    for (const auto& layer : grid_.layers()) {
      const Lists& lists = layer->content;
      const bool is_past = waits.has_passed(sched::watermark_name(lists.last_write)) &&
                           (!writes || waits.has_passed(sched::watermark_name(lists.last_read)));
      if (is_past) continue;
      if (layer->grid.count(box) > kMaxVisits) {
        wait_for_all(lists, writes, waits);
      } else {
        layer->grid.for_cells(
            box, [&](int64_t cell) { find_in(lists.of_cell[size_t(cell)], box, writes, waits); });
      }
    }
  }

  /// Adds what writes the element at `indices`.
  void find_writers(const int64_t* indices, sched::WaitList& waits) const {
    for (const auto& layer : grid_.layers()) {
      const List& list = layer->content.of_cell[size_t(layer->grid.cell_at(indices))];
      waits.add_watermark(list.folded_write);
      for (const uint32_t index : list.entries) {
        const Entry& entry = entries_[index];
        if (!entry.is_dead && entry.how != Touch::kRead && contains(entry.box, indices, rank_))
          waits.add(entry.name);
      }
    }
  }

 private:
  static constexpr int64_t kMaxCells = 1 << 14;
  static constexpr int64_t kMaxVisits = 1024;
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

  /// The lists of a layer, and watermarks at which all that they ever held are complete.
  struct Lists {
    explicit Lists(int64_t num_cells) : of_cell(size_t(num_cells)) {}

    std::vector<List> of_cell;
    uint64_t last_write = 0;
    uint64_t last_read = 0;
  };

  /// Instead of a visit to very many cells.
  static void wait_for_all(const Lists& lists, bool writes, sched::WaitList& waits) {
    waits.add_watermark(lists.last_write);
    if (writes) waits.add_watermark(lists.last_read);
  }

  void find_in(const List& list, const Box& box, bool writes, sched::WaitList& waits) const {
    waits.add_watermark(list.folded_write);
    if (writes) waits.add_watermark(list.folded_read);
    for (const uint32_t index : list.entries) {
      const Entry& other = entries_[index];
      const bool is_met = !other.is_dead && (writes || other.how != Touch::kRead);
      if (is_met && intersects(other.box, box, rank_)) waits.add(other.name);
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
    if (!intersects(other.box, self.box, rank_)) return;
    const bool is_read = other.how == Touch::kRead;
    if (self.how != Touch::kRead || !is_read) waits.add(other.name);
    // A covering write orders everything later after `other`; a covering read does so for reads of its
    // strand.
    const bool replaces =
        self.how == Touch::kWrite || (self.how == Touch::kRead && is_read && waits.is_own(other.name));
    other.is_dead = replaces && covers(self.box, other.box, rank_);
  }

  int rank_;
  LayeredGrid<Lists> grid_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
};

}  // namespace pto::wsp::graph
