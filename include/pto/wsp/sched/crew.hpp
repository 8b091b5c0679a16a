// SPDX-License-Identifier: MIT
/// \file
/// The threads of a run, and what each does next.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/sched/calendar_run.hpp"
#include "pto/wsp/sched/dispatcher.hpp"
#include "pto/wsp/sched/float_environment.hpp"
#include "pto/wsp/sched/graph_run.hpp"
#include "pto/wsp/sched/in_order.hpp"
#include "pto/wsp/sched/network.hpp"
#include "pto/wsp/sched/pool.hpp"
#include "pto/wsp/sched/symbolic_run.hpp"

namespace pto::wsp::sched {

/// One thread is the keeper of the run. It is worker 0, ends the run, and detects a run that is stuck. The
/// keeper is the first thread that waits for the run, or a pool thread if the run was offered to the pool. A
/// pool thread without work resigns while others run tasks: it may work for other runs, and any pool thread
/// becomes the keeper later. Other pool threads join while there is work.
///
/// A worker takes a published slice, or continues a dispatcher that no thread is in (its own first), or
/// waits. No dispatcher and no slice depends on a particular thread.
class Crew final : public Job, public Others, public std::enable_shared_from_this<Crew> {
 public:
  Crew() : run_(*this) {}

  /// Prepares a run. If `graph` is not null, the run is one of this graph. An empty graph is built first. A
  /// fed graph is built by the caller, who calls `feed`. A run by a calendar has it loaded. \pre is_idle()
  void begin(std::shared_ptr<Prepared> prepared, std::vector<char*> bases, const RunOptions& options,
             std::shared_ptr<KeptGraph> graph, bool is_fed = false,
             std::shared_ptr<const LoadedCalendar> calendar = nullptr) {
    run_.begin(std::move(prepared), std::move(bases), options);
    if (Imports* imports = options.imports; imports != nullptr)
      imports->begin(run_.progress(), run_.numbering_start().first_slice - imports->num_slices(), *this);
    graph_run_.reset();
    if (graph != nullptr) graph_run_.emplace(run_, std::move(graph), is_fed);
    network_.reset();
    if (options.is_network && calendar == nullptr) network_.emplace(run_, *this);
    symbolic_.reset();
    calendar_.reset();
    free_slots_.clear();
    // The keeper runs all tasks of an in-order run.
    const int num_slots = options.is_in_order() ? 1 : int(options.workers);
    for (int slot = num_slots; slot-- > 1;) free_slots_.push_back(slot);
    num_dispatchers_ = options.is_network || calendar != nullptr ? 0 : options.num_dispatchers();
    while (dispatchers_.size() < num_dispatchers_) {
      const auto index = uint32_t(dispatchers_.size());
      dispatchers_.push_back(std::make_unique<Dispatcher>(run_, index));
    }
    for (uint32_t i = 0; i < dispatchers_.size() && num_dispatchers_ > 0; ++i)
      dispatchers_[i]->reset(num_dispatchers_);
    if (options.may_be_symbolic() && run_.prepared()->waits->is_complete()) {
      num_dispatchers_ = 0;
      symbolic_.emplace(run_, *this, *run_.prepared()->waits);
    }
    if (calendar != nullptr) calendar_.emplace(run_, std::move(calendar));
    forks_ = num_forks();
    keeper_.store(Keeper::kAwaited, std::memory_order_relaxed);
    is_retry_due_.store(false, std::memory_order_relaxed);
    is_over_.store(false, std::memory_order_relaxed);
    is_alone_.store(options.begins_alone, std::memory_order_relaxed);
    is_done_.store(false, std::memory_order_relaxed);
    is_in_pool_.store(false, std::memory_order_relaxed);
    num_free_.store(num_slots - 1, std::memory_order_relaxed);
    run_.num_idle.store(num_slots - 1, std::memory_order_relaxed);
  }

  /// No pool thread is inside. Only meaningful while the run is not in the pool.
  bool is_idle() const { return num_inside_.load(std::memory_order_acquire) == 0; }

