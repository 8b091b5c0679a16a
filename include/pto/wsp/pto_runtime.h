/* SPDX-License-Identifier: MIT */
/**
 * \file
 * The C API of the PTO-WSP engine: orchestration code describes tasks and the memory that they touch, the
 * runtime finds what must wait for what and runs them on the worker pool of the process.
 *
 * C99 and C++17. Link with libpto_wsp (CMake: `find_package(pto)`, target `pto::wsp`). Prose: docs/c_api.md.
 *
 * Tensors are row-major, their elements 4 bytes. A region begins at `tensor + row * cols + col` elements and
 * is `rows * cols` of them, without gaps. A task that reads (add_input) waits for the latest tasks before it,
 * in the order of submission, that write one of these bytes; one that writes (add_output) waits for those
 * that read them as well. Where regions overlap in part, that counts; names of tensors do not.
 *
 * One thread builds the tasks of a runtime. Functions that return int32_t or int return a number >= 0, or a
 * negative PTOError. The first error of a runtime is kept: later calls return it, nothing runs any more, and
 * pto_runtime_error_message says what happened.
 */
#ifndef PTO_WSP_PTO_RUNTIME_H_
#define PTO_WSP_PTO_RUNTIME_H_

#include <stddef.h> /* NULL, which orchestrations use */
#include <stdint.h>

#if defined(__GNUC__)
#define PTO_API __attribute__((visibility("default")))
#else
#define PTO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** No task is ready (pto_get_ready_task). */
#define PTO_NO_TASK (-1)

/** What is wrong. */
typedef enum PTOError {
  PTO_OK = 0,
  PTO_ERROR_ARGUMENT = -2, /**< a null pointer, or a number that it cannot be */
  PTO_ERROR_TASK = -3,     /**< no task of that number is in the state that the call is for */
  PTO_ERROR_STATE = -4,    /**< the runtime cannot do that now */
  PTO_ERROR_MEMORY = -5,   /**< there is no memory, or no thread */
  PTO_ERROR_TOO_MANY = -6, /**< more tasks than the engine can name */
  PTO_ERROR_FUNCTION = -7, /**< the function of a task threw an exception */
  PTO_ERROR_FILE = -8      /**< a file cannot be written or loaded */
} PTOError;

/** The tasks of one orchestration. Holds nothing that a program may look at. */
typedef struct PTORuntime {
  struct PTORuntimeState* state;
} PTORuntime;

/** The function of a task: `args[i]` is the first element of its i-th region, in the order they were added.
 */
typedef void (*PTOInCoreFunc)(void** args, int32_t num_args);

/** Describes tasks. */
typedef void (*PTOOrchFunc)(PTORuntime* rt, void* user_data);

/* ------------------------------------------------------------------------------------ the runtime */

/** Makes an empty runtime. Every one needs a pto_runtime_shutdown. */
PTO_API int pto_runtime_init(PTORuntime* rt);

/** Gives back what a runtime holds. Tasks that have not run never do. Refused while pto_execute_all runs. */
PTO_API void pto_runtime_shutdown(PTORuntime* rt);

/**
 * Sets the number of threads of pto_execute_all, of which the caller is one; 0, the default, is one per core.
 * Refused once others run tasks, as registering functions and loading kernels.
 */
PTO_API int pto_runtime_set_workers(PTORuntime* rt, int num_workers);

/** Makes row offsets of regions to come count `rows` rows each: code that counts tiles gives their rows. */
PTO_API int pto_runtime_set_row_unit(PTORuntime* rt, int32_t rows);

/** Sets the size of the groups of workers of pto_task_set_affinity; the default is 1. */
PTO_API int pto_runtime_set_group(PTORuntime* rt, int num_workers);

/** Makes tasks of that name that are allocated without a function run `func`. */
PTO_API int pto_register_incore_func(PTORuntime* rt, const char* func_name, PTOInCoreFunc func);

/**
 * Loads the kernels that `Program.save_kernels` has written. Tasks that have the name of one, and no
 * function, run it on their regions, which have to be of the roles and sizes that it takes.
 */
PTO_API int pto_load_kernels(PTORuntime* rt, const char* filename);

/* --------------------------------------------------------------------------------------- building */

/**
 * Begins a task; returns its number.
 *
 * \param func_name    copied; shown by dumps. Dumps do not show a task without a name (""): tasks that wait
 *                     for it are shown to wait for what it waits for
 * \param func_ptr     a PTOInCoreFunc. NULL: what is registered or loaded for the name when it runs, else the
 *                     task is empty
 * \param buffer_bytes tiles of the function that share no memory; shown by dumps
 * \param reuse_bytes  tiles that share memory where they are not in use together; shown by dumps
 */
PTO_API int32_t pto_task_alloc(PTORuntime* rt, const char* func_name, void* func_ptr, int32_t buffer_bytes,
                               int32_t reuse_bytes);

/** Adds a region that the task reads. \pre `task` is not submitted */
PTO_API int pto_task_add_input(PTORuntime* rt, int32_t task, void* tensor, int64_t row, int64_t col,
                               int64_t rows, int64_t cols);
