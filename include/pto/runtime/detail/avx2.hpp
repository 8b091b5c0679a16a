// SPDX-License-Identifier: MIT
/// \file
/// The two passes over lengths with AVX2 instructions, for x86-64 programs built for any x86-64 and run on a
/// CPU that has them. They compute what the plain loops of chunk_count.hpp compute. Written with vector types
/// of the compiler, because the intrinsics header would cost more compile time than the whole planner.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "../platform.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !PTO_DEVICE_COMPILER
#define PTO_HAS_AVX2_PATH 1
#else
#define PTO_HAS_AVX2_PATH 0
#endif

#if PTO_HAS_AVX2_PATH
namespace pto {
namespace runtime {
namespace detail {

typedef uint64_t U64x4 __attribute__((vector_size(32)));
typedef int32_t I32x8 __attribute__((vector_size(32)));
typedef int32_t UnalignedI32x8 __attribute__((vector_size(32), aligned(4), may_alias));

inline constexpr size_t kAvx2Lanes = 8;
inline constexpr uint64_t kLowHalf = 0xffffffffu;

inline bool has_avx2() { return __builtin_cpu_supports("avx2"); }

/// Products of the low 32 bits of each 64-bit lane: one instruction, which g++ only finds under its own name.
#if defined(__clang__)
#define PTO_WIDENING_MUL(x, y) (((U64x4)(x) & kLowHalf) * ((U64x4)(y) & kLowHalf))
#else
#define PTO_WIDENING_MUL(x, y) ((U64x4)__builtin_ia32_pmuludq256((x), (y)))
#endif

/// Sum over i < count of floor(max(lens[i] - 1, 0) * multiplier / 2^shift); `count` is a multiple of
/// `kAvx2Lanes`.
__attribute__((target("avx2"))) inline uint64_t sum_quotients_avx2(const int* lens, size_t count,
                                                                   uint32_t multiplier, int shift) {
  const int m = static_cast<int>(multiplier);
  const I32x8 multipliers = {m, 0, m, 0, m, 0, m, 0};
  U64x4 even_sums = {0, 0, 0, 0};
  U64x4 odd_sums = {0, 0, 0, 0};
  for (size_t i = 0; i < count; i += kAvx2Lanes) {
    I32x8 even = *reinterpret_cast<const UnalignedI32x8*>(lens + i);
    even += even > 0;
    const I32x8 odd = (I32x8)((U64x4)even >> 32);
    even_sums += PTO_WIDENING_MUL(even, multipliers) >> shift;
    odd_sums += PTO_WIDENING_MUL(odd, multipliers) >> shift;
  }
  even_sums += odd_sums;
  return even_sums[0] + even_sums[1] + even_sums[2] + even_sums[3];
}
#undef PTO_WIDENING_MUL

/// Minimum, maximum, sum as unsigned and number of zeros; `count` is a multiple of `kAvx2Lanes` below 2^31.
__attribute__((target("avx2"))) inline void summarize_avx2(const int* lens, size_t count, int* min, int* max,
                                                           uint64_t* sum, uint64_t* num_zero) {
  I32x8 mins = {INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX, INT_MAX};
  I32x8 maxs = ~mins;
  I32x8 zeros = {0, 0, 0, 0, 0, 0, 0, 0};
  U64x4 sums = {0, 0, 0, 0};
  for (size_t i = 0; i < count; i += kAvx2Lanes) {
    const I32x8 x = *reinterpret_cast<const UnalignedI32x8*>(lens + i);
    mins = x < mins ? x : mins;
    maxs = x > maxs ? x : maxs;
    zeros -= x == 0;
    sums += ((U64x4)x >> 32) + ((U64x4)x & kLowHalf);
  }
  for (size_t lane = 0; lane < kAvx2Lanes; ++lane) {
    *min = mins[lane] < *min ? mins[lane] : *min;
    *max = maxs[lane] > *max ? maxs[lane] : *max;
    *num_zero += static_cast<uint64_t>(zeros[lane]);
  }
  *sum += sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace detail
}  // namespace runtime
}  // namespace pto
#endif
