// SPDX-License-Identifier: MIT
/// \file
/// The functions of pto_runtime.h: checks of what they are called with, and errors as numbers.
#include "pto/wsp/pto_runtime.h"

#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "runtime.hpp"

using pto::wsp::EngineError;
using pto::wsp::Role;
using pto::wsp::capi::Directives;
using pto::wsp::capi::Kept;
using pto::wsp::capi::Mistake;
using pto::wsp::capi::Runtime;
using pto::wsp::trace::TaskDump;

struct PTORuntimeState {
  Runtime runtime;
};

namespace {

[[gnu::cold]] int keep_current(Runtime& runtime) {
  try {
    throw;
  } catch (Mistake& mistake) {
    return runtime.keep(std::move(mistake));
  } catch (const Kept&) {
    return runtime.error();
  } catch (const EngineError& error) {
    if (error.code() == "kernel-arguments" || error.code() == "kernel-failed")
      return runtime.keep({PTO_ERROR_FUNCTION, error.what()});
    if (error.code() == "run-in-flight-at-fork") return runtime.keep({PTO_ERROR_STATE, error.what()});
    if (error.code() == "stuck") return runtime.keep({PTO_ERROR_FUNCTION, error.what()});
    const bool is_size = error.code() == "too-many-tasks" || error.code() == "too-many-strands";
    return runtime.keep({is_size ? PTO_ERROR_TOO_MANY : PTO_ERROR_MEMORY, error.what()});
  } catch (const std::bad_alloc&) {
    return runtime.keep({PTO_ERROR_MEMORY, "there is no memory"});
  } catch (const std::exception& error) {
    return runtime.keep({PTO_ERROR_FUNCTION, error.what()});
  } catch (...) {
    return runtime.keep({PTO_ERROR_FUNCTION, "a function threw an exception"});
  }
}

/// A runtime that was shut down, for the next one: its memory is warm. Never destroyed, as the pool's threads
/// are not.
class Spare {
 public:
  static Spare& instance() {
    static auto* spare = new Spare;
    return *spare;
  }
  std::unique_ptr<PTORuntimeState> take() {
    return std::unique_ptr<PTORuntimeState>(state_.exchange(nullptr));
  }
  void give(std::unique_ptr<PTORuntimeState> state) { delete state_.exchange(state.release()); }

 private:
  // No lock: another thread could hold it when the process is forked.
  std::atomic<PTORuntimeState*> state_{nullptr};
};

/// Calls `function(runtime)`, which returns a number or nothing, unless an error is kept.
template <class Function>
inline int guarded(PTORuntime* rt, Function function) {
  if (rt == nullptr || rt->state == nullptr) return PTO_ERROR_ARGUMENT;
  Runtime& runtime = rt->state->runtime;
  try {
    if (__builtin_expect(runtime.gate() != PTO_OK, false)) {
      const int code = runtime.pass_gate();
      if (code != PTO_OK) return code;
    }
    if constexpr (std::is_void_v<decltype(function(runtime))>) {
      function(runtime);
      return PTO_OK;
    } else {
      return function(runtime);
    }
  } catch (...) {
    return keep_current(runtime);
  }
}

/// Adds a region to any task, or says what is wrong.
template <Role role>
[[gnu::noinline]] int add_otherwise(PTORuntime* rt, int32_t task, void* tensor, int64_t row, int64_t col,
                                    int64_t rows, int64_t cols) {
  return guarded(rt, [=](Runtime& r) { r.add_argument(task, tensor, row, col, rows, cols, role); });
}

/// The usual case is so short that it needs no registers of the caller.
template <Role role>
[[gnu::always_inline]] inline int add(PTORuntime* rt, int32_t task, void* tensor, int64_t row, int64_t col,
                                      int64_t rows, int64_t cols) {
  const bool is_added = rt != nullptr && rt->state != nullptr &&
                        rt->state->runtime.add_to_latest(task, tensor, row, col, rows, cols, role);
  return is_added ? int(PTO_OK) : add_otherwise<role>(rt, task, tensor, row, col, rows, cols);
}

/// Dumps are for looking at what went wrong too: an error that is kept does not matter, and theirs is not
/// kept.
int dump(const PTORuntime& rt, std::FILE* out, TaskDump::Detail detail) {
  try {
    rt.state->runtime.dump().write(out, detail);
  } catch (const std::bad_alloc&) {
    return PTO_ERROR_MEMORY;
  }
  return std::fflush(out) == 0 && std::ferror(out) == 0 ? PTO_OK : PTO_ERROR_FILE;
}

}  // namespace

