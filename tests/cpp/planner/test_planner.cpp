// SPDX-License-Identifier: MIT
/// \file
/// What the planner computes, against the specification written out literally.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"
#include "pto/runtime/runtime.hpp"

using namespace pto::runtime;

namespace {

using Lengths = std::vector<int>;
using Descriptors = std::vector<WorkDescriptor>;

int size_of(const Lengths& lens) { return static_cast<int>(lens.size()); }

/// params::Attention without its promise to store verbatim, so that the planner calls `set`.
struct AttentionBySet {
  static void set(WorkDescriptor& d, uint32_t request, uint32_t head, uint32_t start, uint32_t len) {
    params::Attention::set(d, request, head, start, len);
  }
};
using AttentionBySetPlanner = WorkPlanner<AttentionSpace<>, DecodeAttentionTiers, AttentionBySet>;
using AnyLength = TierConfig<Tier<9, 1, INT_MAX>>;
using AnyLengthPlanner = WorkPlanner<AttentionSpace<>, AnyLength, params::Attention>;

// --- the specification, literally
// -----------------------------------------------------------------------------

int64_t count_work_units(const Lengths& lens, int num_heads, int chunk) {
  int64_t total = 0;
  for (const int len : lens) total += (static_cast<int64_t>(len) + chunk - 1) / chunk;
  return total * num_heads;
}

int literal_chunk_size(const PlanConfig& config, const Lengths& lens, int num_heads) {
  int low = config.chunk_min;
  int high = config.chunk_max;
  while (low < high) {
    const int mid = static_cast<int>((static_cast<int64_t>(low) + high) / 2);
    if (count_work_units(lens, num_heads, mid) > config.max_work_units) {
      low = mid + 1;
    } else {
      high = mid;
    }
  }
  return low;
}

template <typename TierCfg = DecodeAttentionTiers>
Descriptors literal_plan(const Lengths& lens, int num_heads, int64_t chunk, bool balance,
                         bool empty_item = false) {
  Descriptors plan;
  for (int b = 0; b < size_of(lens); ++b) {
    const int64_t len = lens[static_cast<size_t>(b)];
    const int64_t n = len == 0 && empty_item ? 1 : (len + chunk - 1) / chunk;
    for (int h = 0; h < num_heads; ++h) {
      for (int64_t k = 0; k < n; ++k) {
        const int64_t start = balance ? k * len / n : k * chunk;
        const int64_t end = balance ? (k + 1) * len / n : std::min((k + 1) * chunk, len);
        WorkDescriptor d{};
        d.work_id = static_cast<uint32_t>(plan.size());
        d.tier = static_cast<uint8_t>(TierCfg::select_tier(len == 0 ? 1 : static_cast<int>(len)));
        d.flags = static_cast<uint8_t>((k == 0 ? 1 : 0) | (k == n - 1 ? 2 : 0));
        params::Attention::set(d, static_cast<uint32_t>(b), static_cast<uint32_t>(h),
                               static_cast<uint32_t>(start), static_cast<uint32_t>(end - start));
        plan.push_back(d);
      }
    }
  }
  return plan;
}

// --- helpers
// --------------------------------------------------------------------------------------------------

bool same_bytes(const WorkDescriptor* a, const WorkDescriptor* b, size_t count) {
  return std::memcmp(static_cast<const void*>(a), static_cast<const void*>(b),
                     count * sizeof(WorkDescriptor)) == 0;
}

/// A buffer with descriptors on either side that must keep their bytes.
class GuardedBuffer {
 public:
  explicit GuardedBuffer(size_t count) : all_(count + 2 * kGuard), count_(count) {
    std::memset(static_cast<void*>(all_.data()), kFill, all_.size() * sizeof(WorkDescriptor));
  }
  WorkDescriptor* data() { return all_.data() + kGuard; }
  bool is_untouched(size_t from, size_t to) const { return is_filled(kGuard + from, kGuard + to); }
  bool guards_hold() const { return is_filled(0, kGuard) && is_filled(kGuard + count_, all_.size()); }

