// SPDX-License-Identifier: MIT
/// \file
/// The hazards of a space whose accesses lie on no common grid: exact boxes, found through coarse cells.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/graph/cell_pyramid.hpp"
#include "pto/wsp/graph/touch.hpp"

namespace pto::wsp::graph {

/// Keeps the live accesses in lists, one per coarse cell that they meet. An entry leaves when its task is
/// complete or a later access covers it. Marks represent the rest of what is alive where that is much: the
/// older entries of a long list, and the accesses to many cells. So no access meets many entries, however
/// many tasks are alive, and tasks that touch parts cost the same beside tasks that touch the whole.
class BoxMap {
 public:
  /// `typical[d]` is the usual extent of an access in dimension d: the size of the coarse cells.
  BoxMap(int rank, const int64_t* size, const int64_t* typical)
      : rank_(rank), grid_(rank, size, typical, kMaxCells) {}

  void access(const Box& box, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    if (is_empty(box, rank_)) return;
    auto& own = grid_.layer_of(box);
    Look look{box, how != Touch::kRead, how == Touch::kWrite, waits};
    if (!waits.is_muted()) {
      for (const auto& layer : grid_.layers()) {
        if (layer.get() != &own || !look.for_write) look_at(*layer, look);
      }
    }
    const uint32_t self = make_entry(box, stamp);
    const CellRange range = own.grid.range_of(box);
    for_points(rank_, range.lo, range.hi, [&](const int64_t* at) {
      List& list = own.content.of_cell[size_t(own.grid.cell_of(at))];
      // A write replaces what it covers, which keeps lists short.
      if (look.for_write) look_at(list, look);
      add(look.for_write ? list.writes : list.reads, self, waits);
      own.content.pyramid.add(at, look.for_write, stamp.watermark, waits);
    });
  }

  /// Adds what an access would have to wait for.
  void find(const Box& box, bool writes, sched::WaitList& waits) {
    if (is_empty(box, rank_)) return;
    Look look{box, writes, false, waits};
    for (const auto& layer : grid_.layers()) look_at(*layer, look);
  }

  /// Adds what writes the element at `indices`.
  void find_writers(const int64_t* indices, sched::WaitList& waits) const {
    for (const auto& layer : grid_.layers()) {
      const Side& writes = layer->content.of_cell[size_t(layer->grid.cell_at(indices))].writes;
      waits.add_watermark(writes.folded.for_strand(waits));
      for (const uint32_t index : writes.entries) {
        const Entry& entry = entries_[index];
        if (!entry.is_dead && contains(entry.box, indices, rank_)) waits.add(entry.name);
      }
    }
  }

  /// How many entries and groups of cells were looked at: what the accesses have cost.
  uint64_t num_probes() const { return num_probes_; }

 private:
  static constexpr int64_t kMaxCells = 1 << 14;
  static constexpr int64_t kFewCells = 8;  ///< are visited one by one
  static constexpr size_t kMaxEntries = 64;
  static constexpr int kMaxFound = sched::WaitList::kMaxWaits;  ///< in one list
  static constexpr int kMaxMet = 32;                            ///< live entries in all cells of one layer

  struct Entry {
    Box box;
    sched::Name name;
    uint32_t num_lists;
    bool is_dead;
  };

  /// Entries of one kind in program order, and what was folded.
  struct Side {
    std::vector<uint32_t> entries;
    Mark folded;
  };

  struct List {
    Side writes, reads;
  };

  struct Layer {
    explicit Layer(const CellGrid& grid) : of_cell(size_t(grid.num_cells())), pyramid(grid) {}

    std::vector<List> of_cell;
    CellPyramid pyramid;
  };
  using Layers = LayeredGrid<Layer>;

  /// An access whose conflicts are looked up.
  struct Look {
    const Box& box;
    bool for_write;
    bool replaces;  ///< what it covers: later accesses that conflict with that conflict with this one
    sched::WaitList& waits;
    int num_met = 0;
  };

  void look_at(Layers::Layer& layer, Look& look) {
    CellPyramid& pyramid = layer.content.pyramid;
    if (pyramid.root().are_past(look.for_write, look.waits)) return;
    const CellRange range = layer.grid.range_of(look.box);
    look.num_met = 0;
    const auto visit = [&](const int64_t* at) {
      return look_at(layer.content.of_cell[size_t(layer.grid.cell_of(at))], look);
    };
    if (range.count <= kFewCells) return for_points(rank_, range.lo, range.hi, visit);
    num_probes_ +=
        pyramid.look(range, look.for_write, look.waits, visit, [&] { return look.num_met < kMaxMet; });
  }

