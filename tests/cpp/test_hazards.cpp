// SPDX-License-Identifier: MIT
/// \file
/// Hazards without threads: over random workloads, random strands and random progress, the waits that are
/// found order every conflicting pair, and those that name a task name one that conflicts.
#include <ctime>
#include <functional>

#include "planned.hpp"
#include "pto/wsp/bytecode/quicken.hpp"
#include "pto/wsp/bytecode/validate.hpp"
#include "pto/wsp/engine.hpp"
#include "random_rows.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_hazards {

using namespace pto::wsp;

namespace {

/// Whether a task may name another one to wait for.
bool may_wait(const random_workload::Task& a, const random_workload::Task& b) {
  return random_workload::conflict(a, b);
}

/// What the flush points of a workload read.
std::vector<int64_t> flushed_by(const random_workload::Workload& workload) { return workload.flushed(); }
std::vector<int64_t> flushed_by(const random_rows::Workload&) { return {}; }

char* base_of(const random_workload::Tensor&) { return nullptr; }
char* base_of(const random_rows::Tensor& tensor) {
  return reinterpret_cast<char*>(const_cast<int32_t*>(tensor.indices.data()));
}

/// Plays dispatcher and workers for one workload.
template <class Workload>
class Simulation {
 public:
  Simulation(const Workload& workload, uint64_t seed)
      : workload_(workload),
        random_(seed),
        bytes_(workload.bytes()),
        program_(load()),
        plan_(quicken()),
        hazards_(plan_),
        waits_(progress_),
        is_done_(workload.tasks().size()),
        behind_(workload.tasks().size()) {}

  void run() {
    const std::vector<int64_t> flushed = flushed_by(workload_);
    bytecode::Replay replay(plan_, flushed);
    for (size_t task = 0; task < workload_.tasks().size(); ++task) {
      const int64_t site = replay.next_task();
      CHECK(site >= 0);
      choose_slice(task);
      waits_.begin(strand_of_[slice_], slice_);
      hazards_.access(uint32_t(site), replay.expander().registers(),
                      {sched::task_name(slice_, slices_[slice_].size() + 1), slice_ + 1}, waits_);
      waits_.finish();
      note_order(task);
      slices_[slice_].push_back(task);
      check_order(task);
      make_progress();
    }
    CHECK(replay.next_task() < 0);
  }

 private:
  bytecode::Program load() const {
    return bytecode::load_program(bytes_.data(), bytes_.size(), mix::library().table());
  }

  bytecode::Plan quicken() const {
    std::vector<bytecode::TensorLayout> layouts;
    std::vector<char*> bases;
    for (const auto& tensor : workload_.tensors()) {
      bytecode::TensorLayout layout{};
      std::copy(tensor.shape.begin(), tensor.shape.end(), layout.shape);
      std::copy(tensor.stride.begin(), tensor.stride.end(), layout.stride);
      layout.group = uint32_t(layouts.size());
      layouts.push_back(layout);
      bases.push_back(base_of(tensor));
    }
    bytecode::Plan plan = bytecode::make_plan({&program_, {}}, layouts, mix::library().table());
    bytecode::bind_elements(plan, bases);
    bytecode::look_at_rows(plan);
    return plan;
  }

  void choose_slice(size_t task) {
    if (task > 0 && random_() % 3 != 0) return;           // the same slice goes on
    const bool goes_on = task > 0 && random_() % 2 == 0;  // with the strand
    strand_of_.push_back(goes_on ? strand_of_[slice_] : slices_.size());
    slice_ = slices_.size();
    slices_.emplace_back();
    num_done_.push_back(0);
  }

  void put_behind(size_t task, size_t other) {
    behind_[task].resize(workload_.tasks().size());
    behind_[task][other] = true;
    for (size_t i = 0; i < other; ++i) {
      if (!behind_[other].empty() && behind_[other][i]) behind_[task][i] = true;
    }
  }

