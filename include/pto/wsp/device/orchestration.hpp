// SPDX-License-Identifier: MIT
/// \file
/// The walk of a program on a control core of a device, whose runtime runs the tasks.
#pragma once

#include <optional>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/bytecode/arguments.hpp"
#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/bytecode/quicken.hpp"
#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/bytecode/rows.hpp"
#include "pto/wsp/bytecode/validate.hpp"

namespace pto::wsp::device {

/// Calls the kernel of each task in program order, once per block. The functions of `library` submit tasks to
/// the runtime of the device, which orders them. All regions are checked before the first call.
///
/// Elements that decide are copied from the arrays; views and lists of rows point to the arrays.
///
/// \param walk  the walk as generated source, or null
/// \param arrays  one per tensor, in C order
/// \param symbols  one per symbol; sizes of arrays may be left out
/// Returns the number of tasks. Throws `kernel-failed` where a function returns the number of a check, and
/// what load_program, bind_arguments and check_regions throw. A program with flush points is the error
/// `flush-on-device`, because nothing here waits for tasks.
inline uint64_t orchestrate(const uint8_t* code, size_t size, const KernelLibrary& library, walk::WalkFn walk,
                            const std::vector<bind::ArrayRef>& arrays,
                            const std::vector<std::optional<int64_t>>& symbols) {
  bytecode::Program program = bytecode::load_program(code, size, library);
  program.walk = walk;
  const bind::Arguments bound = bind::bind_arguments(program, arrays, symbols);
  bytecode::Plan plan = bytecode::make_plan({&program, bound.symbols}, bound.layouts, library);
  bytecode::bind_elements(plan, bound.bases);
  bytecode::look_at_rows(plan);
  bytecode::check_regions(plan, [] { return false; });
  std::vector<char*> bases;
  for (const bind::ArrayRef& array : arrays) bases.push_back(static_cast<char*>(array.data));
  bytecode::Arguments arguments;
  arguments.bind(plan, bases);
  bytecode::Expander expander(plan, &arguments);
  for (;;) {
    const bytecode::Event event = expander.next();
    if (event.kind == bytecode::Event::kEnd) return expander.num_tasks();
    if (event.kind == bytecode::Event::kFlush)
      throw EngineError("flush-on-device", "what runs depends on what a task writes");
    if (event.kind != bytecode::Event::kTask) continue;
    arguments.fill_rest(event.index, expander.registers());
    const bytecode::Arguments::Call& call = arguments.call(event.index);
    Monitor monitor{};
    TaskContext context{};
    context.monitor = &monitor;
    context.task = expander.num_tasks() - 1;
    context.block_num = plan.sites[event.index].kernel->block_dim;
    for (; context.block_idx < context.block_num; ++context.block_idx) {
      const int32_t number = call.fn(call.views, call.scalars, &context);
      if (number == 0) continue;
      throw EngineError("kernel-failed", "a check of a kernel failed")
          .with("kernel", plan.sites[event.index].kernel->name)
          .with_int("check", number)
          .with("values", std::vector<int64_t>(monitor.values, monitor.values + kMaxCheckValues));
    }
  }
}

}  // namespace pto::wsp::device
