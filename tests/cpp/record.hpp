// SPDX-License-Identifier: MIT
/// \file
/// The record of a run as arrays.
#pragma once

#include <vector>

#include "pto/wsp/trace/record.hpp"

namespace record {

using Array = std::vector<int64_t>;

struct Times {
  explicit Times(const pto::wsp::trace::RunRecord& record)
      : worker(record.num_tasks(), -1), start(record.num_tasks()), end(record.num_tasks()) {
    record.fill_times(worker.data(), start.data(), end.data());
  }
  Array worker, start, end;
};

struct Places {
  explicit Places(const pto::wsp::trace::RunRecord& record)
      : pc(record.num_tasks()), registers(record.num_tasks() * record.num_registers()) {
    record.fill_places(pc.data(), registers.data());
  }
  Array pc, registers;
};

}  // namespace record
