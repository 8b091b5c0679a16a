// SPDX-License-Identifier: MIT
/// \file
/// Static dispatch tables: one kernel instance per tier, called through `table[desc.tier]` (spec 7).
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "platform.hpp"
#include "tier_config.hpp"
#include "work_descriptor.hpp"

namespace pto {
namespace runtime {

/// `NumTiers` pointers to functions, indexed by tier id.
template <typename Fn, int NumTiers>
struct DispatchTable {
  Fn entries[NumTiers];

  /// \pre `tier < NumTiers`: not checked, dispatch has no branch.
  PTO_SHARED constexpr Fn operator[](size_t tier) const { return entries[tier]; }

  static constexpr int num_tiers = NumTiers;

  /// \return whether the table has an entry for this tier.
  PTO_SHARED static constexpr bool has(int tier) { return tier >= 0 && tier < NumTiers; }
};

namespace detail {

template <typename Kernel, size_t... Tiers>
constexpr auto make_dispatch_table(std::index_sequence<Tiers...>) {
  return DispatchTable<typename Kernel::Fn, static_cast<int>(sizeof...(Tiers))>{
      {Kernel::template entry<static_cast<int>(Tiers)>()...}};
}

}  // namespace detail

/// Whether `Table` has an entry for each tier id that `TierCfg` can select. Meant for a static_assert.
template <typename TierCfg, typename Table>
constexpr bool covers_tiers(const Table&) {
  return TierCfg::max_id() < Table::num_tiers;
}

/// Calls `table[desc.tier](desc, args...)`. \pre `table.has(desc.tier)`
template <typename Table, typename... Args>
AICORE inline void dispatch_tier(const Table& table, const WorkDescriptor& desc, Args&&... args) {
  table[desc.tier](desc, std::forward<Args>(args)...);
}

}  // namespace runtime
}  // namespace pto

/// Declares `template <int Tier> AICORE void name_impl(...)`, which the user defines, and the table
/// `name_dispatch` of its instances for tiers `0 .. num_tiers - 1`. The first parameter is the descriptor.
#define PTO_TIERED_KERNEL(name, tier_count, ...)                                              \
  template <int Tier>                                                                         \
  AICORE void name##_impl(__VA_ARGS__);                                                       \
  struct name##_tiers {                                                                       \
    using Fn = void (*)(__VA_ARGS__);                                                         \
    template <int Tier>                                                                       \
    static constexpr Fn entry() {                                                             \
      return &name##_impl<Tier>;                                                              \
    }                                                                                         \
  };                                                                                          \
  static_assert((tier_count) >= 1 && (tier_count) <= 256, "PTO_TIERED_KERNEL: 1..256 tiers"); \
  [[maybe_unused]] static constexpr auto name##_dispatch =                                    \
      ::pto::runtime::detail::make_dispatch_table<name##_tiers>(std::make_index_sequence<(tier_count)>())

/// `PTO_DISPATCH_TIER(name, desc, args...)` calls the instance for `desc.tier`: one load and one indirect
/// call.
#define PTO_DISPATCH_TIER(name, ...) ::pto::runtime::dispatch_tier(name##_dispatch, __VA_ARGS__)
