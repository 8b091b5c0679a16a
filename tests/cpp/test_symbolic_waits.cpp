// SPDX-License-Identifier: MIT
/// \file
/// Symbolic waits: each pair of tasks that must be ordered is covered, each pair of accesses that is left out
/// and each wait that is shortened is noticed, and runs keep the order.
#include <chrono>

#include "planned.hpp"
#include "pto/wsp/engine.hpp"
#include "pto/wsp/graph/unit_history.hpp"
#include "pto/wsp/sched/strands.hpp"
#include "random_loops.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_symbolic_waits {

using namespace pto::wsp;
using namespace planned;

namespace {

/// Loops whose iterations have rows that elements of arrays name: ragged rows in a piece or in tiles, and
/// single rows, which may be equal.
class Rows : public random_loops::Loops {
 public:
  explicit Rows(uint64_t seed) : Loops(seed) {
    num_rows_ = pick(2, 6);
    kind_ = pick(0, 2);
    offsets_ = {pick(0, 2)};
    for (int64_t row = 0; row < num_rows_; ++row) {
      offsets_.push_back(offsets_.back() + pick(1, 4));
      places_.push_back(row);
    }
    choices_.shuffle(places_);
    are_alike_ = kind_ == kSingle && pick(0, 1) == 0;
    if (are_alike_) places_[0] = places_[1];
    add_tensor(kOffsets, DType::u64, {num_rows_ + 1}, false);
    add_tensor(kPlaces, DType::u64, {num_rows_}, false);
    add_tensor(kFirst, DType::u64, {offsets_.back() + 4}, true);
    const int num_loops = pick(1, 2);
    for (int i = 0; i < num_loops; ++i) add_loop();
    finish();
  }

  std::vector<char*> bases() {
    return {reinterpret_cast<char*>(offsets_.data()), reinterpret_cast<char*>(places_.data())};
  }
  /// Whether two iterations of a loop name one row.
  bool are_alike() const { return are_alike_; }

 private:
  enum : uint16_t { kOffsets, kPlaces, kFirst };
  enum { kWhole, kTiles, kSingle };
  using Expr = assembler::Expr;

  void add_loop() {
    using assembler::Assembler;
    const Expr i = Assembler::reg(program_.loop(bytecode::Op::PARALLEL_FOR, program_.constant(num_rows_)));
    const Expr begin = Assembler::element(kOffsets, {i});
    const Expr end = Assembler::element(kOffsets, {program_.add(i, program_.constant(1))});
    const Expr length = Assembler::apply(bytecode::Op::EXPR_SUB, {end, begin});
    if (kind_ == kWhole) add_task(begin, length);
    if (kind_ == kSingle) add_task(Assembler::element(kPlaces, {i}), program_.constant(1));
    if (kind_ == kTiles) {
      const uint32_t tile = program_.tiles(bytecode::Op::PARALLEL_FOR, length, program_.constant(pick(1, 3)));
      add_task(program_.add(begin, Assembler::reg(tile + 1)), Assembler::reg(tile + 2));
      program_.end();
    }
    program_.end();
  }

  void add_task(const Expr& start, const Expr& extent) {
    const auto& patterns = mix::patterns();
    const std::vector<Role> roles{Role::inout};
    const auto found = std::find(patterns.begin(), patterns.end(), roles);
    program_.task(uint16_t((found - patterns.begin()) * 3));
    program_.io(Role::inout, kFirst);
    program_.range(start, extent);
  }

  int64_t num_rows_ = 0;
  int kind_ = kWhole;
  bool are_alike_ = false;
  std::vector<int64_t> offsets_, places_;
};

/// The analysis of a plan, and what it says about each unit of a walk.
class Analysis {
 public:
  explicit Analysis(const Planned& planned)
      : plan_(planned.plan),
        marks_(sched::mark_units(planned.plan, 2)),
        waits_(planned.plan, marks_.loops, units()) {}

  graph::SymbolicWaits& waits() { return waits_; }
  bool has_maps() const { return waits_.has_maps(); }

