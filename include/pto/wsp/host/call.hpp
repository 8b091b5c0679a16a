// SPDX-License-Identifier: MIT
/// \file
/// What calls a program with arrays in memory. One unit of a program includes this, as it does command.hpp.
#pragma once

#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "pto/wsp/crash.hpp"
#include "pto/wsp/engine.hpp"
#include "pto/wsp/host/orchestrate.hpp"
#include "pto/wsp/host/program.hpp"

namespace pto::wsp::host {

inline Executable make_executable(const Program& program) {
  return Executable(program.bytecode, program.bytecode_size,
                    std::shared_ptr<const KernelLibrary>(pto_wsp_kernel_library(), [](auto*) {}), nullptr,
                    program.walk == nullptr ? nullptr : std::make_shared<const walk::WalkFn>(program.walk));
}

namespace detail {

inline std::string explain_check(const Program& program, const EngineError& error) {
  std::string kernel;
  std::vector<int64_t> values;
  for (const auto& [key, detail] : error.details()) {
    if (key == "kernel") kernel = detail.text;
    if (key == "values") values = detail.list;
  }
  const int64_t number = error.number("check");
  for (const CheckText& check : program.checks) {
    if (kernel == check.kernel && number == check.number) return "\n  " + check.explain(values);
  }
  const KernelFailure* failure =
      program.native == nullptr ? nullptr : program.native->failure(int32_t(number));
  if (failure == nullptr) return "";
  const std::string place =
      failure->file == nullptr ? "" : failure->file + (":" + std::to_string(failure->line) + ": ");
  return "\n  " + place + failure->message;
}

}  // namespace detail

/// The text of an error of the engine.
inline std::string explain(const Program& program, const EngineError& error) {
  std::string text = "error[" + error.code() + "]: " + error.what();
  for (const auto& [key, detail] : error.details()) {
    if (detail.kind == Detail::kNumber) text += "\n  " + key + " " + std::to_string(detail.number);
    if (detail.kind == Detail::kText) text += "\n  " + key + " " + detail.text;
    if (key == "tensor" && size_t(detail.number) < program.tensors.size())
      text += " (" + std::string(program.tensors[size_t(detail.number)].name) + ")";
  }
  if (error.code() == "kernel-failed") text += detail::explain_check(program, error);
  return text;
}

/// A reference to an array in C order.
inline bind::ArrayRef packed_ref(char* data, DType dtype, const std::vector<int64_t>& shape) {
  bind::ArrayRef ref;
  ref.data = data;
  ref.dtype = dtype;
  ref.rank = int(shape.size());
  int64_t stride = dtype_bytes(dtype);
  for (int d = ref.rank - 1; d >= 0; --d) {
    ref.shape[d] = shape[size_t(d)];
    ref.stride_bytes[d] = stride;
    stride *= ref.shape[d];
  }
  return ref;
}

/// The shape of tensor `i`. \pre all sizes are known
inline std::vector<int64_t> shape_of(const Program& program, const bytecode::TensorDescriptor& tensor,
                                     const Values& values) {
  std::vector<int64_t> shape;
  for (int d = 0; d < tensor.rank; ++d) {
    const int64_t dim = tensor.dims[d];
    const auto symbol = size_t(-1 - dim);
    shape.push_back(dim >= 0 ? dim : value_of(values, symbol, program.symbols[symbol].name).i64);
  }
  return shape;
}

/// Runs a program on arrays, by the engine or by its orchestration. `dump`: the file of a task dump, or null.
inline RunResult run_program(const Program& program, Executable& executable,
                             const std::vector<bind::ArrayRef>& refs, const Values& values,
                             const sched::RunOptions& options, const char* dump = nullptr) {
  if (program.orchestrate == nullptr) return executable.run(refs, values, options);
  return orchestrate(program, refs, values, options.workers, dump);
}

/// One call of a program.
class Call {
 public:
  Call(const Program& program, Executable& executable, Values values, const void* const* arrays)
      : program_(program), executable_(executable), values_(std::move(values)), arrays_(arrays) {}

