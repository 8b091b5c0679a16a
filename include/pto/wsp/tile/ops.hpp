// SPDX-License-Identifier: MIT
/// \file
/// The exact elementwise instructions on vectors. Integers wrap. No operand traps, because lanes outside the
/// valid part of a tile have undefined contents.
#pragma once

#include "pto/wsp/tile/columns.hpp"

namespace pto::wsp::tile {

/// Properties of an element type for instructions.
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

/// Integers held in `I`, kept to the low bits of `T`.
template <class T>
PTO_INLINE inline I wrapped(I a) {
  constexpr int kRest = 32 - Element<T>::kBits;
  if constexpr (kRest <= 0) return a;
  const U high = (U)a << (kRest & 31);
  if constexpr (Element<T>::kSigned) return (I)high >> (kRest & 31);
  return (I)(high >> (kRest & 31));
}

PTO_INLINE inline F add(F a, F b) { return a + b; }
PTO_INLINE inline F sub(F a, F b) { return a - b; }
PTO_INLINE inline F mul(F a, F b) { return a * b; }
PTO_INLINE inline F div(F a, F b) { return a / b; }
PTO_INLINE inline I add(I a, I b) { return (I)((U)a + (U)b); }
PTO_INLINE inline I sub(I a, I b) { return (I)((U)a - (U)b); }
PTO_INLINE inline I mul(I a, I b) { return (I)((U)a * (U)b); }
PTO_INLINE inline U add(U a, U b) { return a + b; }
PTO_INLINE inline U sub(U a, U b) { return a - b; }
PTO_INLINE inline U mul(U a, U b) { return a * b; }
PTO_INLINE inline L add(L a, L b) { return (L)((UL)a + (UL)b); }
PTO_INLINE inline L sub(L a, L b) { return (L)((UL)a - (UL)b); }
PTO_INLINE inline L mul(L a, L b) { return (L)((UL)a * (UL)b); }

PTO_INLINE inline F neg(F a) { return -a; }
PTO_INLINE inline I neg(I a) { return (I)(U{} - (U)a); }
PTO_INLINE inline U neg(U a) { return U{} - a; }
PTO_INLINE inline L neg(L a) { return (L)(UL{} - (UL)a); }
PTO_INLINE inline F abs(F a) { return (F)((U)a & 0x7fffffffu); }
PTO_INLINE inline U abs(U a) { return a; }
template <class V>
PTO_INLINE inline V abs(V a) {
  return a < 0 ? neg(a) : a;
}

/// a > b ? a : b and a < b ? a : b, which g++ 12 makes a comparison and a choice of.
PTO_INLINE inline F greater(F a, F b) {
#if defined(__AVX512F__) && PTO_LANES == 16 && !defined(__clang__)
  return __builtin_ia32_maxps512_mask(a, b, b, -1, 4);
#elif defined(__AVX__) && PTO_LANES == 8 && !defined(__clang__)
  return __builtin_ia32_maxps256(a, b);
#elif defined(__SSE__) && PTO_LANES == 4 && !defined(__clang__)
  return __builtin_ia32_maxps(a, b);
#else
  return a > b ? a : b;
#endif
}
PTO_INLINE inline F lesser(F a, F b) {
#if defined(__AVX512F__) && PTO_LANES == 16 && !defined(__clang__)
  return __builtin_ia32_minps512_mask(a, b, b, -1, 4);
#elif defined(__AVX__) && PTO_LANES == 8 && !defined(__clang__)
  return __builtin_ia32_minps256(a, b);
#elif defined(__SSE__) && PTO_LANES == 4 && !defined(__clang__)
  return __builtin_ia32_minps(a, b);
#else
  return a < b ? a : b;
#endif
}

/// NaN where an operand is. `b` is compared once and waited for by nothing else: a result so far belongs
/// there.
PTO_INLINE inline F max(F a, F b) { return greater(a, a != a ? a : b); }
PTO_INLINE inline F min(F a, F b) { return lesser(a, a != a ? a : b); }
template <class V>
PTO_INLINE inline V max(V a, V b) {
  return a > b ? a : b;
}
template <class V>
PTO_INLINE inline V min(V a, V b) {
  return a < b ? a : b;
}
template <class V>
PTO_INLINE inline V relu(V a) {
  return max(a, V{});
}
PTO_INLINE inline F prelu(F a, F slope) { return a > 0.0f ? a : a * slope; }

PTO_INLINE inline F recip(F a) { return 1.0f / a; }
PTO_INLINE inline F sqrt(F a) {
  F r;
  for (int l = 0; l < kLanes; ++l) r[l] = __builtin_sqrtf(a[l]);
  return r;
}

// --- bits: of masks too, whose lanes are 0 or -1 ---------------------------------------------------------

template <class V>
PTO_INLINE inline V bitwise_and(V a, V b) {
  return a & b;
}
template <class V>
PTO_INLINE inline V bitwise_or(V a, V b) {
  return a | b;
}
template <class V>
PTO_INLINE inline V bitwise_xor(V a, V b) {
  return a ^ b;
}
template <class V>
PTO_INLINE inline V bitwise_not(V a) {
  return ~a;
}

/// Amounts below 0 or beyond the bits of the lane shift out all bits; `wrapped` handles narrower types.
PTO_INLINE inline U shl(U a, U b) { return b < 32u ? a << (b & 31u) : U{}; }
PTO_INLINE inline I shl(I a, I b) { return (I)shl((U)a, (U)b); }
PTO_INLINE inline L shl(L a, L b) { return (L)((UL)b < 64u ? (UL)a << ((UL)b & 63u) : UL{}); }
PTO_INLINE inline U shr(U a, U b) { return b < 32u ? a >> (b & 31u) : U{}; }
PTO_INLINE inline I shr(I a, I b) { return a >> (I)min((U)b, U{} + 31u); }
PTO_INLINE inline L shr(L a, L b) { return a >> (L)min((UL)b, UL{} + 63u); }

// --- quotients ------------------------------------------------------------------------------------------

/// Quotients toward zero. Those of 32 bits are exact in f64: what is not a whole number is further from one,
/// relative to itself, than f64 rounds.
PTO_INLINE inline I truncated(I a, I b) {
  return __builtin_convertvector(__builtin_convertvector(a, D) / __builtin_convertvector(b, D), I);
}
PTO_INLINE inline U truncated(U a, U b) {
  return __builtin_convertvector(__builtin_convertvector(a, D) / __builtin_convertvector(b, D), U);
}
PTO_INLINE inline L truncated(L a, L b) {
  L q;
  for (int l = 0; l < kLanes; ++l) q[l] = a[l] / b[l];
  return q;
}

/// Quotient toward zero; x / 0 is 0 and the minimum by -1 wraps.
template <class V>
PTO_INLINE inline V div(V a, V b) {
  const V q = truncated(a, ((b == 0) | (b == -1)) ? V{} + 1 : b);
  return b == 0 ? V{} : (b == -1 ? neg(a) : q);
}
PTO_INLINE inline U div(U a, U b) { return b == 0u ? U{} : truncated(a, b == 0u ? U{} + 1u : b); }

/// Remainder with the sign of `a`; x rem 0 is 0.
template <class V>
PTO_INLINE inline V rem(V a, V b) {
  return b == 0 ? V{} : sub(a, mul(div(a, b), b));
}

/// Exact remainder of the truncated quotient of two floats, with the sign of `a`.
inline float remainder(float a, float b) {
  uint32_t ua, ub;
  __builtin_memcpy(&ua, &a, 4);
  __builtin_memcpy(&ub, &b, 4);
  const uint32_t sign = ua & 0x80000000u;
  ua &= 0x7fffffffu;
  ub &= 0x7fffffffu;
  if (ua >= 0x7f800000u || ub > 0x7f800000u || ub == 0) return __builtin_nanf("");
  if (ua < ub) return a;
  const auto exponent = [](uint32_t u) { return u >> 23 ? static_cast<int>(u >> 23) : 1; };
  const auto mantissa = [](uint32_t u) -> uint64_t { return (u & 0x7fffffu) | (u >> 23 ? 0x800000u : 0u); };
  const uint64_t divisor = mantissa(ub);
  uint64_t rest = mantissa(ua) % divisor;
  for (int shift = exponent(ua) - exponent(ub); shift > 0 && rest != 0; shift -= 32) {
    rest = (rest << (shift < 32 ? shift : 32)) % divisor;
  }
  int scale = exponent(ub);
  while (rest != 0 && rest < 0x800000u && scale > 1) {
    rest <<= 1;
    --scale;
  }
  const uint32_t biased = rest < 0x800000u ? 0u : static_cast<uint32_t>(scale);
  const uint32_t bits = sign | (biased << 23) | (static_cast<uint32_t>(rest) & 0x7fffffu);
  float r;
  __builtin_memcpy(&r, &bits, 4);
  return r;
}

inline F rem(F a, F b) {
  F r;
  for (int l = 0; l < kLanes; ++l) r[l] = remainder(a[l], b[l]);
  return r;
}

// Masks have 32-bit lanes.
PTO_INLINE inline I mask(I holds) { return holds; }
PTO_INLINE inline I mask(L holds) { return __builtin_convertvector(holds, I); }
template <class V>
PTO_INLINE inline I eq(V a, V b) {
  return mask(a == b);
}
template <class V>
PTO_INLINE inline I ne(V a, V b) {
  return mask(a != b);
}
template <class V>
PTO_INLINE inline I lt(V a, V b) {
  return mask(a < b);
}
template <class V>
PTO_INLINE inline I le(V a, V b) {
  return mask(a <= b);
}
template <class V>
PTO_INLINE inline I gt(V a, V b) {
  return mask(a > b);
}
template <class V>
PTO_INLINE inline I ge(V a, V b) {
  return mask(a >= b);
}

template <class V>
PTO_INLINE inline V select(I mask, V a, V b) {
  return mask ? a : b;
}
PTO_INLINE inline L select(I mask, L a, L b) { return __builtin_convertvector(mask, L) ? a : b; }

/// start, start + 1, ...: the lanes of columns j, j + 1, ...; wraps.
PTO_INLINE inline I iota(I start, int64_t j) {
  return add(start, splat(static_cast<int32_t>(j)) + lane_numbers());
}
PTO_INLINE inline U iota(U start, int64_t j) { return (U)iota((I)start, j); }
PTO_INLINE inline L iota(L start, int64_t j) {
  return add(start, splat(j) + __builtin_convertvector(lane_numbers(), L));
}

}  // namespace pto::wsp::tile
