// SPDX-License-Identifier: MIT
/// \file
/// A thread block on one thread of the host, for tests: the second bodies of pto/wsp/tile/cuda/device.hpp.
///
/// The threads of a block are fibers. A fiber runs until it waits; then one of the fibers that can go on is
/// chosen at random. An asynchronous copy fills its destination with ones when it starts. It happens when it
/// is waited for, last one first; a wait for groups leaves the copies of later groups. A barrier that not all
/// threads reach ends the process with a message. ThreadSanitizer sees each fiber as a thread. With
/// PTO_EMULATION_DELAY_US, blocks sleep in random places.
#pragma once

#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define PTO_UNCHECKED __attribute__((no_sanitize("thread")))
#else
#define PTO_UNCHECKED
#endif

#if !defined(PTO_EMULATION_DELAY_US)
#define PTO_EMULATION_DELAY_US 0
#endif

namespace pto::wsp::cuda::emulation {

inline constexpr int kThreads = 64, kWarpThreads = 32, kMaxCopies = 4096;
inline constexpr uint64_t kDelayNs = 1000u * PTO_EMULATION_DELAY_US, kDelayEvery = 200;
inline constexpr size_t kStackBytes = 128 * 1024;

enum class Wait : uint8_t { none, block, block_any, warp, done };

struct Copy {
  void* to;
  const void* from;
  int bytes;
  int group;
};

struct Fiber {
  ucontext_t context;
  char* stack;
  Wait wait;
  bool vote;
  int phase;
  int turns[1 + kThreads / kWarpThreads];
  uint64_t slots[2];
  uint32_t words[2][6];
  uintptr_t places[2];
  Copy* copies;
  int num_copies, num_groups;
  int32_t result;
#if defined(__SANITIZE_THREAD__)
  void* tsan;
#endif
};

struct Block {
  Fiber fibers[kThreads];
  ucontext_t scheduler;
  int current;
  bool vote;
  uint64_t slot;
  uint64_t random;
  int ready[kThreads], num_ready;
  char meetings[1 + kThreads / kWarpThreads][2], end;
  int32_t (*body)(void*);
  void* argument;
#if defined(__SANITIZE_THREAD__)
  void* tsan_scheduler;
#endif
};

inline thread_local Block* block = nullptr;

[[noreturn]] inline void broken(const char* what) {
  fprintf(stderr, "cuda emulation: %s\n", what);
  abort();
}

PTO_UNCHECKED inline void switch_to(ucontext_t* from, ucontext_t* to, [[maybe_unused]] void* tsan) {
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(tsan, __tsan_switch_to_fiber_no_sync);
#endif
  swapcontext(from, to);
}

/// Waits for the fibers of a group: 0 is the block, 1 + w is warp w. ThreadSanitizer sees two meetings of a
/// group in turn: a fiber that goes on late must not see what others did before the next meeting.
PTO_UNCHECKED inline void leave(Wait wait, [[maybe_unused]] int group) {
  Block& b = *block;
  Fiber& fiber = b.fibers[b.current];
  fiber.wait = wait;
#if defined(__SANITIZE_THREAD__)
  char* const meeting = wait == Wait::done ? &b.end : &b.meetings[group][fiber.turns[group] ^= 1];
  __tsan_release(meeting);
  switch_to(&fiber.context, &b.scheduler, b.tsan_scheduler);
  __tsan_acquire(meeting);
#else
  switch_to(&fiber.context, &b.scheduler, nullptr);
#endif
}

inline thread_local uint32_t own_number = 0, own_blocks = 1;

inline uint32_t block_number() { return own_number; }
inline uint32_t num_blocks() { return own_blocks; }

PTO_UNCHECKED inline uint64_t next_random(Block& b) {
  b.random ^= b.random << 13;
  b.random ^= b.random >> 7;
  b.random ^= b.random << 17;
  return b.random;
}

/// Lets other blocks overtake this one: one call of kDelayEvery sleeps, for up to kDelayNs.
PTO_UNCHECKED inline void delay() {
  if (kDelayNs == 0 || next_random(*block) % kDelayEvery != 0) return;
  const timespec time{0, static_cast<long>(next_random(*block) % (kDelayNs + 1))};
  nanosleep(&time, nullptr);
}

inline void pause() {
  sched_yield();
  delay();
}
inline uint64_t acquire(const uint64_t* counter) {
  delay();
  return __atomic_load_n(counter, __ATOMIC_ACQUIRE);
}
/// Every counter advances: one that does not belongs to a task that has run before.
inline void release(uint64_t* counter, uint64_t value) {
  delay();
  if (__atomic_load_n(counter, __ATOMIC_RELAXED) >= value) broken("a counter does not advance");
  __atomic_store_n(counter, value, __ATOMIC_RELEASE);
}
inline void lower_to(uint64_t* number, uint64_t value) {
  delay();
  uint64_t found = __atomic_load_n(number, __ATOMIC_RELAXED);
  while (value < found &&
         !__atomic_compare_exchange_n(number, &found, value, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
}
inline uint64_t take_ticket(uint64_t* number) {
  delay();
  const uint64_t found = __atomic_fetch_add(number, uint64_t{1}, __ATOMIC_RELAXED);
  delay();
  return found;
}
inline uint64_t clock_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

PTO_UNCHECKED inline int thread() { return block->current; }
inline int threads() { return kThreads; }

PTO_UNCHECKED inline void sync() {
  delay();
  leave(Wait::block, 0);
}
PTO_UNCHECKED inline bool any(bool holds) {
  block->fibers[block->current].vote = holds;
  leave(Wait::block_any, 0);
  return block->vote;
}

PTO_UNCHECKED inline uint64_t broadcast(uint64_t value) {
  if (block->current == 0) block->slot = value;
  sync();
  const uint64_t found = block->slot;
  sync();
  return found;
}

template <class T>
PTO_UNCHECKED T exchange(T value, int mask) {
  static_assert(sizeof(T) <= 8, "a slot has 8 bytes");
  Block& b = *block;
  const int self = b.current, warp = self / kWarpThreads;
  Fiber& fiber = b.fibers[self];
  // A fiber meets the others of its warp before it writes this slot again.
  const int phase = fiber.phase ^= 1;
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  fiber.slots[phase] = bits;
  leave(Wait::warp, 1 + warp);
  bits = b.fibers[self ^ mask].slots[phase];
  memcpy(&value, &bits, sizeof value);
  return value;
}

/// The value of a float of 16 bits.
inline double value16(uint32_t word, int half, bool is_bf16) {
  const auto bits = static_cast<uint16_t>(word >> (16 * half));
  if (is_bf16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction != 0 ? __builtin_nan("") : __builtin_inf())
                      : exponent == 0 ? fraction * 0x1p-24
                                      : (fraction + 1024) * __builtin_ldexp(1.0, exponent - 25);
  return bits >> 15 != 0 ? -size : size;
}

/// 16 terms and the sum before them, added in ascending order in f64 and rounded once.
PTO_UNCHECKED inline void mma(float (&sums)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                              bool is_bf16) {
  Block& block_ = *block;
  const int lane = block_.current % kWarpThreads, first = block_.current - lane;
  Fiber& fiber = block_.fibers[block_.current];
  const int phase = fiber.phase ^= 1;
  memcpy(fiber.words[phase], a, sizeof a);
  memcpy(fiber.words[phase] + 4, b, sizeof b);
  leave(Wait::warp, 1 + first / kWarpThreads);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), col = 2 * (lane % 4) + i % 2;
    double total = sums[i];
    for (int k = 0; k < 16; ++k) {
      const int place = k % 8 / 2, upper = k / 8;
      const uint32_t left = block_.fibers[first + row % 8 * 4 + place].words[phase][row / 8 + 2 * upper];
      const uint32_t right = block_.fibers[first + col * 4 + place].words[phase][4 + upper];
      total += value16(left, k % 2, is_bf16) * value16(right, k % 2, is_bf16);
    }
    sums[i] = static_cast<float>(total);
  }
}

/// What loads of matrices took in all blocks: groups of 8 rows, and wavefronts. Shared memory gives 128 bytes
/// in one wavefront: 8 rows in different banks, or equal rows.
inline uint64_t row_groups = 0, wavefronts = 0;

PTO_UNCHECKED inline void count_wavefronts(const Fiber* warp, int phase) {
  for (int group = 0; group < kWarpThreads; group += 8) {
    uint64_t most = 0;
    for (uintptr_t bank = 0; bank < 8; ++bank) {
      uint64_t rows = 0;
      for (int t = group; t < group + 8; ++t) {
        const uintptr_t unit = warp[t].places[phase] / 16;
        bool is_new = unit % 8 == bank;
        for (int before = group; before < t; ++before) is_new &= warp[before].places[phase] / 16 != unit;
        rows += is_new;
      }
      most = rows > most ? rows : most;
    }
    __atomic_fetch_add(&wavefronts, most, __ATOMIC_RELAXED);
  }
  __atomic_fetch_add(&row_groups, uint64_t{kWarpThreads / 8}, __ATOMIC_RELAXED);
}

/// The addresses that all blocks asked for early; how many.
inline uint64_t asked[4096], num_asked = 0;

inline void fetch_line(const void* at) {
  const uint64_t k = __atomic_fetch_add(&num_asked, uint64_t{1}, __ATOMIC_RELAXED);
  if (k < 4096) asked[k] = reinterpret_cast<uint64_t>(at);
}

/// 16 bytes of shared memory, which ThreadSanitizer sees to be read.
[[gnu::noinline]] inline void read_row(uint32_t* to, const char* row) {
  for (int i = 0; i < 4; ++i) to[i] = reinterpret_cast<const uint32_t*>(row)[i];
}

/// The shared memory of the block where it is known: its first byte, and the one after its last.
inline thread_local const char *shared_begin = nullptr, *shared_end = nullptr;

/// Four matrices of 8 x 8 elements of 16 bits.
PTO_UNCHECKED inline void load_matrices(uint32_t (&words)[4], const char* row, bool is_turned) {
  Block& block_ = *block;
  const int lane = block_.current % kWarpThreads, first = block_.current - lane;
  Fiber& fiber = block_.fibers[block_.current];
  const int phase = fiber.phase ^= 1;
  fiber.places[phase] = reinterpret_cast<uintptr_t>(row);
  if (fiber.places[phase] % 16 != 0) broken("a row of a matrix is not aligned");
  const bool is_outside = row < shared_begin || row + 16 > shared_end;
  if (shared_end != nullptr && is_outside) broken("a row of a matrix is outside of shared memory");
  read_row(fiber.words[phase], row);
  leave(Wait::warp, 1 + first / kWarpThreads);
  const Fiber* const warp = block_.fibers + first;
  if (lane == 0) count_wavefronts(warp, phase);
  const int group = lane / 4, place = lane % 4;
  for (int m = 0; m < 4; ++m) {
    const Fiber* const rows = warp + 8 * m;
    const auto turned = [&](int number) {
      return rows[number].words[phase][group / 2] >> (16 * (group % 2)) & 0xffffu;
    };
    words[m] = is_turned ? turned(2 * place) | turned(2 * place + 1) << 16 : rows[group].words[phase][place];
  }
}

/// Memory that a copy may write at any time until it is waited for: its contents are unknown.
[[gnu::noinline]] inline void spoil(void* to, int bytes) {
  for (int word = 0; word < bytes / 4; ++word) static_cast<uint32_t*>(to)[word] = ~uint32_t{0};
}
PTO_UNCHECKED inline void copy_later(void* to, const void* from, int bytes) {
  const auto misplaced = [bytes](const void* at) { return reinterpret_cast<uintptr_t>(at) % bytes != 0; };
  if (misplaced(to) || misplaced(from)) broken("an asynchronous copy is not aligned");
  Fiber& fiber = block->fibers[block->current];
  if (fiber.num_copies == kMaxCopies) broken("too many asynchronous copies of one thread");
  fiber.copies[fiber.num_copies++] = {to, from, bytes, fiber.num_groups};
  spoil(to, bytes);
}

[[gnu::noinline]] inline void make_copy(const Copy& copy) {
  for (int word = 0; word < copy.bytes / 4; ++word) {
    static_cast<uint32_t*>(copy.to)[word] = static_cast<const uint32_t*>(copy.from)[word];
  }
}
/// Makes the first copies that this thread started, last one first; the others stay.
PTO_UNCHECKED inline void make_copies(Fiber& fiber, int count) {
  for (int k = count; k > 0; --k) make_copy(fiber.copies[k - 1]);
  fiber.num_copies -= count;
  memmove(fiber.copies, fiber.copies + count, static_cast<size_t>(fiber.num_copies) * sizeof(Copy));
}
PTO_UNCHECKED inline void finish_copies() {
  Fiber& fiber = block->fibers[block->current];
  make_copies(fiber, fiber.num_copies);
}
PTO_UNCHECKED inline void end_group() { ++block->fibers[block->current].num_groups; }
PTO_UNCHECKED inline void finish_groups(int later) {
  Fiber& fiber = block->fibers[block->current];
  int count = 0;
  while (count < fiber.num_copies && fiber.copies[count].group < fiber.num_groups - later) ++count;
  make_copies(fiber, count);
}

PTO_UNCHECKED inline void run_fiber() {
  Block& b = *block;
  Fiber& fiber = b.fibers[b.current];
  fiber.result = b.body(b.argument);
  if (fiber.result == 0 && fiber.num_copies > 0) broken("a kernel returns before its copies are done");
  fiber.num_copies = 0;
  leave(Wait::done, 0);
}

/// Makes the fibers of [first, first + count) ready if all of them wait for the same.
PTO_UNCHECKED inline bool release(Block& b, int first, int count) {
  const Wait wait = b.fibers[first].wait;
  if (wait == Wait::none || wait == Wait::done || (wait == Wait::warp && count > kWarpThreads)) return false;
  if (wait != Wait::warp && count <= kWarpThreads) return false;
  bool vote = false;
  for (int t = first; t < first + count; ++t) {
    if (b.fibers[t].wait != wait) return false;
    vote |= b.fibers[t].vote;
  }
  b.vote = wait == Wait::block_any ? vote : b.vote;
  for (int t = first; t < first + count; ++t) {
    b.fibers[t].wait = Wait::none;
    b.ready[b.num_ready++] = t;
  }
  return true;
}

PTO_UNCHECKED inline bool release_any(Block& b) {
  if (release(b, 0, kThreads)) return true;
  bool found = false;
  for (int first = 0; first < kThreads; first += kWarpThreads) found |= release(b, first, kWarpThreads);
  return found;
}

/// The block of a thread, whose memory is used again.
struct OwnBlock {
  Block* block = static_cast<Block*>(calloc(1, sizeof(Block)));

