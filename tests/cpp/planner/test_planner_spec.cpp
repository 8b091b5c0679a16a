// SPDX-License-Identifier: MIT
/// \file
/// The names, sizes, values and signatures of the specification, section by section, checked by the compiler.
/// The table printed at the end lists what was checked.
#include <cstdint>
#include <cstdio>
#include <limits>
#include <tuple>
#include <type_traits>

#include "pto/runtime/runtime.hpp"

#if !defined(AICORE) || !defined(AICPU) || !defined(__gm__)
#error "2.3: the platform macros"
#endif

using namespace pto::runtime;

namespace {

template <typename A, typename B>
constexpr bool same = std::is_same_v<A, B>;

struct Row {
  const char* section;
  const char* name;
};
#define ROW(section, name, ...) \
  static_assert(__VA_ARGS__);   \
  rows[num_rows++] = Row { section, name }

template <int Tier>
void count_kernel(const WorkDescriptor& desc, int* counts) {
  counts[Tier] += static_cast<int>(desc.work_id);
}
using KernelFnPtr = void (*)(const WorkDescriptor&, int*);
constexpr KernelFnPtr dispatch_table[2] = {&count_kernel<0>, &count_kernel<1>};

PTO_TIERED_KERNEL(solo, 1, const WorkDescriptor& desc);
template <int Tier>
AICORE void solo_impl(const WorkDescriptor&) {}

PTO_TIERED_KERNEL(wide, 7, const WorkDescriptor& desc, int* seen);
template <int Tier>
AICORE void wide_impl(const WorkDescriptor& desc, int* seen) {
  seen[Tier] += static_cast<int>(desc.work_id);
}

AICPU void aicpu_function(__gm__ int* data) { ++*data; }

using D = WorkDescriptor;
using Params4 = void (*)(D&, uint32_t, uint32_t, uint32_t, uint32_t);
using Param = uint32_t (*)(const D&);
using A = params::Attention;
using M = params::MoE;

}  // namespace

