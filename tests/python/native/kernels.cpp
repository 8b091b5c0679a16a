// SPDX-License-Identifier: MIT
#include "pto/wsp/abi.hpp"

using namespace pto::wsp;

namespace {

constexpr int64_t kAny = 1ll << 40;

/// X += amount; fails with check 7 when the amount is negative and the tile is not the first.
int32_t add(const View* views, const Scalar* scalars, const TaskContext* context) {
  if (scalars[0].f32 < 0 && context->task > 0) return 7;
  auto* data = static_cast<float*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) data[i] += scalars[0].f32;
  return 0;
}

int32_t copy(const View* views, const Scalar*, const TaskContext*) {
  const auto* from = static_cast<const float*>(views[0].data);
  auto* to = static_cast<float*>(views[1].data);
  const auto row = [](const View& view, int64_t i) {
    return (view.rows != nullptr ? view.rows[i] : i) * view.stride[0];
  };
  for (int64_t i = 0; i < views[0].shape[0]; ++i) {
    for (int64_t j = 0; j < views[0].shape[1]; ++j) to[row(views[1], i) + j] = from[row(views[0], i) + j];
  }
  return 0;
}

/// Fills all of its workspace, then reports its size and alignment, and who it is, in row `block` of X.
int32_t report(const View* views, const Scalar* scalars, const TaskContext* context) {
  auto* bytes = static_cast<unsigned char*>(context->workspace);
  for (uint64_t i = 0; i < context->workspace_bytes; i += 1 + i / 1000) bytes[i] = 1;
  auto* row = static_cast<int64_t*>(views[0].data) + context->block_idx * views[0].stride[0];
  row[0] = int64_t(context->workspace_bytes);
  row[1] = int64_t(reinterpret_cast<uintptr_t>(context->workspace) % kScratchAlign);
  row[2] = context->block_idx;
  row[3] = context->block_num;
  return context->block_idx == uint32_t(scalars[0].i64) ? 9 : 0;
}

/// Writes `first`, `first + step`, ... into an index tensor.
int32_t count_up(const View* views, const Scalar* scalars, const TaskContext*) {
  auto* indices = static_cast<int32_t*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) indices[i] = int32_t(scalars[0].i64 + i * scalars[1].i64);
  return 0;
}

using Callback = void (*)();
Callback callback = nullptr;

int32_t call_back(const View*, const Scalar*, const TaskContext*) {
  if (callback != nullptr) callback();
  return 0;
}

int32_t fill_bf16(const View* views, const Scalar*, const TaskContext*) {
  auto* data = static_cast<uint16_t*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) data[i] = 0x3F80;  // 1.0
  return 0;
}

const ParamInfo kInout[] = {{Role::inout, DType::f32, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const ParamInfo kCopy[] = {{Role::in, DType::f32, 2, 0, {0, 0, 0, 0}, {kAny, kAny, 0, 0}},
                           {Role::out, DType::f32, 2, 0, {0, 0, 0, 0}, {kAny, kAny, 0, 0}}};
const ParamInfo kBf16[] = {{Role::out, DType::bf16, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const ParamInfo kReport[] = {{Role::out, DType::i64, 2, 0, {3, 4, 0, 0}, {3, 4, 0, 0}}};
const ParamInfo kIndices[] = {{Role::out, DType::i32, 2, 0, {0, 1, 0, 0}, {kAny, 1, 0, 0}}};
const KernelInfo kKernels[] = {{"add", add, kInout, 1, 1, 0, 1, Unit::any, {}},
                               {"copy", copy, kCopy, 2, 0, 64, 1, Unit::any, {}},
                               {"call_back", call_back, kInout, 1, 0, 0, 1, Unit::any, {}},
                               {"fill_bf16", fill_bf16, kBf16, 1, 0, 0, 1, Unit::any, {}},
                               {"report", report, kReport, 1, 1, 0, 3, Unit::cube, {}},
                               {"count_up", count_up, kIndices, 1, 2, 0, 1, Unit::mixed, {}}};
const KernelLibrary kTable = {kAbiVersion, 6, 42, kKernels};

}  // namespace

extern "C" const KernelLibrary* pto_wsp_kernel_library() { return &kTable; }
extern "C" void set_callback(Callback value) { callback = value; }
