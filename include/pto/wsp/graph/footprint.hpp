// SPDX-License-Identifier: MIT
/// \file
/// What the tasks of a plan touch, and how two accesses to one memory are compared.
#pragma once

#include <tuple>
#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::graph {

using bytecode::Plan;
using bytecode::QuickDim;
using bytecode::QuickIo;
using bytecode::QuickRows;

/// What the tasks of a site touch through one argument: a box in a space.
struct Footprint {
  uint32_t site;
  bool writes;
  std::vector<QuickDim> dims;
  bool reads = true;
  uint32_t tensor = 0;  ///< of the argument
};

/// Coordinates in which accesses to a memory are compared. Boxes of a tensor are compared in its elements.
/// Row sets of one index tensor are compared in the positions of their indices if no two indices are equal,
/// and otherwise as if each were all rows; dimensions after the rows are compared as they are. Accesses in
/// different spaces of one memory always count as overlapping.
struct Space {
  /// The memory; 0 for boxes, 1 for row sets of equal indices, 2 + memory of the indices otherwise; and how
  /// many dimensions rows count over.
  using Key = std::tuple<uint32_t, uint64_t, int>;

  Key key;
  std::vector<int64_t> size;
  std::vector<Footprint> footprints{};
  bool is_written = false;

  uint32_t group() const { return std::get<0>(key); }
  bool is_boxes() const { return std::get<1>(key) == 0; }
};

namespace detail {

class SpaceFinder {
 public:
  explicit SpaceFinder(const Plan& plan) : plan_(plan) {}

  std::vector<Space> run() {
    for (uint32_t site = 0; site < plan_.sites.size(); ++site) {
      for (uint32_t i = 0; i < plan_.sites[site].num_io; ++i)
        add_io(site, plan_.ios[plan_.sites[site].first_io + i]);
    }
    return std::move(spaces_);
  }

 private:
  void add_io(uint32_t site, const QuickIo& io) {
    const bytecode::TensorLayout& layout = plan_.layouts[io.tensor];
    const auto dim = plan_.dims.begin() + io.first_dim;
    const bool writes = io.role != Role::in, reads = io.role != Role::out;
    if (io.rows < 0) {
      const std::vector<int64_t> size(layout.shape, layout.shape + io.rank);
      return add({layout.group, 0, 0}, size, {site, writes, {dim, dim + io.rank}, reads, io.tensor});
    }
    const QuickRows& rows = plan_.rows[size_t(io.rows)];
    const bytecode::TensorLayout& indices = plan_.layouts[rows.tensor];
    Footprint footprint{site, writes, {dim + rows.num_merged, dim + io.rank}, reads, io.tensor};
    footprint.dims[0] = rows.is_distinct ? dim[0] : whole(1);
    std::vector<int64_t> size(layout.shape + rows.num_merged, layout.shape + io.rank);
    size[0] = rows.is_distinct ? indices.shape[0] : 1;
    add({layout.group, rows.is_distinct ? 2 + uint64_t(indices.group) : 1, rows.num_merged}, size,
        std::move(footprint));
    // The kernel reads the indices while it runs.
    if (rows.is_written)
      add({indices.group, 0, 0}, {indices.shape[0], indices.shape[1]},
          {site, false, {dim[0], whole(1)}, true, rows.tensor});
  }

  static QuickDim whole(int64_t size) {
    QuickDim dim{};
    dim.op = bytecode::Op::DIM_FULL;
    dim.extent.c0 = size;
    dim.start_form = bytecode::constant_value(0);
    dim.extent_form = bytecode::constant_value(size);
    return dim;
  }

  void add(const Space::Key& key, const std::vector<int64_t>& size, Footprint footprint) {
    auto space = std::find_if(spaces_.begin(), spaces_.end(), [&](const Space& s) { return s.key == key; });
    if (space == spaces_.end()) space = spaces_.insert(spaces_.end(), {key, size});
    space->is_written = space->is_written || footprint.writes;
    space->footprints.push_back(std::move(footprint));
  }

  const Plan& plan_;
  std::vector<Space> spaces_;
};

}  // namespace detail

/// Every space in which tasks of the plan touch memory.
inline std::vector<Space> find_spaces(const Plan& plan) { return detail::SpaceFinder(plan).run(); }

}  // namespace pto::wsp::graph
