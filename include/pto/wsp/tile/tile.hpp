// SPDX-License-Identifier: MIT
/// \file
/// The tile library: the rows of the instruction table as functions of whole tiles, under their names.
///
/// For kernels written by hand; see docs/tile_library.md. The destination comes first, and its valid shape
/// must be that of the result. Another shape, an index outside, or an unsorted operand of a merge ends the
/// kernel with an error. Results equal those of generated code bit for bit, except for the order of terms in
/// a sum over a single column.
#pragma once

#include "pto/wsp/tile/arena.hpp"
#include "pto/wsp/tile/convert.hpp"
#include "pto/wsp/tile/each.hpp"
#include "pto/wsp/tile/math.hpp"
#include "pto/wsp/tile/matmul.hpp"
#include "pto/wsp/tile/move.hpp"
#include "pto/wsp/tile/quantised.hpp"
#include "pto/wsp/tile/sort.hpp"

namespace pto::wsp::tile {

// --- moving -----------------------------------------------------------------------------------------------

template <class T>
void load(const Tile<T>& to, const Window<T>& from) {
  detail::require_shape(to, from);
  copy(from, to.data, to.stride);
}
template <class T, class U>
void load(const Tile<T>& to, const TensorView<U, 2>& from) {
  load(to, window(from));
}
template <class T>
void store(const Window<T>& to, const Tile<T>& from) {
  detail::require_shape(to, from);
  write(to, from);
}
template <class T>
void store(const TensorView<T, 2>& to, const Tile<T>& from) {
  store(window(to), from);
}

namespace detail {

/// The rows of a window that one row or column of numbers names.
template <class T>
Window<T> picked(const Window<T>& from, const Tile<int32_t>& numbers, Arena& arena) {
  detail::require(numbers.rows == 1 || (numbers.cols == 1 && numbers.stride == 1),
                  "row numbers are one row or column");
  const int64_t count = numbers.rows * numbers.cols;
  const Window<T> found = pick(from, numbers, count, from.index ? arena.array<int32_t>(count) : nullptr);
  detail::require(found.rows >= 0, "a row outside of the view is named");
  return found;
}

}  // namespace detail

/// Row i of the tile is row numbers[i] of the window.
template <class T>
void gather(const Tile<T>& to, const Window<T>& from, const Tile<int32_t>& numbers, Arena arena) {
  load(to, detail::picked(from, numbers, arena));
}
template <class T, class U>
void gather(const Tile<T>& to, const TensorView<U, 2>& from, const Tile<int32_t>& numbers, Arena arena) {
  gather(to, window(from), numbers, arena);
}
/// Row i of the tile goes to row numbers[i] of the window; the last of equal rows wins.
template <class T>
void scatter(const Window<T>& to, const Tile<int32_t>& numbers, const Tile<T>& from, Arena arena) {
  store(detail::picked(to, numbers, arena), from);
}
template <class T>
void scatter(const TensorView<T, 2>& to, const Tile<int32_t>& numbers, const Tile<T>& from, Arena arena) {
  scatter(window(to), numbers, from, arena);
}

template <class T>
void mov(const Tile<T>& to, const Tile<T>& a) {
  detail::require_shape(to, a);
  copy(a, to.data, to.stride);
}
template <class T>
void transpose(const Tile<T>& to, const Tile<T>& a) {
  detail::require_shape(to, a.cols, a.rows);
  transpose(to.data, to.stride, a);
}
/// The elements in row-major order as another shape; `to` is not the operand.
template <class T>
void reshape(const Tile<T>& to, const Tile<T>& a) {
  detail::require(unchecked::reshape(to, a), "the tile has not as many elements as its new shape");
}
/// The part of `a` that starts at [row, col]; `to` is not the operand.
template <class T>
void extract(const Tile<T>& to, const Tile<T>& a, int64_t row, int64_t col) {
  detail::require(unchecked::extract(to, a, row, col), "the part reaches outside of the tile");
}
/// `a` with `part` in the place that starts at [row, col]; `to` is not an operand.
template <class T>
void insert(const Tile<T>& to, const Tile<T>& a, const Tile<T>& part, int64_t row, int64_t col) {
  detail::require_shape(to, a);
  detail::require(unchecked::insert(to, a, part, row, col), "the part reaches outside of the tile");
}
/// `a` with `scalar` at [row, col]; `to` may be the operand.
template <class T, class S>
void setval(const Tile<T>& to, const Tile<T>& a, int64_t row, int64_t col, S scalar) {
  detail::require_shape(to, a);
  detail::require(unchecked::setval(to, a, row, col, detail::splat_as<T>(scalar)),
                  "the element lies outside of the valid part of the tile");
}
template <class T>
void rowexpand(const Tile<T>& to, const Tile<T>& column) {
  detail::require_shape(column, to.rows, 1);
  for (int64_t i = 0; i < to.rows; ++i) {
    for (int64_t j = 0; j < to.cols; ++j) to.row(i)[j] = column.row(i)[0];
  }
}
template <class T>
void colexpand(const Tile<T>& to, const Tile<T>& row) {
  detail::require_shape(row, 1, to.cols);
  repeat(to, row);
}
template <class T, class S>
void expands(const Tile<T>& to, S scalar) {
  const auto value = detail::splat_as<T>(scalar);
  detail::each(to, [&] { return value; });
}
/// start + j in column j of every row.
template <class T>
void iota(const Tile<T>& to, T start) {
  for (int64_t i = 0; i < to.rows; ++i) {
    columns(to.cols, [&](int64_t j, auto n) PTO_INLINE { store(to.row(i) + j, iota(splat(start), j), n); });
  }
}

// --- elementwise ------------------------------------------------------------------------------------------

#define PTO_UNARY(name)                                             \
  template <class T>                                                \
  void name(const Tile<T>& to, const Tile<T>& a) {                  \
    detail::each(to, [](auto x) PTO_INLINE { return name(x); }, a); \
  }
PTO_UNARY(abs)
PTO_UNARY(neg)
PTO_UNARY(relu)
PTO_UNARY(bitwise_not)
PTO_UNARY(recip)
PTO_UNARY(sqrt)
PTO_UNARY(rsqrt)
PTO_UNARY(exp)
PTO_UNARY(expm1)
PTO_UNARY(log)
PTO_UNARY(log1p)
PTO_UNARY(tanh)
PTO_UNARY(erf)
PTO_UNARY(sigmoid)
PTO_UNARY(silu)
PTO_UNARY(gelu)
#undef PTO_UNARY

#define PTO_BINARY(name)                                                          \
  template <class T>                                                              \
  void name(const Tile<T>& to, const Tile<T>& a, const Tile<T>& b) {              \
    detail::each(to, [](auto x, auto y) PTO_INLINE { return name(x, y); }, a, b); \
  }                                                                               \
  template <class T, class S>                                                     \
  void name##s(const Tile<T>& to, const Tile<T>& a, S scalar) {                   \
    const auto y = detail::splat_as<T>(scalar);                                   \
    detail::each(to, [&](auto x) PTO_INLINE { return name(x, y); }, a);           \
  }
