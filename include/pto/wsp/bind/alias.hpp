// SPDX-License-Identifier: MIT
/// \file
/// Finds aliases among the bound arrays: identical views share a group, partial overlap is an error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pto/wsp/abi.hpp"

namespace pto::wsp::bind {

/// An array of the caller. Strides are in bytes and may have any sign until `check_array` accepts it.
struct ArrayRef {
  void* data = nullptr;
  DType dtype = DType::f32;
  int rank = 0;
  bool is_read_only = false;
  int64_t shape[kMaxTensorRank] = {};
  int64_t stride_bytes[kMaxTensorRank] = {};

  bool is_empty() const {
    return std::any_of(shape, shape + rank, [](int64_t n) { return n == 0; });
  }
};

enum class Overlap { kNone, kSome, kUndecided };

namespace detail {

/// A summand `coef * x` of the overlap equation, 0 <= x <= max.
struct Summand {
  int64_t coef;
  int64_t max;
};

/// Decides whether a sum of summands (coefficients descending, positive) can be `target`.
class SumSearch {
 public:
  explicit SumSearch(std::vector<Summand> summands, int64_t budget)
      : summands_(std::move(summands)), budget_(budget) {
    rest_max_.assign(summands_.size() + 1, 0);
    rest_gcd_.assign(summands_.size() + 1, 0);
    for (size_t i = summands_.size(); i-- > 0;) {
      rest_max_[i] = rest_max_[i + 1] + summands_[i].coef * summands_[i].max;
      rest_gcd_[i] = std::__gcd(rest_gcd_[i + 1], summands_[i].coef);
    }
  }

  Overlap run(int64_t target) { return search(0, target); }

 private:
  /// Recursion is as deep as there are summands: at most two per dimension and two for the element's bytes.
  Overlap search(size_t i, int64_t target) {
    if (target < 0 || target > rest_max_[i]) return Overlap::kNone;
    if (target == 0) return Overlap::kSome;
    if (i == summands_.size() || target % rest_gcd_[i] != 0) return Overlap::kNone;
    const Summand s = summands_[i];
    const int64_t slack = target - rest_max_[i + 1];
    const int64_t first = slack > 0 ? (slack - 1) / s.coef + 1 : 0;
    const int64_t last = std::min(s.max, target / s.coef);
    for (int64_t x = first; x <= last; ++x) {
      if (--budget_ < 0) return Overlap::kUndecided;
      const Overlap found = search(i + 1, target - s.coef * x);
      if (found != Overlap::kNone) return found;
    }
    return Overlap::kNone;
  }

  std::vector<Summand> summands_;
  std::vector<int64_t> rest_max_;
  std::vector<int64_t> rest_gcd_;
  int64_t budget_;
};

inline int64_t span_bytes(const ArrayRef& array) {
  int64_t span = dtype_bytes(array.dtype);
  for (int d = 0; d < array.rank; ++d) span += (array.shape[d] - 1) * array.stride_bytes[d];
  return span;
}

inline void add_summands(const ArrayRef& array, std::vector<Summand>& out) {
  for (int d = 0; d < array.rank; ++d) out.push_back({array.stride_bytes[d], array.shape[d] - 1});
  out.push_back({1, dtype_bytes(array.dtype) - 1});
}

inline std::vector<Summand> merged(std::vector<Summand> summands) {
  std::sort(summands.begin(), summands.end(), [](Summand a, Summand b) { return a.coef > b.coef; });
  std::vector<Summand> out;
  for (const Summand& s : summands) {
    if (s.coef == 0 || s.max == 0) continue;
    if (!out.empty() && out.back().coef == s.coef) {
      out.back().max += s.max;
    } else {
      out.push_back(s);
    }
  }
  return out;
}

}  // namespace detail

inline bool is_same_view(const ArrayRef& a, const ArrayRef& b) {
  if (a.data != b.data || a.dtype != b.dtype || a.rank != b.rank) return false;
  return std::equal(a.shape, a.shape + a.rank, b.shape) &&
         std::equal(a.stride_bytes, a.stride_bytes + a.rank, b.stride_bytes);
}

/// Whether two arrays share a byte; exact within `budget` steps. \pre strides are not negative
inline Overlap find_overlap(const ArrayRef& a, const ArrayRef& b, int64_t budget = 100000) {
  if (a.is_empty() || b.is_empty()) return Overlap::kNone;
  const auto a0 = reinterpret_cast<intptr_t>(a.data), b0 = reinterpret_cast<intptr_t>(b.data);
  if (a0 + detail::span_bytes(a) <= b0 || b0 + detail::span_bytes(b) <= a0) return Overlap::kNone;
  // a0 + sum(sa * i) + u == b0 + sum(sb * j) + v, with j and v counted from their ends so that all signs are
  // plus.
  std::vector<detail::Summand> summands;
  detail::add_summands(a, summands);
  detail::add_summands(b, summands);
  const int64_t target = b0 - a0 + detail::span_bytes(b) - 1;
  return detail::SumSearch(detail::merged(std::move(summands)), budget).run(target);
}

}  // namespace pto::wsp::bind
