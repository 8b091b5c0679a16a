// SPDX-License-Identifier: MIT
/// \file
/// Runs the function or the kernel of a task.
#pragma once

#include "pto/wsp/sched/lone_monitor.hpp"
#include "pto/wsp/sched/worker.hpp"
#include "tasks.hpp"

namespace pto::wsp::capi {

namespace detail {

/// An array that is on the stack if it is short.
template <class T>
class ShortArray {
 public:
  explicit ShortArray(uint32_t size) : many_(size > kFew ? size : 0) {}
  T* data() { return many_.empty() ? few_ : many_.data(); }

 private:
  static constexpr uint32_t kFew = 16;
  T few_[kFew];
  std::vector<T> many_;
};

/// Throws `kernel-arguments` unless a kernel can take a region as its parameter.
inline void check_argument(const KernelInfo& kernel, uint32_t i, const Region& region, Role role) {
  const ParamInfo& param = kernel.params[i];
  const int64_t shape[] = {region.rows, region.cols};
  bool fits = param.rank == 2 && dtype_bytes(param.dtype) == Region::kElementBytes && param.role == role;
  for (int d = 0; fits && d < 2; ++d) fits = param.min_shape[d] <= shape[d] && shape[d] <= param.max_shape[d];
  if (fits) return;
  throw EngineError("kernel-arguments",
                    std::string("argument ") + std::to_string(i) + " of " + std::to_string(region.rows) +
                        " x " + std::to_string(region.cols) + " elements is not what the kernel takes there");
}

}  // namespace detail

/// Calls a kernel with views of a task's regions; returns 0 or kStopped. Throws `kernel-arguments` or
/// `kernel-failed`.
inline int32_t call_kernel(const KernelInfo& kernel, const Tasks& tasks, const Task& task,
                           const TaskContext& caller) {
  if (kernel.num_views != task.num_arguments || kernel.num_scalars != 0)
    throw EngineError("kernel-arguments", "the kernel takes " + std::to_string(kernel.num_views) +
                                              " regions and " + std::to_string(kernel.num_scalars) +
                                              " scalars, not " + std::to_string(task.num_arguments) +
                                              " regions");
  detail::ShortArray<View> views(task.num_arguments);
  for (uint32_t i = 0; i < task.num_arguments; ++i) {
    const Region& region = tasks.region(task.arguments[i]);
    detail::check_argument(kernel, i, region, task.arguments[i].role());
    views.data()[i] = {region.data(), {region.rows, region.cols, 1, 1}, {region.cols, 1, 0, 0}, nullptr};
  }
  thread_local sched::Scratch scratch;
  if (!scratch.reserve(kernel.scratch_bytes)) throw std::bad_alloc();
  TaskContext context{scratch.data(), nullptr, 0, caller.task, 0, kernel.block_dim, caller.monitor};
  const int32_t check = sched::run_blocks(kernel.fn, views.data(), nullptr, context);
  if (check > 0)
    throw EngineError("kernel-failed", "check " + std::to_string(check) + " of the kernel failed");
  return check;
}

/// Calls what a task runs, if there is something; returns what call_kernel returns.
inline int32_t call(const Tasks& tasks, const Task& task, const TaskContext& context) {
  if (const KernelInfo* kernel = task.kernel()) return call_kernel(*kernel, tasks, task, context);
  const PTOInCoreFunc body = task.body();
  if (body == nullptr) return 0;
  detail::ShortArray<void*> args(task.num_arguments);
  for (uint32_t i = 0; i < task.num_arguments; ++i) args.data()[i] = tasks.region(task.arguments[i]).data();
  body(args.data(), int32_t(task.num_arguments));
  return 0;
}

}  // namespace pto::wsp::capi
