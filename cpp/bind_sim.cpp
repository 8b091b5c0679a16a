// SPDX-License-Identifier: MIT
/// \file
/// Python face of the simulator: SimMachine, SimResult and what a task costs.
#include "bind_sim.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "pto/wsp/sim/result.hpp"

namespace nb = nanobind;
using namespace pto::wsp;

namespace pto::wsp::python {

PythonCosts::PythonCosts(nb::object find, std::vector<std::vector<bool>> matters, const PlaceNumbers& places,
                         const KernelLibrary& library)
    : find_(std::move(find)), matters_(std::move(matters)), library_(library) {
  for (const auto& kernel : places) {
    places_.emplace_back();
    for (const auto& [scalars, views] : kernel) places_.back().push_back({scalars, views});
  }
}

sim::TaskCost PythonCosts::find(uint32_t kernel, const View* views, const Scalar* scalars) {
  const nb::gil_scoped_acquire acquired;
  const KernelInfo& info = library_.kernels[kernel];
  nb::list shapes, values;
  for (uint32_t i = 0; i < info.num_views; ++i) {
    nb::list shape;
    for (int d = 0; d < info.params[i].rank; ++d) shape.append(views[i].shape[d]);
    shapes.append(nb::tuple(shape));
  }
  for (uint32_t i = 0; i < info.num_scalars; ++i) values.append(scalars[i].i64);
  return nb::cast<sim::TaskCost>(find_(kernel, shapes, values));
}

bool PythonCosts::matters(uint32_t kernel, uint32_t scalar) const { return matters_[kernel][scalar]; }

const std::vector<sim::Place>& PythonCosts::places(uint32_t kernel) const { return places_[kernel]; }

}  // namespace pto::wsp::python

namespace {

template <class T>
nb::object to_array(std::vector<T> values) {
  auto* owned = new std::vector<T>(std::move(values));
  nb::capsule owner(owned, [](void* memory) noexcept { delete static_cast<std::vector<T>*>(memory); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

template <class Get>
auto column(const sim::SimResult& result, Get get) {
  using T = std::decay_t<decltype(get(result.times[0]))>;
  std::vector<T> values;
  values.reserve(result.times.size());
  for (const sim::TaskTime& time : result.times) values.push_back(get(time));
  return to_array(std::move(values));
}

/// What is known of each task, as arrays.
nb::dict times(const sim::SimResult& result) {
  nb::dict columns;
  columns["site"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.site); });
  columns["cost"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.cost); });
  columns["dispatcher"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.dispatcher); });
  columns["kind"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.kind); });
  columns["core"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.core); });
  columns["second_kind"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.second_kind); });
  columns["second"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.second); });
  columns["cause"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.cause); });
  columns["because"] = column(result, [](const sim::TaskTime& t) { return int64_t(t.because); });
  columns["made"] = column(result, [](const sim::TaskTime& t) { return t.made; });
  columns["ready"] = column(result, [](const sim::TaskTime& t) { return t.ready; });
  columns["start"] = column(result, [](const sim::TaskTime& t) { return t.start; });
  columns["end"] = column(result, [](const sim::TaskTime& t) { return t.end; });
  return columns;
}

using ProcessRow =
    std::tuple<uint64_t, double, double, double, double, std::vector<double>, std::vector<double>>;
using ChannelRow = std::tuple<uint32_t, uint64_t, double, double, uint64_t, double, double>;
using TokenRow = std::tuple<uint32_t, uint32_t, uint32_t, double, double, double, double>;
using SpanRow = std::tuple<uint32_t, uint32_t, double, double>;

/// The fields of each record of a network, in the order of their declaration.
template <class Row, class Record, class Fields>
std::vector<Row> rows(const std::vector<Record>& records, const Fields& fields) {
  std::vector<Row> result;
  result.reserve(records.size());
  for (const Record& record : records) result.push_back(fields(record));
  return result;
}

