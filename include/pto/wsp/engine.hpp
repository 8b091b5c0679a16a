// SPDX-License-Identifier: MIT
/// \file
/// The engine: an Executable is a validated program that can be run again and again.
#pragma once

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/core.hpp"
#include "pto/wsp/sched/check_options.hpp"
#include "pto/wsp/sched/cpus.hpp"

namespace pto::wsp {

/// A run in progress. Its arrays must not move, and must not be used elsewhere, until it is done.
class SubmittedRun {
 public:
  /// Cancels the run, and waits until no task runs.
  ~SubmittedRun() { end(); }
  SubmittedRun(const SubmittedRun&) = delete;
  SubmittedRun& operator=(const SubmittedRun&) = delete;

  /// Its number in this process, from 1 on.
  uint64_t number() const { return flight_.number(); }

  /// Lends the calling thread to the run until it is done, and returns the result. Any thread may call this,
  /// any number of times. Throws `kernel-failed`, what Worker::run throws, `run-cancelled`, `stuck`,
  /// `out-of-memory`, `nested-run` or `run-in-flight-at-fork`, and, with the detail `late`, what the checks
  /// throw that only the end of a run allows.
  RunResult& wait() {
    if (sched::is_inside_run())
      throw EngineError("nested-run", "a run was started from inside a run on the same thread");
    const Inside inside;
    if (crew_ != nullptr) crew_->wait();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!result_ && !error_) collect();
    if (error_) throw EngineError(*error_);
    return *result_;
  }

  /// Ends the run as soon as no task runs any more. Any thread may call this.
  void cancel() { InFlight::instance().cancel(flight_); }
  /// Whether all tasks are complete, or the run has ended otherwise. A run of the parent has ended in a
  /// forked child.
  bool is_done() const { return crew_->is_done() || !crew_->is_of_this_process(); }

 private:
  friend class Executable;

  /// Marks that this thread works for a run.
  struct Inside {
    Inside() { sched::is_inside_run() = true; }
    ~Inside() { sched::is_inside_run() = false; }
  };

  /// \param arrays  not copied by a call
  SubmittedRun(std::shared_ptr<detail::Core> core, bool is_call, const std::vector<bind::ArrayRef>& arrays,
               const sched::RunOptions& options)
      : core_(std::move(core)),
        arrays_(is_call ? std::vector<bind::ArrayRef>() : arrays),
        flight_(core_->identity(), is_call, is_call ? arrays : arrays_, core_->program().tensors) {
    launch_.options = options;
  }

  /// Lets the run begin while `earlier` runs are under way, and later runs begin while this one is. False if
  /// it must begin after one of them.
  bool follow(const std::vector<const SubmittedRun*>& earlier) {
    completions_ = std::make_shared<sched::Completions>();
    launch_.options.completions = completions_.get();
    imports_ = std::make_shared<sched::Imports>(core_->program(), arrays_);
    for (const SubmittedRun* run : earlier) {
      if (run->completions_ == nullptr) return false;
      const bool is_done = run->is_done();
      if (run->completions_->has_failed()) return false;
      if (is_done) continue;
      // A table of waits has none for other runs.
      if (launch_.options.has_calendar()) return false;
      if (launch_.options.keeps_graph() || !imports_->add(run->as_earlier())) return false;
      ordered_.push_back(&run->flight_);
    }
    if (imports_->num_slices() == 0) {
      imports_.reset();
    } else {
      launch_.options.imports = imports_.get();
      launch_.options.tracks = true;
    }
    return true;
  }

  sched::EarlierRun as_earlier() const { return {launch_.prepared->plan, arrays_, *completions_}; }

  void begin(const std::vector<bind::ArrayRef>& arrays, const std::vector<std::optional<int64_t>>& symbols) {
    const InFlight::Question is_interrupted = launch_.options.is_interrupted;
    bind::Arguments arguments = core_->bind(arrays, symbols, flight_, is_interrupted);
    const bool has_waited = InFlight::instance().add(flight_, is_interrupted, ordered_);
    is_in_flight_ = true;
    // The run before may have written deciding elements.
    if (has_waited) arguments = core_->bind(arrays, symbols, flight_, is_interrupted);
    core_->begin(launch_, std::move(arguments), flight_);
    crew_ = launch_.crew;
    InFlight::instance().begin(flight_, crew_);
  }

  void collect() {
    InFlight::instance().end(flight_);
    if (flight_.is_call()) crew_.reset();  // another run may begin on it from now on
    try {
      result_ = core_->finish(launch_, flight_);
    } catch (EngineError& error) {
      error_ = std::move(error);
    }
    land();
  }

  void land() {
    if (std::exchange(is_in_flight_, false)) InFlight::instance().remove(flight_);
  }

  void end() {
    if (crew_ != nullptr && !crew_->is_of_this_process()) {
      // Its threads do not exist here, and its locks may be taken for ever. No other program may get the
      // address that InFlight refuses.
      new std::shared_ptr<sched::Crew>(crew_);
      new std::shared_ptr<detail::Core>(core_);
    } else if (crew_ != nullptr && !crew_->is_done()) {
      const bool was_inside = std::exchange(sched::is_inside_run(), true);
      crew_->cancel();
      crew_->wait();
      sched::is_inside_run() = was_inside;
    }
    land();
    if (result_ && !flight_.is_call()) core_->give_back(launch_, flight_);
  }

