// SPDX-License-Identifier: MIT
/// \file
/// Checks the indices of row sets.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bytecode {

/// Checks the indices of row sets. One thread at a time uses it.
class RowChecker {
 public:
  /// Checks the `count` indices of a row set `io`; the first is at `position` of the index tensor. Throws
  /// `rows-outside` if an index is not a row, and `rows-repeat` if the row set is written and two are equal.
  void check(const QuickRows& rows, const QuickIo& io, const int32_t* indices, int64_t position,
             int64_t count) {
    for (int64_t i = 0; i < count && !rows.is_inside; ++i) {
      if (indices[i] >= 0 && indices[i] < rows.size) continue;
      throw error("rows-outside", "an index of a row set names no row", rows, io, position + i, indices[i]);
    }
    if (io.role == Role::in || rows.is_distinct || count < 2) return;
    sorted_.assign(indices, indices + count);
    std::sort(sorted_.begin(), sorted_.end());
    const auto twice = std::adjacent_find(sorted_.begin(), sorted_.end());
    if (twice == sorted_.end()) return;
    const int32_t* first = std::find(indices, indices + count, *twice);
    const int32_t* second = std::find(first + 1, indices + count, *twice);
    throw error("rows-repeat", "a row set that a task writes names a row twice", rows, io,
                position + (second - indices), *twice)
        .with_int("first_position", position + (first - indices));
  }

 private:
  static EngineError error(const char* code, const char* message, const QuickRows& rows, const QuickIo& io,
                           int64_t position, int64_t index) {
    return EngineError(code, message)
        .with_int("tensor", io.tensor)
        .with_int("dim", 0)
        .with_int("index_tensor", rows.tensor)
        .with_int("position", position)
        .with_int("index", index)
        .with_int("size", rows.size);
  }

  std::vector<int32_t> sorted_;
};

namespace detail {

/// Whether the values in [0, `size`) among `count` indices are distinct.
inline bool are_distinct(const int32_t* indices, int64_t count, int64_t size) {
  if (size > 64 * count) {
    std::vector<int32_t> sorted(indices, indices + count);
    std::sort(sorted.begin(), sorted.end());
    const auto first = std::lower_bound(sorted.begin(), sorted.end(), 0);
    return std::adjacent_find(first, sorted.end()) == sorted.end();
  }
  std::vector<bool> is_named(size_t(size), false);
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] < 0 || indices[i] >= size) continue;
    if (is_named[size_t(indices[i])]) return false;
    is_named[size_t(indices[i])] = true;
  }
  return true;
}

/// Whether tasks write a row set with indices in memory `indices`.
inline bool are_rows_written(const Plan& plan, uint32_t indices) {
  return std::any_of(plan.ios.begin(), plan.ios.end(), [&](const QuickIo& io) {
    return io.rows >= 0 && io.role != Role::in &&
           plan.layouts[plan.rows[size_t(io.rows)].tensor].group == indices;
  });
}

inline void look_at(const Plan& plan, QuickRows& rows) {
  const TensorLayout& layout = plan.layouts[rows.tensor];
  const int64_t count = layout.shape[0];
  if (rows.is_written || count == 0 || (count > 1 && layout.stride[0] != 1)) return;
  const auto* indices = reinterpret_cast<const int32_t*>(plan.bindings.elements[rows.tensor].base);
  const auto [least, most] = std::minmax_element(indices, indices + count);
  rows.is_inside = *least >= 0 && *most < rows.size;
  rows.is_distinct =
      rows.is_distinct || (are_rows_written(plan, layout.group) && are_distinct(indices, count, rows.size));
}

}  // namespace detail

/// Checks the index tensors that no task writes, once per run: whether all elements are rows, and whether
/// they are distinct if a row set is written. \pre bind_elements
inline void look_at_rows(Plan& plan) {
  for (auto rows = plan.rows.begin(); rows != plan.rows.end(); ++rows) {
    const auto same = std::find_if(plan.rows.begin(), rows, [&](const QuickRows& other) {
      return other.tensor == rows->tensor && other.size == rows->size;
    });
    if (same == rows) {
      detail::look_at(plan, *rows);
    } else {
      rows->is_inside = same->is_inside;
      rows->is_distinct = same->is_distinct;
    }
  }
}

}  // namespace pto::wsp::bytecode
