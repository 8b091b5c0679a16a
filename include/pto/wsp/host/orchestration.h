/* SPDX-License-Identifier: MIT */
/**
 * \file
 * What generated orchestration code is written with: the walk of a workload in C11, which adds its tasks to
 * a runtime of the C API (pto_runtime.h). Prose: docs/c_api.md.
 *
 * A function that fails keeps the first error in the Orchestration and returns 0. Generated code asks
 * `failed` before it uses a value to decide anything.
 */
#ifndef PTO_WSP_HOST_ORCHESTRATION_H_
#define PTO_WSP_HOST_ORCHESTRATION_H_

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pto/wsp/pto_runtime.h"

/* ------------------------------------------------------------- abi.hpp in C: kernels and what they take */

enum { ORCH_VIEW_RANK = 4, ORCH_TENSOR_RANK = 8, ORCH_CHECK_VALUES = 24, ORCH_LOOPS = 16 };

typedef struct OrchView {
  void* data;
  int64_t shape[ORCH_VIEW_RANK];
  int64_t stride[ORCH_VIEW_RANK];
  const int32_t* rows;
  bool streams;
} OrchView;

typedef union OrchScalar {
  int64_t i64;
  double f64;
  float f32;
} OrchScalar;

typedef struct OrchMonitor {
  const uint64_t* ticks;
  uint64_t seen_ticks;
  bool (*is_stopped)(struct OrchMonitor* monitor);
  void (*print)(void);
  int64_t values[ORCH_CHECK_VALUES];
} OrchMonitor;

typedef struct OrchContext {
  void* scratch;
  void* workspace;
  uint64_t workspace_bytes;
  uint64_t task;
  uint32_t block_idx;
  uint32_t block_num;
  OrchMonitor* monitor;
} OrchContext;

typedef struct OrchParam {
  uint8_t role, dtype, rank, reserved;
  int64_t min_shape[ORCH_VIEW_RANK], max_shape[ORCH_VIEW_RANK];
} OrchParam;

typedef struct OrchKernel {
  const char* name;
  int32_t (*function)(const OrchView* views, const OrchScalar* scalars, const OrchContext* context);
  const OrchParam* params;
  uint16_t num_views, num_scalars;
  uint32_t scratch_bytes, block_dim;
  uint8_t unit, reserved[3];
} OrchKernel;

typedef struct OrchLibrary {
  uint32_t abi_version, num_kernels;
  uint64_t table_hash;
  const OrchKernel* kernels;
} OrchLibrary;

#ifndef __cplusplus
_Static_assert(sizeof(OrchView) == 88 && sizeof(OrchScalar) == 8 && sizeof(OrchContext) == 48,
               "as in abi.hpp");
_Static_assert(sizeof(OrchParam) == 72 && sizeof(OrchKernel) == 40 && sizeof(OrchLibrary) == 24,
               "as in abi.hpp");
#endif

/* ------------------------------------------------------------------------------------ orchestrations */

/** A tensor of the program: an array in C order. */
typedef struct OrchTensor {
  const char* name;
  char* data;
  uint8_t dtype; /**< pto::wsp::DType */
  uint8_t bytes; /**< of an element */
  int32_t rank;
  int64_t shape[ORCH_TENSOR_RANK];
} OrchTensor;

/** A loop that the walk is inside of. */
typedef struct OrchLoop {
  const char* name;  /**< the variable */
  const char* first; /**< its first value as text, or NULL: `start` */
  int64_t start, step, extent, index;
} OrchLoop;

/** The first task, in program order, whose kernel failed. */
typedef struct OrchFailure {
  uint64_t task; /**< UINT64_MAX: none */
  const char *kernel, *place;
  int32_t check;
  int64_t values[ORCH_CHECK_VALUES];
} OrchFailure;

struct OrchCall;

/** One run of a workload. The caller sets the first group. */
typedef struct Orchestration {
  const OrchLibrary* library;
  const int64_t* symbols; /**< sizes and scalars; of an f32 its bits */
  const OrchTensor* tensors;
  int workers;      /**< 0: one per core */
  const char* dump; /**< the file of a task dump, or NULL */

  uint64_t num_tasks;
  const char* failed; /**< the code of the first error, or NULL */
  char message[512];
  OrchFailure failure;

  PTORuntime runtime;
  const char* place; /**< of the statement that is walked */
  int32_t depth;
  OrchLoop loops[ORCH_LOOPS];
  struct OrchCall* call; /**< of the task that is being built */
  int32_t task;
  uint16_t view, scalar;
  void* memory; /**< what tasks refer to: a list of blocks */
  char* free_memory;
  size_t free_bytes;
  char lock;
} Orchestration;

