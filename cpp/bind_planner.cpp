// SPDX-License-Identifier: MIT
/// \file
/// The planner with tiers that are known at run time. Results are codes and counts: python/pto_wsp/planner
/// turns them into errors.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "planner_arrays.hpp"
#include "pto/runtime/runtime.hpp"

namespace nb = nanobind;
using namespace pto::runtime;
using pto::python::LengthArray;
using pto::python::LengthView;
using pto::python::TierArray;
using pto::python::TierTable;

namespace {

using Job = detail::PlanJob<TierTable>;

/// Memory of a Python object that is written to; released with the scope.
class OutputBuffer {
 public:
  explicit OutputBuffer(nb::handle object) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_WRITABLE) != 0) throw nb::python_error();
  }
  ~OutputBuffer() { PyBuffer_Release(&view_); }
  OutputBuffer(const OutputBuffer&) = delete;
  OutputBuffer& operator=(const OutputBuffer&) = delete;

  WorkDescriptor* data() const { return static_cast<WorkDescriptor*>(view_.buf); }
  bool is_aligned() const { return reinterpret_cast<uintptr_t>(view_.buf) % alignof(WorkDescriptor) == 0; }
  int64_t capacity() const { return view_.len / static_cast<int64_t>(sizeof(WorkDescriptor)); }

 private:
  Py_buffer view_;
};

void write_plan(const Job& job, WorkDescriptor* plan, int num_threads) {
  const auto write_share = [&](int thread_id) {
    job.write<params::Attention>(AttentionPlanner::thread_share(job.total(), thread_id, num_threads), plan);
  };
  std::vector<std::thread> pool;
  for (int t = 1; t < num_threads; ++t) {
    try {
      pool.emplace_back(write_share, t);
    } catch (const std::system_error&) {  // no more threads to be had
      write_share(t);
    }
  }
  write_share(0);
  for (std::thread& thread : pool) thread.join();
}

int plan_chunk_size(const LengthArray& lengths, int num_heads, int chunk_min, int chunk_max,
                    int max_work_units, bool empty_item) {
  std::vector<int> scratch;
  const LengthView view(lengths, false, &scratch);
  const AttentionPlanner planner(PlanConfig{chunk_min, chunk_max, max_work_units, true},
                                 empty_item ? ZeroLength::empty_item : ZeroLength::reject);
  return planner.plan_chunk_size(view.data(), view.count(), num_heads);
}

int64_t total_work(const LengthArray& lengths, int num_heads, int chunk_size, bool empty_item) {
  std::vector<int> scratch;
  const LengthView view(lengths, false, &scratch);
  const AttentionPlanner planner({}, empty_item ? ZeroLength::empty_item : ZeroLength::reject);
  return planner.get_total_work_64(view.data(), view.count(), num_heads, chunk_size);
}

/// The code and the number of descriptors of a plan; writes it if `out` is not None.
std::tuple<int, int64_t> run(const LengthArray& lengths, int num_heads, int chunk_size, bool balance_chunks,
                             bool empty_item, const TierArray& tiers, nb::handle out, int num_threads) {
  std::vector<int> scratch;
  const LengthView view(lengths, true, &scratch);
  const detail::PlanInputs inputs{view.data(),    view.count(),
                                  num_heads,      chunk_size,
                                  balance_chunks, empty_item ? ZeroLength::empty_item : ZeroLength::reject};
  if (!inputs.are_valid()) return {static_cast<int>(PlanResult::INVALID_PARAMS), 0};
  const Job job(inputs, TierTable(tiers));
  if (job.result() != PlanResult::OK) return {static_cast<int>(job.result()), 0};
  if (out.is_none()) return {static_cast<int>(PlanResult::OK), job.total()};
  const OutputBuffer buffer(out);
  if (!buffer.is_aligned()) throw nb::value_error("descriptors are aligned to 8 bytes");
  if (job.total() > buffer.capacity()) return {static_cast<int>(PlanResult::BUFFER_OVERFLOW), job.total()};
  const nb::gil_scoped_release release;
  write_plan(job, buffer.data(), num_threads);
  return {static_cast<int>(PlanResult::OK), job.total()};
}

std::tuple<int, int64_t> check_plan(const LengthArray& lengths, int num_heads, int chunk_size,
                                    bool balance_chunks, bool empty_item, const TierArray& tiers) {
  return run(lengths, num_heads, chunk_size, balance_chunks, empty_item, tiers, nb::none(), 1);
}

std::tuple<int, int64_t> generate(const LengthArray& lengths, int num_heads, int chunk_size,
                                  bool balance_chunks, bool empty_item, const TierArray& tiers,
                                  nb::object out, int num_threads) {
  return run(lengths, num_heads, chunk_size, balance_chunks, empty_item, tiers, out, num_threads);
}

}  // namespace

void bind_planner(nb::module_& module) {
  module.def("plan_chunk_size", &plan_chunk_size);
  module.def("plan_total_work", &total_work);
  module.def("plan_check", &check_plan);
  module.def("plan_generate", &generate);
}