  OwnBlock() {
    block->random = 88172645463325252u ^ reinterpret_cast<uintptr_t>(this);
    for (Fiber& fiber : block->fibers) {
      fiber.stack = static_cast<char*>(malloc(kStackBytes));
      fiber.copies = static_cast<Copy*>(malloc(kMaxCopies * sizeof(Copy)));
    }
  }
  ~OwnBlock() {
    for (Fiber& fiber : block->fibers) {
      free(fiber.stack);
      free(fiber.copies);
    }
    free(block);
  }
};

inline Block& own_block() {
  thread_local OwnBlock own;
  return *own.block;
}

/// Runs `body` in all threads of a block; the result is that of all threads.
PTO_UNCHECKED inline int32_t run_block(int32_t (*body)(void*), void* argument) {
  Block& b = own_block();
  block = &b;
  b.body = body;
  b.argument = argument;
  b.num_ready = 0;
#if defined(__SANITIZE_THREAD__)
  b.tsan_scheduler = __tsan_get_current_fiber();
#endif
  for (int t = 0; t < kThreads; ++t) {
    Fiber& fiber = b.fibers[t];
    getcontext(&fiber.context);
    fiber.context.uc_stack = {fiber.stack, 0, kStackBytes};
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, run_fiber, 0);
    fiber.wait = Wait::none;
    fiber.phase = 0;
    memset(fiber.turns, 0, sizeof fiber.turns);
    fiber.num_copies = fiber.num_groups = 0;
    b.ready[b.num_ready++] = t;
#if defined(__SANITIZE_THREAD__)
    fiber.tsan = __tsan_create_fiber(0);
    __tsan_release(&b);
#endif
  }
  do {
    while (b.num_ready > 0) {
      const int at = static_cast<int>(next_random(b) % static_cast<uint64_t>(b.num_ready));
      b.current = b.ready[at];
      b.ready[at] = b.ready[--b.num_ready];
#if defined(__SANITIZE_THREAD__)
      switch_to(&b.scheduler, &b.fibers[b.current].context, b.fibers[b.current].tsan);
#else
      switch_to(&b.scheduler, &b.fibers[b.current].context, nullptr);
#endif
    }
  } while (release_any(b));
  for (Fiber& fiber : b.fibers) {
    if (fiber.wait != Wait::done) broken("not all threads of the block reach a barrier");
    if (fiber.result != b.fibers[0].result) broken("threads of the block return different numbers");
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber.tsan);
#endif
  }
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(&b.end);
#endif
  block = nullptr;
  return b.fibers[0].result;
}

}  // namespace pto::wsp::cuda::emulation
