// SPDX-License-Identifier: MIT
/// \file
/// The shared state of the runs of a program, and the begin and end of a run.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/bytecode/quicken.hpp"
#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/bytecode/streaming.hpp"
#include "pto/wsp/bytecode/validate.hpp"
#include "pto/wsp/graph/checker.hpp"
#include "pto/wsp/graph/edges.hpp"
#include "pto/wsp/in_flight.hpp"
#include "pto/wsp/run_result.hpp"
#include "pto/wsp/sched/lookout.hpp"
#include "pto/wsp/sched/network_record.hpp"
#include "pto/wsp/sched/sharing.hpp"
#include "pto/wsp/sim/calendar.hpp"
#include "pto/wsp/sim/simulate.hpp"

namespace pto::wsp {

/// A calendar, and where its tasks come from.
struct MadeCalendar {
  sched::Calendar calendar;
  std::shared_ptr<trace::RunRecord> record;
};

namespace detail {

/// The shared state of the runs of a program. Runs are prepared one at a time; several may be in progress.
class Core {
 public:
  /// \param other  the same program under another schedule, or null
  /// \param walk  the walk as generated source, or null
  Core(const uint8_t* bytecode, size_t size, std::shared_ptr<const KernelLibrary> library, const Core* other,
       std::shared_ptr<const walk::WalkFn> walk = nullptr)
      : code_(std::make_shared<Code>(Code{std::move(library), std::move(walk), {}})),
        identity_(other != nullptr ? other->identity_ : std::make_shared<char>()) {
    code_->program = bytecode::load_program(bytecode, size, *code_->library);
    if (code_->walk != nullptr) code_->program.walk = *code_->walk;
  }

  const bytecode::Program& program() const { return code_->program; }
  /// The same for a program under all its schedules.
  const void* identity() const { return identity_.get(); }

  /// A run from its arguments to its result.
  struct Launch {
    sched::RunOptions options;
    std::shared_ptr<sched::Prepared> prepared;
    std::shared_ptr<sched::Crew> crew;
    int64_t start_ns = 0, start_ticks = 0;
    size_t sharing_size = 0;
    bool is_checked_late =
        false;  ///< flush points decide which tasks exist, so its statements are checked at the end
    std::vector<uint64_t> left_out;  ///< statements that are proved and not checked
  };

  /// The arguments of a run. Elements that decide what runs are read now.
  bind::Arguments bind(const std::vector<bind::ArrayRef>& arrays,
                       const std::vector<std::optional<int64_t>>& symbols, const Flight& flight,
                       InFlight::Question is_interrupted) {
    const Turn turn(*this, flight, is_interrupted);
    return bind::bind_arguments(code_->program, arrays, symbols, deciding_);
  }

  /// Checks and begins a run. Nothing works on it yet.
  void begin(Launch& launch, bind::Arguments arguments, Flight& flight) {
    const Turn turn(*this, flight, launch.options.is_interrupted);
    sched::RunOptions& options = launch.options;
    options.is_network = code_->program.is_network();
    if (options.is_network) check_network_options(options);
    prepare(arguments, options, flight);
    leave_out_proved(launch);
    if (options.may_be_alone()) divide(launch);
    if (options.may_be_symbolic()) prepare_waits(*prepared_);
    launch.prepared = prepared_;
    if (options.checks_iterations || options.checks_edges) {
      launch.is_checked_late = has_flush_points();
      if (!launch.is_checked_late) check_statements(launch.prepared->plan, options, {}, flight);
    }
    std::shared_ptr<const sched::LoadedCalendar> calendar;
    if (options.has_calendar()) calendar = take_calendar(arguments, options);
    launch.crew = take_crew();
    launch.start_ns = trace::now_ns();
    launch.start_ticks = trace::ticks();
    launch.crew->begin(prepared_, std::move(arguments.bases), options, take_graph(options), false,
                       std::move(calendar));
  }

