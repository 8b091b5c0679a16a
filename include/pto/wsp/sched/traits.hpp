// SPDX-License-Identifier: MIT
/// \file
/// What a schedule says of single tasks: which dispatcher each is for, and its priority.
#pragma once

#include <algorithm>
#include <cstdint>

#include "pto/wsp/bytecode/plan.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/random.hpp"

namespace pto::wsp::sched {

/// Not the number of a dispatcher: a strand of nobody is that of the first who claims it.
inline constexpr uint32_t kNobody = UINT32_MAX;

/// A strand ends where one of these changes.
struct Traits {
  uint32_t owner = kNobody;
  int64_t priority = 0;
  bool operator!=(const Traits& other) const { return owner != other.owner || priority != other.priority; }
};

namespace detail {

inline uint32_t modulo(int64_t value, uint32_t n) {
  const int64_t rest = value % int64_t(n);
  return uint32_t(rest < 0 ? rest + n : rest);
}

inline uint32_t owner_of(const bytecode::Plan& plan, const RunOptions& options, uint32_t num_dispatchers,
                         const bytecode::QuickAmount& key, const int64_t* registers, uint64_t task) {
  if (options.ownership == Ownership::kPartition) {
    const auto part = std::upper_bound(options.bounds.begin(), options.bounds.end(), task);
    return uint32_t(part - options.bounds.begin()) % num_dispatchers;
  }
  if (!key.is_given || (options.ownership != Ownership::kKey && options.ownership != Ownership::kHash))
    return kNobody;
  const int64_t value = plan.evaluate(key.value, registers);
  if (options.ownership == Ownership::kHash) return Random(uint64_t(value)).next() % num_dispatchers;
  return modulo(value, num_dispatchers);
}

}  // namespace detail

/// The traits of task number `task`, which is one of `site`.
inline Traits traits_of(const bytecode::Plan& plan, const RunOptions& options, uint32_t num_dispatchers,
                        const bytecode::QuickSite& site, const int64_t* registers, uint64_t task) {
  Traits traits;
  traits.owner = detail::owner_of(plan, options, num_dispatchers, site.key, registers, task);
  if (options.ready == Ready::kPriority && site.priority.is_given)
    traits.priority = plan.evaluate(site.priority.value, registers);
  return traits;
}

}  // namespace pto::wsp::sched