extern "C" {

int pto_runtime_init(PTORuntime* rt) {
  if (rt == nullptr) return PTO_ERROR_ARGUMENT;
  try {
    rt->state = Spare::instance().take().release();
    if (rt->state == nullptr) rt->state = new PTORuntimeState;
    return PTO_OK;
  } catch (const std::bad_alloc&) {
    return PTO_ERROR_MEMORY;
  }
}

void pto_runtime_shutdown(PTORuntime* rt) {
  if (rt == nullptr || rt->state == nullptr) return;
  if (rt->state->runtime.is_working()) {
    rt->state->runtime.keep({PTO_ERROR_STATE, "it is shut down while its tasks run"});
    return;
  }
  std::unique_ptr<PTORuntimeState> state(std::exchange(rt->state, nullptr));
  if (state->runtime.clear()) Spare::instance().give(std::move(state));
}

int pto_runtime_set_workers(PTORuntime* rt, int num_workers) {
  return guarded(rt, [=](Runtime& r) { r.set_workers(num_workers); });
}

int pto_runtime_set_row_unit(PTORuntime* rt, int32_t rows) {
  return guarded(rt, [=](Runtime& r) { r.set_row_unit(rows); });
}

int pto_runtime_set_group(PTORuntime* rt, int num_workers) {
  return guarded(rt, [=](Runtime& r) { r.set_group(num_workers); });
}

int pto_register_incore_func(PTORuntime* rt, const char* func_name, PTOInCoreFunc func) {
  return guarded(rt, [=](Runtime& r) { r.register_function(func_name, func); });
}

int pto_load_kernels(PTORuntime* rt, const char* filename) {
  return guarded(rt, [=](Runtime& r) { r.load_kernels(filename); });
}

int32_t pto_task_alloc(PTORuntime* rt, const char* func_name, void* func_ptr, int32_t buffer_bytes,
                       int32_t reuse_bytes) {
  return guarded(rt, [=](Runtime& r) {
    return r.alloc(func_name, reinterpret_cast<PTOInCoreFunc>(func_ptr), buffer_bytes, reuse_bytes);
  });
}

int pto_task_add_input(PTORuntime* rt, int32_t task, void* tensor, int64_t row, int64_t col, int64_t rows,
                       int64_t cols) {
  return add<Role::in>(rt, task, tensor, row, col, rows, cols);
}

int pto_task_add_output(PTORuntime* rt, int32_t task, void* tensor, int64_t row, int64_t col, int64_t rows,
                        int64_t cols) {
  return add<Role::out>(rt, task, tensor, row, col, rows, cols);
}

int pto_task_add_inout(PTORuntime* rt, int32_t task, void* tensor, int64_t row, int64_t col, int64_t rows,
                       int64_t cols) {
  return add<Role::inout>(rt, task, tensor, row, col, rows, cols);
}

int pto_task_set_order(PTORuntime* rt, int32_t task, int64_t key) {
  return guarded(rt, [=](Runtime& r) { r.state(task, Directives::kOrder, key); });
}

int pto_task_set_cost(PTORuntime* rt, int32_t task, int64_t cost) {
  return guarded(rt, [=](Runtime& r) {
    if (cost < 0) throw Mistake{PTO_ERROR_ARGUMENT, "a cost of " + std::to_string(cost)};
    r.state(task, Directives::kCost, cost);
  });
}

int pto_task_set_affinity(PTORuntime* rt, int32_t task, int64_t key) {
  return guarded(rt, [=](Runtime& r) { r.state(task, Directives::kAffinity, key); });
}

int pto_task_submit(PTORuntime* rt, int32_t task) {
  return guarded(rt, [=](Runtime& r) { r.submit(task); });
}

int pto_execute_all(PTORuntime* rt) {
  return guarded(rt, [](Runtime& r) { r.execute(); });
}

int runtime_entry_arm64(PTOOrchFunc orch_func, void* user_data, int num_workers,
                        int execution_task_threshold) {
  PTORuntime rt;
  int code = pto_runtime_init(&rt);
  if (code != PTO_OK) return code;
  code = guarded(&rt, [=, &rt](Runtime& r) {
    if (orch_func == nullptr || execution_task_threshold < 0)
      throw Mistake{PTO_ERROR_ARGUMENT, "no function, or a negative threshold"};
    r.set_workers(num_workers);
    if (execution_task_threshold > 0) r.feed_from(uint32_t(execution_task_threshold));
    try {
      orch_func(&rt, user_data);
    } catch (const std::exception& error) {
      throw Mistake{PTO_ERROR_FUNCTION, std::string("the orchestration: ") + error.what()};
    } catch (...) {
      throw Mistake{PTO_ERROR_FUNCTION, "the orchestration threw an exception"};
    }
  });
  if (code == PTO_OK) code = pto_execute_all(&rt);
  if (code != PTO_OK) std::fprintf(stderr, "pto_runtime: %s\n", pto_runtime_error_message(&rt));
  pto_runtime_shutdown(&rt);
  return code;
}

int32_t pto_get_ready_task(PTORuntime* rt) {
  return guarded(rt, [](Runtime& r) { return r.take(false); });
}

int32_t pto_get_ready_task_blocking(PTORuntime* rt) {
  return guarded(rt, [](Runtime& r) { return r.take(true); });
}

int pto_task_run(PTORuntime* rt, int32_t task) {
  return guarded(rt, [=](Runtime& r) { r.run_taken(task); });
}

int pto_task_complete(PTORuntime* rt, int32_t task) {
  return guarded(rt, [=](Runtime& r) { r.complete(task); });
}

int pto_task_complete_threadsafe(PTORuntime* rt, int32_t task) { return pto_task_complete(rt, task); }

int pto_runtime_get_stats(PTORuntime* rt, PTORuntimeStats* stats) {
  if (rt == nullptr || rt->state == nullptr || stats == nullptr) return PTO_ERROR_ARGUMENT;
  *stats = rt->state->runtime.stats();
  return PTO_OK;
}

int pto_runtime_stats(PTORuntime* rt) {
  PTORuntimeStats stats;
  const int code = pto_runtime_get_stats(rt, &stats);
  if (code != PTO_OK) return code;
  std::printf("tasks: %" PRIu64 " allocated, %" PRIu64 " submitted, %" PRIu64 " completed\n",
              stats.tasks_allocated, stats.tasks_submitted, stats.tasks_completed);
  std::printf("%" PRIu64 " arguments, %" PRIu64 " dependences, %" PRIu64 " strands, %" PRIu64 " bytes\n",
              stats.arguments, stats.dependences, stats.strands, stats.bytes);
  std::printf("last execution: %.3f ms\n", double(stats.run_ns) / 1e6);
  return PTO_OK;
}

int pto_runtime_dump(PTORuntime* rt, const char* filename) {
  if (rt == nullptr || rt->state == nullptr || filename == nullptr) return PTO_ERROR_ARGUMENT;
  std::FILE* out = std::fopen(filename, "w");
  if (out == nullptr) return PTO_ERROR_FILE;
  const int code = dump(*rt, out, TaskDump::Detail::kVerbose);
  return std::fclose(out) == 0 ? code : PTO_ERROR_FILE;
}

int pto_runtime_dump_stdout(PTORuntime* rt) {
  if (rt == nullptr || rt->state == nullptr) return PTO_ERROR_ARGUMENT;
  return dump(*rt, stdout, TaskDump::Detail::kBrief);
}

int pto_runtime_error(PTORuntime* rt) {
  return rt == nullptr || rt->state == nullptr ? int(PTO_ERROR_ARGUMENT) : rt->state->runtime.error();
}

const char* pto_runtime_error_message(PTORuntime* rt) {
  return rt == nullptr || rt->state == nullptr ? "there is no runtime" : rt->state->runtime.message();
}

}  // extern "C"