  /// A calendar for workers, with what it rests on.
  MadeCalendar make_calendar(const std::vector<bind::ArrayRef>& arrays,
                             const std::vector<std::optional<int64_t>>& symbols, sched::RunOptions options,
                             const Flight& flight) {
    options.is_network = code_->program.is_network();
    const bind::Arguments arguments = bind(arrays, symbols, flight, options.is_interrupted);
    const Turn turn(*this, flight, options.is_interrupted);
    prepare(arguments, options, flight);
    return based(sim::make_calendar(prepared_, *code_->library, arguments.bases, options), arguments,
                 options);
  }

  /// A calendar for the cores of a simulated machine.
  MadeCalendar make_calendar(const std::vector<bind::ArrayRef>& arrays,
                             const std::vector<std::optional<int64_t>>& symbols, sched::RunOptions options,
                             const sim::Simulation& simulation, const Flight& flight) {
    options.is_network = code_->program.is_network();
    const bind::Arguments arguments = bind(arrays, symbols, flight, options.is_interrupted);
    const Turn turn(*this, flight, options.is_interrupted);
    prepare(arguments, options, flight);
    return based(sim::make_calendar(prepared_, *code_->library, arguments.bases, options, simulation),
                 arguments, options);
  }

  /// The run on a simulated machine. No kernel is called, and no array is written.
  sim::SimResult simulate(const std::vector<bind::ArrayRef>& arrays,
                          const std::vector<std::optional<int64_t>>& symbols, sched::RunOptions options,
                          const sim::Simulation& simulation, const Flight& flight) {
    options.is_network = options.records_merges = code_->program.is_network();
    bind::Arguments arguments = bind(arrays, symbols, flight, options.is_interrupted);
    std::shared_ptr<sched::Prepared> prepared;
    {
      const Turn turn(*this, flight, options.is_interrupted);
      prepare(arguments, options, flight);
      prepared = prepared_;
      if (options.has_calendar()) place_simulated(arguments, options, simulation);
    }
    sim::SimResult result =
        sim::simulate(prepared, *code_->library, std::move(arguments.bases), options, simulation);
    const Turn turn(*this, flight, options.is_interrupted);
    check_statements(prepared->plan, options, result.flushed, flight);
    return result;
  }

  /// Returns the result of a run that is done. Throws if it ended early. Its crew is then dropped, because
  /// its state contains names that are never reached.
  RunResult finish(Launch& launch, const Flight& flight) {
    sched::Crew& crew = *launch.crew;
    sched::Run& run = crew.run();
    if (run.failure()) throw_failure(launch, *run.failure());
    if (run.is_cancelled()) throw stopped(launch);
    const sched::RunOptions& options = launch.options;
    RunResult result = summarize(run);
    result.run = flight.number();
    if (options.on_progress != nullptr) options.on_progress(options.listener, result.tasks);
    result.dispatchers = crew.num_dispatchers();
    result.maps_reason = options.maps_reason();
    if (options.may_be_symbolic() && crew.symbolic_run() == nullptr)
      result.maps_reason = sched::MapsReason::kSequence;
    if (result.is_symbolic()) {
      result.waits = crew.symbolic_run()->num_waits();
      result.symbolic_accesses = launch.prepared->waits->num_symbolic();
      result.mapped_accesses = launch.prepared->waits->num_mapped();
    }
    result.has_calendar = crew.calendar_run() != nullptr;
    if (result.has_calendar) result.waits = crew.calendar_run()->num_waits();
    for (uint32_t i = 0; i < crew.num_dispatchers(); ++i) result.walks.push_back(crew.dispatcher(i).stats());
    result.is_benchmark = options.window_mode == sched::WindowMode::kBenchmark;
    result.run_ns = crew.end_ns() - launch.start_ns;
    result.streamed = launch.prepared->plan.streamed;
    result.left_out = launch.left_out;
    result.flushed = run.flushed().values();
    if (options.is_network && !result.has_calendar) result.merges = crew.network().take_merges();
    if (options.trace) result.record = make_record(launch, result);
    if (options.verifies) result.order_violations = count_order_violations(launch, result);
    keep(launch, result, flight);
    return result;
  }

