// SPDX-License-Identifier: MIT
/// \file
/// Every order is kept because it is waited for, not because of timing. A graph says so in its text. A walk
/// with several dispatchers is played by one thread: while a task runs, all others go on as far as they can.
#include <chrono>

#include "graph_text.hpp"
#include "planned.hpp"
#include "prepared.hpp"
#include "pto/wsp/graph/checker.hpp"
#include "pto/wsp/sched/crew.hpp"
#include "random_loops.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_order {

using namespace pto::wsp;
using graph_text::Tasks;
using random_workload::Tensor;
using random_workload::Workload;

namespace {

/// What a schedule demands of a pair of tasks of a workload.
class Demands {
 public:
  Demands(const Workload& workload, const sched::RunOptions& options)
      : tasks_(workload.tasks()), options_(options) {}

  /// Whether task i must be complete before task j, which comes later, begins.
  bool must_precede(size_t i, size_t j) const {
    using random_workload::are_in_different_iterations;
    const random_workload::Task &a = tasks_[i], &b = tasks_[j];
    if (are_in_different_iterations(a, b, bytecode::Op::FOR_EACH)) return true;
    if (std::find(b.afters.begin(), b.afters.end(), i) != b.afters.end()) return true;
    if (stream_of(i) && stream_of(i) == stream_of(j)) return true;
    if (options_.batch != 0 && i / options_.batch != j / options_.batch) return true;
    if (options_.deps == sched::Deps::kNone) return false;
    const bool is_trusted =
        options_.deps == sched::Deps::kTrust && are_in_different_iterations(a, b, bytecode::Op::PARALLEL_FOR);
    return !is_trusted && conflict(a, b);
  }

  std::vector<Tasks> before_each() const {
    std::vector<Tasks> before(tasks_.size());
    for (size_t j = 0; j < tasks_.size(); ++j) {
      for (size_t i = 0; i < j; ++i) before[j].set(i, must_precede(i, j));
    }
    return before;
  }

 private:
  std::optional<int64_t> stream_of(size_t task) const {
    std::optional<int64_t> stream;
    if (options_.streams == sched::Streams::kInTurn) stream = int64_t(task);
    if (options_.streams == sched::Streams::kByKey) stream = tasks_[task].stream;
    const int64_t n = options_.num_streams;
    return stream && n != 0 ? (*stream % n + n) % n : stream;
  }

