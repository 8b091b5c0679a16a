// SPDX-License-Identifier: MIT
/// \file
/// The engine: an Executable is a validated program that can be run again and again.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/bytecode/quicken.hpp"
#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/bytecode/streaming.hpp"
#include "pto/wsp/bytecode/validate.hpp"
#include "pto/wsp/graph/checker.hpp"
#include "pto/wsp/graph/edges.hpp"
#include "pto/wsp/sched/check_options.hpp"
#include "pto/wsp/sched/crew.hpp"
#include "pto/wsp/sched/in_order.hpp"
#include "pto/wsp/sched/sharing.hpp"
#include "pto/wsp/trace/record.hpp"

namespace pto::wsp {

/// What a run did.
struct RunResult {
  uint64_t tasks = 0;
  int64_t run_ns = 0;
  uint32_t workers = 0;
  uint32_t dispatchers = 0;
  std::vector<sched::WalkStats> walks;  ///< per dispatcher
  bool is_benchmark = false;            ///< no kernel was called
  uint64_t slices = 0;                  ///< stretches of tasks that were scheduled as one
  uint64_t waits = 0;                   ///< times a worker put a slice aside because a task had to wait
  uint64_t max_queued = 0;              ///< most slices that waited for a worker
  std::vector<uint64_t> lanes_queued;   ///< the same, of those for any worker and of each pool
  uint64_t max_waiting = 0;             ///< most slices that waited for a task
  uint64_t max_recorded = 0;            ///< most tasks that were recorded and not complete
  uint64_t max_live_slices = 0;  ///< most slices between the oldest that was not complete and the newest
  uint64_t stalls[sched::kNumStalls] = {};   ///< times a dispatcher was stopped, per sched::Stall
  int64_t stall_ns[sched::kNumStalls] = {};  ///< for how long
  bool is_replay = false;                    ///< a graph that was kept from a run before was run
  int64_t build_ns = 0;                      ///< to build a graph as a whole, if that was done
  uint64_t graph_tasks = 0;                  ///< of a graph that is kept for runs to come
  uint64_t graph_bytes = 0;                  ///< its size
  uint64_t max_workspace_bytes = 0;          ///< the largest workspace that a task asked for
  std::vector<uint64_t> streamed;            ///< tensors whose stores went past the caches
  std::vector<uint64_t> worker_tasks;
  std::shared_ptr<trace::RunRecord> record;  ///< null unless asked for
  std::optional<uint64_t> order_violations;  ///< of a run that verifies
  std::vector<int64_t> flushed;              ///< what flush points read, in program order
};

namespace detail {

/// Lets one run of an Executable at a time through, which can be cancelled, and keeps those of a forked child
/// out of their parent's.
class RunGate {
 public:
  /// Throws `run-cancelled` where `is_interrupted`, which may be null, says so while this waits.
  void enter(bool (*is_interrupted)()) {
    if (sched::is_inside_run()) {
      throw EngineError("nested-run", "a run was started from inside a run on the same thread");
    }
    sched::Pool& pool = sched::Pool::instance();
    std::unique_lock<std::mutex> lock(pool.gate_mutex);
    if (is_running_ && generation_ != sched::Pool::generation()) {
      throw EngineError("run-in-flight-at-fork", "the process was forked while this program was running");
    }
    while (!pool.gate_open.wait_for(lock, kPatience, [this] { return !is_running_; })) {
      if (is_interrupted == nullptr) continue;
      lock.unlock();
      if (is_interrupted()) throw EngineError("run-cancelled", "the run was cancelled");
      lock.lock();
    }
    is_running_ = true;
    is_cancelled_.store(false, std::memory_order_relaxed);
    generation_ = sched::Pool::generation();
    sched::is_inside_run() = true;
  }

  void leave() {
    sched::is_inside_run() = false;
    sched::Pool& pool = sched::Pool::instance();
    {
      const std::lock_guard<std::mutex> lock(pool.gate_mutex);
      is_running_ = false;
    }
    pool.gate_open.notify_all();
  }

  /// Ends whoever has entered, from any thread: what is being run, or will be.
  void cancel() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_cancelled_.store(true, std::memory_order_relaxed);
    if (running_ != nullptr) running_->cancel();
  }
  bool is_cancelled() const { return is_cancelled_.load(std::memory_order_relaxed); }