  /// Lets the run proceed without a thread that waits for it.
  void offer() {
    Keeper awaited = Keeper::kAwaited;
    if (!keeper_.compare_exchange_strong(awaited, Keeper::kOffered)) return;
    // A keeper that waits for earlier runs takes no thread from them.
    const uint32_t num_keepers = run_.options().imports != nullptr ? 1 : 0;
    enter_pool(num_keepers + (run_.options().is_in_order() ? 1 : run_.num_workers()));
    Pool::instance().wake();
  }

  /// Lets workers run the tasks added so far to a fed graph. Throws `run-in-flight-at-fork`.
  void feed() {
    check_process();
    graph_run_->open();
    call();
  }
  /// The fed graph is complete.
  void end_feed() { graph_run_->end_build(); }

  /// Works until the run is over, no thread is in one of its tasks, and no thread reads memory of the caller.
  /// Throws `run-in-flight-at-fork`.
  void wait() {
    check_process();
    if (take_keeper()) return keep(true);
    while (!is_done()) {
      lend_thread();  // announces that it sleeps
      if (is_done()) {
        waiters_.cancel();
      } else if (is_keeper_missed() && take_keeper()) {
        waiters_.cancel();
        return keep(true);
      } else if (!waiters_.wait(kAskPeriod) && is_interrupted()) {
        cancel();
      }
    }
  }

  /// Ends the run as soon as no thread is in a task any more. Any thread may call it.
  void cancel() {
    if (is_done()) return;
    run_.cancel();
    if (!keeper_sleeps_.notify_one()) Pool::instance().wake();
  }

  /// Whether the run is over and no thread is in one of its tasks. Acquire: all its writes are visible.
  bool is_done() const { return is_done_.load(std::memory_order_seq_cst); }
  /// Whether threads of the run exist in this process.
  bool is_of_this_process() const { return forks_ == num_forks(); }
  /// \pre is_done()
  int64_t end_ns() const { return end_ns_; }

  Run& run() { return run_; }
  /// \pre the run is one of a network, without a calendar
  Network& network() { return *network_; }
  uint32_t num_dispatchers() const { return num_dispatchers_; }
  const Dispatcher& dispatcher(uint32_t i) const { return *dispatchers_[i]; }
  /// Null if hazard maps order the tasks, or program order alone.
  const SymbolicRun* symbolic_run() const { return symbolic_ ? &*symbolic_ : nullptr; }
  /// Null if the run is not by a calendar.
  const CalendarRun* calendar_run() const { return calendar_ ? &*calendar_ : nullptr; }
  /// Null if the run is not of a graph.
  const GraphRun* graph_run() const { return graph_run_ ? &*graph_run_ : nullptr; }

  /// Wakes a thread that has work. Called after a completion or a publication.
  void call() override {
    if (keeper_sleeps_.has_waiters() && wants_keeper() && keeper_sleeps_.notify_one()) return;
    if (num_free_.load(std::memory_order_relaxed) == 0) return;
    const bool is_in_pool = is_in_pool_.load(std::memory_order_relaxed);
    if (is_in_pool && !waiters_.has_waiters() && !Pool::instance().has_sleepers()) return;
    const bool is_retry = has_stopped_dispatcher();
    if (!is_retry && !has_work(kAllLanes)) return;
    if (is_retry) is_retry_due_.store(true, std::memory_order_seq_cst);
    enter_pool(run_.num_workers() - 1);
    if (!waiters_.notify_one()) Pool::instance().wake();
  }

