// SPDX-License-Identifier: MIT
/// \file
/// `Tier` and `TierConfig`: which kernel variant serves which size (spec 5).
#pragma once

#include <cstddef>
#include <type_traits>

#include "platform.hpp"

namespace pto {
namespace runtime {

/// Sizes `[MinSize, MaxSize]`, both inclusive, go to tier `TierID`.
template <int TierID, int MinSize, int MaxSize>
struct Tier {
  static_assert(TierID >= 0 && TierID <= 255, "Tier: TierID lies in 0..255");
  static_assert(MinSize > 0, "Tier: MinSize > 0");
  static_assert(MaxSize >= MinSize, "Tier: MaxSize >= MinSize");

  static constexpr int id = TierID;
  static constexpr int min_size = MinSize;
  static constexpr int max_size = MaxSize;

  /// \return whether `MinSize <= size <= MaxSize`
  PTO_SHARED static constexpr bool matches(int size) { return (MinSize <= size) & (size <= MaxSize); }
};

/// Whether `T` is a `Tier<>`.
template <typename T>
struct is_tier : std::false_type {};
template <int TierID, int MinSize, int MaxSize>
struct is_tier<Tier<TierID, MinSize, MaxSize>> : std::true_type {};

namespace detail {

/// \return whether no two of the ids are equal.
template <int... Ids>
constexpr bool all_different() {
  constexpr int ids[] = {Ids..., -1};
  for (size_t i = 0; i < sizeof...(Ids); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (ids[i] == ids[j]) return false;
    }
  }
  return true;
}

/// No short cuts here and in `matches`: which tier a size has is as good as random to a branch predictor, and
/// a wrong guess costs more than all comparisons.
PTO_SHARED constexpr int first_of(int selected, bool matches, int id) {
  const bool take = (selected < 0) & matches;
  return take ? id : selected;
}

}  // namespace detail

/// An ordered list of tiers with different ids; ids need not be contiguous, sizes may overlap.
template <typename... Tiers>
struct TierConfig {
  static_assert((is_tier<Tiers>::value && ...), "TierConfig: every parameter is a Tier<> specialization");
  static_assert(detail::all_different<Tiers::id...>(), "TierConfig: tier ids are unique");

  static constexpr size_t num_tiers = sizeof...(Tiers);

  /// \return the id of the first tier, in argument order, that matches `size`; -1 if none does.
  /// \complexity O(num_tiers)
  PTO_SHARED static constexpr int select_tier(int size) {
    int selected = -1;
    ((selected = detail::first_of(selected, Tiers::matches(size), Tiers::id)), ...);
    (void)size;
    return selected;
  }

  /// \return whether every size in `[low, high]` has a tier.
  PTO_SHARED static constexpr bool covers(int low, int high) {
    long long uncovered = low;
    for (bool moved = true; moved && uncovered <= high;) {
      moved = false;
      ((Tiers::min_size <= uncovered && uncovered <= Tiers::max_size
            ? static_cast<void>((uncovered = Tiers::max_size + 1LL, moved = true))
            : static_cast<void>(0)),
       ...);
    }
    return uncovered > high;
  }

  /// \return the largest tier id, -1 if there are no tiers: a dispatch table needs `max_id() + 1` entries.
  PTO_SHARED static constexpr int max_id() {
    int largest = -1;
    ((largest = Tiers::id > largest ? Tiers::id : largest), ...);
    return largest;
  }
};

/// Whether `T` is a `TierConfig<>`.
template <typename T>
struct is_tier_config : std::false_type {};
template <typename... Tiers>
struct is_tier_config<TierConfig<Tiers...>> : std::true_type {};

using DecodeAttentionTiers = TierConfig<Tier<0, 1, 1024>,       // short
                                        Tier<1, 1025, 4096>,    // medium
                                        Tier<2, 4097, 16384>,   // long
                                        Tier<3, 16385, 131072>  // very long
                                        >;

}  // namespace runtime
}  // namespace pto
