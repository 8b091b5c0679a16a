/* SPDX-License-Identifier: MIT */
/**
 * \file
 * The tasks of an orchestration in C11: their kernels, regions and order. Generated code includes this file.
 */
#ifndef PTO_WSP_HOST_ORCHESTRATION_TASKS_H_
#define PTO_WSP_HOST_ORCHESTRATION_TASKS_H_

#include "pto/wsp/host/orchestration.h"

/* -------------------------------------------------------------------------------------------- kernels */

static inline bool orch_never_stops(OrchMonitor* monitor) {
  (void)monitor;
  return false;
}

/** Keeps the failure of a kernel if it is the first one in program order. */
static inline void orch_kernel_failed(const OrchCall* call, int32_t check, const int64_t* values) {
  OrchFailure* failure = &call->o->failure;
  while (__atomic_test_and_set(&call->o->lock, __ATOMIC_ACQUIRE)) {
  }
  if (call->number < failure->task) {
    failure->kernel = call->kernel->name;
    failure->place = call->place;
    failure->check = check;
    memcpy(failure->values, values, sizeof failure->values);
    __atomic_store_n(&failure->task, call->number, __ATOMIC_RELEASE);
  }
  __atomic_clear(&call->o->lock, __ATOMIC_RELEASE);
}

static inline void* orch_aligned(uint64_t bytes) {
  return bytes == 0 ? NULL : aligned_alloc(64, (size_t)((bytes + 63) & ~(uint64_t)63));
}

/** The function of every task. Tasks after a failed one, in program order, do nothing. */
static inline void orch_run(void** args, int32_t num_args) {
  (void)num_args;
  const OrchCall* call = (const OrchCall*)args[0];
  if (__atomic_load_n(&call->o->failure.task, __ATOMIC_ACQUIRE) < call->number) return;
  static const uint64_t never = 0;
  OrchMonitor monitor = {&never, 0, orch_never_stops, NULL, {0}};
  OrchContext context = {orch_aligned(call->kernel->scratch_bytes),
                         orch_aligned(call->workspace_bytes),
                         call->workspace_bytes,
                         call->number,
                         0,
                         call->kernel->block_dim,
                         &monitor};
  const bool has_memory = (context.scratch != NULL || call->kernel->scratch_bytes == 0) &&
                          (context.workspace != NULL || call->workspace_bytes == 0);
  int32_t check = has_memory ? 0 : INT32_MIN;
  for (; check == 0 && context.block_idx < context.block_num; ++context.block_idx)
    check = call->kernel->function(call->views, call->scalars, &context);
  if (check != 0) orch_kernel_failed(call, check, monitor.values);
  free(context.scratch);
  free(context.workspace);
}

/* ---------------------------------------------------------------------------------------------- tasks */

/** Begins a task of a kernel. */
static inline void orch_task(Orchestration* o, uint32_t kernel) {
  const OrchKernel* known = &o->library->kernels[kernel];
  const size_t views = known->num_views * sizeof(OrchView), scalars = known->num_scalars * sizeof(OrchScalar);
  char* memory = (char*)orch_memory(o, sizeof(OrchCall) + views + scalars);
  if (memory == NULL) return;
  o->call = (OrchCall*)memory;
  o->call->o = o;
  o->call->kernel = known;
  o->call->place = o->place;
  o->call->number = o->num_tasks;
  o->call->views = (OrchView*)(memory + sizeof(OrchCall));
  o->call->scalars = (OrchScalar*)(memory + sizeof(OrchCall) + views);
  o->view = o->scalar = 0;
  const int32_t bytes = known->scratch_bytes > INT32_MAX ? INT32_MAX : (int32_t)known->scratch_bytes;
  PTOInCoreFunc run = orch_run;
  void* function;
  memcpy(&function, &run, sizeof function);
  o->task = orch_checked(o, pto_task_alloc(&o->runtime, known->name, function, bytes, bytes));
  if (o->failed != NULL) return;
  orch_checked(o, pto_task_add_input(&o->runtime, o->task, o->call, 0, 0, 1, sizeof(OrchCall) / 4));
}

static inline void orch_scalar(Orchestration* o, int64_t value) {
  if (o->failed == NULL) o->call->scalars[o->scalar++].i64 = value;
}
static inline void orch_float(Orchestration* o, float value) {
  if (o->failed == NULL) o->call->scalars[o->scalar++].f32 = value;
}

