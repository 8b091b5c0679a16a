// SPDX-License-Identifier: MIT
/// \file
/// Checks after a run that its tasks kept the required order. It shares no code with the scheduler: every
/// memory is divided at the ends of all regions, and each piece stores the end of its last reader and writer.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/graph/boxes.hpp"

namespace pto::wsp::trace {

/// When a task began and ended: numbers that every task of a run draws from one counter. A task that another
/// one waited for has drawn its end before that one's start.
struct OrderStamp {
  uint64_t start = 0;
  uint64_t end = 0;
};

/// Relaxed: drawing must not order anything.
inline uint64_t draw_order() {
  static std::atomic<uint64_t> counter{0};
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const uint64_t drawn = counter.fetch_add(1, std::memory_order_relaxed) + 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  return drawn;
}

namespace detail {

/// Ranges [lo, hi) in which accesses are compared.
struct Region {
  std::vector<int64_t> lo, hi;
};

/// The latest ends in a memory, per piece.
class EndMap {
 public:
  EndMap(uint32_t group, const std::vector<int64_t>& size) : group(group) {
    for (const int64_t extent : size) is_cut_.emplace_back(size_t(extent) + 1, false);
  }

  const uint32_t group;  ///< of the memory

  /// Announces a region for comparison.
  void cut(const Region& region) {
    for (size_t d = 0; d < is_cut_.size(); ++d) {
      is_cut_[d][size_t(region.lo[d])] = true;
      is_cut_[d][size_t(region.hi[d])] = true;
    }
  }

  void lay_out() {
    size_t count = 1;
    for (const std::vector<bool>& is_cut : is_cut_) {
      std::vector<uint32_t> piece(is_cut.size(), 0);
      for (size_t i = 1; i < is_cut.size(); ++i) piece[i] = piece[i - 1] + (is_cut[i] ? 1 : 0);
      num_pieces_.push_back(size_t(piece.back()) + 1);
      count *= num_pieces_.back();
      if (count > kMaxPieces)
        throw EngineError("verify-too-large", "regions cut a tensor into too many pieces");
      piece_.push_back(std::move(piece));
    }
    ends_.resize(count);
  }

  /// Whether an access may begin at `start`.
  bool admits(const Region& region, bool writes, uint64_t start) {
    bool is_late_enough = true;
    visit(region, 0, 0, [&](Ends& ends) { is_late_enough = is_late_enough && ends.admit(writes, start); });
    return is_late_enough;
  }

  /// The same of an access that may touch anything in the memory.
  bool admits_all(bool writes, uint64_t start) const { return all_.admit(writes, start); }

  void note(const Region& region, bool writes, uint64_t end) {
    visit(region, 0, 0, [&](Ends& ends) {
      ends.note(writes, end);
      all_.note(writes, end);
    });
  }

 private:
  static constexpr size_t kMaxPieces = size_t{1} << 26;

  struct Ends {
    uint64_t write = 0;
    uint64_t read = 0;

    bool admit(bool writes, uint64_t start) const { return write < start && (!writes || read < start); }
    void note(bool writes, uint64_t end) {
      uint64_t& latest = writes ? write : read;
      latest = std::max(latest, end);
    }
  };

  template <class Visit>
  void visit(const Region& region, size_t d, size_t at, const Visit& each) {
    if (d == piece_.size()) return each(ends_[at]);
    if (region.lo[d] >= region.hi[d]) return;
    const size_t first = piece_[d][size_t(region.lo[d])], last = piece_[d][size_t(region.hi[d])];
    for (size_t piece = first; piece < last; ++piece) visit(region, d + 1, at * num_pieces_[d] + piece, each);
  }