/** Adds a region that the task writes. What is not written keeps its value. */
PTO_API int pto_task_add_output(PTORuntime* rt, int32_t task, void* tensor, int64_t row, int64_t col,
                                int64_t rows, int64_t cols);
/** Adds a region that the task reads and writes: one argument. */
PTO_API int pto_task_add_inout(PTORuntime* rt, int32_t task, void* tensor, int64_t row, int64_t col,
                               int64_t rows, int64_t cols);

/**
 * States the place of a task among tasks that are ready: the one with the least key starts first. Of equal
 * keys, the greatest cost starts first, then the first in the order of submission. The default is 0.
 *
 * If tasks use this or the next two functions, the first task that is submitted uses one of them. Tasks with
 * statements cannot be taken by hand. \pre `task` is not submitted
 */
PTO_API int pto_task_set_order(PTORuntime* rt, int32_t task, int64_t key);
/** States an estimate of the time of a task, in any unit: of tasks that are ready, the longest starts first.
 */
PTO_API int pto_task_set_cost(PTORuntime* rt, int32_t task, int64_t cost);
/** Makes tasks with equal keys run on one group of workers: the key modulo the number of groups. */
PTO_API int pto_task_set_affinity(PTORuntime* rt, int32_t task, int64_t key);

/** Ends a task: it comes after those that were submitted before. */
PTO_API int pto_task_submit(PTORuntime* rt, int32_t task);

/* ---------------------------------------------------------------------------------------- running */

/** Runs all tasks that were submitted and are not complete, and waits for them. More may be built then. */
PTO_API int pto_execute_all(PTORuntime* rt);

/**
 * Makes a runtime, calls `orch_func` with it, runs its tasks, and waits for them.
 *
 * \param num_workers              threads, of which the caller is one; 0: one per core
 * \param execution_task_threshold 0: tasks run when all are built; n: others run tasks as soon as more than n
 *                                 are built, while the caller goes on building
 * \return PTO_OK or a PTOError, which is then written to stderr
 */
PTO_API int runtime_entry_arm64(PTOOrchFunc orch_func, void* user_data, int num_workers,
                                int execution_task_threshold);

/* -------------------------------------------------- running by hand, on any number of own threads */

/** Takes a task that waits for nothing; PTO_NO_TASK if there is none now. */
PTO_API int32_t pto_get_ready_task(PTORuntime* rt);
/** The same, but waits until there is one, every task that was submitted is complete, or an error is kept. */
PTO_API int32_t pto_get_ready_task_blocking(PTORuntime* rt);
/** Calls the function of a task that was taken, once. */
PTO_API int pto_task_run(PTORuntime* rt, int32_t task);
/** Says that a task that was taken is complete. */
PTO_API int pto_task_complete(PTORuntime* rt, int32_t task);
/** The same as pto_task_complete, which any thread may call. */
PTO_API int pto_task_complete_threadsafe(PTORuntime* rt, int32_t task);

/* ------------------------------------------------------------------------------------ looking at it */

typedef struct PTORuntimeStats {
  uint64_t tasks_allocated;
  uint64_t tasks_submitted;
  uint64_t tasks_completed;
  uint64_t arguments;   /**< regions of all submitted tasks */
  uint64_t dependences; /**< pairs of tasks of which one waits for the other */
  uint64_t strands;     /**< rows of tasks that one worker runs, one after another, of the last execution */
  uint64_t bytes;       /**< what all tasks take, and what they wait for */
  uint64_t run_ns;      /**< the last execution */
} PTORuntimeStats;

/** Fills in figures. */
PTO_API int pto_runtime_get_stats(PTORuntime* rt, PTORuntimeStats* stats);
/** Writes figures to stdout. */
PTO_API int pto_runtime_stats(PTORuntime* rt);
/** Writes all tasks, their arguments and what they wait for to a file (docs/task_dump.md, verbose). */
PTO_API int pto_runtime_dump(PTORuntime* rt, const char* filename);
/** Writes a line for each task to stdout (docs/task_dump.md, short). */
PTO_API int pto_runtime_dump_stdout(PTORuntime* rt);

/** The first error, or PTO_OK. */
PTO_API int pto_runtime_error(PTORuntime* rt);
/** What the first error was about, or "". Valid until the shutdown. */
PTO_API const char* pto_runtime_error_message(PTORuntime* rt);

#ifdef __cplusplus
} /* extern "C" */

/** For C++, where a function does not convert to `void*` implicitly. */
template <class Int>
int32_t pto_task_alloc(PTORuntime* rt, const char* func_name, void (*func)(void**, Int), int32_t buffer_bytes,
                       int32_t reuse_bytes) {
  const PTOInCoreFunc checked = func;
  return pto_task_alloc(rt, func_name, reinterpret_cast<void*>(checked), buffer_bytes, reuse_bytes);
}
#endif

#endif /* PTO_WSP_PTO_RUNTIME_H_ */
