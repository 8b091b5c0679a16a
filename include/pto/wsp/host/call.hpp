// SPDX-License-Identifier: MIT
/// \file
/// What calls a program with arrays in memory. One unit of a program includes this, as it does command.hpp.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "pto/wsp/crash.hpp"
#include "pto/wsp/engine.hpp"
#include "pto/wsp/host/network.hpp"
#include "pto/wsp/host/orchestrate.hpp"
#include "pto/wsp/host/program.hpp"

namespace pto::wsp::host {

inline Executable make_executable(const Program& program, std::shared_ptr<const KernelLibrary> kernels) {
  return Executable(program.bytecode, program.bytecode_size, std::move(kernels), nullptr,
                    program.walk == nullptr ? nullptr : std::make_shared<const walk::WalkFn>(program.walk));
}

inline Executable make_executable(const Program& program) {
  return make_executable(program, {pto_wsp_kernel_library(), [](auto*) {}});
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

/// Where an error is in the workload; null if it has no place there.
inline const Site* site_of(const Program& program, const EngineError& error) {
  if (!error.has("pc")) return nullptr;
  for (const Site& site : program.sites) {
    if (site.pc == error.number("pc")) return &site;
  }
  return nullptr;
}

}  // namespace detail

/// The text of an error of the engine.
inline std::string explain(const Program& program, const EngineError& error) {
  std::string text = "error[" + error.code() + "]: " + error.what();
  if (const std::string of_network = explain_network(program, error); !of_network.empty())
    return text + of_network;
  const Site* const site = detail::site_of(program, error);
  if (site != nullptr) text += site->explain(error);
  for (const auto& [key, detail] : error.details()) {
    if (site != nullptr && (key == "pc" || key == "io")) continue;
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

/// Called before the offsets or indices of an axis are read.
using BeforeRead = std::function<void(size_t tensor, const void* data, size_t bytes)>;

/// One call of a program. It checks its arrays, and owns the local ones. It lives as long as the run.
class Call {
 public:
  /// \param code  the decoded workload of the program
  Call(const Program& program, const bytecode::Program& code, Given given,
       const BeforeRead& before_read = nullptr)
      : program_(program), code_(code), given_(std::move(given)) {
    check_sizes();
    for (size_t i = 0; i < program_.tensors.size(); ++i) {
      if (program_.tensors[i].kind == TensorKind::kOffsets) check_offsets(i, before_read);
    }
    for (size_t i = 0; i < program_.tensors.size(); ++i) {
      if (program_.tensors[i].kind == TensorKind::kIndices) check_indices(i, before_read);
    }
    program_.derive(given_.values);
    for (size_t i = 0; i < program_.tensors.size(); ++i) refs_.push_back(array(i));
    if (!program_.processes.empty()) require_separate(program_, code_, refs_);
    if (program_.native != nullptr) {
      program_.native->current_call = current_call;
      watch_.emplace();
    }
  }
  Call(const Call&) = delete;

  const std::vector<bind::ArrayRef>& refs() const { return refs_; }
  const Values& values() const { return given_.values; }
  sched::RunOptions options() const {
    sched::RunOptions options = program_.options;
    options.workers = given_.workers;
    return options;
  }

 private:
  std::string name(size_t tensor) const { return program_.tensors[tensor].name; }
  const bytecode::TensorDescriptor& descriptor(size_t i) const { return code_.tensors[i]; }
  size_t size_symbol(size_t tensor) const { return size_t(-1 - descriptor(tensor).dims[0]); }

  void check_sizes() const {
    for (size_t i = 0; i < values().size(); ++i) {
      const bool is_size = code_.symbols[i].kind == bytecode::SymbolKind::SIZE;
      if (is_size && values()[i] && *values()[i] < 0)
        throw Mistake(program_.symbols[i].name + std::string(": a size is at least 0"));
    }
  }

  /// The number of offsets follows from that of rows.
  void check_offsets(size_t i, const BeforeRead& before_read) {
    const int64_t rows = *values()[program_.tensors[i].axis];
    given_.values[size_symbol(i)] = rows + 1;
    const auto* offsets = static_cast<const int64_t*>(given_.arrays[i]);
    if (offsets == nullptr) throw Mistake(name(i) + ": expected an array, found NULL");
    if (before_read) before_read(i, offsets, size_t(rows + 1) * sizeof *offsets);
    for (int64_t b = 0; b <= rows; ++b) {
      if (offsets[b] < (b == 0 ? 0 : offsets[b - 1]))
        throw Mistake(name(i) + ": element " + std::to_string(b) + " is less than the one before");
    }
  }

  /// The number of indices is the last of the offsets.
  void check_indices(size_t i, const BeforeRead& before_read) {
    const size_t axis = program_.tensors[i].axis;
    const auto* offsets = static_cast<const int64_t*>(given_.arrays[axis]);
    const int64_t rows = *values()[program_.tensors[axis].axis];
    given_.values[size_symbol(i)] = offsets[rows];
    const auto* indices = static_cast<const int32_t*>(given_.arrays[i]);
    if (before_read && indices != nullptr) before_read(i, indices, size_t(offsets[rows]) * sizeof *indices);
    for (int64_t j = offsets[0]; indices != nullptr && j < offsets[rows]; ++j) {
      if (indices[j] < 0) throw Mistake(name(i) + ": element " + std::to_string(j) + " is negative");
    }
  }

  /// The caller's array, or a local one.
  bind::ArrayRef array(size_t i) {
    const std::vector<int64_t> shape = shape_of(program_, descriptor(i), values());
    const DType dtype = descriptor(i).dtype;
    if (program_.tensors[i].kind == TensorKind::kLocal) {
      locals_.emplace_back(dtype, shape);
      return packed_ref(locals_.back().data(), dtype, shape);
    }
    bool is_empty = false;
    for (const int64_t size : shape) is_empty |= size == 0;
    const void* data = given_.arrays[i];
    if (data == nullptr && !is_empty) throw Mistake(name(i) + ": expected an array, found NULL");
    // Tasks write only what the header declares without `const`.
    return packed_ref(static_cast<char*>(const_cast<void*>(data)), dtype, shape);
  }

  const Program& program_;
  const bytecode::Program& code_;
  Given given_;
  std::vector<Array> locals_;
  std::vector<bind::ArrayRef> refs_;
  std::optional<CrashWatch> watch_;
};

/// The program on the engine.
class Engine {
 public:
  explicit Engine(const Program& program) : executable(make_executable(program)) {}

  Executable executable;
};

/// The engine of a program, which the first call makes.
inline Executable& executable_of(Callable& callable) {
  const std::lock_guard<std::mutex> lock(callable.mutex);
  if (callable.engine == nullptr) callable.engine = std::make_shared<Engine>(callable.program);
  return callable.engine->executable;
}

/// Calls `body`. Returns null, or the error that it throws: a text that is valid until the next call of the
/// thread.
template <class Body>
const char* error_text(const Program& program, Body body) {
  static thread_local std::string message;
  try {
    body();
    return nullptr;
  } catch (const Mistake& mistake) {
    message = std::string("error: ") + mistake.what();
  } catch (const EngineError& error) {
    message = explain(program, error);
  } catch (const std::bad_alloc&) {
    return "error: out of memory";
  }
  return message.c_str();
}

const char* call(Callable& callable, Given given) {
  return error_text(callable.program, [&] {
    Executable& executable = executable_of(callable);
    const Call bound(callable.program, executable.program(), std::move(given));
    run_program(callable.program, executable, bound.refs(), bound.values(), bound.options());
  });
}

}  // namespace pto::wsp::host
