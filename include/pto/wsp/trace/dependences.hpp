// SPDX-License-Identifier: MIT
/// \file
/// Finds the dependences between the tasks of a run by comparing their regions again.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "pto/wsp/graph/boxes.hpp"
#include "pto/wsp/graph/cell_grid.hpp"
#include "pto/wsp/graph/typical.hpp"

namespace pto::wsp::trace {

/// Why a task came after another one.
enum class DependenceKind : uint8_t { kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite, kAfter };

struct Dependence {
  static constexpr uint32_t kNoTensor = UINT32_MAX;  ///< of kAfter

  uint64_t before;
  DependenceKind kind;
  uint32_t tensor;  ///< of the later task's argument
};

/// The dependences of one task: the latest ones, each task once.
class LatestDependences {
 public:
  static constexpr size_t kMaxDependences = 8;

  void clear() { found_.clear(); }
  /// For several dependences on one task, the first kind counts.
  void add(uint64_t before, DependenceKind kind, uint32_t tensor) {
    const auto at = std::find_if(found_.begin(), found_.end(),
                                 [before](const Dependence& d) { return d.before <= before; });
    if (at != found_.end() && at->before == before) {
      if (kind < at->kind) *at = {before, kind, tensor};
      return;
    }
    if (at == found_.end() && found_.size() == kMaxDependences) return;
    found_.insert(at, {before, kind, tensor});
    if (found_.size() > kMaxDependences) found_.pop_back();
  }
  /// The latest first.
  const std::vector<Dependence>& found() const { return found_; }

 private:
  std::vector<Dependence> found_;
};

namespace detail {

/// The live accesses in one space.
class SpaceAccesses {
 public:
  SpaceAccesses(const bytecode::Plan& plan, const graph::Space& space)
      : rank_(int(space.size.size())), grid_(make_grid(plan, space)), cells_(size_t(grid_.num_cells())) {}

  void access(uint64_t task, const graph::Box& box, const graph::Footprint& footprint,
              LatestDependences& found) {
    if (is_empty(box)) return;
    const bool writes = footprint.writes;
    const TaskAccess self{box, task, &footprint};
    const bool is_wide = grid_.range_of(box).count > kWide;
    meet(wide_, self, writes, found);
    if (is_wide) {
      for (Cell& cell : cells_) meet(cell, self, writes, found);
      add(wide_, self, writes);
    } else {
      grid_.for_cells(box, [&](int64_t cell) {
        meet(cells_[size_t(cell)], self, writes, found);
        add(cells_[size_t(cell)], self, writes);
      });
    }
  }

 private:
  static constexpr int64_t kWide = 64;
  static constexpr int64_t kMaxCells = 1 << 10;

  struct TaskAccess {
    graph::Box box;
    uint64_t task;
    const graph::Footprint* footprint;
  };
  /// In program order.
  struct Cell {
    std::vector<TaskAccess> writers, readers;
  };

  static graph::CellGrid make_grid(const bytecode::Plan& plan, const graph::Space& space) {
    int64_t typical[kMaxTensorRank];
    for (size_t d = 0; d < space.size.size(); ++d) typical[d] = graph::typical_extent(plan, space, d);
    return {int(space.size.size()), space.size.data(), typical, kMaxCells};
  }

  void meet(Cell& cell, const TaskAccess& self, bool writes, LatestDependences& found) const {
    const bool reads = self.footprint->reads;
    find(cell.writers, self, reads ? DependenceKind::kReadAfterWrite : DependenceKind::kWriteAfterWrite,
         found);
    if (!writes) return;
    find(cell.readers, self, DependenceKind::kWriteAfterRead, found);
    // A task after the writer is after these too.
    for (std::vector<TaskAccess>* list : {&cell.writers, &cell.readers}) {
      const auto is_covered = [&](const TaskAccess& other) { return covers(self.box, other.box); };
      list->erase(std::remove_if(list->begin(), list->end(), is_covered), list->end());
    }
  }

  void find(const std::vector<TaskAccess>& list, const TaskAccess& self, DependenceKind kind,
            LatestDependences& found) const {
    size_t num_found = 0;
    for (auto other = list.rbegin(); other != list.rend() && num_found < LatestDependences::kMaxDependences;
         ++other) {
      if (other->task == self.task || !intersects(other->box, self.box)) continue;
      found.add(other->task, kind, self.footprint->tensor);
      ++num_found;
    }
  }

  static void add(Cell& cell, const TaskAccess& self, bool writes) {
    (writes ? cell.writers : cell.readers).push_back(self);
  }

