// SPDX-License-Identifier: MIT
/// \file
/// Scalar arithmetic of kernels: i64 with floor division and modulo, where overflow and division by zero set
/// `failed` and give 0, and f32 rounded after every operation.
#pragma once

#include "pto/wsp/tile/move.hpp"
#include "pto/wsp/tile/ops.hpp"

namespace pto::wsp::tile {

inline int64_t at_least_zero(int64_t a) { return a < 0 ? 0 : a; }

/// The variable of a `for` loop; `step` is positive.
struct Counter {
  int64_t value;
  int64_t stop;
  int64_t step;

  bool more() const { return value < stop; }
  void advance() {
    if (__builtin_add_overflow(value, step, &value)) value = stop;
  }
};

}  // namespace pto::wsp::tile

namespace pto::wsp::tile::scalar {

inline int64_t add(int64_t a, int64_t b, bool& failed) {
  int64_t r;
  failed |= __builtin_add_overflow(a, b, &r);
  return r;
}
inline int64_t sub(int64_t a, int64_t b, bool& failed) {
  int64_t r;
  failed |= __builtin_sub_overflow(a, b, &r);
  return r;
}
inline int64_t mul(int64_t a, int64_t b, bool& failed) {
  int64_t r;
  failed |= __builtin_mul_overflow(a, b, &r);
  return r;
}
inline int64_t floordiv(int64_t a, int64_t b, bool& failed) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) {
    failed = true;
    return 0;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
inline int64_t mod(int64_t a, int64_t b, bool& failed) {
  if (b == 0) {
    failed = true;
    return 0;
  }
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/// Bits that are lost are an overflow, as if it were a multiplication by a power of 2.
inline int64_t lshift(int64_t a, int64_t b, bool& failed) {
  if (b < 0 || b > 63) {
    failed = true;
    return 0;
  }
  const int64_t r = static_cast<int64_t>(static_cast<uint64_t>(a) << b);
  failed |= (r >> b) != a;
  return r;
}
inline int64_t rshift(int64_t a, int64_t b, bool& failed) {
  if (b < 0 || b > 63) {
    failed = true;
    return 0;
  }
  return a >> b;
}
inline int64_t neg(int64_t a, bool& failed) { return sub(0, a, failed); }
inline int64_t u64(int64_t a, bool& failed) {
  failed |= a < 0;
  return a;
}
inline int64_t to_i64(float a, bool& failed) {
  if (a >= -0x1p63f && a < 0x1p63f) return static_cast<int64_t>(a);
  failed = true;
  return 0;
}

/// The element of an integer view at the given indices; outside of the view, or of i64, is a failure.
template <class T, class... Indices>
inline int64_t element(const View& view, bool& failed, Indices... indices) {
  const int64_t at[] = {indices...};
  int64_t offset = 0;
  for (int d = 0; d < static_cast<int>(sizeof...(indices)); ++d) {
    if (at[d] < 0 || at[d] >= view.shape[d]) {
      failed = true;
      return 0;
    }
    offset += (d == 0 && view.rows ? view.rows[at[0]] : at[d]) * view.stride[d];
  }
  const T value = static_cast<const T*>(view.data)[offset];
  failed |= sizeof(T) == 8 && T(-1) > T(0) && static_cast<int64_t>(value) < 0;
  return static_cast<int64_t>(value);
}

/// The element of a tile at [row, col]; outside of its valid part is a failure.
template <class T>
inline auto element(const Tile<T>& tile, bool& failed, int64_t row, int64_t col) {
  const bool is_inside = inside(row, 1, tile.rows) && inside(col, 1, tile.cols);
  failed |= !is_inside;
  if constexpr (tile::Element<T>::kFloat) {
    return is_inside ? load_splat(tile.row(row) + col)[0] : 0.0f;
  } else if constexpr (tile::Element<T>::kBool) {
    return is_inside && tile.row(row)[col].bits != 0;
  } else {
    return is_inside ? static_cast<int64_t>(tile.row(row)[col]) : int64_t{0};
  }
}

inline float mod(float a, float b, bool& failed) {
  failed |= b == 0.0f;
  const double r = remainder(a, b);
  if (r == 0.0) return __builtin_copysignf(0.0f, b);
  return static_cast<float>((r < 0) != (b < 0) ? r + b : r);
}
inline float floordiv(float a, float b, bool& failed) {
  failed |= b == 0.0f;
  const double rest = remainder(a, b);
  const double quotient = (static_cast<double>(a) - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
  if (!(quotient > -0x1p62 && quotient < 0x1p62)) return static_cast<float>(quotient);
  // The quotient is whole up to its own rounding.
  const double whole = static_cast<double>(static_cast<int64_t>(quotient + (quotient < 0 ? -0.5 : 0.5)));
  return static_cast<float>(whole == 0 ? __builtin_copysign(0.0, static_cast<double>(a) / b) : whole);
}

/// Python's min and max: the first operand where they compare equal.
template <class T>
inline T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
inline T max(T a, T b) {
  return b > a ? b : a;
}

}  // namespace pto::wsp::tile::scalar
