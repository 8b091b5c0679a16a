// SPDX-License-Identifier: MIT
/// \file
/// Timed calls of the planner headers, the specification written literally, and plain stores as the limit.
/// Built like a user's program for any x86-64: no -march. Times are microseconds of one call.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>

#include <pto/runtime/runtime.hpp>

using namespace pto::runtime;

namespace {

/// Mean over `repeats` calls in a row: one call on a small buffer is shorter than what surrounds it disturbs.
template <typename Call>
double time_us(int repeats, const Call& call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() /
         repeats;
}

int repeats_for(int64_t bytes) { return static_cast<int>(std::max<int64_t>(1, (1 << 20) / bytes)); }
int64_t plan_bytes(int capacity) { return int64_t{capacity} * static_cast<int64_t>(sizeof(WorkDescriptor)); }

int64_t literal_count(const int* lens, int batch, int heads, int chunk) {
  int64_t total = 0;
  for (int b = 0; b < batch; ++b) total += (lens[b] + chunk - 1) / chunk;
  return total * heads;
}

int literal_chunk_size(const PlanConfig& config, const int* lens, int batch, int heads) {
  int low = config.chunk_min;
  int high = config.chunk_max;
  while (low < high) {
    const int mid = (low + high) / 2;
    if (literal_count(lens, batch, heads, mid) > config.max_work_units) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

void literal_generate(const int* lens, int batch, int heads, int chunk, WorkDescriptor* out) {
  uint32_t id = 0;
  for (int b = 0; b < batch; ++b) {
    const int64_t n = (lens[b] + chunk - 1) / chunk;
    const int tier = DecodeAttentionTiers::select_tier(lens[b]);
    for (int h = 0; h < heads; ++h) {
      for (int64_t k = 0; k < n; ++k) {
        const int64_t start = k * lens[b] / n;
        const int64_t end = (k + 1) * lens[b] / n;
        WorkDescriptor d{};
        d.work_id = id;
        d.tier = static_cast<uint8_t>(tier);
        d.flags = static_cast<uint8_t>((k == 0 ? 1 : 0) | (k == n - 1 ? 2 : 0));
        params::Attention::set(d, static_cast<uint32_t>(b), static_cast<uint32_t>(h),
                               static_cast<uint32_t>(start), static_cast<uint32_t>(end - start));
        out[id++] = d;
      }
    }
  }
}

#if defined(__x86_64__)
typedef uint64_t Words __attribute__((vector_size(64)));
__attribute__((target("avx512f"))) void wide_stores(char* out, size_t bytes) {
  const Words words = {1, 2, 3, 4, 5, 6, 7, 8};
  for (size_t i = 0; i + 64 <= bytes; i += 64) *reinterpret_cast<volatile Words*>(out + i) = words;
}
#endif

}  // namespace

extern "C" {

double plan_chunk_size_us(const int* lens, int batch, int heads, int* chunk) {
  const AttentionPlanner planner;
  return time_us(1, [&] { *chunk = planner.plan_chunk_size(lens, batch, heads); });
}

double literal_chunk_size_us(const int* lens, int batch, int heads, int* chunk) {
  return time_us(1, [&] { *chunk = literal_chunk_size(PlanConfig{}, lens, batch, heads); });
}

/// \return a negative time if the planner reports an error.
double generate_us(const int* lens, int batch, int heads, int chunk, int capacity, void* out) {
  const AttentionPlanner planner;
  int count = 0;
  PlanResult result = PlanResult::OK;
  const double us = time_us(repeats_for(plan_bytes(capacity)), [&] {
    result = planner.generate(lens, batch, heads, chunk, static_cast<WorkDescriptor*>(out), capacity, &count);
  });
  return result == PlanResult::OK && count == capacity ? us : -1;
}

double literal_generate_us(const int* lens, int batch, int heads, int chunk, int capacity, void* out) {
  return time_us(repeats_for(plan_bytes(capacity)),
                 [&] { literal_generate(lens, batch, heads, chunk, static_cast<WorkDescriptor*>(out)); });
}

/// The faster of the C library's and the widest stores that the CPU has, 64-byte aligned.
double store_us(void* out, int64_t bytes) {
  const size_t count = static_cast<size_t>(bytes);
  double us = time_us(repeats_for(bytes), [&] { std::memset(out, 1, count); });
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    us = std::min(us, time_us(repeats_for(bytes), [&] { wide_stores(static_cast<char*>(out), count); }));
  }
#endif
  return us;
}
}
