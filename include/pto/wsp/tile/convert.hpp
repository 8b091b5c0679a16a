// SPDX-License-Identifier: MIT
/// \file
/// Conversion between element types, on vectors.
#pragma once

#include "pto/wsp/tile/ops.hpp"

namespace pto::wsp::tile {

/// What an element type is to a conversion.
template <class T>
struct Element {
  static constexpr bool kFloat = false;
  static constexpr bool kBool = false;
  static constexpr bool kLong = sizeof(T) == 8;
  static constexpr bool kSigned = T(-1) < T(0);
  static constexpr int kBits = 8 * sizeof(T);
};
struct FloatElement {
  static constexpr bool kFloat = true;
  static constexpr bool kBool = false;
};
template <>
struct Element<float> : FloatElement {};
template <>
struct Element<Bf16> : FloatElement {};
template <>
struct Element<F16> : FloatElement {};
template <>
struct Element<Bool> {
  static constexpr bool kFloat = false;
  static constexpr bool kBool = true;
};

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

/// Integers held in `V`, kept to the low bits of `T`.
template <class T>
PTO_INLINE inline I wrapped(I a) {
  constexpr int kRest = 32 - Element<T>::kBits;
  if constexpr (kRest <= 0) return a;
  const U high = (U)a << (kRest & 31);
  if constexpr (Element<T>::kSigned) return (I)high >> (kRest & 31);
  return (I)(high >> (kRest & 31));
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

/// Elements of type `From` as `To`; a float result is rounded to f32, not yet to a smaller type.
/// Float to integer rounds toward zero and saturates, NaN gives 0; integers keep their low bits.
template <class To, class From, class V>
PTO_INLINE inline auto convert(V a) {
  if constexpr (Element<To>::kBool) {
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
    } else if constexpr (Element<From>::kLong || Element<From>::kSigned || Element<From>::kBits < 32) {
      return __builtin_convertvector(a, F);
    } else {
      return __builtin_convertvector((U)a, F);
    }
  } else if constexpr (Element<From>::kFloat) {
    if constexpr (Element<To>::kLong) {
      return to_long(a);
    } else {
      return saturated<To>(a);
    }
  } else if constexpr (Element<To>::kLong) {
    if constexpr (Element<From>::kLong) {
      return a;
    } else {
      return widened<From>(a);
    }
  } else if constexpr (Element<From>::kLong) {
    return wrapped<To>(__builtin_convertvector(a, I));
  } else {
    return wrapped<To>(a);
  }
}

}  // namespace pto::wsp::tile
