// SPDX-License-Identifier: MIT
/// \file
/// Loops over whole tiles, for the functions of tile.hpp: elementwise, with a row or a column that is
/// repeated, and reductions. Shapes that do not fit end the kernel with an error.
#pragma once

#include <limits>
#include <type_traits>

#include "pto/wsp/tile/arena.hpp"
#include "pto/wsp/tile/ops.hpp"

namespace pto::wsp::tile {

namespace detail {

template <class A, class B>
void require_shape(const A& a, const B& b) {
  detail::require(a.rows == b.rows && a.cols == b.cols, "the valid shapes of the operands do not fit");
}
template <class T>
void require_shape(const Tile<T>& tile, int64_t rows, int64_t cols) {
  detail::require(tile.rows == rows && tile.cols == cols, "the valid shapes of the operands do not fit");
}

/// The type of a lane of the vectors that elements of an integer type are computed in.
template <class T>
struct LaneType {
  typedef std::conditional_t<sizeof(T) == 8, int64_t,
                             std::conditional_t<std::is_same_v<T, uint32_t>, T, int32_t>>
      Type;
};

/// The vectors that elements are computed in.
template <class T>
using VectorOf = decltype(load(static_cast<const T*>(nullptr), Full{}));

/// A scalar as a vector of the elements of a tile: rounded to a float type, in the range of an integer one.
template <class T, class S>
PTO_INLINE inline auto splat_as(S scalar) {
  static_assert(std::is_arithmetic_v<S>);
  if constexpr (std::is_same_v<T, F16>) {
    return round_f16(splat(static_cast<float>(scalar)));
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return round_bf16(splat(static_cast<float>(scalar)));
  } else if constexpr (std::is_same_v<T, float>) {
    return splat(static_cast<float>(scalar));
  } else if constexpr (std::is_same_v<T, Bool>) {
    return splat(scalar != S{});
  } else {
    static_assert(std::is_integral_v<S>, "a float is not an element of an integer tile");
    const bool fits =
        static_cast<S>(static_cast<T>(scalar)) == scalar && (static_cast<T>(scalar) < T{}) == (scalar < S{});
    detail::require(fits, "a scalar is beyond the range of its tile's type");
    return splat(static_cast<typename LaneType<T>::Type>(scalar));
  }
}

/// to[i][j] = op(operands[i][j]...).
template <class To, class Op, class... From>
PTO_INLINE inline void each(const Tile<To>& to, const Op& op, const Tile<From>&... from) {
  (require_shape(to, from), ...);
  for (int64_t i = 0; i < to.rows; ++i) {
    columns(to.cols,
            [&](int64_t j, auto n) PTO_INLINE { store(to.row(i) + j, op(load(from.row(i) + j, n)...), n); });
  }
}

/// to[i][j] = op(a[i][j], row[0][j]).
template <class T, class Op>
PTO_INLINE inline void each_col(const Tile<T>& to, const Op& op, const Tile<T>& a, const Tile<T>& row) {
  require_shape(to, a);
  require_shape(row, 1, a.cols);
  for (int64_t i = 0; i < to.rows; ++i) {
    columns(to.cols, [&](int64_t j, auto n) PTO_INLINE {
      store(to.row(i) + j, op(load(a.row(i) + j, n), load(row.row(0) + j, n)), n);
    });
  }
}

/// to[i][j] = op(a[i][j], column[i][0]).
template <class T, class Op>
PTO_INLINE inline void each_row(const Tile<T>& to, const Op& op, const Tile<T>& a, const Tile<T>& column) {
  require_shape(to, a);
  require_shape(column, a.rows, 1);
  for (int64_t i = 0; i < to.rows; ++i) {
    const auto right = load_splat(column.row(i));
    columns(to.cols,
            [&](int64_t j, auto n) PTO_INLINE { store(to.row(i) + j, op(load(a.row(i) + j, n), right), n); });
  }
}

template <class T, class V, class Op>
PTO_INLINE inline void reduce_rows(const Tile<T>& to, const Tile<T>& a, V start, const Op& op) {
  require_shape(to, a.rows, 1);
  for (int64_t i = 0; i < a.rows; ++i) {
    V total = start;
    columns(a.cols,
            [&](int64_t j, auto n) PTO_INLINE { total = op(keep(load(a.row(i) + j, n), n, start), total); });
    store(to.row(i), fold(total, op), First{});
  }
}

/// \tparam kPartials row i goes to partial result i % kPartials, which bounds the error of a sum
template <int kPartials, class T, class V, class Op>
PTO_INLINE inline void reduce_cols(const Tile<T>& to, const Tile<T>& a, V start, const Op& op) {
  require_shape(to, 1, a.cols);
  columns(a.cols, [&](int64_t j, auto n) PTO_INLINE {
    V partial[kPartials];
    for (int p = 0; p < kPartials; ++p) partial[p] = start;
    for (int64_t i = 0; i < a.rows; ++i)
      partial[i % kPartials] = op(load(a.row(i) + j, n), partial[i % kPartials]);
    for (int left = kPartials; left > 1; left /= 2) {
      for (int p = 0; p < left / 2; ++p) partial[p] = op(partial[2 * p], partial[2 * p + 1]);
    }
    store(to.row(0) + j, partial[0], n);
  });
}

template <class T>
PTO_INLINE inline auto lowest() {
  if constexpr (Element<T>::kFloat)
    return splat(-__builtin_inff());
  else
    return splat(static_cast<typename LaneType<T>::Type>(std::numeric_limits<T>::min()));
}
template <class T>
PTO_INLINE inline auto highest() {
  if constexpr (Element<T>::kFloat)
    return splat(__builtin_inff());
  else
    return splat(static_cast<typename LaneType<T>::Type>(std::numeric_limits<T>::max()));
}
template <class T>
PTO_INLINE inline auto zero() {
  return VectorOf<T>{};
}

}  // namespace detail

}  // namespace pto::wsp::tile
