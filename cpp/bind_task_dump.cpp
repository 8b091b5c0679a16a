// SPDX-License-Identifier: MIT
/// \file
/// Python face of task dumps.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>

#include "pto/wsp/trace/task_dump.hpp"

namespace nb = nanobind;
using pto::wsp::trace::DumpedTask;
using pto::wsp::trace::TaskDump;

namespace {

void add(TaskDump& dump, std::string name, uint64_t buffer_bytes, uint64_t reused_bytes,
         std::vector<uint64_t> before, std::vector<std::string> arguments) {
  dump.add({std::move(name), 0, buffer_bytes, reused_bytes, false, std::move(before), std::move(arguments)});
}

std::string text(const TaskDump& dump, bool verbose) {
  char* data = nullptr;
  size_t size = 0;
  std::FILE* out = open_memstream(&data, &size);
  if (out == nullptr) throw std::bad_alloc();
  dump.write(out, verbose ? TaskDump::Detail::kVerbose : TaskDump::Detail::kBrief);
  std::fclose(out);
  std::string text(data, size);
  std::free(data);
  return text;
}

}  // namespace

void bind_task_dump(nb::module_& module) {
  nb::class_<TaskDump>(module, "TaskDump")
      .def(nb::init<>())
      .def("add", &add, nb::arg("name"), nb::arg("buffer_bytes"), nb::arg("reused_bytes"), nb::arg("before"),
           nb::arg("arguments"))
      .def("text", &text, nb::arg("verbose"));
}
