// SPDX-License-Identifier: MIT
/// \file
/// A simulated device: it runs an orchestration and then its tasks, in the order of submission or as late as
/// their tensors allow. The unit that includes this defines the functions of cores.
#pragma once

#include <orchestration_api.h>

#include "pto/core.hpp"

extern "C" void aicpu_orchestration_entry(const ChipTaskArgs& args);
extern "C" OrchestrationConfig aicpu_orchestration_config(const ChipTaskArgs& args);

namespace standin {

/// A function of a core.
struct Function {
  void (*entry)(int64_t* args);
  bool is_cube;
};
extern const Function functions[];
extern const int num_functions;

struct Span {
  uint64_t start, stop;
  bool is_written;
};

struct Submitted {
  int id;
  CoreTaskArgs args;
  std::vector<Span> spans;  ///< by start
  bool is_done = false;
};

inline std::vector<Submitted>& submitted() {
  static std::vector<Submitted> found;
  return found;
}

/// The bytes of each contiguous line of a tensor.
inline void add_spans(const ChipTensor& tensor, bool is_written, std::vector<Span>& spans) {
  const int last = tensor.ndims - 1;
  int64_t lines = 1;
  for (int d = 0; d < last; ++d) lines *= tensor.shapes[d];
  for (int64_t line = 0; line < lines; ++line) {
    int64_t offset = tensor.start_offset, rest = line;
    for (int d = last - 1; d >= 0; --d) {
      offset += rest % tensor.shapes[d] * tensor.strides[d];
      rest /= tensor.shapes[d];
    }
    const uint64_t start = tensor.buffer.addr + uint64_t(offset * tensor.itemsize);
    const int64_t count = last < 0 ? 1 : (tensor.shapes[last] - 1) * tensor.strides[last] + 1;
    spans.push_back({start, start + uint64_t(count * tensor.itemsize), is_written});
  }
}

inline void submit(int id, bool is_cube, const CoreTaskArgs& args) {
  require(id >= 0 && id < num_functions, "a task of a function that does not exist");
  require(functions[id].is_cube == is_cube, "a task on the other kind of core");
  require(args.tensors.size() <= 32 && args.scalars.size() <= 16, "a task with too many arguments");
  Submitted task{id, args, {}};
  for (size_t i = 0; i < args.tensors.size(); ++i) {
    const ChipTensor& tensor = args.tensors[i];
    require(tensor.ndims >= 0 && tensor.ndims <= 5, "a tensor of too many dimensions");
    for (int d = 0; d < tensor.ndims; ++d)
      require(tensor.shapes[d] > 0 && tensor.strides[d] > 0, "a tensor that is empty or has no strides");
    add_spans(tensor, args.is_written[i], task.spans);
  }
  const auto is_before = [](const Span& a, const Span& b) { return a.start < b.start; };
  std::sort(task.spans.begin(), task.spans.end(), is_before);
  submitted().push_back(std::move(task));
}

/// Whether two tasks touch a byte that one of them writes.
inline bool conflict(const Submitted& a, const Submitted& b) {
  for (const Span& one : a.spans) {
    for (const Span& other : b.spans) {
      if (other.start >= one.stop) break;
      if (one.start < other.stop && (one.is_written || other.is_written)) return true;
    }
  }
  return false;
}

inline bool is_ready(size_t number) {
  for (size_t i = 0; i < number; ++i) {
    if (!submitted()[i].is_done && conflict(submitted()[i], submitted()[number])) return false;
  }
  return true;
}

/// Numbers of tasks in the order in which they ran.
inline std::vector<int64_t>& ran() {
  static std::vector<int64_t> found;
  return found;
}

inline void execute(Submitted& task, NPUArch arch) {
  ran().push_back(&task - submitted().data());
  std::vector<int64_t> args;
  for (ChipTensor& tensor : task.args.tensors) args.push_back(int64_t(&tensor));
  for (const uint64_t scalar : task.args.scalars) args.push_back(int64_t(scalar));
  core().begin(arch);
  functions[task.id].entry(args.data());
  core().finish();
  task.is_done = true;
}

inline NPUArch& device_arch() {
  static NPUArch arch = NPUArch::A2A3;
  return arch;
}

/// Runs a task and, before it, all tasks that it waits for.
inline void complete(size_t number) {
  for (size_t i = 0; i < number; ++i) {
    if (!submitted()[i].is_done && conflict(submitted()[i], submitted()[number])) complete(i);
  }
  execute(submitted()[number], device_arch());
}

}  // namespace standin

void standin_wait_for(const ChipTensor& tensor) {
  using namespace standin;
  Submitted reader{-1, {}, {}};
  add_spans(tensor, false, reader.spans);
  const auto is_before = [](const Span& a, const Span& b) { return a.start < b.start; };
  std::sort(reader.spans.begin(), reader.spans.end(), is_before);
  for (size_t i = 0; i < submitted().size(); ++i) {
    if (!submitted()[i].is_done && conflict(submitted()[i], reader)) complete(i);
  }
}

void rt_submit_aic_task(int id, const CoreTaskArgs& args) { standin::submit(id, true, args); }
void rt_submit_aiv_task(int id, const CoreTaskArgs& args) { standin::submit(id, false, args); }

/// Expands a program and runs its tasks; of those that are ready the last one first, if asked for. Returns
/// the number of tasks.
extern "C" __attribute__((visibility("default"))) int64_t standin_run_device(const ChipTensor* tensors,
                                                                             int num_tensors,
                                                                             const uint64_t* scalars,
                                                                             bool is_a5, bool last_first) {
  using namespace standin;
  const ChipTaskArgs args(tensors, scalars);
  require(aicpu_orchestration_config(args).expected_arg_count == num_tensors, "another number of tensors");
  submitted().clear();
  ran().clear();
  device_arch() = is_a5 ? NPUArch::A5 : NPUArch::A2A3;
  aicpu_orchestration_entry(args);
  const size_t count = submitted().size();
  for (size_t done = 0; done < count; ++done) {
    size_t chosen = count;
    for (size_t i = 0; i < count && (last_first || chosen == count); ++i) {
      if (!submitted()[i].is_done && is_ready(i)) chosen = i;
    }
    if (chosen == count) break;  // the orchestration has waited for the rest
    execute(submitted()[chosen], device_arch());
  }
  return int64_t(count);
}

/// Copies the numbers of at most `most` tasks, in the order in which they ran. Returns how many.
extern "C" __attribute__((visibility("default"))) int64_t standin_order(int64_t* numbers, int64_t most) {
  const auto count = std::min<int64_t>(most, int64_t(standin::ran().size()));
  std::copy_n(standin::ran().begin(), count, numbers);
  return count;
}
