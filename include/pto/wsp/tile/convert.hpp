// SPDX-License-Identifier: MIT
/// \file
/// Conversion between element types, on vectors.
#pragma once

#include "pto/wsp/tile/ops.hpp"

namespace pto::wsp::tile {

/// Toward zero, saturating; NaN gives 0.
PTO_INLINE inline I to_int(F a) {
  const I inside = (a >= -0x1p31f) & (a < 0x1p31f);
  const I whole = __builtin_convertvector(inside ? a : F{}, I);
  const I limit = a >= 0x1p31f ? I{} + 0x7fffffff : whole;
  return a < -0x1p31f ? I{} + (-0x7fffffff - 1) : limit;
}
PTO_INLINE inline L to_long(F a) {
  const I inside = (a >= -0x1p63f) & (a < 0x1p63f);
  const L whole = __builtin_convertvector(inside ? a : F{}, L);
  const L limit = select(a >= 0x1p63f, L{} + INT64_MAX, whole);
  return select(a < -0x1p63f, L{} + INT64_MIN, limit);
}

/// A float as an integer type of at most 32 bits, saturating.
template <class T>
PTO_INLINE inline I saturated(F a) {
  constexpr int kBits = Element<T>::kBits;
  if constexpr (kBits == 32) {
    if constexpr (Element<T>::kSigned) return to_int(a);
    return __builtin_convertvector(min(max(to_long(a), L{}), L{} + 0xffffffffll), I);
  } else {
    constexpr int32_t kLow = Element<T>::kSigned ? -(1 << (kBits - 1)) : 0;
    constexpr int32_t kHigh = kLow + ((1 << kBits) - 1);
    return min(max(to_int(a), I{} + kLow), I{} + kHigh);
  }
}

/// Integers of type `T` as 64-bit lanes.
template <class T>
PTO_INLINE inline L widened(I a) {
  const L wide = __builtin_convertvector(a, L);
  if constexpr (Element<T>::kBits == 32 && !Element<T>::kSigned) return wide & 0xffffffffll;
  return wide;
}

// --- rounding modes --------------------------------------------------------------------------------------

/// How a float is rounded: `none` as conversions do by themselves, else to nearest even, to nearest with ties
/// away from zero, down, up, toward zero.
enum class Round { none, rint, round, floor, ceil, trunc };

/// The nearest whole number in that direction, with the sign of `a`.
template <Round kMode>
PTO_INLINE inline F whole(F a) {
  const U sign = (U)a & 0x80000000u;
  const F size = abs(a);
  const F down = __builtin_convertvector(__builtin_convertvector(size < 0x1p23f ? size : F{}, I), F);
  const I is_negative = (I)sign;
  F r = down;
  if constexpr (kMode == Round::rint) r = (size + 0x1p23f) - 0x1p23f;
  if constexpr (kMode == Round::round) r = size - down >= 0.5f ? down + 1.0f : down;
  if constexpr (kMode == Round::floor) r = (is_negative < 0) & (down < size) ? down + 1.0f : down;
  if constexpr (kMode == Round::ceil) r = (is_negative >= 0) & (down < size) ? down + 1.0f : down;
  return size < 0x1p23f ? (F)((U)r | sign) : a;
}

template <class T>
struct Bits16;
template <>
struct Bits16<F16> {
  PTO_INLINE static U of(F a) { return f16_bits(a); }
  PTO_INLINE static F value(U bits) { return f16_value(bits); }
};
template <>
struct Bits16<Bf16> {
  PTO_INLINE static U of(F a) { return bf16_bits(a) >> 16; }
  PTO_INLINE static F value(U bits) { return (F)(bits << 16); }
};

/// The neighbour of `a` among the values of `T` that the mode asks for: the nearest one, or the next to it.
template <class T, Round kMode>
PTO_INLINE inline F narrowed(F a) {
  const U nearest = Bits16<T>::of(a);
  const F found = abs(Bits16<T>::value(nearest)), size = abs(a);
  const I is_negative = (I)a < 0;
  I step{};  // to the next larger size: 1, to the next smaller one: -1
  if constexpr (kMode == Round::trunc) step = found > size;
  if constexpr (kMode == Round::floor) step = is_negative ? -(found < size) : found > size;
  if constexpr (kMode == Round::ceil) step = is_negative ? found > size : -(found < size);
  if constexpr (kMode == Round::round) {
    const F next = abs(Bits16<T>::value(nearest + 1u));
    step = -((found < size) & (size - found == next - size));
  }
  return Bits16<T>::value((U)((I)nearest + step));
}

template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;

/// A float rounded by a mode to what `To` holds, or to a whole number where `To` is an integer or `From`.
template <class To, class From, Round kMode>
PTO_INLINE inline F rounded(F a) {
  if constexpr (!Element<To>::kFloat || kSame<To, From>) return whole<kMode>(a);
  if constexpr (!kSame<To, float> && !kSame<To, From> && Element<To>::kFloat) return narrowed<To, kMode>(a);
  return a;
}

// --- between all types -----------------------------------------------------------------------------------

/// Lanes of 32 bits as those of `T`.
template <class T>
PTO_INLINE inline auto lanes_of(I a) {
  if constexpr (kSame<T, uint32_t>)
    return (U)a;
  else
    return a;
}

/// Elements of type `From` as `To`; a float result is rounded to f32, not yet to a smaller type.
/// Float to integer rounds toward zero where no mode is given and saturates, NaN gives 0; integers keep their
/// low bits.
template <class To, class From, Round kMode = Round::none, class V>
PTO_INLINE inline auto convert(V a) {
  if constexpr (kMode != Round::none) {
    return convert<To, From>(rounded<To, From, kMode>(a));
  } else if constexpr (Element<To>::kBool) {
    if constexpr (Element<From>::kBool) {
      return a;
    } else {
      return ne(a, V{});
    }
  } else if constexpr (Element<From>::kBool) {
    return convert<To, int32_t>(a & 1);
  } else if constexpr (Element<To>::kFloat) {
    if constexpr (Element<From>::kFloat) {
      return a;
    } else {
      return __builtin_convertvector(a, F);
    }
  } else if constexpr (Element<From>::kFloat) {
    if constexpr (Element<To>::kLong) {
      return to_long(a);
    } else {
      return lanes_of<To>(saturated<To>(a));
    }
  } else if constexpr (Element<To>::kLong) {
    if constexpr (Element<From>::kLong) {
      return a;
    } else {
      return widened<From>((I)a);
    }
  } else if constexpr (Element<From>::kLong) {
    return lanes_of<To>(wrapped<To>(__builtin_convertvector(a, I)));
  } else {
    return lanes_of<To>(wrapped<To>((I)a));
  }
}

}  // namespace pto::wsp::tile
