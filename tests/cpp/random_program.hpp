// SPDX-License-Identifier: MIT
/// \file
/// Random programs over the mixing kernels: conditions, bounds and regions depend on variables, and these on
/// what the kernels write.
#pragma once

#include <vector>

#include "assembler.hpp"
#include "choices.hpp"
#include "mix_kernels.hpp"

namespace random_workload {

using namespace assembler;

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;
  std::vector<uint64_t> data;
};

struct Dim {
  Op op;
  Expr start, extent;
  uint32_t reg;  ///< DIM_TILE: the index register of its loop
};

struct Io {
  Role role;
  uint16_t tensor;
  std::vector<Dim> dims;
};

struct Node {
  Op op;  ///< a loop's, COND, SET or TASK
  // Loops
  bool is_tiled;
  Expr extent;
  int64_t tile;
  uint32_t reg;  ///< SET: the variable
  std::vector<Node> body;
  // Conditions: `body` if the value is not 0, else `other`. SET: the value.
  Expr value;
  std::vector<Node> other;
  // Tasks
  uint16_t kernel;
  std::vector<Io> ios;
  Expr stream;                   ///< empty: none
  uint32_t name;                 ///< pc of the TASK
  std::vector<uint32_t> afters;  ///< names
};

/// A variable with values in [0, limit).
struct Variable {
  uint16_t reg;
  int64_t limit;
};

/// What an expression means, written without the engine.
inline int64_t evaluate(const Assembler& program, const std::vector<Tensor>& tensors, const Expr& expr,
                        const std::vector<int64_t>& regs) {
  std::vector<int64_t> stack;
  for (const Instruction& in : expr) {
    if (in.op == Op::EXPR_CONST) {
      stack.push_back(program.constant_at(in.operand2));
    } else if (in.op == Op::EXPR_REG) {
      stack.push_back(regs[in.operand2]);
    } else if (in.op == Op::EXPR_ELEMENT) {
      const Tensor& tensor = tensors[in.operand1];
      int64_t offset = 0;
      for (size_t d = 0; d < in.operand2; ++d)
        offset += stack[stack.size() - in.operand2 + d] * tensor.stride[d];
      stack.resize(stack.size() - in.operand2);
      stack.push_back(int64_t(tensor.data[size_t(offset)]));
    } else {
      const int64_t b = stack.back();
      stack.pop_back();
      int64_t& a = stack.back();
      if (in.op == Op::EXPR_ADD) a += b;
      if (in.op == Op::EXPR_MUL) a *= b;
      if (in.op == Op::EXPR_FLOORDIV) a /= b;
      if (in.op == Op::EXPR_MOD) a %= b;
      if (in.op == Op::EXPR_MIN) a = std::min(a, b);
      if (in.op == Op::EXPR_MAX) a = std::max(a, b);
    }
  }
  return stack.back();
}

class Generator {
 public:
  /// Half of the programs use regions on grids only (dense maps, whole-tensor reads), the others regions of
  /// every kind. With `has_edges`, a task names one of each block around it; else it seldom does.
  Generator(uint64_t seed, size_t max_tasks, bool has_edges)
      : choices_(seed),
        program_(mix::library().table()),
        max_tasks_(max_tasks),
        has_edges_(has_edges),
        is_gridded_(pick(0, 1) == 0) {
    const int num_tensors = pick(1, 3);
    for (int i = 0; i < num_tensors; ++i) add_tensor();
    for (int i = pick(0, 3); i > 0; --i) variables_.push_back({program_.variable(), pick(1, 9)});
    std::vector<Node*> around;
    for (int i = pick(1, 3); i > 0; --i) add_statement(body_, around, 1);
    choices::note_program(program_.bytes());
  }

