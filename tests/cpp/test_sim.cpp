// SPDX-License-Identifier: MIT
/// \file
/// The parts of the simulator, and small machines whose times can be counted by hand.
#include <list>
#include <random>

#include "check.hpp"
#include "pto/wsp/sim/regions.hpp"
#include "pto/wsp/sim/simulator.hpp"

namespace test_sim {

using namespace pto::wsp;
using namespace pto::wsp::sim;

namespace {

/// Tasks that a test writes down.
class Tasks {
 public:
  /// Adds a task that takes `cycles` on a core of kind 0 and waits for tasks; returns its number.
  uint64_t add(double cycles, const std::vector<uint64_t>& after = {}, int64_t key = 0) {
    SourceTask task;
    task.cost = uint32_t(costs_.size());
    task.traits.owner = sched::kNoOwner;
    task.traits.rank[1] = key;
    for (const uint64_t before : after) task.waits.push_back(sched::complete_name(before));
    TaskCost cost;
    cost.cycles = cycles;
    costs_.push_back(cost);
    tasks_.push_back(task);
    return tasks_.size() - 1;
  }
  SourceTask& last() { return tasks_.back(); }
  TaskCost& last_cost() { return costs_.back(); }

  bool next(SourceTask& task) {
    if (next_ == tasks_.size()) return false;
    task = tasks_[next_++];
    return true;
  }
  const TaskCost& cost(uint32_t number) const { return costs_[number]; }

  SimResult run(const Machine& machine, const sched::PolicyOptions& options = {}) {
    next_ = 0;
    return Simulator<Tasks>(machine, options, 0, *this, UINT64_MAX, nullptr).run();
  }

