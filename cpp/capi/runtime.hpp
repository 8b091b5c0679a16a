// SPDX-License-Identifier: MIT
/// \file
/// What a PTORuntime is.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "by_hand.hpp"
#include "graph_engine.hpp"
#include "pto/wsp/library.hpp"
#include "pto/wsp/sched/cpus.hpp"
#include "pto/wsp/sched/float_environment.hpp"
#include "pto/wsp/trace/clock.hpp"
#include "pto/wsp/trace/task_dump.hpp"

namespace pto::wsp::capi {

class Runtime {
 public:
  static constexpr uint32_t kMaxWorkers = 1024;

  /// What calls meet before anything else: PTO_OK, the error that is kept, or that tasks run.
  enum Gate : int { kFed = 1, kExecuting = 2 };
  int gate() const { return gate_.load(std::memory_order_acquire); }

  /// PTO_OK if a call may go on; the error that is kept. Throws a Mistake where tasks forbid it.
  [[gnu::cold, gnu::noinline]] int pass_gate() const {
    const int gate = this->gate();
    if (gate == kExecuting || (gate == kFed && sched::is_inside_run()))
      throw Mistake{PTO_ERROR_STATE, "its tasks run: until they are complete, nothing can be built or taken"};
    return gate == kFed ? int(PTO_OK) : gate;
  }

  /// Tasks run while others are built, once more than `threshold` are. \pre nothing is built
  void feed_from(uint32_t threshold) {
    is_fed_ = true;
    threshold_ = threshold;
  }

  void set_workers(int workers) {
    refuse_while_fed("workers run the tasks already: how many, that has to be said before");
    if (workers < 0 || workers > int(kMaxWorkers))
      throw Mistake{PTO_ERROR_ARGUMENT, std::to_string(workers) + " workers: expected 0 to 1024"};
    refuse_with_groups();
    workers_ = uint32_t(workers);
  }

  void set_group(int workers) {
    refuse_with_groups();
    if (workers < 1) throw Mistake{PTO_ERROR_ARGUMENT, "a group of " + std::to_string(workers) + " workers"};
    directives_.set_group(uint32_t(workers));
  }

  void set_row_unit(int32_t rows) {
    if (rows < 1) throw Mistake{PTO_ERROR_ARGUMENT, "a row unit of " + std::to_string(rows)};
    row_unit_ = rows;
    tasks_.regions().forget_recent();
  }

  void register_function(const char* name, PTOInCoreFunc function) {
    if (name == nullptr) throw Mistake{PTO_ERROR_ARGUMENT, "a function without a name is registered"};
    refuse_while_fed("workers run the tasks already: functions have to be registered before");
    names_.find(name)->function = function;
  }

  /// Makes tasks that have no function run the kernels of their names.
  void load_kernels(const char* path) {
    if (path == nullptr) throw Mistake{PTO_ERROR_ARGUMENT, "a kernel library without a name is loaded"};
    refuse_while_fed("workers run the tasks already: kernels have to be loaded before");
    try {
      libraries_.push_back(std::make_unique<LoadedLibrary>(path));
    } catch (const EngineError& error) {
      throw Mistake{PTO_ERROR_FILE, error.what()};
    }
    const KernelLibrary& table = libraries_.back()->table();
    for (uint32_t i = 0; i < table.num_kernels; ++i)
      names_.find(table.kernels[i].name)->kernel = &table.kernels[i];
  }

  // Building

  int32_t alloc(const char* name, PTOInCoreFunc function, int32_t buffer_bytes, int32_t reuse_bytes) {
    if (name == nullptr) throw Mistake{PTO_ERROR_ARGUMENT, "a task has no name"};
    if (buffer_bytes < 0 || reuse_bytes < 0)
      throw Mistake{PTO_ERROR_ARGUMENT, std::string("a task `") + name + "` has a negative buffer size"};
    if (tasks_.num_allocated() == Tasks::kMaxTasks) throw Mistake{PTO_ERROR_TOO_MANY, "more than 2^26 tasks"};
    const auto number = int32_t(tasks_.add(names_.find(name), function, buffer_bytes, reuse_bytes));
    set_latest(number);
    return number;
  }

  /// Adds a region that was used lately to the task that was allocated last; false if it is another case.
  [[gnu::always_inline]] inline bool add_to_latest(int32_t number, const void* tensor, int64_t row,
                                                   int64_t col, int64_t rows, int64_t cols, Role role) {
    uint32_t region;
    return number == latest() && tasks_.regions().find_recent(tensor, row, col, rows, cols, region) &&
           tasks_.add_to_latest({region, role});
  }