void bind_network_times(nb::module_& module) {
  using sim::NetworkTimes;
  nb::class_<NetworkTimes>(module, "SimNetwork")
      .def_ro("merges", &NetworkTimes::merges)
      .def_prop_ro("processes",
                   [](const NetworkTimes& times) {
                     return rows<ProcessRow>(times.processes, [](const sim::ProcessTime& p) {
                       return ProcessRow{p.tasks, p.busy, p.cores, p.waited, p.end, p.tokens, p.buffers};
                     });
                   })
      .def_prop_ro("channels",
                   [](const NetworkTimes& times) {
                     return rows<ChannelRow>(times.channels, [](const sim::ChannelTime& c) {
                       return ChannelRow{c.tensor, c.tokens, c.queued, c.in_use, c.most, c.first, c.last};
                     });
                   })
      .def_prop_ro("tokens",
                   [](const NetworkTimes& times) {
                     return rows<TokenRow>(times.tokens, [](const sim::TokenTime& t) {
                       return TokenRow{t.tensor, t.sender, t.receiver, t.opened, t.sent, t.received, t.freed};
                     });
                   })
      .def_prop_ro("spans", [](const NetworkTimes& times) {
        return rows<SpanRow>(times.spans, [](const sim::ProcessSpan& s) {
          return SpanRow{s.process, s.site, s.start, s.end};
        });
      });
}

}  // namespace

void bind_sim(nb::module_& module) {
  nb::class_<sim::Machine>(module, "SimMachine")
      .def(nb::init<>())
      .def_rw("cores", &sim::Machine::cores)
      .def_rw("gm_rate", &sim::Machine::gm_rate)
      .def_rw("gm_core_rate", &sim::Machine::gm_core_rate)
      .def_rw("l2_bytes", &sim::Machine::l2_bytes)
      .def_rw("l2_rate", &sim::Machine::l2_rate)
      .def_rw("l2_core_rate", &sim::Machine::l2_core_rate)
      .def_rw("l2_hit", &sim::Machine::l2_hit)
      .def_rw("l2_miss", &sim::Machine::l2_miss)
      .def_rw("own_bytes", &sim::Machine::own_bytes)
      .def_rw("dispatchers", &sim::Machine::dispatchers)
      .def_rw("generate", &sim::Machine::generate)
      .def_rw("skip", &sim::Machine::skip)
      .def_rw("dispatch", &sim::Machine::dispatch)
      .def_rw("complete", &sim::Machine::complete)
      .def_rw("records", &sim::Machine::records)
      .def_rw("hz", &sim::Machine::hz)
      .def_rw("begin", &sim::Machine::begin);
  nb::class_<sim::TaskCost>(module, "SimCost")
      .def(nb::init<>())
      .def_rw("kinds", &sim::TaskCost::kinds)
      .def_rw("cycles", &sim::TaskCost::cycles)
      .def_rw("ends", &sim::TaskCost::ends)
      .def_rw("loaded", &sim::TaskCost::loaded)
      .def_rw("stored", &sim::TaskCost::stored)
      .def_rw("spilled", &sim::TaskCost::spilled)
      .def_rw("operations", &sim::TaskCost::operations);
  bind_network_times(module);
  nb::class_<sim::SimResult>(module, "SimResult")
      .def_ro("tasks", &sim::SimResult::tasks)
      .def_ro("cycles", &sim::SimResult::cycles)
      .def_ro("busy", &sim::SimResult::busy)
      .def_ro("idle", &sim::SimResult::idle)
      .def_ro("generating", &sim::SimResult::generating)
      .def_ro("stalled", &sim::SimResult::stalled)
      .def_ro("stalls", &sim::SimResult::stalls)
      .def_ro("made", &sim::SimResult::made)
      .def_ro("kernels", &sim::SimResult::kernels)
      .def_ro("calls", &sim::SimResult::calls)
      .def_ro("spent", &sim::SimResult::spent)
      .def_ro("gm_bytes", &sim::SimResult::gm_bytes)
      .def_ro("l2_bytes", &sim::SimResult::l2_bytes)
      .def_ro("hits", &sim::SimResult::hits)
      .def_ro("prefetched_bytes", &sim::SimResult::prefetched_bytes)
      .def_ro("misses", &sim::SimResult::misses)
      .def_ro("operations", &sim::SimResult::operations)
      .def_ro("max_live", &sim::SimResult::max_live)
      .def_ro("longest", &sim::SimResult::longest)
      .def_ro("network", &sim::SimResult::network)
      .def_ro("record", &sim::SimResult::record)
      .def("times", &times);
}
