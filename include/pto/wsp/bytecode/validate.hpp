// SPDX-License-Identifier: MIT
/// \file
/// The validator: bytes to a Program whose every operand is known to be sound, or an EngineError.
#pragma once

#include <algorithm>
#include <vector>

#include "pto/wsp/bytecode/late.hpp"
#include "pto/wsp/bytecode/validate_expression.hpp"
#include "pto/wsp/library.hpp"

namespace pto::wsp::bytecode {

namespace detail {

class Validator {
 public:
  Validator(Program& program, const KernelLibrary& library) : program_(program), library_(library) {}

  void run() {
    check_header();
    check_descriptors();
    find_end();
    ExpressionTable::build(program_, halt_ + 1);
    for (const AxisDescriptor& axis : program_.axes) check_axis_expressions(axis);
    while (pc_ < halt_) check_statement();
    if (in_process_) fail_at("a process is not closed", "pc", program_.processes.back().pc);
    if (!blocks_.empty()) fail_at("a loop or condition is not closed", "pc", blocks_.back().pc);
    add_step(Step::kHalt, 0);
  }

 private:
  struct Block {
    Step::Kind kind;  ///< kLoop, kCond (its first arm), kElse or kMove
    uint32_t index;
    uint32_t pc;
  };

  void check_header() const {
    const Header& header = program_.header;
    if (header.num_registers > (1u << 16)) fail_at("too many registers", "offset", 32);
    if (header.kernel_table_hash != library_.table_hash) {
      throw EngineError("kernel-table-mismatch", "the bytecode was compiled against another kernel library");
    }
  }

  void check_descriptors() {
    program_.is_variable.assign(program_.header.num_registers, true);
    for (size_t i = 0; i < program_.axes.size(); ++i) check_axis(program_.axes[i], int64_t(i));
    for (size_t i = 0; i < program_.kernels.size(); ++i)
      check_kernel_descriptor(program_.kernels[i], int64_t(i));
    for (size_t i = 0; i < program_.symbols.size(); ++i) check_symbol(program_.symbols[i], int64_t(i));
    for (size_t i = 0; i < program_.tensors.size(); ++i) check_tensor(program_.tensors[i], int64_t(i));
  }

  void check_axis(const AxisDescriptor& axis, int64_t i) {
    if (axis.kind != AxisKind::DENSE && axis.kind != AxisKind::TILES)
      fail_at("unknown kind of axis", "axis", i);
    if (axis.reserved0 != 0 || axis.reserved1 != 0) fail_at("a reserved field is set", "axis", i);
    if (axis.kind == AxisKind::DENSE && axis.tile_expr != 0) fail_at("a reserved field is set", "axis", i);
    const uint32_t owned = axis.kind == AxisKind::TILES ? 3 : 1;
    if (axis.reg + owned > program_.header.num_registers) fail_at("an axis owns no such register", "axis", i);
    std::fill_n(program_.is_variable.begin() + axis.reg, owned, false);
  }

  void check_axis_expressions(const AxisDescriptor& axis) const {
    const int64_t i = &axis - program_.axes.data();
    if (!program_.has_expression(axis.extent_expr)) fail_at("an axis extent is not an expression", "axis", i);
    if (axis.kind == AxisKind::TILES && !program_.has_expression(axis.tile_expr)) {
      fail_at("an axis tile is not an expression", "axis", i);
    }
  }

  void check_kernel_descriptor(const KernelDescriptor& kernel, int64_t i) const {
    if (kernel.index >= library_.num_kernels) fail_at("no such kernel in the library", "kernel", i);
    const KernelInfo& info = library_.kernels[kernel.index];
    const bool same = kernel.name_hash == name_hash(info.name) && kernel.num_io == info.num_views &&
                      kernel.num_scalars == info.num_scalars;
    if (!same) fail_at("a kernel differs from the library's", "kernel", i);
    if (kernel.reserved != 0) fail_at("a reserved field is set", "kernel", i);
  }

  void check_symbol(const SymbolDescriptor& symbol, int64_t i) const {
    if (symbol.kind != SymbolKind::SIZE && symbol.kind != SymbolKind::SCALAR)
      fail_at("unknown kind of symbol", "symbol", i);
    if (dtype_bytes(symbol.dtype) == 0) fail_at("unknown dtype", "symbol", i);
    if (symbol.kind == SymbolKind::SIZE && symbol.dtype != DType::i64)
      fail_at("a size is not i64", "symbol", i);
    for (uint8_t byte : symbol.reserved) {
      if (byte != 0) fail_at("a reserved field is set", "symbol", i);
    }
  }