  const std::vector<random_workload::Task>& tasks_;
  const sched::RunOptions& options_;
};

template <class T>
T one_of(std::mt19937_64& random, std::initializer_list<T> values) {
  return values.begin()[random() % values.size()];
}

/// Options that both kinds of runs know.
sched::RunOptions any_order(std::mt19937_64& random) {
  using sched::Deps, sched::Streams;
  sched::RunOptions options;
  options.workers = uint32_t(1 + random() % 6);
  options.jitter = random() % 3 == 0 ? 0 : random();
  options.deps = one_of(random, {Deps::kExact, Deps::kExact, Deps::kBytes, Deps::kNone});
  options.streams = one_of(random, {Streams::kOff, Streams::kOff, Streams::kInTurn, Streams::kByKey});
  options.num_streams = options.streams == Streams::kOff ? 0 : uint32_t(random() % 4);
  if (options.streams == Streams::kInTurn && options.num_streams == 0) options.num_streams = 2;
  return options;
}

/// Tasks may have been measured in runs before; short ones of several loops are gathered in one slice.
void measure(const prepared::Call& call, std::mt19937_64& random) {
  if (random() % 3 == 0) return;
  for (size_t site = 0; site < call.plan->plan.sites.size(); ++site)
    call.plan->costs->record(site, one_of(random, {10, 10, 1000, 20000}));
}

// Graphs

/// Builds the graph of a call. `flushed` is what flush points read. Returns how many tasks come before the
/// flush points, each time: these are complete before more is built.
std::vector<uint64_t> build(sched::KeptGraph& graph, const prepared::Call& call, sched::RunOptions options,
                            const std::vector<int64_t>& flushed) {
  options.start = sched::Start::kAfterBuild;
  sched::Run run{prepared::no_others};
  run.begin(call.plan, call.bases, options);
  sched::GraphBuilder builder(graph, run);
  std::vector<uint64_t> complete;
  for (;;) {
    const auto outcome = builder.step();
    if (outcome == sched::GraphBuilder::Outcome::kEnded) return complete;
    if (outcome != sched::GraphBuilder::Outcome::kFlush) continue;
    builder.pass_flush(flushed.at(complete.size()));
    complete.push_back(builder.num_tasks());
  }
}

/// Strides of a single element mean nothing.
bool is_same(const View& a, const View& b) {
  bool is_same = a.data == b.data;
  for (size_t d = 0; d < std::size(a.shape); ++d)
    is_same = is_same && a.shape[d] == b.shape[d] && (a.shape[d] < 2 || a.stride[d] == b.stride[d]);
  return is_same;
}

/// Compares what the text of a graph calls kernels with, wherever a slice may be taken up, with what they
/// must be called with.
void check_arguments(const sched::KeptGraph& graph, const prepared::Call& call, const Workload& workload) {
  const bytecode::Plan& plan = call.plan->plan;
  bytecode::Arguments arguments;
  arguments.bind(plan, call.bases);
  std::vector<int64_t> registers(plan.program().header.num_registers);
  size_t num_tasks = 0;
  uint64_t latest = UINT64_MAX;
  const auto forget = [&] {
    registers.assign(registers.size(), 1000003);
    for (uint32_t loop = 0; loop < plan.loops.size(); ++loop) arguments.enter(loop, registers.data());
  };
  graph_text::for_operations(graph, [&](uint64_t strand, sched::GraphCursor at) {
    const uint32_t operand = at.operand();
    if (strand != latest || at.op() == sched::GraphOp::kSlice) forget();
    latest = strand;
    if (at.is_enter()) {
      at.read_registers(registers.data() + plan.loops[operand].reg);
      arguments.enter(operand, registers.data());
    }
    switch (at.op()) {
      case sched::GraphOp::kSet: registers[operand] = at.value(); break;
      case sched::GraphOp::kTask: {
        const random_workload::Task& expected = workload.tasks().at(num_tasks++);
        arguments.fill_rest(operand, registers.data());
        CHECK(plan.sites[operand].kernel == mix::library().table().kernels + expected.kernel);
        for (size_t i = 0; i < expected.views.size(); ++i)
          CHECK(is_same(arguments.call(operand).views[i], expected.views[i]));
        break;
      }
      default: break;
    }
  });
  CHECK_EQ(num_tasks, workload.tasks().size());
}

void check_graph(uint64_t seed) {
  std::mt19937_64 random(seed);
  const Workload workload(seed, seed % 8 == 0 ? 800 : 150, random() % 4 == 0);
  if (workload.tasks().size() > graph_text::kMaxTasks) return;
  const sched::RunOptions options = any_order(random);
  // The views of the meaning lie in its results.
  auto& results = const_cast<std::vector<Tensor>&>(workload.results());
  const prepared::Call call(workload.bytes(), Workload::to_arrays(results), mix::library().table(), options);
  measure(call, random);
  sched::KeptGraph graph;
  const std::vector<uint64_t> complete = build(graph, call, options, workload.flushed());
  std::vector<Tasks> expected = Demands(workload, options).before_each();
  for (const uint64_t first : complete) {
    for (size_t task = first; task < expected.size(); ++task)
      expected[task] = expected[task] >> first << first;
  }
  const graph_text::Order order(graph);
  graph_text::check_order(order.before(), expected, seed);
  check_arguments(graph, call, workload);
}

/// Which tasks of a program come before which because of what they touch, and of FOR_EACH loops.
std::vector<Tasks> before_each(planned::Planned& planned, const std::vector<planned::PlacedTask>& tasks) {
  std::vector<Tasks> before(tasks.size());
  for (size_t j = 0; j < tasks.size(); ++j) {
    for (size_t i = 0; i < j; ++i)
      before[j].set(i, planned::are_in_different_iterations(tasks[i].place, tasks[j].place) ||
                           conflict(planned, tasks[i].task, tasks[j].task));
  }
  return before;
}

/// Whether no two tasks of different iterations of a P loop conflict.
bool is_parallel(planned::Planned& planned) {
  return check::code_of([&] { graph::check_iterations(planned.plan, {}, [] { return false; }); }) == "none";
}

sched::RunOptions any_order(std::mt19937_64& random, planned::Planned& planned) {
  sched::RunOptions options = any_order(random);
  options.deps = sched::Deps::kExact;
  if (random() % 2 == 0) options.deps = is_parallel(planned) ? sched::Deps::kTrust : sched::Deps::kBytes;
  options.streams = sched::Streams::kOff;
  return options;
}

void check_nest(uint64_t seed) {
  std::mt19937_64 random(seed);
  const random_loops::Nest nest(seed);
  planned::Planned planned(nest.bytes(), nest.shapes());
  const std::vector<planned::PlacedTask> tasks = planned::walk(planned, {}, bytecode::Op::FOR_EACH);
  if (tasks.size() > graph_text::kMaxTasks) return;
  std::vector<Tensor> tensors;
  for (const std::vector<int64_t>& shape : nest.shapes()) {
    Tensor& tensor = tensors.emplace_back(Tensor{shape, std::vector<int64_t>(shape.size(), 1), {}});
    for (size_t d = shape.size(); d-- > 1;) tensor.stride[d - 1] = tensor.stride[d] * shape[d];
    tensor.data.resize(size_t(tensor.stride[0] * shape[0]));
  }
  const sched::RunOptions options = any_order(random, planned);
  const prepared::Call call(nest.bytes(), Workload::to_arrays(tensors), mix::library().table(), options);
  sched::KeptGraph graph;
  build(graph, call, options, {});
  graph_text::check_order(graph_text::Order(graph).before(), before_each(planned, tasks), seed);
}

// Walks

/// A run by one thread that plays all workers. Each time a task begins that is chosen to be slow, the other
/// workers do what they can before it goes on.
class Play {
 public:
  Play(const prepared::Call& call, const sched::RunOptions& options, uint64_t seed, uint32_t slow_period)
      : random_(seed), slow_period_(slow_period) {
    run_.begin(call.plan, call.bases, options);
    for (uint32_t i = 0; i < options.dispatchers; ++i) {
      dispatchers_.push_back(std::make_unique<sched::Dispatcher>(run_, i));
      dispatchers_.back()->reset(options.dispatchers);
    }
    for (uint32_t slot = 0; slot < options.workers; ++slot) {
      run_.ready_worker(slot);
      idle_.push_back(slot);
    }
  }

