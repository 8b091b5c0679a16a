// SPDX-License-Identifier: MIT
/// \file
/// The processes and channels of a network during a run, and how the run ends. The engine and the simulator
/// share it.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/sched/channel.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sched/task_window.hpp"
#include "pto/wsp/trace/process_places.hpp"

namespace pto::wsp::sched {

/// A process between two steps. One worker at a time has it.
struct alignas(kLineBytes) NetworkProcess {
  NetworkProcess(const bytecode::Plan& plan, const std::vector<bytecode::QuickStep>& steps, uint32_t number,
                 uint32_t first_step, const std::vector<char*>& bases)
      : number(number), expander(plan, steps, &arguments), checker(plan) {
    arguments.bind(plan, bases);
    expander.begin_at(first_step);
  }
  NetworkProcess(const NetworkProcess&) = delete;

  static constexpr uint32_t kNoMove = UINT32_MAX;
  static constexpr uint32_t kNoHome = UINT32_MAX;

  const uint32_t number;
  uint32_t home = 0;  ///< the worker that has it where several share the network
  bytecode::Arguments arguments;
  bytecode::Expander expander;
  bytecode::TaskChecker checker;
  uint64_t num_tasks = 0;
  uint64_t next_timed = 0;                     ///< the next task that may be timed
  std::optional<trace::ProcessPlaces> places;  ///< of its tasks, if they are recorded
  uint32_t pending = kNoMove;                  ///< the send or receive at which it waits
  std::unique_ptr<TaskWindow> window;          ///< null until tasks of it overlap
  bool is_ahead = false;                       ///< the walk has not seen all tasks of the window complete
  std::optional<bytecode::Event> again;        ///< the next event, if it could not be handled before
  std::vector<Channel*> channels;
  std::optional<EngineError> error;
};

class NetworkState {
 public:
  NetworkState(const bytecode::Plan& plan, const std::vector<char*>& bases, const RunOptions& options)
      : NetworkState(plan, bases, options, plan.steps) {}
  /// `steps`, which outlive this, are those of the plan, but their loops may have events.
  NetworkState(const bytecode::Plan& plan, const std::vector<char*>& bases, const RunOptions& options,
               const std::vector<bytecode::QuickStep>& steps)
      : states(plan.program().processes.size()),
        plan_(plan),
        merges_(options.merges),
        records_merges_(options.records_merges) {
    make_channels();
    for (uint32_t step = 0; step < plan_.steps.size(); ++step) {
      if (plan_.steps[step].kind != bytecode::Step::kProcess) continue;
      const uint32_t number = plan_.steps[step].index;
      states[number].store(ProcessState::kRunning, std::memory_order_relaxed);
      processes.push_back(std::make_unique<NetworkProcess>(plan_, steps, number, step + 1, bases));
    }
    for (const bytecode::MoveForm& move : plan_.program().moves) {
      std::vector<Channel*>& used = processes[move.process]->channels;
      Channel* channel = channels[move.tensor].get();
      if (std::find(used.begin(), used.end(), channel) == used.end()) used.push_back(channel);
    }
  }

  ProcessStates states;
  std::vector<std::unique_ptr<Channel>> channels;  ///< per tensor, null for tensors that are not rings
  std::vector<std::unique_ptr<NetworkProcess>> processes;

  bool is_rendezvous(uint16_t tensor) const {
    return plan_.program().tensors[tensor].channel == bytecode::ChannelKind::RENDEZVOUS;
  }

  /// Whether a process may go on at a send or receive.
  Admission admit(const NetworkProcess& process, const bytecode::MoveForm& move) const {
    const Channel& channel = *channels[move.tensor];
    switch (move.op) {
      case bytecode::Op::SEND: return channel.admit_send(process.number);
      case bytecode::Op::END_SEND:
        return channel.admit_end(uint64_t(process.expander.registers()[move.reg + 1u]));
      default: return channel.admit_receive(process.number);
    }
  }

