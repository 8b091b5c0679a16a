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

PTO_INLINE inline I neg(I a) { return (I)(U{} - (U)a); }
PTO_INLINE inline F neg(F a) { return -a; }
PTO_INLINE inline I abs(I a) { return a < 0 ? neg(a) : a; }
PTO_INLINE inline F abs(F a) { return (F)((U)a & 0x7fffffffu); }

PTO_INLINE inline F max(F a, F b) { return ((a > b) | (a != a)) ? a : b; }
PTO_INLINE inline F min(F a, F b) { return ((a < b) | (a != a)) ? a : b; }
PTO_INLINE inline I max(I a, I b) { return a > b ? a : b; }
PTO_INLINE inline I min(I a, I b) { return a < b ? a : b; }

PTO_INLINE inline F relu(F a) { return max(a, F{}); }
PTO_INLINE inline I relu(I a) { return max(a, I{}); }
PTO_INLINE inline F recip(F a) { return 1.0f / a; }
PTO_INLINE inline F sqrt(F a) {
  F r;
  for (int l = 0; l < kLanes; ++l) r[l] = __builtin_sqrtf(a[l]);
  return r;
}

/// Quotient toward zero; x / 0 is 0 and the minimum by -1 wraps.
inline I div(I a, I b) {
  const I plain = ((b == 0) | (b == -1)) ? I{} + 1 : b;
  I q;
  for (int l = 0; l < kLanes; ++l) q[l] = a[l] / plain[l];
  q = b == -1 ? neg(a) : q;
  return b == 0 ? I{} : q;
}

/// Remainder with the sign of `a`; x rem 0 is 0.
inline I rem(I a, I b) {
  const I q = div(a, b);
  return b == 0 ? I{} : sub(a, mul(q, b));
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

template <class V>
PTO_INLINE inline V select(I mask, V a, V b) {
  return mask ? a : b;
}

/// Toward zero, saturating; NaN gives 0.
PTO_INLINE inline I to_int(F a) {
  const I inside = (a >= -0x1p31f) & (a < 0x1p31f);
  const I whole = __builtin_convertvector(inside ? a : F{}, I);
  const I limit = a >= 0x1p31f ? I{} + 0x7fffffff : whole;
  return a < -0x1p31f ? I{} + (-0x7fffffff - 1) : limit;
}
PTO_INLINE inline F to_float(I a) { return __builtin_convertvector(a, F); }
PTO_INLINE inline I to_mask(F a) { return a != 0.0f; }
PTO_INLINE inline I to_mask(I a) { return a != 0; }
PTO_INLINE inline I mask_to_int(I mask) { return mask & 1; }
PTO_INLINE inline F mask_to_float(I mask) { return mask ? F{} + 1.0f : F{}; }

}  // namespace pto::wsp::tile