  void add_argument(int32_t number, const void* tensor, int64_t row, int64_t col, int64_t rows, int64_t cols,
                    Role role) {
    if (!is_in_state(number, Task::State::kOpen)) refuse_task(number, "allocated and not submitted");
    int64_t first_row = 0;
    if (__builtin_mul_overflow(row, row_unit_, &first_row)) first_row = INT64_MAX;
    const Region region(tensor, first_row, col, rows, cols);
    if (!region.can_be()) refuse_region(number, region);
    if (number != latest()) set_latest(kNobody);
    const uint32_t found = number_of(region);
    tasks_.regions().make_recent(tensor, row, col, rows, cols, found);
    tasks_.add_argument(uint32_t(number), {found, role});
  }

  /// States a number of a task for a directive.
  void state(int32_t number, Directives::Kind kind, int64_t value) {
    if (!is_in_state(number, Task::State::kOpen)) refuse_task(number, "allocated and not submitted");
    if (!directives_.is_stated(kind)) begin_directive(kind);
    directives_.state(uint32_t(number), kind, value);
  }

  [[gnu::always_inline]] inline void submit(int32_t number) {
    if (number != latest() && !is_in_state(number, Task::State::kOpen))
      refuse_task(number, "allocated and not submitted");
    set_latest(kNobody);
    const uint32_t place = tasks_.num_submitted();
    const Task& task = tasks_.submit(uint32_t(number));
    const bool ends_strand = __builtin_expect(directives_.are_stated(), false)
                                 ? record_stated(number)
                                 : recorder_.record(task, place);
    if (is_fed_) feed(ends_strand);
    by_hand_.notice_submitted();
  }

  // Running

  void execute() {
    if (sched::is_inside_run()) throw Mistake{PTO_ERROR_STATE, "a task cannot run other tasks"};
    if (tasks_.num_submitted() < tasks_.num_allocated()) refuse_open();
    if (recorder_.is_empty()) return;
    if (!is_begun_) close_by_hand();
    const int64_t start = trace::now_ns();
    const std::shared_ptr<sched::KeptGraph> graph = recorder_.finish();
    pass_from(is_begun_ ? int(kFed) : int(PTO_OK), kExecuting);
    if (is_begun_) {
      engine().crew().feed();
      engine().crew().end_feed();
    } else {
      engine().begin(graph, num_workers(), directives_, false);
    }
    is_working_ = true;
    const std::optional<sched::Failure> failure = engine().finish();
    is_working_ = false;
    run_ns_ = trace::now_ns() - start;
    num_strands_ = graph->num_strands();
    is_begun_ = false;
    if (failure) throw_failure(*failure);
    recorder_.begin_graph();
    by_hand_.open(tasks_.num_submitted());
    pass_from(kExecuting, PTO_OK);
  }

  // Taking, running and completing tasks by hand, on any thread

  int32_t take(bool waits) {
    by_hand_.begin_use();
    if (is_scheduled_.load(std::memory_order_seq_cst))
      throw Mistake{PTO_ERROR_STATE, "directives are for workers: run the tasks by pto_execute_all"};
    const int32_t number = by_hand_.take(waits);
    return error() == PTO_OK ? number : error();
  }
  void complete(int32_t number) {
    if (number < 0 || !by_hand_.complete(uint32_t(number))) refuse_task(number, "taken and not complete");
  }
  void run_taken(int32_t number) {
    if (number < 0 || !by_hand_.begin_run(uint32_t(number))) refuse_task(number, "taken and not run");
    const Task& task = tasks_[uint32_t(number)];
    const sched::FloatEnvironment floats;
    sched::LoneMonitor monitor;
    const TaskContext context{nullptr, nullptr, 0, uint64_t(number), 0, 1, &monitor};
    try {
      call(tasks_, task, context);
    } catch (const std::bad_alloc&) {
      throw Mistake{PTO_ERROR_MEMORY, describe(number) + ": there is no memory"};
    } catch (const std::exception& error) {
      throw Mistake{PTO_ERROR_FUNCTION, describe(number) + ": " + error.what()};
    } catch (...) {
      throw Mistake{PTO_ERROR_FUNCTION, describe(number) + ": it threw an exception"};
    }
  }

  // Looking

  PTORuntimeStats stats() const {
    PTORuntimeStats stats{};
    stats.tasks_allocated = tasks_.num_allocated();
    stats.tasks_submitted = tasks_.num_submitted();
    EarlierFinder finder(tasks_);
    for (uint32_t place = 0; place < tasks_.num_submitted(); ++place) {
      const Task& task = tasks_.at(place);
      stats.tasks_completed += task.state() == Task::State::kComplete ? 1 : 0;
      stats.dependences += finder.next_sorted(task, place).size();
    }
    stats.arguments = recorder_.num_arguments();
    stats.strands = num_strands_;
    stats.bytes = tasks_.num_bytes() + recorder_.num_bytes();
    stats.run_ns = uint64_t(run_ns_);
    return stats;
  }