  /// The unit of each task in program order, and the wait of each unit.
  void walk() {
    unit_of_.clear();
    wait_of_.clear();
    const auto steps = bytecode::with_events(plan_, [&](uint32_t loop) { return waits_.events()[loop]; });
    bytecode::Expander expander(plan_, steps);
    graph::UnitHistory history(waits_);
    const auto begin = [&](int32_t place) {
      if (place < 0) return;
      history.begin(uint32_t(place), expander.registers());
      wait_of_.push_back(history.find_wait(uint32_t(place), expander.registers()));
      history.note(uint32_t(place));
    };
    for (;;) {
      const bytecode::Event event = expander.next();
      using Kind = bytecode::Event::Kind;
      if (event.kind == Kind::kEnd) return;
      if (event.kind == Kind::kEnter) history.enter(event.index);
      if (event.kind == Kind::kIteration) history.begin_iteration(event.index);
      if (event.kind == Kind::kUnit) begin(waits_.place_of_loop(event.index));
      if (event.kind != Kind::kTask) continue;
      begin(waits_.place_of_site(event.index));
      unit_of_.push_back(size_t(history.num_units() - 1));
      if (!waits_.is_looked_up(event.index)) continue;
      int64_t& wait = wait_of_.back();
      wait = std::max(wait, history.look_up(event.index, expander.registers(), true));
    }
  }

  size_t unit_of(size_t task) const { return unit_of_[task]; }
  int64_t& wait_of(size_t unit) { return wait_of_[unit]; }
  size_t num_units() const { return wait_of_.size(); }

 private:
  std::vector<bool> units() const {
    std::vector<bool> is_unit;
    for (const sched::Marks::Site& site : marks_.sites) is_unit.push_back(site.is_unit);
    return is_unit;
  }

  const bytecode::Plan& plan_;
  const sched::Marks marks_;
  graph::SymbolicWaits waits_;
  std::vector<size_t> unit_of_;
  std::vector<int64_t> wait_of_;
};

/// The last unit that each unit must wait for; -1 if there is none.
std::vector<int64_t> needed_waits(Planned& planned, const Analysis& analysis, size_t num_units) {
  const std::vector<PlacedTask> tasks = planned::walk(planned, {}, bytecode::Op::FOR_EACH);
  std::vector<int64_t> needed(num_units, -1);
  for (size_t j = 0; j < tasks.size(); ++j) {
    for (size_t i = 0; i < j; ++i) {
      const size_t first = analysis.unit_of(i), second = analysis.unit_of(j);
      if (first == second) continue;
      if (are_in_different_iterations(tasks[i].place, tasks[j].place) ||
          conflict(planned, tasks[i].task, tasks[j].task))
        needed[second] = std::max(needed[second], int64_t(first));
    }
  }
  return needed;
}

bool covers(Analysis& analysis, const std::vector<int64_t>& needed) {
  for (size_t unit = 0; unit < needed.size(); ++unit) {
    if (analysis.wait_of(unit) < needed[unit]) return false;
  }
  return true;
}

struct Score {
  int programs = 0, waits = 0, exact = 0, dropped = 0, noticed = 0, shortened = 0;
  int with_maps = 0, mixed = 0, unmapped = 0, unmapped_noticed = 0;
};

/// Each pair of accesses and each map is left out once, and each exact wait is shortened by one unit.
void mutate(Planned& planned, const std::vector<int64_t>& needed, Analysis& analysis, Score& score) {
  for (size_t unit = 0; unit < needed.size(); ++unit) {
    score.waits += needed[unit] >= 0;
    if (analysis.wait_of(unit) != needed[unit] || needed[unit] < 0) continue;
    ++score.exact;
    --analysis.wait_of(unit);
    CHECK(!covers(analysis, needed));
    ++analysis.wait_of(unit);
    ++score.shortened;
  }
  for (uint32_t place = 0; place < analysis.waits().num_places(); ++place) {
    for (size_t pair = 0; pair < analysis.waits().num_pairs_of(place); ++pair) {
      Analysis mutant(planned);
      mutant.waits().drop(place, pair);
      mutant.walk();
      ++score.dropped;
      score.noticed += !covers(mutant, needed);
    }
  }
  for (uint32_t memory = 0; memory < analysis.waits().is_mapped().size(); ++memory) {
    if (!analysis.waits().is_mapped()[memory]) continue;
    Analysis mutant(planned);
    mutant.waits().drop_map(memory);
    mutant.walk();
    ++score.unmapped;
    score.unmapped_noticed += !covers(mutant, needed);
  }
}

void check_plan(Planned& planned, Score& score) {
  for (const bytecode::QuickSet& set : planned.plan.sets) {
    if (set.is_flush) return;  // its value is that of a run
  }
  Analysis analysis(planned);
  if (!analysis.waits().is_complete()) return;
  analysis.walk();
  const std::vector<int64_t> needed = needed_waits(planned, analysis, analysis.num_units());
  CHECK(covers(analysis, needed));
  ++score.programs;
  score.with_maps += analysis.waits().has_maps();
  score.mixed += analysis.waits().has_maps() && analysis.waits().num_symbolic() > 0;
  mutate(planned, needed, analysis, score);
}

void run_workload(uint64_t seed, int& num_symbolic) {
  using random_workload::Workload;
  const Workload workload(seed, 150);
  const std::vector<uint8_t> bytes = workload.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  for (uint32_t workers = 2; workers < 5; ++workers) {
    std::vector<random_workload::Tensor> found = workload.tensors();
    mix::stamps().reset(workload.tasks().size());
    sched::RunOptions options{workers, false, workers % 2 == 1 ? seed * 8 + workers : 0};
    options.verifies = seed % 2 == 0;
    options.waits = sched::Waits::kSymbolic;
    const RunResult result = executable.run(Workload::to_arrays(found), {}, options);
    num_symbolic += result.is_symbolic();
    CHECK_EQ(result.tasks, workload.tasks().size());
    CHECK(result.order_violations.value_or(0) == 0);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].data == workload.results()[i].data);
    workload.check_order(mix::stamps());
  }
}

}  // namespace

