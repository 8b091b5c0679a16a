// SPDX-License-Identifier: MIT
/// \file
/// The hazards of a space whose accesses lie on one grid: an entry of 16 bytes per cell.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "pto/wsp/graph/grid.hpp"
#include "pto/wsp/graph/range_tree.hpp"
#include "pto/wsp/sched/counters.hpp"

namespace pto::wsp::graph {

/// A region on a grid: `extent[d]` cells from linear cell `first`. Dimensions of one cell are left out.
struct CellBox {
  int64_t first = 0;
  int num_dims = 0;
  int64_t extent[kMaxTensorRank];
  int64_t stride[kMaxTensorRank];
};

class DenseMap {
 public:
  explicit DenseMap(const Grid& grid)
      : entries_(static_cast<Entry*>(std::calloc(size_t(grid.num_cells), sizeof(Entry)))) {
    if (entries_ == nullptr) throw std::bad_alloc();
    if (grid.is_wide) tree_ = std::make_unique<RangeTree>(grid.num_cells);
  }

  void access(const CellBox& box, bool writes, const sched::Stamp& stamp, sched::WaitList& waits) {
    if (box.num_dims == 0) return touch(box.first, writes, stamp, waits);
    for_runs(box, 0, box.first, writes, stamp, waits);
  }

  /// Adds what writes a cell.
  void find_writers(int64_t cell, sched::WaitList& waits) const {
    waits.add(entries_.get()[cell].writer);
    if (tree_) tree_->find_writers(cell, waits);
  }

 private:
  /// Names of the last writer and of the readers since. A second live reader from another strand turns
  /// `reader` into a watermark that stands for all of them.
  struct Entry {
    sched::Name writer;
    sched::Name reader;
  };

  struct Free {
    void operator()(Entry* entries) const { std::free(entries); }
  };

  void for_runs(const CellBox& box, int dim, int64_t cell, bool writes, const sched::Stamp& stamp,
                sched::WaitList& waits) {
    if (dim + 1 == box.num_dims && box.stride[dim] == 1) {
      return touch_run(cell, cell + box.extent[dim], writes, stamp, waits);
    }
    for (int64_t i = 0; i < box.extent[dim]; ++i, cell += box.stride[dim]) {
      if (dim + 1 == box.num_dims) {
        touch(cell, writes, stamp, waits);
      } else {
        for_runs(box, dim + 1, cell, writes, stamp, waits);
      }
    }
  }

  void touch_run(int64_t first, int64_t last, bool writes, const sched::Stamp& stamp,
                 sched::WaitList& waits) {
    if (first >= last) return;
    if (last - first > kWideCells) {
      const auto leaf = [&](int64_t cell) { touch_entry(entries_.get()[cell], writes, stamp, waits); };
      return tree_->touch_range(first, last, writes, stamp, waits, leaf);
    }
    for (; first < last; ++first) touch(first, writes, stamp, waits);
  }

  void touch(int64_t cell, bool writes, const sched::Stamp& stamp, sched::WaitList& waits) {
    touch_entry(entries_.get()[cell], writes, stamp, waits);
    if (tree_) tree_->touch_cell(cell, writes, stamp, waits);
  }

  static void touch_entry(Entry& entry, bool writes, const sched::Stamp& stamp, sched::WaitList& waits) {
    waits.add(entry.writer);
    if (writes) {
      waits.add(entry.reader);
      entry = {stamp.name, 0};
    } else if (waits.is_own(entry.reader) || waits.has_passed(entry.reader)) {
      entry.reader = stamp.name;
    } else {
      entry.reader = sched::make_name(sched::kWatermark, stamp.watermark);
    }
  }

  // From calloc: pages that no access touches cost nothing.
  std::unique_ptr<Entry[], Free> entries_;
  std::unique_ptr<RangeTree> tree_;
};

}  // namespace pto::wsp::graph