  /// Collects what is ordered before `task`: its slice, its waits, what was complete, and all that is before
  /// those.
  void note_order(size_t task) {
    behind_[task].assign(workload_.tasks().size(), false);
    for (size_t i = 0; i < task; ++i) {
      if (is_done_[i]) behind_[task][i] = true;
    }
    if (!slices_[slice_].empty()) {
      put_behind(task, slices_[slice_].back());
    } else if (slice_ != strand_of_[slice_]) {
      put_behind(task, slices_[slice_ - 1].back());
    }
    std::vector<sched::Name> names;
    for (int i = 0; i < waits_.size(); ++i) {
      const sched::Name name = waits_[i];
      if (sched::is_watermark_name(name)) {
        CHECK(name <= slice_);
        for (uint64_t slice = 0; slice < name; ++slice) {
          for (const size_t other : slices_[slice]) put_behind(task, other);
        }
      } else {
        const size_t other = slices_[sched::slice_of(name)][(name & sched::kTaskMask) - 1];
        put_behind(task, other);
        CHECK(may_wait(workload_.tasks()[other], workload_.tasks()[task]));
      }
      names.push_back(name);
    }
    waits_of_.push_back(names);
  }

  void check_order(size_t task) const {
    for (size_t i = 0; i < task; ++i) {
      if (conflict(workload_.tasks()[i], workload_.tasks()[task])) CHECK(behind_[task][i]);
    }
  }

