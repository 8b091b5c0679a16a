// SPDX-License-Identifier: MIT
/// \file
/// Finds the waits of an access to many cells of a grid without visiting each cell.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/graph/cell_grid.hpp"
#include "pto/wsp/graph/folded_accesses.hpp"

namespace pto::wsp::graph {

/// AccessMarks of groups of about 16 neighbouring cells, of groups of such groups, and so on up to one root.
class CellPyramid {
 public:
  explicit CellPyramid(const CellGrid& grid) : rank_(grid.rank()) {
    int num_divided = 0;
    for (int d = 0; d < rank_; ++d) num_divided += grid.num_cells(d) > 1;
    shift_ = std::max(4 / std::max(num_divided, 1), 1);
    Level cells;
    for (int d = 0; d < rank_; ++d) cells.size[d] = grid.num_cells(d);
    levels_.push_back(std::move(cells));
    do {
      levels_.push_back(level_above(levels_.back()));
    } while (levels_.back().marks.size() > 1);
  }

  const AccessMarks& root() const { return levels_.back().marks[0]; }

  /// Adds an access to the cell at `at`.
  void add(const int64_t* at, bool writes, uint64_t watermark, const sched::WaitList& waits) {
    for (size_t level = 1; level < levels_.size(); ++level) {
      AccessMarks& marks = levels_[level].marks[index(level, at, int(level) * shift_)];
      (writes ? marks.writes : marks.reads).add_latest(watermark, waits);
    }
  }

  /// Adds the waits of an access to `range`. While `has_budget()`, calls `visit(at)` for cells of the range
  /// that may have live entries. Without budget, it adds marks of groups, which order more than necessary.
  /// `visit` returns whether the cell has no live entry; groups of such cells are not visited again. Returns
  /// the number of visited groups.
  template <class Visit, class HasBudget>
  uint64_t look(const CellRange& range, bool for_write, sched::WaitList& waits, Visit visit,
                HasBudget has_budget) {
    Look<Visit, HasBudget> look{range, for_write, waits, visit, has_budget};
    const int64_t root[kMaxTensorRank] = {};
    descend(levels_.size() - 1, root, look);
    return look.num_groups;
  }

 private:
  /// The groups of one level. The lowest level, the cells, has no marks of its own.
  struct Level {
    int64_t size[kMaxTensorRank];
    std::vector<AccessMarks> marks;
  };

  template <class Visit, class HasBudget>
  struct Look {
    const CellRange& range;
    bool for_write;
    sched::WaitList& waits;
    Visit& visit;
    HasBudget& has_budget;
    uint64_t num_groups = 0;
  };

  Level level_above(const Level& below) const {
    Level level;
    int64_t count = 1;
    for (int d = 0; d < rank_; ++d) {
      level.size[d] = ((below.size[d] - 1) >> shift_) + 1;
      count *= level.size[d];
    }
    level.marks.resize(size_t(count));
    return level;
  }

  /// The group above the point `at`, which is `shift` halvings below the level.
  size_t index(size_t level, const int64_t* at, int shift) const {
    int64_t index = 0;
    for (int d = 0; d < rank_; ++d) index = index * levels_[level].size[d] + (at[d] >> shift);
    return size_t(index);
  }

  /// Visits one group. Returns whether it has no live entry.
  template <class Look>
  bool descend(size_t level, const int64_t* at, Look& look) {
    AccessMarks& marks = levels_[level].marks[index(level, at, 0)];
    ++look.num_groups;
    if (marks.writes.has_passed(look.waits) && (!look.for_write || marks.reads.has_passed(look.waits)))
      return true;
    if (marks.are_past(look.for_write, look.waits)) return false;
    if (!look.has_budget()) {
      marks.wait(look.for_write, look.waits);
      return false;
    }
    CellRange inside;
    bool is_empty = clip(level - 1, at, look.range, inside), is_cut = false;
    for_points(rank_, inside.lo, inside.hi, [&](const int64_t* child) {
      is_cut = level == 1 && !look.has_budget();
      is_empty = !is_cut && (level == 1 ? look.visit(child) : descend(level - 1, child, look)) && is_empty;
    });
    if (is_cut) marks.wait(look.for_write, look.waits);
    if (is_empty) marks.writes = {};
    if (is_empty && look.for_write) marks.reads = {};
    return is_empty;
  }

  /// Finds the points of a level in the group `at` above it that intersect a range of cells. Returns whether
  /// these are all points of the group.
  bool clip(size_t level, const int64_t* at, const CellRange& range, CellRange& inside) const {
    const int shift = int(level) * shift_;
    bool is_all = true;
    for (int d = 0; d < rank_; ++d) {
      const int64_t first = at[d] << shift_;
      const int64_t last = std::min(first + (int64_t{1} << shift_), levels_[level].size[d]) - 1;
      inside.lo[d] = std::max(first, range.lo[d] >> shift);
      inside.hi[d] = std::min(last, range.hi[d] >> shift);
      is_all = is_all && inside.lo[d] == first && inside.hi[d] == last;
    }
    return is_all;
  }

  int rank_;
  int shift_;
  std::vector<Level> levels_;  ///< the cells first
};

}  // namespace pto::wsp::graph
