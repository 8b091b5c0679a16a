// SPDX-License-Identifier: MIT
/// \file
/// Arrays that planners take: lengths, and tiers that are known at run time.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <climits>
#include <cstdint>
#include <vector>

namespace pto {
namespace python {

namespace nb = nanobind;

using LengthArray = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// Lengths as the planner takes them. 64-bit lengths are narrowed; one that does not fit becomes -1, which
/// every planner call finds invalid.
class LengthView {
 public:
  /// \param copy    whether other threads may change the lengths, which must not change.
  /// \param scratch where copies go; outlives the view.
  LengthView(const LengthArray& lengths, bool copy, std::vector<int>* scratch)
      : count_(static_cast<int>(lengths.size())) {
    if (lengths.size() > static_cast<size_t>(INT_MAX)) throw nb::value_error("more than 2^31 - 1 lengths");
    if (lengths.dtype() == nb::dtype<int32_t>()) {
      data_ = static_cast<const int32_t*>(lengths.data());
      if (!copy) return;
      scratch->assign(data_, data_ + count_);
    } else if (lengths.dtype() == nb::dtype<int64_t>()) {
      const auto* wide = static_cast<const int64_t*>(lengths.data());
      scratch->resize(lengths.size());
      for (size_t i = 0; i < lengths.size(); ++i) {
        (*scratch)[i] = wide[i] >= 0 && wide[i] <= INT_MAX ? static_cast<int>(wide[i]) : -1;
      }
    } else {
      throw nb::type_error("lengths are int32 or int64");
    }
    data_ = scratch->data();
  }

  const int* data() const { return data_; }
  int count() const { return count_; }

 private:
  const int* data_ = nullptr;
  int count_;
};

/// Rows of tier id, smallest size, largest size.
using TierArray = nb::ndarray<const int32_t, nb::shape<-1, 3>, nb::c_contig, nb::device::cpu>;

/// Tiers in order, in memory that someone else keeps.
class TierTable {
 public:
  explicit TierTable(const TierArray& rows)
      : rows_(reinterpret_cast<const Row*>(rows.data())), count_(rows.shape(0)) {}

  int select_tier(int size) const {
    for (size_t i = 0; i < count_; ++i) {
      if (rows_[i].min_size <= size && size <= rows_[i].max_size) return rows_[i].id;
    }
    return -1;
  }

  bool covers(int low, int high) const {
    int64_t uncovered = low;
    for (bool moved = true; moved && uncovered <= high;) {
      moved = false;
      for (size_t i = 0; i < count_; ++i) {
        if (rows_[i].min_size > uncovered || uncovered > rows_[i].max_size) continue;
        uncovered = static_cast<int64_t>(rows_[i].max_size) + 1;
        moved = true;
      }
    }
    return uncovered > high;
  }

 private:
  struct Row {
    int32_t id;
    int32_t min_size;
    int32_t max_size;
  };
  const Row* rows_;
  size_t count_;
};

}  // namespace python
}  // namespace pto