  // Job, called by the pool.
  int join() override {
    if (is_over_.load(std::memory_order_relaxed)) return -1;
    const bool is_offered = keeper_.load(std::memory_order_relaxed) == Keeper::kOffered;
    if ((is_offered || is_keeper_missed()) && take_keeper()) {
      num_inside_.fetch_add(1, std::memory_order_relaxed);
      return 0;
    }
    const bool is_retry = is_retry_due_.load(std::memory_order_relaxed);
    const auto found = std::find_if(free_slots_.rbegin(), free_slots_.rend(), [&](int slot) {
      return is_retry || has_work(run_.pools().lanes_of(uint32_t(slot)));
    });
    if (found == free_slots_.rend()) return -1;
    is_retry_due_.store(false, std::memory_order_relaxed);
    const int slot = *found;
    free_slots_.erase(found.base() - 1);
    add_free(-1);
    num_inside_.fetch_add(1, std::memory_order_relaxed);
    return slot;
  }
  void leave(int slot) override {
    // With pools, every worker must get its turn. Without pools, a worker with warm caches is preferred.
    const bool has_pools = run_.pools().num_pools() > 0;
    if (slot != 0) {
      free_slots_.insert(has_pools ? free_slots_.begin() : free_slots_.end(), slot);
      add_free(1);
    }
    num_inside_.fetch_sub(1, std::memory_order_release);
  }
  void help(int slot, EventCount& sleepers) override {
    if (slot == 0) {
      keep(false);
      return sleepers.prepare();  // the pool looks once more
    }
    const FloatEnvironment floats;
    for (;;) {
      for (int idle = 0; idle < kSpins && !is_over_.load(std::memory_order_relaxed);) {
        if (work_once(uint32_t(slot))) {
          idle = 0;
          call();
        } else if (is_keeper_missed()) {
          break;
        } else {
          pause(idle++);
        }
      }
      sleepers.prepare();
      if (is_over_.load(std::memory_order_relaxed) || !work_once(uint32_t(slot))) return;
      sleepers.cancel();
      call();
    }
  }

 private:
  enum class Keeper : uint8_t {
    kAwaited,  ///< the first thread that waits becomes the keeper
    kOffered,  ///< or a pool thread, whichever comes first
    kTaken,
    kResigned,  ///< a pool thread was it, and others run tasks
  };

  static constexpr int kSpins = 200;
  static constexpr std::chrono::milliseconds kAskPeriod{50};

  void check_process() const {
    if (!is_of_this_process())
      throw EngineError("run-in-flight-at-fork", "the process was forked while this program was running");
  }

  // The keeper

  bool take_keeper() {
    const Keeper before = keeper_.exchange(Keeper::kTaken, std::memory_order_acq_rel);
    if (before == Keeper::kResigned) add_free(-1);
    return before != Keeper::kTaken;
  }

  /// Whether a keeper that resigned has something to do, or no other thread is in the run.
  bool is_keeper_missed() {
    if (keeper_.load(std::memory_order_acquire) != Keeper::kResigned) return false;
    return num_inside_.load(std::memory_order_relaxed) == 0 ||
           is_retry_due_.load(std::memory_order_relaxed) || wants_keeper();
  }

  /// Gives the role back if this pool thread has nothing to do in the run and others run tasks of it. They
  /// return to the pool, which looks for a keeper then.
  bool resign() {
    const RunOptions& options = run_.options();
    const bool is_observed = options.on_progress != nullptr || options.time_limit_ns > 0;
    if (run_.worker(0).is_lent || options.imports != nullptr || is_observed || is_building()) return false;
    bool is_other_active = false;
    for (uint32_t i = 1; i < run_.num_workers() && !is_other_active; ++i)
      is_other_active = run_.worker(i).is_active.load(std::memory_order_seq_cst);
    if (!is_other_active) return false;
    add_free(1);
    keeper_.store(Keeper::kResigned, std::memory_order_seq_cst);
    return true;
  }

  /// Worker 0, until the run is over or the keeper resigns.
  void keep(bool is_lent) {
    {
      const FloatEnvironment floats;
      run_.worker(0).is_lent = is_lent;
      try {
        if (!keep_at_work()) return;
      } catch (EngineError& error) {
        run_.abort({0, 0, std::move(error), true});
      } catch (...) {
        run_.abort({0, 0, {}, true});
      }
    }
    end();
  }

