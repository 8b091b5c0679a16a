// SPDX-License-Identifier: MIT
/// \file
/// Python face of calendars.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "pto/wsp/sched/calendar.hpp"

namespace nb = nanobind;
using pto::wsp::sched::Calendar;
using pto::wsp::sched::CalendarRow;

namespace {

/// (task, core, second core or -1, start, end)
using Row = std::tuple<uint64_t, uint32_t, int64_t, int64_t, int64_t>;
using Wait = std::tuple<uint32_t, uint64_t>;

void make(Calendar* calendar, std::vector<uint32_t> kinds, std::vector<int64_t> symbols,
          std::vector<uint64_t> elements, std::vector<uint32_t> groups, const std::vector<Row>& rows,
          const std::vector<std::vector<Wait>>& waits) {
  new (calendar) Calendar{};
  calendar->kinds = std::move(kinds);
  calendar->basis = {std::move(symbols), std::move(elements), std::move(groups)};
  for (const auto& [task, core, second, start, end] : rows)
    calendar->rows.push_back({task, core, second < 0 ? CalendarRow::kNoCore : uint32_t(second), start, end});
  for (const std::vector<Wait>& of_row : waits) {
    for (const auto& [core, count] : of_row) calendar->waits.push_back({core, count});
    calendar->first_wait.push_back(calendar->waits.size());
  }
}

std::vector<Row> rows(const Calendar& calendar) {
  std::vector<Row> found;
  for (const CalendarRow& row : calendar.rows)
    found.emplace_back(row.task, row.core, row.second == CalendarRow::kNoCore ? -1 : int64_t(row.second),
                       row.start, row.end);
  return found;
}

std::vector<std::vector<Wait>> waits(const Calendar& calendar) {
  std::vector<std::vector<Wait>> found(calendar.rows.size());
  for (size_t row = 0; row < found.size(); ++row)
    calendar.for_waits(row, [&](const auto& wait) { found[row].emplace_back(wait.core, wait.count); });
  return found;
}

}  // namespace

void bind_calendar(nb::module_& module) {
  nb::class_<Calendar>(module, "Calendar")
      .def("__init__", &make, nb::arg("kinds"), nb::arg("symbols"), nb::arg("elements"), nb::arg("groups"),
           nb::arg("rows"), nb::arg("waits"))
      .def_ro("kinds", &Calendar::kinds)
      .def_prop_ro("symbols", [](const Calendar& calendar) { return calendar.basis.symbols; })
      .def_prop_ro("elements", [](const Calendar& calendar) { return calendar.basis.elements; })
      .def_prop_ro("groups", [](const Calendar& calendar) { return calendar.basis.groups; })
      .def_prop_ro("rows", &rows)
      .def_prop_ro("waits", &waits);
}
