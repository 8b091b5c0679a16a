// SPDX-License-Identifier: MIT
/// \file
/// Hazards of a space whose accesses lie on one grid: an entry of 16 bytes per cell.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "pto/wsp/graph/grid.hpp"
#include "pto/wsp/graph/range_tree.hpp"
#include "pto/wsp/graph/touch.hpp"

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

  void access(const CellBox& box, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    if (box.num_dims == 0) return access(box.first, how, stamp, waits);
    note(box, how, stamp, waits);
    for_runs(box, 0, box.first,
             [&](int64_t first, int64_t last) { touch_run(first, last, how, stamp, waits); });
  }

  /// An access to one cell.
  [[gnu::always_inline]] inline void access(int64_t cell, Touch how, const sched::Stamp& stamp,
                                            sched::WaitList& waits) {
    note({cell, 0, {}, {}}, how, stamp, waits);
    touch(cell, how, stamp, waits);
  }

  /// Adds the waits of an access.
  void find(const CellBox& box, bool writes, sched::WaitList& waits) const {
    const bool is_past = waits.has_passed(sched::watermark_name(last_write_)) &&
                         (!writes || waits.has_passed(sched::watermark_name(last_read_)));
    if (is_past) return;
    if (writes) wait_for_wide_reads(box, waits);
    for_runs(box, 0, box.first, [&](int64_t first, int64_t last) { find_run(first, last, writes, waits); });
  }

  /// A read of a box that may be as large as the tensor. Its waits are not found.
  void read_widely(const CellBox& box, const sched::Stamp& stamp, sched::WaitList& waits) {
    int64_t cells = 1;
    for (int d = 0; d < box.num_dims; ++d) cells *= box.extent[d];
    if (tree_ != nullptr || cells <= kWideCells) return access(box, Touch::kRead, stamp, waits);
    wide_reads_.first = std::min(wide_reads_.first, box.first);
    wide_reads_.last = std::max(wide_reads_.last, last_cell(box));
    wide_reads_.watermark = last_read_ = stamp.watermark;
  }

  /// Adds the writers of a cell.
  void find_writers(int64_t cell, sched::WaitList& waits) const {
    waits.add(entries_.get()[cell].writer);
    if (tree_) tree_->find_writers(cell, waits);
  }

 private:
  /// Names of the last writer and of the readers since. A second live reader from another strand turns
  /// `reader` into a watermark that represents all of them.
  struct Entry {
    sched::Name writer;
    sched::Name reader;
  };

  /// The reads by `read_widely`: all lie in the cells [first, last] and are complete at the watermark.
  struct WideReads {
    int64_t first = INT64_MAX;
    int64_t last = INT64_MIN;
    uint64_t watermark = 0;
  };

  struct Free {
    void operator()(Entry* entries) const { std::free(entries); }
  };

  static int64_t last_cell(const CellBox& box) {
    int64_t last = box.first;
    for (int d = 0; d < box.num_dims; ++d) last += (box.extent[d] - 1) * box.stride[d];
    return last;
  }

  /// Updates the marks of the whole map for an access.
  [[gnu::always_inline]] inline void note(const CellBox& box, Touch how, const sched::Stamp& stamp,
                                          sched::WaitList& waits) {
    if (how != Touch::kRead && wide_reads_.watermark != 0) wait_for_wide_reads(box, waits);
    (how == Touch::kRead ? last_read_ : last_write_) = stamp.watermark;
  }

  void wait_for_wide_reads(const CellBox& box, sched::WaitList& waits) const {
    if (box.first <= wide_reads_.last && last_cell(box) >= wide_reads_.first)
      waits.add_watermark(wide_reads_.watermark);
  }

  /// Calls `visit(first, last)` for the runs of neighbours [first, last) of a box.
  template <class Visit>
  static void for_runs(const CellBox& box, int dim, int64_t cell, Visit visit) {
    if (dim == box.num_dims) return visit(cell, cell + 1);
    if (dim + 1 == box.num_dims && box.stride[dim] == 1) return visit(cell, cell + box.extent[dim]);
    for (int64_t i = 0; i < box.extent[dim]; ++i, cell += box.stride[dim])
      for_runs(box, dim + 1, cell, visit);
  }

  void find_run(int64_t first, int64_t last, bool writes, sched::WaitList& waits) const {
    const auto leaf = [&](int64_t cell) {
      waits.add(entries_.get()[cell].writer);
      if (writes) waits.add(entries_.get()[cell].reader);
    };
    if (first >= last) return;
    if (tree_ && last - first > kWideCells) return tree_->find_range(first, last, writes, waits, leaf);
    for (; first < last; ++first) {
      leaf(first);
      if (tree_) tree_->find_cell(first, writes, waits);
    }
  }

  void touch_run(int64_t first, int64_t last, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    if (first >= last) return;
    if (tree_ && last - first > kWideCells) {
      const auto leaf = [&](int64_t cell) { touch_entry(entries_.get()[cell], how, stamp, waits); };
      return tree_->touch_range(first, last, how != Touch::kRead, stamp, waits, leaf);
    }
    for (; first < last; ++first) touch(first, how, stamp, waits);
  }

  void touch(int64_t cell, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    touch_entry(entries_.get()[cell], how, stamp, waits);
    if (tree_) tree_->touch_cell(cell, how != Touch::kRead, stamp, waits);
  }

  static void touch_entry(Entry& entry, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    waits.add(entry.writer);
    if (how == Touch::kRead) {
      const bool is_settled = graph::is_settled(entry.reader, waits);
      entry.reader = is_settled ? stamp.name : sched::watermark_name(stamp.watermark);
      return;
    }
    waits.add(entry.reader);
    const bool replaces =
        how == Touch::kWrite || (is_settled(entry.writer, waits) && is_settled(entry.reader, waits));
    entry = {replaces ? stamp.name : sched::watermark_name(stamp.watermark), 0};
  }

  // From calloc: pages that no access touches cost nothing.
  std::unique_ptr<Entry[], Free> entries_;
  std::unique_ptr<RangeTree> tree_;
  WideReads wide_reads_;
  uint64_t last_write_ = 0, last_read_ = 0;  ///< watermarks
};

}  // namespace pto::wsp::graph