static inline void orch_workspace(Orchestration* o, int64_t bytes) {
  if (bytes < 0) orch_fail(o, "negative-amount", "a workspace of %" PRId64 " bytes", bytes);
  if (o->failed == NULL) o->call->workspace_bytes = (uint64_t)bytes;
}
static inline void orch_cost(Orchestration* o, int64_t cost) {
  if (cost < 0) orch_fail(o, "negative-amount", "a cost of %" PRId64, cost);
}

static inline void orch_submit(Orchestration* o) {
  if (o->failed != NULL) return;
  orch_checked(o, pto_task_submit(&o->runtime, o->task));
  ++o->num_tasks;
}

/* ------------------------------------------------------------------------------------------- regions */

enum { ORCH_INDEX, ORCH_SPAN, ORCH_ALL, ORCH_ROWS, ORCH_MERGED };

/** What a region takes of one dimension. */
typedef struct OrchRange {
  int kind;
  int64_t start, extent;
  const OrchTensor* indices; /**< of rows */
  bool is_distinct;          /**< its elements differ */
} OrchRange;

#define INDEX(at) {ORCH_INDEX, at, 1, NULL, false}
#define SPAN(start, extent) {ORCH_SPAN, start, extent, NULL, false}
#define ALL {ORCH_ALL, 0, 0, NULL, false}
#define ROWS(indices, start, extent, is_distinct) {ORCH_ROWS, start, extent, indices, is_distinct}
#define MERGED {ORCH_MERGED, 0, 0, NULL, false}

/** Adds contiguous bytes to the task. Regions of the runtime count 4 bytes, so ends are rounded outwards. */
static inline void orch_bytes(Orchestration* o, uint8_t role, char* first, int64_t bytes) {
  enum { MOST = 1 << 30 };
  int64_t words = bytes / 4 + (bytes % 4 != 0);
  for (; words > 0 && o->failed == NULL; words -= MOST, first += (int64_t)MOST * 4) {
    const int64_t cols = words < MOST ? words : MOST;
    PTORuntime* rt = &o->runtime;
    orch_checked(o, role == 0   ? pto_task_add_input(rt, o->task, first, 0, 0, 1, cols)
                    : role == 1 ? pto_task_add_output(rt, o->task, first, 0, 0, 1, cols)
                                : pto_task_add_inout(rt, o->task, first, 0, 0, 1, cols));
  }
}

/** Adds the elements of a box: dimensions [d, rank) of a tensor from `first` on. */
static inline void orch_box(Orchestration* o, uint8_t role, const OrchTensor* tensor, const OrchRange* ranges,
                            int32_t d, char* first) {
  int64_t elements = 1;
  int32_t inner = tensor->rank;
  while (inner > d) { /* the longest run of whole dimensions, and one in part */
    --inner;
    elements *= ranges[inner].extent;
    if (ranges[inner].extent != tensor->shape[inner]) break;
  }
  int64_t at[ORCH_TENSOR_RANK] = {0}, stride[ORCH_TENSOR_RANK], step = tensor->bytes;
  for (int32_t i = tensor->rank; i-- > d; step *= tensor->shape[i]) {
    stride[i] = step;
    first += ranges[i].start * step;
    if (ranges[i].extent == 0) return;
  }
  for (;;) {
    orch_bytes(o, role, first, elements * tensor->bytes);
    int32_t i = inner;
    while (i-- > d) {
      first += stride[i];
      if (++at[i] < ranges[i].extent) break;
      first -= at[i] * stride[i];
      at[i] = 0;
    }
    if (i < d || o->failed != NULL) return;
  }
}

static inline int orch_compare(const void* a, const void* b) {
  const int64_t x = *(const int64_t*)a, y = *(const int64_t*)b;
  return (x > y) - (x < y);
}

/** Whether two of some numbers are equal; sorts them. */
static inline bool orch_repeats(int64_t* values, int64_t count) {
  qsort(values, (size_t)count, sizeof *values, orch_compare);
  for (int64_t i = 1; i < count; ++i) {
    if (values[i] == values[i - 1]) return true;
  }
  return false;
}

