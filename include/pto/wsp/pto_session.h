/* SPDX-License-Identifier: MIT */
/**
 * \file
 * Sessions in C: functions of exported programs are launched in an order and run concurrently, with the
 * results of one after another.
 *
 * C99 and C++17. `Program.export` writes a folder whose `make libNAME.so` builds a library with these
 * functions and those of the program: `NAME_launch` and `NAME_graph`. Prose: docs/sessions.md.
 *
 * Functions that return a text return NULL if all is well, or else what is wrong. The text is valid until the
 * thread calls the function again. Any thread may call the functions, except pto_session_destroy and those
 * that state a contract.
 */
#ifndef PTO_WSP_PTO_SESSION_H_
#define PTO_WSP_PTO_SESSION_H_

#include <stddef.h> /* NULL */
#include <stdint.h>

#if defined(__GNUC__)
#define PTO_API __attribute__((visibility("default")))
#else
#define PTO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Programs that run concurrently on one pool of threads. */
typedef struct PTOSession PTOSession;

/** A call of a program in a session. It lives as long as its session. */
typedef struct PTOLaunch PTOLaunch;

/** A program with a contract. It lives as long as its session. */
typedef struct PTOGraph PTOGraph;

/** Why a task of a later launch waits for a task of an earlier one. */
typedef enum PTOHazard { PTO_READ_AFTER_WRITE, PTO_WRITE_AFTER_READ, PTO_WRITE_AFTER_WRITE } PTOHazard;

/** Why tasks of a launch may wait for tasks of an earlier launch. */
typedef struct PTOWait {
  PTOLaunch* launch;  /**< the earlier one */
  PTOHazard hazard;   /**< the first that was found */
  const char* tensor; /**< of the later one */
} PTOWait;

/* --------------------------------------------------------------------------------------- sessions */

/** Makes a session. NULL: there is no memory. */
PTO_API PTOSession* pto_session_create(void);

/**
 * Cancels launches that are not done, waits until no task runs, and frees the session with its launches and
 * graphs. It reports no error: call pto_session_wait before.
 */
PTO_API void pto_session_destroy(PTOSession* session);

/**
 * Waits for all launches. Returns the first error that is not `launch-skipped`, or else the first error.
 * Launches that follow may be launched with the arrays of those that failed.
 */
PTO_API const char* pto_session_wait(PTOSession* session);

/** Cancels all launches that are not done. */
PTO_API const char* pto_session_cancel(PTOSession* session);

/* --------------------------------------------------------------------------------------- launches */

/**
 * Lends the calling thread to a launch, and to those that it waits for, until it is done. Returns its error;
 * that is `launch-skipped` if a launch that it waits for failed. Some of its tasks may have run then.
 */
PTO_API const char* pto_launch_wait(PTOLaunch* launch);

/** Ends a launch: no task of it begins any more. Its error is then `run-cancelled`. */
PTO_API const char* pto_launch_cancel(PTOLaunch* launch);

/** 1 if the launch and those that it waits for have ended, in whatever way, or else 0. NULL has ended. */
PTO_API int pto_launch_is_done(const PTOLaunch* launch);

/** The name of its graph, or of its program; "" of NULL. */
PTO_API const char* pto_launch_name(const PTOLaunch* launch);

/**
 * Fills in the earlier launch of number `index`, from 0 on, that a launch waits for. Returns 0 if there are
 * fewer, or else 1. Launches whose end was known when it was launched do not count.
 */
PTO_API int pto_launch_get_wait(const PTOLaunch* launch, int32_t index, PTOWait* wait);

/* -------------------------------------------------------------------------------------- contracts */

/**
 * States that a tensor of a graph is complete when kernels have run. It is an error if other kernels write
 * it, or one of these does not. Contracts are stated before the graph is launched.
 */
PTO_API const char* pto_graph_provides(PTOGraph* graph, const char* tensor, const char* const* kernels,
                                       int32_t num_kernels);

/**
 * States that a tensor of a graph is provided by another graph. A launch is an error if no earlier launch of
 * that graph provides the array.
 */
PTO_API const char* pto_graph_requires(PTOGraph* graph, const char* tensor, const PTOGraph* from);

/**
 * Checks that launches which read an array were launched before one that writes it; `write` may be NULL.
 *
 * \param array  as it was given to the launches
 */
PTO_API const char* pto_session_order_reads(PTOSession* session, const void* array, PTOLaunch* const* reads,
                                            int32_t num_reads, PTOLaunch* write);

/** Checks that launches write an array, and were launched in this order. */
PTO_API const char* pto_session_order_writes(PTOSession* session, const void* array, PTOLaunch* const* writes,
                                             int32_t num_writes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* PTO_WSP_PTO_SESSION_H_ */
