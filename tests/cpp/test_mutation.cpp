// SPDX-License-Identifier: MIT
/// \file
/// What would be noticed if the engine or a program were wrong. Each wait of each task is left out once, and
/// the tasks run in the worst order that the others allow: the order check says so exactly if a conflicting
/// pair ran in the wrong order. Each region is made larger and smaller: the check of P says so exactly if
/// iterations share elements then, which are compared one by one.
#include <map>

#include "planned.hpp"
#include "pto/wsp/graph/checker.hpp"
#include "pto/wsp/graph/hazards.hpp"
#include "pto/wsp/trace/order_check.hpp"
#include "random_loops.hpp"
#include "random_rows.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_mutation {

using namespace pto::wsp;
using namespace planned;

namespace {

/// What each task waits for if no task is complete before all are expanded: per wait, some earlier tasks.
using Waits = std::vector<std::vector<std::vector<size_t>>>;

Waits find_waits(Planned& planned, const std::vector<int64_t>& flushed, uint64_t seed) {
  const std::vector<PlacedTask> tasks = planned::walk(planned, flushed, bytecode::Op::FOR_EACH);
  std::mt19937_64 random(seed);
  Waits found;
  graph::Hazards hazards(planned.plan);
  sched::Progress progress;
  sched::WaitList waits(progress);
  std::vector<std::vector<size_t>> slices;
  std::vector<size_t> latest(planned.plan.sites.size(), SIZE_MAX);
  const auto first_of = [&](uint64_t slice, size_t count) {
    return std::vector<size_t>(slices[slice].begin(),
                               slices[slice].begin() + std::min(count, slices[slice].size()));
  };
  for (size_t task = 0; task < tasks.size(); ++task) {
    const uint32_t site = tasks[task].task.site;
    if (task == 0 || random() % 3 == 0) slices.emplace_back();
    const uint64_t slice = slices.size() - 1;
    waits.begin(slice, slice);
    hazards.access(site, tasks[task].task.registers.data(),
                   {sched::task_name(slice, slices[slice].size() + 1), slice + 1}, waits);
    waits.finish();
    std::vector<std::vector<size_t>>& own = found.emplace_back();
    for (int i = 0; i < waits.size(); ++i) {
      std::vector<size_t> before;
      if (!sched::is_watermark_name(waits[i])) {
        before = first_of(sched::slice_of(waits[i]), waits[i] & sched::kTaskMask);
      } else {
        for (uint64_t s = 0; s < waits[i]; ++s)
          before.insert(before.end(), slices[s].begin(), slices[s].end());
      }
      own.push_back(std::move(before));
    }
    if (!slices[slice].empty()) own.push_back({slices[slice].back()});
    const bytecode::SiteForm& form = planned.plan.program().sites[site];
    for (uint32_t i = 0; i < form.num_afters; ++i)
      own.push_back({latest[planned.plan.program().afters[form.first_after + i]]});
    latest[site] = task;
    std::vector<size_t> earlier;
    for (size_t i = 0; i < task; ++i) {
      if (are_in_different_iterations(tasks[i].place, tasks[task].place)) earlier.push_back(i);
    }
    own.push_back(std::move(earlier));
    slices[slice].push_back(task);
  }
  return found;
}

/// Which tasks are ordered before `task` if it lacks its wait number `dropped`.
std::vector<bool> ancestors(const Waits& waits, size_t task, size_t dropped) {
  std::vector<bool> is_before(waits.size(), false);
  for (size_t i = 0; i < waits[task].size(); ++i) {
    if (i == dropped) continue;
    for (size_t before : waits[task][i]) is_before[before] = true;
  }
  for (size_t other = task; other-- > 0;) {
    if (!is_before[other]) continue;
    for (const std::vector<size_t>& wait : waits[other]) {
      for (size_t before : wait) is_before[before] = true;
    }
  }
  return is_before;
}

/// The stamps of a run in which `task` begins as soon as only those before it have ended.
std::vector<trace::OrderStamp> run_early(const Waits& waits, size_t task,
                                         const std::vector<bool>& is_before) {
  std::vector<trace::OrderStamp> stamps(waits.size());
  uint64_t clock = 0;
  const auto run = [&](size_t each) {
    stamps[each].start = ++clock;
    stamps[each].end = ++clock;
  };
  for (size_t i = 0; i < task; ++i) {
    if (is_before[i]) run(i);
  }
  run(task);
  for (size_t i = 0; i < waits.size(); ++i) {
    if (i != task && !is_before[i]) run(i);
  }
  return stamps;
}

struct Score {
  int mutants = 0, reported = 0;
};

/// `must_precede(i, j)` says whether task i must be complete before task j begins, by itself. With
/// `is_exact`, the order check may report nothing else.
template <class MustPrecede>
void drop_each_wait(Planned& planned, const std::vector<int64_t>& flushed, uint64_t seed,
                    MustPrecede must_precede, bool is_exact, Score& score) {
  const Waits waits = find_waits(planned, flushed, seed);
  for (size_t task = 0; task < waits.size(); ++task) {
    // The last round drops nothing.
    for (size_t dropped = 0; dropped <= waits[task].size(); ++dropped) {
      const std::vector<bool> is_before = ancestors(waits, task, dropped);
      bool is_wrong = false;
      for (size_t i = 0; i < task; ++i) is_wrong = is_wrong || (!is_before[i] && must_precede(i, task));
      CHECK(!is_wrong || dropped < waits[task].size());
      const std::vector<trace::OrderStamp> stamps = run_early(waits, task, is_before);
      const bool is_reported = trace::count_order_violations(planned.plan, flushed, stamps) > 0;
      CHECK(is_reported || !is_wrong);
      CHECK(is_wrong || !is_reported || !is_exact);
      ++score.mutants;
      score.reported += is_wrong;
    }
  }
}

/// Calls `visit(memory, element)` for the elements of a region, one by one; false if some are outside.
template <class Visit>
bool for_elements(const Planned& planned, const bytecode::QuickIo& io, const int64_t* registers,
                  Visit visit) {
  const bytecode::Plan& plan = planned.plan;
  const bytecode::TensorLayout& layout = plan.layouts[io.tensor];
  const bytecode::QuickRows* rows = io.rows < 0 ? nullptr : &plan.rows[size_t(io.rows)];
  std::vector<int64_t> elements = {0};
  for (int d = 0; d < io.rank; ++d) {
    if (rows != nullptr && d > 0 && d <= rows->num_merged) continue;
    const bytecode::QuickDim& dim = plan.dims[io.first_dim + uint32_t(d)];
    const bool is_rows = rows != nullptr && d == 0;
    const int64_t lo = plan.evaluate(dim.start, registers), hi = lo + plan.evaluate(dim.extent, registers);
    if (lo < 0 || hi < lo || hi > (is_rows ? plan.layouts[rows->tensor].shape[0] : layout.shape[d]))
      return false;
    const auto* indices =
        is_rows ? reinterpret_cast<const int32_t*>(plan.bindings.elements[rows->tensor].base) : nullptr;
    const int64_t stride = layout.stride[is_rows ? rows->num_merged : d];
    std::vector<int64_t> longer;
    for (const int64_t element : elements) {
      for (int64_t i = lo; i < hi; ++i) longer.push_back(element + (is_rows ? indices[i] : i) * stride);
    }
    elements = std::move(longer);
  }
  for (const int64_t element : elements) visit(layout.group, element);
  return true;
}

enum class Finding { kNone, kConflict, kOutside };

/// Whether two tasks of different iterations of a P loop conflict.
Finding look_for_conflict(Planned& planned, const std::vector<int64_t>& flushed) {
  const std::vector<PlacedTask> tasks = planned::walk(planned, flushed, bytecode::Op::PARALLEL_FOR);
  std::map<std::pair<uint32_t, int64_t>, std::vector<std::pair<size_t, bool>>> touches;
  for (size_t task = 0; task < tasks.size(); ++task) {
    const bytecode::QuickSite& site = planned.plan.sites[tasks[task].task.site];
    for (uint32_t i = site.first_io; i < site.first_io + site.num_io; ++i) {
      const bytecode::QuickIo& io = planned.plan.ios[i];
      const auto touch = [&](uint32_t memory, int64_t element) {
        touches[{memory, element}].push_back({task, io.role != Role::in});
      };
      if (!for_elements(planned, io, tasks[task].task.registers.data(), touch)) return Finding::kOutside;
    }
  }
  for (const auto& [element, all] : touches) {
    for (size_t j = 0; j < all.size(); ++j) {
      for (size_t i = 0; i < j; ++i) {
        if ((all[i].second || all[j].second) &&
            are_in_different_iterations(tasks[all[i].first].place, tasks[all[j].first].place))
          return Finding::kConflict;
      }
    }
  }
  return Finding::kNone;
}

/// Moves the start of a dimension of some region, and changes its extent; false if it is not a sum of
/// registers.
bool change(Planned& planned, size_t dim, int64_t start, int64_t extent) {
  bytecode::QuickDim& changed = planned.plan.dims[dim];
  if (start != 0 && changed.start.postfix != bytecode::kNoPostfix) return false;
  if (changed.extent.postfix != bytecode::kNoPostfix) return false;
  changed.start.c0 += start;
  changed.extent.c0 += extent;
  return true;
}

/// Makes a region one element wider or narrower at one end, where that leaves all tasks inside their tensors.
void mutate(Planned& planned, const std::vector<int64_t>& flushed, size_t dim, Score& score) {
  const std::pair<int64_t, int64_t> changes[] = {{0, 1}, {0, -1}, {-1, 1}, {1, -1}};
  for (const auto& [start, extent] : changes) {
    if (start != 0 && planned.plan.dims[dim].op == bytecode::Op::DIM_TILE) continue;
    if (!change(planned, dim, start, extent)) continue;
    const Finding finding = look_for_conflict(planned, flushed);
    if (finding != Finding::kOutside) {
      const std::string found =
          check::code_of([&] { graph::check_iterations(planned.plan, flushed, [] { return false; }); });
      CHECK(found == (finding == Finding::kConflict ? "iterations-conflict" : "none"));
      ++score.mutants;
      score.reported += finding == Finding::kConflict;
    }
    change(planned, dim, -start, -extent);
  }
}

/// Changes each region of a program that has none which contradict P.
void mutate_all(Planned& planned, const std::vector<int64_t>& flushed, Score& score) {
  if (look_for_conflict(planned, flushed) != Finding::kNone) return;
  for (size_t dim = 0; dim < planned.plan.dims.size(); ++dim) mutate(planned, flushed, dim, score);
}

void print(const Score& score) {
  std::printf("  %d waits left out, %d of them needed\n", score.mutants, score.reported);
}

void print_regions(const Score& score) {
  std::printf("  %d changes of regions, %d of them against P\n", score.mutants, score.reported);
}

}  // namespace