  /// Begins a token that is sent, or receives one. \pre the process is admitted
  void pass(NetworkProcess& process, const bytecode::MoveForm& move) {
    bytecode::Expander& expander = process.expander;
    Channel& channel = *channels[move.tensor];
    if (move.op == bytecode::Op::END_SEND) return;
    const bool is_send = move.op == bytecode::Op::SEND;
    const uint64_t token = is_send ? channel.open(process.number, expander.registers() + move.reg + 2)
                                   : channel.take(process.number);
    expander.set(move.reg, int64_t(channel.slot_of(token)));
    expander.set(move.reg + 1u, int64_t(token));
    for (uint32_t i = 0; i < channel.num_scalars() && !is_send; ++i)
      expander.set(move.reg + 2u + i, channel.scalars(token)[i]);
  }

  /// Per tensor, the senders of tokens that were merged by time, if they were recorded. \pre the run is over
  MergeOrders take_merges() {
    MergeOrders merges(channels.size());
    for (size_t tensor = 0; tensor < channels.size(); ++tensor) {
      if (channels[tensor] != nullptr) merges[tensor] = channels[tensor]->take_merged();
    }
    return merges;
  }

  /// The error of a process at a channel whose other side has ended.
  static EngineError channel_ended(const NetworkProcess& process, const bytecode::MoveForm& move,
                                   uint64_t received) {
    return EngineError("channel-ended", "a process needs a channel whose other side has ended")
        .with_int("process", process.number)
        .with_int("pc", move.pc)
        .with_int("received", int64_t(received))
        .with_int("late", int64_t(process.num_tasks));
  }

  /// The error of a run that is over. \pre no process is ready or at work
  std::optional<EngineError> failure() {
    for (const auto& process : processes) {
      if (process->error) return std::move(process->error);
    }
    std::vector<int64_t> blocked = find_blocked(), fills;
    bool has_tokens = false;
    for (uint32_t tensor = 0; tensor < channels.size(); ++tensor) {
      if (channels[tensor] == nullptr) continue;
      const Channel& channel = *channels[tensor];
      for (const uint64_t number : {uint64_t(tensor), channel.sent(), channel.received(), channel.freed()})
        fills.push_back(int64_t(number));
      has_tokens = has_tokens || channel.sent() != channel.received();
    }
    if (!blocked.empty()) {
      return EngineError(EngineError("deadlock", "every process that has not ended waits")
                             .with("blocked", std::move(blocked))
                             .with("channels", std::move(fills)));
    }
    if (!has_tokens) return {};
    return EngineError(EngineError("unreceived-tokens", "tokens are left when all processes have ended")
                           .with("channels", std::move(fills)));
  }

 private:
  void make_channels() {
    const bytecode::Program& program = plan_.program();
    channels.resize(program.tensors.size());
    for (uint16_t tensor = 0; tensor < program.tensors.size(); ++tensor) {
      if (program.tensors[tensor].channel == bytecode::ChannelKind::NONE) continue;
      std::vector<uint32_t> senders, receivers;
      for (const bytecode::MoveForm& move : program.moves) {
        if (move.tensor != tensor) continue;
        const bool is_send = move.op == bytecode::Op::SEND || move.op == bytecode::Op::END_SEND;
        std::vector<uint32_t>& side = is_send ? senders : receivers;
        if (side.empty() || side.back() != move.process) side.push_back(move.process);
      }
      const std::vector<uint32_t>* order = merges_ == nullptr ? nullptr : &merges_->at(tensor);
      channels[tensor] = std::make_unique<Channel>(
          program.tensors[tensor],
          Side(std::move(senders), states, program.tensors[tensor].merge, order, records_merges_),
          Side(std::move(receivers), states), states);
    }
  }

  /// Per process that waits: its number, the place, and what it waits for.
  std::vector<int64_t> find_blocked() const {
    std::vector<int64_t> blocked;
    for (const auto& process : processes) {
      if (states[process->number].load(std::memory_order_relaxed) != ProcessState::kRunning) continue;
      const bytecode::MoveForm& move = plan_.program().moves[process->pending];
      const Admission admission = admit(*process, move);
      for (const uint32_t number : {process->number, move.pc, uint32_t(admission)})
        blocked.push_back(int64_t(number));
    }
    return blocked;
  }

  const bytecode::Plan& plan_;
  const std::shared_ptr<const MergeOrders> merges_;
  const bool records_merges_;
};

}  // namespace pto::wsp::sched