  /// Completes some tasks whose turn it is.
  void make_progress() {
    for (uint64_t slice = 0; slice < slices_.size(); ++slice) {
      if (slice != strand_of_[slice] && !progress_.is_complete(slice - 1)) continue;
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

  const Workload& workload_;
  std::mt19937_64 random_;
  std::vector<uint8_t> bytes_;
  bytecode::Program program_;
  bytecode::Plan plan_;
  graph::Hazards hazards_;
  sched::Progress progress_;
  sched::WaitList waits_;
  std::vector<bool> is_done_;
  std::vector<std::vector<bool>> behind_;
  std::vector<std::vector<size_t>> slices_;  ///< their tasks
  std::vector<size_t> num_done_;             ///< per slice
  std::vector<uint64_t> strand_of_;          ///< per slice, the first one of its strand
  std::vector<std::vector<sched::Name>> waits_of_;
  uint64_t slice_ = 0;
};

std::vector<bind::ArrayRef> to_arrays(std::vector<random_rows::Tensor>& tensors) {
  std::vector<bind::ArrayRef> arrays;
  for (random_rows::Tensor& tensor : tensors) {
    bind::ArrayRef ref;
    const bool is_data = tensor.indices.empty();
    ref.data = is_data ? static_cast<void*>(tensor.data.data()) : tensor.indices.data();
    ref.dtype = is_data ? DType::u64 : DType::i32;
    ref.rank = int(tensor.shape.size());
    for (int d = 0; d < ref.rank; ++d) {
      ref.shape[d] = tensor.shape[size_t(d)];
      ref.stride_bytes[d] = tensor.stride[size_t(d)] * dtype_bytes(ref.dtype);
    }
    arrays.push_back(ref);
  }
  return arrays;
}

std::string load(const assembler::Assembler& program) {
  const std::vector<uint8_t> bytes = program.bytes();
  return check::code_of([&] { bytecode::load_program(bytes.data(), bytes.size(), mix::library().table()); });
}

/// One slow task on [first_lo, first_hi), then others: whoever conflicts must start after its end.
void check_pair(uint16_t first_kernel, int64_t first_extent, uint16_t second_kernel, int64_t second_tile) {
  assembler::Assembler program(mix::library().table());
  program.tensor(DType::u64, {64});
  program.tensor(DType::u64, {64});
  program.task(first_kernel);
  const auto io = [&](uint16_t kernel, const std::function<void()>& dim) {
    for (Role role : mix::patterns()[kernel / 3u]) {
      const bool uses_shared = mix::patterns()[kernel / 3u].size() == 1 || role == Role::in;
      program.io(role, uses_shared ? 0 : 1);
      dim();
    }
  };
  io(first_kernel, [&] { program.range(program.constant(5), program.constant(first_extent)); });
  const uint32_t reg =
      program.tiles(bytecode::Op::PARALLEL_FOR, program.constant(64), program.constant(second_tile));
  program.task(second_kernel);
  io(second_kernel, [&] { program.tile(program.axis_of(reg)); });
  program.end();
  const std::vector<uint8_t> bytes = program.bytes();
  Executable executable(bytes.data(), bytes.size(), mix::library().shared());
  std::vector<uint64_t> a(64), b(64);
  std::vector<bind::ArrayRef> arrays(2);
  for (size_t i = 0; i < 2; ++i) {
    arrays[i].data = i == 0 ? a.data() : b.data();
    arrays[i].dtype = DType::u64;
    arrays[i].rank = 1;
    arrays[i].shape[0] = 64;
    arrays[i].stride_bytes[0] = 8;
  }
  const auto tiles = size_t((64 + second_tile - 1) / second_tile);
  for (uint32_t workers = 1; workers <= 4; ++workers) {
    mix::stamps().reset(1 + tiles);
    mix::stamps().pause = [](uint64_t task) {
      if (task == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    executable.run(arrays, {}, {workers, false, 0});
    for (size_t i = 0; i < tiles; ++i) {
      const int64_t lo = int64_t(i) * second_tile, hi = std::min<int64_t>(lo + second_tile, 64);
      if (lo < 5 + first_extent && hi > 5) CHECK(mix::stamps().start[1 + i] > mix::stamps().end[0]);
    }
  }
}

/// Seconds that `count` accesses take this thread while none of them completes; `box_of` makes the i-th.
double time_accesses(int64_t count, graph::Touch how, const std::function<graph::Box(int64_t)>& box_of) {
  const int64_t size[] = {4096, 4096}, typical[] = {64, 64};
  graph::BoxMap map(2, size, typical);
  sched::Progress progress;
  sched::WaitList waits(progress);
  timespec start, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
  for (int64_t i = 0; i < count; ++i) {
    waits.begin(uint64_t(i), uint64_t(i));
    map.access(box_of(i), how, {sched::task_name(uint64_t(i), 1), uint64_t(i) + 1}, waits);
  }
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return double(end.tv_sec - start.tv_sec) + double(end.tv_nsec - start.tv_nsec) * 1e-9;
}

constexpr uint16_t kWrite = 0, kReadWriteOther = 6;  // see mix_kernels.hpp: {out} and {in, out} of rank 1

}  // namespace

TEST(waits_order_every_conflict) {
  seeds::for_seeds(1, uint64_t{300}, [&](uint64_t seed) {
    const random_workload::Workload workload(seed, 60);
    if (workload.tasks().size() > 400) return;
    Simulation(workload, seed).run();
  });
}

TEST(waits_order_every_conflict_of_row_sets) {
  seeds::for_seeds(1, uint64_t{300}, [&](uint64_t seed) {
    const random_rows::Workload workload(seed);
    Simulation(workload, seed).run();
  });
}

TEST(row_sets_give_the_result_of_program_order) {
  seeds::for_seeds(1, std::chrono::seconds(4), [](uint64_t seed) {
    const random_rows::Workload workload(seed);
    std::vector<random_rows::Tensor> expected = workload.tensors();
    workload.run_in_order(expected);
    const std::vector<uint8_t> bytes = workload.bytes();
    Executable executable(bytes.data(), bytes.size(), mix::library().shared());
    for (uint32_t round = 0; round < 4; ++round) {
      std::vector<random_rows::Tensor> found = workload.tensors();
      mix::stamps().reset(workload.tasks().size());
      const uint32_t workers = round == 0 ? 1 : uint32_t(1 + (seed + round * 3) % 8);
      executable.run(to_arrays(found), {}, {workers, false, round % 2 * (seed * 8 + round)});
      for (size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i].data == expected[i].data && found[i].indices == expected[i].indices);
      }
      workload.check_order(mix::stamps());
    }
  });
}

TEST(read_after_write_waits) {
  check_pair(kWrite, 20, kReadWriteOther, 8);
  check_pair(kWrite, 3, kReadWriteOther, 7);
}

TEST(write_after_read_waits) {
  check_pair(kReadWriteOther, 20, kWrite, 8);
  check_pair(kReadWriteOther, 1, kWrite, 64);
}

TEST(write_after_write_waits) {
  check_pair(kWrite, 20, kWrite, 8);
  check_pair(kWrite, 59, kWrite, 5);
}

/// The number of waits of the second of two tasks that write parts of a [4, 8] tensor.
int waits_between(sched::Deps deps, bool by_rows) {
  assembler::Assembler program(mix::library().table());
  program.tensor(DType::u64, {4, 8});
  const uint32_t reg = program.loop(bytecode::Op::PARALLEL_FOR, program.constant(2));
  program.task(1);  // {out} of rank 2
  program.io(Role::out, 0);
  const assembler::Expr start = program.mul(program.reg(reg), program.constant(2));
  if (!by_rows) program.full();
  program.range(start, program.constant(2));
  if (by_rows) program.full();
  program.end();
  const planned::Planned planned(program.bytes(), {{4, 8}});
  graph::Hazards hazards(planned.plan, deps);
  sched::Progress progress;
  sched::WaitList waits(progress);
  for (int64_t i = 0; i < 2; ++i) {
    waits.begin(uint64_t(i), uint64_t(i));
    hazards.access(0, &i, {sched::task_name(uint64_t(i), 1), uint64_t(i) + 1}, waits);
    waits.finish();
  }
  return waits.size();
}

TEST(ranges_of_memory_order_more_than_elements) {
  CHECK_EQ(waits_between(sched::Deps::kExact, true), 0);
  CHECK_EQ(waits_between(sched::Deps::kExact, false), 0);
  CHECK_EQ(waits_between(sched::Deps::kBytes, true), 0);
  CHECK_EQ(waits_between(sched::Deps::kBytes, false), 1);
}

/// Waits of a task that writes row `row` of a [16, 8] tensor after one that reads the rows 3, 9 and 12 of it.
int waits_of_writer(int64_t row, sched::Deps deps) {
  assembler::Assembler program(mix::library().table());
  program.tensor(DType::u64, {16, 8});
  program.tensor(DType::u64, {16, 8});
  program.tensor(DType::i32, {4, 1}, false);
  const uint32_t reg = program.loop(bytecode::Op::PARALLEL_FOR, program.constant(16));
  program.task(kReadWriteOther + 1);
  program.io(Role::in, 0);
  program.rows(2, program.constant(1), program.constant(3));
  program.full();
  program.io(Role::out, 1);
  program.range(program.constant(0), program.constant(3));
  program.full();
  program.task(1);  // {out} of rank 2
  program.io(Role::out, 0);
  program.range(program.reg(reg), program.constant(1));
  program.full();
  program.end();
  int32_t indices[] = {5, 9, 3, 12};
  const planned::Planned planned(program.bytes(), {{16, 8}, {16, 8}, {4, 1}},
                                 {nullptr, nullptr, reinterpret_cast<char*>(indices)});
  graph::Hazards hazards(planned.plan, deps);
  sched::Progress progress;
  sched::WaitList waits(progress);
  for (uint32_t site = 0; site < 2; ++site) {
    waits.begin(site, site);
    hazards.access(site, &row, {sched::task_name(site, 1), site + 1}, waits);
    waits.finish();
  }
  return waits.size();
}

/// Each strand writes its own 128 cells at once, then one by one, and reads all of them.
TEST(a_strand_waits_for_no_ranges_of_other_strands) {
  graph::Grid grid;
  grid.num_cells = 1024;
  grid.is_wide = true;
  graph::DenseMap map(grid);
  sched::Progress progress;
  sched::WaitList waits(progress);
  for (uint64_t slice = 0; slice < 16; ++slice) {
    const uint64_t strand = slice / 2 * 2;
    graph::CellBox range{int64_t(strand) * 64, 1, {128}, {1}};
    uint64_t tasks = 0;
    const auto access = [&](const graph::CellBox& box, graph::Touch how) {
      waits.begin(strand, slice);
      map.access(box, how, {sched::task_name(slice, ++tasks), slice + 1}, waits);
      waits.finish();
      CHECK_EQ(waits.size(), 0);
    };
    access(range, graph::Touch::kWrite);
    for (int64_t i = 0; i < 128; i += 3) access({range.first + i, 0, {}, {}}, graph::Touch::kWrite);
    access(range, graph::Touch::kRead);
  }
}

TEST(row_sets_and_boxes_conflict_in_common_rows) {
  for (const sched::Deps deps : {sched::Deps::kExact, sched::Deps::kBytes}) {
    for (int64_t row = 0; row < 16; ++row)
      CHECK_EQ(waits_of_writer(row, deps), row == 3 || row == 9 || row == 12 ? 1 : 0);
  }
}

TEST(live_accesses_do_not_make_later_ones_slow) {
  const std::function<graph::Box(int64_t)> shapes[] = {
      [](int64_t) { return graph::Box{{100, 100}, {140, 141}}; },
      [](int64_t i) { return graph::Box{{0, i * 13 % 4000}, {4096, i * 13 % 4000 + 70}}; },
      [](int64_t i) { return graph::Box{{i % 2000, 7}, {i % 2000 + 1000, 4000}}; },
  };
  for (const auto& shape : shapes) {
    for (const graph::Touch how : {graph::Touch::kRead, graph::Touch::kWriteSome}) {
      const double few = time_accesses(500, how, shape), many = time_accesses(8000, how, shape);
      CHECK(many < 16 * 4 * few + 0.01);
    }
  }
}

TEST(row_sets_are_checked) {
  struct Tensors {
    uint16_t data, indices, flat, wide;
  };
  const auto with_io = [](const std::function<void(assembler::Assembler&, Tensors)>& build) {
    assembler::Assembler program(mix::library().table());
    const Tensors tensors{program.tensor(DType::u64, {4, 5, 6}), program.tensor(DType::i32, {9, 1}, false),
                          program.tensor(DType::i32, {9}, false), program.tensor(DType::i32, {9, 2}, false)};
    program.task(4);
    build(program, tensors);
    return load(program);
  };
  const auto with_dims = [&](const std::function<void(assembler::Assembler&, Tensors)>& build) {
    return with_io([&](assembler::Assembler& program, Tensors tensors) {
      program.io(Role::inout, tensors.data);
      build(program, tensors);
    });
  };
  const auto rows = [](assembler::Assembler& program, uint16_t indices, int merged) {
    program.rows(indices, program.constant(0), program.constant(3), merged);
  };
  CHECK(with_dims([&](assembler::Assembler& p, Tensors t) { rows(p, t.indices, 1), p.full(); }) == "none");
  CHECK(with_dims([&](assembler::Assembler& p, Tensors t) {
          rows(p, t.indices, 0), p.index(p.constant(0)), p.full();
        }) == "none");
  // The view's rank, the dimension, the index tensor, and what follows.
  CHECK(with_dims([&](assembler::Assembler& p, Tensors t) { rows(p, t.indices, 2); }) == "bad-bytecode");
  CHECK(with_dims([&](assembler::Assembler& p, Tensors t) { rows(p, t.indices, 3); }) == "bad-bytecode");
  CHECK(with_dims([&](assembler::Assembler& p, Tensors t) {
          p.index(p.constant(0)), rows(p, t.indices, 0), p.full();
        }) == "bad-bytecode");
  for (uint16_t bad : {uint16_t(0), uint16_t(2), uint16_t(3), uint16_t(4)}) {
    CHECK(with_dims([&](assembler::Assembler& p, Tensors) { rows(p, bad, 1), p.full(); }) == "bad-bytecode");
  }
  CHECK(with_dims([&](assembler::Assembler& p, Tensors) {
          p.emit(bytecode::Op::DIM_MERGED, 0, 0), p.full(), p.full();
        }) == "bad-bytecode");
  CHECK(with_dims([&](assembler::Assembler& p, Tensors t) {
          rows(p, t.indices, 0), p.index(p.constant(0)), p.emit(bytecode::Op::DIM_MERGED, 0, 0);
        }) == "bad-bytecode");
  // Amounts: each at most once, workspace first.
  const auto with_tail = [&](const std::function<void(assembler::Assembler&)>& build) {
    return with_dims([&](assembler::Assembler& p, Tensors t) { rows(p, t.indices, 1), p.full(), build(p); });
  };
  CHECK(with_tail([](assembler::Assembler& p) { p.workspace(p.constant(1)), p.cost(p.constant(1)); }) ==
        "none");
  CHECK(with_tail([](assembler::Assembler& p) { p.cost(p.constant(1)), p.workspace(p.constant(1)); }) ==
        "bad-bytecode");
  CHECK(with_tail([](assembler::Assembler& p) { p.cost(p.constant(1)), p.cost(p.constant(1)); }) ==
        "bad-bytecode");
  CHECK(with_tail([](assembler::Assembler& p) { p.workspace(assembler::Assembler::reg(0)); }) ==
        "bad-bytecode");
  CHECK(with_tail([](assembler::Assembler& p) {
          p.cost(p.constant(1)), p.key(p.constant(1), 2), p.order(p.constant(-1));
        }) == "none");
  CHECK(with_tail([](assembler::Assembler& p) { p.order(p.constant(1)), p.key(p.constant(1)); }) ==
        "bad-bytecode");
  CHECK(with_tail([](assembler::Assembler& p) {
          p.order(p.constant(1), 1), p.order(p.constant(2), 3), p.admit(p.constant(1));
        }) == "none");
  CHECK(with_tail([](assembler::Assembler& p) { p.order(p.constant(1), 3), p.order(p.constant(2), 1); }) ==
        "bad-bytecode");
  CHECK(with_tail([](assembler::Assembler& p) { p.order(p.constant(1), 4); }) == "bad-bytecode");
  CHECK(with_tail([](assembler::Assembler& p) { p.emit(bytecode::Op::POOL, 1, 0); }) == "bad-bytecode");
}

TEST(a_task_may_not_write_the_indices_of_its_own_row_set) {
  const ParamInfo params[] = {{Role::in, DType::u64, 1, 0, {}, {9}},
                              {Role::out, DType::i32, 2, 0, {}, {9, 9}}};
  const KernelFn fn = [](const View*, const Scalar*, const TaskContext*) { return 0; };
  const KernelInfo kernel{"both", fn, params, 2, 0, 0, 1, Unit::any, {}};
  const KernelLibrary table{kAbiVersion, 1, 7, &kernel};
  for (const bool is_same : {false, true}) {
    assembler::Assembler program(table);
    program.tensor(DType::u64, {4});
    for (int i = 0; i < 2; ++i) program.tensor(DType::i32, {9, 1});
    program.task(0);
    program.io(Role::in, 0);
    program.rows(1, program.constant(0), program.constant(3));
    program.io(Role::out, is_same ? 1 : 2);
    program.full();
    program.full();
    const std::vector<uint8_t> bytes = program.bytes();
    CHECK_CODE(is_same ? "bad-bytecode" : "none", bytecode::load_program(bytes.data(), bytes.size(), table));
  }
}

}  // namespace test_hazards