PTO_BINARY(add)
PTO_BINARY(sub)
PTO_BINARY(mul)
PTO_BINARY(div)
PTO_BINARY(rem)
PTO_BINARY(max)
PTO_BINARY(min)
PTO_BINARY(bitwise_and)
PTO_BINARY(bitwise_or)
PTO_BINARY(bitwise_xor)
PTO_BINARY(shl)
PTO_BINARY(shr)
#undef PTO_BINARY

template <class T>
void prelu(const Tile<T>& to, const Tile<T>& a, const Tile<T>& slope) {
  detail::each(to, [](F x, F y) PTO_INLINE { return prelu(x, y); }, a, slope);
}
template <class T, class S>
void lrelu(const Tile<T>& to, const Tile<T>& a, S slope) {
  const F y = detail::splat_as<T>(slope);
  detail::each(to, [&](F x) PTO_INLINE { return prelu(x, y); }, a);
}

/// a + b + c and a - b + c; the same with a scalar in the place of b.
#define PTO_TERNARY(name, op)                                                                      \
  template <class T>                                                                               \
  void name##c(const Tile<T>& to, const Tile<T>& a, const Tile<T>& b, const Tile<T>& c) {          \
    detail::each(to, [](auto x, auto y, auto z) PTO_INLINE { return add(op(x, y), z); }, a, b, c); \
  }                                                                                                \
  template <class T, class S>                                                                      \
  void name##sc(const Tile<T>& to, const Tile<T>& a, const Tile<T>& c, S scalar) {                 \
    const auto y = detail::splat_as<T>(scalar);                                                    \
    detail::each(to, [&](auto x, auto z) PTO_INLINE { return add(op(x, y), z); }, a, c);           \
  }
