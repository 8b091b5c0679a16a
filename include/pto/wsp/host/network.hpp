// SPDX-License-Identifier: MIT
/// \file
/// A program that is a network: what it refuses of its arrays, and its errors in its own words.
#pragma once

#include <string>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/bytecode/program.hpp"
#include "pto/wsp/error.hpp"
#include "pto/wsp/host/program.hpp"

namespace pto::wsp::host {

/// What follows the first line of an error of a network. Empty for errors that any program can have.
inline std::string explain_network(const Program& program, const EngineError& error) {
  sched::NetworkNames names;
  for (const Process& process : program.processes) names.processes.push_back(process.name);
  for (const Tensor& tensor : program.tensors) names.tensors.push_back(tensor.name);
  names.moves = program.moves;
  return sched::explain_network(names, error);
}

/// Refuses arrays of a network that share memory, if tasks write one of them: its processes share a tensor
/// under one name alone. Throws Mistake.
inline void require_separate(const Program& program, const bytecode::Program& code,
                             const std::vector<bind::ArrayRef>& refs) {
  const auto end_of = [&](size_t i) {
    int64_t bytes = dtype_bytes(refs[i].dtype);
    for (int d = 0; d < refs[i].rank; ++d) bytes *= refs[i].shape[d];
    return static_cast<const char*>(refs[i].data) + bytes;
  };
  for (size_t i = 0; i < refs.size(); ++i) {
    for (size_t j = i + 1; j < refs.size(); ++j) {
      const auto *a = static_cast<const char*>(refs[i].data), *b = static_cast<const char*>(refs[j].data);
      const bool is_written = code.tensors[i].written != 0 || code.tensors[j].written != 0;
      if (is_written && a < end_of(j) && b < end_of(i))
        throw Mistake(std::string(program.tensors[i].name) + " and " + program.tensors[j].name +
                      " share memory: processes of a network share a tensor under one name alone");
    }
  }
}

}  // namespace pto::wsp::host
