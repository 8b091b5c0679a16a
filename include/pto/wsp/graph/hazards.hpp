// SPDX-License-Identifier: MIT
/// \file
/// Read-after-write, write-after-read and write-after-write between the tasks of a plan.
#pragma once

#include <memory>
#include <vector>

#include "pto/wsp/graph/box_map.hpp"
#include "pto/wsp/graph/dense_map.hpp"

namespace pto::wsp::graph {

/// One map per memory that some task of the plan writes. Memory that is only read is not tracked at all.
class Hazards {
 public:
  /// `tracks` false makes an empty one, for runs in program order.
  Hazards(const Plan& plan, bool tracks) : plan_(plan), tracks_(tracks), accesses_(plan.ios.size()) {
    if (!tracks) return;
    std::vector<std::vector<uint32_t>> groups(plan.layouts.size());
    std::vector<bool> is_written(plan.layouts.size(), false);
    for (uint32_t i = 0; i < plan.ios.size(); ++i) {
      const uint32_t group = plan.layouts[plan.ios[i].tensor].group;
      groups[group].push_back(i);
      if (plan.ios[i].role != Role::in) is_written[group] = true;
    }
    for (size_t group = 0; group < groups.size(); ++group) {
      if (is_written[group]) track(groups[group]);
    }
    for (const bytecode::QuickSite& site : plan.sites) list_tracked(site);
  }

  bool is_tracking() const { return tracks_; }

  /// Adds what a task of `site` must wait for, and makes later tasks wait for it.
  void access(uint32_t site, const int64_t* registers, const sched::Stamp& stamp, sched::WaitList& waits) {
    for (uint32_t i = first_tracked_[site]; i < tracked_.size() && tracked_[i] != kStop; ++i) {
      const Access& access = accesses_[tracked_[i]];
      if (access.dense != nullptr) {
        access.dense->access(cell_box(access, registers), access.writes, stamp, waits);
      } else {
        access.boxes->access(element_box(plan_.ios[tracked_[i]], registers), access.writes, stamp, waits);
      }
    }
  }

 private:
  static constexpr uint32_t kStop = 0xFFFFFFFFu;

  /// A dimension in which an access may cover other than one cell.
  struct Span {
    bytecode::Value extent;
    int64_t step;
    int64_t stride;
    int64_t cells;
  };

  struct Access {
    DenseMap* dense = nullptr;
    BoxMap* boxes = nullptr;
    bool writes = false;
    int64_t first_cell = 0;
    uint32_t first_term = 0, num_terms = 0;
    uint32_t first_span = 0, num_spans = 0;
  };

  void track(const std::vector<uint32_t>& ios) {
    Grid grid;
    DenseMap* dense = nullptr;
    BoxMap* boxes = nullptr;
    if (find_grid(plan_, ios, grid)) {
      dense = dense_.emplace_back(std::make_unique<DenseMap>(grid)).get();
    } else {
      boxes = boxes_.emplace_back(make_box_map(ios)).get();
    }
    for (uint32_t io : ios) {
      Access& access = accesses_[io];
      access.dense = dense;
      access.boxes = boxes;
      access.writes = plan_.ios[io].role != Role::in;
      if (dense != nullptr) place_on_grid(access, plan_.ios[io], grid);
    }
  }

  std::unique_ptr<BoxMap> make_box_map(const std::vector<uint32_t>& ios) const {
    const QuickIo& first = plan_.ios[ios.front()];
    const int64_t* size = plan_.layouts[first.tensor].shape;
    int64_t typical[kMaxTensorRank];
    for (int d = 0; d < first.rank; ++d) {
      // The largest extent that is not (nearly) the whole dimension: larger ones are rare or wide anyway.
      typical[d] = 1;
      bool any = false;
      for (uint32_t io : ios) {
        const int64_t extent = plan_.dims[plan_.ios[io].first_dim + uint32_t(d)].extent_form.range.hi;
        if (extent > size[d] / 2) continue;
        typical[d] = std::max(typical[d], extent);
        any = true;
      }
      if (!any) typical[d] = size[d];
    }
    return std::make_unique<BoxMap>(first.rank, size, typical);
  }

