// SPDX-License-Identifier: MIT
// What this machine can do right now: clock, multiply-add peak, read rates and latencies of its memories.
// Compiled for the machine it runs on, when a calibration starts.
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>
#include <utility>
#include <vector>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif
#if defined(__AMX_BF16__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
typedef float FloatVector __attribute__((vector_size(kVectorBytes)));

constexpr int kChains = 12;  // independent accumulators: covers latency x ports, and fits 16 registers
constexpr int kSteps = 4096;

bool counts_cpu_time = false;

// Seconds; with `counts_cpu_time`, of the calling thread on a processor, without those of other programs.
double now_s() {
#if defined(__linux__)
  if (counts_cpu_time) {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
#endif
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Keeps the compiler from dropping a value that nothing reads.
template <typename T>
void keep(T& value) {
  asm volatile("" : "+m"(value) : : "memory");
}

// Where the calling thread is, and the `number`-th CPU after that: the system could leave a thread on the CPU
// of its maker, who waits for it, for as long as a measurement takes.
#if defined(__linux__)
int current_cpu() { return sched_getcpu(); }

void move_off(int cpu, int number) {
  cpu_set_t allowed, chosen;
  if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed) != 0) return;
  for (int left = number % CPU_COUNT(&allowed); left > 0;) {
    cpu = (cpu + 1) % CPU_SETSIZE;
    if (CPU_ISSET(cpu, &allowed)) --left;
  }
  CPU_ZERO(&chosen);
  CPU_SET(cpu, &chosen);
  pthread_setaffinity_np(pthread_self(), sizeof chosen, &chosen);
}
#else
int current_cpu() { return 0; }
void move_off(int, int) {}
#endif

// Runs `work(thread)` on all threads together and returns the seconds from the common start to the last end;
// with `counts_cpu_time`, those of the thread that works longest.
template <typename Work>
double timed_on(int num_threads, Work work) {
  std::atomic<int> waiting{num_threads};
  std::vector<double> began(num_threads), ended(num_threads);
  const int caller = current_cpu();
  auto body = [&](int thread) {
    if (thread > 0) move_off(caller, thread);
    waiting.fetch_sub(1);
    while (waiting.load() > 0) {
    }
    began[thread] = now_s();
    work(thread);
    ended[thread] = now_s();
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < num_threads; ++t) threads.emplace_back(body, t);
  body(0);
  for (std::thread& thread : threads) thread.join();
  if (counts_cpu_time) {
    double longest = 0.0;
    for (int t = 0; t < num_threads; ++t) longest = std::max(longest, ended[t] - began[t]);
    return longest;
  }
  double first = began[0], last = ended[0];
  for (int t = 1; t < num_threads; ++t) {
    if (began[t] < first) first = began[t];
    if (ended[t] > last) last = ended[t];
  }
  return last - first;
}

// One burst of multiply-adds; returns its floating-point operations.
double fma_burst() {
  FloatVector sums[kChains] = {}, a = {}, b = {};
  keep(a), keep(b);
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = a * b + sums[c];
  }
  for (FloatVector& sum : sums) keep(sum);
  return 2.0 * kSteps * kChains * (kVectorBytes / sizeof(float));
}

#if defined(__AMX_BF16__)
// Products in matrix registers: four sums, and two operands of either side.
double amx_burst() {
  alignas(64) unsigned char shapes[64] = {1};
  for (int i = 0; i < 8; ++i) shapes[16 + 2 * i] = 64, shapes[48 + i] = 16;
  asm volatile("" : : "r"(shapes) : "memory");  // g++ believes that only the first 8 bytes are read
  _tile_loadconfig(shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int step = 0; step < kSteps; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return 2.0 * kSteps * 4 * 16 * 16 * 32;
}

// Whether the system lets this process use matrix registers.
bool may_use_amx() {
  constexpr long kRequest = 0x1023, kData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequest, kData) == 0;
}
#endif

double bf16_burst() {
#if defined(__AVX512BF16__)
  __m512 sums[kChains] = {};
  __m512bh a = {}, b = {};
  keep(a), keep(b);
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbf16_ps(sums[c], a, b);
  }
  for (__m512& sum : sums) keep(sum);
  return 4.0 * kSteps * kChains * 16;