  void run() {
    // Who could not go on may have come a little further.
    for (int idle = 0; !run_.is_over(); idle = go_on() ? 0 : idle + 1) CHECK(idle < 10);
  }

  void pause() {
    if (random_() % slow_period_ != 0) return;
    for (int idle = 0; idle < 2;) idle = go_on() ? 0 : idle + 1;
  }

  uint64_t max_recorded() const { return run_.max_recorded(); }
  const std::vector<int64_t>& flushed() { return run_.flushed().values(); }

 private:
  /// Some idle worker does something; false if none can.
  bool go_on() {
    std::shuffle(idle_.begin(), idle_.end(), random_);
    for (size_t i = 0; i < idle_.size(); ++i) {
      const uint32_t slot = idle_[i];
      idle_.erase(idle_.begin() + std::ptrdiff_t(i));
      const bool has_worked = work(slot);
      idle_.insert(idle_.begin() + std::ptrdiff_t(i), slot);
      if (has_worked) return true;
    }
    return false;
  }

  bool work(uint32_t slot) {
    const bool prefers_slices = !run_.is_ordered() && random_() % 2 == 0;
    const sched::Lanes lanes = run_.pools().lanes_of(slot);
    if (prefers_slices && run_.run_slice(run_.worker(slot), lanes, run_.pools().preferred(slot))) return true;
    const auto first = size_t(random_());
    for (size_t i = 0; i < dispatchers_.size(); ++i) {
      sched::Dispatcher& dispatcher = *dispatchers_[(first + i) % dispatchers_.size()];
      if (!dispatcher.is_free() || !dispatcher.lock.try_lock()) continue;
      const bool has_worked = dispatcher.step(run_.worker(slot), lanes);
      dispatcher.lock.unlock();
      if (has_worked) return true;
    }
    return !prefers_slices && run_.run_slice(run_.worker(slot), lanes, run_.pools().preferred(slot));
  }