  /// The tasks that were submitted, in this order.
  trace::TaskDump dump() const {
    trace::TaskDump dump;
    EarlierFinder finder(tasks_);
    for (uint32_t place = 0; place < tasks_.num_submitted(); ++place) {
      const Task& task = tasks_.at(place);
      trace::DumpedTask dumped;
      dumped.name = task.name->text;
      dumped.function = task.kernel() != nullptr ? reinterpret_cast<uint64_t>(task.kernel()->fn)
                                                 : reinterpret_cast<uint64_t>(task.body());
      dumped.buffer_bytes = uint64_t(task.buffer_bytes);
      dumped.reused_bytes = uint64_t(task.reuse_bytes);
      dumped.is_complete = task.state() == Task::State::kComplete;
      const std::vector<uint32_t>& earlier = finder.next_sorted(task, place);
      dumped.before.assign(earlier.begin(), earlier.end());
      for (uint32_t i = 0; i < task.num_arguments; ++i)
        dumped.arguments.push_back(describe(task.arguments[i]));
      dump.add(std::move(dumped));
    }
    return dump;
  }

  // The first mistake

  int error() const { return std::min(gate(), int(PTO_OK)); }
  /// \pre no thread keeps one at the same time
  const char* message() const { return message_.c_str(); }
  int keep(Mistake mistake) {
    const std::lock_guard<std::mutex> lock(error_mutex_);
    if (error() == PTO_OK) {
      message_ = std::move(mistake.message);
      set_latest(kNobody);
      gate_.store(mistake.code, std::memory_order_release);
      by_hand_.stop();
    }
    return error();
  }

  // The end

  /// Whether this is called while it cannot end, by one of its tasks or during `execute`.
  bool is_working() const { return is_working_ || (is_begun_ && sched::is_inside_run()); }

  /// Makes an empty runtime of this one, whose memory stays warm; false if that would keep too much.
  bool clear() {
    end_run();
    if (error() != PTO_OK || tasks_.num_bytes() + recorder_.num_bytes() > kMaxKeptBytes) return false;
    by_hand_.clear();
    tasks_.clear();
    recorder_.clear();
    names_.clear();
    libraries_.clear();
    directives_.clear();
    is_scheduled_.store(false, std::memory_order_relaxed);
    set_latest(kNobody);
    row_unit_ = 1;
    workers_ = 0;
    is_fed_ = false;
    num_unfed_ = 0;
    num_strands_ = 0;
    run_ns_ = 0;
    return true;
  }

  ~Runtime() { end_run(); }

 private:
  static constexpr int32_t kNobody = -1;
  static constexpr uint32_t kFeedStrands = 8;
  static constexpr uint64_t kMaxKeptBytes = uint64_t{1} << 27;

  /// Ends a run that no call waited for.
  void end_run() {
    if (!is_begun_) return;
    if (engine().crew().is_of_this_process()) {
      engine().crew().end_feed();
      engine().crew().cancel();
      engine().finish();
    } else {
      engine().abandon();
    }
    is_begun_ = false;
    int fed = kFed;
    gate_.compare_exchange_strong(fed, PTO_OK);
  }

  /// Moves the gate, or throws the error that has been kept since.
  void pass_from(int before, int after) {
    if (!gate_.compare_exchange_strong(before, after)) throw Kept{};
  }

  void close_by_hand() {
    if (!by_hand_.close()) throw Mistake{PTO_ERROR_STATE, "tasks that were taken are not complete"};
  }

  void refuse_while_fed(const char* message) const {
    if (is_begun_) throw Mistake{PTO_ERROR_STATE, message};
  }

  void refuse_with_groups() const {
    if (directives_.is_stated(Directives::kAffinity))
      throw Mistake{PTO_ERROR_STATE,
                    "tasks have groups of workers already: their number has to be said before"};
  }

  /// A directive begins to hold. Without one, the tasks so far have no traits.
  void begin_directive(Directives::Kind kind) {
    refuse_while_fed("workers run the tasks already: a directive has to be stated before");
    if (!directives_.are_stated() && !recorder_.is_empty())
      throw Mistake{PTO_ERROR_STATE,
                    "tasks without directives are submitted: the first task has to state one"};
    is_scheduled_.store(true, std::memory_order_seq_cst);
    if (by_hand_.is_used())
      throw Mistake{PTO_ERROR_STATE, "directives are for workers, and tasks are taken by hand"};
    directives_.begin(kind);
  }

  [[gnu::noinline]] bool record_stated(int32_t number) {
    const sched::Traits traits = directives_.take(uint32_t(number), num_workers());
    return recorder_.record(tasks_[uint32_t(number)], tasks_.num_submitted() - 1, &traits);
  }

