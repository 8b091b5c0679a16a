// SPDX-License-Identifier: MIT
/// \file
/// A run of a network: each process is an expander that one worker at a time walks, until it must wait.
///
/// A worker takes a process that is ready, and runs its tasks in program order, each as it is expanded, so
/// its hazards are satisfied. Where tasks are long and workers idle, it offers the tasks to them and goes on:
/// see task_window.hpp. Where the process must wait for a channel, the worker records it with the
/// waiters of that channel and takes another one. The worker that changes a channel makes its waiters ready
/// that can go on. Where sharing does not pay, one worker at a time is in the network. Where it pays, each
/// worker has processes of its own, neighbours in declared order, so that most tokens stay in its cache. A
/// worker that is idle for a while takes over a process that is ready. Each process is ready, at work (also
/// while it awaits tasks of its own), waiting, or done: if none is ready or at work, nothing can ever go on,
/// so a deadlock is established without a clock.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/sched/network_sharing.hpp"
#include "pto/wsp/sched/network_state.hpp"
#include "pto/wsp/sched/run.hpp"
#include "pto/wsp/sched/shared_tasks.hpp"

namespace pto::wsp::sched {

class Network {
 public:
  using Process = NetworkProcess;

  /// \pre the run has begun
  Network(Run& run, Others& others)
      : run_(run),
        plan_(run.plan()),
        others_(others),
        state_(run.plan(), run.bases(), run.options()),
        sharing_(run.num_workers(), run.options().jitter != 0, run.prepared()->costs->network_sharing),
        idle_(run.num_workers()),
        tasks_(run) {
    for (const auto& process : state_.processes) {
      process->home = find_home(process->number);
      if (run.options().trace) process->places.emplace();
      ready_.push_back(process.get());
    }
    num_ready_.store(int(ready_.size()), std::memory_order_relaxed);
    num_active_.store(int(ready_.size()), std::memory_order_relaxed);
  }

  /// Whether there is a process for a worker that is not in the network.
  bool has_ready() const {
    return (sharing_.is_shared() || num_inside_.load(std::memory_order_seq_cst) == 0) &&
           (num_ready_.load(std::memory_order_seq_cst) > 0 || tasks_.has_tasks());
  }
  /// All processes have ended, failed or wait for ever; then the run has its failure.
  bool is_over() const { return is_over_.load(std::memory_order_seq_cst); }

  /// \pre the run is over
  MergeOrders take_merges() { return state_.take_merges(); }
  /// Where the tasks of each process come from, in a run that records them. \pre the run is over
  std::vector<trace::ProcessPlaces> take_places() {
    std::vector<trace::ProcessPlaces> places;
    for (const auto& process : state_.processes) {
      if (process->places) places.push_back(std::move(*process->places));
    }
    return places;
  }

  /// Runs processes as far as they can, one after the other. False if there is none for this worker.
  bool work(Worker& worker, uint32_t slot) {
    const bool may_enter = num_inside_.fetch_add(1, std::memory_order_seq_cst) == 0 || sharing_.is_shared();
    uint32_t& idle = idle_[slot].rounds;
    Process* process = may_enter ? take_ready(slot, idle >= kPatience) : nullptr;
    const bool is_found = process != nullptr || (may_enter && tasks_.has_tasks());
    idle = is_found ? 0 : idle + 1;
    if (is_found) work_from(process, worker, slot);
    num_inside_.fetch_sub(1, std::memory_order_seq_cst);
    return is_found;
  }

 private:
  /// A worker in a process. After the process was recorded as a waiter, another worker may have it. Tasks of
  /// a process may overlap if the worker is not the only one (`kIsAlone`).
  template <bool kIsAlone>
  class Walk : private bytecode::EventVisitor {
   public:
    Walk(Network& network, Process& process, Worker& worker, uint32_t slot)
        : network_(network),
          run_(network.run_),
          plan_(network.plan_),
          process_(process),
          worker_(worker),
          slot_(slot),
          is_watched_(run_.options().watches_tasks()) {}

    void work() {
      const uint32_t number = process_.number;
      while (outcome_ == Outcome::kGo) go_on();
      if (outcome_ == Outcome::kStopped || outcome_ == Outcome::kParked) return;
      if (outcome_ == Outcome::kEnded) network_.end(number, ProcessState::kEnded);
      if (outcome_ == Outcome::kFailed) network_.end(number, ProcessState::kFailed);
      network_.leave();
    }

