// SPDX-License-Identifier: MIT
/// \file
/// Kernels for tests: each mixes every element it reads, and the task's number, into every element it writes,
/// so that running two conflicting tasks in the wrong order changes the result. They also stamp when they
/// ran.
#pragma once

#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "pto/wsp/abi.hpp"

namespace mix {

using namespace pto::wsp;

struct Stamps {
  std::atomic<uint64_t> clock{0};
  std::vector<uint64_t> start, end;
  /// Called by each task that has begun, with its number: while this lasts, whoever should wait for the task
  /// would overtake it if it did not.
  std::function<void(uint64_t)> pause;
  void reset(size_t tasks) {
    clock = 0;
    start.assign(tasks, 0);
    end.assign(tasks, 0);
    pause = nullptr;
  }
  // Relaxed: stamping must not hide a missing synchronisation from ThreadSanitizer.
  uint64_t next() {
    asm volatile("" ::: "memory");
    const uint64_t now = clock.fetch_add(1, std::memory_order_relaxed) + 1;
    asm volatile("" ::: "memory");
    return now;
  }
};

inline Stamps& stamps() {
  static Stamps all;
  return all;
}

/// Below 2^63, so that expressions can read what kernels write.
inline uint64_t scramble(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15ull;
  return (x ^ x >> 29) >> 1;
}

template <class Visit>
void for_elements(const View& view, Visit visit) {
  auto* data = static_cast<uint64_t*>(view.data);
  for (int64_t i = 0; i < view.shape[0]; ++i) {
    const int64_t row = view.rows != nullptr ? view.rows[i] : i;
    for (int64_t j = 0; j < view.shape[1]; ++j)
      for (int64_t k = 0; k < view.shape[2]; ++k)
        visit(data[row * view.stride[0] + j * view.stride[1] + k * view.stride[2]]);
  }
}

/// The meaning of a kernel: inputs first, then outputs in place.
inline void apply(const View* views, const std::vector<Role>& roles, uint64_t task) {
  uint64_t acc = scramble(task + 1);
  for (size_t i = 0; i < roles.size(); ++i) {
    if (roles[i] != Role::out) for_elements(views[i], [&acc](uint64_t x) { acc = scramble(acc * 31 + x); });
  }
  for (size_t i = 0; i < roles.size(); ++i) {
    if (roles[i] != Role::in) for_elements(views[i], [&acc](uint64_t& x) { x = acc = scramble(acc + 7); });
  }
}

inline const std::vector<std::vector<Role>>& patterns() {
  static const std::vector<std::vector<Role>> all = {{Role::out},
                                                     {Role::inout},
                                                     {Role::in, Role::out},
                                                     {Role::in, Role::inout},
                                                     {Role::in, Role::in, Role::out},
                                                     {Role::out, Role::in},
                                                     {Role::inout, Role::out}};
  return all;
}

template <int Pattern>
int32_t kernel(const View* views, const Scalar*, const TaskContext* context) {
  Stamps& all = stamps();
  const bool stamped = context->task < all.start.size();
  if (stamped) all.start[context->task] = all.next();
  if (all.pause) all.pause(context->task);
  apply(views, patterns()[Pattern], context->task);
  if (stamped) all.end[context->task] = all.next();
  return 0;
}

/// What `fill` writes as index `i` of `count`: a rotation, so that indices stay distinct.
inline int32_t filled(int64_t i, int64_t first, int64_t count) {
  return int32_t((uint64_t(first) + uint64_t(i)) % uint64_t(count));
}

/// fill(indices, first): fills a column of indices.
inline int32_t fill(const View* views, const Scalar* scalars, const TaskContext* context) {
  Stamps& all = stamps();
  const bool stamped = context->task < all.start.size();
  if (stamped) all.start[context->task] = all.next();
  auto* indices = static_cast<int32_t*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) indices[i] = filled(i, scalars[0].i64, views[0].shape[0]);
  if (stamped) all.end[context->task] = all.next();
  return 0;
}

/// The library: kernel index = pattern * 3 + view rank - 1, then `fill`.
class Library {
 public:
  Library() {
    const KernelFn functions[] = {kernel<0>, kernel<1>, kernel<2>, kernel<3>,
                                  kernel<4>, kernel<5>, kernel<6>};
    for (size_t p = 0; p < patterns().size(); ++p) {
      for (uint8_t rank = 1; rank <= 3; ++rank) add(functions[p], patterns()[p], rank, DType::u64);
    }
    add(fill, {Role::out}, 2, DType::i32);
    kernels_.back().num_scalars = 1;
    table_ = {kAbiVersion, uint32_t(kernels_.size()), 42, kernels_.data()};
  }
  const KernelLibrary& table() const { return table_; }
  std::shared_ptr<const KernelLibrary> shared() const { return {std::shared_ptr<void>(), &table_}; }

 private:
  void add(KernelFn fn, const std::vector<Role>& roles, uint8_t rank, DType dtype) {
    auto params = std::make_unique<std::vector<ParamInfo>>();
    for (Role role : roles) {
      ParamInfo param{role, dtype, rank, 0, {}, {}};
      for (int64_t& max : param.max_shape) max = std::numeric_limits<int64_t>::max();
      params->push_back(param);
    }
    names_.push_back(std::make_unique<std::string>("mix" + std::to_string(kernels_.size())));
    kernels_.push_back(
        {names_.back()->c_str(), fn, params->data(), uint16_t(roles.size()), 0, 0, 1, Unit::any, {}});
    params_.push_back(std::move(params));
  }

  std::vector<std::unique_ptr<std::vector<ParamInfo>>> params_;
  std::vector<std::unique_ptr<std::string>> names_;
  std::vector<KernelInfo> kernels_;
  KernelLibrary table_;
};

inline constexpr uint16_t kFill = 21;

inline const Library& library() {
  static const Library all;
  return all;
}

}  // namespace mix
