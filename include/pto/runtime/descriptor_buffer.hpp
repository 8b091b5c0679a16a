// SPDX-License-Identifier: MIT
/// \file
/// Descriptor buffers (spec 8.1). Device memory is the platform's to give; these are the host's and CPU
/// simulation's.
#pragma once

#include <cstddef>
#include <new>

#include "work_descriptor.hpp"

namespace pto {
namespace runtime {

/// Buffers begin on a cache line.
inline constexpr std::size_t kDescriptorBufferAlign = 64;

/// \return an uninitialized buffer of `count` descriptors; null if `count <= 0` or there is no memory.
inline WorkDescriptor* allocate_descriptors(int count) {
  if (count <= 0) return nullptr;
  const std::size_t bytes = sizeof(WorkDescriptor) * static_cast<std::size_t>(count);
  return static_cast<WorkDescriptor*>(
      ::operator new(bytes, std::align_val_t{kDescriptorBufferAlign}, std::nothrow));
}

/// Frees a buffer of `allocate_descriptors`; null is allowed.
inline void free_descriptors(WorkDescriptor* buffer) {
  ::operator delete(buffer, std::align_val_t{kDescriptorBufferAlign});
}

}  // namespace runtime
}  // namespace pto
