// SPDX-License-Identifier: MIT
/// \file
/// The tasks of a random program, and which of them must come before which others, by brute force.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "random_program.hpp"

namespace random_workload {

/// A task as the test understands it.
struct Task {
  struct Access {
    uint16_t tensor;
    bool writes;
    std::vector<int64_t> lo, hi;
  };
  struct Iteration {
    Op op;  ///< of a loop
    int instance;
    int64_t index;
  };
  uint16_t kernel;
  std::vector<Access> accesses;
  std::vector<View> views;
  std::vector<Iteration> iterations;  ///< of the loops around it, outermost first
  std::optional<int64_t> stream;
  std::vector<size_t> afters;  ///< tasks that it waits for by name
};

inline bool overlap(const Task::Access& a, const Task::Access& b) {
  if (a.tensor != b.tensor || (!a.writes && !b.writes)) return false;
  for (size_t d = 0; d < a.lo.size(); ++d) {
    if (std::max(a.lo[d], b.lo[d]) >= std::min(a.hi[d], b.hi[d])) return false;
  }
  return true;
}

/// Whether tasks a and b touch a common element that one of them writes.
inline bool conflict(const Task& a, const Task& b) {
  for (const Task::Access& x : a.accesses) {
    for (const Task::Access& y : b.accesses) {
      if (overlap(x, y)) return true;
    }
  }
  return false;
}

/// Whether tasks are in different iterations of one run of a loop of kind `op`.
inline bool are_in_different_iterations(const Task& a, const Task& b, Op op) {
  for (size_t i = 0; i < a.iterations.size() && i < b.iterations.size(); ++i) {
    const Task::Iteration &x = a.iterations[i], &y = b.iterations[i];
    if (x.instance != y.instance) break;
    if (x.index != y.index) return x.op == op;
  }
  return false;
}

/// Whether task a, which comes first, is complete before task b begins, whatever `after` says.
inline bool must_be_ordered(const Task& a, const Task& b) {
  return are_in_different_iterations(a, b, Op::FOR_EACH) || conflict(a, b);
}

/// Runs a program one task after the other, without the engine.
class Meaning {
 public:
  explicit Meaning(const Generator& generator) : results(generator.tensors()), program_(generator.program()) {
    expand(generator.body());
  }
  Meaning(const Meaning&) = delete;

  std::vector<Tensor> results;   ///< the tensors after all tasks have run
  std::vector<int64_t> flushed;  ///< what flush points read
  std::vector<Task> tasks;       ///< their views are of `results`

 private:
  void expand(const std::vector<Node>& body) {
    for (const Node& node : body) {
      switch (node.op) {
        case Op::TASK: add_instance(node); break;
        case Op::SET: set(node); break;
        case Op::COND: expand(evaluate(node.value) != 0 ? node.body : node.other); break;
        default: expand_loop(node);
      }
    }
  }

  void set(const Node& node) {
    regs_[node.reg] = evaluate(node.value);
    const bool is_flush = std::any_of(node.value.begin(), node.value.end(),
                                      [](const Instruction& in) { return in.op == Op::EXPR_ELEMENT; });
    if (is_flush) flushed.push_back(regs_[node.reg]);
  }

  void expand_loop(const Node& node) {
    const int64_t extent = evaluate(node.extent);
    const int64_t trips = node.is_tiled ? (extent + node.tile - 1) / node.tile : extent;
    const int instance = num_instances_++;
    for (int64_t i = 0; i < trips; ++i) {
      regs_[node.reg] = i;
      if (node.is_tiled) {
        regs_[node.reg + 1] = i * node.tile;
        regs_[node.reg + 2] = std::min(node.tile, extent - i * node.tile);
      }
      iterations_.push_back({node.op, instance, i});
      expand(node.body);
      iterations_.pop_back();
    }
  }

  void add_instance(const Node& node) {
    Task task{node.kernel, {}, {}, iterations_, {}, {}};
    if (!node.stream.empty()) task.stream = evaluate(node.stream);
    for (uint32_t name : node.afters) task.afters.push_back(latest_.at(name));
    latest_[node.name] = tasks.size();
    for (const Io& io : node.ios) {
      Task::Access access{io.tensor, io.role != Role::in, {}, {}};
      View view{nullptr, {1, 1, 1, 1}, {0, 0, 0, 0}, nullptr};
      int64_t offset = 0;
      int slot = 0;
      for (size_t d = 0; d < io.dims.size(); ++d) {
        const Dim& dim = io.dims[d];
        const Tensor& tensor = results[io.tensor];
        int64_t start = 0, extent = tensor.shape[d];
        if (dim.op == Op::DIM_TILE) start = regs_[dim.reg + 1], extent = regs_[dim.reg + 2];
        if (dim.op == Op::DIM_INDEX) start = evaluate(dim.start), extent = 1;
        if (dim.op == Op::DIM_RANGE) start = evaluate(dim.start), extent = evaluate(dim.extent);
        access.lo.push_back(start);
        access.hi.push_back(start + extent);
        offset += start * tensor.stride[d];
        if (dim.op == Op::DIM_INDEX) continue;
        view.shape[slot] = extent;
        view.stride[slot++] = tensor.stride[d];
      }
      view.data = results[io.tensor].data.data() + offset;
      task.accesses.push_back(access);
      task.views.push_back(view);
    }
    mix::apply(task.views.data(), mix::patterns()[node.kernel / 3u], tasks.size());
    tasks.push_back(task);
  }

  int64_t evaluate(const Expr& expr) const {
    return random_workload::evaluate(program_, results, expr, regs_);
  }

  const Assembler& program_;
  std::map<uint32_t, size_t> latest_;  ///< per name of a task, the latest one
  std::vector<int64_t> regs_ = std::vector<int64_t>(256, 0);
  std::vector<Task::Iteration> iterations_;
  int num_instances_ = 0;
};

}  // namespace random_workload