   private:
    template <class Visitor>
    friend bool bytecode::visit(bytecode::Event event, Visitor& visitor);

    enum class Outcome : uint8_t { kGo, kWaits, kParked, kEnded, kFailed, kStopped };

    /// Walks until the outcome is another one, or an error must await earlier tasks.
    void go_on() {
      try {
        const bool can_begin = process_.pending == Process::kNoMove || attempt(process_.pending);
        while (can_begin && goes_on() && bytecode::visit(next(), *this)) {
        }
      } catch (EngineError& error) {
        fail(place_late(std::move(error), process_.expander, process_.num_tasks));
      } catch (const std::bad_alloc&) {
        fail(EngineError("out-of-memory", "there is no memory to run a process"));
      }
    }

    bytecode::Event next() {
      if (is_ahead() && process_.again) return *std::exchange(process_.again, std::nullopt);
      return process_.expander.next();
    }

    bool leaves(Outcome outcome) {
      outcome_ = outcome;
      return false;
    }

    /// The failure of an earlier task that is in flight counts more.
    void fail(EngineError error) {
      process_.error = std::move(error);
      if (is_ahead()) {
        process_.again = bytecode::Event{bytecode::Event::kEnd, 0};
      } else {
        outcome_ = Outcome::kFailed;
      }
    }

    bool goes_on() {
      run_.look_out(worker_);
      return !run_.is_cancelled() || leaves(Outcome::kStopped);
    }

    bool on_end() {
      if (!is_settled({bytecode::Event::kEnd, 0})) return outcome_ == Outcome::kGo;
      return leaves(process_.error ? Outcome::kFailed : Outcome::kEnded);
    }

    bool on_flush(uint32_t set) {
      if (!is_settled({bytecode::Event::kFlush, set})) return outcome_ == Outcome::kGo;
      const int64_t* registers = process_.expander.registers();
      process_.expander.assign(set, plan_.evaluate(plan_.sets[set].value, registers));
      return true;
    }

    /// There is no clock.
    bool on_wait(uint32_t /*reg*/) { return true; }

    bool on_task(uint32_t site) {
      do {
        if (!(is_offered(site) ? offer(site) : run_task(site))) return outcome_ == Outcome::kGo;
        ++process_.num_tasks;
      } while (goes_on() && process_.expander.repeat());
      return outcome_ == Outcome::kGo;
    }

    /// Whether earlier tasks of the process may be in flight.
    bool is_ahead() const { return !kIsAlone && __builtin_expect(process_.is_ahead, false); }

    bool is_offered(uint32_t site) const {
      if (kIsAlone) return false;
      return is_ahead() || (network_.sharing_.is_shared() && network_.tasks_.wants(site, process_));
    }

    bool run_task(uint32_t site) {
      const bytecode::Arguments::Call& call = process_.arguments.call(site);
      const int64_t* registers = process_.expander.registers();
      const bool is_timed = process_.num_tasks >= process_.next_timed;
      const bool is_simple = call.is_simple && !is_watched_ && !is_timed;
      if (!is_simple && plan_.sites[site].checks_late)
        process_.checker.check(plan_.sites[site], registers, true);
      if (process_.places) process_.places->add(site, process_.expander.copy_registers());
      if (process_.places) worker_.begin_task_of(process_.number);
      try {
        if (!is_simple) process_.arguments.fill_rest(site, registers);
        const int32_t check =
            is_simple ? worker_.run_simple(call, process_.num_tasks)
                      : worker_.run_filled(process_.arguments, site, registers, process_.num_tasks);
        if (is_timed) look(site);
        return check == 0 || end_in_task(site, check);
      } catch (EngineError& error) {
        fail(place_task(std::move(error).with_int("late", int64_t(process_.num_tasks)), plan_, site,
                        registers, process_.num_tasks));
      }
      return false;
    }

    /// After a task that may have been timed: others join if that pays. After a long one, so may they after
    /// the next.
    void look(uint32_t site) {
      const bool is_long = network_.tasks_.cost(site) >= SharedTasks::kLongTaskNs;
      process_.next_timed = process_.num_tasks + (is_long ? 1 : kTimedPeriod);
      network_.call_others(network_.sharing_.look());
    }

    bool end_in_task(uint32_t site, int32_t check) {
      if (check == kStopped) return leaves(Outcome::kStopped);
      fail(failed_check(check, worker_, plan_, site, process_.expander.registers(), process_.num_tasks));
      return false;
    }