  /// Wakes other workers when there is more work. It wakes them immediately if the first slice, which this
  /// thread runs, may take long. Returns false if it resigned.
  bool keep_at_work() {
    if (is_alone_.load(std::memory_order_relaxed) || run_.options().is_in_order()) {
      if (!InOrder(run_).work()) {
        run_.end_at(run_.numbering_start().first_slice);
        return true;
      }
      is_alone_.store(false, std::memory_order_seq_cst);
    }
    for (uint32_t i = 1; i < run_.num_workers() && run_.may_be_long(); ++i) call();
    int64_t looked_ns = 0;  // time of the last check for a stuck run
    for (int round = 0; !has_ended();) {
      if (work_once(0)) {
        round = 0;
        call();
      } else if (round < kSpins) {
        pause(round++);
        looked_ns = 0;
      } else if (resign()) {
        return false;
      } else {
        sleep();
        check_stuck(looked_ns);
      }
      run_.look_out(run_.worker(0));
    }
    return true;
  }

  /// Sleeps until there is work, or until the next check for an interrupt of the caller is due.
  void sleep() {
    run_.num_idle.fetch_add(1, std::memory_order_relaxed);
    keeper_sleeps_.prepare();
    if (has_ended() || work_once(0)) {
      keeper_sleeps_.cancel();
    } else {
      keeper_sleeps_.wait(kAskPeriod);
    }
    run_.num_idle.fetch_sub(1, std::memory_order_relaxed);
  }

  /// Whether there is work for the sleeping keeper.
  bool wants_keeper() { return has_ended() || is_building() || has_work(run_.pools().lanes_of(0)); }

  /// Ends a run. Pool threads leave on their own. Waits until none of them runs a body or reads memory of the
  /// caller.
  void end() {
    is_over_.store(true, std::memory_order_seq_cst);
    if (is_in_pool_.load(std::memory_order_relaxed)) Pool::instance().remove(this);
    for (uint32_t i = 1; i < run_.num_workers(); ++i) wait_for_worker(run_.worker(i));
    for (uint32_t i = 0; i < num_dispatchers_; ++i) dispatchers_[i]->leave();
    run_.end_observation();
    if (Imports* imports = run_.options().imports; imports != nullptr) imports->detach();
    end_ns_ = trace::now_ns();
    if (Completions* completions = run_.options().completions; completions != nullptr)
      completions->end(run_.failure() || run_.is_cancelled());
    is_done_.store(true, std::memory_order_seq_cst);
    waiters_.notify_all();
  }

  void wait_for_worker(const Worker& worker) {
    for (int spins = 0; worker.is_active.load(std::memory_order_seq_cst); ++spins) {
      if (spins < kSpins) {
        pause(spins);
        continue;
      }
      keeper_sleeps_.prepare();
      if (worker.is_active.load(std::memory_order_seq_cst)) {
        keeper_sleeps_.wait(kAskPeriod);
      } else {
        keeper_sleeps_.cancel();
      }
    }
  }

  // Workers

  /// Whether there is work for workers that take slices from `lanes`. Slices that must wait do not count.
  bool has_work(Lanes lanes) const {
    if (is_over_.load(std::memory_order_relaxed) || is_alone_.load(std::memory_order_acquire)) return false;
    if (network_) return network_->has_ready();
    if (symbolic_) return symbolic_->has_work();
    if (calendar_) return calendar_->has_work();
    if (graph_run_) return has_strands(lanes);
    for (uint32_t i = 0; i < num_dispatchers_; ++i) {
      if (dispatchers_[i]->can_go_on(lanes)) return true;
    }
    return run_.ready().has_ready(lanes, run_.progress());
  }

  /// The same for a graph. If memory for the answer is missing, the worker that tries ends the run.
  bool has_strands(Lanes lanes) const {
    try {
      return graph_run_->has_work(lanes);
    } catch (const std::bad_alloc&) {
      return true;
    }
  }

  /// Whether a dispatcher is stopped. Its wait may be satisfied by now.
  bool has_stopped_dispatcher() const {
    for (uint32_t i = 0; i < num_dispatchers_ && !graph_run_; ++i) {
      if (dispatchers_[i]->is_stopped()) return true;
    }
    return false;
  }

  /// Whether the keeper must build more of a graph.
  bool is_building() const { return graph_run_ && !graph_run_->is_built(); }

  /// Whether every task that must complete is complete.
  bool has_ended() {
    if (network_) return run_.is_cancelled() || network_->is_over();
    if (symbolic_) return run_.is_cancelled() || symbolic_->is_over();
    if (calendar_) return run_.is_cancelled() || calendar_->is_over();
    return graph_run_ ? run_.is_cancelled() || graph_run_->is_over() : run_.is_over();
  }