  void check_tensor(const TensorDescriptor& tensor, int64_t i) const {
    if (dtype_bytes(tensor.dtype) == 0) fail_at("unknown dtype", "tensor", i);
    if (tensor.rank > kMaxTensorRank) fail_at("a rank above the limit", "tensor", i);
    if (tensor.written > 1 || tensor.distinct > 1) fail_at("a flag is not 0 or 1", "tensor", i);
    check_channel(tensor, i);
    for (uint8_t byte : tensor.reserved) {
      if (byte != 0) fail_at("a reserved field is set", "tensor", i);
    }
    for (int d = 0; d < kMaxTensorRank; ++d) {
      const int64_t dim = tensor.dims[d];
      if (d >= tensor.rank && dim != 0) fail_at("a reserved field is set", "tensor", i);
      if (dim >= 0) continue;
      const uint64_t symbol = uint64_t(-1) - uint64_t(dim);
      if (symbol >= program_.symbols.size()) fail_at("no such symbol", "tensor", i);
      if (program_.symbols[symbol].kind != SymbolKind::SIZE)
        fail_at("a dimension is not a size", "tensor", i);
    }
  }

  static void check_channel(const TensorDescriptor& tensor, int64_t i) {
    if (tensor.channel == ChannelKind::NONE) {
      if (tensor.scalars != 0 || tensor.merge != MergeKind::TURNS)
        fail_at("a reserved field is set", "tensor", i);
      return;
    }
    const bool is_known = tensor.channel == ChannelKind::RING || tensor.channel == ChannelKind::RENDEZVOUS;
    const bool is_merge_known = tensor.merge == MergeKind::TURNS || tensor.merge == MergeKind::TIME;
    if (!is_known || !is_merge_known) fail_at("unknown kind of channel", "tensor", i);
    const bool has_buffers = tensor.rank > 0 && tensor.dims[0] > 0 && tensor.dims[0] <= kMaxBuffers;
    if (!has_buffers) fail_at("a channel has a wrong number of buffers", "tensor", i);
    if (tensor.channel == ChannelKind::RENDEZVOUS && tensor.dims[0] != 1)
      fail_at("a rendezvous has one buffer", "tensor", i);
  }

  void find_end() {
    const auto& code = program_.instructions;
    while (halt_ < code.size() && code[halt_].op != Op::HALT) ++halt_;
    if (halt_ == code.size()) fail_at("no HALT", "pc", int64_t(halt_));
    if (code[halt_].flags != 0 || code[halt_].operand1 != 0 || code[halt_].operand2 != 0) {
      fail_at("a reserved field is set", "pc", halt_);
    }
  }

  void check_statement() {
    const Instruction in = take();
    if (in.op == Op::PROCESS) return open_process(in);
    if (!in_process_ && program_.is_network()) fail("a statement is outside of every process");
    switch (in.op) {
      case Op::END_PROCESS: return close_process(in);
      case Op::SEND:
      case Op::RECEIVE:
      case Op::RECEIVE_EACH: return open_move(in);
      case Op::END_SEND:
      case Op::END_RECEIVE: return close_move(in);
      case Op::WAIT: return check_wait(in);
      case Op::NOP:
        if (in.operand1 != 0 || in.operand2 != 0) fail("a reserved field is set");
        return;
      case Op::PARALLEL_FOR:
      case Op::FOR_EACH:
      case Op::RANGE_FOR: return open_loop(in);
      case Op::END_LOOP: return close_loop(in);
      case Op::COND: return open_cond(in);
      case Op::ELSE: return check_else(in);
      case Op::END_COND: return close_cond(in);
      case Op::SET: return check_set(in);
      case Op::FAIL: return check_fail(in);
      case Op::TASK: return check_task(in);
      default: fail("not a statement");
    }
  }

  /// The next instruction before HALT; `fail` reports it.
  Instruction take() {
    if (pc_ >= halt_) fail_at("the program ends inside a task", "pc", pc_);
    const Instruction in = program_.instructions[pc_++];
    if (in.flags != 0) fail("a reserved field is set");
    return in;
  }

  [[noreturn]] void fail(const char* reason) const { fail_at(reason, "pc", int64_t(pc_) - 1); }