  /// Whoever has entered begins to work on a run, or ends that: null.
  void set_running(sched::Run* run) {
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ = run;
    if (run != nullptr && is_cancelled()) run->cancel();
  }

 private:
  static constexpr std::chrono::milliseconds kPatience{50};

  bool is_running_ = false;
  uint64_t generation_ = 0;
  std::atomic<bool> is_cancelled_{false};
  std::mutex mutex_;
  sched::Run* running_ = nullptr;
};

}  // namespace detail

class Executable {
 public:
  /// Validates `bytecode` against the library. Throws `bad-bytecode`, `bytecode-version` or
  /// `kernel-table-mismatch`. Of this one and `shared`, which may be null, one runs at a time.
  Executable(const uint8_t* bytecode, size_t size, std::shared_ptr<const KernelLibrary> library,
             const Executable* shared = nullptr)
      : code_(std::make_shared<Code>(Code{std::move(library), {}})),
        gate_(shared != nullptr ? shared->gate_ : std::make_shared<detail::RunGate>()) {
    code_->program = bytecode::load_program(bytecode, size, *code_->library);
  }

  const bytecode::Program& program() const { return code_->program; }

  /// Binds, checks and runs. Blocks until every task is complete, or until none runs any more after an error.
  /// Throws what check_options, bind_arguments and check_regions throw (nothing has run then),
  /// `kernel-failed`, what Worker::run throws, `run-cancelled`, `nested-run` or `run-in-flight-at-fork`, and
  /// what graph::check_iterations and graph::check_edges throw if that is asked for: before anything runs, or
  /// at the end, with the detail `late`, if flush points decide what runs. A second thread waits for the
  /// first.
  RunResult run(const std::vector<bind::ArrayRef>& arrays, const std::vector<std::optional<int64_t>>& symbols,
                sched::RunOptions options) {
    gate_->enter(options.is_interrupted);
    struct Leave {
      detail::RunGate& gate;
      ~Leave() { gate.leave(); }
    } leave{*gate_};
    if (options.workers == 0) options.workers = num_cores();
    sched::check_options(options);
    bind::Arguments arguments = bind::bind_arguments(code_->program, arrays, symbols, deciding_);
    prepare(arguments, options);
    options.is_alone = options.may_be_alone() && !sharing_.is_worth_it(*prepared_, options.workers);
    if (options.checks_iterations || options.checks_edges)
      return run_checked(std::move(arguments.bases), options);
    return execute(std::move(arguments.bases), options);
  }

  /// Stops the run that is under way, of this one or of one that shares its turns, if there is one; it then
  /// throws `run-cancelled`. Any thread may call it.
  void cancel() { gate_->cancel(); }

 private:
  struct Code {
    std::shared_ptr<const KernelLibrary> library;
    bytecode::Program program;
  };

  /// What a plan refers to.
  struct Owned {
    std::shared_ptr<Code> code;
    std::shared_ptr<bind::DecidingElements> deciding;
  };

  /// What of the options shapes a plan.
  struct Shape {
    uint32_t workers = 0;
    bool is_tracked = false;
    bool cuts_units = false;
    bool has_streams = false;
    bool is_benchmark = false;
    sched::Deps deps = sched::Deps::kExact;
    uint64_t streaming_bytes = 0;
    bool operator==(const Shape& other) const {
      return workers == other.workers && is_tracked == other.is_tracked && cuts_units == other.cuts_units &&
             has_streams == other.has_streams && is_benchmark == other.is_benchmark && deps == other.deps &&
             streaming_bytes == other.streaming_bytes;
    }
  };

  /// Asking the system takes longer than a small run.
  static uint32_t num_cores() {
    static const uint32_t cores = std::max(1u, std::thread::hardware_concurrency());
    return cores;
  }

