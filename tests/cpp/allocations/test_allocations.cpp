// SPDX-License-Identifier: MIT
/// \file
/// Whichever allocation fails, a run ends with an error or as it should, and the next one is whole.
#include <new>

#include "../check.hpp"
#include "../kernels.hpp"

namespace test_allocations {

/// Allocations that succeed before one fails; negative: all succeed.
std::atomic<int64_t> num_before_failure{-1};

void* allocate(size_t bytes) {
  if (num_before_failure.load(std::memory_order_relaxed) >= 0 && num_before_failure.fetch_sub(1) == 0)
    throw std::bad_alloc();
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace test_allocations

[[gnu::noinline]] void* operator new(size_t bytes) { return test_allocations::allocate(bytes); }
[[gnu::noinline]] void* operator new[](size_t bytes) { return test_allocations::allocate(bytes); }
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace test_allocations {

using namespace pto::wsp;

namespace {

int32_t count(const View* views, const Scalar*, const TaskContext*) {
  ++*static_cast<int64_t*>(views[0].data);
  return 0;
}

/// Runs with the allocation after `num_before` others failing. Returns whether one failed.
bool run_failing(Executable& executable, std::vector<int64_t>& data, const sched::RunOptions& options,
                 int64_t num_before) {
  std::fill(data.begin(), data.end(), 0);
  num_before_failure = num_before;
  bool is_whole = false;
  try {
    executable.run({arrays::ref(data)}, {}, options);
    is_whole = true;
  } catch (const EngineError& error) {
    num_before_failure = -1;
    CHECK(error.code() == "out-of-memory");
  } catch (const std::bad_alloc&) {
  }
  const bool has_failed = num_before_failure.exchange(-1) < 0;
  if (is_whole) CHECK(std::all_of(data.begin(), data.end(), [](int64_t x) { return x == 30; }));
  return has_failed;
}

}  // namespace

TEST(a_run_without_memory_ends) {
  const kernels::Library library(count, true);
  const auto bytes = kernels::loops(library, 30, 200, true);
  std::vector<int64_t> data(200);
  for (const bool keeps_graph : {false, true}) {
    for (uint32_t workers : {1u, 3u}) {
      sched::RunOptions options = kernels::with_workers(workers);
      options.tracks = true;
      options.ready = sched::Ready::kFifo;
      options.jitter = 5;  // small slices, most of which are recorded
      if (keeps_graph) options.start = sched::Start::kAfterBuild;
      int64_t num_before = 0;
      bool has_failed = true;
      for (; has_failed && num_before < 5000; num_before += 1 + num_before / 16) {
        Executable executable = kernels::load(library, bytes);
        has_failed = run_failing(executable, data, options, num_before);
        run_failing(executable, data, options, INT64_MAX);
      }
      CHECK(num_before > 100 || !has_failed);
    }
  }
}

}  // namespace test_allocations