  void open_process(Instruction in) {
    const bool is_first = program_.processes.empty() && !program_.steps.empty();
    if (in_process_ || is_first || !blocks_.empty()) fail("a process is inside of something");
    if (in.operand1 != 0) fail("a reserved field is set");
    if (in.operand2 >= halt_) fail("a process and its end do not match");
    in_process_ = true;
    add_step(Step::kProcess, uint32_t(program_.processes.size()));
    program_.processes.push_back({pc_ - 1});
  }

  void close_process(Instruction in) {
    if (in.operand1 != 0) fail("a reserved field is set");
    const bool is_end = in_process_ && blocks_.empty() && in.operand2 == program_.processes.back().pc &&
                        program_.instructions[in.operand2].operand2 == pc_ - 1;
    if (!is_end) fail("a process and its end do not match");
    in_process_ = false;
    add_step(Step::kEndProcess, 0);
  }

  void open_move(Instruction in) {
    if (!in_process_) fail("a token outside of a process");
    if (in.operand2 >= program_.tensors.size()) fail("no such tensor");
    const TensorDescriptor& ring = program_.tensors[in.operand2];
    if (ring.channel == ChannelKind::NONE) fail("a tensor is not a channel");
    for (uint32_t reg = in.operand1; reg < in.operand1 + 2u + ring.scalars; ++reg) {
      if (reg >= program_.header.num_registers) fail("no such register");
      if (!program_.is_variable[reg]) fail("a loop's register is set");
    }
    const bool is_each = in.op == Op::RECEIVE_EACH;
    if (is_each && (blocks_.empty() || program_.steps.back().kind != Step::kLoop))
      fail("a receive that ends its loop is not the first of it");
    const auto index = uint32_t(program_.moves.size());
    const auto process = uint32_t(program_.processes.size() - 1);
    program_.moves.push_back({in.op, pc_ - 1, uint16_t(in.operand2), in.operand1, process});
    add_step(Step::kMove, index);
    open_block(Step::kMove, index);
  }

  void close_move(Instruction in) {
    if (blocks_.empty() || blocks_.back().kind != Step::kMove) fail("an end without a token");
    const MoveForm move = program_.moves[blocks_.back().index];
    const bool is_send = move.op == Op::SEND;
    if (in.operand1 != 0 || move.pc != in.operand2 || is_send != (in.op == Op::END_SEND))
      fail("a token and its end do not match");
    add_step(Step::kMove, uint32_t(program_.moves.size()));
    program_.moves.push_back({in.op, move.pc, move.tensor, move.reg, move.process});
    blocks_.pop_back();
  }

  void open_loop(Instruction in) {
    const uint32_t here = pc_ - 1;
    if (in.operand1 >= program_.axes.size()) fail("no such axis");
    if (open_.size() >= kMaxLoopDepth) fail("loops are nested too deeply");
    const AxisDescriptor& axis = program_.axes[in.operand1];
    require_registers(axis.extent_expr);
    if (axis.kind == AxisKind::TILES) require_registers(axis.tile_expr);
    for (int32_t loop : open_) {
      if (registers_meet(axis, program_.axes[program_.loops[size_t(loop)].axis]))
        fail("a loop reuses a live register");
    }
    const bool closes = in.operand2 > here && in.operand2 < halt_ &&
                        program_.instructions[in.operand2].op == Op::END_LOOP &&
                        program_.instructions[in.operand2].operand2 == here;
    if (!closes) fail("a loop and its end do not match");
    const auto index = int32_t(program_.loops.size());
    program_.loops.push_back(
        {in.op, in.operand1, uint16_t(open_.size()), innermost(), here, in.operand2, num_open_conds()});
    add_step(Step::kLoop, uint32_t(index));
    open_.push_back(index);
    open_block(Step::kLoop, uint32_t(index));
  }

  void close_loop(Instruction in) {
    if (blocks_.empty() || blocks_.back().kind != Step::kLoop) fail("an end without a loop");
    const LoopForm& loop = program_.loops[blocks_.back().index];
    if (loop.begin_pc != in.operand2 || loop.end_pc != pc_ - 1 || loop.axis != in.operand1) {
      fail("a loop and its end do not match");
    }
    add_step(Step::kEndLoop, blocks_.back().index);
    blocks_.pop_back();
    open_.pop_back();
  }

  void open_cond(Instruction in) {
    if (in.operand1 != 0) fail("a reserved field is set");
    if (num_open_conds() >= kMaxCondDepth) fail("conditions are nested too deeply");
    require_registers(in.operand2);
    const auto index = uint32_t(program_.conds.size());
    program_.conds.push_back({pc_ - 1, in.operand2});
    add_step(Step::kCond, index);
    open_block(Step::kCond, index);
  }

