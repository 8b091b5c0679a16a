// SPDX-License-Identifier: MIT
/// \file
/// Builds bytecode for tests, one statement at a time.
#pragma once

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/format.hpp"
#include "pto/wsp/library.hpp"

namespace assembler {

using namespace pto::wsp;
using namespace pto::wsp::bytecode;

/// An expression as postfix instructions.
using Expr = std::vector<Instruction>;

class Assembler {
 public:
  explicit Assembler(const KernelLibrary& library) : library_(library) {
    for (uint32_t i = 0; i < library.num_kernels; ++i) {
      const KernelInfo& kernel = library.kernels[i];
      kernels_.push_back({name_hash(kernel.name), uint16_t(i), kernel.num_views, kernel.num_scalars, 0});
    }
  }

  Expr constant(int64_t value) {
    constants_.push_back(value);
    return {{Op::EXPR_CONST, 0, 0, uint32_t(constants_.size() - 1)}};
  }
  static Expr reg(uint32_t index) { return {{Op::EXPR_REG, 0, 0, index}}; }
  static Expr symbol(uint32_t index) { return {{Op::EXPR_SYMBOL, 0, 0, index}}; }
  static Expr apply(Op op, std::initializer_list<Expr> operands) {
    Expr out;
    for (const Expr& operand : operands) out.insert(out.end(), operand.begin(), operand.end());
    out.push_back({op, 0, 0, 0});
    return out;
  }
  /// An element of an integer tensor.
  static Expr element(uint16_t tensor, std::initializer_list<Expr> indices) {
    Expr out = apply(Op::EXPR_END, indices);
    out.back() = {Op::EXPR_ELEMENT, 0, tensor, uint32_t(indices.size())};
    return out;
  }
  static Expr add(const Expr& a, const Expr& b) { return apply(Op::EXPR_ADD, {a, b}); }
  static Expr mul(const Expr& a, const Expr& b) { return apply(Op::EXPR_MUL, {a, b}); }

  uint16_t tensor(DType dtype, const std::vector<int64_t>& dims, bool written = true, bool distinct = false) {
    TensorDescriptor descriptor{};
    descriptor.dtype = dtype;
    descriptor.rank = uint8_t(dims.size());
    descriptor.written = uint8_t(written);
    descriptor.distinct = uint8_t(distinct);
    std::copy(dims.begin(), dims.end(), descriptor.dims);
    tensors_.push_back(descriptor);
    return uint16_t(tensors_.size() - 1);
  }
  /// The ring of a channel.
  uint16_t ring(int64_t buffers, int64_t size, uint8_t scalars, ChannelKind kind = ChannelKind::RING) {
    const uint16_t index = tensor(DType::i64, {buffers, size});
    tensors_[index].channel = kind;
    tensors_[index].scalars = scalars;
    return index;
  }
  uint32_t size_symbol() {
    symbols_.push_back({SymbolKind::SIZE, DType::i64, {}});
    return uint32_t(symbols_.size() - 1);
  }
  uint32_t scalar_symbol(DType dtype) {
    symbols_.push_back({SymbolKind::SCALAR, dtype, {}});
    return uint32_t(symbols_.size() - 1);
  }