  /// Makes `prepared_` fit the arguments, keeping it when nothing that shapes a plan has changed.
  void prepare(const bind::Arguments& arguments, const sched::RunOptions& options) {
    const Shape shape{
        options.workers,
        !options.is_in_order(),
        options.cuts_units(),
        options.streams != sched::Streams::kOff,
        options.window_mode == sched::WindowMode::kBenchmark,
        options.deps,
        options.streaming_bytes != 0 ? options.streaming_bytes : bytecode::default_streaming_bytes()};
    const bool is_marked = options.is_in_order() ? shape_.is_benchmark == shape.is_benchmark &&
                                                       shape_.streaming_bytes == shape.streaming_bytes
                                                 : shape_ == shape;
    if (prepared_ != nullptr && is_marked && is_same_call(arguments)) return;
    auto plan = bytecode::make_plan({&code_->program, arguments.symbols}, arguments.layouts, *code_->library);
    bytecode::bind_elements(plan, arguments.bases);
    bytecode::look_at_rows(plan);
    check_regions(plan, options);
    if (costs_ == nullptr) costs_ = std::make_shared<sched::SiteCosts>(plan.sites.size());
    sched::Marks marks = sched::mark_units(plan, options.workers, shape.cuts_units);
    bytecode::choose_streamed(plan, shape.streaming_bytes);
    if (shape.is_benchmark) replace_bodies(plan);
    std::vector<uint32_t> guesses = sched::guess_costs(plan, options.workers);
    const auto owner = std::make_shared<Owned>(Owned{code_, arguments.deciding});
    prepared_.reset(
        new sched::Prepared{owner, std::move(plan), std::move(marks), costs_, std::move(guesses), {}});
    if (shape.is_tracked) summarize_units(*prepared_, shape);
    shape_ = shape;
    deciding_ = arguments.deciding;
  }

  static void summarize_units(sched::Prepared& prepared, const Shape& shape) {
    const bool is_each_task_seen = shape.cuts_units || shape.has_streams;
    prepared.units = sched::summarize_units(prepared.plan, prepared.marks, is_each_task_seen, shape.deps);
  }

  static void replace_bodies(bytecode::Plan& plan) {
    for (bytecode::QuickSite& site : plan.sites)
      site.fn = [](const View*, const Scalar*, const TaskContext*) { return 0; };
  }

  void check_regions(const bytecode::Plan& plan, const sched::RunOptions& options) {
    sched::Lookout lookout(options.is_interrupted);
    const auto is_stopped = [&] { return lookout.poll() || gate_->is_cancelled(); };
    if (!bytecode::check_regions(plan, is_stopped)) throw cancelled();
  }

  /// Checks what the program states: before anything runs, or if flush points decide what runs, afterwards.
  RunResult run_checked(std::vector<char*> bases, const sched::RunOptions& options) {
    const bool is_flushed = std::any_of(code_->program.sets.begin(), code_->program.sets.end(),
                                        [](const bytecode::SetForm& set) { return set.is_flush; });
    if (!is_flushed) check_statements({}, options);
    RunResult result = execute(std::move(bases), options);
    if (!is_flushed) return result;
    try {
      check_statements(result.flushed, options);
    } catch (EngineError& error) {
      throw std::move(error).with_int("late", int64_t(result.tasks));
    }
    return result;
  }

  /// Edges that suffice for a plan are not looked at again.
  void check_statements(const std::vector<int64_t>& flushed, const sched::RunOptions& options) {
    sched::Lookout lookout(options.is_interrupted);
    const auto is_stopped = [&] { return lookout.poll() || gate_->is_cancelled(); };
    const bytecode::Plan& plan = prepared_->plan;
    if (options.checks_iterations && !graph::check_iterations(plan, flushed, is_stopped)) throw cancelled();
    if (!options.checks_edges || edges_suffice_for_ == plan.number) return;
    if (!graph::check_edges(plan, flushed, is_stopped)) throw cancelled();
    if (flushed.empty()) edges_suffice_for_ = plan.number;
  }

  static EngineError cancelled() { return EngineError("run-cancelled", "the run was cancelled"); }

  bool is_same_call(const bind::Arguments& arguments) const {
    const bytecode::Plan& plan = prepared_->plan;
    bool is_same = plan.bindings.symbols == arguments.symbols && plan.layouts == arguments.layouts &&
                   deciding_ == arguments.deciding;
    // Flush points read the arrays of the call.
    for (size_t i = 0; i < arguments.bases.size(); ++i) {
      const bool is_read = code_->program.decides[i];
      is_same = is_same && (!is_read || plan.bindings.elements[i].base == arguments.bases[i]);
    }
    return is_same;
  }