/** Ends the run unless the elements of a tensor differ. */
static inline void orch_distinct(Orchestration* o, const OrchTensor* tensor) {
  int64_t count = 1;
  for (int32_t d = 0; d < tensor->rank; ++d) count *= tensor->shape[d];
  int64_t* values = (int64_t*)malloc((size_t)(count > 0 ? count : 1) * sizeof(int64_t));
  if (values == NULL) {
    orch_fail(o, "out-of-memory", "there is no memory to compare the elements of `%s`", tensor->name);
    return;
  }
  for (int64_t i = 0; i < count; ++i) values[i] = orch_integer(o, tensor, tensor->data + i * tensor->bytes);
  if (orch_repeats(values, count))
    orch_fail(o, "assumption-fails", "two elements of `%s` are equal", tensor->name);
  free(values);
}

/** Copies the row indices of a row set, so that no later task changes them, and checks them. */
static inline const int32_t* orch_rows(Orchestration* o, const OrchRange* rows, const char* tensor,
                                       uint8_t role, int64_t size) {
  const int32_t* given = (const int32_t*)(const void*)rows->indices->data + rows->start;
  int32_t* kept = (int32_t*)orch_memory(o, (size_t)(rows->extent > 0 ? rows->extent : 1) * sizeof *kept);
  if (kept == NULL) return NULL;
  for (int64_t i = 0; i < rows->extent; ++i) {
    kept[i] = given[i];
    if (given[i] < 0 || given[i] >= size)
      orch_fail(o, "rows-outside", "`%s[%" PRId64 "]` is %d, which names no row of the %" PRId64 " of `%s`",
                rows->indices->name, rows->start + i, (int)given[i], size, tensor);
  }
  if (o->failed != NULL || role == 0 || rows->is_distinct || rows->extent < 2) return kept;
  int64_t* sorted = (int64_t*)malloc((size_t)rows->extent * sizeof *sorted);
  for (int64_t i = 0; sorted != NULL && i < rows->extent; ++i) sorted[i] = kept[i];
  if (sorted == NULL || orch_repeats(sorted, rows->extent))
    orch_fail(o, "rows-repeat", "the row set of `%s` by `%s` names a row twice, and the task writes it",
              tensor, rows->indices->name);
  free(sorted);
  return kept;
}

/** Checks a range against its tensor and the parameter of the kernel. */
static inline void orch_check(Orchestration* o, const OrchTensor* tensor, const OrchRange* range, int32_t d,
                              const OrchParam* param, int32_t slot) {
  const bool is_rows = range->kind == ORCH_ROWS;
  const OrchTensor* owner = is_rows ? range->indices : tensor;
  const int64_t size = owner->shape[d];
  if (range->start < 0 || range->extent < 0 || range->start > size || range->extent > size - range->start) {
    orch_fail(o, "region-outside", "%" PRId64 " :+ %" PRId64 " in dimension %d of `%s`, which has %" PRId64,
              range->start, range->extent, (int)d, owner->name, size);
  } else if (range->kind == ORCH_INDEX) {
    return;
  } else if (range->extent < param->min_shape[slot] || range->extent > param->max_shape[slot]) {
    orch_fail(o, "view-shape",
              "dimension %d of a region of `%s` has %" PRId64 " elements, and kernel `%s` takes %" PRId64
              " to %" PRId64,
              (int)d, tensor->name, range->extent, o->call->kernel->name, param->min_shape[slot],
              param->max_shape[slot]);
  }
}

/** Adds the next region of the task: its view for the kernel, and its memory for the runtime. */
static inline void orch_region(Orchestration* o, const OrchTensor* tensor, const OrchRange* given) {
  if (o->failed != NULL) return;
  const OrchParam* param = &o->call->kernel->params[o->view];
  OrchView* view = &o->call->views[o->view++];
  OrchRange ranges[ORCH_TENSOR_RANK];
  int64_t stride[ORCH_TENSOR_RANK], step = 1, size = 1;
  for (int32_t d = tensor->rank; d-- > 0; step *= tensor->shape[d]) stride[d] = step;
  int32_t kept = 0, first = 0; /* dimensions before `first` are those of a row set */
  for (int32_t d = 0; d < ORCH_VIEW_RANK; ++d) view->shape[d] = 1;
  view->data = tensor->data;
  for (int32_t d = 0; d < tensor->rank; ++d) {
    ranges[d] = given[d];
    if (ranges[d].kind == ORCH_ALL) ranges[d].extent = tensor->shape[d];
    if (ranges[d].kind == ORCH_ROWS || ranges[d].kind == ORCH_MERGED) {
      size *= tensor->shape[d];
      first = d + 1;
    }
    if (ranges[d].kind == ORCH_MERGED) {
      view->stride[0] = stride[d];
      continue;
    }
    orch_check(o, tensor, &ranges[d], d, param, kept);
    if (o->failed != NULL) return;
    if (ranges[d].kind != ORCH_ROWS)
      view->data = (char*)view->data + ranges[d].start * stride[d] * tensor->bytes;
    if (ranges[d].kind == ORCH_INDEX) continue;
    view->shape[kept] = ranges[d].extent;
    view->stride[kept++] = stride[d];
  }
  if (kept > 0) {
    if (view->shape[kept - 1] > 1 && view->stride[kept - 1] != 1)
      orch_fail(o, "inner-stride", "the last dimension of a view of `%s` has gaps between its elements",
                tensor->name);
    view->stride[kept - 1] = 1;
  }
  if (first == 0) {
    orch_box(o, param->role, tensor, ranges, 0, tensor->data);
    return;
  }
  view->rows = orch_rows(o, &ranges[0], tensor->name, param->role, size);
  const int64_t row_bytes = stride[first - 1] * tensor->bytes;
  for (int64_t i = 0; i < ranges[0].extent && o->failed == NULL; ++i)
    orch_box(o, param->role, tensor, ranges, first, tensor->data + view->rows[i] * row_bytes);
}
#define ORCH_REGION(o, tensor, ...) orch_region(o, tensor, (const OrchRange[]){__VA_ARGS__})