PTO_TERNARY(add, add)
PTO_TERNARY(sub, sub)
#undef PTO_TERNARY

#define PTO_BROADCAST(name)                                                                \
  template <class T>                                                                       \
  void rowexpand##name(const Tile<T>& to, const Tile<T>& a, const Tile<T>& column) {       \
    detail::each_row(to, [](auto x, auto y) PTO_INLINE { return name(x, y); }, a, column); \
  }                                                                                        \
  template <class T>                                                                       \
  void colexpand##name(const Tile<T>& to, const Tile<T>& a, const Tile<T>& row) {          \
    detail::each_col(to, [](auto x, auto y) PTO_INLINE { return name(x, y); }, a, row);    \
  }
PTO_BROADCAST(add)
PTO_BROADCAST(sub)
PTO_BROADCAST(mul)
PTO_BROADCAST(div)
PTO_BROADCAST(max)
PTO_BROADCAST(min)
#undef PTO_BROADCAST

/// What comparisons are called.
enum class Mode { eq, ne, lt, le, gt, ge };

namespace detail {

template <class Body>
void with_comparison(Mode mode, const Body& body) {
  switch (mode) {
    case Mode::eq: return body([](auto a, auto b) PTO_INLINE { return eq(a, b); });
    case Mode::ne: return body([](auto a, auto b) PTO_INLINE { return ne(a, b); });
    case Mode::lt: return body([](auto a, auto b) PTO_INLINE { return lt(a, b); });
    case Mode::le: return body([](auto a, auto b) PTO_INLINE { return le(a, b); });
    case Mode::gt: return body([](auto a, auto b) PTO_INLINE { return gt(a, b); });
    case Mode::ge: return body([](auto a, auto b) PTO_INLINE { return ge(a, b); });
  }
}

}  // namespace detail

template <class T>
void cmp(const Tile<Bool>& to, Mode mode, const Tile<T>& a, const Tile<T>& b) {
  detail::with_comparison(mode, [&](const auto& holds) { detail::each(to, holds, a, b); });
}
template <class T, class S>
void cmps(const Tile<Bool>& to, Mode mode, const Tile<T>& a, S scalar) {
  const auto y = detail::splat_as<T>(scalar);
  detail::with_comparison(
      mode, [&](const auto& holds) { detail::each(to, [&](auto x) PTO_INLINE { return holds(x, y); }, a); });
}
template <class T>
void sel(const Tile<T>& to, const Tile<Bool>& mask, const Tile<T>& a, const Tile<T>& b) {
  detail::each(to, [](I m, auto x, auto y) PTO_INLINE { return select(m, x, y); }, mask, a, b);
}
template <class T, class S>
void sels(const Tile<T>& to, const Tile<Bool>& mask, const Tile<T>& a, S scalar) {
  const auto y = detail::splat_as<T>(scalar);
  detail::each(to, [&](I m, auto x) PTO_INLINE { return select(m, x, y); }, mask, a);
}
/// \tparam kMode how a float is rounded
template <Round kMode = Round::none, class To, class From>
void cvt(const Tile<To>& to, const Tile<From>& a) {
  detail::each(to, [](auto x) PTO_INLINE { return convert<To, From, kMode>(x); }, a);
}

