// SPDX-License-Identifier: MIT
/// \file
/// The exact elementwise instructions on vectors. Integers wrap; nothing traps on any operand, for lanes
/// beyond the valid part of a tile hold anything.
#pragma once

#include "pto/wsp/tile/vec.hpp"

namespace pto::wsp::tile {

PTO_INLINE inline F add(F a, F b) { return a + b; }
PTO_INLINE inline F sub(F a, F b) { return a - b; }
PTO_INLINE inline F mul(F a, F b) { return a * b; }
PTO_INLINE inline F div(F a, F b) { return a / b; }
PTO_INLINE inline I add(I a, I b) { return (I)((U)a + (U)b); }
PTO_INLINE inline I sub(I a, I b) { return (I)((U)a - (U)b); }
PTO_INLINE inline I mul(I a, I b) { return (I)((U)a * (U)b); }

PTO_INLINE inline L add(L a, L b) { return (L)((UL)a + (UL)b); }
PTO_INLINE inline L sub(L a, L b) { return (L)((UL)a - (UL)b); }
PTO_INLINE inline L mul(L a, L b) { return (L)((UL)a * (UL)b); }

PTO_INLINE inline L neg(L a) { return (L)(UL{} - (UL)a); }
PTO_INLINE inline L abs(L a) { return a < 0 ? neg(a) : a; }
PTO_INLINE inline I neg(I a) { return (I)(U{} - (U)a); }
PTO_INLINE inline F neg(F a) { return -a; }
PTO_INLINE inline I abs(I a) { return a < 0 ? neg(a) : a; }
PTO_INLINE inline F abs(F a) { return (F)((U)a & 0x7fffffffu); }

PTO_INLINE inline F max(F a, F b) { return ((a > b) | (a != a)) ? a : b; }
PTO_INLINE inline F min(F a, F b) { return ((a < b) | (a != a)) ? a : b; }
PTO_INLINE inline I max(I a, I b) { return a > b ? a : b; }
PTO_INLINE inline I min(I a, I b) { return a < b ? a : b; }

PTO_INLINE inline L max(L a, L b) { return a > b ? a : b; }
PTO_INLINE inline L min(L a, L b) { return a < b ? a : b; }

PTO_INLINE inline L relu(L a) { return max(a, L{}); }
PTO_INLINE inline F relu(F a) { return max(a, F{}); }
PTO_INLINE inline I relu(I a) { return max(a, I{}); }
PTO_INLINE inline F recip(F a) { return 1.0f / a; }
PTO_INLINE inline F sqrt(F a) {
  F r;
  for (int l = 0; l < kLanes; ++l) r[l] = __builtin_sqrtf(a[l]);
  return r;
}

/// Quotient toward zero; x / 0 is 0 and the minimum by -1 wraps.
template <class V>
PTO_INLINE inline V whole_quotient(V a, V b) {
  const V plain = ((b == 0) | (b == -1)) ? V{} + 1 : b;
  V q;
  for (int l = 0; l < kLanes; ++l) q[l] = a[l] / plain[l];
  q = b == -1 ? neg(a) : q;
  return b == 0 ? V{} : q;
}
PTO_INLINE inline I div(I a, I b) { return whole_quotient(a, b); }
PTO_INLINE inline L div(L a, L b) { return whole_quotient(a, b); }

/// Remainder with the sign of `a`; x rem 0 is 0.
PTO_INLINE inline I rem(I a, I b) { return b == 0 ? I{} : sub(a, mul(div(a, b), b)); }
PTO_INLINE inline L rem(L a, L b) { return b == 0 ? L{} : sub(a, mul(div(a, b), b)); }

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

PTO_INLINE inline I eq(F a, F b) { return a == b; }
PTO_INLINE inline I ne(F a, F b) { return a != b; }
PTO_INLINE inline I lt(F a, F b) { return a < b; }
PTO_INLINE inline I le(F a, F b) { return a <= b; }
PTO_INLINE inline I gt(F a, F b) { return a > b; }
PTO_INLINE inline I ge(F a, F b) { return a >= b; }
PTO_INLINE inline I eq(I a, I b) { return a == b; }
PTO_INLINE inline I ne(I a, I b) { return a != b; }
PTO_INLINE inline I lt(I a, I b) { return a < b; }
PTO_INLINE inline I le(I a, I b) { return a <= b; }
PTO_INLINE inline I gt(I a, I b) { return a > b; }
PTO_INLINE inline I ge(I a, I b) { return a >= b; }

// Masks have 32-bit lanes.
PTO_INLINE inline I eq(L a, L b) { return __builtin_convertvector(a == b, I); }
PTO_INLINE inline I ne(L a, L b) { return __builtin_convertvector(a != b, I); }
PTO_INLINE inline I lt(L a, L b) { return __builtin_convertvector(a < b, I); }
PTO_INLINE inline I le(L a, L b) { return __builtin_convertvector(a <= b, I); }
PTO_INLINE inline I gt(L a, L b) { return __builtin_convertvector(a > b, I); }
PTO_INLINE inline I ge(L a, L b) { return __builtin_convertvector(a >= b, I); }

template <class V>
PTO_INLINE inline V select(I mask, V a, V b) {
  return mask ? a : b;
}
PTO_INLINE inline L select(I mask, L a, L b) { return __builtin_convertvector(mask, L) ? a : b; }

/// start, start + 1, ...: the lanes of columns j, j + 1, ...; wraps.
PTO_INLINE inline I iota(I start, int64_t j) {
  return add(start, splat(static_cast<int32_t>(j)) + lane_numbers());
}
PTO_INLINE inline L iota(L start, int64_t j) {
  return add(start, splat(j) + __builtin_convertvector(lane_numbers(), L));
}

}  // namespace pto::wsp::tile
