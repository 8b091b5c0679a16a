// SPDX-License-Identifier: MIT
/// \file
/// Properties of every balanced plan: each position of each row once and in order, even loads, a merge plan
/// that covers each split row, bounds that are known beforehand, nothing allocated, and defined results for
/// bad input.
#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <vector>

#include "check.hpp"
#include "pto/runtime/runtime.hpp"

using namespace pto::runtime;

namespace {

std::atomic<int64_t> num_allocations{0};

void* counted_allocation(size_t size, size_t align) {
  ++num_allocations;
  void* memory = std::aligned_alloc(align, (size + align - 1) / align * align);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

// Not inlined: g++ would warn of memory that new allocated and free released.
[[gnu::noinline]] void* operator new(size_t size) {
  return counted_allocation(size, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new[](size_t size) {
  return counted_allocation(size, alignof(std::max_align_t));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace {

using Lengths = std::vector<int>;
using Flags = WorkDescriptor;

struct Random {
  std::mt19937_64 engine;
  explicit Random(uint64_t seed) : engine(seed) {}
  int in(int low, int high) {
    const uint64_t range = static_cast<uint64_t>(static_cast<int64_t>(high) - low) + 1;
    return static_cast<int>(low + static_cast<int64_t>(engine() % range));
  }
  int one_of(std::initializer_list<int> choices) {
    return choices.begin()[in(0, static_cast<int>(choices.size()) - 1)];
  }
};

/// A plan with memory of its own, filled with a pattern that shows what was written.
class OwnedPlan {
 public:
  explicit OwnedPlan(const BalancedConfig& config, BalancedLimits limits)
      : layout(balanced_layout(config, limits)), memory_(layout.bytes + BalancedLayout::kAlign, kFill) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    base_ = memory_.data() + (0 - address) % BalancedLayout::kAlign;
    plan = layout.attach(base_);
  }
  bool is_untouched() const {
    return std::all_of(memory_.begin(), memory_.end(), [](unsigned char byte) { return byte == kFill; });
  }
  bool tail_is_untouched() const {
    const unsigned char* end = memory_.data() + memory_.size();
    const unsigned char* begin = base_ + layout.used_bytes(plan.num_items);
    return std::all_of(begin, end, [](unsigned char byte) { return byte == kFill; });
  }

  BalancedLayout layout;
  BalancedPlan plan;

 private:
  static constexpr unsigned char kFill = 0xa5;
  std::vector<unsigned char> memory_;
  unsigned char* base_;
};

// --- what a plan must be
// ------------------------------------------------------------------------------------

struct Row {
  uint32_t request, head, q_start;
  int64_t begin, end, position_cost;
};

/// Positions that at least one query of a tile attends to, query by query.
Row literal_row(const BalancedConfig& c, int64_t kv_len, int64_t qo_len, int64_t q_start) {
  const int64_t q_end = std::min<int64_t>(q_start + c.q_tile, qo_len * c.group_size);
  Row row{0, 0, static_cast<uint32_t>(q_start), INT64_MAX, 0, 1};
  for (int64_t query = q_start / c.group_size; query * c.group_size < q_end; ++query) {
    const int64_t own = kv_len - qo_len + query;
    const int64_t end = c.causal ? std::max<int64_t>(0, own + 1) : kv_len;
    const int64_t begin = c.window_left >= 0 ? std::max<int64_t>(0, own - c.window_left) : 0;
    row.end = std::max(row.end, end);
    row.begin = std::min(row.begin, begin);
  }
  row.begin = std::min(row.begin, row.end);
  if (c.q_rows_per_cost > 0)
    row.position_cost = (q_end - q_start + c.q_rows_per_cost - 1) / c.q_rows_per_cost;
  return row;
}

std::vector<Row> literal_rows(const BalancedConfig& c, const Lengths& kv, const Lengths* qo) {
  std::vector<Row> rows;
  for (size_t b = 0; b < kv.size(); ++b) {
    const int64_t queries = qo == nullptr ? 1 : (*qo)[b];
    for (int head = 0; head < c.num_heads; ++head) {
      for (int64_t q = 0; q < queries * c.group_size; q += c.q_tile) {
        rows.push_back(literal_row(c, kv[b], queries, q));
        rows.back().request = static_cast<uint32_t>(b);
        rows.back().head = static_cast<uint32_t>(head);
      }
    }
  }
  return rows;
}

/// Items `[first, next)` are the row, whole or in pieces. \return next
int check_row(const BalancedConfig& c, const Row& row, const BalancedPlan& plan, int first, int* slots,
              int* merges) {
  int64_t position = row.begin;
  int i = first;
  bool is_last = false;
  for (; !is_last; ++i) {
    CHECK(i < plan.num_items);
    const BalancedItem& item = plan.items[i];
    const WorkDescriptor& work = item.work;
    is_last = (work.flags & Flags::FLAG_LAST) != 0;
    CHECK(work.work_id == static_cast<uint32_t>(i) && work.reserved == 0);
    CHECK((work.flags & Flags::FLAG_INIT) != 0 && ((work.flags & Flags::FLAG_FIRST) != 0) == (i == first));
    CHECK(params::Attention::request_idx(work) == row.request &&
          params::Attention::head_idx(work) == row.head);
    CHECK(item.q_start == row.q_start && params::Attention::kv_start(work) == position);
    const int64_t len = params::Attention::kv_len(work);
    CHECK(i == first || position % c.grain() == 0);
    CHECK(len > 0 || (i == first && is_last));
    const bool is_whole = i == first && is_last;
    CHECK(item.partial == (is_whole ? BalancedItem::kWriteThrough : *slots));
    if (!is_whole) {
      *slots += i > first && c.batch_invariant
                    ? static_cast<int>((len + kCanonicalBlock - 1) / kCanonicalBlock)
                    : 1;
    }
    position += len;
  }
  CHECK(position == row.end);
  if (i - first > 1) {
    const MergeRow& merge = plan.merge_rows[*merges];
    CHECK(merge.request_idx == row.request && merge.head_idx == row.head && merge.q_start == row.q_start);
    CHECK(merge.first_item == static_cast<uint32_t>(first));
    CHECK(plan.merge_indptr[*merges] == plan.items[first].partial);
    CHECK(plan.merge_indptr[++*merges] == *slots);
  }
  return i;
}

/// Checks everything a plan promises. \return makespan / max(total / workers, one grain)
double check_plan(const BalancedConfig& c, const BalancedPlan& plan, const Lengths& kv, const Lengths* qo) {
  const std::vector<Row> rows = literal_rows(c, kv, qo);
  int item = 0;
  int slots = 0;
  int merges = 0;
  int64_t total = 0;
  int64_t grain_cost = c.grain();
  std::vector<int64_t> costs;
  CHECK(plan.merge_indptr[0] == 0);
  for (const Row& row : rows) {
    const int next = check_row(c, row, plan, item, &slots, &merges);
    for (; item < next; ++item) {
      costs.push_back(c.item_cost + params::Attention::kv_len(plan.items[item].work) * row.position_cost);
    }
    total += c.item_cost + (row.end - row.begin) * row.position_cost;
    grain_cost = std::max(grain_cost, c.grain() * row.position_cost);
  }
  CHECK(item == plan.num_items && slots == plan.num_partials && merges == plan.num_merges);
  CHECK(total == plan.total_cost);

  const int64_t workers = c.num_workers;
  CHECK(item <= max_items(c, static_cast<int64_t>(rows.size())) && merges <= workers - 1);
  int64_t kv_total = 0;
  for (const Row& row : rows) kv_total += row.end;
  CHECK(slots <= max_partials(c, kv_total));

  int64_t makespan = 0;
  CHECK(plan.worker_indptr[0] == 0 && plan.worker_indptr[workers] == plan.num_items);
  for (int w = 0; w < workers; ++w) {
    int64_t load = 0;
    CHECK(plan.worker_indptr[w] <= plan.worker_indptr[w + 1]);
    for (int i = plan.worker_indptr[w]; i < plan.worker_indptr[w + 1]; ++i)
      load += costs[static_cast<size_t>(i)];
    makespan = std::max(makespan, load);
  }
  CHECK(makespan == plan.makespan || plan.num_items == 0);
  const double bound =
      std::max(static_cast<double>(total) / static_cast<double>(workers), static_cast<double>(grain_cost));
  CHECK(static_cast<double>(makespan) <= bound + static_cast<double>(grain_cost + c.item_cost) + 1);
  return static_cast<double>(makespan) / bound;
}

double plan_and_check(const BalancedConfig& c, const Lengths& kv, const Lengths* qo = nullptr) {
  int64_t queries = 0;
  for (size_t b = 0; qo != nullptr && b < qo->size(); ++b) queries += (*qo)[b];
  OwnedPlan owned(c, {static_cast<int>(kv.size()), qo == nullptr ? 0 : std::max<int64_t>(queries, 1)});
  const int* q = qo == nullptr ? nullptr : qo->data();
  CHECK(BalancedPlanner<>(c).plan(kv.data(), q, static_cast<int>(kv.size()), &owned.plan) == PlanResult::OK);
  CHECK(owned.tail_is_untouched());
  return check_plan(c, owned.plan, kv, qo);
}

BalancedConfig decode(int workers, int heads) {
  BalancedConfig c;
  c.num_workers = workers;
  c.num_heads = heads;
  return c;
}

Lengths drawn(int kind, int batch, Random& random) {
  Lengths lens(static_cast<size_t>(batch));
  std::lognormal_distribution<double> lognormal(std::log(2048.0), 1.3);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  for (int& len : lens) {
    const double x = kind == 0   ? random.in(1, 131072)
                     : kind == 1 ? lognormal(random.engine)
                     : kind == 2 ? 100.0 * std::pow(1.0 - uniform(random.engine), -1 / 1.1)
                                 : 1024.0;
    len = static_cast<int>(std::clamp(x, 1.0, 131072.0));
  }
  if (kind == 3) lens[static_cast<size_t>(random.in(0, batch - 1))] = 131072;
  return lens;
}

// --- tests
// ----------------------------------------------------------------------------------------------------

/// The goals on balance, for the four distributions of lengths.
void test_balance() {
  Random random(1);
  double worst[2] = {0, 0};
  for (int round = 0; round < 12; ++round) {
    for (const int workers : {2, 24, 264}) {
      for (const int batch : {1, 3, 16, 64, 256, 1000}) {
        for (int kind = 0; kind < 4; ++kind) {
          const Lengths lens = drawn(kind, batch, random);
          for (const int heads : {1, 8}) {
            const BalancedConfig c = decode(workers, heads);
            int64_t total = 0;
            for (const int len : lens) total += heads * (int64_t{len} + c.item_cost);
            const double ratio = plan_and_check(c, lens);
            if (total >= (heads == 8 ? 48 : 16) * 128 * int64_t{workers}) {
              worst[heads == 8] = std::max(worst[heads == 8], ratio);
            }
          }
        }
      }
    }
  }
  CHECK(worst[0] > 1.0 && worst[0] <= 1.10 && worst[1] > 1.0 && worst[1] <= 1.03);
}

BalancedConfig any_config(Random& random) {
  BalancedConfig c = decode(random.one_of({1, 2, 3, 7, 24, 61, 264}), random.in(1, 5));
  c.group_size = random.one_of({1, 1, 4, 7});
  c.q_tile = random.one_of({1, 3, 16, 128});
  c.batch_invariant = random.in(0, 3) == 0;
  c.kv_tile = c.batch_invariant ? random.one_of({1, 64, 1024}) : random.one_of({1, 16, 100, 128});
  c.page_size = c.batch_invariant ? random.one_of({1, 16, 512}) : random.one_of({1, 16, 48, 256});
  c.item_cost = random.one_of({0, 32, 32, 1000});
  c.q_rows_per_cost = random.one_of({0, 0, 1, 16});
  c.window_left = random.one_of({-1, -1, 0, 100, INT_MAX});
  c.causal = random.in(0, 1) == 0;
  return c;
}

void test_properties() {
  Random random(2);
  for (int round = 0; round < 4000; ++round) {
    const BalancedConfig c = any_config(random);
    const int top = random.one_of({1, 300, 5000, 40000});
    Lengths kv(static_cast<size_t>(random.in(1, 12)));
    Lengths qo(kv.size());
    for (int& len : kv) len = random.in(0, 4) == 0 ? random.in(0, 1) : random.in(0, top);
    for (int& len : qo) len = random.in(0, 4) == 0 ? random.in(0, 1) : random.in(0, 60);
    plan_and_check(c, kv, random.in(0, 1) == 0 ? nullptr : &qo);
  }
}

void test_edges() {
  const Lengths zeros(5, 0);
  const Lengths no_queries(5, 0);
  const Lengths queries(5, 3);
  for (const int workers : {1, 4, 100}) {
    BalancedConfig c = decode(workers, 3);
    for (const int item_cost : {0, 32}) {
      c.item_cost = item_cost;
      plan_and_check(c, zeros);
      plan_and_check(c, zeros, &queries);
      plan_and_check(c, Lengths(5, 700), &no_queries);
      plan_and_check(c, {1});
    }
  }
  // Lengths near INT_MAX: pieces of 64-bit costs.
  for (const bool batch_invariant : {false, true}) {
    BalancedConfig c = decode(264, 2);
    c.batch_invariant = batch_invariant;
    plan_and_check(c, {INT_MAX, INT_MAX - 1, 131073, 0, INT_MAX});
    c.q_rows_per_cost = 1;
    c.group_size = 128;
    plan_and_check(c, {INT_MAX, 5});
  }
}

void test_tiers() {
  using Tiers = TierConfig<Tier<7, 1, 100>, Tier<3, 200, 5000>>;
  const BalancedConfig c = decode(3, 2);
  OwnedPlan owned(c, {4, 0});
  const BalancedPlanner<Tiers> planner(c);
  const Lengths lens = {100, 5000, 0, 200};
  CHECK(planner.plan(lens.data(), nullptr, 4, &owned.plan) == PlanResult::OK);
  for (int i = 0; i < owned.plan.num_items; ++i) {
    const WorkDescriptor& work = owned.plan.items[i].work;
    CHECK(work.tier == Tiers::select_tier(std::max(1, lens[params::Attention::request_idx(work)])));
  }
  OwnedPlan other(c, {4, 0});
  for (const int missing : {101, 199, 5001, INT_MAX}) {
    const Lengths gap = {5, missing, 300};
    CHECK(planner.plan(gap.data(), nullptr, 3, &other.plan) == PlanResult::UNSUPPORTED_SIZE);
    CHECK(other.is_untouched() && other.plan.num_items == 0);
  }
  BalancedConfig strict = c;
  strict.zero_length = ZeroLength::reject;
  CHECK(BalancedPlanner<>(strict).plan(lens.data(), nullptr, 4, &other.plan) == PlanResult::UNSUPPORTED_SIZE);
  CHECK(other.is_untouched());
}

void test_capacity() {
  const BalancedConfig c = decode(6, 3);
  OwnedPlan owned(c, {4, 0});
  CHECK(owned.layout.item_capacity == 4 * 3 + 5);
  const Lengths lens = {5, 900, 0, 3000};
  --owned.plan.item_capacity;
  CHECK(BalancedPlanner<>(c).plan(lens.data(), nullptr, 4, &owned.plan) == PlanResult::BUFFER_OVERFLOW);
  CHECK(owned.plan.num_items == 17 && owned.is_untouched());
  ++owned.plan.item_capacity;
  CHECK(BalancedPlanner<>(c).plan(lens.data(), nullptr, 4, &owned.plan) == PlanResult::OK);
  const Lengths more(5, 1);
  CHECK(BalancedPlanner<>(c).plan(more.data(), nullptr, 5, &owned.plan) == PlanResult::BUFFER_OVERFLOW);
  CHECK(owned.plan.num_items == 20);

  const int many = 16 << 20;
  const Lengths requests(static_cast<size_t>(many), 700);
  CHECK(BalancedPlanner<>(c).plan(requests.data(), nullptr, many, &owned.plan) ==
        PlanResult::BUFFER_OVERFLOW);
  CHECK(owned.plan.num_items == 3 * many + 5);
  CHECK(BalancedPlanner<>(decode(6, 128)).plan(requests.data(), nullptr, many, &owned.plan) ==
        PlanResult::INVALID_PARAMS);
}

void test_limits() {
  BalancedConfig c = decode(4, 8);
  c.group_size = 4;
  CHECK(max_rows(c, {10, 0}) == 80 && max_rows(c, {10, 10}) == 80 && max_rows(c, {10, 320}) == 160);
  c.q_tile = 2;
  CHECK(max_rows(c, {10, 0}) == 160);
  CHECK(max_rows(c, {0, 0}) == -1 && max_rows(c, {10, -1}) == -1 && max_rows(c, {INT_MAX, 0}) == -1);
  CHECK(max_rows(c, {1, INT64_MAX}) == -1 && balanced_layout(c, {1, INT64_MAX}).bytes == 0);
  CHECK(max_partials(c, INT64_MAX) == 6 && partial_bytes(6, 4, 128) == 6 * 4 * 130 * 4);
  c.batch_invariant = true;
  CHECK(max_partials(c, 10240) == 16);
  c.num_workers = 1;
  CHECK(max_partials(c, 10240) == 0);
  c.num_workers = 0;
  CHECK(max_rows(c, {10, 0}) == -1);
}

void test_invalid_params() {
  const BalancedConfig good = decode(4, 2);
  OwnedPlan owned(good, {4, 100});
  const Lengths lens = {5, 900, 0, 3000};
  const auto result = [&](const BalancedConfig& c, const Lengths& kv, const Lengths* qo = nullptr) {
    const PlanResult r = BalancedPlanner<>(c).plan(kv.data(), qo == nullptr ? nullptr : qo->data(),
                                                   static_cast<int>(kv.size()), &owned.plan);
    CHECK(r != PlanResult::INVALID_PARAMS || (owned.plan.num_items == 0 && owned.is_untouched()));
    return r;
  };
  const auto is_invalid = [&](void (*change)(BalancedConfig&)) {
    BalancedConfig c = good;
    change(c);
    return !c.is_valid() && result(c, lens) == PlanResult::INVALID_PARAMS;
  };
  CHECK(is_invalid([](BalancedConfig& c) { c.num_workers = 0; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.num_workers = (1 << 20) + 1; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.num_heads = -1; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.group_size = 0; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.q_tile = 0; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.kv_tile = INT_MIN; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.page_size = 0; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.item_cost = -1; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.item_cost = INT_MAX; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.q_rows_per_cost = -1; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.q_tile = 1000, c.q_rows_per_cost = 1; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.window_left = -2; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.kv_tile = INT_MAX, c.page_size = INT_MAX - 1; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.kv_tile = 100, c.batch_invariant = true; }));
  CHECK(is_invalid([](BalancedConfig& c) { c.page_size = 2048, c.batch_invariant = true; }));

  const Lengths negative = {5, -1};
  const Lengths ones = {1, 1};
  const Lengths huge = {INT_MAX, INT_MAX};
  CHECK(result(good, negative) == PlanResult::INVALID_PARAMS);
  CHECK(result(good, {7, INT_MIN}) == PlanResult::INVALID_PARAMS);
  CHECK(result(good, ones, &negative) == PlanResult::INVALID_PARAMS);
  BalancedConfig grouped = good;
  grouped.group_size = 2;
  CHECK(result(grouped, ones, &huge) == PlanResult::INVALID_PARAMS);  // packed query rows
  BalancedConfig fine = good;
  fine.q_tile = 1;
  CHECK(result(fine, ones, &huge) == PlanResult::INVALID_PARAMS);  // items
  BalancedConfig heads = good;
  heads.num_heads = INT_MAX;
  CHECK(result(heads, ones) == PlanResult::INVALID_PARAMS);
  BalancedConfig costly = decode(4, INT_MAX / 4);
  costly.group_size = 256;
  costly.q_tile = 256;
  costly.q_rows_per_cost = 1;
  CHECK(result(costly, {INT_MAX}) == PlanResult::INVALID_PARAMS);  // cost
  BalancedConfig blocks = decode(4, 2048);
  blocks.batch_invariant = true;
  CHECK(result(blocks, {INT_MAX}) == PlanResult::INVALID_PARAMS);  // slots

  const BalancedPlanner<> p(good);
  CHECK(p.plan(nullptr, nullptr, 4, &owned.plan) == PlanResult::INVALID_PARAMS);
  CHECK(p.plan(lens.data(), nullptr, 0, &owned.plan) == PlanResult::INVALID_PARAMS);
  CHECK(p.plan(lens.data(), nullptr, INT_MIN, &owned.plan) == PlanResult::INVALID_PARAMS);
  CHECK(p.plan(lens.data(), nullptr, 4, nullptr) == PlanResult::INVALID_PARAMS);
  for (int part = 0; part < 4; ++part) {
    BalancedPlan broken = owned.plan;
    if (part == 0) broken.items = nullptr;
    if (part == 1) broken.worker_indptr = nullptr;
    if (part == 2) broken.merge_rows = nullptr;
    if (part == 3) broken.merge_indptr = nullptr;
    CHECK(p.plan(lens.data(), nullptr, 4, &broken) == PlanResult::INVALID_PARAMS);
  }
  BalancedPlan negative_capacity = owned.plan;
  negative_capacity.item_capacity = -1;
  CHECK(p.plan(lens.data(), nullptr, 4, &negative_capacity) == PlanResult::INVALID_PARAMS);
  CHECK(owned.is_untouched());
}

/// Any numbers at all: a defined result, and no byte outside the plan.
void test_fuzzed_calls() {
  Random random(3);
  const auto wild = [&](int usual) {
    const int odd[] = {0, -1, 1, INT_MIN, INT_MAX, INT_MAX - 1, 1 << 20, random.in(INT_MIN, INT_MAX)};
    return random.in(0, 40) == 0 ? odd[random.in(0, 7)] : usual;
  };
  int seen[4] = {};
  for (int round = 0; round < 20000; ++round) {
    BalancedConfig c = any_config(random);
    c.num_heads = wild(c.num_heads);
    c.group_size = wild(c.group_size);
    c.q_tile = wild(c.q_tile);
    c.kv_tile = wild(c.kv_tile);
    c.page_size = wild(c.page_size);
    c.item_cost = wild(c.item_cost);
    c.q_rows_per_cost = wild(c.q_rows_per_cost);
    c.window_left = wild(c.window_left);
    if (random.in(0, 2) == 0) c.zero_length = ZeroLength::reject;
    Lengths kv(static_cast<size_t>(random.in(1, 10)));
    Lengths qo(kv.size());
    for (int& len : kv) len = wild(random.in(0, 20) == 0 ? 0 : random.in(1, 3000));
    for (int& len : qo) len = wild(random.in(0, 30));
    BalancedConfig room = decode(c.num_workers, 200);
    OwnedPlan owned(room, {random.in(1, 4), 0});
    const PlanResult result = BalancedPlanner<>(c).plan(kv.data(), random.in(0, 1) == 0 ? nullptr : qo.data(),
                                                        static_cast<int>(kv.size()), &owned.plan);
    CHECK(result == PlanResult::OK ? owned.tail_is_untouched() : owned.is_untouched());
    CHECK(result == PlanResult::BUFFER_OVERFLOW ? owned.plan.num_items > owned.plan.item_capacity
                                                : result == PlanResult::OK || owned.plan.num_items == 0);
    ++seen[static_cast<int>(result)];
  }
  for (const int times : seen) CHECK(times > 100);
}

void test_nothing_is_allocated() {
  Random random(4);
  BalancedConfig c = decode(264, 8);
  OwnedPlan owned(c, {1000, 20000});
  const Lengths kv = drawn(1, 1000, random);
  const Lengths qo(1000, 20);
  const BalancedPlanner<> planner(c);
  const int64_t before = num_allocations;
  CHECK(before > 0);
  for (int batch = 1; batch <= 1000; batch += 37) {
    CHECK(planner.plan(kv.data(), nullptr, batch, &owned.plan) == PlanResult::OK);
    CHECK(planner.plan(kv.data(), qo.data(), batch, &owned.plan) == PlanResult::OK);
  }
  CHECK(num_allocations == before);
}

}  // namespace

int main() {
  test_balance();
  test_properties();
  test_edges();
  test_tiers();
  test_capacity();
  test_limits();
  test_invalid_params();
  test_fuzzed_calls();
  test_nothing_is_allocated();
  return 0;
}
