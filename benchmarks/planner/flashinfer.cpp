// SPDX-License-Identifier: MIT
/// \file
/// FlashInfer's host planner of its persistent attention, timed without a GPU: the header comes from the
/// installed flashinfer-python, CUDA's part of it is here. Copies to the device cost nothing, so that its
/// times are a lower bound. The parts of its headers that only kernels need are left out.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <tuple>
#include <utility>
#include <vector>

#define FLASHINFER_POS_ENC_CUH_
#define FLASHINFER_UTILS_CUH_
#define __global__
#define __grid_constant__
#define FLASHINFER_CUDA_CALL(call) (void)(call)
#define DISPATCH_COMPUTE_CAP_DECODE_NUM_STAGES_SMEM(...)

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess = 0 };
enum { cudaDevAttrMultiProcessorCount, cudaMemcpyHostToDevice };
constexpr int kMultiprocessors = 132;

inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, int, int) {
  return *value = kMultiprocessors, cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void*, const void*, size_t, int, cudaStream_t) { return cudaSuccess; }
template <typename Kernel>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Kernel, int, size_t) {
  return *blocks = 1, cudaSuccess;
}

namespace flashinfer {

using std::max;
using std::min;
enum class PosEncodingMode { kNone, kRoPELlama, kALiBi };

template <typename T1, typename T2>
auto ceil_div(T1 x, T2 y) {
  return (x + y - 1) / y;
}
inline std::pair<int, int> GetCudaComputeCapability() { return {9, 0}; }
template <typename... Sizes>
uint32_t FA2DetermineCtaTileQ(Sizes...) {
  return 128;
}

}  // namespace flashinfer

#include <flashinfer/attention/scheduler.cuh>

/// Microseconds of one plan of a decode step with one query per request; negative if it fails.
extern "C" double flashinfer_plan_us(const int* lens, int batch, int kv_heads, int group_size) {
  constexpr size_t kFloatBytes = size_t{384} << 20;
  constexpr size_t kIntBytes = size_t{8} << 20;
  static std::vector<char> int_buffer(kIntBytes);
  std::vector<int> qo_indptr(static_cast<size_t>(batch) + 1);
  std::vector<int> kv_indptr(qo_indptr.size());
  std::vector<int> kv_lens(lens, lens + batch);
  for (size_t b = 0; b < kv_lens.size(); ++b) {
    qo_indptr[b + 1] = qo_indptr[b] + 1;
    kv_indptr[b + 1] = kv_indptr[b] + kv_lens[b];
  }
  flashinfer::HolisticPlanInfo<2> info;
  const auto begin = std::chrono::steady_clock::now();
  try {
    const auto done = flashinfer::TwoStageHolisticPlan<int>(
        int_buffer.data(), kFloatBytes, int_buffer.data(), int_buffer.data(), kIntBytes, info,
        qo_indptr.data(), kv_indptr.data(), kv_lens.data(), static_cast<uint32_t>(batch),
        static_cast<uint32_t>(kv_heads * group_size), static_cast<uint32_t>(kv_heads), 128, true, nullptr);
    if (done != cudaSuccess) return -1;
  } catch (const std::exception&) {
    return -1;
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}
