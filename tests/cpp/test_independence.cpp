// SPDX-License-Identifier: MIT
/// \file
/// Loops and their iterations against pairwise comparison: what is proven independent is, summaries count and
/// cover what an iteration does, and maps that only know summaries lose no order.
#include "planned.hpp"
#include "pto/wsp/graph/hazards.hpp"
#include "random_loops.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_independence {

using namespace pto::wsp;

namespace {

using namespace planned;

/// The iterations of one run of a loop: the registers where each began, and its tasks.
struct Iteration {
  std::vector<int64_t> registers;
  std::vector<Task> tasks;
};

/// Every run of a loop.
std::vector<std::vector<Iteration>> runs_of(Planned& planned, uint32_t loop,
                                            const std::vector<int64_t>& flushed) {
  const std::vector<bytecode::QuickStep> steps = planned.grouped([&](uint32_t each) { return each == loop; });
  std::vector<std::vector<Iteration>> runs;
  bytecode::Expander expander(planned.plan, steps);
  size_t num_flushed = 0;
  bool is_inside = false;
  for (;;) {
    const bytecode::Event event = expander.next();
    using Kind = bytecode::Event::Kind;
    if (event.kind == Kind::kEnd) return runs;
    if (event.kind == Kind::kFlush) expander.assign(event.index, flushed[num_flushed++]);
    if (event.kind == Kind::kEnter) runs.emplace_back(), is_inside = true;
    if (event.kind == Kind::kEnter || event.kind == Kind::kIteration)
      runs.back().push_back({expander.copy_registers(), {}});
    if (event.kind == Kind::kLeave) is_inside = false;
    if (event.kind != Kind::kTask || !is_inside) continue;
    runs.back().back().tasks.push_back(
        {event.index, expander.copy_registers(), touched_by(planned, event.index, expander.registers())});
  }
}

bool has_conflict(const Planned& planned, const std::vector<Iteration>& run) {
  for (size_t i = 0; i < run.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      for (const Task& a : run[i].tasks) {
        for (const Task& b : run[j].tasks) {
          if (conflict(planned, a, b)) return true;
        }
      }
    }
  }
  return false;
}

struct Score {
  int independent = 0;  ///< loops of more than one iteration without a conflict
  int proven = 0;       ///< of these
  int units = 0;        ///< iterations whose summary was compared
};

void check_summary(const Planned& planned, const graph::UnitSummary& unit, const Iteration& iteration) {
  const graph::UnitSummary::Shape shape = unit.shape(iteration.registers.data());
  CHECK_EQ(unit.count(shape), uint64_t(iteration.tasks.size()));
  std::vector<Touched> boxes;
  unit.for_boxes(
      shape, iteration.registers.data(), [&](uint32_t space, const graph::Box& box, graph::Touch how) {
        boxes.push_back({space, how != graph::Touch::kRead, box});
        if (how != graph::Touch::kWrite) return;
        // Every element of an exact box is written by some task.
        const size_t rank = planned.spaces[space].size.size();
        graph::Box at = box;
        for (size_t d = 0; d < rank; ++d) at.hi[d] = at.lo[d] + 1;
        for (size_t d = 0; d < rank;) {
          bool is_written = false;
          for (size_t k = 0; k < rank; ++k) is_written = is_written || box.lo[k] >= box.hi[k];  // empty
          for (const Task& task : iteration.tasks) {
            for (const Touched& one : task.touched)
              is_written = is_written || (one.space == space && one.writes && meet(one.box, at, rank));
          }
          CHECK(is_written);
          for (d = 0; d < rank; ++d) {
            if (++at.lo[d] < box.hi[d]) {
              at.hi[d] = at.lo[d] + 1;
              break;
            }
            at.lo[d] = box.lo[d];
            at.hi[d] = at.lo[d] + 1;
          }
        }
      });
  for (const Task& task : iteration.tasks) {
    for (const Touched& one : task.touched) {
      bool is_covered = false;
      for (const Touched& box : boxes) {
        if (box.space != one.space || (one.writes && !box.writes)) continue;
        bool inside = true;
        for (size_t d = 0; d < planned.spaces[one.space].size.size(); ++d)
          inside = inside && box.box.lo[d] <= one.box.lo[d] && box.box.hi[d] >= one.box.hi[d];
        is_covered = is_covered || inside;
      }
      CHECK(is_covered);
    }
  }
}

