// SPDX-License-Identifier: MIT
/// \file
/// Element types of tiles in memory, and the values that instructions compute with.
///
/// Floats are computed in f32, integers of 32 bits and less in i32 or u32, masks as bool. Each instruction
/// rounds to the type of its result: `rounded<T>`.
#pragma once

#include "pto/wsp/tile/cuda/device.hpp"

namespace pto::wsp::cuda {

struct F16 {
  uint16_t bits;
};
struct Bf16 {
  uint16_t bits;
};
struct Bool {
  uint8_t bits;
};

template <class A, class B>
inline constexpr bool kSame = false;
template <class A>
inline constexpr bool kSame<A, A> = true;

template <class T>
struct Element {
  static constexpr bool kFloat = false, kBool = false, kLong = sizeof(T) == 8, kSigned = T(-1) < T(0);
  static constexpr int kBits = 8 * sizeof(T);
};
struct FloatElement {
  static constexpr bool kFloat = true, kBool = false, kLong = false, kSigned = true;
};
template <>
struct Element<float> : FloatElement {};
template <>
struct Element<F16> : FloatElement {};
template <>
struct Element<Bf16> : FloatElement {};
template <>
struct Element<Bool> {
  static constexpr bool kFloat = false, kBool = true, kLong = false, kSigned = false;
};

template <class T>
struct ValueOf {
  using Type = int32_t;
};
template <>
struct ValueOf<float> {
  using Type = float;
};
template <>
struct ValueOf<F16> : ValueOf<float> {};
template <>
struct ValueOf<Bf16> : ValueOf<float> {};
template <>
struct ValueOf<Bool> {
  using Type = bool;
};
template <>
struct ValueOf<int64_t> {
  using Type = int64_t;
};
template <>
struct ValueOf<uint32_t> {
  using Type = uint32_t;
};

/// What elements of type `T` are computed in.
template <class T>
using Value = typename ValueOf<T>::Type;

// --- floats of 16 bits ---------------------------------------------------------------------------------

/// To nearest even; NaN stays NaN.
PTO_DEVICE_INLINE uint16_t bf16_bits(float a) {
  const uint32_t bits = bits_of(a);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
PTO_DEVICE_INLINE float bf16_value(uint16_t bits) { return float_of(static_cast<uint32_t>(bits) << 16); }

/// To nearest even; NaN stays NaN.
PTO_DEVICE_INLINE uint16_t f16_bits(float a) {
  const uint32_t bits = bits_of(a), size = bits & 0x7fffffffu;
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  if (size > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (size >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (size < 0x38800000u) {  // subnormal: the sum places the bits, and rounds them
    return static_cast<uint16_t>(sign | (bits_of(float_of(size) + 0.5f) - 0x3f000000u));
  }
  const uint32_t rounded = size + 0xfffu + ((size >> 13) & 1u);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
PTO_DEVICE_INLINE float f16_value(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16, size = bits & 0x7fffu;
  if (size >= 0x7c00u) return float_of(sign | 0x7f800000u | (size & 0x3ffu) << 13);
  if (size < 0x400u) return float_of(sign | bits_of(static_cast<float>(size) * 0x1p-24f));
  return float_of(sign | ((size << 13) + 0x38000000u));
}

// --- between memory and values ------------------------------------------------------------------------

template <class T>
PTO_DEVICE_INLINE Value<T> widened(T a) {
  if constexpr (kSame<T, F16>) {
    return f16_value(a.bits);
  } else if constexpr (kSame<T, Bf16>) {
    return bf16_value(a.bits);
  } else if constexpr (kSame<T, Bool>) {
    return a.bits != 0;
  } else {
    return static_cast<Value<T>>(a);
  }
}

/// What memory holds of a value: floats are rounded to nearest even, integers keep their low bits.
template <class T>
PTO_DEVICE_INLINE T narrowed(Value<T> a) {
  if constexpr (kSame<T, F16>) {
    return F16{f16_bits(a)};
  } else if constexpr (kSame<T, Bf16>) {
    return Bf16{bf16_bits(a)};
  } else if constexpr (kSame<T, Bool>) {
    return Bool{static_cast<uint8_t>(a)};
  } else {
    return static_cast<T>(a);
  }
}

/// The result of an instruction whose tile has elements of type `T`.
template <class T>
PTO_DEVICE_INLINE Value<T> rounded(Value<T> a) {
  return widened(narrowed<T>(a));
}

/// A scalar operand as a value of a tile of `T`.
template <class T, class S>
PTO_DEVICE_INLINE Value<T> operand(S a) {
  if constexpr (Element<T>::kBool) {
    return a != 0;
  } else {
    return rounded<T>(static_cast<Value<T>>(a));
  }
}

}  // namespace pto::wsp::cuda