  void run(uint32_t workers) {
    check_sizes();
    for (size_t i = 0; i < program_.tensors.size(); ++i) {
      if (program_.tensors[i].kind == TensorKind::kOffsets) check_offsets(i);
    }
    for (size_t i = 0; i < program_.tensors.size(); ++i) {
      if (program_.tensors[i].kind == TensorKind::kIndices) check_indices(i);
    }
    program_.derive(values_);
    std::vector<Array> locals;
    std::vector<bind::ArrayRef> refs;
    for (size_t i = 0; i < program_.tensors.size(); ++i) refs.push_back(array(i, locals));
    sched::RunOptions options = program_.options;
    options.workers = workers;
    std::optional<CrashWatch> watch;
    if (program_.native != nullptr) {
      program_.native->current_call = current_call;
      watch.emplace();
    }
    run_program(program_, executable_, refs, values_, options);
  }

 private:
  std::string name(size_t tensor) const { return program_.tensors[tensor].name; }
  const bytecode::TensorDescriptor& descriptor(size_t i) const { return executable_.program().tensors[i]; }
  size_t size_symbol(size_t tensor) const { return size_t(-1 - descriptor(tensor).dims[0]); }

  void check_sizes() const {
    for (size_t i = 0; i < values_.size(); ++i) {
      const bool is_size = executable_.program().symbols[i].kind == bytecode::SymbolKind::SIZE;
      if (is_size && values_[i] && *values_[i] < 0)
        throw Mistake(program_.symbols[i].name + std::string(": a size is at least 0"));
    }
  }

  /// The number of offsets follows from that of rows.
  void check_offsets(size_t i) {
    const int64_t rows = *values_[program_.tensors[i].axis];
    values_[size_symbol(i)] = rows + 1;
    const auto* offsets = static_cast<const int64_t*>(arrays_[i]);
    if (offsets == nullptr) throw Mistake(name(i) + ": expected an array, found NULL");
    for (int64_t b = 0; b <= rows; ++b) {
      if (offsets[b] < (b == 0 ? 0 : offsets[b - 1]))
        throw Mistake(name(i) + ": element " + std::to_string(b) + " is less than the one before");
    }
  }

  /// The number of indices is the last of the offsets.
  void check_indices(size_t i) {
    const size_t axis = program_.tensors[i].axis;
    const auto* offsets = static_cast<const int64_t*>(arrays_[axis]);
    const int64_t rows = *values_[program_.tensors[axis].axis];
    values_[size_symbol(i)] = offsets[rows];
    const auto* indices = static_cast<const int32_t*>(arrays_[i]);
    for (int64_t j = offsets[0]; indices != nullptr && j < offsets[rows]; ++j) {
      if (indices[j] < 0) throw Mistake(name(i) + ": element " + std::to_string(j) + " is negative");
    }
  }

  /// The caller's array, or a local one that lives as long as the call.
  bind::ArrayRef array(size_t i, std::vector<Array>& locals) const {
    const std::vector<int64_t> shape = shape_of(program_, descriptor(i), values_);
    const DType dtype = descriptor(i).dtype;
    if (program_.tensors[i].kind == TensorKind::kLocal) {
      locals.emplace_back(dtype, shape);
      return packed_ref(locals.back().data(), dtype, shape);
    }
    bool is_empty = false;
    for (const int64_t size : shape) is_empty |= size == 0;
    if (arrays_[i] == nullptr && !is_empty) throw Mistake(name(i) + ": expected an array, found NULL");
    // Tasks write only what the header declares without `const`.
    return packed_ref(static_cast<char*>(const_cast<void*>(arrays_[i])), dtype, shape);
  }

  const Program& program_;
  Executable& executable_;
  Values values_;
  const void* const* arrays_;
};

/// The program on the engine.
class Engine {
 public:
  explicit Engine(const Program& program) : executable(make_executable(program)) {}

  Executable executable;
};

const char* call(Callable& callable, Values values, const void* const* arrays, uint32_t workers) {
  static thread_local std::string message;
  try {
    {
      const std::lock_guard<std::mutex> lock(callable.mutex);
      if (callable.engine == nullptr) callable.engine = std::make_shared<Engine>(callable.program);
    }
    Call(callable.program, callable.engine->executable, std::move(values), arrays).run(workers);
    return nullptr;
  } catch (const Mistake& mistake) {
    message = std::string("error: ") + mistake.what();
  } catch (const EngineError& error) {
    message = explain(callable.program, error);
  } catch (const std::bad_alloc&) {
    return "error: out of memory";
  }
  return message.c_str();
}

}  // namespace pto::wsp::host