  void place_on_grid(Access& access, const QuickIo& io, const Grid& grid) {
    access.first_term = uint32_t(terms_.size());
    access.first_span = uint32_t(spans_.size());
    for (int d = 0; d < grid.rank; ++d) {
      const QuickDim& dim = plan_.dims[io.first_dim + uint32_t(d)];
      // Code that is never reached may be far outside; wrapping keeps that defined.
      const auto to_cells = [&](int64_t x) {
        return int64_t(uint64_t(x / grid.step[d]) * uint64_t(grid.cell_stride[d]));
      };
      access.first_cell = int64_t(uint64_t(access.first_cell) + uint64_t(to_cells(dim.start_form.c0)));
      for (const bytecode::Term& term : dim.start_form.terms)
        terms_.push_back({to_cells(term.coef), term.reg});
      const bytecode::Range extent = dim.extent_form.range;
      if (extent.lo >= 1 && extent.hi <= grid.step[d]) continue;
      spans_.push_back({dim.extent, grid.step[d], grid.cell_stride[d], grid.cells[d]});
    }
    access.num_terms = uint32_t(terms_.size()) - access.first_term;
    access.num_spans = uint32_t(spans_.size()) - access.first_span;
  }

  void list_tracked(const bytecode::QuickSite& site) {
    first_tracked_.push_back(uint32_t(tracked_.size()));
    for (uint32_t io = site.first_io; io < site.first_io + site.num_io; ++io) {
      if (accesses_[io].dense != nullptr || accesses_[io].boxes != nullptr) tracked_.push_back(io);
    }
    tracked_.push_back(kStop);
  }

  CellBox cell_box(const Access& access, const int64_t* registers) const {
    CellBox box;
    box.first = access.first_cell;
    for (uint32_t i = 0; i < access.num_terms; ++i) {
      const bytecode::Term term = terms_[access.first_term + i];
      box.first += term.coef * registers[term.reg];
    }
    for (uint32_t i = 0; i < access.num_spans; ++i) add_span(box, spans_[access.first_span + i], registers);
    return box;
  }

  /// Adds a dimension, merged with the one outside it where both together are one run of cells.
  void add_span(CellBox& box, const Span& span, const int64_t* registers) const {
    const int64_t extent = plan_.evaluate(span.extent, registers);
    const int64_t count = extent <= 0 ? 0 : (extent - 1) / span.step + 1;
    if (count == 1) return;
    if (box.num_dims > 0 && count == span.cells && box.stride[box.num_dims - 1] == count * span.stride) {
      box.extent[box.num_dims - 1] *= count;
      box.stride[box.num_dims - 1] = span.stride;
      return;
    }
    box.extent[box.num_dims] = count;
    box.stride[box.num_dims++] = span.stride;
  }

  Box element_box(const QuickIo& io, const int64_t* registers) const {
    Box box;
    for (int d = 0; d < io.rank; ++d) {
      const QuickDim& dim = plan_.dims[io.first_dim + uint32_t(d)];
      box.lo[d] = plan_.evaluate(dim.start, registers);
      box.hi[d] = box.lo[d] + plan_.evaluate(dim.extent, registers);
    }
    return box;
  }

  const Plan& plan_;
  const bool tracks_;
  std::vector<Access> accesses_;
  std::vector<bytecode::Term> terms_;
  std::vector<Span> spans_;
  std::vector<uint32_t> tracked_;  ///< per site: its tracked ios, then kStop
  std::vector<uint32_t> first_tracked_;
  std::vector<std::unique_ptr<DenseMap>> dense_;
  std::vector<std::unique_ptr<BoxMap>> boxes_;
};

}  // namespace pto::wsp::graph