    /// Adds a task to the window, so that any worker may run it. False if the task is handled again later, or
    /// the walk ends.
    [[gnu::noinline]] bool offer(uint32_t site) {
      const bytecode::Event event{bytecode::Event::kTask, site};
      if (process_.window == nullptr) process_.window = std::make_unique<TaskWindow>();
      TaskWindow& window = *process_.window;
      if (is_ahead() && window.is_empty() && (!settle() || !is_offered(site)))
        return outcome_ == Outcome::kGo && run_task(site);
      if (window.has_failed()) return park(event, TaskWindow::Until::kEmpty);
      if (!window.has_room()) return park(event, TaskWindow::Until::kProgress);
      if (plan_.sites[site].checks_late)
        process_.checker.check(plan_.sites[site], process_.expander.registers(), true);
      if (process_.places) process_.places->add(site, process_.expander.copy_registers());
      process_.is_ahead = true;
      if (network_.tasks_.add(process_, site)) network_.call_others(1);
      return true;
    }

    bool on_move(uint32_t index) {
      if (is_ahead()) {
        if (!process_.window->is_empty()) return move_ahead(index);
        if (!settle()) return false;
      }
      const bytecode::MoveForm& move = plan_.program().moves[index];
      const auto token = uint64_t(process_.expander.registers()[move.reg + 1u]);
      if (move.op == bytecode::Op::END_SEND) {
        network_.change(move.tensor, [&](Channel& channel) { channel.publish(token); });
        return !network_.state_.is_rendezvous(move.tensor) || attempt(index);
      }
      if (move.op != bytecode::Op::END_RECEIVE) return attempt(index);
      network_.change(move.tensor, [&](Channel& channel) { channel.free(token); });
      return true;
    }

    /// Goes on at a send or receive while earlier tasks are in flight, where no other process can tell. A
    /// token is sent, or its buffer freed, when they are complete.
    [[gnu::noinline]] bool move_ahead(uint32_t index) {
      const bytecode::Event event{bytecode::Event::kMove, index};
      const bytecode::MoveForm& move = plan_.program().moves[index];
      const Channel& channel = *network_.state_.channels[move.tensor];
      const bool ends_send = move.op == bytecode::Op::END_SEND;
      const bool ends = ends_send || move.op == bytecode::Op::END_RECEIVE;
      const bool is_private = ends_send                       ? !network_.state_.is_rendezvous(move.tensor)
                              : move.op == bytecode::Op::SEND ? channel.has_private_sends()
                                                              : ends || channel.has_private_receipts();
      TaskWindow& window = *process_.window;
      if (!is_private || window.has_failed()) return park(event, TaskWindow::Until::kEmpty);
      if (!ends) return pass(move) == Admission::kGo || park(event, TaskWindow::Until::kProgress);
      if (!window.has_room()) return park(event, TaskWindow::Until::kProgress);
      const auto token = uint64_t(process_.expander.registers()[move.reg + 1u]);
      window.add_move(index, token, [&](uint32_t ended, uint64_t of) { network_.end_move(ended, of); });
      return true;
    }

    /// Handles `event` again when the window is empty or has advanced. Another worker may have the process
    /// then. True if that is so already.
    bool park(bytecode::Event event, TaskWindow::Until until) {
      process_.again = event;
      return !process_.window->park(until) || leaves(Outcome::kParked);
    }

    /// Whether all earlier tasks are complete, and none has failed. Otherwise `event` is handled again later,
    /// or the walk ends.
    bool is_settled(bytecode::Event event) {
      if (!is_ahead()) return true;
      if (process_.window->is_empty()) return settle();
      park(event, TaskWindow::Until::kEmpty);
      return false;
    }

    /// Goes on without a window, unless one of its tasks has failed. \pre the window is empty
    bool settle() {
      process_.is_ahead = false;
      std::optional<EngineError> failure = process_.window->take_failure();
      if (failure) fail(std::move(*failure));
      return !failure;
    }

    /// Goes on at a send or receive, or records the process as a waiter.
    bool attempt(uint32_t index) {
      const bytecode::MoveForm& move = plan_.program().moves[index];
      const Admission admission = pass(move, index);
      if (admission == Admission::kGo) return true;
      if (waits(admission)) return leaves(Outcome::kWaits);
      if (admission == Admission::kOtherFailed) return leaves(Outcome::kFailed);
      if (move.op != bytecode::Op::RECEIVE_EACH) return end_at_channel(move);
      process_.expander.leave_loop();
      return true;
    }

