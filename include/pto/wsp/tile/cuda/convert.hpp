// SPDX-License-Identifier: MIT
/// \file
/// Conversion between element types, on values: the same meanings as tile/convert.hpp.
#pragma once

#include "pto/wsp/tile/cuda/ops.hpp"

namespace pto::wsp::cuda {

/// How a float is rounded: `none` as conversions do by themselves, else to nearest even, to nearest with ties
/// away from zero, down, up, toward zero.
enum class Round { none, rint, round, floor, ceil, trunc };

/// The nearest whole number in that direction, with the sign of `a`.
template <Round kMode>
PTO_DEVICE_INLINE float whole(float a) {
  const uint32_t sign = bits_of(a) & 0x80000000u;
  const float size = abs(a);
  if (!(size < 0x1p23f)) return a;
  const float down = static_cast<float>(static_cast<int32_t>(size));
  float r = down;
  if constexpr (kMode == Round::rint) r = (size + 0x1p23f) - 0x1p23f;
  if constexpr (kMode == Round::round) r = size - down >= 0.5f ? down + 1.0f : down;
  if constexpr (kMode == Round::floor) r = sign != 0 && down < size ? down + 1.0f : down;
  if constexpr (kMode == Round::ceil) r = sign == 0 && down < size ? down + 1.0f : down;
  return float_of(bits_of(r) | sign);
}

template <class T>
struct Bits16;
template <>
struct Bits16<F16> {
  PTO_DEVICE_INLINE static uint32_t of(float a) { return f16_bits(a); }
  PTO_DEVICE_INLINE static float value(uint32_t bits) { return f16_value(static_cast<uint16_t>(bits)); }
};
template <>
struct Bits16<Bf16> {
  PTO_DEVICE_INLINE static uint32_t of(float a) { return bf16_bits(a); }
  PTO_DEVICE_INLINE static float value(uint32_t bits) { return bf16_value(static_cast<uint16_t>(bits)); }
};

/// The neighbour of `a` among the values of `T` that the mode asks for: the nearest one, or the next to it.
template <class T, Round kMode>
PTO_DEVICE_INLINE float narrowed_by(float a) {
  const uint32_t nearest = Bits16<T>::of(a);
  const float found = abs(Bits16<T>::value(nearest)), size = abs(a);
  const bool is_negative = (bits_of(a) >> 31) != 0;
  int step = 0;  // to the next larger size: 1, to the next smaller one: -1
  if constexpr (kMode == Round::trunc) step = -(found > size);
  if constexpr (kMode == Round::floor) step = is_negative ? found < size : -(found > size);
  if constexpr (kMode == Round::ceil) step = is_negative ? -(found > size) : found < size;
  if constexpr (kMode == Round::round) {
    const float next = abs(Bits16<T>::value(nearest + 1u));
    step = found < size && size - found == next - size;
  }
  return Bits16<T>::value(nearest + static_cast<uint32_t>(step));
}

/// A float rounded by a mode to what `To` holds, or to a whole number where `To` is an integer or `From`.
template <class To, class From, Round kMode>
PTO_DEVICE_INLINE float rounded_by(float a) {
  if constexpr (!Element<To>::kFloat || kSame<To, From>) {
    return whole<kMode>(a);
  } else if constexpr (!kSame<To, float>) {
    return narrowed_by<To, kMode>(a);
  } else {
    return a;
  }
}

/// Toward zero, saturating; NaN gives 0.
template <class To>
PTO_DEVICE_INLINE Value<To> saturated(float a) {
  if (a != a) return 0;
  if constexpr (Element<To>::kLong) {
    if (a >= 0x1p63f) return INT64_MAX;
    return a < -0x1p63f ? INT64_MIN : static_cast<int64_t>(a);
  } else {
    constexpr int kBits = Element<To>::kBits - (Element<To>::kSigned ? 1 : 0);
    constexpr int64_t kHigh = (int64_t{1} << kBits) - 1, kLow = Element<To>::kSigned ? -kHigh - 1 : 0;
    if (a >= static_cast<float>(int64_t{1} << kBits)) return static_cast<Value<To>>(kHigh);
    if (a <= static_cast<float>(kLow)) return static_cast<Value<To>>(kLow);
    return static_cast<Value<To>>(static_cast<int64_t>(a));
  }
}

/// Elements of type `From` as `To`; a float result is rounded to f32, not yet to a smaller type.
template <class To, class From, Round kMode = Round::none>
PTO_DEVICE_INLINE Value<To> convert(Value<From> a) {
  if constexpr (kMode != Round::none) {
    return convert<To, From>(rounded_by<To, From, kMode>(a));
  } else if constexpr (Element<To>::kBool) {
    return a != Value<From>{};
  } else if constexpr (Element<From>::kFloat && !Element<To>::kFloat) {
    return saturated<To>(a);
  } else if constexpr (Element<To>::kFloat || Element<From>::kFloat) {
    return static_cast<float>(a);
  } else {
    return rounded<To>(static_cast<Value<To>>(a));
  }
}

}  // namespace pto::wsp::cuda