  std::vector<std::vector<bool>> is_cut_;
  std::vector<std::vector<uint32_t>> piece_;  ///< per dimension and element boundary
  std::vector<size_t> num_pieces_;
  std::vector<Ends> ends_;
  Ends all_;
};

/// Row sets whose indices tasks write are compared by position among each other if the indices differ by
/// construction, and count as the whole memory otherwise, and against anything else.
class OrderCheck {
 public:
  OrderCheck(const bytecode::Plan& plan, const std::vector<int64_t>& flushed)
      : plan_(plan), flushed_(flushed), steps_(bytecode::with_events(plan, [&](uint32_t loop) {
          const bool is_sequential = plan.loops[loop].op == bytecode::Op::FOR_EACH;
          return is_sequential ? bytecode::LoopEvents::kGroups : bytecode::LoopEvents::kNone;
        })) {}

  uint64_t count_violations(const std::vector<OrderStamp>& stamps) {
    walk([&](uint32_t site, const int64_t* registers) {
      for_accesses(site, registers, [](EndMap& map, const Region& region, bool) { map.cut(region); });
    });
    for (auto& [key, map] : maps_) map.lay_out();
    latest_.assign(plan_.sites.size(), OrderStamp{});
    uint64_t violations = 0;
    walk([&](uint32_t site, const int64_t* registers) {
      violations += is_in_order(site, registers, stamps[num_tasks_ - 1]) ? 0 : 1;
    });
    return violations;
  }

 private:
  /// A P.seq loop that is open: the ends of the iterations before this one, and of this one.
  struct Sequence {
    uint64_t before = 0;
    uint64_t end = 0;
  };

  /// Memory; 0 for elements, else 1 + memory of the indices; and how many dimensions rows count over.
  using Key = std::tuple<uint32_t, uint32_t, int>;

  /// Follows the open P.seq loops, and calls `visit_task(site, registers)` for each task.
  template <class VisitTask>
  struct Visitor : bytecode::EventVisitor {
    OrderCheck& self;
    VisitTask visit_task;
    bytecode::Replay replay{self.plan_, self.steps_, self.flushed_};

    Visitor(OrderCheck& check, VisitTask visit) : self(check), visit_task(visit) {}
    bool on_task(uint32_t site) {
      self.num_tasks_ = replay.expander().num_tasks();
      visit_task(site, replay.expander().registers());
      return true;
    }
    bool on_enter(uint32_t) { return self.open_.emplace_back(), true; }
    bool on_iteration(uint32_t) { return self.open_.back().before = self.open_.back().end, true; }
    bool on_leave(uint32_t) { return self.open_.pop_back(), true; }
  };

  template <class VisitTask>
  void walk(VisitTask visit_task) {
    Visitor<VisitTask> visitor(*this, visit_task);
    while (bytecode::visit(visitor.replay.next(), visitor)) {
    }
  }

  bool is_in_order(uint32_t site, const int64_t* registers, const OrderStamp& stamp) {
    bool is_late_enough = stamp.start != 0;
    for (Sequence& sequence : open_) {
      is_late_enough = is_late_enough && sequence.before < stamp.start;
      sequence.end = std::max(sequence.end, stamp.end);
    }
    const bytecode::SiteForm& form = plan_.program().sites[site];
    for (uint32_t i = 0; i < form.num_afters; ++i) {
      const uint32_t named = plan_.program().afters[form.first_after + i];
      is_late_enough = is_late_enough && latest_[named].end < stamp.start;
    }
    latest_[site] = stamp;
    for_accesses(site, registers, [&](EndMap& map, const Region& region, bool writes) {
      is_late_enough = is_late_enough && map.admits(region, writes, stamp.start) &&
                       is_behind_others(map, writes, stamp.start);
    });
    for_accesses(site, registers, [&](EndMap& map, const Region& region, bool writes) {
      map.note(region, writes, stamp.end);
    });
    return is_late_enough;
  }

  /// Whether an access follows the accesses that are not compared with it.
  bool is_behind_others(const EndMap& map, bool writes, uint64_t start) const {
    for (const auto& [key, other] : maps_) {
      if (&other != &map && std::get<0>(key) == map.group && !other.admits_all(writes, start)) return false;
    }
    return true;
  }

