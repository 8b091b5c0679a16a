// SPDX-License-Identifier: MIT
/// \file
/// Hazards between the tasks of a plan: read after write, write after read and write after write.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "pto/wsp/graph/box_map.hpp"
#include "pto/wsp/graph/boxes.hpp"
#include "pto/wsp/graph/dense_map.hpp"
#include "pto/wsp/graph/deps.hpp"
#include "pto/wsp/graph/memory_range.hpp"
#include "pto/wsp/graph/typical.hpp"
#include "pto/wsp/graph/unit_summary.hpp"

namespace pto::wsp::graph {

/// One map per space that some task of the plan writes. Memory that is only read is not tracked.
class Hazards {
 public:
  /// \param is_tracked  per memory, whether its accesses are tracked; empty: all that tasks write are
  explicit Hazards(const Plan& plan, Deps deps = Deps::kExact, const std::vector<bool>& is_tracked = {})
      : plan_(plan), deps_(deps) {
    const std::vector<Space> spaces = find_spaces(plan);
    std::vector<std::vector<uint32_t>> groups(plan.layouts.size());
    std::vector<bool> is_written(plan.layouts.size(), false);
    for (uint32_t i = 0; i < spaces.size(); ++i) {
      groups[spaces[i].group()].push_back(i);
      if (spaces[i].is_written) is_written[spaces[i].group()] = true;
    }
    maps_.resize(spaces.size());
    memories_.resize(plan.layouts.size());
    std::vector<std::vector<SiteAccess>> of_site(plan.sites.size());
    for (size_t group = 0; group < groups.size(); ++group) {
      if (is_written[group] && (is_tracked.empty() || is_tracked[group]))
        track(spaces, groups[group], of_site);
    }
    for (std::vector<SiteAccess>& accesses : of_site) {
      const auto steady = std::stable_partition(accesses.begin(), accesses.end(),
                                                [](const SiteAccess& access) { return !access.is_steady; });
      const auto first = uint32_t(accesses_.size());
      sites_.push_back(
          {first, first + uint32_t(steady - accesses.begin()), first + uint32_t(accesses.size())});
      accesses_.insert(accesses_.end(), accesses.begin(), accesses.end());
    }
  }

  Deps deps() const { return deps_; }

  /// Adds the waits of a task of `site`, and makes later tasks wait for it.
  ///
  /// A task is `between` if it is in neither the first nor the last iteration of its loop, in one strand.
  /// Regions that every iteration touches are then skipped: the first iteration waits for earlier tasks, and
  /// later tasks wait for the last iteration.
  void access(uint32_t site, const int64_t* registers, const sched::Stamp& stamp, sched::WaitList& waits,
              bool is_between = false) {
    const SiteAccesses& range = sites_[site];
    const SiteAccess* last = accesses_.data() + (is_between ? range.steady : range.end);
    for (const SiteAccess* access = accesses_.data() + range.first; access != last; ++access) {
      if (access->is_cell) {
        access->dense->access(first_cell(*access, registers), access->how, stamp, waits);
      } else {
        access_box(*access, registers, stamp, waits);
      }
    }
  }

  /// Whether a task of `site` that is `between` has no access of its own.
  bool is_silent_between(uint32_t site) const { return sites_[site].first == sites_[site].steady; }

  /// Adds the waits of a whole iteration, or more. \pre as for `pass_over`
  void find(const UnitSummary& unit, const UnitSummary::Shape& shape, const int64_t* registers,
            sched::WaitList& waits) {
    unit.for_boxes(shape, registers, [&](uint32_t space, const Box& box, Touch how) {
      const Map& map = maps_[space];
      const bool writes = how != Touch::kRead;
      CellBox cells;
      if (map.dense != nullptr) {
        if (find_cells(map, box, cells)) map.dense->find(cells, writes, waits);
      } else if (map.boxes != nullptr) {
        map.boxes->find(map.order ? map.order->range_of(box) : box, writes, waits);
      }
      if (map.marks.count > 1) find_across(map.marks, writes, waits);
    });
  }

  /// Makes later tasks wait for the end of an iteration that another dispatcher walks. `stamp` is that of its
  /// last task. The waits of the iteration itself are not found, and additions to `waits` have no meaning.
  /// \pre unit.is_closed(), and the summary was made of this plan
  void pass_over(const UnitSummary& unit, const UnitSummary::Shape& shape, const int64_t* registers,
                 const sched::Stamp& stamp, sched::WaitList& waits) {
    unit.for_boxes(shape, registers, [&](uint32_t space, const Box& box, Touch how) {
      const Map& map = maps_[space];
      CellBox cells;
      if (map.dense != nullptr) {
        if (find_cells(map, box, cells)) pass_over_cells(map, cells, how, stamp, waits);
      } else if (map.boxes != nullptr) {
        pass_over_boxes(map, box, how, stamp, waits);
      }
      if (map.marks.count > 1) cross(map.marks, how, stamp, waits);
    });
  }