  /// Keeps the crew of a run that was submitted and has a result. \pre no thread waits for the run
  void give_back(Launch& launch, const Flight& flight) noexcept {
    try {
      const Turn turn(*this, flight, nullptr);
      crews_.push_back(std::move(launch.crew));
    } catch (...) {  // the crew is dropped
    }
  }

 private:
  struct Code {
    std::shared_ptr<const KernelLibrary> library;
    std::shared_ptr<const walk::WalkFn> walk;
    bytecode::Program program;
  };

  /// The owners of the objects that a plan refers to.
  struct Owned {
    std::shared_ptr<Code> code;
    std::shared_ptr<bind::DecidingElements> deciding;
  };

  /// The options that a plan depends on.
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

  /// Drops the checks of proved statements, unless tensors of the call share memory: proofs are about
  /// different arrays.
  void leave_out_proved(Launch& launch) const {
    const auto drop = [&](bool& checks, bool is_proved, sched::Statement statement) {
      if (!checks || !is_proved || has_shared_memory()) return;
      checks = false;
      launch.left_out.push_back(statement);
    };
    sched::RunOptions& options = launch.options;
    drop(options.checks_iterations, options.proves_iterations, sched::kIterations);
    drop(options.checks_instances, options.proves_instances, sched::kInstances);
    drop(options.checks_edges, options.proves_edges, sched::kEdges);
  }

  bool has_shared_memory() const {
    const std::vector<bytecode::TensorLayout>& layouts = prepared_->plan.layouts;
    for (size_t i = 0; i < layouts.size(); ++i) {
      if (layouts[i].group != i) return true;
    }
    return false;
  }

  void divide(Launch& launch) {
    const sched::Division division = sharing_.divide(*prepared_, launch.options.workers);
    launch.options.is_alone = division == sched::Division::kAlone;
    launch.options.begins_alone = division == sched::Division::kLater;
    launch.sharing_size = sharing_.size_of_last();
  }

  /// Prepares a plan for the arguments. Keeps the last one if nothing that it depends on has changed.
  void prepare(const bind::Arguments& arguments, const sched::RunOptions& options, const Flight& flight) {
    const Shape shape{options.workers,
                      !options.is_in_order() && !options.is_network,
                      options.cuts_units() || options.is_simulated || options.has_calendar(),
                      options.streams != sched::Streams::kOff,
                      options.window_mode == sched::WindowMode::kBenchmark,
                      options.deps,
                      options.streaming_bytes != 0 ? options.streaming_bytes : bytecode::cached_bytes()};
    const bool is_marked = options.is_in_order() ? shape_.is_benchmark == shape.is_benchmark &&
                                                       shape_.streaming_bytes == shape.streaming_bytes
                                                 : shape_ == shape;
    const bool is_same = prepared_ != nullptr && is_same_call(arguments);
    if (is_same && is_marked) return;
    const bool has_calendar = is_same && shape_.workers == shape.workers && shape_.deps == shape.deps &&
                              calendar_of_ == prepared_->plan.number;
    auto plan = bytecode::make_plan({&code_->program, arguments.symbols}, arguments.layouts, *code_->library);
    bytecode::bind_elements(plan, arguments.bases);
    bytecode::look_at_rows(plan);
    check_regions(plan, options, flight);
    if (costs_ == nullptr) costs_ = std::make_shared<sched::SiteCosts>(plan.sites.size());
    sched::Marks marks;
    if (!options.is_network) marks = sched::mark_units(plan, options.workers, shape.cuts_units);
    std::vector<uint32_t> guesses = sched::guess_costs(plan, options.workers);
    bytecode::choose_streamed(plan, shape.streaming_bytes);
    if (shape.is_benchmark) replace_bodies(plan);
    const auto owner = std::make_shared<Owned>(Owned{code_, arguments.deciding});
    prepared_.reset(
        new sched::Prepared{owner, std::move(plan), std::move(marks), costs_, std::move(guesses), {}});
    if (shape.is_tracked) summarize_units(*prepared_, shape);
    shape_ = shape;
    deciding_ = arguments.deciding;
    if (has_calendar) calendar_of_ = prepared_->plan.number;  // its tasks follow from the arguments alone
  }

