// SPDX-License-Identifier: MIT
/// \file
/// Simulates a prepared program.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "pto/wsp/sim/network_simulator.hpp"
#include "pto/wsp/sim/network_source.hpp"
#include "pto/wsp/sim/simulator.hpp"
#include "pto/wsp/sim/walk_source.hpp"

namespace pto::wsp::sim {

namespace detail {

template <class Source>
SimResult simulate_tasks(const Machine& machine, const sched::RunOptions& options, Source& source,
                         bool records_times) {
  const double starts_per_cycle = double(options.starts_per_second) / machine.hz;
  Simulator<Source> simulator(machine, options, starts_per_cycle, source,
                              records_times ? UINT64_MAX : kMostTimes, options.is_interrupted,
                              options.calendar.get());
  SimResult result = simulator.run();
  result.kernels = source.costs().kernels();
  return result;
}

/// No other thread takes part.
class NoOthers : public sched::Others {
 public:
  void call() override {}
};

}  // namespace detail

/// A machine that does nothing but run tasks: a calendar needs no dispatchers.
inline Machine without_dispatchers(Machine machine) {
  machine.dispatchers = 1;
  machine.generate = machine.skip = 0;
  machine.records = UINT32_MAX;
  return machine;
}

/// \pre options.is_simulated
inline SimResult simulate(std::shared_ptr<sched::Prepared> prepared, const KernelLibrary& library,
                          std::vector<char*> bases, const sched::RunOptions& options,
                          const Simulation& simulation) {
  detail::NoOthers others;
  sched::Run run(others);
  run.begin(prepared, bases, options);
  const Machine machine =
      options.calendar != nullptr ? without_dispatchers(simulation.machine) : simulation.machine;
  if (options.is_network && options.calendar == nullptr)
    return NetworkSimulator(machine, run, library, simulation).run();
  if (options.is_network) {
    NetworkSource source(run, library, simulation.model);
    return detail::simulate_tasks(machine, options, source, false);
  }
  WalkSource source(run, library, machine.dispatchers, simulation.model, simulation.flushed, bases);
  SimResult result = detail::simulate_tasks(machine, options, source, simulation.records_times);
  result.flushed = source.read();
  if (result.times.size() == result.tasks) {
    std::shared_ptr<const bytecode::Plan> plan(prepared, &prepared->plan);
    result.record = std::make_shared<trace::RunRecord>(std::move(plan), source.read(), result.tasks, 0);
  }
  return result;
}

}  // namespace pto::wsp::sim
