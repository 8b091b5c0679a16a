// SPDX-License-Identifier: MIT
/// \file
/// Boxes of every size in one map: every conflict is ordered, a strand does not wait for itself, and the cost
/// of an access does not grow with the number of live accesses.
#include <bitset>
#include <random>

#include "check.hpp"
#include "pto/wsp/graph/box_map.hpp"
#include "seeds.hpp"

namespace test_box_map {

using namespace pto::wsp;
using graph::Box;
using graph::Touch;

namespace {

constexpr size_t kMaxTasks = 400;

/// Tasks with one access each, in program order, as one walk numbers them.
class Tasks {
 public:
  Tasks(int rank, const int64_t* size, const int64_t* typical, bool has_progress = true)
      : map(rank, size, typical),
        waits(has_progress ? sched::WaitList(progress) : sched::WaitList()),
        rank_(rank) {}

  void begin_slice(bool begins_strand) {
    if (!slices_.empty()) ++slice_;
    if (begins_strand) strand_ = slice_;
    slices_.emplace_back();
  }

  /// Adds a task to the open slice. `waits` holds the moments that it waits for.
  void add(const Box& box, Touch how, bool is_muted = false) {
    std::vector<size_t>& slice = slices_[slice_];
    waits.begin(strand_, slice_, is_muted);
    slice.push_back(num_tasks_++);
    map.access(box, how, {sched::task_name(slice_, slice.size()), slice_ + 1}, waits);
    waits.finish();
  }

  void add_strand(const Box& box, Touch how) {
    begin_slice(true);
    add(box, how);
  }

  void complete(uint64_t slice) {
    progress.reach(sched::complete_name(slice));
    progress.advance_watermark();
  }

  uint64_t slice() const { return slice_; }

  sched::Progress progress;
  graph::BoxMap map;
  sched::WaitList waits;

 protected:
  int rank_;
  uint64_t strand_ = 0, slice_ = 0;
  size_t num_tasks_ = 0;
  std::vector<std::vector<size_t>> slices_;  ///< their tasks
};

/// Compares the order of random tasks with all pairs of accesses.
class OrderedTasks : public Tasks {
 public:
  using Tasks::Tasks;

  /// Adds a task that touches `part` of the box. Another dispatcher orders the tasks of a strand that
  /// `is_theirs`, by all that conflicts.
  void add(const Box& box, const Box& part, Touch how, bool is_theirs) {
    const bool begins_slice = slices_[slice_].empty() && slice_ > strand_;
    const std::vector<size_t>& last = slices_[begins_slice ? slice_ - 1 : slice_];
    Set before = done_;
    if (!last.empty()) put_before(before, last.back());
    Tasks::add(box, how, is_theirs);
    if (is_theirs) CHECK_EQ(waits.size(), 0);
    for (int i = 0; i < waits.size(); ++i) add_moment(before, waits[i]);
    for (size_t other = 0; other < parts_.size(); ++other) {
      const bool has_write = how != Touch::kRead || hows_[other] != Touch::kRead;
      if (!has_write || !graph::intersects(part, parts_[other], rank_)) continue;
      if (is_theirs) put_before(before, other);
      CHECK(before[other]);
    }
    before_.push_back(before);
    parts_.push_back(part);
    hows_.push_back(how);
  }

  /// Completes what has been closed and is chosen, after all that it waits for.
  template <class Random>
  void make_progress(Random& random) {
    for (uint64_t slice = 0; slice < slice_; ++slice) {
      if (progress.is_complete(slice) || random() % 4 != 0) continue;
      const bool is_ready = std::all_of(slices_[slice].begin(), slices_[slice].end(), [&](size_t task) {
        Set outside = before_[task] & ~done_;
        for (size_t own : slices_[slice]) outside.reset(own);
        return outside.none();
      });
      if (!is_ready) continue;
      for (size_t task : slices_[slice]) done_.set(task);
      complete(slice);
    }
  }

 private:
  using Set = std::bitset<kMaxTasks>;

  void put_before(Set& before, size_t other) const {
    before |= before_[other];
    before.set(other);
  }

  void add_moment(Set& before, sched::Name name) const {
    if (!sched::is_watermark_name(name)) {
      return put_before(before, slices_[sched::slice_of(name)][(name & sched::kTaskMask) - 1]);
    }
    CHECK(name <= slice_);
    for (uint64_t slice = 0; slice < name; ++slice) {
      for (size_t other : slices_[slice]) put_before(before, other);
    }
  }