  // Calendars

  sched::CalendarBasis basis_of(const bind::Arguments& arguments) const {
    sched::CalendarBasis basis;
    basis.symbols = arguments.symbols;
    for (size_t i = 0; i < arguments.layouts.size(); ++i) {
      basis.groups.push_back(arguments.layouts[i].group);
      basis.elements.push_back(arguments.deciding != nullptr ? arguments.deciding->hash(i) : 0);
    }
    return basis;
  }

  MadeCalendar based(sched::Calendar calendar, const bind::Arguments& arguments,
                     const sched::RunOptions& options) const {
    calendar.basis = basis_of(arguments);
    std::shared_ptr<const bytecode::Plan> plan(prepared_, &prepared_->plan);
    const uint64_t num_tasks = calendar.rows.size();
    auto record = std::make_shared<trace::RunRecord>(plan, std::vector<int64_t>(), num_tasks, 0);
    if (options.is_network) sched::set_order(*record, *plan, arguments.bases, options);
    return {std::move(calendar), std::move(record)};
  }

  /// Throws `calendar-changed` with a symbol or a tensor that differs from what a calendar was made for.
  void require_same_basis(const sched::CalendarBasis& made, const bind::Arguments& arguments) const {
    const sched::CalendarBasis given = basis_of(arguments);
    if (made.symbols.size() != given.symbols.size() || made.groups.size() != given.groups.size() ||
        made.elements.size() != given.elements.size())
      throw EngineError("bad-calendar", "it belongs to another program").with_int("row", -1);
    const auto fail = [](const char* what, size_t index, int64_t expected, int64_t found) {
      throw EngineError("calendar-changed", "a calendar was made for other arguments")
          .with_int(what, int64_t(index))
          .with_int("expected", expected)
          .with_int("found", found);
    };
    for (size_t i = 0; i < given.symbols.size(); ++i) {
      if (made.symbols[i] != given.symbols[i]) fail("symbol", i, made.symbols[i], given.symbols[i]);
    }
    for (size_t i = 0; i < given.groups.size(); ++i) {
      if (made.elements[i] != given.elements[i]) fail("elements", i, 0, 0);
      if (made.groups[i] != given.groups[i]) fail("memory", i, made.groups[i], given.groups[i]);
    }
  }

  /// The calendar of a run, loaded: the given one, or one that is made. It is kept for the next run of an
  /// equal plan. A made one is replaced when the costs of all its tasks are measured.
  std::shared_ptr<const sched::LoadedCalendar> take_calendar(const bind::Arguments& arguments,
                                                             const sched::RunOptions& options) {
    const bool has_costs = options.calendar != nullptr || has_measured_all();
    if (calendar_ != nullptr && calendar_of_ == prepared_->plan.number &&
        calendar_made_ == options.calendar && calendar_has_costs_ == has_costs)
      return calendar_;
    std::shared_ptr<const sched::Calendar> calendar = options.calendar;
    if (calendar == nullptr) {
      calendar = std::make_shared<sched::Calendar>(
          sim::make_calendar(prepared_, *code_->library, arguments.bases, options));
    } else {
      require_same_basis(calendar->basis, arguments);
    }
    calendar_ = sim::load_calendar(*calendar, prepared_, *code_->library, arguments.bases, options);
    calendar_of_ = prepared_->plan.number;
    calendar_made_ = options.calendar;
    calendar_has_costs_ = has_costs;
    return calendar_;
  }

