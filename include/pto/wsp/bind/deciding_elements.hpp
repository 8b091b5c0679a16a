// SPDX-License-Identifier: MIT
/// \file
/// Copies of the elements that decide what a run does: those that expressions and row sets read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "pto/wsp/bind/alias.hpp"
#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bind {

/// The elements are read from the caller's arrays once. So a run uses exactly the checked elements, even if
/// another thread writes the arrays in between. Tensors that tasks write are not copied, because they decide
/// only through flush points. Copies have no gaps.
class DecidingElements {
 public:
  DecidingElements(const bytecode::Program& program, const std::vector<ArrayRef>& arrays)
      : copies_(arrays.size()) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (!program.decides[i] || program.tensors[i].written != 0) continue;
      copies_[i].resize(size_t(num_bytes(arrays[i])));
      for_rows(arrays[i], [&](const char* row, int64_t offset, int64_t bytes) {
        std::memcpy(copies_[i].data() + offset, row, size_t(bytes));
        return true;
      });
    }
  }

  /// Whether arrays of the same program hold the same elements.
  bool match(const std::vector<ArrayRef>& arrays) const {
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (copies_[i].empty()) continue;
      if (copies_[i].size() != size_t(num_bytes(arrays[i]))) return false;
      const bool is_same = for_rows(arrays[i], [&](const char* row, int64_t offset, int64_t bytes) {
        return std::memcmp(copies_[i].data() + offset, row, size_t(bytes)) == 0;
      });
      if (!is_same) return false;
    }
    return true;
  }

  /// A hash of the elements of a tensor (FNV-1a over words of 8 bytes), never 0; 0 if none was copied.
  uint64_t hash(size_t tensor) const {
    const std::vector<char>& copy = copies_[tensor];
    if (copy.empty()) return 0;
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < copy.size(); i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, copy.data() + i, std::min(sizeof word, copy.size() - i));
      hash = (hash ^ word) * 0x100000001B3u;
      hash ^= hash >> 32;
    }
    return hash | 1;
  }

  /// Puts the copies in the place of the arrays.
  void replace(std::vector<bytecode::TensorLayout>& layouts, std::vector<char*>& bases) {
    for (size_t i = 0; i < copies_.size(); ++i) {
      if (copies_[i].empty()) continue;
      bases[i] = copies_[i].data();
      int64_t stride = 1;
      for (int d = kMaxTensorRank; d-- > 0;) {
        if (layouts[i].shape[d] == 0) continue;  // a dimension that the tensor does not have
        if (layouts[i].shape[d] > 1) layouts[i].stride[d] = stride;
        stride *= layouts[i].shape[d];
      }
    }
  }

 private:
  static int64_t num_bytes(const ArrayRef& array) {
    int64_t bytes = dtype_bytes(array.dtype);
    for (int d = 0; d < array.rank; ++d) bytes *= array.shape[d];
    return bytes;
  }

  /// Calls `visit(row, offset, bytes)` for the rows without gaps, and where they are in a copy, until one
  /// call returns false; returns whether none did.
  template <class Visit>
  static bool for_rows(const ArrayRef& array, Visit visit) {
    if (array.is_empty()) return true;
    int rank = array.rank;
    int64_t bytes = dtype_bytes(array.dtype);
    while (rank > 0 && (array.shape[rank - 1] == 1 || array.stride_bytes[rank - 1] == bytes))
      bytes *= array.shape[--rank];
    int64_t indices[kMaxTensorRank] = {};
    const char* row = static_cast<const char*>(array.data);
    for (int64_t offset = 0;; offset += bytes) {
      if (!visit(row, offset, bytes)) return false;
      int d = rank - 1;
      for (; d >= 0 && ++indices[d] == array.shape[d]; --d) {
        row -= (array.shape[d] - 1) * array.stride_bytes[d];
        indices[d] = 0;
      }
      if (d < 0) return true;
      row += array.stride_bytes[d];
    }
  }

  std::vector<std::vector<char>> copies_;  ///< per tensor; empty where nothing is copied
};

}  // namespace pto::wsp::bind
