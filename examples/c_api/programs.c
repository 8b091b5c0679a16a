/* SPDX-License-Identifier: MIT */
/* The orchestrations of this folder as functions of a shared library, with the kernels of a library. */
#include "bgemm.h"
#include "llama_layer.h"
#include "softmax.h"

typedef struct Call {
  const char* kernels;
  PTOOrchFunc orchestrate;
  void* data;
} Call;

static void with_kernels(PTORuntime* rt, void* user_data) {
  const Call* call = (const Call*)user_data;
  pto_load_kernels(rt, call->kernels);
  call->orchestrate(rt, call->data);
}

static int run(const char* kernels, PTOOrchFunc orchestrate, void* data, int workers, int threshold) {
  Call call;
  call.kernels = kernels;
  call.orchestrate = orchestrate;
  call.data = data;
  return runtime_entry_arm64(with_kernels, &call, workers, threshold);
}

int run_llama(const char* kernels, LlamaLayer* layer, int workers, int threshold) {
  return run(kernels, llama_layer, layer, workers, threshold);
}
int run_softmax(const char* kernels, Softmax* data, int workers, int threshold) {
  return run(kernels, softmax, data, workers, threshold);
}
int run_bgemm(const char* kernels, Bgemm* data, int workers, int threshold) {
  return run(kernels, bgemm, data, workers, threshold);
}
int run_bgemm_tree(const char* kernels, Bgemm* data, int workers, int threshold) {
  return run(kernels, bgemm_tree, data, workers, threshold);
}