/** What a task runs: its first argument. */
typedef struct OrchCall {
  Orchestration* o;
  const OrchKernel* kernel;
  const char* place;
  uint64_t number, workspace_bytes;
  OrchView* views;
  OrchScalar* scalars;
} OrchCall;

/** Adds the tasks of the workload: the function that is generated. */
#ifdef __cplusplus
extern "C"
#endif
    void pto_wsp_orchestrate(Orchestration* o);

#ifndef __cplusplus

/* -------------------------------------------------------------------------------------------- errors */

/** Keeps an error with its place and iteration, unless there is one. Returns 0. */
__attribute__((format(printf, 3, 4))) static inline int64_t orch_fail(Orchestration* o, const char* code,
                                                                      const char* format, ...) {
  if (o->failed != NULL) return 0;
  o->failed = code;
  const size_t room = sizeof o->message;
  size_t used = o->place == NULL ? 0 : (size_t)snprintf(o->message, room, "%s: ", o->place);
  va_list arguments;
  va_start(arguments, format);
  if (used < room) used += (size_t)vsnprintf(o->message + used, room - used, format, arguments);
  va_end(arguments);
  for (int32_t i = 0; i < o->depth && used < room; ++i) {
    const OrchLoop* loop = &o->loops[i];
    const char* between = i == 0 ? " in iteration" : ",";
    const int64_t advance = (int64_t)((uint64_t)loop->index * (uint64_t)loop->step);
    char* end = o->message + used;
    if (loop->first != NULL)
      used += (size_t)snprintf(end, room - used, "%s %s = %s + %" PRId64, between, loop->name, loop->first,
                               advance);
    else
      used += (size_t)snprintf(end, room - used, "%s %s = %" PRId64, between, loop->name,
                               (int64_t)((uint64_t)loop->start + (uint64_t)advance));
  }
  return 0;
}

/** Keeps the error of the runtime if a call of it returned one. */
static inline int32_t orch_checked(Orchestration* o, int32_t result) {
  if (result < 0) orch_fail(o, "runtime", "%s", pto_runtime_error_message(&o->runtime));
  return result;
}

/* ------------------------------------------------------------------------------------------- numbers */

#define ORCH_OVERFLOW(o) orch_fail(o, "expression-overflow", "an expression goes beyond 64 bits")