  /// Calls `visit(map, region, writes)` for what a task touches.
  template <class Visit>
  void for_accesses(uint32_t site_index, const int64_t* registers, Visit visit) {
    const bytecode::QuickSite& site = plan_.sites[site_index];
    for (uint32_t i = site.first_io; i < site.first_io + site.num_io; ++i) {
      const bytecode::QuickIo& io = plan_.ios[i];
      const bool writes = io.role != Role::in;
      const Region region = region_of(io, registers);
      if (io.rows < 0) {
        visit(elements(io.tensor, io.rank), region, writes);
        continue;
      }
      const bytecode::QuickRows& rows = plan_.rows[size_t(io.rows)];
      visit(elements(rows.tensor, 2), {{region.lo[0], 0}, {region.hi[0], 1}}, false);
      if (rows.is_written) {
        visit_positions(io, rows, region, writes, visit);
      } else {
        visit_rows(io, region, writes, visit);
      }
    }
  }

  Region region_of(const bytecode::QuickIo& io, const int64_t* registers) const {
    Region region;
    for (uint32_t d = io.first_dim; d < io.first_dim + io.rank; ++d) {
      region.lo.push_back(plan_.evaluate(plan_.dims[d].start, registers));
      region.hi.push_back(region.lo.back() + plan_.evaluate(plan_.dims[d].extent, registers));
    }
    return region;
  }

  EndMap& elements(uint16_t tensor, int rank) {
    const bytecode::TensorLayout& layout = plan_.layouts[tensor];
    return map_at({layout.group, 0, 0}, {layout.shape, layout.shape + rank});
  }

  EndMap& map_at(const Key& key, const std::vector<int64_t>& size) {
    const auto found = maps_.find(key);
    return found != maps_.end() ? found->second
                                : maps_.try_emplace(key, std::get<0>(key), size).first->second;
  }

  template <class Visit>
  void visit_rows(const bytecode::QuickIo& io, Region region, bool writes, Visit visit) {
    EndMap& map = elements(io.tensor, io.rank);
    graph::for_rows(plan_, io, std::move(region), [&](const Region& row) { visit(map, row, writes); });
  }

  template <class Visit>
  void visit_positions(const bytecode::QuickIo& io, const bytecode::QuickRows& rows, Region region,
                       bool writes, Visit visit) {
    const bytecode::TensorLayout &layout = plan_.layouts[io.tensor], &indices = plan_.layouts[rows.tensor];
    const auto first = rows.num_merged;
    std::vector<int64_t> size(layout.shape + first, layout.shape + io.rank);
    size[0] = indices.shape[0];
    region.lo[first] = rows.is_distinct ? region.lo[0] : 0;
    region.hi[first] = rows.is_distinct ? region.hi[0] : size[0];
    region.lo.erase(region.lo.begin(), region.lo.begin() + first);
    region.hi.erase(region.hi.begin(), region.hi.begin() + first);
    visit(map_at({layout.group, 1 + indices.group, first}, size), region, writes);
  }

  const bytecode::Plan& plan_;
  const std::vector<int64_t>& flushed_;
  const std::vector<bytecode::QuickStep> steps_;
  std::map<Key, EndMap> maps_;
  std::vector<OrderStamp> latest_;  ///< per site
  std::vector<Sequence> open_;
  uint64_t num_tasks_ = 0;
};

}  // namespace detail

/// Counts the tasks of a run that began before a predecessor ended: a conflicting task, a task in its
/// `AFTER`, or a task of an earlier iteration of a FOR_EACH loop around it. `stamps` holds those of every
/// task, in program order; `flushed` what flush points read. \pre bind_elements
inline uint64_t count_order_violations(const bytecode::Plan& plan, const std::vector<int64_t>& flushed,
                                       const std::vector<OrderStamp>& stamps) {
  return detail::OrderCheck(plan, flushed).count_violations(stamps);
}

}  // namespace pto::wsp::trace