/* --------------------------------------------------------------------------------------------- order */

/** A word of memory that orders tasks: those that add it as an input follow the one that wrote it. */
typedef int32_t* OrchToken;

static inline OrchToken orch_token(Orchestration* o) { return (OrchToken)orch_memory(o, sizeof(int32_t)); }

/** The task follows the task that wrote a token, if one did. */
static inline void orch_after(Orchestration* o, OrchToken token) {
  if (o->failed == NULL && token != NULL)
    orch_checked(o, pto_task_add_input(&o->runtime, o->task, token, 0, 0, 1, 1));
}

/** Returns a token that the task writes. */
static inline OrchToken orch_mark(Orchestration* o) {
  const OrchToken token = orch_token(o);
  if (o->failed == NULL) orch_checked(o, pto_task_add_output(&o->runtime, o->task, token, 0, 0, 1, 1));
  return token;
}

/** Adds an empty task between the tasks before it that read a token, and those after it. Dumps hide it. */
static inline void orch_barrier(Orchestration* o, OrchToken token) {
  if (o->failed != NULL) return;
  o->task = orch_checked(o, pto_task_alloc(&o->runtime, "", NULL, 0, 0));
  if (o->failed == NULL) orch_checked(o, pto_task_add_output(&o->runtime, o->task, token, 0, 0, 1, 1));
  if (o->failed == NULL) orch_checked(o, pto_task_submit(&o->runtime, o->task));
}

/** Runs all tasks so far, so that what they write can be read. */
static inline void orch_flush(Orchestration* o) {
  if (o->failed != NULL) return;
  orch_checked(o, pto_execute_all(&o->runtime));
  const OrchFailure* failure = &o->failure;
  if (o->failed == NULL && failure->task != UINT64_MAX) {
    o->place = failure->place;
    o->depth = 0;
    if (failure->check == INT32_MIN)
      orch_fail(o, "out-of-memory", "there is no memory for kernel %s", failure->kernel);
    orch_fail(o, "kernel-failed", "a run-time check in kernel %s failed in task %" PRIu64, failure->kernel,
              failure->task);
  }
}

/* ---------------------------------------------------------------------------------------------- runs */

/** Makes a runtime, builds all tasks, runs them, and writes the dump. */
static inline void orch_execute(Orchestration* o, void (*build)(Orchestration* o)) {
  o->failure.task = UINT64_MAX;
  if (pto_runtime_init(&o->runtime) != PTO_OK) {
    orch_fail(o, "out-of-memory", "there is no memory for a runtime");
    return;
  }
  orch_checked(o, pto_runtime_set_workers(&o->runtime, o->workers));
  if (o->failed == NULL) build(o);
  orch_flush(o);
  if (o->failed == NULL && o->dump != NULL && pto_runtime_dump(&o->runtime, o->dump) != PTO_OK) {
    o->place = NULL;
    orch_fail(o, "runtime", "cannot write %s", o->dump);
  }
  pto_runtime_shutdown(&o->runtime);
  orch_forget_memory(o);
}

#endif /* PTO_WSP_HOST_ORCHESTRATION_TASKS_H_ */
