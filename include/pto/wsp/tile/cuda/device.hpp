// SPDX-License-Identifier: MIT
/// \file
/// The operations of a thread block: the only place with PTX, thread indices and barriers.
///
/// Each operation has two bodies. nvcc compiles the first one. Other compilers take the second one, which
/// calls an emulation of a block: `pto_wsp_cuda_emulation.hpp`, found on the include path.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define PTO_DEVICE __device__
#define PTO_DEVICE_INLINE __device__ __forceinline__
/// A function whose registers are its own: those of its caller are in memory while it runs.
#define PTO_DEVICE_APART __device__ __noinline__
/// Before a loop of a few iterations, whose arrays are registers.
#define PTO_UNROLL _Pragma("unroll")
#define PTO_UNROLL_4 _Pragma("unroll 4")
/// Before a loop of a few iterations whose code is long.
#define PTO_ROLLED _Pragma("unroll 1")
/// The kernel of a program: `run(program, scratch)` in each block, with its shared memory.
/// It may use all registers of a thread. Without the 1, nvcc spills registers of kernels with calls.
#define PTO_PROGRAM_KERNEL(Program, run)                                         \
  extern "C" __global__ void __launch_bounds__(pto::wsp::cuda::kBlockThreads, 1) \
      pto_wsp_program(const __grid_constant__ Program program) {                 \
    extern __shared__ __align__(64) char shared[];                               \
    run(program, shared);                                                        \
  }
#else
#define PTO_DEVICE
#define PTO_DEVICE_APART
#define PTO_PROGRAM_KERNEL(Program, run)
#define PTO_DEVICE_INLINE inline
#define PTO_UNROLL
#define PTO_UNROLL_4
#define PTO_ROLLED
#include "pto_wsp_cuda_emulation.hpp"
#endif

namespace pto::wsp::cuda {

/// Threads of a warp.
inline constexpr int kWarp = 32;

/// Threads of a block.
#if defined(__CUDACC__)
inline constexpr int kBlockThreads = 128;
#else
inline constexpr int kBlockThreads = emulation::kThreads;
#endif

/// Bytes of the largest asynchronous copy.
inline constexpr int kCopyBytes = 16;

/// The number of this thread in its block.
PTO_DEVICE_INLINE int thread() {
#if defined(__CUDACC__)
  return static_cast<int>(threadIdx.x);
#else
  return emulation::thread();
#endif
}

/// Threads of a block: kBlockThreads, which compilers do not see here. They unroll less.
PTO_DEVICE_INLINE int threads() {
#if defined(__CUDACC__)
  return static_cast<int>(blockDim.x);
#else
  return emulation::threads();
#endif
}

/// Waits until all threads of the block arrive. Their earlier writes are then visible to all of them.
PTO_DEVICE_INLINE void sync() {
#if defined(__CUDACC__)
  __syncthreads();
#else
  emulation::sync();
#endif
}

/// As `sync`; returns whether `holds` is true in any thread.
PTO_DEVICE_INLINE bool any(bool holds) {
#if defined(__CUDACC__)
  return __syncthreads_or(holds) != 0;
#else
  return emulation::any(holds);
#endif
}

/// The value of the thread of the warp whose number differs in the bits of `mask`. All threads call it.
template <class T>
PTO_DEVICE_INLINE T exchange(T value, int mask) {
#if defined(__CUDACC__)
  return __shfl_xor_sync(0xffffffffu, value, mask);
#else
  return emulation::exchange(value, mask);
#endif
}

/// Elements of a matrix that `mma` multiplies: rows, columns and terms.
inline constexpr int kMmaRows = 16, kMmaCols = 8, kMmaTerms = 16;

/// sums += a @ b for one warp, whose threads all call it: 16 x 16 by 16 x 8 elements of f16, or of bf16. In
/// thread t, with g = t / 4 and p = t % 4, each word has two terms, the lower one in its lower half:
/// a = rows g, g + 8, g, g + 8 with terms 2p, 2p, 2p + 8, 2p + 8; b = column g with terms 2p, 2p + 8; sums =
/// rows g, g, g + 8, g + 8 in columns 2p, 2p + 1, 2p, 2p + 1.
template <bool kIsBf16>
PTO_DEVICE_INLINE void mma(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(__CUDACC__)
  if constexpr (kIsBf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#else
  emulation::mma(sums, a, b, kIsBf16);
#endif
}

/// A place in shared memory, which counts bytes.
#if defined(__CUDACC__)
using SharedPlace = uint32_t;
#else
using SharedPlace = const char*;
#endif

/// The place of an address in shared memory.
PTO_DEVICE_INLINE SharedPlace shared_place(const void* at) {
#if defined(__CUDACC__)
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
#else
  return static_cast<const char*>(at);
#endif
}

/// Loads four matrices of 8 x 8 elements of 16 bits for one warp, whose threads all call it. Thread t names
/// row t % 8 of matrix t / 8: 16 bytes, at a multiple of 16. Word m is of matrix m: in thread t, with
/// g = t / 4 and p = t % 4, elements 2p and 2p + 1 of row g, or, where kTurned, of column g.
template <bool kTurned>
PTO_DEVICE_INLINE void load_matrices(uint32_t (&words)[4], SharedPlace row) {
#if defined(__CUDACC__)
  if constexpr (kTurned) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row)
                 : "memory");
  }
