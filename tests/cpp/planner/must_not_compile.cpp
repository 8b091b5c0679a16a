// SPDX-License-Identifier: MIT
/// \file
/// What SHALL NOT compile. Built once per case with -DCASE=n; case 0 is the control, and compiles.
/// A line `// CASE n: text` states what the compiler's message must contain.
#include "pto/runtime/runtime.hpp"

using namespace pto::runtime;

struct NoSet {};
struct WrongSet {
  static void set(WorkDescriptor&, uint32_t);
};

PTO_TIERED_KERNEL(two_tiers, 2, const WorkDescriptor& desc);
template <int Tier>
AICORE void two_tiers_impl(const WorkDescriptor&) {}

int main() {
  IterationSpace<Dim<4>, DynamicDim> space;
#if CASE == 0
  space.set_dim<1>(3);
  return Dim<>(7).get_size() + space.get_dim<0>() - 11;
#elif CASE == 1   // CASE 1: no matching
  Dim<4> dim(7);
#elif CASE == 2   // CASE 2: conver
  DynamicDim dim = 7;
#elif CASE == 3   // CASE 3: a size >= 0, or DYNAMIC
  Dim<-2> dim;
#elif CASE == 4   // CASE 4: this dimension has a static size
  space.set_dim<0>(3);
#elif CASE == 5   // CASE 5: set_dim: no such dimension
  space.set_dim<2>(3);
#elif CASE == 6   // CASE 6: get_dim: no such dimension
  return space.get_dim<2>(), 0;
#elif CASE == 7   // CASE 7: every parameter is a Dim<> specialization
  IterationSpace<int> wrong;
#elif CASE == 8   // CASE 8: TierID lies in 0..255
  return Tier<256, 1, 2>::id;
#elif CASE == 9   // CASE 9: TierID lies in 0..255
  return Tier<-1, 1, 2>::id;
#elif CASE == 10  // CASE 10: MinSize > 0
  return Tier<0, 0, 2>::id;
#elif CASE == 11  // CASE 11: MaxSize >= MinSize
  return Tier<0, 3, 2>::id;
#elif CASE == 12  // CASE 12: every parameter is a Tier<> specialization
  return TierConfig<int>::select_tier(1);
#elif CASE == 13  // CASE 13: tier ids are unique
  return TierConfig<Tier<1, 1, 2>, Tier<1, 3, 4>>::select_tier(1);
#elif CASE == 14  // CASE 14: Space is an IterationSpace<> specialization
  WorkPlanner<int, DecodeAttentionTiers, params::Attention> planner;
#elif CASE == 15  // CASE 15: TierCfg is a TierConfig<> specialization
  WorkPlanner<AttentionSpace<>, Tier<0, 1, 2>, params::Attention> planner;
#elif CASE == 16  // CASE 16: PatternParams has set(
  WorkPlanner<AttentionSpace<>, DecodeAttentionTiers, NoSet> planner;
#elif CASE == 17  // CASE 17: PatternParams has set(
  WorkPlanner<AttentionSpace<>, DecodeAttentionTiers, WrongSet> planner;
#elif CASE == 18  // CASE 18: conver
  AttentionPlanner planner = PlanConfig{};
#elif CASE == 19  // CASE 19: covers_tiers
  static_assert(covers_tiers<DecodeAttentionTiers>(two_tiers_dispatch), "covers_tiers");
#elif CASE == 20  // CASE 20: assign
  WorkDescriptor::FLAG_FIRST = 2;
#elif CASE == 21  // CASE 21: BalancedPlanner: TierCfg is a TierConfig<> specialization
  BalancedPlanner<Tier<0, 1, 2>> planner(BalancedConfig{});
#elif CASE == 22  // CASE 22: conver
  BalancedPlanner<> planner = BalancedConfig{};
#elif CASE == 23  // CASE 23: too many arguments
  PTO_DISPATCH_TIER(two_tiers, WorkDescriptor{}, 3);
#endif
}

#if CASE == 24  // CASE 24: PTO_TIERED_KERNEL: 1..256 tiers
PTO_TIERED_KERNEL(no_tiers, 0, const WorkDescriptor& desc);
#elif CASE == 25  // CASE 25: PTO_TIERED_KERNEL: 1..256 tiers
PTO_TIERED_KERNEL(many_tiers, 257, const WorkDescriptor& desc);
template <int Tier>
AICORE void many_tiers_impl(const WorkDescriptor&) {}
#endif
