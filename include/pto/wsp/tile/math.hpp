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

/// sum + a * b, added in the register of the sum. Otherwise compilers reload operands and copy sums in long
/// sums, which costs products a tenth to a quarter of their time.
PTO_INLINE inline F add_product(F a, F b, F sum) {
#if (defined(__AVX512F__) && PTO_LANES == 16) || (defined(__FMA__) && PTO_LANES == 8)
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#else
  return fma(a, b, sum);
#endif
}

/// Whether the processor adds two products of bf16 in one instruction. PTO_PAIR_DOTS, if it is defined, says
/// so of any; then they are two multiply-adds, for tests.
#if (defined(__AVX512BF16__) && PTO_LANES == 16) || \
    (defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && PTO_LANES == 4) || defined(PTO_PAIR_DOTS)
inline constexpr bool kHasPairDots = true;
#else
inline constexpr bool kHasPairDots = false;
#endif

/// sum + low(a) * low(b) + high(a) * high(b) of the bf16 in the halves of each lane. Processors take numbers
/// below 2^-126, also as results, for 0. Assembler, for the names and types of builtins differ between
/// versions of compilers.
PTO_INLINE inline F dot_pairs(U a, U b, F sum) {
#if defined(__AVX512BF16__) && PTO_LANES == 16
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
  return sum;
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC) && PTO_LANES == 4
  asm("bfdot %0.4s, %1.8h, %2.8h" : "+w"(sum) : "w"(a), "w"(b));
  return sum;
#else
  const U high = U{} + 0xffff0000u;
  return fma((F)(a & high), (F)(b & high), fma((F)(a << 16), (F)(b << 16), sum));
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

/// x = n * ln 2 + rest, where n, an integer, is `shifted` - kShift and the low bits of `shifted`.
struct Reduced {
  F shifted;
  F rest;
};
inline constexpr float kShift = 0x1.8p23f;

/// A comparison of AVX-512 that holds for NaN too.
inline constexpr int kNotLess = 5;

PTO_INLINE inline Reduced reduce(F x) {
  const F shifted = fma(x, splat(0x1.715476p0f), splat(kShift));
  const F n = shifted - kShift;
  return {shifted, fma(n, splat(-0x1.7f7d1cp-20f), fma(n, splat(-0x1.62e4p-1f), x))};
}

/// e^r - 1 for what `reduce` leaves.
PTO_INLINE inline F exp_fraction(F r) {
  const F q = poly(r, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23dp-10f);
  return fma(r * r, q, r);
}

/// e^(x + low) = (1 + fraction) * 2^exponent for x in [-170, 89]; the fraction is in (-0.3, 0.42) and, for a
/// small x without `low`, as exact as x.
struct ExpParts {
  F fraction;
  I exponent;
};
PTO_INLINE inline ExpParts exp_parts(F x, F low) {
  const Reduced d = reduce(x);
  return {exp_fraction(d.rest + low), (I)d.shifted - 0x4b400000};
}

/// `x` between two numbers; NaN passes through, for comparisons with it are false.
PTO_INLINE inline F clamp(F x, float low, float high) { return greater(splat(low), lesser(splat(high), x)); }

/// Arguments far below zero, such as masked scores, must not give subnormal results, which take twenty times
/// as long.
PTO_INLINE inline F exp(F x) {
#if defined(__AVX512F__) && PTO_LANES == 16
  const Reduced d = reduce(lesser(splat(89.0f), x));
  const auto is_above_zero = __builtin_ia32_cmpps512_mask(x, splat(-104.0f), kNotLess, -1, 4);
  return __builtin_ia32_scalefps512_mask(1.0f + exp_fraction(d.rest), d.shifted - kShift, F{}, is_above_zero,
                                         4);
#else
  // In two factors: 2^exponent itself may be subnormal or infinite.
  const ExpParts e = exp_parts(clamp(x, -170.0f, 89.0f), F{});
  const I half = e.exponent >> 1;
  const F scale = power_of_two(half);
  return fma(scale, e.fraction, scale) * power_of_two(e.exponent - half);
#endif
}

PTO_INLINE inline F expm1(F x) {
  const ExpParts e = exp_parts(clamp(x, -104.0f, 89.0f), F{});
  const I half = e.exponent >> 1;
  const F scale = power_of_two(half);
  const F r = fma(scale, e.fraction, scale - power_of_two(half - e.exponent));
  return x == 0.0f ? x : r * power_of_two(e.exponent - half);
}

