// SPDX-License-Identifier: MIT
/// \file
/// Transcendental functions on vectors, over all floats: error bounds are those of the instruction table.
///
/// Polynomials are minimax fits of relative error on the stated interval. Results below the smallest normal
/// number are rounded once, by a final multiplication.
#pragma once

#include "pto/wsp/tile/ops.hpp"

namespace pto::wsp::tile {

/// a * b + c, rounded once where the machine can; the only contraction in generated code.
PTO_INLINE inline F fma(F a, F b, F c) {
#if !defined(__FMA__) && !defined(__ARM_FEATURE_FMA)
  return a * b + c;
#elif defined(__clang__)
  return __builtin_elementwise_fma(a, b, c);
#elif defined(__AVX512F__) && PTO_LANES == 16
  return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#elif defined(__FMA__) && PTO_LANES == 8
  return __builtin_ia32_vfmaddps256(a, b, c);
#else
  F r;
  for (int l = 0; l < kLanes; ++l) r[l] = __builtin_fmaf(a[l], b[l], c[l]);
  return r;
#endif
}

/// The value of a polynomial with constant term `c0` at `x`.
PTO_INLINE inline F poly(F, float c0) { return splat(c0); }
template <class... Rest>
PTO_INLINE inline F poly(F x, float c0, Rest... rest) {
  return fma(poly(x, rest...), x, splat(c0));
}

/// 2^n for n in [-126, 127].
PTO_INLINE inline F power_of_two(I n) { return (F)((n + 127) << 23); }

/// e^x = (1 + fraction) * 2^exponent for x in [-104, 89]; the fraction is in (-0.3, 0.42).
struct ExpParts {
  F fraction;
  I exponent;
};
PTO_INLINE inline ExpParts exp_parts(F x) {
  const float magic = 0x1.8p23f;
  const F shifted = fma(x, splat(0x1.715476p0f), splat(magic));
  const F n = shifted - magic;
  const F r = fma(n, splat(-0x1.7f7d1cp-20f), fma(n, splat(-0x1.62e4p-1f), x));
  const F q = poly(r, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23dp-10f);
  return {fma(r * r, q, r), (I)shifted - 0x4b400000};
}

PTO_INLINE inline F exp(F x) {
  // Comparisons with NaN are false, so that it passes through.
  x = x > 89.0f ? splat(89.0f) : x;
  x = x < -104.0f ? splat(-104.0f) : x;
  const ExpParts e = exp_parts(x);
  // In two factors: 2^exponent itself may be no normal number.
  const I half = e.exponent >> 1;
  const F scale = power_of_two(half);
  return fma(scale, e.fraction, scale) * power_of_two(e.exponent - half);
}

PTO_INLINE inline F log(F x) {
  const I tiny = x < 0x1p-126f;
  const F scaled = tiny ? x * 0x1p23f : x;
  // The mantissa is taken in [sqrt(1/2), sqrt(2)).
  const I offset = (I)((U)scaled - 0x3f3504f3u);
  const F e = __builtin_convertvector((offset >> 23) - (tiny & 23), F);
  const F f = (F)((offset & 0x7fffff) + 0x3f3504f3) - 1.0f;
  const F p = poly(f, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a4bcp-3f, -0x1.555c5ap-3f, 0x1.2336e2p-3f,
                   -0x1.fc1f6cp-4f, 0x1.e6f604p-4f, -0x1.de4fa2p-4f, 0x1.146318p-4f);
  const F square = f * f;
  const F low = fma(square * f, p, e * -0x1.bd0106p-13f);
  F r = fma(e, splat(0x1.63p-1f), fma(square, splat(-0.5f), low) + f);
  r = x == __builtin_inff() ? x : r;
  r = x == 0.0f ? splat(-__builtin_inff()) : r;
  return ((x < 0.0f) | (x != x)) ? splat(__builtin_nanf("")) : r;
}

PTO_INLINE inline F tanh(F x) {
  const F a = abs(x);
  const F u = a * a;
  const F near =
      fma(a * u, poly(u, -0x1.555532p-2f, 0x1.11072p-3f, -0x1.b83b8cp-5f, 0x1.52212p-6f, -0x1.75c848p-8f), a);
  const F far = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  const F r = a < 0.625f ? near : far;
  return (F)((U)r | ((U)x & 0x80000000u));
}

PTO_INLINE inline F erf(F x) {
  const F a = abs(x);
  const F u = a * a;
  const F near = fma(a,
                     poly(u, 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2cf8p-4f, -0x1.b7f90cp-6f, 0x1.5405b2p-8f,
                          -0x1.a3f7p-11f, 0x1.496a3p-14f),
                     a);
  // erfc(a) = exp(-q(a)) up to 4, where erf rounds to 1.
  const F b = a > 4.0f ? splat(4.0f) : a;
  const F q = poly(b, -0x1.6e5654p-13f, 0x1.2127e4p0f, 0x1.44460cp-1f, 0x1.bb83e2p-4f, -0x1.9b8e78p-6f,
                   0x1.115acp-8f, -0x1.c790eap-12f, 0x1.61ea2ep-16f);
  const F far = 1.0f - exp(-q);
  const F r = a < 0.921875f ? near : far;
  return (F)((U)r | ((U)x & 0x80000000u));
}

PTO_INLINE inline F sigmoid(F x) {
  const F e = exp(-abs(x));
  return (x < 0.0f ? e : splat(1.0f)) / (1.0f + e);
}

PTO_INLINE inline F rsqrt(F x) { return 1.0f / sqrt(x); }

}  // namespace pto::wsp::tile
