// SPDX-License-Identifier: MIT
/// \file
/// Accesses that cover many cells of a dense map, in time logarithmic in the number of cells.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pto/wsp/progress.hpp"

namespace pto::wsp::graph {

/// A 16-ary tree over the cells [0, n) whose leaves are the cells themselves. Nodes keep watermarks, not
/// names: an access through the tree orders against everything before it in program order, which is more than
/// it must.
class RangeTree {
 public:
  explicit RangeTree(int64_t num_cells) {
    for (int64_t n = (num_cells + kArity - 1) / kArity;; n = (n + kArity - 1) / kArity) {
      levels_.emplace_back(size_t(n));
      if (n == 1) break;
    }
  }

  /// An access to one cell: meets whatever covered a range around it.
  [[gnu::noinline]] void touch_cell(int64_t cell, bool writes, const sched::Stamp& stamp,
                                    sched::WaitList& waits) {
    for (auto& level : levels_) {
      cell /= kArity;
      Node& node = level[size_t(cell)];
      wait_for_covers(node, writes, waits);
      (writes ? node.any_write : node.any_read) = stamp.watermark;
    }
  }

  /// Adds what wrote a range around one cell.
  void find_writers(int64_t cell, sched::WaitList& waits) const {
    for (const auto& level : levels_) waits.add_watermark(level[size_t(cell /= kArity)].cover_write);
  }

  /// Adds what an access to one cell would meet of what covered a range around it.
  void find_cell(int64_t cell, bool writes, sched::WaitList& waits) const {
    for (const auto& level : levels_) wait_for_covers(level[size_t(cell /= kArity)], writes, waits);
  }

  /// Adds what an access to the cells [first, last) would meet; `leaf(cell)` looks at the single cells at its
  /// ends.
  template <class Leaf>
  void find_range(int64_t first, int64_t last, bool writes, sched::WaitList& waits, Leaf leaf) const {
    for_ends(*this, first, last, [&](const Node& node) { wait_for_covers(node, writes, waits); });
    for_inside(*this, first, last, leaf, [&](const Node& node) { wait_for_any(node, writes, waits); });
  }

  /// An access to the cells [first, last): `leaf(cell)` handles the single cells at its ends.
  template <class Leaf>
  void touch_range(int64_t first, int64_t last, bool writes, const sched::Stamp& stamp,
                   sched::WaitList& waits, Leaf leaf) {
    // All questions come before all marks: a node may be both inside the range and above one of its ends.
    find_range(first, last, writes, waits, leaf);
    for_ends(*this, first, last,
             [&](Node& node) { (writes ? node.any_write : node.any_read) = stamp.watermark; });
    for_inside(
        *this, first, last, [](int64_t) {},
        [&](Node& node) {
          (writes ? node.any_write : node.any_read) = stamp.watermark;
          (writes ? node.cover_write : node.cover_read) = stamp.watermark;
        });
  }

 private:
  static constexpr int64_t kArity = 16;

  /// Watermarks of the last accesses that covered the node, and of the last ones that met any part of it.
  struct Node {
    uint64_t cover_write = 0, cover_read = 0, any_write = 0, any_read = 0;
  };

  static void wait_for_covers(const Node& node, bool writes, sched::WaitList& waits) {
    waits.add_watermark(node.cover_write);
    if (writes) waits.add_watermark(node.cover_read);
  }

  static void wait_for_any(const Node& node, bool writes, sched::WaitList& waits) {
    waits.add_watermark(node.any_write);
    if (writes) waits.add_watermark(node.any_read);
  }

  /// Visits the nodes above the first and the last cell. `Tree` is this class, const or not.
  template <class Tree, class Visit>
  static void for_ends(Tree& tree, int64_t first, int64_t last, Visit visit) {
    for (int64_t cell : {first, last - 1}) {
      for (auto& level : tree.levels_) visit(level[size_t(cell /= kArity)]);
    }
  }

  /// Visits the largest nodes and the cells that together are [first, last).
  template <class Tree, class Leaf, class Visit>
  static void for_inside(Tree& tree, int64_t first, int64_t last, Leaf leaf, Visit visit) {
    for (; first < last && first % kArity != 0; ++first) leaf(first);
    for (; first < last && last % kArity != 0; --last) leaf(last - 1);
    for (auto& level : tree.levels_) {
      first /= kArity;
      last /= kArity;
      const bool is_root = level.size() == 1;
      for (; first < last && (is_root || first % kArity != 0); ++first) visit(level[size_t(first)]);
      for (; first < last && last % kArity != 0; --last) visit(level[size_t(last - 1)]);
    }
  }

  std::vector<std::vector<Node>> levels_;
};

}  // namespace pto::wsp::graph
