// SPDX-License-Identifier: MIT
/// \file
/// The exact elementwise instructions on values. Integers wrap. No operand traps.
#pragma once

#include "pto/wsp/tile/cuda/elements.hpp"

namespace pto::wsp::cuda {

PTO_DEVICE_INLINE float add(float a, float b) { return a + b; }
PTO_DEVICE_INLINE float sub(float a, float b) { return a - b; }
PTO_DEVICE_INLINE float mul(float a, float b) { return a * b; }
PTO_DEVICE_INLINE float div(float a, float b) { return a / b; }
PTO_DEVICE_INLINE float neg(float a) { return -a; }
PTO_DEVICE_INLINE float abs(float a) { return float_of(bits_of(a) & 0x7fffffffu); }

PTO_DEVICE_INLINE int32_t add(int32_t a, int32_t b) { return int32_t(uint32_t(a) + uint32_t(b)); }
PTO_DEVICE_INLINE int32_t sub(int32_t a, int32_t b) { return int32_t(uint32_t(a) - uint32_t(b)); }
PTO_DEVICE_INLINE int32_t mul(int32_t a, int32_t b) { return int32_t(uint32_t(a) * uint32_t(b)); }
PTO_DEVICE_INLINE int32_t neg(int32_t a) { return int32_t(0u - uint32_t(a)); }
PTO_DEVICE_INLINE uint32_t add(uint32_t a, uint32_t b) { return a + b; }
PTO_DEVICE_INLINE uint32_t sub(uint32_t a, uint32_t b) { return a - b; }
PTO_DEVICE_INLINE uint32_t mul(uint32_t a, uint32_t b) { return a * b; }
PTO_DEVICE_INLINE uint32_t neg(uint32_t a) { return 0u - a; }
PTO_DEVICE_INLINE int64_t add(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
PTO_DEVICE_INLINE int64_t sub(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
PTO_DEVICE_INLINE int64_t mul(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }
PTO_DEVICE_INLINE int64_t neg(int64_t a) { return int64_t(0u - uint64_t(a)); }
PTO_DEVICE_INLINE uint32_t abs(uint32_t a) { return a; }
template <class V>
PTO_DEVICE_INLINE V abs(V a) {
  return a < 0 ? neg(a) : a;
}

/// NaN where an operand is.
PTO_DEVICE_INLINE float max(float a, float b) {
  const float other = a != a ? a : b;
  return a > other ? a : other;
}
PTO_DEVICE_INLINE float min(float a, float b) {
  const float other = a != a ? a : b;
  return a < other ? a : other;
}
template <class V>
PTO_DEVICE_INLINE V max(V a, V b) {
  return a > b ? a : b;
}
template <class V>
PTO_DEVICE_INLINE V min(V a, V b) {
  return a < b ? a : b;
}
template <class V>
PTO_DEVICE_INLINE V relu(V a) {
  return max(a, V{});
}
PTO_DEVICE_INLINE float prelu(float a, float slope) { return a > 0.0f ? a : a * slope; }
PTO_DEVICE_INLINE float recip(float a) { return 1.0f / a; }

template <class V>
PTO_DEVICE_INLINE V bitwise_and(V a, V b) {
  return static_cast<V>(a & b);
}
template <class V>
PTO_DEVICE_INLINE V bitwise_or(V a, V b) {
  return static_cast<V>(a | b);
}
template <class V>
PTO_DEVICE_INLINE V bitwise_xor(V a, V b) {
  return static_cast<V>(a ^ b);
}
template <class V>
PTO_DEVICE_INLINE V bitwise_not(V a) {
  return ~a;
}
PTO_DEVICE_INLINE bool bitwise_not(bool a) { return !a; }

/// Amounts below 0 or beyond the bits shift out all bits; `rounded` handles narrower types.
PTO_DEVICE_INLINE uint32_t shl(uint32_t a, uint32_t b) { return b < 32u ? a << b : 0u; }
PTO_DEVICE_INLINE int32_t shl(int32_t a, int32_t b) { return int32_t(shl(uint32_t(a), uint32_t(b))); }
PTO_DEVICE_INLINE int64_t shl(int64_t a, int64_t b) {
  return uint64_t(b) < 64u ? int64_t(uint64_t(a) << b) : int64_t{0};
}
PTO_DEVICE_INLINE uint32_t shr(uint32_t a, uint32_t b) { return b < 32u ? a >> b : 0u; }
PTO_DEVICE_INLINE int32_t shr(int32_t a, int32_t b) { return a >> (uint32_t(b) < 31u ? b : 31); }
PTO_DEVICE_INLINE int64_t shr(int64_t a, int64_t b) { return a >> (uint64_t(b) < 63u ? b : 63); }

/// Quotient toward zero; x / 0 is 0 and the minimum by -1 wraps.
template <class V>
PTO_DEVICE_INLINE V div(V a, V b) {
  if (b == 0) return V{};
  return b == V(-1) ? neg(a) : static_cast<V>(a / b);
}
PTO_DEVICE_INLINE uint32_t div(uint32_t a, uint32_t b) { return b == 0 ? 0u : a / b; }

/// Remainder with the sign of `a`; x rem 0 is 0.
template <class V>
PTO_DEVICE_INLINE V rem(V a, V b) {
  return b == 0 ? V{} : sub(a, mul(div(a, b), b));
}

/// Exact remainder of the truncated quotient of two floats, with the sign of `a`.
PTO_DEVICE inline float rem(float a, float b) {
  uint32_t ua = bits_of(a), ub = bits_of(b);
  const uint32_t sign = ua & 0x80000000u;
  ua &= 0x7fffffffu;
  ub &= 0x7fffffffu;
  if (ua >= 0x7f800000u || ub > 0x7f800000u || ub == 0) return float_of(0x7fc00000u);
  if (ua < ub) return a;
  const int a_exponent = ua >> 23 ? static_cast<int>(ua >> 23) : 1;
  const int b_exponent = ub >> 23 ? static_cast<int>(ub >> 23) : 1;
  const uint64_t divisor = (ub & 0x7fffffu) | (ub >> 23 ? 0x800000u : 0u);
  uint64_t rest = ((ua & 0x7fffffu) | (ua >> 23 ? 0x800000u : 0u)) % divisor;
  for (int shift = a_exponent - b_exponent; shift > 0 && rest != 0; shift -= 32) {
    rest = (rest << (shift < 32 ? shift : 32)) % divisor;
  }
  int scale = b_exponent;
  while (rest != 0 && rest < 0x800000u && scale > 1) {
    rest <<= 1;
    --scale;
  }
  const uint32_t biased = rest < 0x800000u ? 0u : static_cast<uint32_t>(scale);
  return float_of(sign | (biased << 23) | (static_cast<uint32_t>(rest) & 0x7fffffu));
}

template <class V>
PTO_DEVICE_INLINE bool eq(V a, V b) {
  return a == b;
}
template <class V>
PTO_DEVICE_INLINE bool ne(V a, V b) {
  return a != b;
}
template <class V>
PTO_DEVICE_INLINE bool lt(V a, V b) {
  return a < b;
}
template <class V>
PTO_DEVICE_INLINE bool le(V a, V b) {
  return a <= b;
}
template <class V>
PTO_DEVICE_INLINE bool gt(V a, V b) {
  return a > b;
}
template <class V>
PTO_DEVICE_INLINE bool ge(V a, V b) {
  return a >= b;
}
template <class V>
PTO_DEVICE_INLINE V select(bool mask, V a, V b) {
  return mask ? a : b;
}

/// start + j; wraps.
template <class V>
PTO_DEVICE_INLINE V iota(V start, int64_t j) {
  return add(start, static_cast<V>(j));
}

}  // namespace pto::wsp::cuda