  RunResult execute(std::vector<char*> bases, const sched::RunOptions& options) {
    std::shared_ptr<sched::Crew> crew = take_crew();
    sched::Run& run = crew->run();
    const int64_t start = trace::now_ns(), start_ticks = trace::ticks();
    crew->begin(prepared_, std::move(bases), options, take_graph(options));
    work(*crew, options.is_in_order());
    // After an error the state names moments that will never come: it is dropped, and the next run starts
    // afresh.
    if (run.failure()) throw_failure(*run.failure(), run.flushed().values());
    if (run.is_cancelled()) throw cancelled();
    RunResult result = summarize(run);
    if (options.on_progress != nullptr) options.on_progress(options.listener, result.tasks);
    result.dispatchers = crew->num_dispatchers();
    for (uint32_t i = 0; i < crew->num_dispatchers(); ++i)
      result.walks.push_back(crew->dispatcher(i).stats());
    result.is_benchmark = options.window_mode == sched::WindowMode::kBenchmark;
    result.run_ns = trace::now_ns() - start;
    result.streamed = prepared_->plan.streamed;
    prepared_->costs->record_run(result.run_ns);
    if (options.may_be_alone() && result.tasks > 0)
      sharing_.record(!options.is_alone, double(result.run_ns) / double(result.tasks));
    if (crew->graph_run() != nullptr) keep_graph(*crew->graph_run(), options, result);
    result.flushed = run.flushed().values();
    if (options.trace) result.record = make_record(*crew, start_ticks, result.tasks);
    if (options.verifies) result.order_violations = count_order_violations(run, result);
    crews_.push_back(std::move(crew));
    return result;
  }

  /// The graph of the plan if it was kept, else an empty one, in the memory of the last one; null for a run
  /// that keeps none. A run that fails keeps nothing.
  std::shared_ptr<sched::KeptGraph> take_graph(const sched::RunOptions& options) {
    if (!options.keeps_graph()) return nullptr;
    std::shared_ptr<sched::KeptGraph> graph = std::move(graph_);
    if (graph == nullptr || graph->is_worn()) return std::make_shared<sched::KeptGraph>();
    const bool is_same = graph_of_ == prepared_->plan.number && options.build_like(graph_policy_);
    if (!is_same || options.jitter != 0) graph->clear();
    return graph;
  }

  void keep_graph(const sched::GraphRun& graph_run, const sched::PolicyOptions& policy, RunResult& result) {
    const sched::GraphSchedule* schedule = graph_run.schedule();
    result.dispatchers = schedule != nullptr ? schedule->num_dispatchers() : 0;
    if (schedule != nullptr) result.walks = schedule->stats();
    result.slices = graph_run.share_graph()->num_strands();
    result.is_replay = graph_run.build_ns() == 0;
    result.build_ns = graph_run.build_ns();
    if (!graph_run.can_be_kept()) return;
    graph_ = graph_run.share_graph();
    graph_of_ = prepared_->plan.number;
    graph_policy_ = policy;
    result.graph_tasks = graph_->num_tasks();
    result.graph_bytes = graph_->num_bytes();
  }

  /// Works until the run is over, and nobody is in one of its tasks.
  void work(sched::Crew& crew, bool is_in_order) {
    struct End {
      Executable& self;
      sched::Crew& crew;
      ~End() {
        self.gate_->set_running(nullptr);
        crew.end();
      }
    } end{*this, crew};
    gate_->set_running(&crew.run());
    if (is_in_order) {
      sched::InOrder(crew.run()).work();
    } else {
      crew.work();
    }
  }

  /// Engine state that no thread is inside: warm memory, and hazard maps full of names that have passed.
  std::shared_ptr<sched::Crew> take_crew() {
    for (size_t i = 0; i < crews_.size(); ++i) {
      if (!crews_[i]->is_idle()) continue;
      std::shared_ptr<sched::Crew> crew = std::move(crews_[i]);
      crews_.erase(crews_.begin() + std::ptrdiff_t(i));
      return crew;
    }
    return std::make_shared<sched::Crew>();
  }

  [[noreturn]] void throw_failure(const sched::Failure& failure, const std::vector<int64_t>& flushed) const {
    if (!failure.is_of_walk) throw task_error(failure, flushed);
    if (!failure.error) throw std::bad_alloc();
    throw EngineError(*failure.error);
  }