#else
  return 0.0;
#endif
}

template <typename Burst>
double gflops(int num_threads, double seconds, Burst burst) {
  std::vector<double> flops(num_threads);
  const double elapsed = timed_on(num_threads, [&](int thread) {
    const double end = now_s() + seconds;
    double done = 0.0;
    while (now_s() < end) done += burst();
    flops[thread] = done;
  });
  double total = 0.0;
  for (double done : flops) total += done;
  return total / elapsed * 1e-9;
}

}  // namespace

extern "C" {

void pto_count_cpu_time(bool is_wanted) { counts_cpu_time = is_wanted; }

double pto_fma_gflops(int num_threads, double seconds) { return gflops(num_threads, seconds, fma_burst); }

// 0 where the processor has no bf16 dot product.
double pto_bf16_gflops(int num_threads, double seconds) {
#if defined(__AMX_BF16__)
  if (may_use_amx()) return gflops(num_threads, seconds, amx_burst);
#endif
#if defined(__AVX512BF16__)
  return gflops(num_threads, seconds, bf16_burst);
#else
  (void)num_threads, (void)seconds;
  return 0.0;
#endif
}

// Maps and touches `bytes` of memory, on huge pages where the system gives them; null if it cannot.
void* pto_map(long long bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  for (long long i = 0; i < bytes; i += 4096) static_cast<char*>(memory)[i] = 1;
  return memory;
}

void pto_unmap(void* memory, long long bytes) { munmap(memory, bytes); }

// Reads the memory `repeats` times, in equal parts; `bytes` is a multiple of 1024 x num_threads.
double pto_read_gbs(int num_threads, const void* memory, long long bytes, long long repeats) {
  const long long part = bytes / num_threads / static_cast<long long>(sizeof(FloatVector));
  const double elapsed = timed_on(num_threads, [&](int thread) {
    const FloatVector* p = static_cast<const FloatVector*>(memory) + thread * part;
    FloatVector sums[8] = {};
    for (long long repeat = 0; repeat < repeats; ++repeat) {
      for (long long i = 0; i < part; i += 8) {
#pragma GCC unroll 8
        for (int c = 0; c < 8; ++c) sums[c] += p[i + c];
      }
      for (FloatVector& sum : sums) keep(sum);
    }
  });
  return static_cast<double>(bytes) * static_cast<double>(repeats) / elapsed * 1e-9;
}

// The clock in GHz, from additions that each wait for the one before.
double pto_clock_ghz() {
  constexpr long long kAdditions = 20'000'000;
  uint64_t sum = 1, step = 3;
  const double began = now_s();
  for (long long i = 0; i < kAdditions; i += 8) {
#pragma GCC unroll 8
    for (int c = 0; c < 8; ++c) {
      sum += step;
      asm volatile("" : "+r"(sum), "+r"(step));
    }
  }
  const double elapsed = now_s() - began;
  keep(sum);
  return kAdditions / elapsed * 1e-9;
}

// Nanoseconds of a read that waits for the one before, over lines of `bytes` of memory in a random order.
double pto_latency_ns(void* memory, long long bytes, long long reads) {
  constexpr uint64_t kLine = 64;
  const uint64_t lines = static_cast<uint64_t>(bytes) / kLine;
  char* const base = static_cast<char*>(memory);
  std::vector<uint32_t> order(lines);
  for (uint64_t i = 0; i < lines; ++i) order[i] = static_cast<uint32_t>(i);
  uint64_t random = 88172645463325252u;
  for (uint64_t i = lines - 1; i > 0; --i) {
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    std::swap(order[i], order[random % i]);
  }
  for (uint64_t i = 0; i < lines; ++i)
    *reinterpret_cast<void**>(base + kLine * order[i]) = base + kLine * order[(i + 1) % lines];
  void* at = base;
  const double began = now_s();
  for (long long i = 0; i < reads; ++i) at = *static_cast<void**>(at);
  const double elapsed = now_s() - began;
  keep(at);
  return elapsed / static_cast<double>(reads) * 1e9;
}
}
