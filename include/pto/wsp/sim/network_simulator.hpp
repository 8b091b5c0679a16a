// SPDX-License-Identifier: MIT
/// \file
/// Runs a network on a simulated machine: discrete events, one thread, the same result every time.
///
/// Each process has a clock. It makes its tasks and runs them in program order, one at a time, on cores that
/// it shares with the other processes. A token that is sent can be received `latency` cycles later.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <queue>
#include <utility>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/sched/network_state.hpp"
#include "pto/wsp/sched/run.hpp"
#include "pto/wsp/sim/caches.hpp"
#include "pto/wsp/sim/cores.hpp"
#include "pto/wsp/sim/memory.hpp"
#include "pto/wsp/sim/result.hpp"
#include "pto/wsp/sim/simulation.hpp"

namespace pto::wsp::sim {

class NetworkSimulator : private bytecode::EventVisitor {
 public:
  NetworkSimulator(const Machine& machine, sched::Run& run, const KernelLibrary& library,
                   const Simulation& simulation)
      : machine_(machine),
        run_(run),
        plan_(run.plan()),
        simulation_(simulation),
        costs_(plan_, library, simulation.model),
        state_(plan_, run.bases(), run.options()),
        clocks_(state_.processes.size()),
        rings_(state_.channels.size()),
        times_(std::make_shared<NetworkTimes>()) {}

  SimResult run() {
    begin();
    const auto is_interrupted = run_.options().is_interrupted;
    for (uint64_t steps = 1; step(); ++steps) {
      if (steps % kStepsPerLook == 0 && is_interrupted != nullptr && is_interrupted())
        throw EngineError("run-cancelled", "the simulation was cancelled");
    }
    if (std::optional<EngineError> failure = state_.failure()) throw std::move(*failure);
    return finish();
  }

 private:
  using Process = sched::NetworkProcess;

  template <class Visitor>
  friend bool bytecode::visit(bytecode::Event event, Visitor& visitor);

  enum class Kind : uint8_t { kGo, kStart, kComplete, kArrive };

  struct Event {
    double time;
    uint64_t order;  ///< of what happens at the same time
    Kind kind;
    uint32_t number;  ///< of a process, or of the tensor of a channel
    uint64_t token;
    bool operator<(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  /// Of a process, and the task that it runs.
  struct Clock {
    double made = 0;   ///< when its latest task was made
    double since = 0;  ///< it waits
    sched::Admission why = sched::Admission::kGo;
    uint32_t site = 0, cost = 0;
    uint32_t num_waits = 0;  ///< for transfers
    double start = 0, least_end = 0;
    uint32_t first_core = 0, second_core = 0;
    std::vector<Use> uses;
  };

  /// Of a channel.
  struct Ring {
    double latency = 0;
    double changed = 0;             ///< when the number of buffers in use did
    uint32_t channel = 0;           ///< in `times_`
    std::vector<TokenTime> tokens;  ///< per buffer
  };

  void begin() {
    cores_.begin(machine_, sched::PolicyOptions{});
    gm_.begin(machine_.gm_rate, machine_.gm_core_rate);
    l2_.begin(machine_.l2_rate, machine_.l2_core_rate);
    caches_.begin(machine_);
    const size_t num_kinds = machine_.cores.size(), num_tensors = state_.channels.size();
    result_.busy.assign(num_kinds, 0);
    result_.idle.assign(num_kinds, std::vector<double>(kNumIdle, 0));
    result_.generating.assign(machine_.dispatchers, 0);
    result_.stalled.assign(machine_.dispatchers, 0);
    result_.made.assign(machine_.dispatchers, 0);
    for (uint32_t tensor = 0; tensor < num_tensors; ++tensor) {
      if (state_.channels[tensor] == nullptr) continue;
      Ring& ring = rings_[tensor];
      const int64_t latency = tensor < simulation_.latencies.size() ? simulation_.latencies[tensor] : 0;
      ring.latency = double(latency >= 0 ? latency : plan_.bindings.symbols[size_t(-1 - latency)]);
      ring.channel = uint32_t(times_->channels.size());
      ring.tokens.resize(size_t(plan_.program().tensors[tensor].dims[0]));
      times_->channels.push_back({tensor});
    }
    times_->processes.resize(state_.processes.size());
    for (uint32_t i = 0; i < state_.processes.size(); ++i) {
      times_->processes[i].tokens.assign(num_tensors, 0);
      times_->processes[i].buffers.assign(num_tensors, 0);
      clocks_[i].made = machine_.begin;
      add_event(machine_.begin, Kind::kGo, i);
    }
  }

  SimResult finish() {
    for (ChannelTime& channel : times_->channels) note_use(channel.tensor);
    result_.cycles = now_;
    times_->merges = state_.take_merges();
    result_.kernels = costs_.kernels();
    result_.network = times_;
    return std::move(result_);
  }

  // Events

  void add_event(double time, Kind kind, uint32_t number, uint64_t token = 0) {
    events_.push({time, num_events_++, kind, number, token});
  }

  /// Handles the next event; false if there is none.
  bool step() {
    const double event = events_.empty() ? kNever : events_.top().time;
    const double gm = gm_.next_end(), l2 = l2_.next_end();
    const double time = std::min({event, gm, l2});
    if (time == kNever) return false;
    pass_time(time);
    if (gm <= time) {
      end_transfer(uint32_t(gm_.end_next()));
    } else if (l2 <= time) {
      end_transfer(uint32_t(l2_.end_next()));
    } else {
      const Event next = events_.top();
      events_.pop();
      handle(next);
    }
    return true;
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::kGo: go(event.number); break;
      case Kind::kStart:
        clocks_[event.number].since = now_;
        queue_.push_back(event.number);
        start_tasks();
        break;
      case Kind::kComplete: complete(event.number); break;
      case Kind::kArrive: arrive(uint16_t(event.number), event.token); break;
    }
  }

