// SPDX-License-Identifier: MIT
/// \file
/// Transcendental functions on values: the polynomials of tile/math.hpp, one value at a time.
#pragma once

#include "pto/wsp/tile/cuda/ops.hpp"

namespace pto::wsp::cuda {

/// The value of a polynomial with constant term `c0` at `x`.
PTO_DEVICE_INLINE float poly(float, float c0) { return c0; }
template <class... Rest>
PTO_DEVICE_INLINE float poly(float x, float c0, Rest... rest) {
  return fma(poly(x, rest...), x, c0);
}

/// 2^n for n in [-126, 127].
PTO_DEVICE_INLINE float power_of_two(int32_t n) { return float_of(uint32_t(n + 127) << 23); }

/// x = n * ln 2 + rest, where n, an integer, is `shifted` - kShift and the low bits of `shifted`.
struct Reduced {
  float shifted;
  float rest;
};
inline constexpr float kShift = 0x1.8p23f;

PTO_DEVICE_INLINE Reduced reduce(float x) {
  const float shifted = fma(x, 0x1.715476p0f, kShift);
  const float n = shifted - kShift;
  return {shifted, fma(n, -0x1.7f7d1cp-20f, fma(n, -0x1.62e4p-1f, x))};
}

/// e^r - 1 for what `reduce` leaves.
PTO_DEVICE_INLINE float exp_fraction(float r) {
  const float q = poly(r, 0x1.fffffcp-2f, 0x1.555492p-3f, 0x1.5558f2p-5f, 0x1.123a2p-7f, 0x1.6a23dp-10f);
  return fma(r * r, q, r);
}

/// e^(x + low) = (1 + fraction) * 2^exponent for x in [-170, 89]; the fraction is in (-0.3, 0.42) and, for a
/// small x without `low`, as exact as x.
struct ExpParts {
  float fraction;
  int32_t exponent;
};
PTO_DEVICE_INLINE ExpParts exp_parts(float x, float low) {
  const Reduced d = reduce(x);
  return {exp_fraction(d.rest + low), int32_t(bits_of(d.shifted)) - 0x4b400000};
}

/// `x` between two numbers; NaN passes through, for comparisons with it are false.
PTO_DEVICE_INLINE float clamp(float x, float low, float high) {
  const float least = high < x ? high : x;
  return low > least ? low : least;
}

PTO_DEVICE_INLINE float exp(float x) {
  // In two factors: 2^exponent itself may be subnormal or infinite.
  const ExpParts e = exp_parts(clamp(x, -170.0f, 89.0f), 0.0f);
  const int32_t half = e.exponent >> 1;
  const float scale = power_of_two(half);
  return fma(scale, e.fraction, scale) * power_of_two(e.exponent - half);
}

PTO_DEVICE_INLINE float expm1(float x) {
  const ExpParts e = exp_parts(clamp(x, -104.0f, 89.0f), 0.0f);
  const int32_t half = e.exponent >> 1;
  const float scale = power_of_two(half);
  const float r = fma(scale, e.fraction, scale - power_of_two(half - e.exponent));
  return x == 0.0f ? x : r * power_of_two(e.exponent - half);
}

/// ln((1 + f) * 2^e) for 1 + f in [sqrt(1/2), sqrt(2)).
PTO_DEVICE_INLINE float log_of(float f, float e) {
  const float p = poly(f, 0x1.555548p-2f, -0x1.000006p-2f, 0x1.99a4bcp-3f, -0x1.555c5ap-3f, 0x1.2336e2p-3f,
                       -0x1.fc1f6cp-4f, 0x1.e6f604p-4f, -0x1.de4fa2p-4f, 0x1.146318p-4f);
  const float square = f * f;
  const float low = fma(square * f, p, e * -0x1.bd0106p-13f);
  return fma(e, 0x1.63p-1f, fma(square, -0.5f, low) + f);
}

/// The special values of the logarithm; `r` elsewhere.
PTO_DEVICE_INLINE float log_edges(float x, float r) {
  r = x == float_of(0x7f800000u) ? x : r;
  r = x == 0.0f ? -float_of(0x7f800000u) : r;
  return (x < 0.0f || x != x) ? float_of(0x7fc00000u) : r;
}

PTO_DEVICE_INLINE float log(float x) {
  const bool is_tiny = x < 0x1p-126f;
  const float scaled = is_tiny ? x * 0x1p23f : x;
  // The mantissa is taken in [sqrt(1/2), sqrt(2)).
  const int32_t offset = int32_t(bits_of(scaled) - 0x3f3504f3u);
  const float e = static_cast<float>((offset >> 23) - (is_tiny ? 23 : 0));
  return log_edges(x, log_of(float_of(uint32_t(offset & 0x7fffff) + 0x3f3504f3u) - 1.0f, e));
}

PTO_DEVICE_INLINE float log1p(float x) {
  const float sum = x + 1.0f;
  // The rounding error of the sum, in units of its mantissa.
  const float lost = x > 1.0f ? 1.0f - (sum - x) : x - (sum - 1.0f);
  const int32_t offset = int32_t(bits_of(sum) - 0x3f3504f3u);
  const int32_t e = offset >> 23;
  const float inverse = float_of(uint32_t(127 - e) << 23);
  const float f =
      (float_of(uint32_t(offset & 0x7fffff) + 0x3f3504f3u) - 1.0f) + (e < 126 ? lost * inverse : 0.0f);
  const bool is_small = x > -0.29f && x < 0.41f;
  const float r = log_of(is_small ? x : f, is_small ? 0.0f : static_cast<float>(e));
  return x == 0.0f ? x : log_edges(sum, r);
}

PTO_DEVICE_INLINE float tanh(float x) {
  const float a = abs(x);
  const float u = a * a;
  const float near =
      fma(a * u, poly(u, -0x1.555532p-2f, 0x1.11072p-3f, -0x1.b83b8cp-5f, 0x1.52212p-6f, -0x1.75c848p-8f), a);
  const float far = 1.0f - 2.0f / (exp(a + a) + 1.0f);
  const float r = a < 0.625f ? near : far;
  return float_of(bits_of(r) | (bits_of(x) & 0x80000000u));
}

PTO_DEVICE_INLINE float erf(float x) {
  const float a = abs(x);
  const float u = a * a;
  const float near = fma(a,
                         poly(u, 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2cf8p-4f, -0x1.b7f90cp-6f,
                              0x1.5405b2p-8f, -0x1.a3f7p-11f, 0x1.496a3p-14f),
                         a);
  // erfc(a) = exp(-q(a)) up to 4, where erf rounds to 1.
  const float b = a > 4.0f ? 4.0f : a;
  const float q = poly(b, -0x1.6e5654p-13f, 0x1.2127e4p0f, 0x1.44460cp-1f, 0x1.bb83e2p-4f, -0x1.9b8e78p-6f,
                       0x1.115acp-8f, -0x1.c790eap-12f, 0x1.61ea2ep-16f);
  const float far = 1.0f - exp(-q);
  const float r = a < 0.921875f ? near : far;
  return float_of(bits_of(r) | (bits_of(x) & 0x80000000u));
}

PTO_DEVICE_INLINE float sigmoid(float x) {
  const float e = exp(-abs(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

PTO_DEVICE_INLINE float rsqrt(float x) { return 1.0f / sqrt(x); }

/// x / (1 + e^-x), where both are kept within range by the same power of two.
PTO_DEVICE_INLINE float silu(float x) {
  const float a = x < -170.0f ? -170.0f : x;
  const ExpParts e = exp_parts(-clamp(a, -170.0f, 89.0f), 0.0f);
  const int32_t half = e.exponent >> 1;
  const float scale = power_of_two(half), inverse = power_of_two(half - e.exponent);
  return a / (fma(scale, e.fraction, scale) + inverse) * inverse;
}

/// x * Q(-x), where Q(y) is the tail of the normal distribution: e^(-y^2 / 2) times a factor that changes
/// little, divided by y + 1.
PTO_DEVICE_INLINE float gelu(float x) {
  const float y = clamp(abs(x), 0.0f, 15.0f);
  // The square in two parts, the first of which is exact.
  const float high = float_of((bits_of(y) + 0x800u) & 0xfffff000u);
  const ExpParts e = exp_parts(-0.5f * (high * high), -0.5f * ((y - high) * (y + high)));
  const int32_t half = e.exponent >> 1;
  const float t = (y - 4.0f) / (y + 4.0f);
  const float factor =
      poly(t, 0x1.e361eap-2f, -0x1.8c18fp-4f, 0x1.cabd28p-7f, 0x1.d494f6p-6f, -0x1.07c2bcp-5f, 0x1.25eec4p-6f,
           -0x1.47f048p-8f, -0x1.3e2e22p-12f, 0x1.6aeb5cp-11f, -0x1.02227ep-14f, -0x1.2deadap-14f);
  // What y + 1 and its inverse have lost is made up for where 1 + fraction is rounded, in the product.
  const float sum = y + 1.0f, inverse = 1.0f / sum;
  const float lost = fma(-inverse, y - (sum - 1.0f), fma(-inverse, sum, 1.0f));
  const float near = y * factor * inverse * power_of_two(half);
  const float tail = fma(near, e.fraction + lost, near) * power_of_two(e.exponent - half);
  return x < 0.0f ? -tail : x - tail;
}

}  // namespace pto::wsp::cuda
