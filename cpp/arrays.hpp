// SPDX-License-Identifier: MIT
/// \file
/// Python arrays as the engine sees them, and scalars as kernels see them.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "pto/wsp/bind/alias.hpp"
#include "pto/wsp/error.hpp"

namespace pto::wsp::python {

/// Holds the buffers of a call's arrays until it returns. Use with the GIL held.
class BoundArrays {
 public:
  /// Throws `too-many-dimensions`, `wrong-device`, `unsupported-array`, `foreign-byte-order` or
  /// `unknown-dtype`.
  explicit BoundArrays(nanobind::tuple arrays);
  ~BoundArrays();
  BoundArrays(const BoundArrays&) = delete;
  BoundArrays& operator=(const BoundArrays&) = delete;

  const std::vector<bind::ArrayRef>& refs() const { return refs_; }

 private:
  void add(nanobind::handle array, size_t index);
  void release();

  std::vector<Py_buffer> buffers_;
  std::vector<bind::ArrayRef> refs_;
};

/// The 8 bytes of a scalar of this dtype. Throws `wrong-scalar` with detail `index`.
int64_t scalar_bits(nanobind::handle value, DType dtype, size_t index);

}  // namespace pto::wsp::python