  void check_else(Instruction in) {
    const uint32_t index = innermost_cond(in, "an else without a condition");
    if (blocks_.back().kind == Step::kElse) fail("a second else of one condition");
    blocks_.pop_back();
    add_step(Step::kElse, index);
    open_block(Step::kElse, index);
  }

  void close_cond(Instruction in) {
    add_step(Step::kEndCond, innermost_cond(in, "an end without a condition"));
    blocks_.pop_back();
  }

  /// The condition of the innermost block, which must be the one in `in`.
  uint32_t innermost_cond(Instruction in, const char* reason) const {
    if (in.operand1 != 0) fail("a reserved field is set");
    const bool is_arm = !blocks_.empty() && blocks_.back().kind != Step::kLoop;
    if (!is_arm || blocks_.back().kind == Step::kMove) fail(reason);
    const uint32_t index = blocks_.back().index;
    if (program_.conds[index].pc != in.operand2) fail(reason);
    return index;
  }

  void check_set(Instruction in) {
    if (in.operand1 >= program_.header.num_registers) fail("no such register");
    if (!program_.is_variable[in.operand1]) fail("a loop's register is set");
    require_readable(in.operand2);
    add_step(Step::kSet, uint32_t(program_.sets.size()));
    const bool is_flush = program_.expression(in.operand2).reads_written;
    program_.sets.push_back({pc_ - 1, in.operand1, in.operand2, is_flush});
  }

  void check_wait(Instruction in) {
    if (!in_process_) fail("a wait outside of a process");
    if (in.operand2 != 0) fail("a reserved field is set");
    if (in.operand1 >= program_.header.num_registers) fail("no such register");
    if (!program_.is_variable[in.operand1]) fail("a loop's register is set");
    add_step(Step::kWait, in.operand1);
  }

  void check_fail(Instruction in) {
    require_registers(in.operand2);
    add_step(Step::kFail, uint32_t(program_.fails.size()));
    program_.fails.push_back({pc_ - 1, in.operand1, in.operand2});
  }

  void add_step(Step::Kind kind, uint32_t index) { program_.steps.push_back({kind, index}); }

  void open_block(Step::Kind kind, uint32_t index) { blocks_.push_back({kind, index, pc_ - 1}); }

  int32_t innermost() const { return open_.empty() ? -1 : open_.back(); }
  /// Conditions and tokens around what follows.
  uint32_t num_open_conds() const { return uint32_t(blocks_.size() - open_.size()); }

  static bool registers_meet(const AxisDescriptor& a, const AxisDescriptor& b) {
    const int a_end = a.reg + (a.kind == AxisKind::TILES ? 3 : 1);
    const int b_end = b.reg + (b.kind == AxisKind::TILES ? 3 : 1);
    return a.reg < b_end && b.reg < a_end;
  }

  /// Whether a register has a value here: it is a variable, or belongs to an enclosing loop.
  bool is_readable(uint32_t reg) const {
    if (reg >= program_.header.num_registers) return false;
    if (program_.is_variable[reg]) return true;
    for (int32_t loop : open_) {
      const AxisDescriptor& axis = program_.axes[program_.loops[size_t(loop)].axis];
      if (reg >= axis.reg && reg < axis.reg + (axis.kind == AxisKind::TILES ? 3u : 1u)) return true;
    }
    return false;
  }

  /// Checks an expression used here: it exists, and its registers have values.
  void require_readable(uint32_t expression) const {
    if (!program_.has_expression(expression)) fail("no such expression");
    const std::vector<uint32_t>& registers = program_.expression(expression).loop_registers;
    // Loops own few registers, so an expression with more reads a register of another loop.
    const bool is_readable_here =
        registers.size() <= 3 * open_.size() &&
        std::all_of(registers.begin(), registers.end(), [this](uint32_t reg) { return is_readable(reg); });
    if (!is_readable_here) fail("an expression reads a register that no enclosing loop owns");
  }

  /// The same for an expression of anything but a SET.
  void require_registers(uint32_t expression) const {
    require_readable(expression);
    if (program_.expression(expression).reads_written)
      fail("only a SET reads elements of a tensor that tasks write");
  }