 private:
  std::vector<SourceTask> tasks_;
  std::vector<TaskCost> costs_;
  size_t next_ = 0;
};

Machine machine_of(uint32_t cores, double generate = 0) {
  Machine machine;
  machine.cores = {cores};
  machine.generate = generate;
  return machine;
}

}  // namespace

TEST(transfers_share_a_rate_equally) {
  SharedRate rate;
  rate.begin(10, std::numeric_limits<double>::infinity());
  CHECK(rate.next_end() == std::numeric_limits<double>::infinity());
  rate.add(0, 100, 0);
  rate.add(0, 300, 1);
  CHECK_EQ(rate.next_end(), 20.0);  // 5 bytes per cycle each
  CHECK_EQ(rate.end_next(), 0u);
  CHECK_EQ(rate.next_end(), 40.0);  // 200 bytes are left, at 10 per cycle
  rate.add(30, 50, 2);              // 100 and 50 bytes, at 5 per cycle
  CHECK_EQ(rate.next_end(), 40.0);
  CHECK_EQ(rate.end_next(), 2u);
  CHECK_EQ(rate.next_end(), 45.0);
  CHECK_EQ(rate.end_next(), 1u);
}

TEST(a_core_cannot_take_more_than_its_own_rate) {
  SharedRate rate;
  rate.begin(10, 6);
  rate.add(0, 60, 0);
  CHECK_EQ(rate.next_end(), 10.0);
  rate.add(5, 50, 1);  // 30 and 50 bytes, at 5 per cycle
  CHECK_EQ(rate.next_end(), 11.0);
  CHECK_EQ(rate.end_next(), 0u);
  CHECK_EQ(rate.next_end(), 11.0 + 20.0 / 6);
}

TEST(a_core_keeps_what_it_used_until_another_core_stores_it) {
  Machine machine;
  machine.cores = {1, 2};
  machine.l2_bytes = 1000;
  machine.own_bytes = 200;
  Caches caches;
  caches.begin(machine);
  const std::vector<Use> load = {{1, 100, 100}}, store = {{1, 100, 100, true}},
                         others = {{2, 100, 100}, {3, 100, 100}};
  CHECK_EQ(caches.move(1, 0, load, 0).gm_bytes, 100u);
  CHECK_EQ(caches.move(1, 0, load, 7).shared_bytes, 7u);  // a spill goes past it
  const Moved second = caches.move(1, 1, load, 0);
  CHECK_EQ(second.shared_bytes, 100u);
  CHECK_EQ(second.gm_bytes, 0u);
  caches.move(1, 1, store, 0);
  CHECK_EQ(caches.move(1, 0, load, 0).shared_bytes, 100u);
  CHECK_EQ(caches.move(1, 1, load, 0).shared_bytes, 0u);
  CHECK_EQ(caches.move(1, 1, others, 0).misses, 2u);  // evict region 1 from the core
  CHECK_EQ(caches.move(1, 1, load, 0).shared_bytes, 100u);
}

TEST(transfers_that_end_together_end_in_the_order_of_tasks) {
  SharedRate rate;
  rate.begin(1, std::numeric_limits<double>::infinity());
  for (const uint64_t task : {3, 1, 2}) rate.add(0, 8, task);
  for (const uint64_t task : {1, 2, 3}) CHECK_EQ(rate.end_next(), task);
}

TEST(a_cache_drops_what_was_used_least_recently) {
  RegionCache cache;
  cache.begin(300);
  for (const uint64_t region : {1, 2, 3}) CHECK_EQ(cache.use(region, 100), 0u);
  CHECK_EQ(cache.use(1, 100), 100u);
  CHECK_EQ(cache.use(4, 100), 0u);  // drops 2
  CHECK_EQ(cache.use(3, 100), 100u);
  CHECK_EQ(cache.use(2, 100), 0u);
  CHECK_EQ(cache.use(9, 301), 0u);  // never fits, and drops nothing
  CHECK_EQ(cache.use(2, 100), 100u);
}

TEST(a_cache_holds_the_front_of_a_region_that_grows) {
  RegionCache cache;
  cache.begin(300);
  CHECK_EQ(cache.use(1, 100), 0u);
  CHECK_EQ(cache.use(2, 100), 0u);
  CHECK_EQ(cache.use(1, 60), 60u);
  CHECK_EQ(cache.use(1, 250), 100u);  // drops 2
  CHECK_EQ(cache.use(1, 250), 250u);
  CHECK_EQ(cache.use(1, 301), 250u);  // never fits
  CHECK_EQ(cache.use(2, 50), 0u);
  CHECK_EQ(cache.use(1, 250), 250u);

  Machine machine;
  machine.cores = {1};
  machine.l2_bytes = 1000;
  Caches caches;
  caches.begin(machine);
  caches.move(0, 0, {{1, 100, 100}}, 0);
  const Moved twice = caches.move(0, 0, {{1, 800, 400}}, 0);  // reads 400 bytes twice
  CHECK_EQ(twice.gm_bytes, 600u);
  CHECK_EQ(twice.misses, 1u);
}

namespace {

/// The regions of the first view of a call with two i32 views and one scalar.
std::vector<uint64_t> regions_of(const View& view, const std::vector<Place>& places = {}, int64_t scalar = 0,
                                 void* table = nullptr) {
  ParamInfo params[2] = {};
  params[0].dtype = params[1].dtype = DType::i32;
  params[0].rank = 2;
  params[1].rank = 1;
  KernelInfo kernel = {};
  kernel.num_views = 2;
  kernel.params = params;
  const View views[2] = {view, {table, {1}, {1}, nullptr}};
  Scalar scalars[1];
  scalars[0].i64 = scalar;
  std::vector<Use> uses;
  Regions(kernel, views, scalars, places).add(0, 64, 0, uses);
  std::vector<uint64_t> found;
  for (const Use& use : uses) found.push_back(use.region);
  return found;
}

}  // namespace

TEST(regions_are_told_apart_by_where_they_lie) {
  int32_t data[64 * 64];
  const std::vector<View> distinct = {
      {data, {64, 64}, {64, 1}, nullptr},           // all
      {data + 1, {64, 64}, {64, 1}, nullptr},       // another offset
      {data, {64, 1}, {64, 1}, nullptr},            // a column
      {data, {64, 16}, {64, 1}, nullptr},           // columns
      {data, {64, 32}, {64, 1}, nullptr},           // more columns
      {data, {64, 16}, {128, 1}, nullptr},          // of every other row
      {data + 64 * 16, {16, 64}, {64, 1}, nullptr}  // other rows
  };
  std::vector<uint64_t> found;
  for (const View& view : distinct) found.push_back(regions_of(view).at(0));
  std::sort(found.begin(), found.end());
  CHECK(std::unique(found.begin(), found.end()) == found.end());
  // The front of a region is the same data, and so is the same memory of another shape.
  const uint64_t all = regions_of(distinct[0]).at(0);
  CHECK_EQ(regions_of({data, {16, 64}, {64, 1}, nullptr}).at(0), all);
  CHECK_EQ(regions_of({data, {1, 64}, {64, 1}, nullptr}).at(0), all);
  CHECK_EQ(regions_of({data, {128, 32}, {32, 1}, nullptr}).at(0), all);
  CHECK_EQ(regions_of({data, {8, 16}, {64, 1}, nullptr}).at(0), regions_of(distinct[3]).at(0));
}

TEST(rows_of_a_row_set_are_regions_of_their_own) {
  int32_t data[64 * 64];
  const int32_t one[] = {3, 5, 9}, two[] = {9, 4};
  const auto found = regions_of({data, {3, 64}, {64, 1}, one});
  const auto other = regions_of({data, {2, 64}, {64, 1}, two});
  CHECK_EQ(found.size(), 3u);
  CHECK_EQ(found[2], other[0]);
  CHECK(found[1] != other[1]);
  CHECK_EQ(found[0], regions_of({data + 3 * 64, {1, 64}, {64, 1}, nullptr}).at(0));
}

TEST(what_a_kernel_picks_of_a_view_is_told_apart) {
  int32_t data[64 * 64], tables[2];
  const View view = {data, {64, 64}, {64, 1}, nullptr};
  const std::vector<Place> by_both = {{{0}, {1}}, {}}, whole = {{}, {}};
  const uint64_t first = regions_of(view, by_both, 0, &tables[0]).at(0);
  CHECK(regions_of(view, by_both, 1, &tables[0]).at(0) != first);
  CHECK(regions_of(view, by_both, 0, &tables[1]).at(0) != first);
  CHECK_EQ(regions_of(view, by_both, 0, &tables[0]).at(0), first);
  CHECK_EQ(regions_of(view, whole, 0, &tables[0]).at(0), regions_of(view, whole, 1, &tables[1]).at(0));
}

TEST(a_cache_is_like_a_list) {
  std::mt19937_64 random(7);
  RegionCache cache;
  cache.begin(5000);
  std::list<std::pair<uint64_t, uint64_t>> model;  // from the one used last
  uint64_t used = 0;
  for (int i = 0; i < 50000; ++i) {
    const uint64_t number = random() % 400, region = number * 0x9E3779B97F4A7C15u, bytes = 1 + number % 97;
    const auto found =
        std::find_if(model.begin(), model.end(), [&](const auto& each) { return each.first == region; });
    CHECK_EQ(cache.use(region, bytes), found != model.end() ? bytes : 0);
    if (found != model.end()) {
      model.splice(model.begin(), model, found);
      continue;
    }
    while (used + bytes > 5000) {
      used -= model.back().second;
      model.pop_back();
    }
    model.emplace_front(region, bytes);
    used += bytes;
  }
}

TEST(tasks_take_the_lowest_idle_core_in_program_order) {
  Tasks tasks;
  for (int i = 0; i < 4; ++i) tasks.add(10 + i);
  const SimResult result = tasks.run(machine_of(2));
  CHECK_EQ(result.cycles, 11 + 13.0);
  const uint32_t cores[] = {0, 1, 0, 1};
  const double starts[] = {0, 0, 10, 11};
  for (int i = 0; i < 4; ++i) {
    CHECK_EQ(result.times[size_t(i)].core, cores[i]);
    CHECK_EQ(result.times[size_t(i)].start, starts[i]);
  }
}

TEST(latencies_and_waits_add_up) {
  Tasks tasks;
  tasks.add(10);
  tasks.add(5, {0});
  tasks.add(7, {0, 1});
  Machine machine = machine_of(3, 2);
  machine.begin = 100;
  machine.dispatch = 1;
  machine.complete = 3;
  const SimResult result = tasks.run(machine);
  // Made at 102; each takes a dispatch, its cycles, and a completion.
  CHECK_EQ(result.times[0].start, 102.0);
  CHECK_EQ(result.times[1].start, 102.0 + 14);
  CHECK_EQ(result.times[2].start, 102.0 + 14 + 9);
  CHECK_EQ(result.cycles, 102.0 + 14 + 9 + 11);
  CHECK(result.times[0].cause == Cause::kMade && result.times[1].cause == Cause::kTask);
  CHECK_EQ(result.times[2].because, 1u);
  CHECK_EQ(result.longest, 22.0);
}

TEST(the_least_rank_starts_first_among_ready_tasks) {
  Tasks tasks;
  tasks.add(10);
  for (int i = 1; i < 4; ++i) tasks.add(10, {}, -i);
  const SimResult result = tasks.run(machine_of(1));
  // All are made at once, before the core is given away.
  const double starts[] = {30, 20, 10, 0};
  for (int i = 0; i < 4; ++i) CHECK_EQ(result.times[size_t(i)].start, starts[i]);
}

TEST(no_task_is_made_before_the_values_that_decide_are_known) {
  Tasks tasks;
  tasks.add(50);
  tasks.add(1);
  tasks.add(1);
  tasks.last().gates.push_back(sched::complete_name(0));
  tasks.add(1);
  Machine machine = machine_of(4, 2);
  machine.dispatchers = 2;
  const SimResult result = tasks.run(machine);
  CHECK(result.times[1].made <= 4);
  CHECK_EQ(result.times[2].made, 2 + 50 + 2.0);
  CHECK(result.times[3].made >= 2 + 50 + 2.0);
  CHECK(result.idle[0][size_t(Idle::kValues)] > 0);
}

TEST(a_window_stalls_dispatchers_and_lets_the_oldest_task_pass) {
  Tasks tasks;
  for (int i = 0; i < 6; ++i) tasks.add(10);
  sched::PolicyOptions options;
  options.window = 1;
  const SimResult result = tasks.run(machine_of(6), options);
  CHECK_EQ(result.cycles, 60.0);  // one after another
  CHECK_EQ(result.stalls, 5u);
  CHECK_EQ(result.stalled[0], 50.0);
}

TEST(a_window_bounds_the_tasks_of_all_dispatchers) {
  for (const uint64_t window : {1, 2, 3, 7}) {
    for (const uint32_t dispatchers : {1u, 2u, 5u}) {
      Tasks tasks;
      for (int i = 0; i < 40; ++i)
        tasks.add(10 + i * 7 % 13,
                  i % 3 == 2 ? std::vector<uint64_t>{uint64_t(i - 2)} : std::vector<uint64_t>{});
      sched::PolicyOptions options;
      options.window = window;
      Machine machine = machine_of(8, 1);
      machine.dispatchers = dispatchers;
      const SimResult result = tasks.run(machine, options);
      for (const TaskTime& at : result.times) {
        size_t under_way = 0;
        for (const TaskTime& other : result.times) under_way += other.made <= at.made && at.made < other.end;
        CHECK(under_way <= window);
      }
      if (window > 1) continue;
      for (size_t i = 1; i < 40; ++i) CHECK(result.times[i - 1].end <= result.times[i].start);
    }
  }
}

TEST(barriers_and_watermarks_are_waited_for) {
  Tasks tasks;
  tasks.add(10);
  tasks.last().groups = {3};
  tasks.add(20);
  tasks.last().groups = {3};
  tasks.add(1);
  tasks.last().waits.push_back(sched::group_name(3, 2));
  tasks.add(1);
  tasks.last().waits.push_back(sched::watermark_name(1));
  const SimResult result = tasks.run(machine_of(4));
  CHECK_EQ(result.times[2].start, 20.0);
  CHECK_EQ(result.times[3].start, 10.0);
}

TEST(memory_bounds_tasks_that_transfer_together) {
  Tasks tasks;
  for (uint64_t i = 0; i < 3; ++i) {
    tasks.add(10);
    tasks.last().uses.push_back({i == 2 ? 0 : i, 1000, 1000});
    tasks.last_cost().loaded = {1000};
  }
  Machine machine = machine_of(2);
  machine.gm_rate = 10;
  machine.l2_bytes = 1 << 20;
  const SimResult result = tasks.run(machine);
  CHECK_EQ(result.times[0].end, 200.0);  // 2,000 bytes at 10 per cycle
  CHECK_EQ(result.times[1].end, 200.0);
  CHECK_EQ(result.times[2].end, 210.0);  // what task 0 loaded is in the cache
  CHECK_EQ(result.gm_bytes, 2000u);
  CHECK_EQ(result.hits, 1u);
}

TEST(a_wait_that_cannot_end_is_an_error) {
  Tasks tasks;
  tasks.add(1);
  tasks.last().waits.push_back(sched::group_name(0, 1));
  CHECK_CODE("stuck", tasks.run(machine_of(1)));
}

}  // namespace test_sim