  bool has_measured_all() const {
    for (size_t site = 0; site < prepared_->plan.sites.size(); ++site) {
      if ((*costs_)[site] == 0) return false;
    }
    return true;
  }

  /// Checks or makes the calendar of a simulation.
  void place_simulated(const bind::Arguments& arguments, sched::RunOptions& options,
                       const sim::Simulation& simulation) {
    if (options.calendar == nullptr) {
      options.calendar = std::make_shared<sched::Calendar>(
          sim::make_calendar(prepared_, *code_->library, arguments.bases, options, simulation));
      return;
    }
    require_same_basis(options.calendar->basis, arguments);
    if (options.calendar->kinds != simulation.machine.cores)
      throw EngineError("bad-calendar", "it is for another number of cores").with_int("row", -1);
    sim::load_calendar(*options.calendar, prepared_, *code_->library, arguments.bases, options);
  }

  /// Tasks of a network have no common program order, which these options need.
  static void check_network_options(const sched::RunOptions& options) {
    const bool needs_order = options.verifies || options.tracks || options.checks_iterations ||
                             options.checks_instances || options.checks_edges || options.keeps_graph() ||
                             options.is_scheduled() || options.cuts_units() ||
                             options.streams != sched::Streams::kOff || options.prefetch != 0;
    if (needs_order) throw EngineError("order-of-network", "an option needs one program order of all tasks");
  }

  static void summarize_units(sched::Prepared& prepared, const Shape& shape) {
    const bool is_each_task_seen = shape.cuts_units || shape.has_streams;
    prepared.units = sched::summarize_units(prepared.plan, prepared.marks, is_each_task_seen, shape.deps);
  }

  static void prepare_waits(sched::Prepared& prepared) {
    if (prepared.waits != nullptr) return;
    std::vector<bool> is_unit;
    for (const sched::Marks::Site& site : prepared.marks.sites) is_unit.push_back(site.is_unit);
    prepared.waits = std::make_unique<graph::SymbolicWaits>(prepared.plan, prepared.marks.loops, is_unit);
  }

  static void replace_bodies(bytecode::Plan& plan) {
    for (bytecode::QuickSite& site : plan.sites)
      site.fn = [](const View*, const Scalar*, const TaskContext*) { return 0; };
  }

  static void check_regions(const bytecode::Plan& plan, const sched::RunOptions& options,
                            const Flight& flight) {
    sched::Lookout lookout(options.is_interrupted);
    const auto is_stopped = [&] { return lookout.poll() || flight.is_cancelled(); };
    if (!bytecode::check_regions(plan, is_stopped)) throw InFlight::cancelled();
  }

  bool has_flush_points() const {
    return std::any_of(code_->program.sets.begin(), code_->program.sets.end(),
                       [](const bytecode::SetForm& set) { return set.is_flush; });
  }

  /// Checks the statements of the program. Edges that suffice for a plan are not checked again.
  void check_statements(const bytecode::Plan& plan, const sched::RunOptions& options,
                        const std::vector<int64_t>& flushed, const Flight& flight) {
    sched::Lookout lookout(options.is_interrupted);
    const auto is_stopped = [&] { return lookout.poll() || flight.is_cancelled(); };
    if (options.checks_iterations && !graph::check_iterations(plan, flushed, is_stopped))
      throw InFlight::cancelled();
    if (!options.checks_edges || edges_suffice_for_ == plan.number) return;
    if (!graph::check_edges(plan, flushed, is_stopped)) throw InFlight::cancelled();
    if (flushed.empty()) edges_suffice_for_ = plan.number;
  }

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

  /// Lets one thread at a time change the shared state.
  class Turn {
   public:
    Turn(Core& core, const Flight& flight, InFlight::Question is_interrupted) : core_(core) {
      InFlight::instance().enter(core.turn_, flight, is_interrupted);
    }
    ~Turn() { InFlight::instance().leave(core_.turn_); }
    Turn(const Turn&) = delete;