  const Assembler& program() const { return program_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Node>& body() const { return body_; }

 private:
  int pick(int64_t lo, int64_t hi) { return int(choices_.pick(lo, hi)); }

  void add_tensor() {
    Tensor tensor;
    const int rank = pick(1, 3);
    const int64_t sizes[] = {1, 7, 12, 17, 24, 40, 96, 290};
    for (int d = 0; d < rank; ++d)
      tensor.shape.push_back(sizes[pick(rank == 1 ? 2 : 0, rank == 3 ? 3 : rank == 2 ? 5 : 7)]);
    tensor.stride.assign(size_t(rank), 1);
    int64_t stride = 1;
    for (size_t d = size_t(rank); d-- > 0;) {
      tensor.stride[d] = stride;
      stride *= tensor.shape[d] + (d + 1 == size_t(rank) ? pick(0, 1) : 0);
    }
    tensor.data.resize(size_t(stride) + 64);
    for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = mix::scramble(i + 1);
    tensors_.push_back(tensor);
    program_.tensor(DType::u64, tensor.shape);
  }

  void add_statement(std::vector<Node>& body, std::vector<Node*>& around, size_t tasks) {
    if (!variables_.empty() && pick(0, 3) == 0) {
      add_set(body, around);
    } else if (depth_ < 4 && pick(0, 4) == 0) {
      add_cond(body, around, tasks);
    } else if (around.size() < 3 && pick(0, 3) != 0 && tasks * 2 <= max_tasks_) {
      add_loop(body, around, tasks);
    } else {
      add_task(body, around);
    }
  }

  void add_block(std::vector<Node>& body, std::vector<Node*>& around, size_t tasks) {
    names_.emplace_back();
    ++depth_;
    for (int i = pick(1, 2); i > 0; --i) add_statement(body, around, tasks);
    --depth_;
    names_.pop_back();
  }

  void add_set(std::vector<Node>& body, const std::vector<Node*>& around) {
    const Variable variable = variables_[size_t(pick(0, int(variables_.size()) - 1))];
    Node node{};
    node.op = Op::SET;
    node.reg = variable.reg;
    node.value = pick(0, 2) == 0 ? sum_of_registers(around) : any_element(around);
    node.value = program_.apply(Op::EXPR_MOD, {node.value, program_.constant(variable.limit)});
    program_.set(variable.reg, node.value);
    body.push_back(node);
  }

  /// An element of a tensor that tasks may write.
  Expr any_element(const std::vector<Node*>& around) {
    const auto tensor = uint16_t(pick(0, int(tensors_.size()) - 1));
    Expr out;
    for (int64_t size : tensors_[tensor].shape) {
      const Expr index = program_.apply(Op::EXPR_MOD, {sum_of_registers(around), program_.constant(size)});
      out.insert(out.end(), index.begin(), index.end());
    }
    out.push_back({Op::EXPR_ELEMENT, 0, tensor, uint32_t(tensors_[tensor].shape.size())});
    return out;
  }

  void add_cond(std::vector<Node>& body, std::vector<Node*>& around, size_t tasks) {
    Node node{};
    node.op = Op::COND;
    node.value = program_.apply(Op::EXPR_MOD, {sum_of_registers(around), program_.constant(pick(2, 4))});
    program_.cond(node.value);
    add_block(node.body, around, tasks);
    if (pick(0, 1) == 0) {
      program_.otherwise();
      add_block(node.other, around, tasks);
    }
    program_.end_cond();
    body.push_back(node);
  }

  void add_loop(std::vector<Node>& body, std::vector<Node*>& around, size_t tasks) {
    const Op ops[] = {Op::PARALLEL_FOR, Op::FOR_EACH, Op::RANGE_FOR};
    Node node{};
    node.op = ops[pick(0, 2)];
    node.is_tiled = pick(0, 1) != 0;
    const int limit = int(std::min<size_t>(max_tasks_ / tasks, 40));
    int64_t trips = pick(1, std::max(limit, 1));
    node.tile = pick(1, 6);
    node.extent = program_.constant(
        node.is_tiled ? std::max<int64_t>(trips * node.tile - pick(0, int(node.tile) - 1), 0) : trips);
    if (!around.empty() && pick(0, 3) == 0) {
      node.is_tiled = false;
      node.extent =
          program_.apply(Op::EXPR_MIN, {program_.constant(trips), program_.reg(around.back()->reg)});
    } else if (!variables_.empty() && pick(0, 3) == 0) {
      node.is_tiled = false;
      node.extent = program_.apply(Op::EXPR_MIN, {program_.constant(trips), any_variable()});
    }
    node.reg = node.is_tiled ? program_.tiles(node.op, node.extent, program_.constant(node.tile))
                             : program_.loop(node.op, node.extent);
    node.kernel = program_.last_axis();
    around.push_back(&node);
    add_block(node.body, around, tasks * size_t(trips));
    around.pop_back();
    program_.end();
    body.push_back(node);
  }

  void add_task(std::vector<Node>& body, const std::vector<Node*>& around) {
    Node node{};
    node.op = Op::TASK;
    const int rank = pick(1, 3);
    node.kernel = uint16_t(pick(0, int(mix::patterns().size()) - 1) * 3 + rank - 1);
    // Each view needs a tensor of its rank at least.
    for (const Tensor& tensor : tensors_) {
      if (int(tensor.shape.size()) < rank) node.kernel = uint16_t(node.kernel / 3 * 3);
    }
    node.name = program_.task(node.kernel);
    for (Role role : mix::patterns()[node.kernel / 3u]) {
      node.ios.push_back(make_io(role, node.kernel % 3 + 1, around));
      emit(node.ios.back());
    }
    if (pick(0, 2) != 0) program_.key(number(around));
    if (pick(0, 2) != 0) program_.order(number(around));
    if (pick(0, 2) != 0) program_.order(number(around), 3);
    if (pick(0, 2) != 0) {
      node.stream = number(around);
      program_.stream(node.stream);
      program_.turn(node.stream);
      program_.admit(number(around));
      program_.pool(node.stream);
    }
    for (const std::vector<uint32_t>& names : names_) {
      if (names.empty() || (!has_edges_ && pick(0, 5) != 0)) continue;
      node.afters.push_back(has_edges_ ? names.back() : names[size_t(pick(0, int(names.size()) - 1))]);
      program_.after(node.afters.back());
    }
    names_.back().push_back(node.name);
    body.push_back(node);
  }

  Expr number(const std::vector<Node*>& around) {
    if (!variables_.empty() && pick(0, 3) == 0) return any_variable();
    return Assembler::add(wrapped(around, 6), program_.constant(pick(-4, 4)));
  }

  Io make_io(Role role, int view_rank, const std::vector<Node*>& around) {
    Io io{role, uint16_t(pick(0, int(tensors_.size()) - 1)), {}};
    const Tensor& tensor = tensors_[io.tensor];
    int to_drop = int(tensor.shape.size()) - view_rank;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      const int left = int(tensor.shape.size() - d);
      const bool drops =
          to_drop > 0 && d + 1 < tensor.shape.size() && (to_drop >= left - 1 || pick(0, 1) != 0);
      to_drop -= drops;
      io.dims.push_back(drops ? Dim{Op::DIM_INDEX, wrapped(around, tensor.shape[d]), {}, 0}
                              : make_dim(around, tensor.shape[d]));
    }
    return io;
  }