  /// Adds the writers of an element of a tensor; `indices` are inside the tensor. Later tasks do not wait for
  /// this read. \pre some task writes the tensor
  void find_writers(uint16_t tensor, const int64_t* indices, sched::WaitList& waits) const {
    const Memory& memory = memories_[plan_.layouts[tensor].group];
    if (memory.map != nullptr && memory.map->dense != nullptr) {
      const Grid& grid = memory.map->grid;
      int64_t cell = 0;
      for (int d = 0; d < grid.rank; ++d) cell += indices[d] / grid.step[d] * grid.cell_stride[d];
      memory.map->dense->find_writers(cell, waits);
    } else if (memory.map != nullptr) {
      const auto& order = memory.map->order;
      const int64_t at = order ? order->index_of(indices) : 0;
      memory.map->boxes->find_writers(order ? &at : indices, waits);
    }
    if (memory.has_rows) waits.add_watermark(UINT64_MAX);
  }

 private:
  /// A dimension in which an access may cover several cells or none.
  struct Span {
    bytecode::Value extent;
    int64_t step;
    int64_t stride;
    int64_t cells;
  };

  /// A dimension of a box.
  struct BoxDim {
    bytecode::Value start;
    bytecode::Value extent;
  };

  /// Numbers of marks: of a space (`own`), and of all spaces of its memory.
  struct MarkNumbers {
    uint32_t own = 0;
    uint32_t first = 0, count = 0;
  };

  struct SiteAccess {
    DenseMap* dense = nullptr;
    int64_t first_cell = 0;
    uint32_t first_term = 0, num_terms = 0;
    bytecode::Term term{};  ///< the term, if there is exactly one
    Touch how = Touch::kRead;
    bool is_cell = false;    ///< of a dense map, and the only kind of access to its memory
    bool is_steady = false;  ///< the same in all iterations of the loop around the site
    BoxMap* boxes = nullptr;
    const MemoryOrder* order = nullptr;  ///< where ranges of memory are compared
    uint32_t first_span = 0, num_spans = 0;
    uint32_t first_box_dim = 0, num_box_dims = 0;
    int32_t rows = -1;  ///< its number among the footprints of rows, or -1
    MarkNumbers marks;
  };

  /// Where the accesses of a site begin, those that are steady, and where they end.
  struct SiteAccesses {
    uint32_t first, steady, end;
  };

  /// The map of a space, if it is tracked.
  struct Map {
    DenseMap* dense = nullptr;
    BoxMap* boxes = nullptr;
    std::optional<MemoryOrder> order;
    Grid grid;
    MarkNumbers marks;
  };

  /// The latest accesses in a space: watermarks at which they are complete.
  struct LatestAccesses {
    uint64_t write = 0;
    uint64_t read = 0;
  };

  /// The sources of the writers of an element: the space of boxes, and all tasks if row sets are written.
  struct Memory {
    const Map* map = nullptr;
    bool has_rows = false;
  };

  void track(const std::vector<Space>& spaces, const std::vector<uint32_t>& group,
             std::vector<std::vector<SiteAccess>>& of_site) {
    const auto first_mark = uint32_t(marks_.size());
    const auto count = uint32_t(group.size());
    marks_.resize(marks_.size() + count);
    for (uint32_t i = 0; i < count; ++i) {
      Map& map = maps_[group[i]];
      map.marks = {first_mark + i, first_mark, count};
      track_space(spaces[group[i]], map, of_site);
    }
  }

  void track_space(const Space& space, Map& map, std::vector<std::vector<SiteAccess>>& of_site) {
    if (space.is_written) {
      if (deps_ == Deps::kBytes && space.is_boxes()) {
        map.order.emplace(layout_of(space), int(space.size.size()));
        map.boxes = boxes_.emplace_back(make_range_map(space, *map.order)).get();
      } else if (find_grid(space, map.grid)) {
        map.dense = dense_.emplace_back(std::make_unique<DenseMap>(map.grid)).get();
      } else {
        map.boxes = boxes_.emplace_back(make_box_map(space)).get();
      }
      Memory& memory = memories_[space.group()];
      if (space.is_boxes()) {
        memory.map = &map;
      } else {
        memory.has_rows = true;
      }
    }
    for (const Footprint& footprint : space.footprints) {
      SiteAccess access;
      access.dense = map.dense;
      access.boxes = map.boxes;
      access.order = map.order ? &*map.order : nullptr;
      access.marks = map.marks;
      access.how = footprint.writes ? Touch::kWrite : Touch::kRead;
      if (access.dense != nullptr) place_on_grid(access, footprint, map.grid);
      if (access.boxes != nullptr) place_in_elements(access, footprint);
      if (footprint.row_io >= 0) {
        access.rows = int32_t(row_footprints_.size());
        row_footprints_.push_back(footprint);
      }
      access.is_cell = access.dense != nullptr && access.num_spans == 0 && access.marks.count == 1;
      access.is_steady = access.marks.count == 1 && is_steady(footprint);
      of_site[footprint.site].push_back(access);
    }
  }