   private:
    Core& core_;
  };

  /// Keeps what later runs can use.
  void keep(Launch& launch, RunResult& result, const Flight& flight) {
    const Turn turn(*this, flight, nullptr);
    if (launch.is_checked_late) {
      try {
        check_statements(launch.prepared->plan, launch.options, result.flushed, flight);
      } catch (EngineError& error) {
        throw std::move(error).with_int("late", int64_t(result.tasks));
      }
    }
    launch.prepared->costs->record_run(result.run_ns);
    if (launch.options.may_be_alone() && result.tasks > 0)
      sharing_.record(launch.sharing_size, launch.options.workers, launch.crew->run().is_shared(),
                      double(result.run_ns) / double(result.tasks));
    if (launch.crew->graph_run() != nullptr) keep_graph(launch, result);
    if (flight.is_call()) crews_.push_back(std::move(launch.crew));
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

  void keep_graph(const Launch& launch, RunResult& result) {
    const sched::GraphRun& graph_run = *launch.crew->graph_run();
    const sched::GraphSchedule* schedule = graph_run.schedule();
    result.dispatchers = schedule != nullptr ? schedule->num_dispatchers() : 0;
    if (schedule != nullptr) result.walks = schedule->stats();
    result.slices = graph_run.share_graph()->num_strands();
    result.is_replay = graph_run.build_ns() == 0;
    result.build_ns = graph_run.build_ns();
    if (!graph_run.can_be_kept()) return;
    graph_ = graph_run.share_graph();
    graph_of_ = launch.prepared->plan.number;
    graph_policy_ = launch.options;
    result.graph_tasks = graph_->num_tasks();
    result.graph_bytes = graph_->num_bytes();
  }

  /// Returns an idle crew, with warm memory and hazard maps whose names are all reached.
  std::shared_ptr<sched::Crew> take_crew() {
    for (size_t i = 0; i < crews_.size(); ++i) {
      if (!crews_[i]->is_idle()) continue;
      std::shared_ptr<sched::Crew> crew = std::move(crews_[i]);
      crews_.erase(crews_.begin() + std::ptrdiff_t(i));
      return crew;
    }
    return std::make_shared<sched::Crew>();
  }

  [[noreturn]] static void throw_failure(Launch& launch, const sched::Failure& failure) {
    if (!failure.is_of_walk) throw task_error(launch, failure);
    if (!failure.error) throw EngineError("out-of-memory", "there is no memory to schedule the tasks");
    throw EngineError(*failure.error);
  }

  /// Where a task comes from.
  struct Place {
    uint32_t site;
    std::vector<int64_t> registers;
  };

  /// Finds a task by another walk, because nothing is stored per task. Nothing if arrays were changed.
  static std::optional<Place> find_task(Launch& launch, uint64_t task) {
    const bytecode::Plan& plan = launch.prepared->plan;
    const sched::Run& run = launch.crew->run();
    if (plan.program().is_network()) {
      sched::NetworkOrder order(plan, run.bases(), run.options());
      std::optional<uint32_t> site = order.next();
      for (uint64_t i = 0; i < task && site; ++i) site = order.next();
      if (!site) return {};
      return Place{*site, order.process().expander.copy_registers()};
    }
    bytecode::Replay replay(plan, launch.crew->run().flushed().values());
    int64_t index = replay.next_task();
    for (uint64_t i = 0; i < task && index >= 0; ++i) index = replay.next_task();
    if (index < 0) return {};
    return Place{uint32_t(index), replay.expander().copy_registers()};
  }

  static EngineError task_error(Launch& launch, const sched::Failure& failure) {
    const std::optional<Place> place = find_task(launch, failure.task);
    if (!place) throw EngineError("no-such-task", "arrays were changed during a run that failed");
    const bytecode::QuickSite& site = launch.prepared->plan.sites[place->site];
    EngineError error = failure.error
                            ? EngineError(*failure.error).with_int("late", int64_t(failure.task))
                            : EngineError("kernel-failed", std::string("a run-time check in kernel ") +
                                                               site.kernel->name + " failed")
                                  .with_int("check", failure.check)
                                  .with("values", failure.values);
    return place_in_task(std::move(error), launch, *place, failure.task);
  }

  static EngineError place_in_task(EngineError error, const Launch& launch, const Place& place,
                                   uint64_t task) {
    const bytecode::QuickSite& site = launch.prepared->plan.sites[place.site];
    return std::move(error)
        .with("kernel", std::string(site.kernel->name))
        .with_int("task", int64_t(task))
        .with_int("pc", site.pc)
        .with("registers", place.registers);
  }

  /// The error of a run that was cancelled, with the first task whose kernel was stopped.
  static EngineError stopped(Launch& launch) {
    sched::Run& run = launch.crew->run();
    EngineError error = run.is_late() ? EngineError("time-limit", "the run reached its time limit")
                                            .with_int("limit_ns", launch.options.time_limit_ns)
                                      : InFlight::cancelled();
    const uint64_t stopped = run.stopped_task();
    if (stopped == UINT64_MAX) return error;
    const std::optional<Place> place = find_task(launch, stopped);
    return place ? place_in_task(std::move(error), launch, *place, stopped) : error;
  }

  static uint64_t count_order_violations(Launch& launch, const RunResult& result) {
    sched::Run& run = launch.crew->run();
    std::vector<trace::OrderStamp> stamps(result.tasks);
    for (uint32_t i = 0; i < run.num_workers(); ++i) {
      for (const auto& [task, stamp] : run.worker(i).order()) stamps[task] = stamp;
    }
    return trace::count_order_violations(launch.prepared->plan, result.flushed, stamps);
  }

  static std::shared_ptr<trace::RunRecord> make_record(Launch& launch, const RunResult& result) {
    const sched::Crew& crew = *launch.crew;
    // Expressions of a plan point into it, so that a copy would not outlive it.
    std::shared_ptr<const bytecode::Plan> plan(launch.prepared, &launch.prepared->plan);
    auto record =
        std::make_shared<trace::RunRecord>(std::move(plan), result.flushed, result.tasks, launch.start_ticks);
    sched::Run& run = launch.crew->run();
    for (uint32_t i = 0; i < run.num_workers(); ++i) {
      sched::Worker& worker = run.worker(i);
      record->add(worker.take_events(), worker.take_stretches());
    }
    if (launch.options.is_network && result.has_calendar) {
      sched::set_order(*record, launch.prepared->plan, run.bases(), run.options());
    } else if (launch.options.is_network) {
      record->set_processes(launch.crew->network().take_places());
    }
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
  std::shared_ptr<char> identity_;
  InFlight::Turn turn_;  ///< guards the following members
  std::shared_ptr<sched::Prepared> prepared_;
  std::shared_ptr<bind::DecidingElements> deciding_;  ///< of the arguments of `prepared_`
  Shape shape_;
  std::shared_ptr<sched::SiteCosts> costs_;
  sched::Sharing sharing_;
  std::vector<std::shared_ptr<sched::Crew>> crews_;
  std::shared_ptr<sched::KeptGraph> graph_;
  uint64_t graph_of_ = 0;              ///< number of its plan
  sched::PolicyOptions graph_policy_;  ///< policies of its build
  uint64_t edges_suffice_for_ = 0;     ///< number of a plan
  std::shared_ptr<const sched::LoadedCalendar> calendar_;
  uint64_t calendar_of_ = 0;                              ///< number of its plan
  std::shared_ptr<const sched::Calendar> calendar_made_;  ///< it was given as this; null = it was made
  bool calendar_has_costs_ = false;                       ///< of all tasks
};

}  // namespace detail

}  // namespace pto::wsp