#else
  emulation::load_matrices(words, row, kTurned);
#endif
}

/// Starts a copy of kBytes (4, 8 or 16) from global to shared memory; both addresses are multiples of it.
template <int kBytes>
PTO_DEVICE_INLINE void copy_later(SharedPlace to, const void* from) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "the hardware has no other sizes");
#if defined(__CUDACC__)
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
  }
#else
  emulation::copy_later(const_cast<char*>(to), from, kBytes);
#endif
}

/// Waits for the copies that this thread started.
PTO_DEVICE_INLINE void finish_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#else
  emulation::finish_copies();
#endif
}

/// Bytes of a line of the cache of all multiprocessors.
constexpr int kLineBytes = 128;

/// Asks for the line of an address in global memory, which is not read now.
PTO_DEVICE_INLINE void fetch_line(const void* at) {
#if defined(__CUDACC__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  emulation::fetch_line(at);
#endif
}

/// Ends a group of copies: those that this thread started since the group before. A group may be empty.
PTO_DEVICE_INLINE void end_group() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::end_group();
#endif
}

/// Waits for the copies of all groups that this thread ended, except for the last `kLater` groups.
template <int kLater>
PTO_DEVICE_INLINE void finish_groups() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
#else
  emulation::finish_groups(kLater);
#endif
}

/// The number of this block, and the blocks of the launch.
PTO_DEVICE_INLINE uint32_t block() {
#if defined(__CUDACC__)
  return blockIdx.x;
#else
  return emulation::block_number();
#endif
}
PTO_DEVICE_INLINE uint32_t blocks() {
#if defined(__CUDACC__)
  return gridDim.x;
#else
  return emulation::num_blocks();
#endif
}

/// A counter in global memory. What its writer did before `release` is visible after an `acquire` that
/// reads the value.
PTO_DEVICE_INLINE uint64_t acquire(const uint64_t* counter) {
#if defined(__CUDACC__)
  uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
  return value;
#else
  return emulation::acquire(counter);
#endif
}
PTO_DEVICE_INLINE void release(uint64_t* counter, uint64_t value) {
#if defined(__CUDACC__)
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(counter), "l"(value) : "memory");
#else
  emulation::release(counter, value);
#endif
}

/// Writes a counter that tells others nothing about what was done before.
PTO_DEVICE_INLINE void count(uint64_t* counter, uint64_t value) {
#if defined(__CUDACC__)
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(counter), "l"(value) : "memory");
#else
  __atomic_store_n(counter, value, __ATOMIC_RELAXED);
#endif
}

/// Lowers a number in global memory to `value` if it is larger.
PTO_DEVICE_INLINE void lower_to(uint64_t* number, uint64_t value) {
#if defined(__CUDACC__)
  atomicMin(reinterpret_cast<unsigned long long*>(number), static_cast<unsigned long long>(value));
#else
  emulation::lower_to(number, value);
#endif
}

/// Adds 1 to a number in global memory; returns what it was.
PTO_DEVICE_INLINE uint64_t take_ticket(uint64_t* number) {
#if defined(__CUDACC__)
  return atomicAdd(reinterpret_cast<unsigned long long*>(number), 1ull);
#else
  return emulation::take_ticket(number);
#endif
}

/// The value of thread 0, in all threads of the block. All of them call it.
PTO_DEVICE_INLINE uint64_t broadcast(uint64_t value) {
#if defined(__CUDACC__)
  __shared__ uint64_t slot;
  if (threadIdx.x == 0) slot = value;
  __syncthreads();
  const uint64_t found = slot;
  __syncthreads();
  return found;
#else
  return emulation::broadcast(value);
#endif
}

/// Nanoseconds of a clock that all blocks have.
PTO_DEVICE_INLINE uint64_t clock_ns() {
#if defined(__CUDACC__)
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
#else
  return emulation::clock_ns();
#endif
}

/// Lets other blocks go on.
PTO_DEVICE_INLINE void pause() {
#if defined(__CUDACC__)
  asm volatile("nanosleep.u32 40;");
#else
  emulation::pause();
#endif
}

/// The bits of a word that are 1.
PTO_DEVICE_INLINE int ones(uint32_t word) {
#if defined(__CUDACC__)
  return __popc(word);
#else
  return __builtin_popcount(word);
#endif
}

/// a * b + c, rounded once.
PTO_DEVICE_INLINE float fma(float a, float b, float c) {
#if defined(__CUDACC__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

PTO_DEVICE_INLINE float sqrt(float a) {
#if defined(__CUDACC__)
  return __fsqrt_rn(a);
#else
  return __builtin_sqrtf(a);
#endif
}

PTO_DEVICE_INLINE uint32_t bits_of(float a) {
#if defined(__CUDACC__)
  return __float_as_uint(a);
#else
  uint32_t bits;
  __builtin_memcpy(&bits, &a, 4);
  return bits;
#endif
}

PTO_DEVICE_INLINE float float_of(uint32_t bits) {
#if defined(__CUDACC__)
  return __uint_as_float(bits);
#else
  float a;
  __builtin_memcpy(&a, &bits, 4);
  return a;
#endif
}

}  // namespace pto::wsp::cuda