TEST(each_symbolic_wait_covers_what_must_be_ordered_and_no_less) {
  Score score;
  seeds::for_seeds(1, uint64_t{1500}, [&](uint64_t seed) {
    const random_loops::Nest nest(seed);
    Planned planned(nest.bytes(), nest.shapes());
    if (planned::walk(planned, {}, bytecode::Op::FOR_EACH).size() <= 60) check_plan(planned, score);
  });
  seeds::for_seeds(1, uint64_t{400}, [&](uint64_t seed) {
    const random_workload::Workload workload(seed, 40);
    if (workload.tasks().size() > 60) return;
    Planned planned(workload.bytes(), shapes_of(workload));
    check_plan(planned, score);
  });
  std::printf("  %d programs, %d waits, %d of them exact; %d pairs left out, %d of them needed\n",
              score.programs, score.waits, score.exact, score.dropped, score.noticed);
  std::printf("  %d programs with maps, %d of them mixed; %d maps left out, %d of them needed\n",
              score.with_maps, score.mixed, score.unmapped, score.unmapped_noticed);
  CHECK(score.programs > 300);
  CHECK(score.mixed > 30);
  CHECK(score.unmapped_noticed > 30);
  CHECK(score.noticed > 100);
  CHECK(score.shortened > 300);
}

TEST(elements_tell_which_iterations_conflict) {
  Score score;
  int num_apart = 0, num_alike = 0;
  seeds::for_seeds(1, uint64_t{600}, [&](uint64_t seed) {
    Rows rows(seed);
    Planned planned(rows.bytes(), rows.shapes(), rows.bases());
    Analysis analysis(planned);
    CHECK(analysis.waits().is_complete());
    CHECK_EQ(analysis.waits().has_maps(), rows.are_alike());
    (rows.are_alike() ? num_alike : num_apart) += 1;
    check_plan(planned, score);
  });
  std::printf("  %d programs with rows apart, %d with equal rows; %d waits, %d of them exact\n", num_apart,
              num_alike, score.waits, score.exact);
  CHECK(num_apart > 100);
  CHECK(num_alike > 50);
}

TEST(runs_with_symbolic_waits_keep_every_order) {
  int num_symbolic = 0;
  seeds::for_seeds(1, std::chrono::seconds(3), [&](uint64_t seed) { run_workload(seed, num_symbolic); });
  CHECK(num_symbolic > 20);
}

}  // namespace test_symbolic_waits
