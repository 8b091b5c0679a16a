// SPDX-License-Identifier: MIT
/// \file
/// A run of a network: each process is an expander that one worker at a time walks, until it must wait.
///
/// A process runs its tasks in program order, each as it is expanded, so its hazards are satisfied. A worker
/// takes a process that is ready. Where the process must wait for a channel, the worker records it with the
/// waiters of that channel and takes another one. The worker that changes a channel makes its waiters ready
/// that can go on. Where sharing does not pay, one worker at a time is in the network. Where it pays, each
/// worker has processes of its own, neighbours in declared order, so that most tokens stay in its cache. A
/// worker that is idle for a while takes over a process that is ready. Each process is ready, at work,
/// waiting, or done: if none is ready or at work, nothing can ever go on, so a deadlock is established
/// without a clock.
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
        idle_(run.num_workers()) {
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
           num_ready_.load(std::memory_order_seq_cst) > 0;
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
    const bool is_found = process != nullptr;
    idle = is_found ? 0 : idle + 1;
    if (is_found) worker.resume();
    for (; process != nullptr; process = may_stay() ? take_ready(slot, false) : nullptr)
      Walk(*this, *process, worker, slot).work();
    num_inside_.fetch_sub(1, std::memory_order_seq_cst);
    return is_found;
  }

 private:
  /// A worker in a process. After the process was recorded as a waiter, another worker may have it.
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
      try {
        const bool can_begin = process_.pending == Process::kNoMove || attempt(process_.pending);
        while (can_begin && outcome_ == Outcome::kGo && goes_on() &&
               bytecode::visit(process_.expander.next(), *this)) {
        }
      } catch (EngineError& error) {
        fail(place_late(std::move(error), process_.expander, process_.num_tasks));
      } catch (const std::bad_alloc&) {
        fail(EngineError("out-of-memory", "there is no memory to run a process"));
      }
      if (outcome_ == Outcome::kStopped) return;
      if (outcome_ == Outcome::kEnded) network_.end(number, ProcessState::kEnded);
      if (outcome_ == Outcome::kFailed) network_.end(number, ProcessState::kFailed);
      network_.leave();
    }

   private:
    template <class Visitor>
    friend bool bytecode::visit(bytecode::Event event, Visitor& visitor);

    enum class Outcome : uint8_t { kGo, kWaits, kEnded, kFailed, kStopped };

    bool leaves(Outcome outcome) {
      outcome_ = outcome;
      return false;
    }

    void fail(EngineError error) {
      process_.error = std::move(error);
      outcome_ = Outcome::kFailed;
    }

    bool goes_on() {
      run_.look_out(worker_);
      return !run_.is_cancelled() || leaves(Outcome::kStopped);
    }

    bool on_end() { return leaves(Outcome::kEnded); }

    bool on_flush(uint32_t set) {
      const int64_t* registers = process_.expander.registers();
      process_.expander.assign(set, plan_.evaluate(plan_.sets[set].value, registers));
      return true;
    }

    /// There is no clock.
    bool on_wait(uint32_t /*reg*/) { return true; }

    bool on_task(uint32_t site) {
      do {
        if (!run_task(site)) return false;
        ++process_.num_tasks;
      } while (goes_on() && process_.expander.repeat());
      return outcome_ == Outcome::kGo;
    }

    bool run_task(uint32_t site) {
      const bytecode::Arguments::Call& call = process_.arguments.call(site);
      const int64_t* registers = process_.expander.registers();
      const bool is_timed = process_.num_tasks % kTimedPeriod == 0;
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
        if (is_timed) network_.call_others(network_.sharing_.look());
        return check == 0 || end_in_task(site, check);
      } catch (EngineError& error) {
        fail(place(std::move(error).with_int("late", int64_t(process_.num_tasks)), site));
      }
      return false;
    }

    bool end_in_task(uint32_t site, int32_t check) {
      if (check == kStopped) return leaves(Outcome::kStopped);
      const int64_t* values = worker_.monitor().values;
      const std::string kernel = plan_.sites[site].kernel->name;
      fail(place(EngineError("kernel-failed", "a run-time check in kernel " + kernel + " failed")
                     .with_int("check", check)
                     .with("values", std::vector<int64_t>(values, values + kMaxCheckValues)),
                 site));
      return false;
    }

    EngineError place(EngineError error, uint32_t site) const {
      return std::move(error)
          .with("kernel", std::string(plan_.sites[site].kernel->name))
          .with_int("task", int64_t(process_.num_tasks))
          .with_int("pc", plan_.sites[site].pc)
          .with("registers", process_.expander.copy_registers());
    }

    bool on_move(uint32_t index) {
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

    /// Goes on at a send or receive, or records the process as a waiter.
    bool attempt(uint32_t index) {
      const bytecode::MoveForm& move = plan_.program().moves[index];
      Channel& channel = *network_.state_.channels[move.tensor];
      Admission admission;
      uint32_t num_woken = 0;
      uint64_t received;
      {
        const std::unique_lock<SpinLock> lock = network_.locked(channel.lock);
        admission = network_.state_.admit(process_, move);
        received = channel.received();
        if (waits(admission)) {
          process_.pending = index;
          channel.waiters.push_back({process_.number, index});
          return leaves(Outcome::kWaits);
        }
        if (admission == Admission::kGo) {
          network_.state_.pass(process_, move);
          num_woken = network_.wake(channel);
        }
      }
      process_.pending = Process::kNoMove;
      const bool is_newly_shared = admission == Admission::kGo && network_.sharing_.note_move(slot_);
      network_.call_others(num_woken + is_newly_shared);
      if (admission == Admission::kGo) return true;
      if (admission == Admission::kOtherFailed) return leaves(Outcome::kFailed);
      if (move.op != bytecode::Op::RECEIVE_EACH) return end_at_channel(move, received);
      process_.expander.leave_loop();
      return true;
    }

    bool end_at_channel(const bytecode::MoveForm& move, uint64_t received) {
      fail(NetworkState::channel_ended(process_, move, received));
      return false;
    }

    static constexpr uint64_t kTimedPeriod = 64;  ///< of tasks that may be timed

    Network& network_;
    Run& run_;
    const bytecode::Plan& plan_;
    Process& process_;
    Worker& worker_;
    const uint32_t slot_;
    const bool is_watched_;
    Outcome outcome_ = Outcome::kGo;
  };

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
      num_active_.fetch_add(1, std::memory_order_relaxed);
      push_ready(process);
      ++num_woken;
    }
    return num_woken;
  }

  void push_ready(Process& process) {
    const std::unique_lock<SpinLock> lock = locked(ready_lock_);
    ready_.push_back(&process);
    num_ready_.fetch_add(1, std::memory_order_seq_cst);
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
    num_ready_.fetch_sub(1, std::memory_order_relaxed);
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
    if (num_active_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
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

  alignas(kLineBytes) std::atomic<int> num_inside_{0};  ///< workers
  alignas(kLineBytes) SpinLock ready_lock_;
  std::deque<Process*> ready_;
  alignas(kLineBytes) std::atomic<int> num_ready_{0};
  std::atomic<int> num_active_{0};  ///< processes that are ready or at work
  std::atomic<bool> is_over_{false};
};

}  // namespace pto::wsp::sched