  /// Moves time on, and counts the cores that are idle until then.
  void pass_time(double time) {
    const Idle why = now_ < machine_.begin ? Idle::kBegin : queue_.empty() ? Idle::kTasks : Idle::kOther;
    for (uint32_t kind = 0; kind < machine_.cores.size() && time > now_; ++kind)
      result_.idle[kind][int(why)] += (time - now_) * cores_.num_idle(kind);
    now_ = std::max(now_, time);
  }

  // Processes

  /// Continues a process until it waits, ends, or runs a task.
  void go(uint32_t number) {
    present_ = number;
    Process& process = *state_.processes[number];
    try {
      bool can_go = process.pending == Process::kNoMove || attempt(process.pending);
      while (can_go) can_go = bytecode::visit(process.expander.next(), *this);
    } catch (EngineError& error) {
      process.error = sched::place_late(std::move(error), process.expander, process.num_tasks);
      end(sched::ProcessState::kFailed);
    }
  }

  bool on_end() {
    end(sched::ProcessState::kEnded);
    return false;
  }

  void end(sched::ProcessState state) {
    state_.states[present_].store(state, std::memory_order_relaxed);
    times_->processes[present_].end = now_;
    for (sched::Channel* channel : state_.processes[present_]->channels) wake(*channel);
  }

  bool on_flush(uint32_t set) {
    bytecode::Expander& expander = state_.processes[present_]->expander;
    expander.assign(set, plan_.evaluate(plan_.sets[set].value, expander.registers()));
    return true;
  }

  bool on_wait(uint32_t reg) {
    const int64_t cycles = state_.processes[present_]->expander.registers()[reg];
    if (cycles <= 0) return true;
    clocks_[present_].made = std::max(clocks_[present_].made, now_) + double(cycles);
    times_->processes[present_].waited += double(cycles);
    add_event(now_ + double(cycles), Kind::kGo, present_);
    return false;
  }

  bool on_task(uint32_t site) {
    Process& process = *state_.processes[present_];
    Clock& clock = clocks_[present_];
    const int64_t* registers = process.expander.registers();
    if (plan_.sites[site].checks_late) process.checker.check(plan_.sites[site], registers, true);
    process.arguments.fill_rest(site, registers);
    clock.site = site;
    clock.cost = costs_.find(site, process.arguments.call(site), clock.uses);
    clock.made += machine_.generate;
    const uint32_t dispatcher = present_ % machine_.dispatchers;
    result_.generating[dispatcher] += machine_.generate;
    ++result_.made[dispatcher];
    add_event(std::max(now_, clock.made), Kind::kStart, present_);
    return false;
  }

  bool on_move(uint32_t index) {
    const bytecode::MoveForm& move = plan_.program().moves[index];
    clocks_[present_].made = std::max(clocks_[present_].made, now_);
    const auto token = uint64_t(state_.processes[present_]->expander.registers()[move.reg + 1u]);
    if (move.op == bytecode::Op::END_SEND) {
      if (rings_[move.tensor].latency > 0) {
        add_event(now_ + rings_[move.tensor].latency, Kind::kArrive, move.tensor, token);
      } else {
        arrive(move.tensor, token);
      }
      return !state_.is_rendezvous(move.tensor) || attempt(index);
    }
    if (move.op != bytecode::Op::END_RECEIVE) return attempt(index);
    free(move.tensor, token);
    return true;
  }

