// SPDX-License-Identifier: MIT
/// \file
/// Accesses to many cells of a dense map, in time logarithmic in the number of cells.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pto/wsp/graph/folded_accesses.hpp"

namespace pto::wsp::graph {

/// A 16-ary tree over the cells [0, n) whose leaves are the cells themselves. Nodes keep marks, not names: an
/// access through the tree is ordered after every strand up to the latest one that it must wait for.
class RangeTree {
 public:
  explicit RangeTree(int64_t num_cells) {
    for (int64_t n = (num_cells + kArity - 1) / kArity;; n = (n + kArity - 1) / kArity) {
      levels_.emplace_back(size_t(n));
      if (n == 1) break;
    }
  }

  /// An access to one cell: finds the ranges that cover it.
  [[gnu::noinline]] void touch_cell(int64_t cell, bool writes, const sched::Stamp& stamp,
                                    sched::WaitList& waits) {
    for (auto& level : levels_) {
      cell /= kArity;
      Node& node = level[size_t(cell)];
      node.covers.wait(writes, waits);
      add(node.any, writes, stamp, waits);
    }
  }

  /// Adds the writers of ranges around a cell.
  void find_writers(int64_t cell, sched::WaitList& waits) const {
    for (const auto& level : levels_) level[size_t(cell /= kArity)].covers.wait(false, waits);
  }

  /// Adds the waits of an access to one cell for ranges around it.
  void find_cell(int64_t cell, bool writes, sched::WaitList& waits) const {
    for (const auto& level : levels_) level[size_t(cell /= kArity)].covers.wait(writes, waits);
  }

  /// Adds the waits of an access to the cells [first, last). `leaf(cell)` handles the single cells at its
  /// ends.
  template <class Leaf>
  void find_range(int64_t first, int64_t last, bool writes, sched::WaitList& waits, Leaf leaf) const {
    for_ends(*this, first, last, [&](const Node& node) { node.covers.wait(writes, waits); });
    for_inside(*this, first, last, leaf, [&](const Node& node) { node.any.wait(writes, waits); });
  }

  /// An access to the cells [first, last): `leaf(cell)` handles the single cells at its ends.
  template <class Leaf>
  void touch_range(int64_t first, int64_t last, bool writes, const sched::Stamp& stamp,
                   sched::WaitList& waits, Leaf leaf) {
    // All lookups come before all marks, because a node may be inside the range and above one of its ends.
    find_range(first, last, writes, waits, leaf);
    for_ends(*this, first, last, [&](Node& node) { add(node.any, writes, stamp, waits); });
    for_inside(
        *this, first, last, [](int64_t) {},
        [&](Node& node) {
          add(node.any, writes, stamp, waits);
          add(node.covers, writes, stamp, waits);
        });
  }

 private:
  static constexpr int64_t kArity = 16;

  struct Node {
    AccessMarks covers;  ///< of accesses to all of the node
    AccessMarks any;     ///< of accesses to any part of it
  };

  static void add(AccessMarks& marks, bool writes, const sched::Stamp& stamp, const sched::WaitList& waits) {
    (writes ? marks.writes : marks.reads).add_latest(stamp.watermark, waits);
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
