// SPDX-License-Identifier: MIT
/// \file
/// Runs the orchestration of a program: C that adds its tasks by the C API.
#pragma once

#include <chrono>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/error.hpp"
#include "pto/wsp/host/program.hpp"
#include "pto/wsp/run_result.hpp"

namespace pto::wsp::host {

static_assert(sizeof(OrchView) == sizeof(View) && sizeof(OrchContext) == sizeof(TaskContext) &&
                  sizeof(OrchKernel) == sizeof(KernelInfo) && sizeof(OrchLibrary) == sizeof(KernelLibrary) &&
                  int(ORCH_CHECK_VALUES) == kMaxCheckValues,
              "orchestration.h repeats abi.hpp");

namespace detail {

inline std::vector<int64_t> known_values(const Program& program, const Values& values) {
  std::vector<int64_t> known;
  for (size_t i = 0; i < values.size(); ++i)
    known.push_back(value_of(values, i, program.symbols[i].name).i64);
  return known;
}

inline std::vector<OrchTensor> orchestrated_tensors(const Program& program,
                                                    const std::vector<bind::ArrayRef>& refs) {
  std::vector<OrchTensor> tensors(refs.size());
  for (size_t i = 0; i < refs.size(); ++i) {
    tensors[i].name = program.tensors[i].name;
    tensors[i].data = static_cast<char*>(refs[i].data);
    tensors[i].dtype = uint8_t(refs[i].dtype);
    tensors[i].bytes = uint8_t(dtype_bytes(refs[i].dtype));
    tensors[i].rank = refs[i].rank;
    for (int d = 0; d < refs[i].rank; ++d) tensors[i].shape[d] = refs[i].shape[d];
  }
  return tensors;
}

}  // namespace detail

/// Runs all tasks. Throws EngineError with the code of the first error.
/// \pre the arrays are in C order, without gaps
inline RunResult orchestrate(const Program& program, const std::vector<bind::ArrayRef>& refs,
                             const Values& values, uint32_t workers, const char* dump) {
  const std::vector<int64_t> symbols = detail::known_values(program, values);
  const std::vector<OrchTensor> tensors = detail::orchestrated_tensors(program, refs);
  Orchestration o{};
  o.library = reinterpret_cast<const OrchLibrary*>(pto_wsp_kernel_library());
  o.symbols = symbols.data();
  o.tensors = tensors.data();
  o.workers = int(workers);
  o.dump = dump;
  const auto start = std::chrono::steady_clock::now();
  program.orchestrate(&o);
  RunResult result;
  result.run_ns = (std::chrono::steady_clock::now() - start).count();
  result.tasks = o.num_tasks;
  result.workers = workers != 0 ? workers : sched::default_workers();
  if (o.failed == nullptr) return result;
  EngineError error(o.failed, o.message);
  if (error.code() != "kernel-failed") throw error;
  throw std::move(error)
      .with("kernel", std::string(o.failure.kernel))
      .with_int("check", o.failure.check)
      .with("values", std::vector<int64_t>(o.failure.values, o.failure.values + kMaxCheckValues));
}

}  // namespace pto::wsp::host