  GraphEngine& engine() {
    if (!engine_) engine_.emplace(tasks_);
    return *engine_;
  }

  uint32_t num_workers() const {
    return workers_ != 0 ? workers_ : std::min(sched::default_workers(), kMaxWorkers);
  }

  void feed(bool ends_strand) {
    if (!is_begun_ && tasks_.num_submitted() > threshold_) {
      close_by_hand();
      engine().begin(recorder_.graph(), num_workers(), directives_, true);
      is_begun_ = true;
      pass_from(PTO_OK, kFed);
    }
    if (!is_begun_ || !ends_strand || ++num_unfed_ < kFeedStrands) return;
    num_unfed_ = 0;
    engine().crew().feed();
  }

  uint32_t number_of(const Region& region) {
    const uint32_t found = tasks_.regions().find(region);
    if (found != Regions::kNone) return found;
    if (tasks_.regions().size() == Regions::kMaxRegions)
      throw Mistake{PTO_ERROR_TOO_MANY, "more than 2^26 different regions"};
    return tasks_.regions().add(region);
  }

  int32_t latest() const { return latest_.load(std::memory_order_relaxed); }
  void set_latest(int32_t number) { latest_.store(number, std::memory_order_relaxed); }

  bool is_in_state(int32_t number, Task::State state) const {
    return number >= 0 && uint32_t(number) < tasks_.num_allocated() &&
           tasks_[uint32_t(number)].state() == state;
  }

  [[noreturn, gnu::cold]] void refuse_task(int32_t number, const char* expected) const {
    throw Mistake{PTO_ERROR_TASK, "task " + std::to_string(number) + " is not " + expected};
  }

  [[noreturn, gnu::cold]] void refuse_region(int32_t number, const Region& region) const {
    const std::string what = region.tensor == 0 ? "a null tensor" : "a region that cannot be";
    throw Mistake{PTO_ERROR_ARGUMENT, describe(number) + " gets " + what + ": row " +
                                          std::to_string(region.row) + ", col " + std::to_string(region.col) +
                                          ", rows " + std::to_string(region.rows) + ", cols " +
                                          std::to_string(region.cols)};
  }

  [[noreturn, gnu::cold]] void refuse_open() const {
    uint32_t number = 0;
    while (tasks_[number].state() != Task::State::kOpen) ++number;
    throw Mistake{PTO_ERROR_STATE, describe(int32_t(number)) + " was allocated and never submitted"};
  }

  [[noreturn]] void throw_failure(const sched::Failure& failure) const {
    const bool is_memory = failure.error->code() == "out-of-memory";
    throw Mistake{is_memory ? PTO_ERROR_MEMORY : PTO_ERROR_FUNCTION,
                  describe(int32_t(tasks_.number_at(uint32_t(failure.task)))) + ": " + failure.error->what()};
  }

  std::string describe(int32_t number) const {
    return "task " + std::to_string(number) + " `" + tasks_[uint32_t(number)].name->text + "`";
  }

  std::string describe(Argument argument) const {
    static constexpr const char* kRoles[] = {"in", "out", "inout"};
    const Region& region = tasks_.region(argument);
    char text[160];
    std::snprintf(text, sizeof(text), "%s 0x%" PRIxPTR "[%" PRId64 ":%" PRId64 ", %" PRId64 ":%" PRId64 "]",
                  kRoles[int(argument.role())], region.tensor, region.row, region.row + region.rows,
                  region.col, region.col + region.cols);
    return text;
  }

  std::vector<std::unique_ptr<LoadedLibrary>> libraries_;
  Tasks tasks_;
  Names names_;
  Recorder recorder_{tasks_};
  Directives directives_;
  std::atomic<bool> is_scheduled_{false};  ///< a directive holds
  std::optional<GraphEngine> engine_;
  ByHand by_hand_{tasks_};
  std::mutex error_mutex_;
  std::atomic<int> gate_{PTO_OK};
  std::string message_;
  /// The task that was allocated last, if it is not submitted, and no mistake was made, by whatever thread.
  std::atomic<int32_t> latest_{kNobody};
  int32_t row_unit_ = 1;
  uint32_t workers_ = 0;
  uint32_t threshold_ = 0;
  uint32_t num_unfed_ = 0;  ///< strands that are complete and that workers do not know of
  bool is_fed_ = false;
  std::atomic<bool> is_begun_{false};    ///< workers run tasks while others are built
  std::atomic<bool> is_working_{false};  ///< the caller of `execute` is one of them
  uint64_t num_strands_ = 0;
  int64_t run_ns_ = 0;
};

}  // namespace pto::wsp::capi
