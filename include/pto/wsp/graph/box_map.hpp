// SPDX-License-Identifier: MIT
/// \file
/// Hazards of a space whose accesses share no grid: exact boxes, found through coarse cells.
#pragma once

#include <utility>
#include <vector>

#include "pto/wsp/graph/box_lists.hpp"
#include "pto/wsp/graph/cell_pyramid.hpp"
#include "pto/wsp/graph/touch.hpp"

namespace pto::wsp::graph {

/// Each coarse cell has a list of the live accesses that intersect it. An entry leaves the list when its task
/// is complete or a later access covers it. Marks summarise the older entries of a long list and the accesses
/// to many cells. So an access visits a bounded number of entries for any number of live tasks.
class BoxMap {
 public:
  /// `typical[d]` is the usual extent of an access in dimension d: the size of the coarse cells.
  BoxMap(int rank, const int64_t* size, const int64_t* typical)
      : rank_(rank), grid_(rank, size, typical, kMaxCells), lists_(rank) {}

  void access(const Box& box, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    if (is_empty(box, rank_)) return;
    auto& own = grid_.layer_of(box);
    Look look{box, how != Touch::kRead, how == Touch::kWrite, waits};
    if (!waits.is_muted()) {
      for (const auto& layer : grid_.layers()) {
        if (layer.get() != &own || !look.for_write) look_at(*layer, look);
      }
    }
    const CellRange range = own.grid.range_of(box);
    for_points(rank_, range.lo, range.hi, [&](const int64_t* at) {
      Cell& cell = own.content.cells[size_t(own.grid.cell_of(at))];
      // A write replaces what it covers, which keeps lists short.
      if (look.for_write) look_at(cell, look);
      add(look.for_write ? cell.writes : cell.reads, box, stamp.name, waits);
      own.content.pyramid.add(at, look.for_write, stamp.watermark, waits);
    });
  }

  /// Adds the waits of an access.
  void find(const Box& box, bool writes, sched::WaitList& waits) {
    if (is_empty(box, rank_)) return;
    Look look{box, writes, false, waits};
    for (const auto& layer : grid_.layers()) look_at(*layer, look);
  }

  /// Adds the writers of the element at `indices`.
  void find_writers(const int64_t* indices, sched::WaitList& waits) const {
    for (const auto& layer : grid_.layers()) {
      const Side& writes = layer->content.cells[size_t(layer->grid.cell_at(indices))].writes;
      waits.add_watermark(writes.folded.for_strand(waits));
      lists_.for_entries(writes.list, [&](const BoxLists::Entry& entry) {
        if (contains(entry, indices, rank_)) waits.add(entry.name);
      });
    }
  }

  /// The number of visited entries and groups of cells: the cost of the accesses.
  uint64_t num_probes() const { return num_probes_; }

 private:
  using Next = BoxLists::Next;

  static constexpr int64_t kMaxCells = 1 << 14;
  static constexpr int64_t kFewCells = 8;  ///< boxes of at most this many cells visit them one by one
  static constexpr uint32_t kMaxEntries = 64;
  static constexpr int kMaxFound = sched::WaitList::kMaxWaits;  ///< in one list
  static constexpr uint32_t kMaxMet = 32;                       ///< live entries in all cells of one layer

  /// Accesses of one kind to a cell, and the mark of older ones.
  struct Side {
    BoxLists::List list;
    FoldedAccesses folded;
  };

  struct Cell {
    Side writes, reads;
  };

  struct Layer {
    explicit Layer(const CellGrid& grid) : cells(size_t(grid.num_cells())), pyramid(grid) {}

    std::vector<Cell> cells;
    CellPyramid pyramid;
  };
  using Layers = LayeredGrid<Layer>;

  /// An access and its lookup.
  struct Look {
    const Box& box;
    bool for_write;
    bool replaces;  ///< entries that it covers: it conflicts with every later access that conflicts with them
    sched::WaitList& waits;
    uint32_t num_met = 0;
  };

  void look_at(Layers::Layer& layer, Look& look) {
    CellPyramid& pyramid = layer.content.pyramid;
    if (pyramid.root().are_past(look.for_write, look.waits)) return;
    const CellRange range = layer.grid.range_of(look.box);
    look.num_met = 0;
    const auto visit = [&](const int64_t* at) {
      return look_at(layer.content.cells[size_t(layer.grid.cell_of(at))], look);
    };
    if (range.count <= kFewCells) return for_points(rank_, range.lo, range.hi, visit);
    num_probes_ +=
        pyramid.look(range, look.for_write, look.waits, visit, [&] { return look.num_met < kMaxMet; });
  }

  /// Returns whether the cell has no live entry for the lookup.
  bool look_at(Cell& cell, Look& look) {
    const bool has_writes = look_at(cell.writes, look);
    return (!look.for_write || !look_at(cell.reads, look)) && !has_writes;
  }

  /// Adds the latest conflicting entries, and one watermark for the others if they are many. Drops entries
  /// that no later access needs. Returns whether an entry is alive.
  bool look_at(Side& side, Look& look) {
    look.waits.add_watermark(side.folded.for_strand(look.waits));
    int num_found = 0;
    num_probes_ += lists_.scan(side.list, [&](const BoxLists::Entry& entry) {
      if (num_found == kMaxFound) {
        look.waits.add_watermark(watermark_of(entry.name));
        return Next::kStop;
      }
      if (look.waits.has_passed(entry.name)) return Next::kDrop;
      ++look.num_met;
      if (!intersects(entry, look.box, rank_)) return Next::kKeep;
      look.waits.add(entry.name);
      if (!look.waits.is_own(entry.name)) ++num_found;
      return look.replaces && covers(look.box, entry, rank_) ? Next::kDrop : Next::kKeep;
    });
    return side.list.size > 0 || !side.folded.has_passed(look.waits);
  }

  static uint64_t watermark_of(sched::Name name) { return sched::slice_of(name) + 1; }

  void add(Side& side, const Box& box, sched::Name name, const sched::WaitList& waits) {
    const auto is_followed = [&](const BoxLists::Entry& entry) {
      return waits.is_own(entry.name) && covers(box, entry, rank_);
    };
    // A task in a loop may repeat its access.
    lists_.scan(side.list, [&, is_first = true](const BoxLists::Entry& entry) mutable {
      return std::exchange(is_first, false) && is_followed(entry) ? Next::kDrop : Next::kStop;
    });
    if (side.list.size == kMaxEntries) shorten(side, waits, is_followed);
    lists_.push(side.list, box, name);
  }

  /// Drops entries that no later access needs. Keeps the latest half of the others.
  template <class IsFollowed>
  void shorten(Side& side, const sched::WaitList& waits, IsFollowed is_followed) {
    uint32_t num_kept = 0;
    lists_.scan(side.list, [&](const BoxLists::Entry& entry) {
      if (waits.has_passed(entry.name) || is_followed(entry)) return Next::kDrop;
      if (num_kept++ < kMaxEntries / 2) return Next::kKeep;
      side.folded.add(watermark_of(entry.name), waits);
      return Next::kDrop;
    });
  }

  int rank_;
  Layers grid_;
  BoxLists lists_;
  uint64_t num_probes_ = 0;
};

}  // namespace pto::wsp::graph