  void check_task(Instruction in) {
    if (in.operand1 >= program_.kernels.size()) fail("no such kernel");
    const KernelDescriptor& kernel = program_.kernels[in.operand1];
    SiteForm site{};
    site.pc = pc_ - 1;
    site.kernel = kernel.index;
    site.loop = innermost();
    site.num_conds = num_open_conds();
    site.num_io = in.operand2 >> 16;
    site.num_params = in.operand2 & 0xFFFF;
    if (site.num_io != kernel.num_io || site.num_params != kernel.num_scalars)
      fail("wrong number of arguments");
    site.first_param = uint32_t(program_.params.size());
    site.first_io = uint32_t(program_.ios.size());
    for (uint32_t i = 0; i < site.num_params; ++i) check_param();
    for (uint32_t i = 0; i < site.num_io; ++i) check_io(library_.kernels[kernel.index].params[i]);
    check_own_indices(site);
    site.workspace = check_amount(Op::WORKSPACE);
    site.cost = check_amount(Op::COST);
    for (const MarkForm& mark : kMarks) check_marks(mark, site);
    site.first_after = uint32_t(program_.afters.size());
    while (program_.instructions[pc_].op == Op::AFTER) check_after(take());
    site.num_afters = uint32_t(program_.afters.size()) - site.first_after;
    add_step(Step::kTask, uint32_t(program_.sites.size()));
    program_.sites.push_back(site);
  }

  /// A task waits for the latest task of a site in a loop around both, if the site has made one: the arm of a
  /// condition around it may have ended.
  void check_after(Instruction in) {
    if (in.operand1 != 0) fail("a reserved field is set");
    const auto& sites = program_.sites;
    const auto site = std::lower_bound(sites.begin(), sites.end(), in.operand2,
                                       [](const SiteForm& a, uint32_t pc) { return a.pc < pc; });
    const uint32_t first_pc = in_process_ ? program_.processes.back().pc : 0;
    if (site == sites.end() || site->pc != in.operand2 || site->pc < first_pc)
      fail("no such task to wait for");
    const bool is_reachable =
        site->loop < 0 || std::find(open_.begin(), open_.end(), site->loop) != open_.end();
    if (!is_reachable) fail("the task to wait for lies in a loop that has ended");
    program_.afters.push_back(uint32_t(site - sites.begin()));
  }

  void check_param() {
    const Instruction in = take();
    if (in.operand1 != 0) fail("a reserved field is set");
    switch (in.op) {
      case Op::PARAM_CONST:
        if (in.operand2 >= program_.constants.size()) fail("no such constant");
        break;
      case Op::PARAM_LOOPVAR:
        if (!is_readable(in.operand2)) fail("a scalar reads a register that no enclosing loop owns");
        break;
      case Op::PARAM_SYMBOL:
        if (in.operand2 >= program_.symbols.size()) fail("no such symbol");
        break;
      case Op::PARAM_EXPR: require_registers(in.operand2); break;
      default: fail("expected a scalar argument");
    }
    program_.params.push_back({in.op, in.operand2});
  }

  void check_io(const ParamInfo& param) {
    const Instruction in = take();
    if (in.operand2 != 0) fail("a reserved field is set");
    if (in.op != Op::IO_INPUT && in.op != Op::IO_OUTPUT && in.op != Op::IO_INOUT)
      fail("expected a tensor argument");
    if (in.operand1 >= program_.tensors.size()) fail("no such tensor");
    const Role role = in.op == Op::IO_INPUT ? Role::in : in.op == Op::IO_OUTPUT ? Role::out : Role::inout;
    const TensorDescriptor& tensor = program_.tensors[in.operand1];
    if (role != param.role) fail("a tensor argument has another role than the kernel's parameter");
    if (tensor.dtype != param.dtype) fail("a tensor argument has another dtype than the kernel's parameter");
    if (role != Role::in && tensor.written == 0) fail("a task writes a tensor that is not marked as written");
    program_.ios.push_back({role, in.operand1, uint32_t(program_.dims.size())});
    int view_rank = 0;
    for (int d = 0; d < tensor.rank; ++d) view_rank += check_dim(d);
    if (view_rank != param.rank) fail("a tensor argument has another rank than the kernel's parameter");
  }

