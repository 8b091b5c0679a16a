// SPDX-License-Identifier: MIT
/// \file
/// All tasks of a network in one order, in which each is made after those that it depends on.
///
/// A process goes on until it must wait for a channel; then the next one that is ready does. No task runs, so
/// a task is complete as soon as it is made. Processes share no memory but the buffers of channels, so the
/// conflicts of the tasks in this order are those of every run.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/sched/network_state.hpp"

namespace pto::wsp::sched {

class NetworkOrder {
 public:
  using Process = NetworkProcess;

  /// Returns the value of an expression that decides, for these registers.
  using Read = std::function<int64_t(const bytecode::Value& value, const int64_t* registers)>;

  /// `read`, if there is one, reads elements that tasks write.
  NetworkOrder(const bytecode::Plan& plan, const std::vector<char*>& bases, const RunOptions& options,
               Read read = {})
      : plan_(plan),
        steps_(mark_sequences(plan)),
        state_(plan, bases, options, steps_),
        options_(options),
        read_(std::move(read)) {
    for (const auto& process : state_.processes) ready_.push_back(process.get());
  }
  NetworkOrder(const NetworkOrder&) = delete;

  /// The site of the next task; nothing at the end. Calls `on_loop(event)` for the events of `P.seq` loops,
  /// which are those of `process()`. Throws the error of the network.
  template <class OnLoop>
  std::optional<uint32_t> next(const OnLoop& on_loop) {
    while (present_ != nullptr || take_ready()) {
      try {
        if (const std::optional<uint32_t> site = go_on(on_loop)) return site;
      } catch (EngineError& error) {
        present_->error = place(std::move(error));
        end(ProcessState::kFailed);
      }
    }
    if (std::optional<EngineError> failure = state_.failure()) throw std::move(*failure);
    return {};
  }

  std::optional<uint32_t> next() {
    return next([](bytecode::Event) {});
  }

  /// The process of the task that `next` returned last.
  Process& process() { return *present_; }
  size_t num_processes() const { return state_.processes.size(); }

 private:
  static constexpr uint64_t kEventsPerLook = 1 << 16;

  static std::vector<bytecode::QuickStep> mark_sequences(const bytecode::Plan& plan) {
    std::vector<bytecode::QuickStep> steps = plan.steps;
    for (bytecode::QuickStep& step : steps) {
      const bool is_loop = step.kind == bytecode::Step::kLoop || step.kind == bytecode::Step::kEndLoop;
      if (is_loop && plan.program().loops[step.index].op == bytecode::Op::FOR_EACH)
        step.events = bytecode::LoopEvents::kGroups;
    }
    return steps;
  }

  bool take_ready() {
    if (ready_.empty()) return false;
    present_ = ready_.front();
    ready_.pop_front();
    return true;
  }

  /// Continues the present process up to its next task. Nothing if it waits or has ended.
  template <class OnLoop>
  std::optional<uint32_t> go_on(const OnLoop& on_loop) {
    using bytecode::Event;
    if (present_->pending != Process::kNoMove) attempt(present_->pending);
    while (present_ != nullptr) {
      look_out();
      bytecode::Expander& expander = present_->expander;
      const Event event = expander.next();
      switch (event.kind) {
        case Event::kTask: return event.index;
        case Event::kFlush: flush(event.index); break;
        case Event::kMove: move(event.index); break;
        case Event::kEnter:
        case Event::kIteration:
        case Event::kLeave: on_loop(event); break;
        case Event::kEnd: end(ProcessState::kEnded); break;
        default: break;  // there is no clock
      }
    }
    return {};
  }

  /// Throws `run-cancelled`. A network may go on for ever without a task.
  void look_out() {
    if (++num_events_ % kEventsPerLook == 0 && options_.is_interrupted != nullptr &&
        options_.is_interrupted())
      throw EngineError("run-cancelled", "the walk of a network was cancelled");
  }

  void flush(uint32_t set) {
    bytecode::Expander& expander = present_->expander;
    const bytecode::Value& value = plan_.sets[set].value;
    const int64_t* registers = expander.registers();
    expander.assign(set, read_ ? read_(value, registers) : plan_.evaluate(value, registers));
  }

  EngineError place(EngineError error) const {
    if (error.has("registers")) return error;
    return std::move(error).with("registers", present_->expander.copy_registers());
  }

  void move(uint32_t index) {
    const bytecode::MoveForm& move = plan_.program().moves[index];
    Channel& channel = *state_.channels[move.tensor];
    const auto token = uint64_t(present_->expander.registers()[move.reg + 1u]);
    if (move.op == bytecode::Op::END_SEND) {
      channel.publish(token);
      wake(channel);
      if (state_.is_rendezvous(move.tensor)) attempt(index);
    } else if (move.op == bytecode::Op::END_RECEIVE) {
      channel.free(token);
      wake(channel);
    } else {
      attempt(index);
    }
  }

  /// Goes on at a send or receive, or leaves the process as a waiter.
  void attempt(uint32_t index) {
    const bytecode::MoveForm& move = plan_.program().moves[index];
    Channel& channel = *state_.channels[move.tensor];
    const Admission admission = state_.admit(*present_, move);
    if (waits(admission)) {
      present_->pending = index;
      channel.waiters.push_back({present_->number, index});
      present_ = nullptr;
      return;
    }
    present_->pending = Process::kNoMove;
    if (admission == Admission::kGo) {
      state_.pass(*present_, move);
      wake(channel);
    } else if (admission == Admission::kOtherFailed) {
      end(ProcessState::kFailed);
    } else if (move.op == bytecode::Op::RECEIVE_EACH) {
      present_->expander.leave_loop();
    } else {
      present_->error = NetworkState::channel_ended(*present_, move, channel.received());
      end(ProcessState::kFailed);
    }
  }

  void end(ProcessState state) {
    Process& process = *std::exchange(present_, nullptr);
    state_.states[process.number].store(state, std::memory_order_relaxed);
    for (Channel* channel : process.channels) wake(*channel);
  }

  /// Makes the waiters ready that can go on now.
  void wake(Channel& channel) {
    for (size_t i = 0; i < channel.waiters.size();) {
      Process& process = *state_.processes[channel.waiters[i].process];
      if (waits(state_.admit(process, plan_.program().moves[channel.waiters[i].move]))) {
        ++i;
        continue;
      }
      channel.waiters.erase(channel.waiters.begin() + std::ptrdiff_t(i));
      ready_.push_back(&process);
    }
  }

  const bytecode::Plan& plan_;
  const std::vector<bytecode::QuickStep> steps_;  ///< of the plan, with events of `P.seq` loops
  NetworkState state_;
  const RunOptions& options_;
  const Read read_;
  std::deque<Process*> ready_;
  Process* present_ = nullptr;
  uint64_t num_events_ = 0;
};

}  // namespace pto::wsp::sched