  /// Opens a loop over [0, extent); returns its register.
  uint32_t loop(Op op, const Expr& extent) { return open(op, AxisKind::DENSE, extent, {}); }
  /// Opens a loop over tiles; returns the index register, followed by those of start and length.
  uint32_t tiles(Op op, const Expr& extent, const Expr& tile) {
    return open(op, AxisKind::TILES, extent, tile);
  }
  int64_t constant_at(uint32_t index) const { return constants_[index]; }
  /// The axis that owns register `reg` as its index.
  uint16_t axis_of(uint32_t reg) const {
    for (size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i].reg == reg) return uint16_t(i);
    }
    return 0xFFFF;
  }
  uint16_t last_axis() const { return uint16_t(axes_.size() - 1); }
  void end() {
    const Open loop = open_.back();
    open_.pop_back();
    code_[loop.pc].operand2 = uint32_t(code_.size());
    code_.push_back({Op::END_LOOP, 0, code_[loop.pc].operand1, loop.pc});
  }

  void process() {
    open_.push_back({uint32_t(code_.size())});
    emit(Op::PROCESS, 0, 0);
  }
  void end_process() {
    const uint32_t begin = open_.back().pc;
    open_.pop_back();
    code_[begin].operand2 = uint32_t(code_.size());
    emit(Op::END_PROCESS, 0, begin);
  }
  /// Begins a token that is sent or received, in registers from `reg` on.
  void token(Op op, uint16_t reg, uint16_t ring) {
    open_.push_back({uint32_t(code_.size())});
    emit(op, reg, ring);
  }
  void end_token(Op op) {
    emit(op, 0, open_.back().pc);
    open_.pop_back();
  }

  /// A register that no axis owns.
  uint16_t variable() { return uint16_t(num_registers_++); }
  void set(uint16_t reg, const Expr& value) { emit(Op::SET, reg, expression(value)); }
  void fail(uint16_t reason, const Expr& value) { emit(Op::FAIL, reason, expression(value)); }
  void cond(const Expr& condition) {
    open_.push_back({uint32_t(code_.size())});
    emit(Op::COND, 0, expression(condition));
  }
  void otherwise() { emit(Op::ELSE, 0, open_.back().pc); }
  void end_cond() {
    emit(Op::END_COND, 0, open_.back().pc);
    open_.pop_back();
  }

  /// Returns the task's name for `after`.
  uint32_t task(uint16_t kernel) {
    const KernelInfo& info = library_.kernels[kernel];
    emit(Op::TASK, kernel, uint32_t(info.num_views) << 16 | info.num_scalars);
    return uint32_t(code_.size() - 1);
  }
  void after(uint32_t task) { emit(Op::AFTER, 0, task); }
  void param(const Expr& expr) { emit(Op::PARAM_EXPR, 0, expression(expr)); }
  void io(Role role, uint16_t tensor) {
    emit(role == Role::in ? Op::IO_INPUT : role == Role::out ? Op::IO_OUTPUT : Op::IO_INOUT, tensor, 0);
  }
  void index(const Expr& expr) { emit(Op::DIM_INDEX, 0, expression(expr)); }
  void range(const Expr& start, const Expr& extent) {
    emit(Op::DIM_RANGE, 0, expression(start));
    emit(Op::DIM_EXTENT, 0, expression(extent));
  }
  /// A row set over the first 1 + `merged` dimensions.
  void rows(uint16_t index_tensor, const Expr& start, const Expr& extent, int merged = 0) {
    emit(Op::DIM_ROWS, index_tensor, expression(start));
    emit(Op::DIM_EXTENT, 0, expression(extent));
    for (; merged > 0; --merged) emit(Op::DIM_MERGED, 0, 0);
  }
  void workspace(const Expr& bytes) { emit(Op::WORKSPACE, 0, expression(bytes)); }
  void cost(const Expr& ns) { emit(Op::COST, 0, expression(ns)); }
  /// Which dispatcher: any number, or one below `limit`.
  void key(const Expr& key, uint16_t limit = 0) { emit(Op::KEY, limit, expression(key)); }
  void order(const Expr& key, uint16_t number = 0) { emit(Op::ORDER, number, expression(key)); }
  void stream(const Expr& stream) { emit(Op::STREAM, 0, expression(stream)); }
  void turn(const Expr& value) { emit(Op::TURN, 0, expression(value)); }
  void admit(const Expr& value) { emit(Op::ADMIT, 0, expression(value)); }
  void pool(const Expr& pool) { emit(Op::POOL, 0, expression(pool)); }
  void group(const Expr& group) { emit(Op::GROUP, 0, expression(group)); }
  void tile(uint16_t axis) { emit(Op::DIM_TILE, axis, 0); }
  void full() { emit(Op::DIM_FULL, 0, 0); }
  void emit(Op op, uint16_t operand1, uint32_t operand2) { code_.push_back({op, 0, operand1, operand2}); }

  /// The finished bytecode.
  std::vector<uint8_t> bytes() const {
    std::vector<Instruction> code = code_;
    code.push_back({Op::HALT, 0, 0, 0});
    std::vector<uint32_t> starts;
    for (const Expr& expr : expressions_) {
      starts.push_back(uint32_t(code.size()));
      code.insert(code.end(), expr.begin(), expr.end());
      code.push_back({Op::EXPR_END, 0, 0, 0});
    }
    for (Instruction& in : code) {
      if (names_expression(in.op)) in.operand2 = starts[in.operand2];
    }
    std::vector<AxisDescriptor> axes = axes_;
    for (AxisDescriptor& axis : axes) {
      axis.extent_expr = starts[axis.extent_expr];
      if (axis.kind == AxisKind::TILES) axis.tile_expr = starts[axis.tile_expr];
    }
    return assemble(code, axes);
  }

 private:
  struct Open {
    uint32_t pc;
  };

  static bool names_expression(Op op) {
    return op == Op::PARAM_EXPR || op == Op::DIM_INDEX || op == Op::DIM_RANGE || op == Op::DIM_EXTENT ||
           op == Op::DIM_ROWS || op == Op::WORKSPACE || op == Op::COST || op == Op::KEY || op == Op::ORDER ||
           op == Op::STREAM || op == Op::TURN || op == Op::ADMIT || op == Op::POOL || op == Op::GROUP ||
           op == Op::COND || op == Op::SET || op == Op::FAIL;
  }

  uint32_t expression(const Expr& expr) {
    expressions_.push_back(expr);
    return uint32_t(expressions_.size() - 1);
  }

  uint32_t open(Op op, AxisKind kind, const Expr& extent, const Expr& tile) {
    const uint32_t reg = num_registers_;
    num_registers_ += kind == AxisKind::TILES ? 3 : 1;
    const uint32_t extent_expr = expression(extent);
    const uint32_t tile_expr = kind == AxisKind::TILES ? expression(tile) : 0;
    axes_.push_back({kind, 0, uint16_t(reg), extent_expr, tile_expr, 0});
    open_.push_back({uint32_t(code_.size())});
    emit(op, uint16_t(axes_.size() - 1), 0);
    return reg;
  }

  std::vector<uint8_t> assemble(const std::vector<Instruction>& code,
                                const std::vector<AxisDescriptor>& axes) const {
    std::vector<uint8_t> out(sizeof(Header));
    const auto append = [&out](const auto& section) {
      if (section.empty()) return;
      const auto* bytes = reinterpret_cast<const uint8_t*>(section.data());
      out.insert(out.end(), bytes, bytes + section.size() * sizeof(section[0]));
    };
    append(code);
    append(axes);
    append(kernels_);
    append(tensors_);
    append(symbols_);
    append(constants_);
    const Header header{kMagic,
                        kVersion,
                        uint32_t(code.size()),
                        uint32_t(axes.size()),
                        uint32_t(kernels_.size()),
                        uint32_t(tensors_.size()),
                        uint32_t(symbols_.size()),
                        uint32_t(constants_.size()),
                        num_registers_,
                        uint32_t(out.size()),
                        library_.table_hash};
    std::memcpy(out.data(), &header, sizeof(header));
    return out;
  }

  const KernelLibrary& library_;
  std::vector<Instruction> code_;
  std::vector<AxisDescriptor> axes_;
  std::vector<KernelDescriptor> kernels_;
  std::vector<TensorDescriptor> tensors_;
  std::vector<SymbolDescriptor> symbols_;
  std::vector<int64_t> constants_;
  std::vector<Expr> expressions_;
  std::vector<Open> open_;
  uint32_t num_registers_ = 0;
};

}  // namespace assembler
