// SPDX-License-Identifier: MIT
/// \file
/// The accesses of the tasks of a plan, and the coordinates in which they are compared.
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::graph {

using bytecode::Plan;
using bytecode::QuickDim;
using bytecode::QuickIo;
using bytecode::QuickRows;

/// The access of a site through one argument: a box in a space, or the rows of a box in a row set.
struct Footprint {
  uint32_t site;
  bool writes;
  std::vector<QuickDim> dims;
  bool reads = true;
  uint32_t tensor = 0;        ///< of the argument
  int32_t row_io = -1;        ///< the argument, if it is a row set whose rows are compared one by one
  uint32_t num_row_dims = 0;  ///< of that row set: the dimensions that an index counts over
};

/// Coordinates in which accesses to a memory are compared. Boxes of a tensor are compared in its elements. If
/// all accesses are row sets of one index tensor with distinct indices, positions of indices are compared.
/// Other row sets are compared row by row, as boxes, if no task writes their indices. Otherwise a row set
/// counts as all rows, or positions are compared if the rows are known to differ. Dimensions after the rows
/// are compared as they are. Accesses in different spaces of one memory always count as overlapping.
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
  explicit SpaceFinder(const Plan& plan) : plan_(plan), keys_(plan.layouts.size()), is_mixed_(keys_.size()) {}

  std::vector<Space> run() {
    for (const QuickIo& io : plan_.ios) note_key(plan_.layouts[io.tensor].group, key_of(io));
    for (uint32_t site = 0; site < plan_.sites.size(); ++site) {
      for (uint32_t i = 0; i < plan_.sites[site].num_io; ++i)
        add_io(site, plan_.ios[plan_.sites[site].first_io + i]);
    }
    return std::move(spaces_);
  }

 private:
  /// The space of an argument whose rows are not compared one by one.
  Space::Key key_of(const QuickIo& io) const {
    const uint32_t group = plan_.layouts[io.tensor].group;
    if (io.rows < 0) return {group, 0, 0};
    const QuickRows& rows = plan_.rows[size_t(io.rows)];
    const uint64_t indices = plan_.layouts[rows.tensor].group;
    return {group, rows.is_distinct ? 2 + indices : 1, rows.num_merged};
  }

  void note_key(uint32_t group, const Space::Key& key) {
    constexpr uint64_t kUnlike = 1;
    is_mixed_[group] =
        is_mixed_[group] || std::get<1>(key) == kUnlike || (keys_[group] && *keys_[group] != key);
    keys_[group] = key;
  }

  void add_io(uint32_t site, const QuickIo& io) {
    const bytecode::TensorLayout& layout = plan_.layouts[io.tensor];
    const auto dim = plan_.dims.begin() + io.first_dim;
    const bool writes = io.role != Role::in, reads = io.role != Role::out;
    if (io.rows < 0) {
      const std::vector<int64_t> size(layout.shape, layout.shape + io.rank);
      return add(key_of(io), size, {site, writes, {dim, dim + io.rank}, reads, io.tensor});
    }
    const QuickRows& rows = plan_.rows[size_t(io.rows)];
    if (is_mixed_[layout.group] && !rows.is_written) return add_rows(site, io);
    const bytecode::TensorLayout& indices = plan_.layouts[rows.tensor];
    Footprint footprint{site, writes, {dim + rows.num_merged, dim + io.rank}, reads, io.tensor};
    footprint.dims[0] = rows.is_distinct ? dim[0] : whole(1);
    std::vector<int64_t> size(layout.shape + rows.num_merged, layout.shape + io.rank);
    size[0] = rows.is_distinct ? indices.shape[0] : 1;
    add(key_of(io), size, std::move(footprint));
    // The kernel reads the indices while it runs.
    if (rows.is_written)
      add({indices.group, 0, 0}, {indices.shape[0], indices.shape[1]},
          {site, false, {dim[0], whole(1)}, true, rows.tensor});
  }

  void add_rows(uint32_t site, const QuickIo& io) {
    const bytecode::TensorLayout& layout = plan_.layouts[io.tensor];
    const auto dim = plan_.dims.begin() + io.first_dim;
    Footprint footprint{
        site, io.role != Role::in, {dim, dim + io.rank}, io.role != Role::out, uint32_t{io.tensor}};
    footprint.row_io = int32_t(&io - plan_.ios.data());
    footprint.num_row_dims = plan_.rows[size_t(io.rows)].num_merged + 1u;
    for (uint32_t d = 0; d < footprint.num_row_dims; ++d) footprint.dims[d] = whole(layout.shape[d]);
    add({layout.group, 0, 0}, {layout.shape, layout.shape + io.rank}, std::move(footprint));
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
  std::vector<std::optional<Space::Key>> keys_;  ///< per memory, of its last argument
  std::vector<bool> is_mixed_;                   ///< per memory: some row sets cannot be compared by position
  std::vector<Space> spaces_;
};

}  // namespace detail

/// Returns every space in which tasks of the plan access memory.
inline std::vector<Space> find_spaces(const Plan& plan) { return detail::SpaceFinder(plan).run(); }

}  // namespace pto::wsp::graph
