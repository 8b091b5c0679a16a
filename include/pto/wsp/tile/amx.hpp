// SPDX-License-Identifier: MIT
/// \file
/// Products of bf16 in the matrix registers of a processor (AMX of Intel). A register has 16 rows of 64
/// bytes; one instruction adds 32 terms to each of 16 x 16 sums: terms at even and at odd places are summed
/// separately, in ascending order, and then both are added to the sum. Numbers below 2^-126 count as 0.
#pragma once

#include "pto/wsp/tile/ahead.hpp"
#include "pto/wsp/tile/terms.hpp"

#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pto::wsp::tile::amx {

inline constexpr int kRows = 16;   ///< of a register
inline constexpr int kTerms = 32;  ///< of one instruction
inline constexpr int kPairs = kTerms / 2;

/// Register numbers; lower registers are sums, one vector of columns each.
inline constexpr int kLeft = 4, kFirstRight = 5, kRightRegisters = 3;

#if defined(PTO_AMX_BY_HAND)  // in plain C++, of any number of lanes, for tests

inline constexpr bool kIsKnown = true;
inline bool is_allowed() { return true; }

struct Register {
  uint32_t bits[kRows][16];
};
inline thread_local Register registers[8];
inline thread_local int64_t num_rows;

inline void configure(int64_t rows) { num_rows = rows; }
inline void release() {}

template <int kTo>
void clear() {
  registers[kTo] = {};
}
template <int kTo>
void load(const void* from, int64_t step) {
  const int64_t rows = kTo >= kFirstRight ? kPairs : num_rows, bytes = kTo == kLeft ? 64 : 4 * kLanes;
  for (int64_t r = 0; r < rows; ++r)
    __builtin_memcpy(registers[kTo].bits[r], static_cast<const char*>(from) + r * step, bytes);
}
template <int kFrom>
void store(void* to, int64_t step) {
  for (int64_t r = 0; r < num_rows; ++r)
    __builtin_memcpy(static_cast<char*>(to) + r * step, registers[kFrom].bits[r], 4 * kLanes);
}
template <int kTo, int kRight>
void add_products() {
  const auto value = [](uint32_t bits) {
    float wide;
    __builtin_memcpy(&wide, &bits, sizeof wide);
    return wide;
  };
  for (int64_t r = 0; r < num_rows; ++r) {
    for (int64_t j = 0; j < kLanes; ++j) {
      float even = 0.0f, odd = 0.0f;
      for (int64_t t = 0; t < kPairs; ++t) {
        const uint32_t a = registers[kLeft].bits[r][t], b = registers[kRight].bits[t][j];
        even = __builtin_fmaf(value(a << 16), value(b << 16), even);
        odd = __builtin_fmaf(value(a & 0xffff0000u), value(b & 0xffff0000u), odd);
      }
      uint32_t& bits = registers[kTo].bits[r][j];
      const float sum = value(bits) + (even + odd);
      __builtin_memcpy(&bits, &sum, sizeof sum);
    }
  }
}

#elif defined(__AMX_BF16__) && PTO_LANES == 16

inline constexpr bool kIsKnown = true;

/// Whether the system lets this process use the registers. Requests it once.
inline bool is_allowed() {
  constexpr long kRequest = 0x1023, kData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  static int answer = 0;                         // not yet
  int known = __atomic_load_n(&answer, __ATOMIC_RELAXED);
  if (known == 0) {
    known = syscall(SYS_arch_prctl, kRequest, kData) == 0 ? 1 : -1;
    __atomic_store_n(&answer, known, __ATOMIC_RELAXED);
  }
  return known > 0;
}

/// Sets the rows of sums and left operands. Call it first and `release` last: in between, the system saves 8
/// KiB more per thread.
inline void configure(int64_t rows) {
  struct alignas(64) {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  } shapes{};
  shapes.palette = 1;
  for (int i = 0; i < kFirstRight + kRightRegisters; ++i) {
    shapes.bytes[i] = 64;
    shapes.rows[i] = uint8_t(i < kFirstRight ? rows : kPairs);
  }
  asm volatile("ldtilecfg %0" : : "m"(shapes));
}
inline void release() { asm volatile("tilerelease"); }

template <int kTo>
PTO_INLINE inline void clear() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTo));
}
/// \param step bytes from row to row
template <int kTo>
PTO_INLINE inline void load(const void* from, int64_t step) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(step), "i"(kTo) : "memory");
}
template <int kFrom>
PTO_INLINE inline void store(void* to, int64_t step) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(step), "i"(kFrom) : "memory");
}
template <int kTo, int kRight>
PTO_INLINE inline void add_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kTo), "i"(kLeft), "i"(kRight));
}

#else

inline constexpr bool kIsKnown = false;
inline bool is_allowed() { return false; }

#endif

/// c (+)= a @ b for one block of columns over `steps` times 32 terms; whole vectors of `c` are written.
template <int kVectors, class Soon>
void matmul_columns(const Tile<float>& c, const Strided<Bf16, One>& a, const uint32_t* b, int64_t steps,
                    bool accumulate, Soon& soon);

#if defined(PTO_AMX_BY_HAND) || (defined(__AMX_BF16__) && PTO_LANES == 16)

/// c[rows][kVectors * kLanes] (+)= a @ b over `steps` times 32 terms, for as many rows as are configured.
/// Rows of `b`, pairs of terms, are as long as those of `c`.
template <int kVectors, class Soon>
PTO_INLINE inline void matmul_block(float* c, int64_t c_stride, const Bf16* a, int64_t a_stride,
                                    const uint32_t* b, int64_t steps, bool accumulate, Soon& soon) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t c_bytes = c_stride * int64_t(sizeof *c), a_bytes = a_stride * int64_t(sizeof *a);
  for_constants<kVectors>([&](auto v) PTO_INLINE {
    accumulate ? load<v.value>(c + v.value * kLanes, c_bytes) : clear<v.value>();
  });
  int64_t wait = 0;
  for (int64_t t = 0; t < steps; ++t, a += kTerms, b += kPairs * kWidth) {
    for (; wait <= 0; wait += soon.spacing) soon.next();
    wait -= kTerms;
    load<kLeft>(a, a_bytes);
    for_constants<kVectors>([&](auto v) PTO_INLINE {
      constexpr int kRight = kFirstRight + v.value % kRightRegisters;
      load<kRight>(b + v.value * kLanes, kWidth * int64_t(sizeof *b));
      add_products<v.value, kRight>();
    });
  }
  for_constants<kVectors>([&](auto v) PTO_INLINE { store<v.value>(c + v.value * kLanes, c_bytes); });
}

template <int kVectors, class Soon>
void matmul_columns(const Tile<float>& c, const Strided<Bf16, One>& a, const uint32_t* b, int64_t steps,
                    bool accumulate, Soon& soon) {
  for (int64_t i = 0, configured = 0; i < c.rows; i += kRows) {
    const int64_t rows = c.rows - i < kRows ? c.rows - i : kRows;
    if (rows != configured) configure(configured = rows);
    matmul_block<kVectors>(c.row(i), c.stride, a.data + i * a.row_step, a.row_step, b, steps, accumulate,
                           soon);
  }
  release();
}

#endif

}  // namespace pto::wsp::tile::amx
