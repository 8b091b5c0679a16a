// SPDX-License-Identifier: MIT
/// \file
/// Integers of 8 and 16 bits in lanes of their own width, for loops without wider values. A vector holds two
/// or four times as many as with lanes of 32 bits. Arithmetic wraps.
#pragma once

#include "pto/wsp/tile/ops.hpp"

namespace pto::wsp::tile {

template <class T>
struct NarrowVector {
  typedef T Type __attribute__((vector_size(4 * PTO_LANES)));
};
template <class T>
using Narrow = typename NarrowVector<T>::Type;

template <class T>
inline constexpr int64_t kNarrowLanes = 4 * PTO_LANES / int64_t(sizeof(T));

template <class T>
PTO_INLINE inline Narrow<T> load_narrow(const T* p, Full) {
  Narrow<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T>
PTO_INLINE inline Narrow<T> load_narrow(const T* p, Tail n) {
  return get<Narrow<T>>(p, n);
}

#define PTO_NARROW(T, Unsigned)                                                   \
  typedef Narrow<T> Narrow_##T;                                                   \
  PTO_INLINE inline Narrow_##T splat_narrow(T x) { return Narrow_##T{} + x; }     \
  template <class N>                                                              \
  PTO_INLINE inline void store(T* p, Narrow_##T v, N n) {                         \
    put(p, v, n);                                                                 \
  }                                                                               \
  PTO_INLINE inline Narrow_##T add(Narrow_##T a, Narrow_##T b) {                  \
    return (Narrow_##T)((Narrow<Unsigned>)a + (Narrow<Unsigned>)b);               \
  }                                                                               \
  PTO_INLINE inline Narrow_##T sub(Narrow_##T a, Narrow_##T b) {                  \
    return (Narrow_##T)((Narrow<Unsigned>)a - (Narrow<Unsigned>)b);               \
  }                                                                               \
  PTO_INLINE inline Narrow_##T mul(Narrow_##T a, Narrow_##T b) {                  \
    return (Narrow_##T)((Narrow<Unsigned>)a * (Narrow<Unsigned>)b);               \
  }                                                                               \
  PTO_INLINE inline Narrow_##T neg(Narrow_##T a) { return sub(Narrow_##T{}, a); } \
  PTO_INLINE inline Narrow_##T abs(Narrow_##T a) { return max(a, T(-1) < T{} ? neg(a) : a); }
PTO_NARROW(int8_t, uint8_t)
PTO_NARROW(uint8_t, uint8_t)
PTO_NARROW(int16_t, uint16_t)
PTO_NARROW(uint16_t, uint16_t)
#undef PTO_NARROW

}  // namespace pto::wsp::tile
