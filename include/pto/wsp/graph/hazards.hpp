// SPDX-License-Identifier: MIT
/// \file
/// Read-after-write, write-after-read and write-after-write between the tasks of a plan.
#pragma once

#include <memory>
#include <vector>

#include "pto/wsp/graph/box_map.hpp"
#include "pto/wsp/graph/dense_map.hpp"
#include "pto/wsp/graph/typical.hpp"

namespace pto::wsp::graph {

/// One map per space that some task of the plan writes. Memory that is only read is not tracked at all.
class Hazards {
 public:
  /// `tracks` false makes an empty one, for runs in program order.
  Hazards(const Plan& plan, bool tracks) : plan_(plan), tracks_(tracks) {
    if (!tracks) return;
    const std::vector<Space> spaces = find_spaces(plan);
    std::vector<std::vector<const Space*>> groups(plan.layouts.size());
    std::vector<bool> is_written(plan.layouts.size(), false);
    for (const Space& space : spaces) {
      groups[space.group()].push_back(&space);
      if (space.is_written) is_written[space.group()] = true;
    }
    memories_.resize(plan.layouts.size());
    std::vector<std::vector<Access>> of_site(plan.sites.size());
    for (size_t group = 0; group < groups.size(); ++group) {
      if (is_written[group]) track(groups[group], of_site);
    }
    for (const std::vector<Access>& accesses : of_site) {
      first_access_.push_back(uint32_t(accesses_.size()));
      accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
    }
    first_access_.push_back(uint32_t(accesses_.size()));
  }

  bool is_tracking() const { return tracks_; }

  /// Adds what a task of `site` must wait for, and makes later tasks wait for it.
  void access(uint32_t site, const int64_t* registers, const sched::Stamp& stamp, sched::WaitList& waits) {
    for (uint32_t i = first_access_[site]; i < first_access_[site + 1]; ++i) {
      const Access& access = accesses_[i];
      if (access.dense != nullptr) {
        access.dense->access(cell_box(access, registers), access.writes, stamp, waits);
      } else if (access.boxes != nullptr) {
        access.boxes->access(element_box(access, registers), access.writes, stamp, waits);
      }
      if (access.num_marks > 1) cross(access, stamp, waits);
    }
  }

  /// Adds the tasks that write the element of a tensor at `indices`, which are inside it. Nobody waits for
  /// this look at it. \pre some task writes the tensor
  void find_writers(uint16_t tensor, const int64_t* indices, sched::WaitList& waits) const {
    const Memory& memory = memories_[plan_.layouts[tensor].group];
    if (memory.dense != nullptr) {
      int64_t cell = 0;
      for (int d = 0; d < memory.grid.rank; ++d)
        cell += indices[d] / memory.grid.step[d] * memory.grid.cell_stride[d];
      memory.dense->find_writers(cell, waits);
    } else if (memory.boxes != nullptr) {
      memory.boxes->find_writers(indices, waits);
    }
    if (memory.has_rows) waits.add_watermark(UINT64_MAX);
  }

 private:
  /// A dimension in which an access may cover other than one cell.
  struct Span {
    bytecode::Value extent;
    int64_t step;
    int64_t stride;
    int64_t cells;
  };

  /// A dimension of a box.
  struct Reach {
    bytecode::Value start;
    bytecode::Value extent;
  };

  struct Access {
    DenseMap* dense = nullptr;
    BoxMap* boxes = nullptr;
    bool writes = false;
    int64_t first_cell = 0;
    uint32_t first_term = 0, num_terms = 0;
    uint32_t first_span = 0, num_spans = 0;
    uint32_t first_reach = 0, num_reaches = 0;
    uint32_t mark = 0;  ///< of its space
    uint32_t first_mark = 0, num_marks = 0;
  };

  /// The latest accesses in a space: watermarks at which they are complete.
  struct Mark {
    uint64_t write = 0;
    uint64_t read = 0;
  };

  /// How the writers of an element are found: in the space of boxes, and all tasks if row sets are written.
  struct Memory {
    DenseMap* dense = nullptr;
    BoxMap* boxes = nullptr;
    Grid grid;
    bool has_rows = false;
  };