  /// Runs a strand of a graph or a slice, or continues a dispatcher. False if there was no work.
  bool work_once(uint32_t slot) {
    Worker& worker = run_.worker(slot);
    // Sequentially consistent with threads that wait for workers (`end`, `are_others_idle`): either they see
    // this worker active, or it sees them. At the end, the same holds for threads that go to sleep (see
    // `call`).
    worker.is_active.store(true, std::memory_order_seq_cst);
    const bool is_paused = slot != 0 && is_paused_.load(std::memory_order_seq_cst);
    const bool is_over = is_paused || is_over_.load(std::memory_order_seq_cst) || has_ended();
    const bool has_worked = !is_over && is_ready(slot) && try_work(worker, slot);
    worker.is_active.store(false, std::memory_order_seq_cst);
    if (slot != 0 && keeper_sleeps_.has_waiters() && has_ended()) keeper_sleeps_.notify_one();
    return has_worked;
  }

  /// False if there is no memory for the worker: the others do its work.
  bool is_ready(uint32_t slot) {
    try {
      run_.ready_worker(slot);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  /// Ends the run for an error that belongs to no task: no memory for a list of the scheduler.
  bool try_work(Worker& worker, uint32_t slot) {
    try {
      if (!run_.options().traces_walks) return find_work(worker, slot);
      const int64_t start = trace::ticks();
      const bool has_worked = find_work(worker, slot);
      worker.note_stretch(start, has_worked);
      return has_worked;
    } catch (EngineError& error) {
      run_.abort({0, 0, std::move(error), true});
    } catch (...) {
      run_.abort({0, 0, {}, true});
    }
    return false;
  }

  /// Under a policy that orders ready tasks, expands tasks before one is chosen.
  bool find_work(Worker& worker, uint32_t slot) {
    if (network_) return network_->work(worker, slot);
    if (symbolic_) return symbolic_->work(worker, slot);
    if (calendar_) return calendar_->work(slot);
    const Lanes lanes = run_.pools().lanes_of(slot);
    if (graph_run_) return graph_run_->work(worker, slot, lanes);
    const Lanes preferred = run_.pools().preferred(slot);
    if (run_.is_ordered()) return step_any(slot) || run_.run_slice(worker, lanes, preferred);
    return run_.run_slice(worker, lanes, preferred) || step_any(slot);
  }

  bool step_any(uint32_t slot) {
    const uint64_t jitter = run_.options().jitter;
    const uint32_t first = jitter == 0 ? slot : Random(jitter + num_turns_.fetch_add(1)).next();
    for (uint32_t i = 0; i < num_dispatchers_; ++i) {
      Dispatcher& dispatcher = *dispatchers_[(first + i) % num_dispatchers_];
      if (!dispatcher.is_free() || !dispatcher.lock.try_lock()) continue;
      const std::lock_guard<SpinLock> lock(dispatcher.lock, std::adopt_lock);
      if (dispatcher.step(run_.worker(slot), run_.pools().lanes_of(slot))) return true;
    }
    return false;
  }

  // Runs that are stuck

  /// Throws `stuck` if no task can continue. Checks periodically while there is no work.
  void check_stuck(int64_t& looked_ns) {
    if (network_) return;   // it finds a deadlock itself
    if (symbolic_) return;  // the worker with the least front never waits
    if (calendar_) return;  // the first row that is not complete never waits
    const Imports* imports = run_.options().imports;
    if (imports != nullptr && !imports->are_complete()) return;  // another run goes on
    constexpr int64_t kPeriodNs = 100000000;
    const int64_t now = trace::now_ns();
    if (looked_ns == 0) looked_ns = now;
    if (now - looked_ns < kPeriodNs) return;
    looked_ns = now;
    is_paused_.store(true, std::memory_order_seq_cst);
    std::vector<BlockedTask> blocked;
    const bool is_stuck = are_others_idle() && is_ready(0) && find_stuck(blocked);
    is_paused_.store(false, std::memory_order_seq_cst);
    if (!is_stuck) return call();
    const uint64_t oldest = graph_run_ ? graph_run_->num_complete() : run_.progress().watermark();
    throw stuck_error(std::move(blocked), oldest);
  }

  /// Whether all other workers are idle shortly after they were paused.
  bool are_others_idle() {
    for (uint32_t i = 1; i < run_.num_workers(); ++i) {
      for (int round = 0; run_.worker(i).is_active.load(std::memory_order_seq_cst); pause(round++)) {
        if (round == kSpins) return false;
      }
    }
    return true;
  }

  /// Returns whether no task can ever continue, and adds the tasks that wait. \pre no other thread is at work
  bool find_stuck(std::vector<BlockedTask>& blocked) {
    if (graph_run_) {
      blocked = graph_run_->find_stuck(run_.worker(0));
      return !blocked.empty();
    }
    if (!run_.has_idle_slices()) return false;
    for (uint32_t i = 0; i < num_dispatchers_; ++i) {
      Dispatcher& dispatcher = *dispatchers_[i];
      if (dispatcher.step(run_.worker(0), run_.pools().lanes_of(0)) || dispatcher.waits_for_pool())
        return false;
    }
    if (!run_.has_idle_slices() || run_.is_over()) return false;
    blocked = run_.blocked_tasks();
    for (uint32_t i = 0; i < num_dispatchers_; ++i) dispatchers_[i]->add_blocked(blocked);
    return true;
  }

  // Threads

  void enter_pool(uint32_t threads) {
    if (is_in_pool_.load(std::memory_order_relaxed) || is_in_pool_.exchange(true)) return;
    Pool::instance().add(shared_from_this(), threads);
  }

  void add_free(int count) {
    num_free_.fetch_add(count, std::memory_order_relaxed);
    run_.num_idle.fetch_add(count, std::memory_order_relaxed);
  }

  /// Makes a thread that waits for a run with another keeper a worker while there is work. Returns after it
  /// has announced its sleep.
  void lend_thread() {
    const int slot = Pool::instance().lend(*this);
    if (slot < 0) return waiters_.prepare();
    Worker& worker = run_.worker(uint32_t(slot));
    worker.is_lent = true;
    help(slot, waiters_);
    worker.is_lent = false;
    Pool::instance().leave(*this, slot);
  }

  bool is_interrupted() const {
    const auto question = run_.options().is_interrupted;
    return question != nullptr && question();
  }

  /// Spins for a while, then yields the core.
  static void pause(int round) {
    if (round < kSpins / 2) {
      for (int i = 0; i < 16; ++i) relax();
    } else {
      std::this_thread::yield();
    }
  }

  Run run_;
  std::optional<GraphRun> graph_run_;
  std::optional<Network> network_;
  std::optional<SymbolicRun> symbolic_;
  std::optional<CalendarRun> calendar_;
  uint32_t num_dispatchers_ = 0;
  std::vector<std::unique_ptr<Dispatcher>> dispatchers_;
  std::atomic<uint64_t> num_turns_{0};
  std::atomic<bool> is_in_pool_{false};  ///< set when others are first woken: small runs need no pool
  std::vector<int> free_slots_;          ///< guarded by the pool's lock
  uint64_t forks_ = 0;                   ///< when the run began
  int64_t end_ns_ = 0;

  std::atomic<Keeper> keeper_{Keeper::kAwaited};
  EventCount waiters_;        ///< threads that wait for a run with another keeper
  EventCount keeper_sleeps_;  ///< the keeper without work
  alignas(kLineBytes) std::atomic<bool> is_over_{false};
  std::atomic<bool> is_alone_{false};  ///< the keeper runs tasks that are not shared
  std::atomic<bool> is_done_{true};
  std::atomic<bool> is_paused_{false};                  ///< workers except the keeper begin nothing
  std::atomic<bool> is_retry_due_{false};               ///< a dispatcher may have waited for a completed task
  alignas(kLineBytes) std::atomic<int> num_inside_{0};  ///< threads of the pool, and lent ones but the keeper
  std::atomic<int> num_free_{0};                        ///< slots
};

}  // namespace pto::wsp::sched
