// SPDX-License-Identifier: MIT
/// \file
/// Binds a call's arrays and symbol values to a program: checks them, infers sizes, finds aliases.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/bind/deciding_elements.hpp"
#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bind {

/// The arguments of one run, checked. A plan depends on `symbols`, `layouts` and `deciding`.
struct Arguments {
  std::vector<int64_t> symbols;
  std::vector<bytecode::TensorLayout> layouts;
  std::vector<char*> bases;                    ///< of arrays that decide: those of the copies in `deciding`
  std::shared_ptr<DecidingElements> deciding;  ///< null if no array decides
};

namespace detail {

inline EngineError array_error(const char* code, const char* message, size_t tensor) {
  return EngineError(code, message).with_int("tensor", int64_t(tensor));
}

inline void check_stride(const ArrayRef& array, int d, bool is_written, size_t tensor) {
  const int64_t bytes = dtype_bytes(array.dtype);
  const int64_t stride = array.stride_bytes[d];
  const auto fail = [&](const char* code, const char* message) {
    throw array_error(code, message, tensor).with_int("dim", d).with_int("stride_bytes", stride);
  };
  if (array.shape[d] <= 1) return;
  if (stride < 0) fail("negative-stride", "an array has a negative stride");
  if (stride % bytes != 0) fail("misaligned-array", "a stride is not a multiple of the element size");
  if (stride == 0 && is_written) fail("zero-stride", "an array that is written has a stride of zero");
  if (d == array.rank - 1 && stride != bytes)
    fail("inner-stride", "the innermost dimension of an array is not contiguous");
}

/// Whether two elements of an array may share memory: the step of a dimension is less than the span of the
/// dimensions with smaller steps.
inline bool may_overlap_itself(const ArrayRef& array) {
  for (int d = 0; d < array.rank; ++d) {
    int64_t span = dtype_bytes(array.dtype);
    for (int other = 0; other < array.rank; ++other) {
      const bool is_inside = array.stride_bytes[other] < array.stride_bytes[d] ||
                             (array.stride_bytes[other] == array.stride_bytes[d] && other > d);
      if (is_inside && array.shape[other] > 1) span += (array.shape[other] - 1) * array.stride_bytes[other];
    }
    if (array.shape[d] > 1 && array.stride_bytes[d] < span) return true;
  }
  return false;
}

inline void check_array(const ArrayRef& array, const bytecode::TensorDescriptor& tensor, size_t i) {
  if (array.rank != tensor.rank) {
    throw array_error("wrong-rank", "an array has another rank than its tensor", i)
        .with_int("expected", tensor.rank)
        .with_int("found", array.rank);
  }
  if (array.dtype != tensor.dtype) {
    throw array_error("wrong-dtype", "an array has another dtype than its tensor", i)
        .with_int("expected", int64_t(tensor.dtype))
        .with_int("found", int64_t(array.dtype));
  }
  if (tensor.written != 0 && array.is_read_only) {
    throw array_error("read-only-array", "an array that is written is read-only", i);
  }
  if (array.is_empty()) return;
  for (int d = 0; d < array.rank; ++d) check_stride(array, d, tensor.written != 0, i);
  if (tensor.written != 0 && may_overlap_itself(array)) {
    throw array_error("self-overlap", "elements of an array that is written share memory", i);
  }
  if (reinterpret_cast<uintptr_t>(array.data) % uintptr_t(dtype_bytes(array.dtype)) != 0) {
    throw array_error("misaligned-array", "an array's data is not aligned to its element size", i);
  }
}

inline bytecode::TensorLayout make_layout(const ArrayRef& array) {
  bytecode::TensorLayout layout{};
  const int64_t bytes = dtype_bytes(array.dtype);
  for (int d = 0; d < array.rank; ++d) {
    layout.shape[d] = array.shape[d];
    // A dimension of one element may have any stride; give it one value so that equal calls look equal.
    layout.stride[d] = array.shape[d] > 1 ? array.stride_bytes[d] / bytes : d == array.rank - 1 ? 1 : 0;
  }
  return layout;
}

/// Infers and checks sizes, remembering which tensor (or -1: the caller) a size came from.
class SizeBinder {
 public:
  SizeBinder(const bytecode::Program& program, const std::vector<std::optional<int64_t>>& given)
      : program_(program), values_(given), origin_(given.size(), -1) {}