TEST(each_wait_that_is_left_out_is_reported) {
  Score score;
  seeds::for_seeds(1, uint64_t{60}, [&](uint64_t seed) {
    const random_loops::Nest nest(seed);
    Planned planned(nest.bytes(), nest.shapes());
    const std::vector<PlacedTask> tasks = planned::walk(planned, {}, bytecode::Op::FOR_EACH);
    if (tasks.size() > 60) return;
    const auto must_precede = [&](size_t i, size_t j) {
      return are_in_different_iterations(tasks[i].place, tasks[j].place) ||
             conflict(planned, tasks[i].task, tasks[j].task);
    };
    drop_each_wait(planned, {}, seed, must_precede, true, score);
  });
  print(score);
  CHECK(score.reported > 300);
}

TEST(each_region_that_becomes_wrong_is_reported) {
  Score score;
  seeds::for_seeds(1, uint64_t{1000}, [&](uint64_t seed) {
    const random_loops::Nest nest(seed, 1);
    Planned planned(nest.bytes(), nest.shapes());
    mutate_all(planned, {}, score);
  });
  print_regions(score);
  CHECK(score.reported > 100);
}

/// Where data decides what iterations touch: through variables, which may be what tasks have written, and row
/// sets.
TEST(each_region_of_dynamic_programs_that_becomes_wrong_is_reported) {
  Score score;
  seeds::for_seeds(1, uint64_t{200}, [&](uint64_t seed) {
    random_loops::Parts parts(seed);
    Planned planned(parts.bytes(), parts.shapes(), parts.bases());
    CHECK(look_for_conflict(planned, parts.flushed()) == Finding::kNone);
    mutate_all(planned, parts.flushed(), score);
  });
  seeds::for_seeds(1, uint64_t{200}, [&](uint64_t seed) {
    const random_workload::Workload workload(seed, 40);
    if (workload.tasks().size() > 60) return;
    Planned planned(workload.bytes(), shapes_of(workload));
    mutate_all(planned, workload.flushed(), score);
  });
  print_regions(score);
  CHECK(score.reported > 300);
}