// --- reductions -------------------------------------------------------------------------------------------

#define PTO_REDUCTION(name, op, start, partials)                                                        \
  template <class T>                                                                                    \
  void row##name(const Tile<T>& to, const Tile<T>& a) {                                                 \
    detail::reduce_rows(to, a, detail::start<T>(), [](auto x, auto y) PTO_INLINE { return op(x, y); }); \
  }                                                                                                     \
  template <class T>                                                                                    \
  void col##name(const Tile<T>& to, const Tile<T>& a) {                                                 \
    detail::reduce_cols<partials>(to, a, detail::start<T>(),                                            \
                                  [](auto x, auto y) PTO_INLINE { return op(x, y); });                  \
  }
PTO_REDUCTION(sum, add, zero, 4)
PTO_REDUCTION(max, max, lowest, 1)
PTO_REDUCTION(min, min, highest, 1)
#undef PTO_REDUCTION

template <class T>
void rowargmax(const Tile<int32_t>& to, const Tile<T>& a) {
  detail::require_shape(to, a.rows, 1);
  unchecked::rowargmax(to, a);
}
template <class T>
void rowargmin(const Tile<int32_t>& to, const Tile<T>& a) {
  detail::require_shape(to, a.rows, 1);
  unchecked::rowargmin(to, a);
}

// --- order ------------------------------------------------------------------------------------------------

template <class T>
void sort32(const Tile<int64_t>& to, const Tile<T>& x, const Tile<int32_t>& indices) {
  detail::require_shape(to, x);
  detail::require_shape(indices, x);
  unchecked::sort32(to, x, indices);
}
template <class T>
void sort(const Tile<int64_t>& to, const Tile<T>& x, const Tile<int32_t>& indices, Arena arena) {
  detail::require_shape(to, x);
  detail::require_shape(indices, x);
  unchecked::sort(to, x, indices, arena.array<int64_t>(x.cols));
}
inline void mrgsort(const Tile<int64_t>& to, const Tile<int64_t>& a, int64_t run, Arena arena) {
  detail::require_shape(to, a);
  detail::require(run > 0, "a run has at least one pair");
  detail::require(unchecked::mrgsort(to, a, run, arena.array<int64_t>(a.cols)),
                  "pairs that should be sorted are not");
}
/// `to` is not one of the operands.
inline void merge(const Tile<int64_t>& to, const Tile<int64_t>& a, const Tile<int64_t>& b) {
  detail::require(to.rows == a.rows && to.rows == b.rows, "the valid shapes of the operands do not fit");
  detail::require(to.rows == 0 || (to.data != a.data && to.data != b.data),
                  "a merge cannot overwrite what it merges");
  detail::require(unchecked::merge(to, a, b), "pairs that should be sorted are not");
}
inline void extract_topk_values(const Tile<float>& to, const Tile<int64_t>& pairs) {
  detail::require(to.rows == pairs.rows, "the valid shapes of the operands do not fit");
  unchecked::extract_topk_values(to, pairs);
}
inline void extract_topk_indices(const Tile<int32_t>& to, const Tile<int64_t>& pairs) {
  detail::require(to.rows == pairs.rows, "the valid shapes of the operands do not fit");
  unchecked::extract_topk_indices(to, pairs);
}
/// `to` is not one of the operands.
template <class T>
void take(const Tile<T>& to, const Tile<T>& x, const Tile<int32_t>& indices) {
  detail::require_shape(to, indices);
  detail::require(x.rows == to.rows, "the valid shapes of the operands do not fit");
  detail::require(to.rows == 0 || to.data != x.data, "elements cannot be taken onto themselves");
  detail::require(unchecked::take(to, x, indices), "an index lies outside of its row");
}

/// `x` with values[i][j] at [i][indices[i][j]]; `to` is not an operand.
template <class T>
void put(const Tile<T>& to, const Tile<T>& x, const Tile<T>& values, const Tile<int32_t>& indices) {
  detail::require_shape(to, x);
  detail::require_shape(values, indices);
  detail::require(values.rows == to.rows, "the valid shapes of the operands do not fit");
  detail::require(unchecked::put(to, x, values, indices), "an index lies outside of its row");
}