  std::shared_ptr<detail::Core> core_;
  const std::vector<bind::ArrayRef> arrays_;
  Flight flight_;
  bool is_in_flight_ = false;
  detail::Core::Launch launch_;
  std::shared_ptr<sched::Completions> completions_;
  std::shared_ptr<sched::Imports> imports_;
  std::vector<const Flight*> ordered_;  ///< flights of earlier runs that the run conflicts with
  std::shared_ptr<sched::Crew> crew_;
  std::mutex mutex_;
  std::optional<RunResult> result_;
  std::optional<EngineError> error_;
};

class Executable {
 public:
  /// Validates `bytecode` against the library. Throws `bad-bytecode`, `bytecode-version` or
  /// `kernel-table-mismatch`. `other`, which may be null, is the same program under another schedule: both
  /// are cancelled together, and calls of both wait for each other.
  /// `walk`, which may be null, is generated source of the same workload.
  Executable(const uint8_t* bytecode, size_t size, std::shared_ptr<const KernelLibrary> library,
             const Executable* other = nullptr, std::shared_ptr<const walk::WalkFn> walk = nullptr)
      : core_(std::make_shared<detail::Core>(bytecode, size, std::move(library),
                                             other != nullptr ? other->core_.get() : nullptr,
                                             std::move(walk))) {}

  const bytecode::Program& program() const { return core_->program(); }

  /// Binds, checks and begins a run, which threads of the pool work on. Throws what check_options,
  /// bind_arguments and check_regions throw, `arrays-in-flight`, `run-cancelled`, `nested-run` or
  /// `run-in-flight-at-fork`, and what graph::check_iterations and graph::check_edges throw if that is asked
  /// for, unless flush points decide what runs. Nothing has run then.
  std::unique_ptr<SubmittedRun> submit(const std::vector<bind::ArrayRef>& arrays,
                                       const std::vector<std::optional<int64_t>>& symbols,
                                       const sched::RunOptions& options) {
    std::unique_ptr<SubmittedRun> run(new SubmittedRun(core_, false, arrays, checked(options)));
    run->begin(arrays, symbols);
    run->crew_->offer();
    return run;
  }

  /// Submits a run as if it began after `earlier` ones: its tasks wait for the tasks of them that they
  /// conflict with. Null if the runs cannot be compared task by task, or an earlier one has failed: then it
  /// must begin after them. It is cancelled if one of them fails later.
  std::unique_ptr<SubmittedRun> submit_after(const std::vector<const SubmittedRun*>& earlier,
                                             const std::vector<bind::ArrayRef>& arrays,
                                             const std::vector<std::optional<int64_t>>& symbols,
                                             const sched::RunOptions& options) {
    std::unique_ptr<SubmittedRun> run(new SubmittedRun(core_, false, arrays, checked(options)));
    if (!run->follow(earlier)) return nullptr;
    run->begin(arrays, symbols);
    run->crew_->offer();
    if (run->imports_ != nullptr) run->imports_->follow();
    return run;
  }

  /// Submits a run and waits for it. The calling thread works on it from the start. Another call of the same
  /// program whose arrays overlap is waited for before.
  RunResult run(const std::vector<bind::ArrayRef>& arrays, const std::vector<std::optional<int64_t>>& symbols,
                const sched::RunOptions& options) {
    SubmittedRun run(core_, true, arrays, checked(options));
    run.begin(arrays, symbols);
    return std::move(run.wait());
  }

  /// Finds how long a run takes on a simulated machine. Throws what `submit` throws, but what concerns
  /// other runs, and what `simulation.model` throws.
  sim::SimResult simulate(const std::vector<bind::ArrayRef>& arrays,
                          const std::vector<std::optional<int64_t>>& symbols, sched::RunOptions options,
                          const sim::Simulation& simulation) {
    options.workers = 1;
    options.is_simulated = true;
    options = checked(options);
    const std::vector<uint32_t>& cores = simulation.machine.cores;
    options.num_pools = sched::pools_of(options, *std::min_element(cores.begin(), cores.end()));
    const Flight flight(core_->identity(), true, arrays, program().tensors);
    return core_->simulate(arrays, symbols, options, simulation, flight);
  }

  /// A calendar for `options.workers` workers. Throws what `submit` throws, but what concerns other runs,
  /// `calendar-undecided` and `calendar-too-large`.
  MadeCalendar make_calendar(const std::vector<bind::ArrayRef>& arrays,
                             const std::vector<std::optional<int64_t>>& symbols, sched::RunOptions options) {
    options.makes_calendar = true;
    options = checked(options);
    const Flight flight(core_->identity(), true, arrays, program().tensors);
    return core_->make_calendar(arrays, symbols, options, flight);
  }

  /// A calendar for the cores of a simulated machine.
  MadeCalendar make_calendar(const std::vector<bind::ArrayRef>& arrays,
                             const std::vector<std::optional<int64_t>>& symbols, sched::RunOptions options,
                             const sim::Simulation& simulation) {
    options.makes_calendar = true;
    options.is_simulated = true;
    options.workers = 1;
    options = checked(options);
    const Flight flight(core_->identity(), true, arrays, program().tensors);
    return core_->make_calendar(arrays, symbols, options, simulation, flight);
  }

  /// Stops all runs of this program that are under way; they then throw `run-cancelled`. Any thread may call
  /// it.
  void cancel() { InFlight::instance().cancel_all(core_->identity()); }

 private:
  static sched::RunOptions checked(sched::RunOptions options) {
    if (sched::is_inside_run())
      throw EngineError("nested-run", "a run was started from inside a run on the same thread");
    if (options.workers == 0) options.workers = std::min(sched::default_workers(), sched::kMaxWorkers);
    sched::check_options(options);
    options.num_pools = sched::pools_of(options, options.workers);
    return options;
  }

  std::shared_ptr<detail::Core> core_;
};

}  // namespace pto::wsp
