// SPDX-License-Identifier: MIT
/// \file
/// Checks that the instances of a task (the blocks of an SPMD kernel) write disjoint elements.
#pragma once

#include <cstring>
#include <vector>

#include "pto/wsp/abi.hpp"
#include "pto/wsp/error.hpp"

namespace pto::wsp::sched {

/// The checker runs each instance alone and compares the elements before and after. Each instance starts from
/// the contents before the task. Outputs start from numbers that differ between instances. The checker misses
/// a write that leaves an element of an `inout` parameter unchanged.
class InstanceChecker {
 public:
  /// Runs each instance once, and restores the elements. Throws `instances-conflict`. Stops without an error
  /// if an instance fails, because the task itself then fails, too.
  void check(const KernelInfo& kernel, KernelFn fn, const View* views, const Scalar* scalars,
             TaskContext context) {
    begin(kernel, views);
    const Restore restore{*this};
    for (context.block_idx = 0; context.block_idx < context.block_num; ++context.block_idx) {
      for (Output& output : outputs_) prepare(output, context.block_idx);
      if (fn(views, scalars, &context) != 0) return;
      for (Output& output : outputs_) compare(output, context.block_idx);
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  /// The elements of a view that the kernel writes, one after the other.
  struct Output {
    uint32_t io;
    int rank;
    bool is_read;
    size_t size;  ///< of an element, in bytes
    View view;
    std::vector<char> before;      ///< the task
    std::vector<char> prepared;    ///< for the instance
    std::vector<uint32_t> writer;  ///< the instance that wrote an element
  };

  struct Restore {
    InstanceChecker& self;
    ~Restore() {
      for (Output& output : self.outputs_) put(output, output.before);
    }
  };

  void begin(const KernelInfo& kernel, const View* views) {
    outputs_.clear();
    for (uint32_t io = 0; io < kernel.num_views; ++io) {
      const ParamInfo& param = kernel.params[io];
      if (param.role == Role::in) continue;
      const bool is_read = param.role == Role::inout;
      Output output{io, param.rank, is_read, size_t(dtype_bytes(param.dtype)), views[io], {}, {}, {}};
      for_elements(output, [&](size_t, const char* element) {
        output.before.insert(output.before.end(), element, element + output.size);
        output.writer.push_back(kNone);
      });
      outputs_.push_back(std::move(output));
    }
  }

  static void prepare(Output& output, uint32_t instance) {
    output.prepared = output.before;
    uint64_t number = (instance + 1) * 0x9E3779B97F4A7C15ull;
    for (size_t i = 0; !output.is_read && i < output.prepared.size(); ++i) {
      number = (number ^ number >> 29) * 0xBF58476D1CE4E5B9ull + i;
      output.prepared[i] = char(number >> 56);
    }
    put(output, output.prepared);
  }

  static void compare(Output& output, uint32_t instance) {
    for_elements(output, [&](size_t number, const char* element) {
      if (std::memcmp(element, output.prepared.data() + number * output.size, output.size) == 0) return;
      uint32_t& writer = output.writer[number];
      if (writer != kNone) fail(output, number, writer, instance);
      writer = instance;
    });
  }

  [[noreturn]] static void fail(const Output& output, size_t number, uint32_t first, uint32_t second) {
    std::vector<int64_t> index(size_t(output.rank));
    auto left = int64_t(number);
    for (size_t d = index.size(); d-- > 0; left /= output.view.shape[d])
      index[d] = left % output.view.shape[d];
    throw EngineError("instances-conflict", "instances of a task write the same element")
        .with_int("io", output.io)
        .with_int("first", first)
        .with_int("second", second)
        .with("index", std::move(index));
  }

  static void put(Output& output, const std::vector<char>& values) {
    for_elements(output, [&](size_t number, char* element) {
      std::memcpy(element, values.data() + number * output.size, output.size);
    });
  }

  /// Calls `visit(number, element)` in the order of the view's indices.
  template <class Visit>
  static void for_elements(const Output& output, Visit visit) {
    const View& view = output.view;
    size_t number = 0;
    for (int64_t i = 0; i < view.shape[0]; ++i) {
      const int64_t row = view.rows != nullptr ? view.rows[i] : i;
      for (int64_t j = 0; j < view.shape[1]; ++j) {
        for (int64_t k = 0; k < view.shape[2]; ++k) {
          for (int64_t l = 0; l < view.shape[3]; ++l) {
            const int64_t at =
                row * view.stride[0] + j * view.stride[1] + k * view.stride[2] + l * view.stride[3];
            visit(number++, static_cast<char*>(view.data) + at * int64_t(output.size));
          }
        }
      }
    }
  }

  std::vector<Output> outputs_;
};

}  // namespace pto::wsp::sched
