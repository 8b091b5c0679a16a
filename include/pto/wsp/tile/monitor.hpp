// SPDX-License-Identifier: MIT
/// \file
/// The connection of running kernels to the engine: stop requests, failed checks, and printing.
#pragma once

#include "pto/wsp/abi.hpp"

namespace pto::wsp::tile {

/// Whether the run must end. Loops ask in each iteration, which usually costs two loads and a comparison.
inline bool must_stop(const TaskContext* context) {
  Monitor* monitor = context->monitor;
  const bool is_due = __atomic_load_n(monitor->ticks, __ATOMIC_RELAXED) != monitor->seen_ticks;
  return __builtin_expect(is_due, false) && monitor->is_stopped(monitor);
}

/// The end of a range, for a failed check; the largest number if it exceeds 64 bits.
inline int64_t stop_of(int64_t start, int64_t extent) {
  int64_t stop;
  return __builtin_add_overflow(start, extent, &stop) ? INT64_MAX : stop;
}

inline int64_t check_value(int64_t value) { return value; }
inline int64_t check_value(int32_t value) { return value; }
inline int64_t check_value(bool value) { return value ? 1 : 0; }
inline int64_t check_value(float value) {
  Scalar bits{0};
  bits.f32 = value;
  return bits.i64;
}

/// Stores the values of a failed check, and returns its number.
template <class... Values>
[[gnu::noinline, gnu::cold]] int32_t failed(const TaskContext* context, int32_t number, Values... values) {
  static_assert(sizeof...(Values) <= kMaxCheckValues, "a check keeps no more");
  int64_t* kept = context->monitor->values;
  ((*kept++ = check_value(values)), ...);
  return number;
}

inline Printed printed(const char* text) { return {Printed::Kind::text, DType::u8, text, {0}, 0, 0, 0}; }
inline Printed printed(int64_t value) {
  return {Printed::Kind::scalar, DType::i64, nullptr, {value}, 0, 0, 0};
}
inline Printed printed(bool value) {
  return {Printed::Kind::scalar, DType::b1, nullptr, {value ? 1 : 0}, 0, 0, 0};
}
inline Printed printed(float value) {
  Scalar scalar{0};
  scalar.f32 = value;
  return {Printed::Kind::scalar, DType::f32, nullptr, scalar, 0, 0, 0};
}
/// The valid part of a tile.
template <class Tile>
Printed printed(DType dtype, const Tile& tile) {
  return {Printed::Kind::tile, dtype, tile.data, {0}, tile.rows, tile.cols, tile.stride};
}

/// Prints parts as one piece.
template <int32_t kParts>
void print(const TaskContext* context, const char* kernel, const Printed (&parts)[kParts]) {
  context->monitor->print(context->monitor, context, kernel, parts, kParts);
}

}  // namespace pto::wsp::tile