/// ln((1 + f) * 2^e) for 1 + f in [sqrt(1/2), sqrt(2)).
PTO_INLINE inline F log_of(F f, F e) {
  const F p = poly(f, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a4bcp-3f, -0x1.555c5ap-3f, 0x1.2336e2p-3f,
                   -0x1.fc1f6cp-4f, 0x1.e6f604p-4f, -0x1.de4fa2p-4f, 0x1.146318p-4f);
  const F square = f * f;
  const F low = fma(square * f, p, e * -0x1.bd0106p-13f);
  return fma(e, splat(0x1.63p-1f), fma(square, splat(-0.5f), low) + f);
}

/// The special values of the logarithm; `r` elsewhere.
PTO_INLINE inline F log_edges(F x, F r) {
  r = x == __builtin_inff() ? x : r;
  r = x == 0.0f ? splat(-__builtin_inff()) : r;
  return ((x < 0.0f) | (x != x)) ? splat(__builtin_nanf("")) : r;
}

PTO_INLINE inline F log(F x) {
  const I tiny = x < 0x1p-126f;
  const F scaled = tiny ? x * 0x1p23f : x;
  // The mantissa is taken in [sqrt(1/2), sqrt(2)).
  const I offset = (I)((U)scaled - 0x3f3504f3u);
  const F e = __builtin_convertvector((offset >> 23) - (tiny & 23), F);
  return log_edges(x, log_of((F)((offset & 0x7fffff) + 0x3f3504f3) - 1.0f, e));
}

PTO_INLINE inline F log1p(F x) {
  const F sum = x + 1.0f;
  // The rounding error of the sum, in units of its mantissa.
  const F lost = x > 1.0f ? 1.0f - (sum - x) : x - (sum - 1.0f);
  const I offset = (I)((U)sum - 0x3f3504f3u);
  const I e = offset >> 23;
  const F inverse = (F)((127 - e) << 23);
  const F f = ((F)((offset & 0x7fffff) + 0x3f3504f3) - 1.0f) + (e < 126 ? lost * inverse : F{});
  const I is_small = (x > -0.29f) & (x < 0.41f);
  const F r = log_of(is_small ? x : f, is_small ? F{} : __builtin_convertvector(e, F));
  return x == 0.0f ? x : log_edges(sum, r);
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

/// x / (1 + e^-x), where both are kept within range by the same power of two.
PTO_INLINE inline F silu(F x) {
  const F a = x < -170.0f ? splat(-170.0f) : x;
  const ExpParts e = exp_parts(-clamp(a, -170.0f, 89.0f), F{});
  const I half = e.exponent >> 1;
  const F scale = power_of_two(half), inverse = power_of_two(half - e.exponent);
  return a / (fma(scale, e.fraction, scale) + inverse) * inverse;
}

/// x * Q(-x), where Q(y) is the tail of the normal distribution: e^(-y^2 / 2) times a factor that changes
/// little, divided by y + 1.
PTO_INLINE inline F gelu(F x) {
  const F y = clamp(abs(x), 0.0f, 15.0f);
  // The square in two parts, the first of which is exact.
  const F high = (F)(((U)y + 0x800u) & 0xfffff000u);
  const ExpParts e = exp_parts(-0.5f * (high * high), -0.5f * ((y - high) * (y + high)));
  const I half = e.exponent >> 1;
  const F t = (y - 4.0f) / (y + 4.0f);
  const F factor =
      poly(t, 0x1.e361eap-2f, -0x1.8c18fp-4f, 0x1.cabd28p-7f, 0x1.d494f6p-6f, -0x1.07c2bcp-5f, 0x1.25eec4p-6f,
           -0x1.47f048p-8f, -0x1.3e2e22p-12f, 0x1.6aeb5cp-11f, -0x1.02227ep-14f, -0x1.2deadap-14f);
  // What y + 1 and its inverse have lost is made up for where 1 + fraction is rounded, in the product.
  const F sum = y + 1.0f, inverse = 1.0f / sum;
  const F lost = fma(-inverse, y - (sum - 1.0f), fma(-inverse, sum, splat(1.0f)));
  const F near = y * factor * inverse * power_of_two(half);
  const F tail = fma(near, e.fraction + lost, near) * power_of_two(e.exponent - half);
  return x < 0.0f ? -tail : x - tail;
}

}  // namespace pto::wsp::tile