void check_loops(Planned& planned, const std::vector<int64_t>& flushed, Score& score) {
  for (uint32_t loop = 0; loop < planned.plan.loops.size(); ++loop) {
    const graph::UnitSummary unit(planned.plan, planned.spaces, loop);
    bool is_independent = true, is_several = false;
    for (const std::vector<Iteration>& run : runs_of(planned, loop, flushed)) {
      is_several = is_several || run.size() > 1;
      is_independent = is_independent && !has_conflict(planned, run);
      for (const Iteration& iteration : run) {
        if (!unit.is_closed()) continue;
        ++score.units;
        check_summary(planned, unit, iteration);
      }
    }
    CHECK(is_independent || !unit.is_independent());
    if (is_independent && is_several) ++score.independent, score.proven += unit.is_independent();
  }
}

/// Two dispatchers: one walks through everything, the other passes over some iterations of a loop. Tasks of
/// the iterations passed over wait for what the first one finds, all others for what the second one finds.
class Simulation {
 public:
  Simulation(Planned& planned, uint32_t loop, const std::vector<int64_t>& flushed, uint64_t seed,
             sched::Deps deps)
      : planned_(planned),
        flushed_(flushed),
        random_(seed),
        unit_(planned.plan, planned.spaces, loop),
        walking_(planned.plan, deps),
        skipping_(planned.plan, deps),
        steps_(planned.grouped([&](uint32_t each) { return each == loop; })) {}

  /// Whether there was anything to pass over.
  bool run() {
    if (!unit_.is_closed()) return false;
    bytecode::Expander expander(planned_.plan, steps_);
    size_t num_flushed = 0;
    for (;;) {
      const bytecode::Event event = expander.next();
      using Kind = bytecode::Event::Kind;
      if (event.kind == Kind::kEnd) return has_passed_over_;
      if (event.kind == Kind::kFlush) expander.assign(event.index, flushed_[num_flushed++]);
      if (event.kind == Kind::kEnter || event.kind == Kind::kIteration) begin(expander.registers());
      if (event.kind == Kind::kLeave) is_passed_over_ = false, needs_slice_ = true;
      if (event.kind == Kind::kTask) add(event.index, expander.copy_registers());
    }
  }

 private:
  void begin(const int64_t* registers) {
    open_slice();
    const graph::UnitSummary::Shape shape = unit_.shape(registers);
    const uint64_t count = unit_.count(shape);
    is_passed_over_ = count > 0 && random_() % 2 == 0;
    if (!is_passed_over_) return;
    has_passed_over_ = true;
    sched::WaitList waits(progress_);
    waits.begin(slice_, slice_);
    skipping_.pass_over(unit_, shape, registers, {sched::complete_name(slice_), slice_ + 1}, waits);
  }

  void open_slice() {
    slice_ = slices_.size();
    slices_.emplace_back();
    num_done_.push_back(0);
    needs_slice_ = false;
  }

  void add(uint32_t site, std::vector<int64_t> registers) {
    if (needs_slice_ || (!is_passed_over_ && random_() % 3 == 0)) open_slice();
    const size_t task = tasks_.size();
    tasks_.push_back({site, registers, touched_by(planned_, site, registers.data())});
    const sched::Stamp stamp{sched::task_name(slice_, slices_[slice_].size() + 1), slice_ + 1};
    sched::WaitList walked(progress_), skipped(progress_);
    walked.begin(slice_, slice_);
    walking_.access(site, registers.data(), stamp, walked);
    walked.finish();
    if (!is_passed_over_) {
      skipped.begin(slice_, slice_);
      skipping_.access(site, registers.data(), stamp, skipped);
      skipped.finish();
    }
    note_order(task, is_passed_over_ ? walked : skipped);
    slices_[slice_].push_back(task);
    for (size_t i = 0; i < task; ++i) CHECK(behind_[task][i] || !conflict(planned_, tasks_[i], tasks_[task]));
    make_progress();
  }

