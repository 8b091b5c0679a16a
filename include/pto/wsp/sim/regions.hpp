// SPDX-License-Identifier: MIT
/// \file
/// Which memory the views of a task name. Regions that begin at the same element with the same strides are
/// the same data; a shorter one is the front of a longer one. Other overlaps are not seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pto/wsp/abi.hpp"
#include "pto/wsp/sim/task.hpp"

namespace pto::wsp::sim {

/// What decides which part of a view a kernel moves, in addition to loops: a task of a paged cache has a view
/// of the whole cache, and reads the pages that its table and its first token choose.
struct Place {
  std::vector<uint32_t> scalars;  ///< numbers of scalar parameters
  std::vector<uint32_t> views;    ///< numbers of views whose elements or extents decide
};

inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9E3779B97F4A7C15u;
  return value ^ (value >> 29);
}

/// Lists the regions of the views of calls.
class Regions {
 public:
  /// \param places  per view, or empty where each view is moved as a whole
  Regions(const KernelInfo& kernel, const View* views, const Scalar* scalars,
          const std::vector<Place>& places)
      : kernel_(kernel), views_(views), scalars_(scalars), places_(places) {}

  /// Adds the regions of a view from and to which a task moves `loaded` and `stored` bytes.
  void add(uint32_t view, uint64_t loaded, uint64_t stored, std::vector<Use>& uses) const {
    const uint64_t moved = loaded + stored;
    if (moved == 0) return;
    const View& of = views_[view];
    const auto itemsize = uint64_t(dtype_bytes(kernel_.params[view].dtype));
    const int rank = kernel_.params[view].rank;
    uint64_t whole = itemsize;
    for (int d = 0; d < rank; ++d) whole *= uint64_t(of.shape[d]);
    const uint64_t extent = std::min(std::max(loaded, stored), whole);
    const uint64_t seed = places_.empty() || extent == whole ? 0 : seed_of(places_[view]);
    const auto data = uint64_t(reinterpret_cast<uintptr_t>(of.data));
    if (of.rows == nullptr) {
      uses.push_back(
          {mix(seed ^ layout_of(of, 0, rank, data)), moved, extent, stored > 0, of.streams, loaded > 0});
      return;
    }
    const auto rows = uint64_t(of.shape[0]);
    for (uint64_t i = 0; i < rows; ++i) {
      const uint64_t row = data + uint64_t(of.rows[i]) * uint64_t(of.stride[0]) * itemsize;
      const Use use{mix(seed ^ layout_of(of, 1, rank, row)),
                    part(moved, i, rows),
                    part(extent, i, rows),
                    stored > 0,
                    of.streams,
                    loaded > 0};
      if (use.bytes > 0) uses.push_back(use);
    }
  }

 private:
  /// Part i of n nearly equal parts of a number of bytes.
  static uint64_t part(uint64_t bytes, uint64_t i, uint64_t n) { return bytes / n + (i < bytes % n ? 1 : 0); }

  /// A hash of where elements lie from `data` on, whatever the extent of the outermost dimension that is not
  /// contiguous with the next one. Contiguous elements have no strides.
  static uint64_t layout_of(const View& view, int first, int rank, uint64_t data) {
    uint64_t hash = mix(data), inner = 0;  // of the block inside: its elements and its stride
    int64_t elements = 1, stride = 1;
    for (int d = rank; d-- > first;) {
      if (view.shape[d] == 1) continue;
      if (view.stride[d] == elements * stride) {
        elements *= view.shape[d];
        continue;
      }
      hash = mix(hash ^ inner ^ uint64_t(elements));
      inner = uint64_t(view.stride[d]) << 20;
      stride = view.stride[d];
      elements = view.shape[d];
    }
    return mix(hash ^ inner);
  }

  uint64_t seed_of(const Place& place) const {
    uint64_t seed = 0;
    for (const uint32_t scalar : place.scalars) seed = mix(seed ^ uint64_t(scalars_[scalar].i64) ^ 1);
    for (const uint32_t number : place.views) {
      const View& view = views_[number];
      seed = mix(seed ^ uint64_t(reinterpret_cast<uintptr_t>(view.data)));
      if (view.rows != nullptr) seed = mix(seed ^ uint64_t(reinterpret_cast<uintptr_t>(view.rows)));
      for (int d = 0; d < kernel_.params[number].rank; ++d) seed = mix(seed ^ uint64_t(view.shape[d]));
    }
    return seed;
  }

  const KernelInfo& kernel_;
  const View* views_;
  const Scalar* scalars_;
  const std::vector<Place>& places_;
};

}  // namespace pto::wsp::sim