  bool is_empty(const graph::Box& box) const {
    for (int d = 0; d < rank_; ++d) {
      if (box.lo[d] >= box.hi[d]) return true;
    }
    return false;
  }

  bool intersects(const graph::Box& a, const graph::Box& b) const {
    for (int d = 0; d < rank_; ++d) {
      if (a.lo[d] >= b.hi[d] || b.lo[d] >= a.hi[d]) return false;
    }
    return true;
  }

  bool covers(const graph::Box& outer, const graph::Box& inner) const {
    for (int d = 0; d < rank_; ++d) {
      if (inner.lo[d] < outer.lo[d] || inner.hi[d] > outer.hi[d]) return false;
    }
    return true;
  }

  int rank_;
  graph::CellGrid grid_;
  std::vector<Cell> cells_;
  Cell wide_;
};

}  // namespace detail

/// Finds the dependences of one task after the other, in program order.
///
/// Row sets and boxes of one memory are not compared; the latest such access counts as a dependence.
class DependenceFinder {
 public:
  explicit DependenceFinder(const bytecode::Plan& plan)
      : plan_(plan),
        spaces_(graph::find_spaces(plan)),
        of_site_(plan.sites.size()),
        latest_(plan.sites.size(), kNobody),
        marks_(spaces_.size()) {
    std::vector<bool> is_written(plan.layouts.size(), false);
    for (const graph::Space& space : spaces_) {
      if (space.is_written) is_written[space.group()] = true;
    }
    for (size_t i = 0; i < spaces_.size(); ++i) {
      accesses_.push_back(nullptr);
      if (!is_written[spaces_[i].group()]) continue;
      accesses_.back() = std::make_unique<detail::SpaceAccesses>(plan, spaces_[i]);
      for (const graph::Footprint& footprint : spaces_[i].footprints)
        of_site_[footprint.site].push_back({i, &footprint});
    }
  }

  /// Those of the next task, the latest first.
  const std::vector<Dependence>& next(uint32_t site, const int64_t* registers) {
    found_.clear();
    for (const Touched& touched : of_site_[site]) access(touched, registers);
    const bytecode::SiteForm& form = plan_.program().sites[site];
    for (uint32_t i = form.first_after; i < form.first_after + form.num_afters; ++i) {
      const uint64_t before = latest_[plan_.program().afters[i]];
      if (before != kNobody) found_.add(before, DependenceKind::kAfter, Dependence::kNoTensor);
    }
    latest_[site] = num_tasks_++;
    return found_.found();
  }

 private:
  static constexpr uint64_t kNobody = UINT64_MAX;

  struct Touched {
    size_t space;
    const graph::Footprint* footprint;
  };
  /// The latest tasks in a space.
  struct LatestAccess {
    uint64_t write = kNobody;
    uint64_t read = kNobody;
  };

  void access(const Touched& touched, const int64_t* registers) {
    const graph::Footprint& footprint = *touched.footprint;
    graph::for_boxes(plan_, footprint, registers, [&](const graph::Box& box) {
      accesses_[touched.space]->access(num_tasks_, box, footprint, found_);
    });
    for (size_t other = 0; other < spaces_.size(); ++other) {
      if (other != touched.space && spaces_[other].group() == spaces_[touched.space].group())
        meet_other(marks_[other], footprint);
    }
    (footprint.writes ? marks_[touched.space].write : marks_[touched.space].read) = num_tasks_;
  }

  void meet_other(const LatestAccess& mark, const graph::Footprint& footprint) {
    using Kind = DependenceKind;
    if (mark.write != kNobody && mark.write != num_tasks_)
      found_.add(mark.write, footprint.reads ? Kind::kReadAfterWrite : Kind::kWriteAfterWrite,
                 footprint.tensor);
    if (footprint.writes && mark.read != kNobody && mark.read != num_tasks_)
      found_.add(mark.read, Kind::kWriteAfterRead, footprint.tensor);
  }

  const bytecode::Plan& plan_;
  const std::vector<graph::Space> spaces_;
  std::vector<std::unique_ptr<detail::SpaceAccesses>> accesses_;  ///< per space; null if no task writes there
  std::vector<std::vector<Touched>> of_site_;
  std::vector<uint64_t> latest_;     ///< per site, its latest task
  std::vector<LatestAccess> marks_;  ///< per space
  LatestDependences found_;
  uint64_t num_tasks_ = 0;
};

}  // namespace pto::wsp::trace
