// SPDX-License-Identifier: MIT
/// \file
/// Graphs: programs with a contract, which states what they provide and what they require.
#pragma once

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pto/wsp/engine.hpp"

namespace pto::wsp {

/// A program that sessions launch, and the names that contracts and messages use.
struct SessionProgram {
  std::string name;
  std::vector<std::string> tensors;  ///< one name per tensor; empty for memory of the program alone
  std::shared_ptr<const KernelLibrary> library;
  Executable executable;
};

/// What a launch does with the memory of one array.
struct ArrayAccess {
  size_t tensor;
  bool is_written;
  uintptr_t first, end;  ///< addresses of its first byte and of the byte after its last; equal if it is empty

  bool conflicts_with(const ArrayAccess& other) const {
    return (is_written || other.is_written) && first < other.end && other.first < end;
  }
};

/// \pre strides are not negative, or the engine refuses the array
inline ArrayAccess access_of(size_t tensor, const bind::ArrayRef& array, bool is_written) {
  const auto first = reinterpret_cast<uintptr_t>(array.data);
  const int64_t bytes = array.is_empty() ? 0 : bind::detail::span_bytes(array);
  return {tensor, is_written, first, first + uintptr_t(std::max<int64_t>(bytes, 0))};
}

/// A program with a contract that a session checks when it launches it. The contract is stated before.
class ContractGraph {
 public:
  struct Requirement {
    size_t tensor;
    std::shared_ptr<const ContractGraph> from;
  };

  /// \param name  for messages
  ContractGraph(std::shared_ptr<SessionProgram> program, std::string name)
      : program_(std::move(program)), name_(std::move(name)) {}

  const std::string& name() const { return name_; }
  SessionProgram& program() const { return *program_; }
  const std::vector<Requirement>& requirements() const { return requirements_; }
  bool provides(size_t tensor) const { return provided_.count(tensor) > 0; }

  /// States that a tensor is complete when kernels have run. Throws `unknown-parameter`, or `contract-broken`
  /// if other kernels write it, or one of these does not.
  void provide(const std::string& tensor, const std::set<std::string>& kernels) {
    const size_t index = find(tensor);
    const std::set<std::string> writers = writers_of(index);
    std::vector<std::string> wrong;
    std::set_symmetric_difference(writers.begin(), writers.end(), kernels.begin(), kernels.end(),
                                  std::back_inserter(wrong));
    if (!wrong.empty()) {
      const char* what = writers.count(wrong[0]) > 0 ? "` writes `" : "` does not write `";
      throw EngineError("contract-broken", "`" + wrong[0] + what + tensor + "`; expected that " +
                                               listed(kernels) + " alone write it");
    }
    provided_.insert(index);
  }

  /// States that another graph provides a tensor. Throws `unknown-parameter`.
  void require(const std::string& tensor, std::shared_ptr<const ContractGraph> from) {
    requirements_.push_back({find(tensor), std::move(from)});
  }

 private:
  size_t find(const std::string& tensor) const {
    const auto found = std::find(program_->tensors.begin(), program_->tensors.end(), tensor);
    if (tensor.empty() || found == program_->tensors.end())
      throw EngineError("unknown-parameter", "`" + name_ + "` has no tensor `" + tensor + "`");
    return size_t(found - program_->tensors.begin());
  }

  /// The kernels whose tasks write a tensor.
  std::set<std::string> writers_of(size_t tensor) const {
    std::set<std::string> names;
    const bytecode::Program& program = program_->executable.program();
    for (const bytecode::SiteForm& site : program.sites) {
      for (uint32_t i = 0; i < site.num_io; ++i) {
        const bytecode::IoForm& io = program.ios[site.first_io + i];
        if (io.tensor == tensor && io.role != Role::in)
          names.insert(program_->library->kernels[site.kernel].name);
      }
    }
    return names;
  }

  static std::string listed(const std::set<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "`" : ", `") + name + "`";
    return text;
  }

  std::shared_ptr<SessionProgram> program_;
  std::string name_;
  std::set<size_t> provided_;
  std::vector<Requirement> requirements_;
};

}  // namespace pto::wsp