 private:
  bool is_filled(size_t from, size_t to) const {
    const auto* bytes = reinterpret_cast<const unsigned char*>(all_.data() + from);
    for (size_t i = 0; i < (to - from) * sizeof(WorkDescriptor); ++i) {
      if (bytes[i] != kFill) return false;
    }
    return true;
  }

  static constexpr size_t kGuard = 4;
  static constexpr unsigned char kFill = 0xa5;
  Descriptors all_;
  size_t count_;
};

template <typename Planner>
void check_plan(const Planner& planner, const Lengths& lens, int heads, int chunk,
                const Descriptors& expected) {
  const int total = static_cast<int>(expected.size());
  CHECK(planner.get_total_work(lens.data(), size_of(lens), heads, chunk) == total);
  GuardedBuffer buffer(expected.size());
  int count = -7;
  CHECK(planner.generate(lens.data(), size_of(lens), heads, chunk, buffer.data(), total, &count) ==
        PlanResult::OK);
  CHECK(count == total);
  CHECK(same_bytes(buffer.data(), expected.data(), expected.size()));
  CHECK(buffer.guards_hold());
}

struct Random {
  std::mt19937_64 engine;
  explicit Random(uint64_t seed) : engine(seed) {}
  int in(int low, int high) {
    const uint64_t range = static_cast<uint64_t>(static_cast<int64_t>(high) - low) + 1;
    return static_cast<int>(low + static_cast<int64_t>(engine() % range));
  }
  /// Lengths from 1 on, of a size that varies from call to call.
  Lengths lengths(int count, int low, int high) {
    Lengths lens(static_cast<size_t>(count));
    const int shape = in(0, 2);
    for (int& len : lens)
      len = shape == 0 ? in(low, high) : in(low, in(low, shape == 1 ? high : in(low, high)));
    return lens;
  }
};

// --- tests
// ----------------------------------------------------------------------------------------------------

void test_iteration_space() {
  IterationSpace<Dim<2>, DynamicDim, Dim<3>> space;
  CHECK(space.total_work() == 0);
  space.set_dim<1>(4);
  CHECK(space.total_work() == 24 && space.get_dim<1>() == 4);
  int coords[3];
  for (int i = 0; i < 24; ++i) {
    space.index_to_coords(i, coords);
    CHECK(coords[0] == i % 2 && coords[1] == i / 2 % 4 && coords[2] == i / 8);
    CHECK(space.coords_to_index(coords) == i);
  }
  for (const int outside : {-1, 24, INT_MAX, INT_MIN}) {
    space.index_to_coords(outside, coords);
    CHECK(coords[0] == -1 && coords[1] == -1 && coords[2] == -1);
  }
  const int beyond[3] = {1, 4, 0};
  CHECK(space.coords_to_index(beyond) == -1);
  space.set_dim<1>(-3);
  CHECK(space.total_work() == 0 && space.get_dim<1>() == -3);

  IterationSpace<Dim<INT_MAX>, Dim<INT_MAX>, DynamicDim, Dim<2>> huge;
  CHECK(huge.total_work() == 0 && huge.total_work_64() == 0);
  huge.set_dim<2>(INT_MAX);
  CHECK(huge.total_work() == INT_MAX && huge.total_work_64() == INT64_MAX);
  const int corner[4] = {INT_MAX - 1, INT_MAX - 1, INT_MAX - 1, 1};
  const int near[4] = {INT_MAX - 1, 0, 0, 0};
  CHECK(huge.coords_to_index(corner) == -1 && huge.coords_to_index(near) == INT_MAX - 1);

  const IterationSpace<> none;
  CHECK(none.total_work() == 1);
  none.index_to_coords(0, nullptr);
  CHECK(none.coords_to_index(nullptr) == 0);
}

void test_chunk_divider() {
  Random random(1);
  for (int round = 0; round < 20000; ++round) {
    const int chunk = round < 5000     ? round + 1
                      : round % 2 == 0 ? random.in(1, INT_MAX)
                                       : (1 << random.in(0, 30));
    const detail::ChunkDivider divider(chunk);
    const uint32_t edges[] = {0,
                              1,
                              static_cast<uint32_t>(chunk) - 1,
                              static_cast<uint32_t>(chunk),
                              INT_MAX,
                              INT_MAX - 1,
                              static_cast<uint32_t>(INT_MAX / chunk * static_cast<int64_t>(chunk)),
                              static_cast<uint32_t>(INT_MAX / chunk * static_cast<int64_t>(chunk) - 1),
                              static_cast<uint32_t>(random.in(0, INT_MAX))};
    for (const uint32_t x : edges) CHECK(divider.quotient(x) == x / static_cast<uint32_t>(chunk));
  }
}

void test_chunk_size_is_the_pseudo_code() {
  Random random(2);
  for (int round = 0; round < 1500; ++round) {
    const int top = round % 3 == 0 ? 1 << 18 : round % 3 == 1 ? INT_MAX : 5000;
    const Lengths lens = random.lengths(random.in(1, round % 10 == 0 ? 3000 : 60), 0, random.in(0, top));
    PlanConfig config;
    if (round % 2 == 0) {
      config.chunk_min = random.in(1, 500);
      config.chunk_max = config.chunk_min + random.in(0, round % 4 == 0 ? 5000 : INT_MAX - 500);
      config.max_work_units = random.in(1, round % 8 == 0 ? INT_MAX : 100000);
    }
    const int heads = random.in(1, 40);
    const AttentionPlanner planner(config);
    const int chunk = planner.plan_chunk_size(lens.data(), size_of(lens), heads);
    CHECK(chunk == literal_chunk_size(config, lens, heads));
    const int64_t total = count_work_units(lens, heads, chunk);
    CHECK(planner.get_total_work_64(lens.data(), size_of(lens), heads, chunk) == total);
    CHECK(planner.fits(lens.data(), size_of(lens), heads, chunk) == (total <= config.max_work_units));
    CHECK(planner.get_total_work(lens.data(), size_of(lens), heads, chunk) == (total > INT_MAX ? -1 : total));
    const int64_t longest = *std::max_element(lens.begin(), lens.end());
    const int64_t most_chunks = (longest + config.chunk_min - 1) / config.chunk_min;
    CHECK(total <= int64_t{size_of(lens)} * heads * most_chunks);  // the estimate of section 8.2
  }
}

void test_generate_is_the_specification() {
  Random random(3);
  for (int round = 0; round < 1200; ++round) {
    const Lengths lens = random.lengths(random.in(1, 30), 1, round % 4 == 0 ? 131072 : random.in(1, 6000));
    const int heads = random.in(1, 9);
    const int chunk = round % 4 == 0 ? random.in(300, 200000) : random.in(1 + round % 50, 3000);
    const bool balance = round % 2 == 0;
    PlanConfig config;
    config.balance_chunks = balance;
    const Descriptors expected = literal_plan(lens, heads, chunk, balance);
    check_plan(AttentionPlanner(config), lens, heads, chunk, expected);
    if (round % 8 == 0) check_plan(AttentionBySetPlanner(config), lens, heads, chunk, expected);
    if (round % 8 == 0) check_plan(MoEPlanner(config), lens, heads, chunk, expected);
  }
}

/// Lengths near INT_MAX, and more chunks than fixed-point positions can tell apart.
void test_long_lengths() {
  Random random(4);
  for (int round = 0; round < 60; ++round) {
    const Lengths lens = {INT_MAX - random.in(0, 3), random.in(1, INT_MAX), INT_MAX};
    const int chunk = random.in(INT_MAX / 4000, INT_MAX);
    PlanConfig config;
    config.balance_chunks = round % 2 == 0;
    const Descriptors expected = literal_plan<AnyLength>(lens, 2, chunk, config.balance_chunks);
    check_plan(AnyLengthPlanner(config), lens, 2, chunk, expected);
  }
  // A count beyond those that are stepped through, where steps would be wrong just before chunk n - 1.
  const uint32_t many = 1'500'000'000;
  const detail::ChunkStarts beyond(many + 1, many, 1, true);
  beyond.for_each(many - 64, many,
                  [&](uint32_t k, uint32_t start, uint32_t) { CHECK(start == beyond.start(k)); });
  const detail::ChunkStarts starts(INT_MAX, 70'000'000, 31, true);
  const detail::ChunkStarts limit(INT_MAX - 1, UINT32_MAX / 65, 31, true);
  for (const auto* s : {&starts, &limit}) {
    for (uint32_t begin = 0; begin < 60'000'000; begin += 7'654'321) {
      uint32_t next = begin;
      s->for_each(begin, begin + 200, [&](uint32_t k, uint32_t start, uint32_t end) {
        CHECK(k == next++ && start == s->start(k) && end == s->start(k + 1));
      });
    }
  }
}

void test_zero_length() {
  const Lengths lens = {0, 5, 0, 0, 300, 0};
  int count = -1;
  GuardedBuffer buffer(64);
  const AttentionPlanner reject;
  CHECK(reject.get_total_work(lens.data(), 6, 2, 256) == 6);
  CHECK(reject.generate(lens.data(), 6, 2, 256, buffer.data(), 64, &count) == PlanResult::UNSUPPORTED_SIZE);
  CHECK(count == 0 && buffer.is_untouched(0, 64));

  for (const bool balance : {false, true}) {
    PlanConfig config;
    config.balance_chunks = balance;
    const AttentionPlanner empty_item(config, ZeroLength::empty_item);
    check_plan(empty_item, lens, 2, 256, literal_plan(lens, 2, 256, balance, true));
    check_plan(AttentionBySetPlanner(config, ZeroLength::empty_item), lens, 2, 256,
               literal_plan(lens, 2, 256, balance, true));
  }
  PlanConfig tight;
  tight.chunk_min = 1;
  tight.max_work_units = 20;
  // 4 empty items leave 6 chunks of the 10 per head for 305 positions.
  CHECK(AttentionPlanner(tight, ZeroLength::empty_item).plan_chunk_size(lens.data(), 6, 2) == 60);
  CHECK(AttentionPlanner(tight).plan_chunk_size(lens.data(), 6, 2) == 34);
  const Lengths zeros = {0, 0, 0};
  CHECK(AttentionPlanner(tight).plan_chunk_size(zeros.data(), 3, 2) == 1);
}

void test_invalid_params() {
  const Lengths lens = {100, 2000, 3};
  const Lengths negative = {100, -1, 3};
  const Lengths most_negative = {100, 3, INT_MIN};
  const Lengths huge(3, INT_MAX);
  GuardedBuffer buffer(64);
  WorkDescriptor* out = buffer.data();
  const AttentionPlanner p;
  const AnyLengthPlanner any;
  int count = 99;
  const auto invalid = [&](PlanResult result) {
    const bool is = result == PlanResult::INVALID_PARAMS && count == 0;
    count = 99;
    return is;
  };
  CHECK(p.generate(lens.data(), 3, 1, 256, out, 64, nullptr) == PlanResult::INVALID_PARAMS);
  CHECK(invalid(p.generate(nullptr, 3, 1, 256, out, 64, &count)));
  CHECK(invalid(p.generate(lens.data(), 3, 1, 256, nullptr, 64, &count)));
  CHECK(invalid(p.generate(lens.data(), 3, 1, 256, nullptr, 0, &count)));
  for (const int bad : {0, -1, INT_MIN}) {
    CHECK(invalid(p.generate(lens.data(), bad, 1, 256, out, 64, &count)));
    CHECK(invalid(p.generate(lens.data(), 3, bad, 256, out, 64, &count)));
    CHECK(invalid(p.generate(lens.data(), 3, 1, bad, out, 64, &count)));
    CHECK(p.plan_chunk_size(lens.data(), bad, 1) == 0 && p.plan_chunk_size(lens.data(), 3, bad) == 0);
    CHECK(p.get_total_work(lens.data(), bad, 1, 256) == -1 &&
          p.get_total_work(lens.data(), 3, bad, 256) == -1);
    CHECK(p.get_total_work(lens.data(), 3, 1, bad) == -1 && !p.fits(lens.data(), 3, 1, bad));
  }
  CHECK(invalid(p.generate(lens.data(), 3, 1, 256, out, -1, &count)));
  CHECK(invalid(p.generate(negative.data(), 3, 1, 256, out, 64, &count)));
  CHECK(invalid(p.generate(most_negative.data(), 3, 1, 256, out, 64, &count)));
  CHECK(p.plan_chunk_size(nullptr, 3, 1) == 0 && p.get_total_work(nullptr, 3, 1, 256) == -1);
  CHECK(p.plan_chunk_size(negative.data(), 3, 1) == 0 && p.get_total_work(negative.data(), 3, 1, 256) == -1);
  CHECK(p.get_total_work(most_negative.data(), 3, 1, 256) == -1);

  // More than INT_MAX descriptors: invalid whatever else is wrong.
  CHECK(invalid(any.generate(huge.data(), 3, 1, 1, out, 64, &count)));
  CHECK(invalid(p.generate(huge.data(), 3, INT_MAX, INT_MAX, out, 64, &count)));
  CHECK(any.get_total_work(huge.data(), 3, 1, 1) == -1);
  CHECK(any.get_total_work_64(huge.data(), 3, 1, 1) == 3ll * INT_MAX);
  CHECK(any.get_total_work_64(huge.data(), 3, INT_MAX, 1) == INT64_MAX);
  CHECK(any.get_total_work(huge.data(), 1, 1, 1) == INT_MAX);

  const PlanConfig bad_configs[] = {{0, 4096, 65536, true},  {-1, 4096, 65536, true},
                                    {512, 511, 65536, true}, {256, 4096, 0, true},
                                    {256, 4096, -1, true},   {INT_MIN, INT_MIN, 1, false}};
  for (const PlanConfig& config : bad_configs) {
    const AttentionPlanner broken(config);
    CHECK(invalid(broken.generate(lens.data(), 3, 1, 256, out, 64, &count)));
    CHECK(broken.plan_chunk_size(lens.data(), 3, 1) == 0 &&
          broken.get_total_work(lens.data(), 3, 1, 256) == -1);
  }
  CHECK(buffer.is_untouched(0, 64));
}

void test_order_of_errors() {
  const Lengths lens = {131073, 100};
  GuardedBuffer buffer(40);
  const AttentionPlanner p;
  int count = 99;
  CHECK(p.generate(lens.data(), 2, 1, 256, buffer.data(), 0, &count) == PlanResult::UNSUPPORTED_SIZE &&
        count == 0);
  const Lengths both = {131073, -5};
  CHECK(p.generate(both.data(), 2, 1, 256, buffer.data(), 0, &count) == PlanResult::INVALID_PARAMS &&
        count == 0);

  const Lengths fine = {1000, 7, 300};
  const int required = p.get_total_work(fine.data(), 3, 4, 256);
  CHECK(required == 4 * (4 + 1 + 2));
  CHECK(p.generate(fine.data(), 3, 4, 256, buffer.data(), required - 1, &count) ==
        PlanResult::BUFFER_OVERFLOW);
  CHECK(count == required && buffer.is_untouched(0, 40));
  CHECK(p.generate(fine.data(), 3, 4, 256, buffer.data(), required, &count) == PlanResult::OK);
  CHECK(count == required && buffer.is_untouched(static_cast<size_t>(required), 40));

  // A gap between tiers is found although shortest and longest have a tier.
  using Gap = TierConfig<Tier<4, 1, 10>, Tier<2, 20, 30>>;
  const WorkPlanner<AttentionSpace<>, Gap, params::Attention> gap;
  const Lengths in_gap = {5, 15, 25};
  const Lengths around = {5, 10, 20, 30};
  CHECK(gap.generate(in_gap.data(), 3, 1, 8, buffer.data(), 40, &count) == PlanResult::UNSUPPORTED_SIZE &&
        count == 0);
  check_plan(gap, around, 2, 8, literal_plan<Gap>(around, 2, 8, true));
}

/// The result that the specification gives, and the count that goes with it.
PlanResult literal_result(const Lengths& lens, int heads, int chunk, int capacity, int* count) {
  *count = 0;
  if (heads <= 0 || chunk <= 0 || capacity < 0) return PlanResult::INVALID_PARAMS;
  bool is_supported = true;
  int64_t chunks = 0;
  for (const int len : lens) {
    if (len < 0) return PlanResult::INVALID_PARAMS;
    is_supported = is_supported && DecodeAttentionTiers::select_tier(len) >= 0;
    chunks += (static_cast<int64_t>(len) + chunk - 1) / chunk;
  }
  if (chunks > INT_MAX / heads) return PlanResult::INVALID_PARAMS;
  if (!is_supported) return PlanResult::UNSUPPORTED_SIZE;
  *count = static_cast<int>(chunks) * heads;
  return *count > capacity ? PlanResult::BUFFER_OVERFLOW : PlanResult::OK;
}

void test_fuzzed_calls() {
  Random random(7);
  const auto wild = [&](int usual) {
    const int odd[] = {0, -1, 1, INT_MIN, INT_MAX, INT_MAX - 1, random.in(INT_MIN, INT_MAX)};
    return random.in(0, 9) == 0 ? odd[random.in(0, 6)] : usual;
  };
  int seen[4] = {};
  for (int round = 0; round < 20000; ++round) {
    Lengths lens(static_cast<size_t>(random.in(1, 40)));
    const int top = random.in(1, 140000);
    for (int& len : lens) len = random.in(0, 60) == 0 ? wild(0) : random.in(1, top);
    const int heads = wild(random.in(1, 6));
    const int chunk = wild(random.in(1, 9000));
    int expected_count = 0;
    (void)literal_result(lens, heads, chunk, INT_MAX, &expected_count);
    const int capacity = std::min(expected_count + random.in(-1, 1), 20000);
    const PlanResult expected = literal_result(lens, heads, chunk, capacity, &expected_count);
    GuardedBuffer buffer(static_cast<size_t>(std::max(capacity, 0)));
    int count = -1;
    const AttentionPlanner p;
    CHECK(p.generate(lens.data(), size_of(lens), heads, chunk, buffer.data(), capacity, &count) == expected);
    CHECK(count == expected_count && buffer.guards_hold());
    if (expected == PlanResult::OK)
      CHECK(buffer.is_untouched(static_cast<size_t>(count), static_cast<size_t>(capacity)));
    if (expected != PlanResult::OK) CHECK(buffer.is_untouched(0, static_cast<size_t>(std::max(capacity, 0))));
    ++seen[static_cast<int>(expected)];
  }
  for (const int times : seen) CHECK(times > 100);
}

void test_static_space() {
  const WorkPlanner<AttentionSpace<3, 4, 2>, DecodeAttentionTiers, params::Attention> p;
  const Lengths lens = {500, 7, 300};
  GuardedBuffer buffer(40);
  int count = 0;
  check_plan(p, lens, 4, 256, literal_plan(lens, 4, 256, true));
  CHECK(p.plan_chunk_size(lens.data(), 3, 4) == 256 && p.plan_chunk_size(lens.data(), 2, 4) == 0);
  CHECK(p.generate(lens.data(), 2, 4, 256, buffer.data(), 40, &count) == PlanResult::INVALID_PARAMS);
  CHECK(p.generate(lens.data(), 3, 5, 256, buffer.data(), 40, &count) == PlanResult::INVALID_PARAMS);
  CHECK(p.generate(lens.data(), 3, 4, 249, buffer.data(), 40, &count) == PlanResult::INVALID_PARAMS);
  CHECK(p.get_total_work(lens.data(), 3, 4, 249) == -1);
}

void test_parallel() {
  Random random(5);
  for (int round = 0; round < 40; ++round) {
    const Lengths lens =
        round == 0 ? Lengths{131072} : random.lengths(random.in(1, 50), 1, random.in(1, 20000));
    const int heads = random.in(1, 8);
    const int chunk = random.in(20, 2000);
    const AttentionPlanner p;
    const Descriptors expected = literal_plan(lens, heads, chunk, true);
    const int total = static_cast<int>(expected.size());
    for (int threads = 1; threads <= 16; ++threads) {
      GuardedBuffer buffer(expected.size());
      const auto work = [&](int thread_id) {
        int count = 0;
        CHECK(p.parallel_generate(thread_id, threads, lens.data(), size_of(lens), heads, chunk, buffer.data(),
                                  total, &count) == PlanResult::OK);
        CHECK(count == total);
      };
      std::vector<std::thread> pool;
      for (int t = 0; t < threads; ++t) pool.emplace_back(work, t);
      for (std::thread& thread : pool) thread.join();
      CHECK(same_bytes(buffer.data(), expected.data(), expected.size()) && buffer.guards_hold());
    }
    const int num_threads = random.in(1, 16);
    for (int t = 0; t < num_threads; ++t) {
      GuardedBuffer alone(expected.size());
      const WorkRange share = AttentionPlanner::thread_share(total, t, num_threads);
      const auto begin = static_cast<size_t>(share.begin);
      const auto end = static_cast<size_t>(share.end);
      int count = 0;
      CHECK(p.parallel_generate(t, num_threads, lens.data(), size_of(lens), heads, chunk, alone.data(), total,
                                &count) == PlanResult::OK);
      CHECK(alone.is_untouched(0, begin) && alone.is_untouched(end, expected.size()) && alone.guards_hold());
      CHECK(same_bytes(alone.data() + begin, expected.data() + begin, end - begin));
    }
    GuardedBuffer buffer(expected.size());
    const int parts = random.in(1, 9);
    for (int part = parts - 1; part >= 0; --part) {
      int count = 0;
      const int begin = size_of(lens) * part / parts;
      const int end = size_of(lens) * (part + 1) / parts;
      CHECK(p.generate_subset(begin, end, lens.data(), size_of(lens), heads, chunk, buffer.data(), total,
                              &count) == PlanResult::OK);
      CHECK(count == total);
    }
    CHECK(same_bytes(buffer.data(), expected.data(), expected.size()) && buffer.guards_hold());
  }
}

void test_shares() {
  using P = AttentionPlanner;
  for (const int total : {0, 1, 17, INT_MAX}) {
    for (const int threads : {1, 2, 16, INT_MAX}) {
      CHECK(P::thread_share(total, 0, threads).begin == 0);
      CHECK(P::thread_share(total, threads - 1, threads).end == total);
    }
  }
  const Lengths lens = {100};
  WorkDescriptor d;
  int count = 0;
  const P p;
  for (const auto& [id, threads] : {std::pair(-1, 2), std::pair(2, 2), std::pair(0, 0), std::pair(0, -1)}) {
    CHECK(p.parallel_generate(id, threads, lens.data(), 1, 1, 256, &d, 1, &count) ==
          PlanResult::INVALID_PARAMS);
  }
  for (const auto& [begin, end] : {std::pair(-1, 1), std::pair(1, 0), std::pair(0, 2)}) {
    CHECK(p.generate_subset(begin, end, lens.data(), 1, 1, 256, &d, 1, &count) == PlanResult::INVALID_PARAMS);
  }
}

void test_many_requests() {
  const int batch = 16 << 20;
  const Lengths lens(static_cast<size_t>(batch), 700);
  const AttentionPlanner p;
  CHECK(p.plan_chunk_size(lens.data(), batch, 8) == 4096);
  CHECK(p.get_total_work(lens.data(), batch, 8, 256) == 3 * 8 * batch);
  CHECK(p.get_total_work(lens.data(), batch, 128, 256) == -1);
  CHECK(p.get_total_work_64(lens.data(), batch, 128, 256) == 3ll * 128 * batch);
  int count = 0;
  WorkDescriptor d;
  CHECK(p.generate(lens.data(), batch, 8, 256, &d, 1, &count) == PlanResult::BUFFER_OVERFLOW);
  CHECK(count == 3 * 8 * batch);
}

}  // namespace

int main() {
  test_iteration_space();
  test_chunk_divider();
  test_chunk_size_is_the_pseudo_code();
  test_generate_is_the_specification();
  test_long_lengths();
  test_zero_length();
  test_invalid_params();
  test_order_of_errors();
  test_fuzzed_calls();
  test_static_space();
  test_parallel();
  test_shares();
  test_many_requests();
  return 0;
}