  Dim make_dim(const std::vector<Node*>& around, int64_t size) {
    for (const Node* loop : around) {
      if (loop->is_tiled && max_extent(*loop) <= size && pick(0, 1) == 0) {
        return {Op::DIM_TILE, {}, {}, loop->reg};
      }
    }
    if (pick(0, is_gridded_ ? 2 : 5) == 0) return {Op::DIM_FULL, {}, {}, 0};
    const int64_t extent = pick(1, int(std::min<int64_t>(size, 6)));
    for (const Node* loop : around) {
      if (!loop->is_tiled && loop->extent.size() == 1 && max_extent(*loop) * extent <= size &&
          pick(0, 1) == 0) {
        const int64_t part = pick(1, int(extent));
        return {Op::DIM_RANGE, program_.mul(program_.reg(loop->reg), program_.constant(extent)),
                program_.constant(part), 0};
      }
    }
    if (is_gridded_) {
      const int64_t step = size % 4 == 0 ? 4 : 1;
      int64_t start = pick(0, int(size / step) - 1) * step;
      if (size > 200 && pick(0, 1) == 0) start = start / 16 * 16;  // where the nodes of a range tree begin
      return {Op::DIM_RANGE, program_.constant(start),
              program_.constant(pick(1, int((size - start) / step)) * step), 0};
    }
    if (pick(0, 3) == 0 && !around.empty()) {
      const Expr short_one =
          program_.apply(Op::EXPR_MIN, {program_.constant(extent), program_.reg(around.back()->reg)});
      return {Op::DIM_RANGE, wrapped(around, size - extent + 1), short_one, 0};
    }
    return {Op::DIM_RANGE, wrapped(around, size - extent + 1), program_.constant(extent), 0};
  }

  int64_t max_extent(const Node& loop) const {
    return evaluate(program_, tensors_, loop.extent, std::vector<int64_t>(64, 1 << 20));
  }

  /// An affine expression of the loop variables, modulo `size`.
  Expr wrapped(const std::vector<Node*>& around, int64_t size) {
    if (is_gridded_) return program_.constant(pick(0, int(size) - 1));
    Expr sum = sum_of_registers(around);
    if (!variables_.empty() && pick(0, 4) == 0) {
      // Never outside [0, size), though ranges alone do not show it: v * v // max(v, 1) = v < limit.
      const Variable variable = variables_.front();
      const Expr v = program_.reg(variable.reg);
      sum = program_.apply(Op::EXPR_FLOORDIV, {program_.mul(v, v), at_least_one(v)});
      if (variable.limit <= size) return sum;
    }
    return program_.apply(Op::EXPR_MOD, {sum, program_.constant(size)});
  }

  Expr at_least_one(const Expr& value) { return program_.apply(Op::EXPR_MAX, {value, program_.constant(1)}); }

  Expr any_variable() { return program_.reg(variables_[size_t(pick(0, int(variables_.size()) - 1))].reg); }

  Expr sum_of_registers(const std::vector<Node*>& around) {
    Expr sum = program_.constant(pick(0, 5));
    for (const Node* loop : around)
      sum = program_.add(sum, program_.mul(program_.reg(loop->reg), program_.constant(pick(0, 3))));
    if (!variables_.empty())
      sum = program_.add(sum, program_.mul(any_variable(), program_.constant(pick(0, 2))));
    return sum;
  }

  void emit(const Io& io) {
    program_.io(io.role, io.tensor);
    for (const Dim& dim : io.dims) {
      if (dim.op == Op::DIM_FULL) program_.full();
      if (dim.op == Op::DIM_INDEX) program_.index(dim.start);
      if (dim.op == Op::DIM_RANGE) program_.range(dim.start, dim.extent);
      if (dim.op == Op::DIM_TILE) program_.tile(program_.axis_of(dim.reg));
    }
  }

  choices::Choices choices_;
  Assembler program_;
  size_t max_tasks_;
  bool has_edges_;
  bool is_gridded_;
  std::vector<Tensor> tensors_;
  std::vector<Variable> variables_;
  std::vector<Node> body_;
  std::vector<std::vector<uint32_t>> names_{1};  ///< of the tasks so far, per open block
  int depth_ = 0;
};

}  // namespace random_workload
