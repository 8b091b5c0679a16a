// SPDX-License-Identifier: MIT
/// \file
/// Dot products of bytes, four per lane of 32 bits. They are exact, without saturating instructions.
#pragma once

#include "pto/wsp/tile/terms.hpp"

namespace pto::wsp::tile {

/// Bytes of a lane, which are terms of one sum.
inline constexpr int64_t kQuad = 4;

/// Four bytes as a number that a lane holds.
PTO_INLINE inline uint32_t load_quad(const void* at) {
  uint32_t quad;
  __builtin_memcpy(&quad, at, sizeof quad);
  return quad;
}

#if defined(__clang__)
#elif PTO_LANES == 16 && defined(__AVX512VNNI__)
#define PTO_DOT_QUADS(u, s, sum) __builtin_ia32_vpdpbusd_v16si(sum, (I)(u), (I)(s))
#elif PTO_LANES == 8 && (defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__)))
#define PTO_DOT_QUADS(u, s, sum) __builtin_ia32_vpdpbusd_v8si(sum, (I)(u), (I)(s))
#elif PTO_LANES == 16 && defined(__AVX512BW__)
#define PTO_ADD_PAIRS(a, b) __builtin_ia32_pmaddwd512_mask((Words16)(a), (Words16)(b), I{}, -1)
#elif PTO_LANES == 8 && defined(__AVX2__)
#define PTO_ADD_PAIRS(a, b) __builtin_ia32_pmaddwd256((Words16)(a), (Words16)(b))
#elif PTO_LANES == 4 && defined(__SSE2__)
#define PTO_ADD_PAIRS(a, b) __builtin_ia32_pmaddwd128((Words16)(a), (Words16)(b))
#endif

/// sum + the products of four unsigned bytes with four signed ones, in every lane; sums wrap.
PTO_INLINE inline I dot_quads(U unsigned_bytes, U signed_bytes, I sum) {
#if defined(PTO_DOT_QUADS)
  return PTO_DOT_QUADS(unsigned_bytes, signed_bytes, sum);
#elif defined(__ARM_FEATURE_MATMUL_INT8) && PTO_LANES == 4
  asm("usdot %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(unsigned_bytes), "w"(signed_bytes));
  return sum;
#elif defined(__ARM_FEATURE_DOTPROD) && PTO_LANES == 4
  // Bytes less 128 are signed ones; 128 is two times 64.
  const U centred = unsigned_bytes ^ 0x80808080u, rest = U{} + 0x40404040u;
  asm("sdot %0.4s, %1.16b, %2.16b\n\tsdot %0.4s, %3.16b, %2.16b\n\tsdot %0.4s, %3.16b, %2.16b"
      : "+&w"(sum)
      : "w"(centred), "w"(signed_bytes), "w"(rest));
  return sum;
#elif defined(PTO_ADD_PAIRS)
  // Bytes at even and at odd places in 16 bits each: their products do not leave 32 bits.
  typedef int16_t Words16 __attribute__((vector_size(4 * PTO_LANES)));
  const Words16 both = (Words16)signed_bytes;
  const U even = (U)PTO_ADD_PAIRS(unsigned_bytes & 0x00ff00ffu, (both << 8) >> 8);
  const U odd = (U)PTO_ADD_PAIRS((unsigned_bytes >> 8) & 0x00ff00ffu, both >> 8);
  return (I)((U)sum + even + odd);
#else
  U total = (U)sum;
  for_constants<int(kQuad)>([&](auto byte) PTO_INLINE {
    constexpr int at = 8 * byte.value;
    total += ((unsigned_bytes >> at) & 0xffu) * (U)((I)(signed_bytes << (24 - at)) >> 24);
  });
  return (I)total;
#endif
}
#undef PTO_DOT_QUADS
#undef PTO_ADD_PAIRS

}  // namespace pto::wsp::tile
