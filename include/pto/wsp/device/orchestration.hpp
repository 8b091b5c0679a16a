// SPDX-License-Identifier: MIT
/// \file
/// The walk of a program on a control core of a device, whose runtime runs the tasks.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/bytecode/arguments.hpp"
#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/bytecode/quicken.hpp"
#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/bytecode/rows.hpp"
#include "pto/wsp/bytecode/validate.hpp"
#include "pto/wsp/sched/network_order.hpp"

namespace pto::wsp::device {

/// Returns when all tasks so far that write a tensor, by its number, are complete.
using WaitForWriters = std::function<void(size_t tensor)>;

namespace detail {

/// The value of an expression, whose elements may be written by tasks.
inline int64_t read_written(const bytecode::Plan& plan, const bytecode::Value& value,
                            const int64_t* registers, const WaitForWriters& wait) {
  const bytecode::Bindings& bindings = plan.bindings;
  if (value.postfix == bytecode::kNoPostfix) return plan.evaluate(value, registers);
  const auto element = [&](bytecode::Instruction in, uint32_t pc, const int64_t* indices) {
    if (bindings.program->tensors[in.operand1].written != 0) wait(in.operand1);
    return bytecode::detail::read_element(bindings, in, pc, indices);
  };
  return bytecode::evaluate_postfix(bindings, value.postfix, registers, element);
}

/// Checks lists of rows that tasks write. Throws the errors of RowChecker.
inline void check_written_rows(const bytecode::Plan& plan, const bytecode::Arguments& arguments,
                               uint32_t site, const WaitForWriters& wait) {
  const bytecode::QuickSite& quick = plan.sites[site];
  bytecode::RowChecker checker;
  for (uint32_t i = 0; quick.has_written_rows && i < quick.num_io; ++i) {
    const bytecode::QuickIo& io = plan.ios[quick.first_io + i];
    if (io.rows < 0 || !plan.rows[size_t(io.rows)].is_written) continue;
    const bytecode::QuickRows& rows = plan.rows[size_t(io.rows)];
    const View& view = arguments.call(site).views[i];
    wait(rows.tensor);
    checker.check(rows, io, view.rows, view.rows - arguments.indices(quick.first_io + i), view.shape[0]);
  }
}

/// A task that the walk has come to.
struct Task {
  const bytecode::Plan& plan;
  uint32_t site;
  uint64_t number;
  bytecode::Arguments& arguments;
  bytecode::TaskChecker& checker;
  const int64_t* registers;
};

/// Calls the kernel of a task, once per block. Throws what the checks of its arguments throw.
inline void submit(const Task& task, const WaitForWriters& wait) {
  const bytecode::QuickSite& site = task.plan.sites[task.site];
  if (site.checks_late) task.checker.check(site, task.registers, true);
  task.arguments.fill_rest(task.site, task.registers);
  check_written_rows(task.plan, task.arguments, task.site, wait);
  const bytecode::Arguments::Call& call = task.arguments.call(task.site);
  Monitor monitor{};
  TaskContext context{};
  context.monitor = &monitor;
  context.task = task.number;
  context.block_num = site.kernel->block_dim;
  for (; context.block_idx < context.block_num; ++context.block_idx) {
    const int32_t number = call.fn(call.views, call.scalars, &context);
    if (number == 0) continue;
    throw EngineError("kernel-failed", "a check of a kernel failed")
        .with("kernel", site.kernel->name)
        .with_int("check", number)
        .with("values", std::vector<int64_t>(monitor.values, monitor.values + kMaxCheckValues));
  }
}

/// Submits the tasks of one walk in program order. Returns their number.
inline uint64_t submit_walk(const bytecode::Plan& plan, const std::vector<char*>& bases,
                            const WaitForWriters& wait) {
  bytecode::Arguments arguments;
  arguments.bind(plan, bases);
  bytecode::Expander expander(plan, &arguments);
  bytecode::TaskChecker checker(plan);
  for (;;) {
    const bytecode::Event event = expander.next();
    if (event.kind == bytecode::Event::kEnd) return expander.num_tasks();
    if (event.kind == bytecode::Event::kFlush) {
      const bytecode::Value& value = plan.sets[event.index].value;
      expander.assign(event.index, read_written(plan, value, expander.registers(), wait));
    }
    if (event.kind != bytecode::Event::kTask) continue;
    const uint64_t number = expander.num_tasks() - 1;
    submit({plan, event.index, number, arguments, checker, expander.registers()}, wait);
  }
}

/// Submits the tasks of a network: those of a process until it must wait for a channel, then those of the
/// next one. A token is sent when the tasks of its body are submitted, because the runtime orders tasks of
/// the same buffer. Returns their number.
inline uint64_t submit_network(const bytecode::Plan& plan, const std::vector<char*>& bases,
                               const WaitForWriters& wait) {
  const sched::RunOptions options;
  const auto read = [&](const bytecode::Value& value, const int64_t* registers) {
    return read_written(plan, value, registers, wait);
  };
  sched::NetworkOrder order(plan, bases, options, read);
  uint64_t number = 0;
  while (const std::optional<uint32_t> site = order.next()) {
    sched::NetworkProcess& process = order.process();
    submit({plan, *site, number++, process.arguments, process.checker, process.expander.registers()}, wait);
  }
  return number;
}

}  // namespace detail

/// Calls the kernel of each task in program order, once per block. Processes of a network take turns. The
/// functions of `library` submit tasks to the runtime of the device, which orders them. All regions are
/// checked before the first call.
///
/// Elements that decide are copied from the arrays; views and lists of rows point to the arrays.
///
/// \param walk  the walk as generated source, or null
/// \param arrays  one per tensor, in C order
/// \param symbols  one per symbol; sizes of arrays may be left out
/// \param wait  before values and lists of rows are read that tasks write
/// Returns the number of tasks. Throws `kernel-failed` where a function returns the number of a check, and
/// what load_program, bind_arguments, check_regions, RowChecker and NetworkOrder throw.
inline uint64_t orchestrate(const uint8_t* code, size_t size, const KernelLibrary& library, walk::WalkFn walk,
                            const std::vector<bind::ArrayRef>& arrays,
                            const std::vector<std::optional<int64_t>>& symbols, const WaitForWriters& wait) {
  bytecode::Program program = bytecode::load_program(code, size, library);
  program.walk = walk;
  const bind::Arguments bound = bind::bind_arguments(program, arrays, symbols);
  bytecode::Plan plan = bytecode::make_plan({&program, bound.symbols}, bound.layouts, library);
  bytecode::bind_elements(plan, bound.bases);
  bytecode::look_at_rows(plan);
  bytecode::check_regions(plan, [] { return false; });
  std::vector<char*> bases;
  for (const bind::ArrayRef& array : arrays) bases.push_back(static_cast<char*>(array.data));
  return program.is_network() ? detail::submit_network(plan, bases, wait)
                              : detail::submit_walk(plan, bases, wait);
}

}  // namespace pto::wsp::device