    /// Sends or receives if that is admitted. Otherwise records the process as a waiter of move number
    /// `waiter`, if there is one.
    [[gnu::always_inline]] inline Admission pass(const bytecode::MoveForm& move,
                                                 uint32_t waiter = Process::kNoMove) {
      Channel& channel = *network_.state_.channels[move.tensor];
      Admission admission;
      uint32_t num_woken = 0;
      {
        const std::unique_lock<SpinLock> lock = network_.locked(channel.lock);
        admission = network_.state_.admit(process_, move);
        if (waits(admission) && waiter != Process::kNoMove) {
          process_.pending = waiter;
          channel.waiters.push_back({process_.number, waiter});
          return admission;
        }
        if (admission == Admission::kGo) {
          network_.state_.pass(process_, move);
          num_woken = network_.wake(channel);
        }
      }
      process_.pending = Process::kNoMove;
      const bool is_newly_shared = admission == Admission::kGo && network_.sharing_.note_move(slot_);
      network_.call_others(num_woken + is_newly_shared);
      return admission;
    }

    bool end_at_channel(const bytecode::MoveForm& move) {
      Channel& channel = *network_.state_.channels[move.tensor];
      const std::unique_lock<SpinLock> lock = network_.locked(channel.lock);
      fail(NetworkState::channel_ended(process_, move, channel.received()));
      return false;
    }

    static constexpr uint64_t kTimedPeriod = 61;  ///< of tasks that may be timed: prime, so of all sites

    Network& network_;
    Run& run_;
    const bytecode::Plan& plan_;
    Process& process_;
    Worker& worker_;
    const uint32_t slot_;
    const bool is_watched_;
    Outcome outcome_ = Outcome::kGo;
  };

  /// Runs processes and offered tasks in turn, beginning with `process` unless it is null.
  void work_from(Process* process, Worker& worker, uint32_t slot) {
    worker.resume();
    tasks_.count_busy(1);
    for (bool goes_on = true; goes_on; process = goes_on ? take_ready(slot, false) : nullptr) {
      if (process != nullptr) walk(*process, worker, slot);
      const bool has_run = tasks_.has_tasks() && run_task(worker);
      goes_on = (process != nullptr || has_run) && may_stay();
    }
    tasks_.count_busy(-1);
  }

  void walk(Process& process, Worker& worker, uint32_t slot) {
    if (run_.num_workers() == 1) {
      Walk<true>(*this, process, worker, slot).work();
    } else {
      Walk<false>(*this, process, worker, slot).work();
    }
  }

  /// Runs an offered task. False if there is none.
  bool run_task(Worker& worker) {
    return tasks_.run_one(
        worker, [this](uint32_t move, uint64_t token) { end_move(move, token); },
        [this](Process& process) { push_ready(process); }, [this](uint32_t count) { call_others(count); });
  }

  /// A token is sent, or its buffer is free.
  void end_move(uint32_t index, uint64_t token) {
    const bytecode::MoveForm& move = plan_.program().moves[index];
    change(move.tensor, [&](Channel& channel) {
      move.op == bytecode::Op::END_SEND ? channel.publish(token) : channel.free(token);
    });
  }

  /// False where one worker is to run the network, and others are inside.
  bool may_stay() const {
    return !run_.is_cancelled() && (sharing_.is_shared() || num_inside_.load(std::memory_order_relaxed) == 1);
  }

  /// Neighbours share a worker, so that tokens between them stay in its cache. Replicas, which have the same
  /// channels, belong to no worker: one begins a token only after the one before it has, so it must not wait
  /// for a worker.
  uint32_t find_home(uint32_t number) const {
    const auto& processes = state_.processes;
    const auto is_replica_of = [&](uint32_t other) {
      return other < processes.size() && processes[other]->channels == processes[number]->channels;
    };
    if (is_replica_of(number - 1) || is_replica_of(number + 1)) return Process::kNoHome;
    return uint32_t(uint64_t(number) * run_.num_workers() / processes.size());
  }

  /// Rounds without a process of its own after which a worker takes over one of another worker: a few
  /// microseconds, longer than it takes until the next token of a short body.
  static constexpr uint32_t kPatience = 16;

