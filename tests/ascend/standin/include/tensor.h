// SPDX-License-Identifier: MIT
/// \file
/// Tensors of the simulated runtime of a device.
#pragma once

#include <stdint.h>

/// A part of a buffer: shapes and strides count elements.
struct ChipTensor {
  struct {
    uint64_t addr;
  } buffer;
  int64_t start_offset;
  int64_t shapes[5], strides[5];
  int32_t ndims;
  int32_t itemsize;  ///< of the simulation: each copy has that of its tensor
};
