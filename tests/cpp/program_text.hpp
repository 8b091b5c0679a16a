// SPDX-License-Identifier: MIT
/// \file
/// Bytecode as text, for reports of failing cases.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "pto/wsp/bytecode/format.hpp"

namespace program_text {

using namespace pto::wsp::bytecode;

inline const char* name_of(Op op) {
  static constexpr std::pair<Op, const char*> kNames[] = {
      {Op::HALT, "halt"},
      {Op::NOP, "nop"},
      {Op::PARALLEL_FOR, "parallel for"},
      {Op::FOR_EACH, "for each"},
      {Op::COND, "if"},
      {Op::RANGE_FOR, "for"},
      {Op::END_LOOP, "end for"},
      {Op::ELSE, "else"},
      {Op::END_COND, "end if"},
      {Op::SET, "set"},
      {Op::FAIL, "fail"},
      {Op::TASK, "task"},
      {Op::PARAM_CONST, "scalar constant"},
      {Op::PARAM_LOOPVAR, "scalar register"},
      {Op::IO_INPUT, "in"},
      {Op::IO_OUTPUT, "out"},
      {Op::IO_INOUT, "inout"},
      {Op::PARAM_SYMBOL, "scalar symbol"},
      {Op::PARAM_EXPR, "scalar"},
      {Op::DIM_INDEX, "at"},
      {Op::DIM_RANGE, "from"},
      {Op::DIM_EXTENT, "extent"},
      {Op::DIM_TILE, "tile of axis"},
      {Op::DIM_FULL, "all"},
      {Op::DIM_ROWS, "rows of"},
      {Op::DIM_MERGED, "merged"},
      {Op::AFTER, "after"},
      {Op::EXPR_CONST, ""},
      {Op::EXPR_REG, "r"},
      {Op::EXPR_SYMBOL, "s"},
      {Op::EXPR_ELEMENT, "element"},
      {Op::EXPR_ADD, "+"},
      {Op::EXPR_SUB, "-"},
      {Op::EXPR_MUL, "*"},
      {Op::EXPR_FLOORDIV, "//"},
      {Op::EXPR_MOD, "%"},
      {Op::EXPR_MIN, "min"},
      {Op::EXPR_MAX, "max"},
      {Op::EXPR_LT, "<"},
      {Op::EXPR_WITHIN, "within"},
  };
  for (const auto& [known, name] : kNames) {
    if (known == op) return name;
  }
  return nullptr;
}

/// A line per instruction before HALT; expressions are postfix.
class Printer {
 public:
  explicit Printer(const std::vector<uint8_t>& bytes) {
    std::memcpy(&header_, bytes.data(), sizeof(header_));
    size_t at = sizeof(header_);
    read(bytes, at, code_, header_.num_instructions);
    read(bytes, at, axes_, header_.num_axes);
    at += header_.num_kernels * sizeof(KernelDescriptor);
    read(bytes, at, tensors_, header_.num_tensors);
    at += header_.num_symbols * sizeof(SymbolDescriptor);
    read(bytes, at, constants_, header_.num_constants);
  }

  std::string print() {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      text_ += "tensor " + std::to_string(i) + " [";
      for (int d = 0; d < tensors_[i].rank; ++d) text_ += " " + std::to_string(tensors_[i].dims[d]);
      text_ += " ]\n";
    }
    for (const Instruction& in : code_) {
      if (in.op == Op::HALT) break;
      print(in);
    }
    return text_;
  }

 private:
  template <class T>
  static void read(const std::vector<uint8_t>& bytes, size_t& at, std::vector<T>& out, size_t count) {
    out.resize(count);
    if (count > 0) std::memcpy(out.data(), bytes.data() + at, count * sizeof(T));
    at += count * sizeof(T);
  }

  void print(const Instruction& in) {
    const bool is_loop = in.op == Op::PARALLEL_FOR || in.op == Op::FOR_EACH || in.op == Op::RANGE_FOR;
    const bool ends = in.op == Op::END_LOOP || in.op == Op::END_COND || in.op == Op::ELSE;
    if (ends) depth_ -= 2;
    const bool is_part = in.op > Op::TASK && in.op != Op::AFTER;
    text_ += std::string(depth_ + (is_part ? 2 : 0), ' ');
    text_ += name_of(in.op) != nullptr ? name_of(in.op) : "op " + std::to_string(int(in.op));
    if (is_loop) {
      const AxisDescriptor& axis = axes_[in.operand1];
      text_ += " r" + std::to_string(axis.reg) + " <" + expression(axis.extent_expr);
      if (axis.kind == AxisKind::TILES) text_ += " by" + expression(axis.tile_expr);
    } else if (names_expression(in.op)) {
      text_ += " " + std::to_string(in.operand1) + ":" + expression(in.operand2);
    } else if (!ends) {
      text_ += " " + std::to_string(in.operand1) + ", " + std::to_string(in.operand2);
    }
    text_ += "\n";
    if (is_loop || in.op == Op::COND || in.op == Op::ELSE) depth_ += 2;
  }

  static bool names_expression(Op op) {
    return op == Op::COND || op == Op::SET || op == Op::FAIL || op == Op::PARAM_EXPR || op == Op::DIM_INDEX ||
           op == Op::DIM_RANGE || op == Op::DIM_EXTENT || op == Op::DIM_ROWS ||
           (op >= Op::WORKSPACE && op <= Op::POOL);
  }

  std::string expression(uint32_t pc) const {
    std::string text;
    for (; pc < code_.size() && code_[pc].op != Op::EXPR_END; ++pc) {
      const Instruction& in = code_[pc];
      const char* name = name_of(in.op);
      text += " " + (name != nullptr ? std::string(name) : "op" + std::to_string(int(in.op)));
      if (in.op == Op::EXPR_CONST) text += std::to_string(constants_[in.operand2]);
      if (in.op == Op::EXPR_REG || in.op == Op::EXPR_SYMBOL) text += std::to_string(in.operand2);
      if (in.op == Op::EXPR_ELEMENT) text += std::to_string(in.operand1);
    }
    return text;
  }

  Header header_;
  std::vector<Instruction> code_;
  std::vector<AxisDescriptor> axes_;
  std::vector<TensorDescriptor> tensors_;
  std::vector<int64_t> constants_;
  std::string text_;
  size_t depth_ = 0;
};

}  // namespace program_text