  std::vector<Set> before_;
  std::vector<Box> parts_;
  std::vector<Touch> hows_;
  Set done_;
};

template <class Random>
Box random_box(Random& random, int rank, const int64_t* size, bool is_small) {
  Box box{};
  const uint64_t kind = is_small ? 2 : random() % 4;
  for (int d = 0; d < rank; ++d) {
    const int64_t most = kind == 0 ? size[d] : std::min<int64_t>(kind == 1 ? 3 : 1, size[d]);
    const bool is_whole = kind == 3 || (!is_small && random() % 4 == 0);
    const int64_t extent = is_whole ? size[d] : 1 + int64_t(random() % uint64_t(most));
    box.lo[d] = int64_t(random() % uint64_t(size[d] - extent + 1));
    box.hi[d] = box.lo[d] + extent;
  }
  return box;
}

void check_random(uint64_t seed) {
  std::mt19937_64 random(seed);
  int64_t size[3], typical[3];
  const auto rank = int(1 + random() % 3);
  for (int d = 0; d < rank; ++d) {
    size[d] = int64_t(1 + random() % (rank == 1 ? 700 : 40));
    typical[d] = int64_t(1 + random() % (random() % 2 == 0 ? 3 : 200));
  }
  const bool has_progress = random() % 8 != 0;
  OrderedTasks tasks(rank, size, typical, has_progress);
  const size_t count = 50 + random() % (kMaxTasks - 50);
  // Long slices have many live tasks and few names.
  const uint64_t reads = random() % 6, new_slices = 1 + random() % (random() % 2 == 0 ? 3 : 60);
  const uint64_t pause = 1 + random() % 20;
  // Many parts, before accesses of all sizes.
  const size_t num_small = random() % 2 == 0 ? count * 3 / 4 : 0;
  bool is_theirs = false;
  for (size_t task = 0; task < count; ++task) {
    if (task == 0 || random() % new_slices == 0) {
      const bool begins_strand = task == 0 || random() % 2 == 0;
      if (begins_strand) is_theirs = random() % 3 == 0;
      tasks.begin_slice(begins_strand);
    }
    const Box box = random_box(random, rank, size, task < num_small);
    Box part = box;
    Touch how = random() % 6 < reads ? Touch::kRead : Touch::kWrite;
    if (how == Touch::kWrite && is_theirs && random() % 2 == 0) {
      how = Touch::kWriteSome;
      for (int d = 0; d < rank; ++d) {
        part.lo[d] += int64_t(random() % uint64_t(box.hi[d] - box.lo[d]));
        part.hi[d] = part.lo[d] + 1;
      }
    }
    tasks.add(box, part, how, is_theirs);
    if (has_progress && random() % pause == 0) tasks.make_progress(random);
  }
}

Box rows(int64_t lo, int64_t hi) { return {{lo, 0}, {hi, 64}}; }

/// Entries and groups that n writers of rows and n readers of the whole pool look at, twice.
uint64_t count_probes(int64_t n, bool has_progress) {
  const int64_t size[] = {n, 64}, typical[] = {1, 64};
  Tasks tasks(2, size, typical, has_progress);
  for (int round = 0; round < 2; ++round) {
    for (int64_t i = 0; i < n; ++i) tasks.add_strand(rows(i, i + 1), Touch::kWrite);
    for (int64_t i = 0; i < n; ++i) tasks.add_strand(rows(0, n), Touch::kRead);
  }
  return tasks.map.num_probes();
}

/// The same for n writers of rows and n readers of columns.
uint64_t count_probes_of_columns(int64_t n) {
  const int64_t size[] = {n, n}, typical[] = {1, 1};
  Tasks tasks(2, size, typical);
  for (int64_t i = 0; i < n; ++i) tasks.add_strand({{i, 0}, {i + 1, n}}, Touch::kWrite);
  for (int64_t i = 0; i < n; ++i) tasks.add_strand({{0, i}, {n, i + 1}}, Touch::kRead);
  return tasks.map.num_probes();
}

}  // namespace

TEST(boxes_of_every_size_are_ordered) { seeds::for_seeds(1, uint64_t{600}, check_random); }

TEST(probes_grow_with_the_number_of_tasks) {
  for (const bool has_progress : {true, false}) {
    const uint64_t few = count_probes(256, has_progress), many = count_probes(4096, has_progress);
    CHECK(few > 0 && many < 16 * 2 * few);
    CHECK(many < 4 * 4096 * 100);
  }
  CHECK(count_probes_of_columns(1024) < 4 * 2 * count_probes_of_columns(256));
}

/// Each strand writes parts of its own row of cells, then reads the row.
TEST(a_strand_waits_for_no_other_one_that_touches_other_parts) {
  const int64_t size[] = {128 * 8, 64}, typical[] = {1, 64};
  Tasks tasks(2, size, typical);
  for (int64_t strand = 0; strand < 8; ++strand) {
    tasks.begin_slice(true);
    for (int64_t i = 0; i < 128; ++i) {
      if (i % 50 == 49) tasks.begin_slice(false);
      tasks.add(rows(strand * 128 + i, strand * 128 + i + 1), Touch::kWrite);
      CHECK_EQ(tasks.waits.size(), 0);
    }
    for (int64_t i = 0; i < 100; ++i) {
      tasks.add(rows(strand * 128, strand * 128 + 128), Touch::kRead);
      CHECK_EQ(tasks.waits.size(), 0);
    }
    tasks.add(rows(strand * 128 + 5, strand * 128 + 9), Touch::kWrite);
    CHECK_EQ(tasks.waits.size(), 0);
  }
}

/// An unrelated task that runs for long does not hold up a reader whose writers are complete.
TEST(a_reader_of_the_whole_waits_for_live_writers_alone) {
  const int64_t size[] = {1024, 64}, typical[] = {1, 64};
  Tasks tasks(2, size, typical);
  tasks.add_strand(rows(0, 1), Touch::kRead);  // slice 0 never completes
  for (int64_t i = 1; i < 1024; ++i) tasks.add_strand(rows(i, i + 1), Touch::kWrite);
  for (uint64_t slice = 1; slice < 1024; ++slice) {
    if (slice != 500 && slice != 777) tasks.complete(slice);
  }
  tasks.add_strand(rows(0, 1024), Touch::kRead);
  CHECK_EQ(tasks.waits.size(), 2);
  tasks.complete(500);
  tasks.complete(777);
  for (int i = 0; i < 100; ++i) {
    tasks.add_strand(rows(0, 1024), Touch::kRead);
    CHECK_EQ(tasks.waits.size(), 0);
  }
  const uint64_t before = tasks.map.num_probes();
  tasks.add_strand(rows(0, 1024), Touch::kRead);
  CHECK(tasks.map.num_probes() - before < 40);
}

}  // namespace test_box_map