  // Channels

  /// Goes on at a send or receive, or records the process as a waiter.
  bool attempt(uint32_t index) {
    Process& process = *state_.processes[present_];
    const bytecode::MoveForm& move = plan_.program().moves[index];
    sched::Channel& channel = *state_.channels[move.tensor];
    const sched::Admission admission = state_.admit(process, move);
    if (sched::waits(admission)) {
      clocks_[present_].since = now_;
      clocks_[present_].why = admission;
      process.pending = index;
      channel.waiters.push_back({present_, index});
      return false;
    }
    process.pending = Process::kNoMove;
    if (admission == sched::Admission::kGo) {
      clocks_[present_].made = std::max(clocks_[present_].made, now_);
      note_use(move.tensor);
      state_.pass(process, move);
      note_move(move);
      wake(channel);
      return true;
    }
    if (admission == sched::Admission::kOtherFailed) {
      end(sched::ProcessState::kFailed);
      return false;
    }
    if (move.op != bytecode::Op::RECEIVE_EACH) {
      process.error = sched::NetworkState::channel_ended(process, move, channel.received());
      end(sched::ProcessState::kFailed);
      return false;
    }
    process.expander.leave_loop();
    return true;
  }

  TokenTime& token_time(uint16_t tensor, uint64_t token) {
    return rings_[tensor].tokens[state_.channels[tensor]->slot_of(token)];
  }

  void note_move(const bytecode::MoveForm& move) {
    if (move.op == bytecode::Op::END_SEND) return;
    const auto token = uint64_t(state_.processes[present_]->expander.registers()[move.reg + 1u]);
    TokenTime& time = token_time(move.tensor, token);
    ChannelTime& channel = times_->channels[rings_[move.tensor].channel];
    if (move.op == bytecode::Op::SEND) {
      time = {move.tensor, present_, 0, now_, 0, 0, 0};
      channel.most = std::max(channel.most, in_use(move.tensor));
      return;
    }
    time.receiver = present_;
    time.received = now_;
    if (channel.tokens++ == 0) channel.first = now_;
    channel.last = now_;
    channel.queued += now_ - time.sent;
  }

  /// A token can be received from now on.
  void arrive(uint16_t tensor, uint64_t token) {
    state_.channels[tensor]->publish(token);
    token_time(tensor, token).sent = now_;
    wake(*state_.channels[tensor]);
  }

  void free(uint16_t tensor, uint64_t token) {
    note_use(tensor);
    state_.channels[tensor]->free(token);
    TokenTime& time = token_time(tensor, token);
    time.freed = now_;
    if (times_->tokens.size() < kMostTimes) times_->tokens.push_back(time);
    wake(*state_.channels[tensor]);
  }

  uint64_t in_use(uint32_t tensor) const {
    return state_.channels[tensor]->sent() - state_.channels[tensor]->freed();
  }

  /// Counts the buffers that were in use until now.
  void note_use(uint32_t tensor) {
    Ring& ring = rings_[tensor];
    times_->channels[ring.channel].in_use += double(in_use(tensor)) * (now_ - ring.changed);
    ring.changed = now_;
  }

  /// Continues the waiters that can go on now, and counts how long all of them have waited.
  void wake(sched::Channel& channel) {
    for (size_t i = 0; i < channel.waiters.size();) {
      const sched::Channel::Waiter waiter = channel.waiters[i];
      const bytecode::MoveForm& move = plan_.program().moves[waiter.move];
      note_wait(waiter.process, move);
      const sched::Admission admission = state_.admit(*state_.processes[waiter.process], move);
      clocks_[waiter.process].why = admission;
      if (sched::waits(admission)) {
        ++i;
        continue;
      }
      channel.waiters.erase(channel.waiters.begin() + std::ptrdiff_t(i));
      add_event(now_, Kind::kGo, waiter.process);
    }
  }

  void note_wait(uint32_t process, const bytecode::MoveForm& move) {
    Clock& clock = clocks_[process];
    const bool is_receive =
        clock.why == sched::Admission::kToken || clock.why == sched::Admission::kTurnToReceive;
    ProcessTime& time = times_->processes[process];
    (is_receive ? time.tokens : time.buffers)[move.tensor] += now_ - clock.since;
    clock.since = now_;
  }

