// SPDX-License-Identifier: MIT
/// \file
/// `IterationSpace`: a product of dimensions, walked by one linear index (spec 3.2).
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "dim.hpp"

namespace pto {
namespace runtime {

/// A product of dimensions.
///
/// Linear order: dimension 0 varies fastest, index = c0 + s0 * (c1 + s1 * (c2 + ...)).
/// (`WorkPlanner::generate` has its own order: batch, head, chunk, with the chunk innermost.) A dynamic
/// dimension that was never set, or was set below 0, counts as size 0 in products.
///
/// \tparam Dims `Dim<>` specializations.
template <typename... Dims>
class IterationSpace {
  static_assert((is_dim<Dims>::value && ...), "IterationSpace: every parameter is a Dim<> specialization");

 public:
  static constexpr size_t num_dims = sizeof...(Dims);
  using DimsTuple = std::tuple<Dims...>;

  constexpr IterationSpace() = default;

  /// Sets the run-time size of dimension `I`, which must be dynamic.
  template <size_t I>
  constexpr void set_dim(int size) {
    static_assert(I < num_dims, "IterationSpace::set_dim: no such dimension");
    if constexpr (I < num_dims) {
      static_assert(std::tuple_element_t<I, DimsTuple>::is_dynamic,
                    "IterationSpace::set_dim: this dimension has a static size");
      std::get<I>(dims_).size = size;
    }
  }

  /// \return the size of dimension `I`; `DYNAMIC` if it is dynamic and was never set.
  template <size_t I>
  constexpr int get_dim() const {
    static_assert(I < num_dims, "IterationSpace::get_dim: no such dimension");
    if constexpr (I < num_dims) return std::get<I>(dims_).get_size();
  }

  /// \return the product of all sizes, or `INT_MAX` if it does not fit an int; 1 for no dimensions.
  /// \complexity O(num_dims)
  constexpr int total_work() const {
    return static_cast<int>(total_work_64() < INT_MAX ? total_work_64() : INT_MAX);
  }

  /// \return the product of all sizes, or `INT64_MAX` if it does not fit.
  constexpr int64_t total_work_64() const {
    return std::apply([](const auto&... dim) { return saturating_product({extent(dim)..., 1}); }, dims_);
  }

  /// Writes the coordinates of a linear index.
  /// \pre `0 <= work_idx < total_work()`; `coords` has room for `num_dims` entries.
  /// \post `coords[i]` is the coordinate in dimension i; all are -1 if the index lies outside the space.
  constexpr void index_to_coords(int work_idx, int* coords) const {
    int rest = work_idx;
    bool inside = work_idx >= 0;
    size_t i = 0;
    auto step = [&](const auto& dim) {
      const int size = extent(dim);
      inside = inside && size > 0;
      coords[i++] = inside ? rest % size : -1;
      if (inside) rest /= size;
    };
    std::apply([&](const auto&... dim) { (step(dim), ...); }, dims_);
    if (inside && rest == 0) return;
    for (size_t j = 0; j < num_dims; ++j) coords[j] = -1;
  }

  /// The inverse of `index_to_coords`.
  /// \return the linear index, or -1 if a coordinate lies outside its dimension or the index does not fit an
  /// int.
  constexpr int coords_to_index(const int* coords) const {
    int64_t index = 0;
    int64_t stride = 1;
    size_t i = 0;
    auto step = [&](const auto& dim) {
      const int coord = coords[i++];
      const int size = extent(dim);
      if (index < 0 || coord < 0 || coord >= size || (coord > 0 && stride > INT_MAX)) {
        index = -1;
        return;
      }
      index += coord * stride;
      if (index > INT_MAX) index = -1;
      if (stride <= INT_MAX) stride *= size;
    };
    std::apply([&](const auto&... dim) { (step(dim), ...); }, dims_);
    return static_cast<int>(index);
  }

 private:
  template <typename D>
  static constexpr int extent(const D& dim) {
    return dim.get_size() > 0 ? dim.get_size() : 0;
  }

  /// The last factor is 1, so that the list is never empty. A zero anywhere wins over an overflow.
  static constexpr int64_t saturating_product(const int64_t (&factors)[num_dims + 1]) {
    int64_t product = 1;
    for (const int64_t factor : factors) {
      if (factor == 0) return 0;
      product = product > INT64_MAX / factor ? INT64_MAX : product * factor;
    }
    return product;
  }

  DimsTuple dims_;
};

/// Whether `T` is an `IterationSpace<>`.
template <typename T>
struct is_iteration_space : std::false_type {};
template <typename... Dims>
struct is_iteration_space<IterationSpace<Dims...>> : std::true_type {};

template <int Batch = DYNAMIC, int Head = DYNAMIC, int Chunk = DYNAMIC>
using AttentionSpace = IterationSpace<Dim<Batch>, Dim<Head>, Dim<Chunk>>;

template <int Batch = DYNAMIC, int Expert = DYNAMIC>
using MoESpace = IterationSpace<Dim<Batch>, Dim<Expert>>;

}  // namespace runtime
}  // namespace pto