  /// Whether a footprint is the same in all iterations of the loop around its site.
  bool is_steady(const Footprint& footprint) const {
    const bytecode::Program& program = plan_.program();
    const int32_t loop = program.sites[footprint.site].loop;
    if (loop < 0 || footprint.row_io >= 0) return false;
    const bytecode::QuickLoop& around = plan_.loops[size_t(loop)];
    const auto is_fixed = [&](const bytecode::Value& value) {
      if (value.postfix != bytecode::kNoPostfix) return false;
      const bytecode::Term* first = plan_.terms.data() + value.first_term;
      return std::none_of(first, first + value.num_terms, [&](const bytecode::Term& term) {
        const bool is_own = term.reg >= around.reg && term.reg < around.reg + around.num_registers();
        return is_own || program.is_variable[term.reg];
      });
    };
    return std::all_of(footprint.dims.begin(), footprint.dims.end(),
                       [&](const QuickDim& dim) { return is_fixed(dim.start) && is_fixed(dim.extent); });
  }

  std::unique_ptr<BoxMap> make_box_map(const Space& space) const {
    int64_t typical[kMaxTensorRank];
    for (size_t d = 0; d < space.size.size(); ++d) typical[d] = typical_extent(plan_, space, d);
    return std::make_unique<BoxMap>(int(space.size.size()), space.size.data(), typical);
  }

  const bytecode::TensorLayout& layout_of(const Space& space) const {
    return *std::find_if(plan_.layouts.begin(), plan_.layouts.end(),
                         [&](const auto& layout) { return layout.group == space.group(); });
  }

  /// A map of ranges of memory.
  std::unique_ptr<BoxMap> make_range_map(const Space& space, const MemoryOrder& order) const {
    Box usual;
    for (size_t d = 0; d < space.size.size(); ++d) {
      usual.lo[d] = 0;
      usual.hi[d] = typical_extent(plan_, space, d);
    }
    const Box range = order.range_of(usual);
    const int64_t size = order.size(), typical = std::max<int64_t>(range.hi[0] - range.lo[0], 1);
    return std::make_unique<BoxMap>(1, &size, &typical);
  }

