// SPDX-License-Identifier: MIT
/// \file
/// Scalar arithmetic and checks of kernels, with the meanings of tile/scalar.hpp. Each thread of a block
/// computes the same values.
#pragma once

#include "pto/wsp/tile/cuda/ops.hpp"
#include "pto/wsp/tile/cuda/tile.hpp"

namespace pto::wsp::cuda {

PTO_DEVICE_INLINE int64_t at_least_zero(int64_t a) { return a < 0 ? 0 : a; }

namespace scalar {

PTO_DEVICE_INLINE int64_t add(int64_t a, int64_t b, bool& failed) {
  const int64_t r = cuda::add(a, b);
  failed |= ((a ^ r) & (b ^ r)) < 0;
  return r;
}
PTO_DEVICE_INLINE int64_t sub(int64_t a, int64_t b, bool& failed) {
  const int64_t r = cuda::sub(a, b);
  failed |= ((a ^ b) & (a ^ r)) < 0;
  return r;
}
PTO_DEVICE_INLINE int64_t mul(int64_t a, int64_t b, bool& failed) {
  const int64_t r = cuda::mul(a, b);
  const bool is_edge = (a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN);
  failed |= is_edge || (a != 0 && !is_edge && a != -1 && r / a != b);
  return r;
}
PTO_DEVICE_INLINE int64_t floordiv(int64_t a, int64_t b, bool& failed) {
  if (b == 0 || (b == -1 && a == INT64_MIN)) {
    failed = true;
    return 0;
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
PTO_DEVICE_INLINE int64_t mod(int64_t a, int64_t b, bool& failed) {
  if (b == 0) {
    failed = true;
    return 0;
  }
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
PTO_DEVICE_INLINE int64_t lshift(int64_t a, int64_t b, bool& failed) {
  if (b < 0 || b > 63) {
    failed = true;
    return 0;
  }
  const int64_t r = static_cast<int64_t>(static_cast<uint64_t>(a) << b);
  failed |= (r >> b) != a;
  return r;
}
PTO_DEVICE_INLINE int64_t rshift(int64_t a, int64_t b, bool& failed) {
  if (b < 0 || b > 63) {
    failed = true;
    return 0;
  }
  return a >> b;
}
PTO_DEVICE_INLINE int64_t neg(int64_t a, bool& failed) { return sub(0, a, failed); }
PTO_DEVICE_INLINE int64_t u64(int64_t a, bool& failed) {
  failed |= a < 0;
  return a;
}
PTO_DEVICE_INLINE int64_t to_i64(float a, bool& failed) {
  if (a >= -0x1p63f && a < 0x1p63f) return static_cast<int64_t>(a);
  failed = true;
  return 0;
}

/// The element of an integer view at the given indices; outside of the view, or of i64, is a failure.
template <class T, class... Indices>
PTO_DEVICE_INLINE int64_t element(const View& view, bool& failed, Indices... indices) {
  const int64_t at[] = {indices...};
  int64_t offset = 0;
  for (int d = 0; d < static_cast<int>(sizeof...(indices)); ++d) {
    if (at[d] < 0 || at[d] >= view.shape[d]) {
      failed = true;
      return 0;
    }
    offset += (d == 0 && view.rows != nullptr ? view.rows[at[0]] : at[d]) * view.stride[d];
  }
  const T value = static_cast<const T*>(view.data)[offset];
  failed |= sizeof(T) == 8 && T(-1) > T(0) && static_cast<int64_t>(value) < 0;
  return static_cast<int64_t>(value);
}

template <class T>
struct ScalarOf {
  using Type = int64_t;
};
template <>
struct ScalarOf<float> {
  using Type = float;
};
template <>
struct ScalarOf<bool> {
  using Type = bool;
};

/// The element of a tile at [row, col]; outside of its valid part is a failure.
template <class T>
PTO_DEVICE_INLINE typename ScalarOf<Value<T>>::Type element(const Tile<T>& tile, bool& failed, int64_t row,
                                                            int64_t col) {
  const bool is_inside = inside(row, 1, tile.rows) && inside(col, 1, tile.cols);
  failed |= !is_inside;
  return is_inside ? get(tile, row, col) : Value<T>{};
}

PTO_DEVICE_INLINE float mod(float a, float b, bool& failed) {
  failed |= b == 0.0f;
  const double r = rem(a, b);
  if (r == 0.0) return float_of((bits_of(b) & 0x80000000u));
  return static_cast<float>((r < 0) != (b < 0) ? r + b : r);
}
PTO_DEVICE_INLINE float floordiv(float a, float b, bool& failed) {
  failed |= b == 0.0f;
  const double rest = rem(a, b);
  const double quotient = (static_cast<double>(a) - rest) / b - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
  if (!(quotient > -0x1p62 && quotient < 0x1p62)) return static_cast<float>(quotient);
  // The quotient is whole up to its own rounding.
  const double whole = static_cast<double>(static_cast<int64_t>(quotient + (quotient < 0 ? -0.5 : 0.5)));
  if (whole != 0) return static_cast<float>(whole);
  return float_of((bits_of(a) ^ bits_of(b)) & 0x80000000u);
}

/// Python's min and max: the first operand where they compare equal.
template <class T>
PTO_DEVICE_INLINE T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
PTO_DEVICE_INLINE T max(T a, T b) {
  return b > a ? b : a;
}

}  // namespace scalar

/// The variable of a `for` loop; `step` is positive.
struct Counter {
  int64_t value, stop, step;

  PTO_DEVICE_INLINE bool more() const { return value < stop; }
  PTO_DEVICE_INLINE void advance() {
    bool failed = false;
    value = scalar::add(value, step, failed);
    if (failed) value = stop;
  }
  /// This counter some iterations later.
  PTO_DEVICE_INLINE Counter later(int iterations) const {
    Counter found = *this;
    PTO_UNROLL for (int k = 0; k < iterations; ++k) found.advance();
    return found;
  }
};

/// The end of a range, for a failed check; the largest number if it exceeds 64 bits.
PTO_DEVICE_INLINE int64_t stop_of(int64_t start, int64_t extent) {
  bool failed = false;
  const int64_t stop = scalar::add(start, extent, failed);
  return failed ? INT64_MAX : stop;
}

PTO_DEVICE_INLINE int64_t check_value(int64_t value) { return value; }
PTO_DEVICE_INLINE int64_t check_value(int32_t value) { return value; }
PTO_DEVICE_INLINE int64_t check_value(bool value) { return value ? 1 : 0; }
PTO_DEVICE_INLINE int64_t check_value(float value) { return bits_of(value); }

/// Stores the values of a failed check, and returns its number.
template <class... Values>
PTO_DEVICE inline int32_t failed(const TaskContext* context, int32_t number, Values... values) {
  static_assert(sizeof...(Values) <= kMaxCheckValues, "a check keeps no more");
  if (thread() == 0) {
    int64_t* kept = context->monitor->values;
    ((*kept++ = check_value(values)), ...);
  }
  return number;
}

/// Shared memory of the block, from `offset` bytes on.
template <class T>
PTO_DEVICE_INLINE T* scratch(const TaskContext* context, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(context->scratch) + offset);
}

/// Global memory of the block, from `offset` bytes on, for tiles that do not fit shared memory.
template <class T>
PTO_DEVICE_INLINE T* spilled(const TaskContext* context, int64_t offset) {
  return reinterpret_cast<T*>(static_cast<char*>(context->workspace) + offset);
}

}  // namespace pto::wsp::cuda