  // Tasks

  /// Starts the tasks, in the order in which they became ready, for which there are idle cores.
  void start_tasks() {
    for (size_t i = 0; i < queue_.size();) {
      const uint32_t number = queue_[i];
      if (!cores_.has_idle(costs_[clocks_[number].cost].kinds, sched::kAnyLane)) {
        ++i;
        continue;
      }
      queue_.erase(queue_.begin() + std::ptrdiff_t(i));
      start(number);
    }
  }

  void start(uint32_t number) {
    Clock& clock = clocks_[number];
    const TaskCost& cost = costs_[clock.cost];
    times_->processes[number].cores += now_ - clock.since;
    clock.start = now_;
    bool is_first = true;
    for (uint32_t kind = 0; cost.kinds >> kind != 0; ++kind) {
      if ((cost.kinds >> kind & 1) == 0) continue;
      (is_first ? clock.first_core : clock.second_core) = cores_.take(kind, sched::kAnyLane);
      is_first = false;
    }
    begin_transfers(number, clock, cost);
  }

  void begin_transfers(uint32_t number, Clock& clock, const TaskCost& cost) {
    const auto first_kind = uint32_t(__builtin_ctz(cost.kinds));
    const Moved moved = caches_.move(first_kind, clock.first_core, clock.uses, cost.spilled);
    result_.hits += moved.hits;
    result_.misses += moved.misses;
    result_.gm_bytes += moved.gm_bytes;
    result_.l2_bytes += moved.shared_bytes;
    clock.least_end = now_ + cost.cycles + machine_.dispatch + moved.latency(machine_);
    clock.num_waits = 1;
    if (moved.gm_bytes > 0 && machine_.gm_rate < kNever) transfer(gm_, number, moved.gm_bytes);
    if (moved.shared_bytes > 0 && machine_.l2_bytes > 0 && machine_.l2_rate < kNever)
      transfer(l2_, number, moved.shared_bytes);
    end_transfer(number);
  }

  void transfer(SharedRate& rate, uint32_t number, uint64_t bytes) {
    ++clocks_[number].num_waits;
    rate.add(now_, double(bytes), number);
  }

  /// One of the transfers of the task of a process has ended.
  void end_transfer(uint32_t number) {
    Clock& clock = clocks_[number];
    if (--clock.num_waits > 0) return;
    const double end = std::max(clock.least_end, now_ + costs_[clock.cost].ends);
    add_event(end + machine_.complete, Kind::kComplete, number);
  }

  void complete(uint32_t number) {
    Clock& clock = clocks_[number];
    const TaskCost& cost = costs_[clock.cost];
    const double cycles = now_ - machine_.complete - clock.start;
    bool is_first = true;
    for (uint32_t kind = 0; cost.kinds >> kind != 0; ++kind) {
      if ((cost.kinds >> kind & 1) == 0) continue;
      cores_.give_back(kind, is_first ? clock.first_core : clock.second_core);
      is_first = false;
      result_.busy[kind] += cycles;
    }
    if (clock.cost >= result_.calls.size()) {
      result_.calls.resize(clock.cost + 1, 0);
      result_.spent.resize(clock.cost + 1, 0);
    }
    ++result_.calls[clock.cost];
    result_.spent[clock.cost] += cycles;
    result_.operations += cost.operations;
    ++result_.tasks;
    times_->processes[number].busy += cycles;
    ++times_->processes[number].tasks;
    if (times_->spans.size() < kMostTimes)
      times_->spans.push_back({number, clock.site, clock.start, clock.start + cycles});
    ++state_.processes[number]->num_tasks;
    start_tasks();
    go(number);
  }

  static constexpr uint64_t kStepsPerLook = 1 << 16;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  const Machine& machine_;
  sched::Run& run_;
  const bytecode::Plan& plan_;
  const Simulation& simulation_;
  TaskCosts costs_;
  sched::NetworkState state_;
  std::vector<Clock> clocks_;    ///< per process
  std::vector<Ring> rings_;      ///< per tensor
  std::vector<uint32_t> queue_;  ///< processes whose task waits for cores
  Cores cores_;
  SharedRate gm_, l2_;
  Caches caches_;
  std::priority_queue<Event> events_;
  uint64_t num_events_ = 0;
  double now_ = 0;
  uint32_t present_ = 0;  ///< the process that goes on
  SimResult result_;
  std::shared_ptr<NetworkTimes> times_;
};

}  // namespace pto::wsp::sim