  void place_on_grid(SiteAccess& access, const Footprint& footprint, const Grid& grid) {
    access.first_term = uint32_t(terms_.size());
    access.first_span = uint32_t(spans_.size());
    for (int d = 0; d < grid.rank; ++d) {
      const QuickDim& dim = footprint.dims[size_t(d)];
      // Code that never runs may be far outside; wrapping keeps the arithmetic defined.
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
    if (access.num_terms == 1) access.term = terms_.back();
    access.num_spans = uint32_t(spans_.size()) - access.first_span;
  }

  void place_in_elements(SiteAccess& access, const Footprint& footprint) {
    access.first_box_dim = uint32_t(box_dims_.size());
    access.num_box_dims = uint32_t(footprint.dims.size());
    for (const QuickDim& dim : footprint.dims) box_dims_.push_back({dim.start, dim.extent});
  }

  /// A box may be written completely, but not the range of memory around it.
  static void pass_over_boxes(const Map& map, const Box& box, Touch how, const sched::Stamp& stamp,
                              sched::WaitList& waits) {
    if (!map.order) return map.boxes->access(box, how, stamp, waits);
    const Touch some = how == Touch::kRead ? Touch::kRead : Touch::kWriteSome;
    map.boxes->access(map.order->range_of(box), some, stamp, waits);
  }

  /// Orders an access after those in the other spaces of its memory.
  void cross(const MarkNumbers& marks, Touch how, const sched::Stamp& stamp, sched::WaitList& waits) {
    const bool writes = how != Touch::kRead;
    find_across(marks, writes, waits);
    (writes ? marks_[marks.own].write : marks_[marks.own].read) = stamp.watermark;
  }

  void find_across(const MarkNumbers& marks, bool writes, sched::WaitList& waits) const {
    for (uint32_t i = marks.first; i < marks.first + marks.count; ++i) {
      if (i == marks.own) continue;
      waits.add_watermark(marks_[i].write);
      if (writes) waits.add_watermark(marks_[i].read);
    }
  }

  /// x / step, rounded down, for x >= 0. Steps are usually powers of two, and a division takes as long as a
  /// short task.
  static int64_t divide(int64_t x, int64_t step) {
    return (step & (step - 1)) == 0 ? x >> __builtin_ctzll(uint64_t(step)) : x / step;
  }

  /// The cells that a box meets; false if it is empty.
  static bool find_cells(const Map& map, const Box& elements, CellBox& box) {
    for (int d = 0; d < map.grid.rank; ++d) {
      if (elements.lo[d] >= elements.hi[d]) return false;
      if (map.grid.cells[d] == 1) continue;
      const int64_t first = divide(elements.lo[d], map.grid.step[d]);
      const int64_t last = divide(elements.hi[d] - 1, map.grid.step[d]);
      box.first += first * map.grid.cell_stride[d];
      add_cells(box, last - first + 1, map.grid.cell_stride[d], map.grid.cells[d]);
    }
    return true;
  }

  static void pass_over_cells(const Map& map, const CellBox& box, Touch how, const sched::Stamp& stamp,
                              sched::WaitList& waits) {
    if (how == Touch::kRead) {
      map.dense->read_widely(box, stamp, waits);
    } else {
      map.dense->access(box, how, stamp, waits);
    }
  }

  // Separate from `access`, whose usual path needs few registers.
  [[gnu::noinline]] void access_box(const SiteAccess& access, const int64_t* registers,
                                    const sched::Stamp& stamp, sched::WaitList& waits) {
    if (access.dense != nullptr) {
      access.dense->access(cell_box(access, registers), access.how, stamp, waits);
    } else if (access.rows >= 0 && access.boxes != nullptr) {
      for_boxes(plan_, row_footprints_[size_t(access.rows)], registers, [&](const Box& row) {
        access.boxes->access(access.order ? access.order->range_of(row) : row, access.how, stamp, waits);
      });
    } else if (access.boxes != nullptr) {
      access.boxes->access(element_box(access, registers), access.how, stamp, waits);
    }
    if (access.marks.count > 1) cross(access.marks, access.how, stamp, waits);
  }

  int64_t first_cell(const SiteAccess& access, const int64_t* registers) const {
    auto cell = uint64_t(access.first_cell);
    if (access.num_terms == 1)
      return int64_t(cell + uint64_t(access.term.coef) * uint64_t(registers[access.term.reg]));
    const bytecode::Term* term = terms_.data() + access.first_term;
    for (uint32_t i = 0; i < access.num_terms; ++i)
      cell += uint64_t(term[i].coef) * uint64_t(registers[term[i].reg]);
    return int64_t(cell);
  }

  CellBox cell_box(const SiteAccess& access, const int64_t* registers) const {
    CellBox box;
    box.first = first_cell(access, registers);
    for (uint32_t i = 0; i < access.num_spans; ++i) add_span(box, spans_[access.first_span + i], registers);
    return box;
  }

  void add_span(CellBox& box, const Span& span, const int64_t* registers) const {
    const int64_t extent = plan_.evaluate(span.extent, registers);
    add_cells(box, extent <= 0 ? 0 : (extent - 1) / span.step + 1, span.stride, span.cells);
  }

  /// Adds a dimension. Merges it with the outer one if both are one run of cells.
  static void add_cells(CellBox& box, int64_t count, int64_t stride, int64_t cells) {
    if (count == 1) return;
    if (box.num_dims > 0 && count == cells && box.stride[box.num_dims - 1] == count * stride) {
      box.extent[box.num_dims - 1] *= count;
      box.stride[box.num_dims - 1] = stride;
      return;
    }
    box.extent[box.num_dims] = count;
    box.stride[box.num_dims++] = stride;
  }

  Box element_box(const SiteAccess& access, const int64_t* registers) const {
    Box box;
    for (uint32_t d = 0; d < access.num_box_dims; ++d) {
      const BoxDim& dim = box_dims_[access.first_box_dim + d];
      box.lo[d] = plan_.evaluate(dim.start, registers);
      box.hi[d] = box.lo[d] + plan_.evaluate(dim.extent, registers);
    }
    if (access.order != nullptr) return access.order->range_of(box);
    return box;
  }

  const Plan& plan_;
  const Deps deps_;
  std::vector<SiteAccess> accesses_;  ///< by site
  std::vector<SiteAccesses> sites_;   ///< where they are
  std::vector<bytecode::Term> terms_;
  std::vector<Span> spans_;
  std::vector<BoxDim> box_dims_;
  std::vector<Footprint> row_footprints_;
  std::vector<LatestAccesses> marks_;
  std::vector<Map> maps_;         ///< per space
  std::vector<Memory> memories_;  ///< per group
  std::vector<std::unique_ptr<DenseMap>> dense_;
  std::vector<std::unique_ptr<BoxMap>> boxes_;
};

}  // namespace pto::wsp::graph