int main() {
  Row rows[128];
  int num_rows = 0;

  ROW("2.2", "DYNAMIC", DYNAMIC == -1 && same<decltype(DYNAMIC), const int>);

  ROW("3.1", "Dim default", same<Dim<>, Dim<DYNAMIC>>);
  ROW("3.1", "Dim::static_size", Dim<8>::static_size == 8 && Dim<>::static_size == DYNAMIC);
  ROW("3.1", "Dim::is_dynamic", !Dim<8>::is_dynamic && Dim<>::is_dynamic);
  ROW("3.1", "Dim::size", same<decltype(Dim<>::size), int> && sizeof(Dim<>) == 4 && sizeof(Dim<8>) == 4);
  ROW("3.1", "Dim()", Dim<8>().size == 8 && Dim<>().size == DYNAMIC);
  ROW("3.1", "Dim(int)", Dim<>(5).size == 5 && std::is_constructible_v<Dim<>, int>);
  ROW("3.1", "Dim(int) is explicit", !std::is_convertible_v<int, Dim<>>);
  ROW("3.1", "Dim(int) of a static Dim", !std::is_constructible_v<Dim<8>, int>);
  ROW("3.1", "Dim::get_size",
      Dim<8>().get_size() == 8 && Dim<>(5).get_size() == 5 && Dim<>().get_size() == -1);
  ROW("3.1.4", "StaticDim", same<StaticDim<8>, Dim<8>>);
  ROW("3.1.4", "DynamicDim", same<DynamicDim, Dim<DYNAMIC>>);

  using Space = IterationSpace<Dim<2>, Dim<>, Dim<5>>;
  ROW("3.2", "IterationSpace::num_dims",
      Space::num_dims == 3 && same<decltype(Space::num_dims), const size_t>);
  ROW("3.2", "IterationSpace::DimsTuple", same<Space::DimsTuple, std::tuple<Dim<2>, Dim<>, Dim<5>>>);
  ROW("3.2", "IterationSpace()", (Space(), std::is_default_constructible_v<Space>));
  ROW("3.2", "set_dim", same<decltype(&Space::set_dim<1>), void (Space::*)(int)>);
  ROW("3.2", "get_dim", Space().get_dim<0>() == 2 && Space().get_dim<1>() == DYNAMIC);
  ROW("3.2", "total_work", same<decltype(&Space::total_work), int (Space::*)() const>);
  ROW("3.2", "index_to_coords", same<decltype(&Space::index_to_coords), void (Space::*)(int, int*) const>);
  ROW("3.2.4", "AttentionSpace", same<AttentionSpace<>, IterationSpace<Dim<>, Dim<>, Dim<>>>);
  ROW("3.2.4", "AttentionSpace<..>", same<AttentionSpace<1, 2, 3>, IterationSpace<Dim<1>, Dim<2>, Dim<3>>>);
  ROW("3.2.4", "MoESpace", same<MoESpace<>, IterationSpace<Dim<>, Dim<>>>);
  ROW("3.2.4", "MoESpace<..>", same<MoESpace<1, 2>, IterationSpace<Dim<1>, Dim<2>>>);

  ROW("4.1", "sizeof", sizeof(D) == 24);
  ROW("4.1", "alignof", alignof(D) == 8);
  ROW("4.1", "work_id", offsetof(D, work_id) == 0 && same<decltype(D::work_id), uint32_t>);
  ROW("4.1", "tier", offsetof(D, tier) == 4 && same<decltype(D::tier), uint8_t>);
  ROW("4.1", "flags", offsetof(D, flags) == 5 && same<decltype(D::flags), uint8_t>);
  ROW("4.1", "reserved", offsetof(D, reserved) == 6 && same<decltype(D::reserved), uint16_t>);
  ROW("4.1", "params", offsetof(D, params) == 8 && same<decltype(D::params), uint32_t[4]>);
  ROW("4.1.4", "FLAG_FIRST", D::FLAG_FIRST == 0x01 && same<decltype(D::FLAG_FIRST), const uint8_t>);
  ROW("4.1.4", "FLAG_LAST", D::FLAG_LAST == 0x02 && same<decltype(D::FLAG_LAST), const uint8_t>);
  ROW("4.1.4", "FLAG_INIT", D::FLAG_INIT == 0x04 && same<decltype(D::FLAG_INIT), const uint8_t>);

  ROW("4.2.1", "params::Attention::set", same<decltype(&A::set), Params4>);
  ROW("4.2.1", "request_idx", same<decltype(&A::request_idx), Param>);
  ROW("4.2.1", "head_idx", same<decltype(&A::head_idx), Param>);
  ROW("4.2.1", "kv_start", same<decltype(&A::kv_start), Param>);
  ROW("4.2.1", "kv_len", same<decltype(&A::kv_len), Param>);
  ROW("4.2.1", "kv_end", same<decltype(&A::kv_end), Param>);
  constexpr D attention = [] {
    D d{};
    A::set(d, 1, 2, 30, 4);
    return d;
  }();
  ROW("4.2.1", "attention values",
      A::request_idx(attention) == 1 && A::head_idx(attention) == 2 && A::kv_start(attention) == 30 &&
          A::kv_len(attention) == 4 && A::kv_end(attention) == 34 && attention.params[2] == 30);
  ROW("4.2.2", "params::MoE::set", same<decltype(&M::set), Params4>);
  constexpr D moe = [] {
    D d{};
    M::set(d, 1, 2, 30, 4);
    return d;
  }();
  ROW("4.2.2", "batch_idx, expert_idx", M::batch_idx(moe) == 1 && M::expert_idx(moe) == 2);
  ROW("4.2.2", "token_start, token_count", M::token_start(moe) == 30 && M::token_count(moe) == 4);

  using T = Tier<7, 10, 20>;
  ROW("5.1", "Tier::id", T::id == 7);
  ROW("5.1", "Tier::min_size, max_size", T::min_size == 10 && T::max_size == 20);
  ROW("5.1", "Tier::matches", !T::matches(9) && T::matches(10) && T::matches(20) && !T::matches(21));
  using Tiers = TierConfig<Tier<7, 10, 20>, Tier<3, 15, 30>, Tier<255, 40, std::numeric_limits<int>::max()>>;
  ROW("5.2", "TierConfig::num_tiers",
      Tiers::num_tiers == 3 && same<decltype(Tiers::num_tiers), const size_t>);
  ROW("5.2", "select_tier: first match", Tiers::select_tier(15) == 7 && Tiers::select_tier(21) == 3);
  ROW("5.2", "select_tier: none", Tiers::select_tier(35) == -1 && Tiers::select_tier(-5) == -1);
  ROW("5.2", "select_tier: largest int", Tiers::select_tier(std::numeric_limits<int>::max()) == 255);
  ROW("5.2", "TierConfig<>", TierConfig<>::select_tier(1) == -1 && TierConfig<>::num_tiers == 0);
  using Decode = DecodeAttentionTiers;
  ROW("5.2.4", "DecodeAttentionTiers 0", Decode::select_tier(1) == 0 && Decode::select_tier(1024) == 0);
  ROW("5.2.4", "DecodeAttentionTiers 1", Decode::select_tier(1025) == 1 && Decode::select_tier(4096) == 1);
  ROW("5.2.4", "DecodeAttentionTiers 2", Decode::select_tier(4097) == 2 && Decode::select_tier(16384) == 2);
  ROW("5.2.4", "DecodeAttentionTiers 3", Decode::select_tier(16385) == 3 && Decode::select_tier(131072) == 3);
  ROW("5.2.4", "DecodeAttentionTiers -", Decode::select_tier(0) == -1 && Decode::select_tier(131073) == -1);

  ROW("6.1", "PlanResult::OK", static_cast<int>(PlanResult::OK) == 0);
  ROW("6.1", "PlanResult::BUFFER_OVERFLOW", static_cast<int>(PlanResult::BUFFER_OVERFLOW) == 1);
  ROW("6.1", "PlanResult::UNSUPPORTED_SIZE", static_cast<int>(PlanResult::UNSUPPORTED_SIZE) == 2);
  ROW("6.1", "PlanResult::INVALID_PARAMS", static_cast<int>(PlanResult::INVALID_PARAMS) == 3);
  ROW("6.2", "PlanConfig::chunk_min", PlanConfig{}.chunk_min == 256);
  ROW("6.2", "PlanConfig::chunk_max", PlanConfig{}.chunk_max == 4096);
  ROW("6.2", "PlanConfig::max_work_units", PlanConfig{}.max_work_units == 65536);
  ROW("6.2", "PlanConfig::balance_chunks", PlanConfig{}.balance_chunks);
  ROW("6.2", "PlanConfig is an aggregate", std::is_aggregate_v<PlanConfig> && sizeof(PlanConfig) == 16);
  using P = AttentionPlanner;
  ROW("6.3", "WorkPlanner()", std::is_default_constructible_v<P> && std::is_constructible_v<P, PlanConfig>);
  ROW("6.3", "WorkPlanner(config) is explicit", !std::is_convertible_v<PlanConfig, P>);
  using Lens = const int*;
  ROW("6.3", "plan_chunk_size",
      std::is_invocable_r_v<int, decltype(&P::plan_chunk_size), P&, Lens, int, int>);
  ROW("6.3", "get_total_work",
      std::is_invocable_r_v<int, decltype(&P::get_total_work), P&, Lens, int, int, int>);
  ROW("6.3", "generate",
      std::is_invocable_r_v<PlanResult, decltype(&P::generate), P&, Lens, int, int, int, D*, int, int*>);
  ROW("6.4", "AttentionPlanner",
      same<P,
           WorkPlanner<AttentionSpace<DYNAMIC, DYNAMIC, DYNAMIC>, DecodeAttentionTiers, params::Attention>>);

  D desc{};
  desc.work_id = 5;
  desc.tier = 1;
  int counts[7] = {};
  dispatch_table[desc.tier](desc, counts);
  ROW("7.2", "plain dispatch table", sizeof(dispatch_table) == 2 * sizeof(void*));
  ROW("7.4", "PTO_TIERED_KERNEL", sizeof(wide_dispatch) == 7 * sizeof(void*) && wide_dispatch.num_tiers == 7);
  ROW("7.4", "table covers tiers",
      covers_tiers<DecodeAttentionTiers>(wide_dispatch) &&
          !covers_tiers<DecodeAttentionTiers>(solo_dispatch));
  PTO_DISPATCH_TIER(wide, desc, counts);
  desc.tier = 6;
  PTO_DISPATCH_TIER(wide, desc, counts);
  desc.tier = 0;
  PTO_DISPATCH_TIER(solo, desc);
  if (counts[1] != 10 || counts[6] != 5) return 1;

  ROW("8.1", "allocate_descriptors", same<decltype(&allocate_descriptors), D* (*)(int)>);
  ROW("8.1", "free_descriptors", same<decltype(&free_descriptors), void (*)(D*)>);
  D* buffer = allocate_descriptors(3);
  if (buffer == nullptr || reinterpret_cast<uintptr_t>(buffer) % kDescriptorBufferAlign != 0) return 1;
  free_descriptors(buffer);
  free_descriptors(nullptr);
  if (allocate_descriptors(0) != nullptr || allocate_descriptors(-1) != nullptr) return 1;

  int calls = 0;
  aicpu_function(&calls);
#ifdef __CPU_SIM
  aicpu_dispatch_kernel(aicpu_function, &calls);
  if (calls != 2) return 1;
#endif

  for (int i = 0; i < num_rows; ++i) std::printf("%-6s %s\n", rows[i].section, rows[i].name);
  return 0;
}