  /// Whether nothing in the list is alive that the look is for.
  bool look_at(List& list, Look& look) {
    const bool has_writes = look_at(list.writes, look);
    return (!look.for_write || !look_at(list.reads, look)) && !has_writes;
  }

  /// Adds the latest entries that conflict, and one moment for the others if they are many. Drops entries
  /// that no later access need meet. True if something is alive.
  bool look_at(Side& side, Look& look) {
    look.waits.add_watermark(side.folded.for_strand(look.waits));
    int num_found = 0;
    bool has_dead = false;
    size_t at = side.entries.size();
    while (at > 0 && num_found < kMaxFound) {
      Entry& other = entries_[side.entries[--at]];
      if (meet(other, look) && !look.waits.is_own(other.name)) ++num_found;
      has_dead = has_dead || other.is_dead;
    }
    num_probes_ += side.entries.size() - at;
    if (at > 0) look.waits.add_watermark(watermark_of(entries_[side.entries[at - 1]]));
    if (has_dead) drop_dead(side, at);
    look.num_met += int(side.entries.size() - at);
    return !side.entries.empty() || !side.folded.has_passed(look.waits);
  }

  /// Whether an entry is alive and conflicts.
  bool meet(Entry& other, Look& look) const {
    other.is_dead = other.is_dead || look.waits.has_passed(other.name);
    if (other.is_dead || !intersects(other.box, look.box, rank_)) return false;
    look.waits.add(other.name);
    other.is_dead = look.replaces && covers(look.box, other.box, rank_);
    return true;
  }

  static uint64_t watermark_of(const Entry& entry) { return sched::slice_of(entry.name) + 1; }

  uint32_t make_entry(const Box& box, const sched::Stamp& stamp) {
    if (free_.empty()) {
      free_.push_back(uint32_t(entries_.size()));
      entries_.emplace_back();
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    entries_[index] = {box, stamp.name, 0, false};
    return index;
  }

  void add(Side& side, uint32_t self, const sched::WaitList& waits) {
    if (!side.entries.empty() && is_followed(entries_[side.entries.back()], entries_[self], waits)) {
      release(side.entries.back());
      side.entries.pop_back();
    }
    if (side.entries.size() == kMaxEntries) shorten(side, self, waits);
    side.entries.push_back(self);
    ++entries_[self].num_lists;
  }

  /// Whether an access of the same kind and strand follows an entry and covers it.
  bool is_followed(const Entry& entry, const Entry& next, const sched::WaitList& waits) const {
    return waits.is_own(entry.name) && covers(next.box, entry.box, rank_);
  }

  /// Drops entries that no later access need meet. If that is not half of them, folds the older half.
  void shorten(Side& side, uint32_t self, const sched::WaitList& waits) {
    for (const uint32_t index : side.entries) {
      Entry& entry = entries_[index];
      entry.is_dead =
          entry.is_dead || waits.has_passed(entry.name) || is_followed(entry, entries_[self], waits);
    }
    drop_dead(side, 0);
    for (size_t i = 0; i + kMaxEntries / 2 < side.entries.size(); ++i) {
      Entry& entry = entries_[side.entries[i]];
      side.folded.add(watermark_of(entry), waits);
    }
    if (side.entries.size() <= kMaxEntries / 2) return;
    const auto end = side.entries.end() - kMaxEntries / 2;
    std::for_each(side.entries.begin(), end, [this](uint32_t index) { release(index); });
    side.entries.erase(side.entries.begin(), end);
  }

  /// Of the entries from number `first` on.
  void drop_dead(Side& side, size_t first) {
    const auto is_dead = [this](uint32_t index) {
      if (entries_[index].is_dead) release(index);
      return entries_[index].is_dead;
    };
    side.entries.erase(std::remove_if(side.entries.begin() + ptrdiff_t(first), side.entries.end(), is_dead),
                       side.entries.end());
  }

  void release(uint32_t index) {
    if (--entries_[index].num_lists == 0) free_.push_back(index);
  }

  int rank_;
  Layers grid_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;
  uint64_t num_probes_ = 0;
};

}  // namespace pto::wsp::graph
