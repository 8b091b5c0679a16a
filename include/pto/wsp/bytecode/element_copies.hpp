// SPDX-License-Identifier: MIT
/// \file
/// Copies of what decides in a run besides sizes and symbols: the elements that expressions and row sets
/// read.
#pragma once

#include <cstring>
#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bytecode {

/// Of the tensors that no task writes; those that tasks write decide through flush points alone.
class ElementCopies {
 public:
  explicit ElementCopies(const Plan& plan) : copies_(plan.layouts.size()) {
    const Program& program = plan.program();
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (!program.decides[i] || program.tensors[i].written != 0) continue;
      const char* data = plan.bindings.elements[i].base;
      copies_[i].assign(data, data + num_bytes(plan.layouts[i], program.tensors[i]));
    }
  }

  /// Whether tensors of the same layouts that begin at `bases` hold the same elements.
  bool match(const std::vector<char*>& bases) const {
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (!copies_[i].empty() && std::memcmp(copies_[i].data(), bases[i], copies_[i].size()) != 0)
        return false;
    }
    return true;
  }

  /// Where the copies begin; null for tensors that are not copied.
  std::vector<char*> bases() {
    std::vector<char*> bases;
    for (std::vector<char>& copy : copies_) bases.push_back(copy.data());
    return bases;
  }

 private:
  /// From the first element to the last, with what lies between them.
  static size_t num_bytes(const TensorLayout& layout, const TensorDescriptor& tensor) {
    int64_t last = 0;
    for (int d = 0; d < tensor.rank; ++d) {
      if (layout.shape[d] == 0) return 0;
      last += (layout.shape[d] - 1) * layout.stride[d];
    }
    return size_t((last + 1) * dtype_bytes(tensor.dtype));
  }

  std::vector<std::vector<char>> copies_;
};

}  // namespace pto::wsp::bytecode