static inline int64_t orch_add(Orchestration* o, int64_t a, int64_t b) {
  int64_t r;
  return __builtin_add_overflow(a, b, &r) ? ORCH_OVERFLOW(o) : r;
}
static inline int64_t orch_sub(Orchestration* o, int64_t a, int64_t b) {
  int64_t r;
  return __builtin_sub_overflow(a, b, &r) ? ORCH_OVERFLOW(o) : r;
}
static inline int64_t orch_mul(Orchestration* o, int64_t a, int64_t b) {
  int64_t r;
  return __builtin_mul_overflow(a, b, &r) ? ORCH_OVERFLOW(o) : r;
}
static inline int64_t orch_neg(Orchestration* o, int64_t a) { return orch_sub(o, 0, a); }
static inline int64_t orch_floordiv(Orchestration* o, int64_t a, int64_t b) {
  if (b == 0) return orch_fail(o, "division-by-zero", "an expression divides by 0");
  if (b == -1) return orch_neg(o, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t orch_mod(Orchestration* o, int64_t a, int64_t b) {
  if (b == 0) return orch_fail(o, "division-by-zero", "an expression divides by 0");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
static inline bool orch_can_shift(Orchestration* o, int64_t b) {
  if (b < 0 || b > 63) orch_fail(o, "shift-outside", "a shift by %" PRId64 " is outside of 0 to 63", b);
  return b >= 0 && b <= 63;
}
static inline int64_t orch_lshift(Orchestration* o, int64_t a, int64_t b) {
  if (!orch_can_shift(o, b)) return 0;
  const int64_t r = (int64_t)((uint64_t)a << b);
  return r >> b != a ? ORCH_OVERFLOW(o) : r;
}
static inline int64_t orch_rshift(Orchestration* o, int64_t a, int64_t b) {
  return orch_can_shift(o, b) ? a >> b : 0;
}
static inline int64_t orch_min(int64_t a, int64_t b) { return b < a ? b : a; }
static inline int64_t orch_max(int64_t a, int64_t b) { return b > a ? b : a; }
static inline int64_t orch_u64(Orchestration* o, int64_t a) {
  return a < 0 ? orch_fail(o, "expression-overflow", "%" PRId64 " is below 0, and its type is u64", a) : a;
}
static inline int64_t orch_within(Orchestration* o, int64_t a, int64_t limit) {
  if (a >= 0 && a <= limit) return a;
  return orch_fail(o, "slice-outside", "the bound %" PRId64 " of a slice lies outside its range of %" PRId64,
                   a, limit);
}

/** The number in an element of integers. */
static inline int64_t orch_integer(Orchestration* o, const OrchTensor* tensor, const char* at) {
  enum { I8 = 4, I16, I32, I64, U8, U16, U32, U64, B1 };
  union {
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    uint8_t u8;
    uint16_t u16;
    uint32_t u32;
  } value;
  memcpy(&value, at, tensor->bytes);
  switch (tensor->dtype) {
    case I8: return value.i8;
    case I16: return value.i16;
    case I32: return value.i32;
    case I64: return value.i64;
    case U8: return value.u8;
    case U16: return value.u16;
    case U32: return value.u32;
    case U64: return orch_u64(o, value.i64);
    default: return value.u8 != 0;
  }
}

/** An element of a tensor of integers. */
static inline int64_t orch_element(Orchestration* o, const OrchTensor* tensor, const int64_t* indices) {
  int64_t place = 0;
  for (int32_t d = 0; d < tensor->rank; ++d) {
    if (indices[d] < 0 || indices[d] >= tensor->shape[d])
      return orch_fail(o, "element-outside",
                       "`%s` is read at %" PRId64 ", outside its dimension %d of size %" PRId64, tensor->name,
                       indices[d], (int)d, tensor->shape[d]);
    place = place * tensor->shape[d] + indices[d];
  }
  return o->failed != NULL ? 0 : orch_integer(o, tensor, tensor->data + place * tensor->bytes);
}
#define ORCH_AT(o, tensor, ...) orch_element(o, tensor, (const int64_t[]){__VA_ARGS__})

static inline float orch_f32(int64_t bits) {
  const int32_t low = (int32_t)(uint32_t)(uint64_t)bits;
  float value;
  memcpy(&value, &low, sizeof value);
  return value;
}

/** Ends the run if tasks may write the elements of a tensor that decides what runs. */
static inline void orch_apart(Orchestration* o, const OrchTensor* deciding, const OrchTensor* written) {
  const char *a = deciding->data, *b = written->data;
  int64_t bytes_a = deciding->bytes, bytes_b = written->bytes;
  for (int32_t d = 0; d < deciding->rank; ++d) bytes_a *= deciding->shape[d];
  for (int32_t d = 0; d < written->rank; ++d) bytes_b *= written->shape[d];
  if (bytes_a > 0 && bytes_b > 0 && a < b + bytes_b && b < a + bytes_a)
    orch_fail(o, "deciding-array-written", "`%s` decides what runs, and tasks write its memory as `%s`",
              deciding->name, written->name);
}

/* -------------------------------------------------------------------------------------------- memory */

/** Returns memory that lives as long as the tasks, or NULL. Its content is zero. */
static inline void* orch_memory(Orchestration* o, size_t bytes) {
  enum { BLOCK = 1 << 16 };
  bytes = (bytes + 15) & ~(size_t)15;
  if (o->free_bytes < bytes) {
    const size_t size = bytes > BLOCK ? bytes : BLOCK;
    char* block = (char*)calloc(1, 16 + size);
    if (block == NULL) {
      orch_fail(o, "out-of-memory", "there is no memory for the tasks");
      return NULL;
    }
    memcpy(block, &o->memory, sizeof o->memory);
    o->memory = block;
    o->free_memory = block + 16;
    o->free_bytes = size;
  }
  char* found = o->free_memory;
  o->free_memory += bytes;
  o->free_bytes -= bytes;
  return found;
}

static inline void orch_forget_memory(Orchestration* o) {
  while (o->memory != NULL) {
    void* next;
    memcpy(&next, o->memory, sizeof next);
    free(o->memory);
    o->memory = next;
  }
  o->free_bytes = 0;
}

/* --------------------------------------------------------------------------------------------- loops */

/** Begins a loop; returns its number of iterations. `tile` is 1 but for a loop over tiles. */
static inline int64_t orch_begin(Orchestration* o, const char* name, const char* first, int64_t start,
                                 int64_t step, int64_t tile, int64_t extent) {
  if (o->failed == NULL && extent < 0)
    orch_fail(o, "negative-extent", "the axis of `%s` has extent %" PRId64, name, extent);
  if (o->failed != NULL) extent = 0;
  const OrchLoop loop = {name, first, start, step, extent, 0};
  o->loops[o->depth++] = loop;
  return extent / tile + (extent % tile != 0);
}
static inline void orch_iteration(Orchestration* o, int64_t index) { o->loops[o->depth - 1].index = index; }
/** The elements of the current tile of the innermost loop, from `start` on. */
static inline int64_t orch_length(const Orchestration* o, int64_t tile, int64_t start) {
  return orch_min(tile, o->loops[o->depth - 1].extent - start);
}
static inline void orch_end(Orchestration* o) { --o->depth; }

#endif /* __cplusplus */

#endif /* PTO_WSP_HOST_ORCHESTRATION_H_ */