  void put_behind(size_t task, size_t other) {
    behind_[task][other] = true;
    for (size_t i = 0; i < other; ++i) behind_[task][i] = behind_[task][i] || behind_[other][i];
  }

  /// Behind the first `count` tasks of a slice.
  void put_behind_slice(size_t task, uint64_t slice, size_t count) {
    const std::vector<size_t>& tasks = slices_[slice];
    for (size_t i = 0; i < std::min(count, tasks.size()); ++i) put_behind(task, tasks[i]);
  }

  void note_order(size_t task, const sched::WaitList& waits) {
    behind_.emplace_back(is_done_);
    behind_.back().resize(task, false);
    is_done_.push_back(false);
    if (!slices_[slice_].empty()) put_behind(task, slices_[slice_].back());
    std::vector<sched::Name> names;
    for (int i = 0; i < waits.size(); ++i) {
      names.push_back(waits[i]);
      if (sched::is_watermark_name(waits[i])) {
        for (uint64_t slice = 0; slice < waits[i]; ++slice) put_behind_slice(task, slice, sched::kTaskMask);
      } else {
        put_behind_slice(task, sched::slice_of(waits[i]), waits[i] & sched::kTaskMask);
      }
    }
    waits_of_.push_back(names);
  }

  void make_progress() {
    for (uint64_t slice = 0; slice < slices_.size(); ++slice) {
      size_t& done = num_done_[slice];
      if (done < slices_[slice].size() && random_() % 8 == 0 && is_ready(slices_[slice][done])) {
        is_done_[slices_[slice][done]] = true;
        progress_.reach(sched::task_name(slice, ++done));
      }
      if (slice != slice_ && done == slices_[slice].size()) progress_.reach(sched::complete_name(slice));
    }
    progress_.advance_watermark();
  }

  bool is_ready(size_t task) const {
    const std::vector<sched::Name>& names = waits_of_[task];
    return std::all_of(names.begin(), names.end(),
                       [this](sched::Name name) { return progress_.has_passed(name); });
  }

  Planned& planned_;
  const std::vector<int64_t>& flushed_;
  std::mt19937_64 random_;
  graph::UnitSummary unit_;
  graph::Hazards walking_, skipping_;
  const std::vector<bytecode::QuickStep> steps_;
  sched::Progress progress_;
  std::vector<Task> tasks_;
  std::vector<bool> is_done_;
  std::vector<std::vector<bool>> behind_;    ///< per task, whether each one before it is ordered before it
  std::vector<std::vector<size_t>> slices_;  ///< their tasks
  std::vector<size_t> num_done_;             ///< per slice
  std::vector<std::vector<sched::Name>> waits_of_;
  uint64_t slice_ = 0;
  bool needs_slice_ = true;
  bool is_passed_over_ = false, has_passed_over_ = false;
};

/// Simulates every loop of a program; returns how many had something to pass over.
int simulate(Planned& planned, const std::vector<int64_t>& flushed, uint64_t seed) {
  const sched::Deps deps = seed % 4 == 0 ? sched::Deps::kBytes : sched::Deps::kExact;
  int num_passed_over = 0;
  for (uint32_t loop = 0; loop < planned.plan.loops.size(); ++loop)
    num_passed_over += Simulation(planned, loop, flushed, seed * 97 + loop, deps).run();
  return num_passed_over;
}

}  // namespace

TEST(proven_loops_of_nests_have_no_conflict) {
  Score score;
  seeds::for_seeds(1, uint64_t{1500}, [&](uint64_t seed) {
    const random_loops::Nest workload(seed);
    Planned planned(workload.bytes(), workload.shapes());
    check_loops(planned, {}, score);
  });
  std::printf("  %d of %d independent loops proven, %d iterations summarized\n", score.proven,
              score.independent, score.units);
  CHECK(score.proven * 10 >= score.independent * 5);
}