  struct alignas(kLineBytes) Idle {
    uint32_t rounds = 0;  ///< without a process; of its worker alone
  };

  template <class Change>
  void change(uint16_t tensor, const Change& apply) {
    Channel& channel = *state_.channels[tensor];
    uint32_t num_woken;
    {
      const std::unique_lock<SpinLock> lock = locked(channel.lock);
      apply(channel);
      num_woken = wake(channel);
    }
    call_others(num_woken);
  }

  /// Locks, unless the run has one worker.
  std::unique_lock<SpinLock> locked(SpinLock& lock) const {
    return run_.num_workers() > 1 ? std::unique_lock<SpinLock>(lock) : std::unique_lock<SpinLock>();
  }

  /// Called when processes became ready.
  void call_others(uint32_t num_ready) {
    if (num_ready > 0 && sharing_.is_shared()) others_.call();
  }

  /// Makes the waiters ready that can go on now. \pre the channel is locked
  uint32_t wake(Channel& channel) {
    uint32_t num_woken = 0;
    for (size_t i = 0; i < channel.waiters.size();) {
      Process& process = *state_.processes[channel.waiters[i].process];
      if (waits(state_.admit(process, plan_.program().moves[channel.waiters[i].move]))) {
        ++i;
        continue;
      }
      channel.waiters[i] = channel.waiters.back();
      channel.waiters.pop_back();
      add(num_active_, 1);
      push_ready(process);
      ++num_woken;
    }
    return num_woken;
  }

  /// Changes a counter and returns its value. Sequentially consistent, unless the run has one worker.
  int add(std::atomic<int>& counter, int change) {
    if (run_.num_workers() > 1) return counter.fetch_add(change, std::memory_order_seq_cst) + change;
    const int value = counter.load(std::memory_order_relaxed) + change;
    counter.store(value, std::memory_order_relaxed);
    return value;
  }

  void push_ready(Process& process) {
    const std::unique_lock<SpinLock> lock = locked(ready_lock_);
    ready_.push_back(&process);
    add(num_ready_, 1);
  }

  /// The first ready process of a worker, or of any worker where `may_take_over` or one worker runs them all.
  Process* take_ready(uint32_t slot, bool may_take_over) {
    if (num_ready_.load(std::memory_order_relaxed) == 0) return nullptr;
    const bool has_homes = sharing_.is_shared() && run_.options().jitter == 0;
    const std::unique_lock<SpinLock> lock = locked(ready_lock_);
    auto found = ready_.begin();
    if (has_homes)
      found = std::find_if(found, ready_.end(),
                           [&](Process* p) { return p->home == slot || p->home == Process::kNoHome; });
    if (found == ready_.end() && may_take_over) found = ready_.begin();
    if (found == ready_.end()) return nullptr;
    Process* process = *found;
    ready_.erase(found);
    if (has_homes && process->home != Process::kNoHome) process->home = slot;
    add(num_ready_, -1);
    return process;
  }

  /// A process has ended or failed: those that wait for it go on.
  void end(uint32_t number, ProcessState state) {
    state_.states[number].store(state, std::memory_order_release);
    for (Channel* channel : state_.processes[number]->channels) {
      uint32_t num_woken;
      {
        const std::unique_lock<SpinLock> lock = locked(channel->lock);
        num_woken = wake(*channel);
      }
      call_others(num_woken);
    }
  }

  /// A process is not at work any more. Acquire: the last worker sees what the others did.
  void leave() {
    if (add(num_active_, -1) > 0) return;
    sharing_.end();
    if (std::optional<EngineError> failure = state_.failure())
      run_.fail({0, 0, std::move(*failure), true}, 0);
    is_over_.store(true, std::memory_order_seq_cst);
  }

  Run& run_;
  const bytecode::Plan& plan_;
  Others& others_;
  NetworkState state_;
  NetworkSharing sharing_;
  std::vector<Idle> idle_;  ///< per worker
  SharedTasks tasks_;

  alignas(kLineBytes) std::atomic<int> num_inside_{0};  ///< workers
  alignas(kLineBytes) SpinLock ready_lock_;
  std::deque<Process*> ready_;
  alignas(kLineBytes) std::atomic<int> num_ready_{0};
  std::atomic<int> num_active_{0};  ///< processes that are ready or at work
  std::atomic<bool> is_over_{false};
};

}  // namespace pto::wsp::sched