  /// Finds the task again by expanding: nothing is kept per task.
  EngineError task_error(const sched::Failure& failure, const std::vector<int64_t>& flushed) const {
    bytecode::Replay replay(prepared_->plan, flushed);
    int64_t index = replay.next_task();
    for (uint64_t task = 0; task < failure.task && index >= 0; ++task) index = replay.next_task();
    if (index < 0) throw EngineError("no-such-task", "arrays were changed during a run that failed");
    const bytecode::QuickSite& site = prepared_->plan.sites[size_t(index)];
    EngineError error = failure.error
                            ? EngineError(*failure.error).with_int("late", int64_t(failure.task))
                            : EngineError("kernel-failed", std::string("a run-time check in kernel ") +
                                                               site.kernel->name + " failed")
                                  .with_int("check", failure.check);
    return std::move(error)
        .with("kernel", std::string(site.kernel->name))
        .with_int("task", int64_t(failure.task))
        .with_int("pc", site.pc)
        .with("registers", replay.expander().copy_registers());
  }

  static RunResult summarize(sched::Run& run) {
    RunResult result;
    result.workers = run.num_workers();
    result.slices = run.num_slices();
    for (uint32_t lane = 0; lane < run.ready().num_lanes(); ++lane) {
      result.lanes_queued.push_back(run.ready().most_queued(lane));
      result.max_waiting = std::max<uint64_t>(result.max_waiting, run.ready().most_waiting(lane));
    }
    result.max_queued = *std::max_element(result.lanes_queued.begin(), result.lanes_queued.end());
    result.max_recorded = run.max_recorded();
    result.max_live_slices = run.max_live_slices();
    for (int i = 0; i < sched::kNumStalls; ++i) {
      result.stalls[i] = run.stalls()[sched::Stall(i)].count.load(std::memory_order_relaxed);
      result.stall_ns[i] = run.stalls()[sched::Stall(i)].ns.load(std::memory_order_relaxed);
    }
    for (uint32_t i = 0; i < run.num_workers(); ++i) {
      const sched::Worker& worker = run.worker(i);
      result.worker_tasks.push_back(worker.num_tasks);
      result.tasks += worker.num_tasks;
      result.waits += worker.num_suspended;
      result.max_workspace_bytes = std::max(result.max_workspace_bytes, worker.max_workspace_bytes);
    }
    return result;
  }

  uint64_t count_order_violations(sched::Run& run, const RunResult& result) const {
    std::vector<trace::OrderStamp> stamps(result.tasks);
    for (uint32_t i = 0; i < run.num_workers(); ++i) {
      for (const auto& [task, stamp] : run.worker(i).order()) stamps[task] = stamp;
    }
    return trace::count_order_violations(prepared_->plan, result.flushed, stamps);
  }

  std::shared_ptr<trace::RunRecord> make_record(sched::Crew& crew, int64_t start, uint64_t tasks) const {
    sched::Run& run = crew.run();
    auto record = std::make_shared<trace::RunRecord>(prepared_->owner, prepared_->plan,
                                                     run.flushed().values(), tasks, start);
    for (uint32_t i = 0; i < run.num_workers(); ++i) record->add(run.worker(i).take_events());
    if (crew.graph_run() != nullptr) {
      const sched::GraphSchedule* schedule = crew.graph_run()->schedule();
      for (uint32_t i = 0; schedule != nullptr && i < schedule->num_dispatchers(); ++i)
        record->add_dispatcher(schedule->made(i), schedule->stall_events(i));
      return record;
    }
    for (uint32_t i = 0; i < crew.num_dispatchers(); ++i)
      record->add_dispatcher(crew.dispatcher(i).owned(), crew.dispatcher(i).stall_events());
    return record;
  }

  std::shared_ptr<Code> code_;
  std::shared_ptr<detail::RunGate> gate_;
  std::shared_ptr<sched::Prepared> prepared_;
  std::shared_ptr<bind::DecidingElements> deciding_;  ///< that `prepared_` was made for
  Shape shape_;
  std::shared_ptr<sched::SiteCosts> costs_;
  sched::Sharing sharing_;
  std::vector<std::shared_ptr<sched::Crew>> crews_;
  std::shared_ptr<sched::KeptGraph> graph_;
  uint64_t graph_of_ = 0;              ///< number of its plan
  sched::PolicyOptions graph_policy_;  ///< that it was built for
  uint64_t edges_suffice_for_ = 0;     ///< number of a plan
};

}  // namespace pto::wsp