TEST(each_wait_of_dynamic_programs_that_is_left_out_is_reported) {
  Score score;
  seeds::for_seeds(1, uint64_t{120}, [&](uint64_t seed) {
    const random_workload::Workload workload(seed, 40);
    const std::vector<random_workload::Task>& tasks = workload.tasks();
    if (tasks.size() > 60) return;
    Planned planned(workload.bytes(), shapes_of(workload));
    const auto must_precede = [&](size_t i, size_t j) {
      const std::vector<size_t>& afters = tasks[j].afters;
      return std::find(afters.begin(), afters.end(), i) != afters.end() ||
             random_workload::must_be_ordered(tasks[i], tasks[j]);
    };
    drop_each_wait(planned, workload.flushed(), seed, must_precede, true, score);
  });
  print(score);
  CHECK(score.reported > 300);
}

TEST(each_wait_of_row_sets_that_is_left_out_is_reported) {
  Score score;
  seeds::for_seeds(1, uint64_t{50}, [&](uint64_t seed) {
    const random_rows::Workload workload(seed);
    const std::vector<random_rows::Task>& tasks = workload.tasks();
    if (tasks.size() > 60) return;
    std::vector<char*> bases;
    for (const random_rows::Tensor& tensor : workload.tensors())
      bases.push_back(reinterpret_cast<char*>(const_cast<int32_t*>(tensor.indices.data())));
    Planned planned(workload.bytes(), shapes_of(workload), bases);
    const auto must_precede = [&](size_t i, size_t j) { return random_rows::conflict(tasks[i], tasks[j]); };
    drop_each_wait(planned, {}, seed, must_precede, false, score);
  });
  print(score);
  CHECK(score.reported > 300);
}

}  // namespace test_mutation