TEST(proven_loops_of_random_workloads_have_no_conflict) {
  Score score;
  seeds::for_seeds(1, uint64_t{600}, [&](uint64_t seed) {
    const random_workload::Workload workload(seed, 40);
    Planned planned(workload.bytes(), shapes_of(workload));
    check_loops(planned, workload.flushed(), score);
  });
  std::printf("  %d of %d independent loops proven, %d iterations summarized\n", score.proven,
              score.independent, score.units);
}

TEST(the_loops_of_a_llama_layer_are_proven_and_closed) {
  // Tiles of 32 rows: X -> Q, K, V; per tile of Q, over all tiles of K and V, O; then O -> Y in place.
  constexpr int64_t kRows = 32, kTiles = 40, kCols = 128;
  assembler::Assembler program(mix::library().table());
  enum : uint16_t { X, Q, K, V, O, S, kNumTensors };
  for (int i = 0; i < kNumTensors; ++i) program.tensor(DType::u64, {kTiles * kRows, kCols});
  const auto task = [&](uint16_t pattern, std::initializer_list<std::pair<uint16_t, uint32_t>> operands) {
    program.task(uint16_t(pattern * 3 + 1));
    size_t i = 0;
    for (const auto& [tensor, reg] : operands) {
      program.io(mix::patterns()[pattern][i++], tensor);
      program.range(program.mul(program.reg(reg), program.constant(kRows)), program.constant(kRows));
      program.full();
    }
  };
  const uint32_t i = program.loop(bytecode::Op::PARALLEL_FOR, program.constant(kTiles));
  for (uint16_t to : {Q, K, V}) task(2, {{X, i}, {to, i}});
  program.end();
  const uint32_t q = program.loop(bytecode::Op::PARALLEL_FOR, program.constant(kTiles));
  task(0, {{O, q}});
  const uint32_t k = program.loop(bytecode::Op::RANGE_FOR, program.constant(kTiles));
  task(4, {{Q, q}, {K, k}, {S, q}});
  task(1, {{S, q}});
  task(3, {{V, k}, {O, q}});
  program.end();
  program.end();
  const uint32_t o = program.loop(bytecode::Op::PARALLEL_FOR, program.constant(kTiles));
  task(2, {{O, o}, {X, o}});
  task(1, {{X, o}});
  program.end();
  Planned planned(program.bytes(), std::vector<Shape>(kNumTensors, Shape{kTiles * kRows, kCols}));
  const uint64_t counts[] = {3, 1 + 3 * kTiles, 3, 2};
  for (uint32_t loop : {0u, 1u, 3u}) {
    const graph::UnitSummary unit(planned.plan, planned.spaces, loop);
    CHECK(unit.is_independent() && unit.is_closed());
    const std::vector<int64_t> registers(planned.plan.program().header.num_registers, 0);
    CHECK_EQ(unit.count(unit.shape(registers.data())), counts[loop]);
    int num_boxes = 0;
    unit.for_boxes(unit.shape(registers.data()), registers.data(),
                   [&](uint32_t, const graph::Box&, graph::Touch how) {
                     CHECK(how != graph::Touch::kWriteSome);
                     ++num_boxes;
                   });
    CHECK_EQ(num_boxes, loop == 0 ? 4 : loop == 1 ? 5 : 2);
  }
  CHECK(!graph::is_independent(planned.plan, planned.spaces, 2));
}

TEST(passing_over_iterations_loses_no_order) {
  int num_passed_over = 0;
  seeds::for_seeds(1, uint64_t{300}, [&](uint64_t seed) {
    const random_loops::Nest nest(seed);
    Planned planned(nest.bytes(), nest.shapes());
    num_passed_over += simulate(planned, {}, seed);
    const random_workload::Workload workload(seed, 60);
    if (workload.tasks().size() > 200) return;
    Planned second(workload.bytes(), shapes_of(workload));
    num_passed_over += simulate(second, workload.flushed(), seed);
  });
  std::printf("  %d loops passed over in part\n", num_passed_over);
  CHECK(num_passed_over > 300);
}

}  // namespace test_independence
