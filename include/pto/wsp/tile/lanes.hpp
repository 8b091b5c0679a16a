// SPDX-License-Identifier: MIT
/// \file
/// Vectors of one width, as kernels compute on them, and how floats round to the small ones.
///
/// PTO_LANES (4, 8 or 16) is defined by the compiler of kernels. Every vector has that many lanes: floats of
/// all widths compute as `F`, i64 as `L`, u32 as `U`, the other integers as `I`, bools as lane masks
/// (0 or -1) in `I`. Elements in memory are `float`, `Bf16`, `F16`, `Bool` and the integers of 8 to 64 bits;
/// loading widens; storing rounds floats to nearest even and keeps the low bits of integers (vec.hpp).
/// An access is `Full` (all lanes), or a `Tail` that touches the first n elements of memory and no others.
#pragma once

#include "pto/wsp/abi.hpp"

#ifndef PTO_LANES
#error "PTO_LANES must be 4, 8 or 16"
#endif
#define PTO_INLINE __attribute__((always_inline))

namespace pto::wsp::tile {

inline constexpr int64_t kLanes = PTO_LANES;

typedef float F __attribute__((vector_size(4 * PTO_LANES)));
typedef int32_t I __attribute__((vector_size(4 * PTO_LANES)));
typedef uint32_t U __attribute__((vector_size(4 * PTO_LANES)));
typedef double D __attribute__((vector_size(8 * PTO_LANES)));
typedef int64_t L __attribute__((vector_size(8 * PTO_LANES)));
typedef uint64_t UL __attribute__((vector_size(8 * PTO_LANES)));
typedef uint16_t H __attribute__((vector_size(2 * PTO_LANES)));
typedef int16_t SH __attribute__((vector_size(2 * PTO_LANES)));
typedef uint8_t B __attribute__((vector_size(PTO_LANES)));
typedef int8_t SB __attribute__((vector_size(PTO_LANES)));

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
struct Bool {
  uint8_t bits;
};

struct Full {};
/// All lanes with a streaming store; memory is aligned to the stored bytes. A `StoreFence` must follow before
/// other threads read.
struct Past {};
struct Tail {
  int64_t n;
};
/// The first lane alone.
struct First {};
/// `Full` where n is at least all lanes, else `Tail`: only the access itself is compiled in two ways.
struct Upto {
  int64_t n;

  bool is_full() const { return __builtin_expect(n >= kLanes, 1); }
};

/// The lanes 0, 1, 2, ...
inline I lane_numbers() {
#if PTO_LANES == 16
  return I{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif PTO_LANES == 8
  return I{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return I{0, 1, 2, 3};
#endif
}

// x - 0 and not 0 + x: the sign of zero must survive.
PTO_INLINE inline F splat(float x) { return x - F{}; }
PTO_INLINE inline I splat(int32_t x) { return x + I{}; }
PTO_INLINE inline U splat(uint32_t x) { return x + U{}; }
PTO_INLINE inline L splat(int64_t x) { return x + L{}; }
PTO_INLINE inline I splat(bool x) { return I{} - static_cast<int32_t>(x); }

// --- rounding to the small floats -------------------------------------------------------------------------

/// Nearest bf16 to each lane, ties to even, in the high 16 bits; the low ones mean nothing.
PTO_INLINE inline U bf16_bits(F x) {
  const U u = (U)x;
  const U rounded = u + 0x7fffu + ((u >> 16) & 1u);
  return x != x ? u | 0x400000u : rounded;
}

/// The same as a float.
PTO_INLINE inline F round_bf16(F x) { return (F)(bf16_bits(x) & 0xffff0000u); }

PTO_INLINE inline U f16_bits(F x) {
  const U sign = ((U)x >> 16) & 0x8000u;
  const U u = (U)x & 0x7fffffffu;
  const U normal = (u + 0xfffu + ((u >> 13) & 1u) - (112u << 23)) >> 13;
  // Adding 1/2 leaves the multiple of 2^-24 in the low bits, rounded by the adder.
  const U small = (U)((F)u + 0.5f) - 0x3f000000u;
  U bits = u < 0x38800000u ? small : normal;
  bits = u >= 0x477ff000u ? U{} + 0x7c00u : bits;
  bits = u > 0x7f800000u ? U{} + 0x7e00u : bits;
  return bits | sign;
}

PTO_INLINE inline F f16_value(U h) {
  const U shifted = (h & 0x7fffu) << 13;
  const U finite = (U)((F)shifted * 0x1p112f);
  const U bits = (h & 0x7c00u) == 0x7c00u ? shifted | 0x7f800000u : finite;
  return (F)(bits | ((h & 0x8000u) << 16));
}

/// The f16 of 16 bits, and the nearest one to each lane, ties to even.
PTO_INLINE inline F widen_f16(H h) {
#if defined(__AVX512F__) && PTO_LANES == 16 && !defined(__clang__)
  return __builtin_ia32_vcvtph2ps512_mask((SH)h, F{}, -1, 4);
#elif defined(__F16C__) && PTO_LANES == 8 && !defined(__clang__)
  return __builtin_ia32_vcvtph2ps256((SH)h);
#else
  return f16_value(__builtin_convertvector(h, U));
#endif
}
PTO_INLINE inline H narrow_f16(F x) {
#if defined(__AVX512F__) && PTO_LANES == 16 && !defined(__clang__)
  return (H)__builtin_ia32_vcvtps2ph512_mask(x, 0, SH{}, -1);
#elif defined(__F16C__) && PTO_LANES == 8 && !defined(__clang__)
  return (H)__builtin_ia32_vcvtps2ph256(x, 0);
#else
  return __builtin_convertvector(f16_bits(x), H);
#endif
}

/// Nearest f16 to each lane, ties to even, as a float.
PTO_INLINE inline F round_f16(F x) { return widen_f16(narrow_f16(x)); }

}  // namespace pto::wsp::tile