  /// Reads dimension `d` of a tensor argument; returns how many dimensions of the view it makes.
  int check_dim(int d) {
    const Instruction in = take();
    DimForm dim{in.op, 0, -1, in.operand2, 0, 0};
    if (in.op != Op::DIM_TILE && in.op != Op::DIM_ROWS && in.operand1 != 0) fail("a reserved field is set");
    switch (in.op) {
      case Op::DIM_INDEX: require_registers(in.operand2); break;
      case Op::DIM_ROWS:
        if (d != 0) fail("a row set is not in the first dimension");
        check_index_tensor(in.operand1);
        dim.tensor = in.operand1;
        [[fallthrough]];
      case Op::DIM_RANGE: {
        require_registers(in.operand2);
        const Instruction extent = take();
        if (extent.op != Op::DIM_EXTENT || extent.operand1 != 0) fail("expected the extent of a range");
        require_registers(extent.operand2);
        dim.extent = extent.operand2;
        break;
      }
      case Op::DIM_MERGED:
        if (in.operand2 != 0) fail("a reserved field is set");
        if (d == 0 || (program_.dims.back().op != Op::DIM_ROWS && program_.dims.back().op != Op::DIM_MERGED))
          fail("a merged dimension does not follow a row set");
        break;
      case Op::DIM_TILE:
        dim.axis = in.operand1;
        dim.loop = enclosing_tiles_loop(in);
        break;
      case Op::DIM_FULL:
        if (in.operand2 != 0) fail("a reserved field is set");
        break;
      default: fail("expected a dimension");
    }
    program_.dims.push_back(dim);
    return in.op == Op::DIM_INDEX || in.op == Op::DIM_MERGED ? 0 : 1;
  }

  void check_index_tensor(uint16_t index) {
    if (index >= program_.tensors.size()) fail("no such tensor");
    const TensorDescriptor& tensor = program_.tensors[index];
    if (tensor.dtype != DType::i32 || tensor.rank != 2 || tensor.dims[1] != 1)
      fail("the indices of a row set are not [n, 1] i32");
    program_.decides[index] = true;
  }

  /// A task may not write the indices of its own row sets: its kernel reads them while it runs.
  void check_own_indices(const SiteForm& site) const {
    const auto first = program_.ios.begin() + site.first_io, last = program_.ios.end();
    for (auto io = first; io != last; ++io) {
      if (program_.tensors[io->tensor].rank == 0) continue;
      const DimForm& rows = program_.dims[io->first_dim];
      if (rows.op != Op::DIM_ROWS) continue;
      const auto writes = [&](const IoForm& other) {
        return other.tensor == rows.tensor && other.role != Role::in;
      };
      if (std::any_of(first, last, writes)) fail("a task writes the indices of its own row set");
    }
  }

  bool goes_on_with(Op op) const { return pc_ < halt_ && program_.instructions[pc_].op == op; }

  /// The amount of an instruction `op`, if the task goes on with one.
  AmountForm check_amount(Op op) {
    if (!goes_on_with(op)) return {};
    const Instruction in = take();
    if (in.operand1 != 0) fail("a reserved field is set");
    require_registers(in.operand2);
    return {in.operand2};
  }

  /// The marks of one instruction that a task goes on with, in ascending order of their numbers.
  void check_marks(const MarkForm& form, SiteForm& site) {
    uint32_t least = 0;
    while (goes_on_with(form.op) && least < form.num) {
      const Instruction in = take();
      require_registers(in.operand2);
      AmountForm amount{in.operand2, false, INT64_MIN};
      if (form.op == Op::KEY && in.operand1 != 0) {
        amount.least = 0;
        amount.most = in.operand1 - 1;
      } else if (in.operand1 < least || in.operand1 >= form.num) {
        fail("a mark has a number that it cannot have");
      }
      const uint32_t number = form.num > 1 ? in.operand1 : 0;
      site.marks[size_t(form.first) + number] = amount;
      least = number + 1;
    }
  }

  int32_t enclosing_tiles_loop(Instruction in) const {
    if (in.operand2 != 0) fail("a reserved field is set");
    for (int32_t loop : open_) {
      const uint16_t axis = program_.loops[size_t(loop)].axis;
      if (axis == in.operand1 && program_.axes[axis].kind == AxisKind::TILES) return loop;
    }
    fail("no enclosing loop runs over the tiles of this axis");
  }

  Program& program_;
  const KernelLibrary& library_;
  std::vector<int32_t> open_;  ///< loops
  std::vector<Block> blocks_;  ///< loops, arms of conditions, and tokens
  uint32_t halt_ = 0;
  uint32_t pc_ = 0;
  bool in_process_ = false;
};

}  // namespace detail

/// Decodes and validates bytecode against the library whose kernels it calls.
inline Program load_program(const uint8_t* bytes, size_t size, const KernelLibrary& library) {
  Program program = read_sections(bytes, size);
  detail::Validator(program, library).run();
  mark_late(program);
  return program;
}

}  // namespace pto::wsp::bytecode
