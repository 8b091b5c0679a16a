// SPDX-License-Identifier: MIT
/// \file
/// The order of the tasks of a network in a record of its run.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/sched/network_order.hpp"
#include "pto/wsp/trace/record.hpp"

namespace pto::wsp::sched {

/// Tells a record where the tasks of a network come from, in this order.
inline void set_order(trace::RunRecord& record, const bytecode::Plan& plan, const std::vector<char*>& bases,
                      const RunOptions& options) {
  NetworkOrder order(plan, bases, options);
  std::vector<trace::ProcessPlaces> places(order.num_processes());
  std::vector<uint32_t> process_of_task;
  while (const std::optional<uint32_t> site = order.next()) {
    const uint32_t process = order.process().number;
    places[process].add(*site, order.process().expander.copy_registers());
    process_of_task.push_back(process);
  }
  record.set_order(std::move(places), process_of_task);
}

}  // namespace pto::wsp::sched