  std::mt19937_64 random_;
  const uint32_t slow_period_;
  sched::Run run_{prepared::no_others};
  std::vector<std::unique_ptr<sched::Dispatcher>> dispatchers_;
  std::vector<uint32_t> idle_;  ///< workers
};

/// With `cuts_units`, with policies that look at each task.
sched::RunOptions any_walk(std::mt19937_64& random, sched::RunOptions options, bool cuts_units) {
  using sched::Ownership, sched::Ready;
  options.tracks = true;
  options.dispatchers = uint32_t(1 + random() % 5);
  options.window = one_of<uint64_t>(random, {1, 2, 7, 64, 8192, 8192});
  options.ownership = one_of(random, {Ownership::kClaim, Ownership::kClaim, Ownership::kRoundRobin});
  if (!cuts_units) return options;
  options.ownership = one_of(random, {Ownership::kClaim, Ownership::kClaim, Ownership::kRoundRobin,
                                      Ownership::kKey, Ownership::kHash, Ownership::kPartition});
  if (options.ownership == Ownership::kPartition) {
    for (uint32_t i = 1; i < options.dispatchers; ++i) options.bounds.push_back(i * (1 + random() % 30));
    std::sort(options.bounds.begin(), options.bounds.end());
  }
  options.ready = one_of(random, {Ready::kOwn, Ready::kOwn, Ready::kFifo, Ready::kOrdered});
  if (random() % 6 == 0) options.batch = 1 + random() % 20;
  if (random() % 6 == 0) options.num_pools = uint32_t(1 + random() % 3);
  options.pools_are_soft = options.num_pools != 0 && random() % 2 == 0;
  options.balances = options.ready != Ready::kFifo && random() % 6 == 0;
  if (options.ready != Ready::kFifo && random() % 4 == 0) options.turns = 1 + random() % 3;
  if (random() % 6 == 0) options.in_flight = 1 + random() % 3;
  return options;
}

/// Plays a run, and compares what was complete when each task began with what must have been. Returns what
/// flush points read.
std::vector<int64_t> check_play(const std::vector<uint8_t>& bytes, std::vector<Tensor>& tensors,
                                const sched::RunOptions& options, const std::vector<Tasks>& expected,
                                uint64_t seed) {
  std::mt19937_64 random(seed);
  const prepared::Call call(bytes, Workload::to_arrays(tensors), mix::library().table(), options);
  measure(call, random);
  Play play(call, options, random(), one_of(random, {1u, 4u, 20u}));
  mix::Stamps& stamps = mix::stamps();
  stamps.reset(expected.size());
  stamps.pause = [&](uint64_t) { play.pause(); };
  play.run();
  CHECK(play.max_recorded() <= options.window);
  std::vector<Tasks> found(expected.size());
  for (size_t j = 0; j < found.size(); ++j) {
    CHECK(stamps.end[j] != 0);
    for (size_t i = 0; i < j; ++i) found[j].set(i, stamps.end[i] < stamps.start[j]);
  }
  stamps.reset(0);
  graph_text::check_order(found, expected, seed);
  return play.flushed();
}

void check_walk(uint64_t seed) {
  std::mt19937_64 random(seed);
  const Workload workload(seed, seed % 8 == 0 ? 800 : 150, random() % 4 == 0);
  if (workload.tasks().size() > graph_text::kMaxTasks) return;
  for (int round = 0; round < 4; ++round) {
    sched::RunOptions options = any_walk(random, any_order(random), round % 2 == 0);
    // Where tasks that conflict are not ordered, flush points may read anything.
    if (!workload.flushed().empty() && options.deps == sched::Deps::kNone) options.deps = sched::Deps::kExact;
    std::vector<Tensor> found = workload.tensors();
    const std::vector<Tasks> expected = Demands(workload, options).before_each();
    CHECK(check_play(workload.bytes(), found, options, expected, seed) == workload.flushed());
    for (size_t i = 0; i < found.size() && options.deps != sched::Deps::kNone; ++i)
      CHECK(found[i].data == workload.results()[i].data);
  }
}

void check_phases(uint64_t seed) {
  std::mt19937_64 random(seed);
  const random_loops::Phases phases(seed);
  planned::Planned planned(phases.bytes(), planned::shapes_of(phases));
  const std::vector<planned::PlacedTask> tasks = planned::walk(planned, {}, bytecode::Op::FOR_EACH);
  if (tasks.size() > graph_text::kMaxTasks) return;
  const std::vector<Tasks> expected = before_each(planned, tasks);
  for (int round = 0; round < 4; ++round) {
    const sched::RunOptions options = any_walk(random, any_order(random, planned), round % 2 == 0);
    std::vector<Tensor> tensors = phases.tensors();
    check_play(phases.bytes(), tensors, options, expected, seed);
  }
}

}  // namespace

TEST(graphs_say_every_order) {
  seeds::for_seeds(1, std::chrono::milliseconds(2000), check_graph);
  seeds::for_seeds(1, std::chrono::milliseconds(1000), check_nest);
}

TEST(no_task_overtakes_one_that_it_must_wait_for) {
  seeds::for_seeds(1, std::chrono::milliseconds(2000), check_walk);
}

TEST(no_task_overtakes_a_unit_that_was_passed_over) {
  seeds::for_seeds(1, std::chrono::milliseconds(2000), check_phases);
}

}  // namespace test_order