  void track(const std::vector<const Space*>& spaces, std::vector<std::vector<Access>>& of_site) {
    const auto first_mark = uint32_t(marks_.size());
    marks_.resize(marks_.size() + spaces.size());
    for (size_t i = 0; i < spaces.size(); ++i) {
      Access access;
      access.mark = first_mark + uint32_t(i);
      access.first_mark = first_mark;
      access.num_marks = uint32_t(spaces.size());
      track_space(*spaces[i], access, of_site);
    }
  }

  /// `common` is what the accesses of the space have in common.
  void track_space(const Space& space, Access common, std::vector<std::vector<Access>>& of_site) {
    Grid grid;
    if (space.is_written) {
      if (find_grid(space, grid)) {
        common.dense = dense_.emplace_back(std::make_unique<DenseMap>(grid)).get();
      } else {
        common.boxes = boxes_.emplace_back(make_box_map(space)).get();
      }
      Memory& memory = memories_[space.group()];
      if (space.is_boxes()) {
        memory = {common.dense, common.boxes, grid, memory.has_rows};
      } else {
        memory.has_rows = true;
      }
    }
    for (const Footprint& footprint : space.footprints) {
      Access access = common;
      access.writes = footprint.writes;
      if (access.dense != nullptr) place_on_grid(access, footprint, grid);
      if (access.boxes != nullptr) place_in_elements(access, footprint);
      of_site[footprint.site].push_back(access);
    }
  }

  std::unique_ptr<BoxMap> make_box_map(const Space& space) const {
    int64_t typical[kMaxTensorRank];
    for (size_t d = 0; d < space.size.size(); ++d) typical[d] = typical_extent(plan_, space, d);
    return std::make_unique<BoxMap>(int(space.size.size()), space.size.data(), typical);
  }

  void place_on_grid(Access& access, const Footprint& footprint, const Grid& grid) {
    access.first_term = uint32_t(terms_.size());
    access.first_span = uint32_t(spans_.size());
    for (int d = 0; d < grid.rank; ++d) {
      const QuickDim& dim = footprint.dims[size_t(d)];
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

  void place_in_elements(Access& access, const Footprint& footprint) {
    access.first_reach = uint32_t(reaches_.size());
    access.num_reaches = uint32_t(footprint.dims.size());
    for (const QuickDim& dim : footprint.dims) reaches_.push_back({dim.start, dim.extent});
  }

  /// Orders an access behind those in the other spaces of its memory.
  void cross(const Access& access, const sched::Stamp& stamp, sched::WaitList& waits) {
    for (uint32_t i = access.first_mark; i < access.first_mark + access.num_marks; ++i) {
      if (i == access.mark) continue;
      waits.add_watermark(marks_[i].write);
      if (access.writes) waits.add_watermark(marks_[i].read);
    }
    (access.writes ? marks_[access.mark].write : marks_[access.mark].read) = stamp.watermark;
  }

  CellBox cell_box(const Access& access, const int64_t* registers) const {
    CellBox box;
    box.first = access.first_cell;
    for (uint32_t i = 0; i < access.num_terms; ++i) {
      const bytecode::Term term = terms_[access.first_term + i];
      box.first += int64_t(uint64_t(term.coef) * uint64_t(registers[term.reg]));
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

  Box element_box(const Access& access, const int64_t* registers) const {
    Box box;
    for (uint32_t d = 0; d < access.num_reaches; ++d) {
      const Reach& reach = reaches_[access.first_reach + d];
      box.lo[d] = plan_.evaluate(reach.start, registers);
      box.hi[d] = box.lo[d] + plan_.evaluate(reach.extent, registers);
    }
    return box;
  }

  const Plan& plan_;
  const bool tracks_;
  std::vector<Access> accesses_;        ///< of one site after the other
  std::vector<uint32_t> first_access_;  ///< per site, and where those of the last one end
  std::vector<bytecode::Term> terms_;
  std::vector<Span> spans_;
  std::vector<Reach> reaches_;
  std::vector<Mark> marks_;
  std::vector<Memory> memories_;  ///< per group
  std::vector<std::unique_ptr<DenseMap>> dense_;
  std::vector<std::unique_ptr<BoxMap>> boxes_;
};

}  // namespace pto::wsp::graph
