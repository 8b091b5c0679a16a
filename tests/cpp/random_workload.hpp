// SPDX-License-Identifier: MIT
/// \file
/// Random workloads over the mixing kernels, with an independent sequential meaning and a pairwise order
/// checker.
#pragma once

#include <vector>

#include "check.hpp"
#include "pto/wsp/bind/arguments.hpp"
#include "random_tasks.hpp"

namespace random_workload {

class Workload {
 public:
  /// See Generator.
  Workload(uint64_t seed, size_t max_tasks, bool has_edges = false)
      : generator_(seed, max_tasks, has_edges), meaning_(generator_) {}

  std::vector<uint8_t> bytes() const { return generator_.program().bytes(); }
  const std::vector<Tensor>& tensors() const { return generator_.tensors(); }
  /// What a run of the engine is given for tensors.
  static std::vector<bind::ArrayRef> to_arrays(std::vector<Tensor>& tensors) {
    std::vector<bind::ArrayRef> arrays;
    for (Tensor& tensor : tensors) {
      bind::ArrayRef ref;
      ref.data = tensor.data.data();
      ref.dtype = DType::u64;
      ref.rank = int(tensor.shape.size());
      for (int d = 0; d < ref.rank; ++d) {
        ref.shape[d] = tensor.shape[size_t(d)];
        ref.stride_bytes[d] = tensor.stride[size_t(d)] * 8;
      }
      arrays.push_back(ref);
    }
    return arrays;
  }
  const std::vector<Task>& tasks() const { return meaning_.tasks; }
  /// The tensors after all tasks have run in program order.
  const std::vector<Tensor>& results() const { return meaning_.results; }
  /// What flush points read, in program order.
  const std::vector<int64_t>& flushed() const { return meaning_.flushed; }

  /// Compares the stamps of a run with every pair that must be ordered.
  void check_order(const mix::Stamps& stamps) const {
    check_order(stamps, [this](size_t i, size_t j) { return must_be_ordered(tasks()[i], tasks()[j]); });
  }
  /// The same, where `must_precede(i, j)` says whether task i must be complete before task j begins, whatever
  /// `after` says.
  template <class MustPrecede>
  void check_order(const mix::Stamps& stamps, MustPrecede must_precede) const {
    for (size_t j = 0; j < tasks().size(); ++j) {
      CHECK(stamps.start[j] != 0 && stamps.end[j] != 0);
      for (size_t i = 0; i < j; ++i) {
        if (must_precede(i, j)) CHECK(stamps.end[i] < stamps.start[j]);
      }
      for (size_t i : tasks()[j].afters) CHECK(stamps.end[i] < stamps.start[j]);
    }
  }

  /// Whether every two tasks that conflict are ordered by names and P.seq loops.
  bool has_enough_edges() const {
    std::vector<std::vector<bool>> is_before(tasks().size(), std::vector<bool>(tasks().size()));
    for (size_t j = 0; j < tasks().size(); ++j) {
      std::vector<size_t> edges = tasks()[j].afters;
      for (size_t i = 0; i < j; ++i) {
        if (are_in_different_iterations(tasks()[i], tasks()[j], Op::FOR_EACH)) edges.push_back(i);
      }
      for (const size_t edge : edges) {
        is_before[j][edge] = true;
        for (size_t i = 0; i < edge; ++i) is_before[j][i] = is_before[j][i] || is_before[edge][i];
      }
      for (size_t i = 0; i < j; ++i) {
        if (conflict(tasks()[i], tasks()[j]) && !is_before[j][i]) return false;
      }
    }
    return true;
  }

 private:
  Generator generator_;
  Meaning meaning_;
};

/// Views of one memory, of the shapes of a workload's tensors. Those of different seeds may overlap.
inline std::vector<bind::ArrayRef> place(const Workload& workload, std::vector<uint64_t>& memory,
                                         uint64_t seed) {
  sched::Random random(seed);
  std::vector<bind::ArrayRef> arrays =
      Workload::to_arrays(const_cast<std::vector<Tensor>&>(workload.tensors()));
  size_t first = random.next() % 3 == 0 ? 0 : random.next() % 60;
  for (bind::ArrayRef& array : arrays) {
    array.data = memory.data() + first;
    first += size_t(bind::detail::span_bytes(array)) / 8 + random.next() % 40;
  }
  CHECK(first < memory.size());
  return arrays;
}

}  // namespace random_workload