  void bind(const ArrayRef& array, size_t tensor) {
    for (int d = 0; d < array.rank; ++d) {
      const int64_t dim = program_.tensors[tensor].dims[d];
      if (dim >= 0) {
        if (array.shape[d] != dim) fail(tensor, d, -1, dim, array.shape[d]);
        continue;
      }
      const auto symbol = size_t(-1 - dim);
      if (!values_[symbol]) {
        values_[symbol] = array.shape[d];
        origin_[symbol] = int64_t(tensor);
      } else if (*values_[symbol] != array.shape[d]) {
        fail(tensor, d, int64_t(symbol), *values_[symbol], array.shape[d]);
      }
    }
  }

  std::vector<int64_t> values() const {
    std::vector<int64_t> out;
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i]) {
        throw EngineError("unbound-symbol", "a symbol has no value").with_int("symbol", int64_t(i));
      }
      out.push_back(*values_[i]);
    }
    return out;
  }

 private:
  [[noreturn]] void fail(size_t tensor, int dim, int64_t symbol, int64_t expected, int64_t found) const {
    throw array_error("size-mismatch", "an array has another size than expected", tensor)
        .with_int("dim", dim)
        .with_int("symbol", symbol)
        .with_int("expected", expected)
        .with_int("found", found)
        .with_int("other_tensor", symbol < 0 ? -1 : origin_[size_t(symbol)]);
  }

  const bytecode::Program& program_;
  std::vector<std::optional<int64_t>> values_;
  std::vector<int64_t> origin_;
};

inline void find_groups(const bytecode::Program& program, const std::vector<ArrayRef>& arrays,
                        std::vector<bytecode::TensorLayout>& layouts) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    layouts[i].group = uint32_t(i);
    for (size_t j = 0; j < i; ++j) {
      const bool is_written = program.tensors[i].written != 0 || program.tensors[j].written != 0;
      if (is_same_view(arrays[i], arrays[j])) {
        if (is_written && (program.decides[i] || program.decides[j])) {
          throw array_error("deciding-array-written", "an array that decides what runs is written by a task",
                            i)
              .with_int("other_tensor", int64_t(j));
        }
        layouts[i].group = layouts[j].group;
        continue;
      }
      if (!is_written) continue;
      const Overlap overlap = find_overlap(arrays[i], arrays[j]);
      if (overlap == Overlap::kNone) continue;
      throw array_error("overlapping-arrays", "two arrays overlap and one of them is written", i)
          .with_int("other_tensor", int64_t(j))
          .with_int("undecided", overlap == Overlap::kUndecided);
    }
  }
}

}  // namespace detail

/// Checks `arrays` (one per tensor) and `given` (one per symbol; empty = infer) against the program. Takes
/// the copies of an earlier call, `latest` (null: none), if their elements are the same. Throws `wrong-rank`,
/// `wrong-dtype`, `read-only-array`, `negative-stride`, `zero-stride`, `inner-stride`, `self-overlap`,
/// `misaligned-array`, `size-mismatch`, `unbound-symbol`, `negative-size` or `overlapping-arrays`.
inline Arguments bind_arguments(const bytecode::Program& program, const std::vector<ArrayRef>& arrays,
                                const std::vector<std::optional<int64_t>>& given,
                                const std::shared_ptr<DecidingElements>& latest = nullptr) {
  if (arrays.size() != program.tensors.size() || given.size() != program.symbols.size()) {
    throw EngineError("wrong-argument-count", "a call needs one array per tensor and one value per symbol")
        .with_int("expected_arrays", int64_t(program.tensors.size()))
        .with_int("found_arrays", int64_t(arrays.size()))
        .with_int("expected_symbols", int64_t(program.symbols.size()))
        .with_int("found_symbols", int64_t(given.size()));
  }
  Arguments arguments;
  detail::SizeBinder sizes(program, given);
  for (size_t i = 0; i < arrays.size(); ++i) {
    detail::check_array(arrays[i], program.tensors[i], i);
    sizes.bind(arrays[i], i);
    arguments.layouts.push_back(detail::make_layout(arrays[i]));
    arguments.bases.push_back(static_cast<char*>(arrays[i].data));
  }
  arguments.symbols = sizes.values();
  for (size_t i = 0; i < program.symbols.size(); ++i) {
    if (program.symbols[i].kind == bytecode::SymbolKind::SIZE && arguments.symbols[i] < 0) {
      throw EngineError("negative-size", "a size is negative").with_int("symbol", int64_t(i));
    }
  }
  detail::find_groups(program, arrays, arguments.layouts);
  if (std::find(program.decides.begin(), program.decides.end(), true) == program.decides.end())
    return arguments;
  arguments.deciding = latest != nullptr && latest->match(arrays)
                           ? latest
                           : std::make_shared<DecidingElements>(program, arrays);
  arguments.deciding->replace(arguments.layouts, arguments.bases);
  return arguments;
}

}  // namespace pto::wsp::bind
