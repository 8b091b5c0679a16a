// SPDX-License-Identifier: MIT
/// \file
/// The runtime of a device as an orchestration uses it, simulated: device.hpp runs the tasks.
#pragma once

#include <vector>

#include "tensor.h"

struct OrchestrationConfig {
  int expected_arg_count;
};

/// The arguments of a run.
class ChipTaskArgs {
 public:
  ChipTaskArgs(const ChipTensor* tensors, const uint64_t* scalars) : tensors_(tensors), scalars_(scalars) {}
  const ChipTensor* tensor(int i) const { return tensors_ + i; }
  uint64_t scalar(int i) const { return scalars_[i]; }

 private:
  const ChipTensor* tensors_;
  const uint64_t* scalars_;
};

/// The arguments of a task.
class CoreTaskArgs {
 public:
  void add_input(const ChipTensor& tensor) { add(tensor, false); }
  void add_inout(const ChipTensor& tensor) { add(tensor, true); }
  void add_scalar(uint64_t scalar) { scalars.push_back(scalar); }

  std::vector<ChipTensor> tensors;
  std::vector<bool> is_written;
  std::vector<uint64_t> scalars;

 private:
  void add(const ChipTensor& tensor, bool writes) {
    tensors.push_back(tensor);
    is_written.push_back(writes);
  }
};

void rt_submit_aic_task(int id, const CoreTaskArgs& args);
void rt_submit_aiv_task(int id, const CoreTaskArgs& args);

/// Runs the tasks that write the tensor, and those before them that they wait for.
void standin_wait_for(const ChipTensor& tensor);

template <class T>
T get_tensor_data(const ChipTensor& tensor, uint32_t ndims, const uint32_t* indices) {
  standin_wait_for(tensor);
  int64_t offset = tensor.start_offset;
  for (uint32_t d = 0; d < ndims; ++d) offset += indices[d] * tensor.strides[d];
  return reinterpret_cast<const T*>(tensor.buffer.addr)[offset];
}