// --- matrices ---------------------------------------------------------------------------------------------

namespace detail {

/// The destination of a matrix product, which writes whole blocks of columns where there is room for them.
struct Sum {
  Sum(const Tile<float>& tile) : tile(tile), has_room(false) {}
  Sum(const PaddedTile<float>& tile) : tile(tile), has_room(tile.stride % Arena::kPadding == 0) {}

  Tile<float> tile;
  bool has_room;
};

template <class A, class B>
void product(const Sum& to, const Tile<A>& a, const Tile<B>& b, bool accumulate, Arena arena) {
  require_shape(to.tile, a.rows, b.cols);
  detail::require(a.cols == b.rows, "the valid shapes of the operands do not fit");
  float* const panel = arena.array<float>(256 * Arena::kPadding);
  Tile<float> sum = to.tile;
  if (!to.has_room) {
    sum = arena.tile<float>(sum.rows, sum.cols < 2 ? 2 : sum.cols);
    sum.cols = to.tile.cols;
    if (accumulate) copy(to.tile, sum.data, sum.stride);
  }
  matmul<2, 8>(sum, Strided<A, One>{a.data, a.stride, {}}, b, accumulate, 0, panel);
  if (!to.has_room) copy(sum, to.tile.data, to.tile.stride);
}

}  // namespace detail

/// to = a @ b.
template <class A, class B>
void matmul(const detail::Sum& to, const Tile<A>& a, const Tile<B>& b, Arena arena) {
  detail::product(to, a, b, false, arena);
}
/// to += a @ b.
template <class A, class B>
void matmul_acc(const detail::Sum& to, const Tile<A>& a, const Tile<B>& b, Arena arena) {
  detail::product(to, a, b, true, arena);
}

/// to = a @ b + bias, a row.
template <class A, class B>
void matmul_bias(const detail::Sum& to, const Tile<A>& a, const Tile<B>& b, const Tile<float>& bias,
                 Arena arena) {
  colexpand(to.tile, bias);
  detail::product(to, a, b, true, arena);
}

/// Rows rounded to i8 in groups of 32 columns, as bytes.
template <class T>
void quantise(const Tile<uint8_t>& to, const Tile<T>& x) {
  detail::require(to.rows == x.rows, "the valid shapes of the operands do not fit");
  detail::require(unchecked::quantise(to, x), "the rows to quantise are not whole");
}

/// to += x @ w, where w holds blocks of a matrix that is packed in the format Fm. Rows of x are floats, or
/// bytes that `quantise` made.
template <class Fm, class A>
void matmul_quantised(const detail::Sum& to, const Tile<A>& x, const Tile<uint8_t>& w, Arena arena) {
  detail::require_shape(to.tile, x.rows, to.tile.cols);
  detail::require(w.cols % Fm::kColumn == 0 && to.tile.cols <= w.cols / Fm::kColumn,
                  "the quantised matrix has fewer columns than the sum");
  constexpr int64_t kDepth = sizeof(A) > 1 ? Fm::kBlock : quantised::rounded_bytes(Fm::kBlock);
  detail::require(x.cols == w.rows * kDepth,
                  "the left operand has not as many columns as the quantised matrix has rows");
  float* const panel = arena.array<float>(uint64_t(2 * quantised::kDepth * kLanes));
  Tile<float> sum = to.tile;
  if (!to.has_room) {
    sum = arena.tile<float>(sum.rows, sum.cols < 2 ? 2 : sum.cols);
    sum.cols = to.tile.cols;
    copy(to.tile, sum.data, sum.stride);
  }
  matmul_quantised<Fm, 2>(sum, Strided<A, One>{x.data, x.stride, {}}, w, panel);
  if (!to.has_room) copy(sum, to.tile.data, to.tile.stride);
}

}  // namespace pto::wsp::tile
