// SPDX-License-Identifier: MIT
/// \file
/// The balanced planner over memory that Python keeps. Results are codes and counts: python/pto_wsp/planner
/// turns them into errors and views.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <optional>
#include <tuple>
#include <vector>

#include "planner_arrays.hpp"
#include "pto/runtime/balanced_planner.hpp"

namespace nb = nanobind;
using namespace pto::runtime;
using pto::python::LengthArray;
using pto::python::LengthView;
using pto::python::TierArray;
using pto::python::TierTable;

namespace {

using Memory = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

/// Code, items, rows to merge, slots for partial results, total cost, makespan.
using Outcome = std::tuple<int, int, int, int, int64_t, int64_t>;

BalancedConfig make_config(int num_workers, int num_heads, int group_size, int q_tile, int kv_tile,
                           int page_size, int item_cost, int q_rows_per_cost, int window_left, bool causal,
                           bool batch_invariant, bool reject_zero_length) {
  BalancedConfig config;
  config.num_workers = num_workers;
  config.num_heads = num_heads;
  config.group_size = group_size;
  config.q_tile = q_tile;
  config.kv_tile = kv_tile;
  config.page_size = page_size;
  config.item_cost = item_cost;
  config.q_rows_per_cost = q_rows_per_cost;
  config.window_left = window_left;
  config.causal = causal;
  config.batch_invariant = batch_invariant;
  config.zero_length = reject_zero_length ? ZeroLength::reject : ZeroLength::empty_item;
  return config;
}

/// Plans into one block of memory, step after step. The lock of the interpreter is held while it plans, so
/// that neither lengths nor plan are touched by another thread.
class Planner {
 public:
  Planner(const BalancedConfig& config, int max_batch, int64_t max_query_total, const TierArray& tiers)
      : config_(config),
        layout_(balanced_layout(config, {max_batch, max_query_total})),
        tier_rows_(tiers),
        tiers_(tier_rows_) {
    if (layout_.bytes == 0) return;
    narrow_kv_.reserve(static_cast<size_t>(max_batch));
    if (max_query_total > 0) narrow_qo_.reserve(static_cast<size_t>(max_batch));
  }

  /// Where the parts lie: item capacity, offsets of merge_indptr, merge_rows and items, bytes (0: none).
  std::tuple<int64_t, size_t, size_t, size_t, size_t> layout() const {
    return {layout_.item_capacity, layout_.merge_indptr_offset, layout_.merge_rows_offset,
            layout_.items_offset, layout_.bytes};
  }

  void attach(const Memory& memory) {
    if (layout_.bytes == 0 || memory.size() < layout_.bytes ||
        reinterpret_cast<uintptr_t>(memory.data()) % BalancedLayout::kAlign != 0) {
      throw nb::value_error("memory of a plan is aligned to 64 bytes and has the layout's size");
    }
    memory_ = memory;
    plan_ = layout_.attach(memory.data());
  }

  Outcome plan(const LengthArray& kv_lens, const std::optional<LengthArray>& qo_lens) {
    const LengthView kv(kv_lens, false, &narrow_kv_);
    const int* queries = nullptr;
    if (qo_lens.has_value()) {
      if (qo_lens->size() != kv_lens.size()) throw nb::value_error("as many query lengths as lengths");
      queries = LengthView(*qo_lens, false, &narrow_qo_).data();
    }
    const PlanResult result =
        BalancedPlanner<>::make_plan(config_, tiers_, kv.data(), queries, kv.count(), &plan_);
    return {static_cast<int>(result), plan_.num_items,  plan_.num_merges,
            plan_.num_partials,       plan_.total_cost, plan_.makespan};
  }

  int64_t max_partials(int64_t kv_total) const { return pto::runtime::max_partials(config_, kv_total); }

 private:
  BalancedConfig config_;
  BalancedLayout layout_;
  TierArray tier_rows_;
  TierTable tiers_;
  Memory memory_;
  BalancedPlan plan_;
  std::vector<int> narrow_kv_;
  std::vector<int> narrow_qo_;
};

}  // namespace

void bind_balanced_planner(nb::module_& module) {
  nb::class_<BalancedConfig>(module, "BalancedConfig")
      .def_prop_ro("is_valid", &BalancedConfig::is_valid)
      .def_prop_ro("grain", &BalancedConfig::grain);
  module.def("balanced_config", &make_config);
  nb::class_<Planner>(module, "BalancedPlanner")
      .def(nb::init<const BalancedConfig&, int, int64_t, const TierArray&>())
      .def_prop_ro("layout", &Planner::layout)
      .def("attach", &Planner::attach)
      .def("max_partials", &Planner::max_partials)
      .def("plan", &Planner::plan, nb::arg("kv_lens"), nb::arg("qo_lens").none() = nb::none());
}
