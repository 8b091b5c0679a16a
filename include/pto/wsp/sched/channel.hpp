// SPDX-License-Identifier: MIT
/// \file
/// A channel of a network during a run: whose turn it is, which buffers are in use, and who waits.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/program.hpp"
#include "pto/wsp/progress.hpp"
#include "pto/wsp/spin.hpp"

namespace pto::wsp::sched {

enum class ProcessState : uint8_t { kRunning, kEnded, kFailed };

/// The state of every process. Written by the worker that runs the process, before it looks at the waiters of
/// the channels of that process, under their locks.
using ProcessStates = std::vector<std::atomic<ProcessState>>;

/// What a process that comes to a send or receive does. The numbers are those of `WAITS` in
/// runtime/explain.py.
enum class Admission : uint8_t {
  kGo = 0,
  kTurnToSend = 1,  ///< it waits for other senders
  kTurnToReceive = 2,
  kBuffer = 3,
  kToken = 4,
  kReceipt = 5,      ///< of a token that it has sent: a rendezvous
  kOtherFailed = 6,  ///< it needs a process that has failed
  kOtherEnded = 7,   ///< it needs a side all of whose processes have ended
};

inline bool waits(Admission admission) {
  return admission >= Admission::kTurnToSend && admission <= Admission::kReceipt;
}

/// The processes of one side of a channel, which take turns in declared order. One that has ended loses its
/// turn. Senders that are merged by time have no turns, or those of an earlier run.
class Side {
 public:
  Side(std::vector<uint32_t> processes, const ProcessStates& states,
       bytecode::MergeKind merge = bytecode::MergeKind::TURNS, const std::vector<uint32_t>* order = nullptr,
       bool is_recorded = false)
      : processes_(std::move(processes)),
        states_(&states),
        by_time_(merge == bytecode::MergeKind::TIME && processes_.size() > 1),
        is_recorded_(is_recorded),
        order_(order) {}

  static constexpr uint32_t kNone = UINT32_MAX;

  size_t size() const { return processes_.size(); }
  /// The process whose turn it is, or kNone if all have ended. Without turns one that runs, else one that has
  /// failed.
  uint32_t next() const {
    if (has_order()) return (*order_)[turn_];
    uint32_t failed = kNone;
    for (size_t k = 0; k < processes_.size(); ++k) {
      const uint32_t process = processes_[(turn_ + k) % processes_.size()];
      const ProcessState state = (*states_)[process].load(std::memory_order_acquire);
      if (state == ProcessState::kEnded) continue;
      if (state == ProcessState::kRunning || !by_time_) return process;
      failed = failed == kNone ? process : failed;
    }
    return failed;
  }
  /// The process whose turn it is if `process` asks, which has not ended.
  uint32_t next_of(uint32_t process) const { return by_time_ && !has_order() ? process : next(); }
  /// Ends the turn of a process.
  void advance(uint32_t process) {
    if (processes_.size() == 1) return;
    if (!by_time_) {
      turn_ = size_t(std::find(processes_.begin(), processes_.end(), process) - processes_.begin()) + 1;
    } else if (order_ != nullptr) {
      ++turn_;
    } else if (is_recorded_) {
      merged_.push_back(process);
    }
  }
  /// The order in which senders without turns have sent, if it is recorded.
  std::vector<uint32_t> take_merged() { return std::exchange(merged_, {}); }

 private:
  bool has_order() const { return by_time_ && order_ != nullptr && turn_ < order_->size(); }

  std::vector<uint32_t> processes_;
  const ProcessStates* states_;
  bool by_time_, is_recorded_;
  const std::vector<uint32_t>* order_;
  std::vector<uint32_t> merged_;
  size_t turn_ = 0;
};

/// All functions need the lock. The reference meaning is `interp/network.py`, which has the same names.
class alignas(kLineBytes) Channel {
 public:
  struct Waiter {
    uint32_t process;
    uint32_t move;
  };

  Channel(const bytecode::TensorDescriptor& ring, Side senders, Side receivers, const ProcessStates& states)
      : is_rendezvous_(ring.channel == bytecode::ChannelKind::RENDEZVOUS),
        num_scalars_(ring.scalars),
        buffers_(size_t(ring.dims[0])),
        scalars_(buffers_.size() * ring.scalars),
        senders_(std::move(senders)),
        receivers_(std::move(receivers)),
        states_(&states) {}

  SpinLock lock;
  std::vector<Waiter> waiters;

  Admission admit_send(uint32_t process) const {
    const uint32_t next = senders_.next_of(process);
    if (next != process) return unless_failed(next, Admission::kTurnToSend);
    const Buffer& buffer = buffer_of(sent_);
    if (buffer.owner == Side::kNone) return Admission::kGo;
    return unless_failed(buffer.is_sent ? receivers_.next() : buffer.owner, Admission::kBuffer);
  }

  /// Whether the sender of a token goes on after its send.
  Admission admit_end(uint64_t token) const {
    if (!is_rendezvous_ || received_ > token) return Admission::kGo;
    return unless_failed(receivers_.next(), Admission::kReceipt);
  }

  Admission admit_receive(uint32_t process) const {
    if (sent_ == received_) return unless_failed(senders_.next(), Admission::kToken);
    const uint32_t next = receivers_.next();
    if (next != process) return unless_failed(next, Admission::kTurnToReceive);
    const Buffer& buffer = buffer_of(received_);
    return buffer.is_sent ? Admission::kGo : unless_failed(buffer.owner, Admission::kToken);
  }

  /// Begins a token; returns its number.
  uint64_t open(uint32_t process, const int64_t* scalars) {
    buffer_of(sent_).owner = process;
    std::copy_n(scalars, num_scalars_, scalars_of(sent_));
    senders_.advance(process);
    return sent_++;
  }
  void publish(uint64_t token) { buffer_of(token).is_sent = true; }
  /// Receives the next token; returns its number.
  uint64_t take(uint32_t process) {
    Buffer& buffer = buffer_of(received_);
    buffer.owner = process;
    buffer.is_sent = false;
    receivers_.advance(process);
    return received_++;
  }
  void free(uint64_t token) {
    buffer_of(token).owner = Side::kNone;
    ++freed_;
  }

  /// Whether no other process can see that a process opens a token before its earlier tasks are complete.
  bool has_private_sends() const { return senders_.size() == 1; }
  /// The same for a receipt.
  bool has_private_receipts() const { return receivers_.size() == 1 && !is_rendezvous_; }

  uint64_t slot_of(uint64_t token) const { return buffers_.size() == 1 ? 0 : token % buffers_.size(); }
  const int64_t* scalars(uint64_t token) const { return scalars_.data() + slot_of(token) * num_scalars_; }
  uint32_t num_scalars() const { return num_scalars_; }
  uint64_t sent() const { return sent_; }
  uint64_t received() const { return received_; }
  uint64_t freed() const { return freed_; }
  /// The senders of all tokens, if they are recorded.
  std::vector<uint32_t> take_merged() { return senders_.take_merged(); }

 private:
  /// Free unless it has an owner: the sender of its token, then the receiver.
  struct Buffer {
    uint32_t owner = Side::kNone;
    bool is_sent = false;  ///< its token waits to be received
  };

  Buffer& buffer_of(uint64_t token) { return buffers_[slot_of(token)]; }
  const Buffer& buffer_of(uint64_t token) const { return buffers_[slot_of(token)]; }
  int64_t* scalars_of(uint64_t token) { return scalars_.data() + slot_of(token) * num_scalars_; }

  Admission unless_failed(uint32_t process, Admission wait) const {
    if (process == Side::kNone) return Admission::kOtherEnded;
    const bool has_failed = (*states_)[process].load(std::memory_order_acquire) == ProcessState::kFailed;
    return has_failed ? Admission::kOtherFailed : wait;
  }

  const bool is_rendezvous_;
  const uint32_t num_scalars_;
  std::vector<Buffer> buffers_;
  std::vector<int64_t> scalars_;
  Side senders_, receivers_;
  const ProcessStates* states_;
  uint64_t sent_ = 0, received_ = 0, freed_ = 0;
};

}  // namespace pto::wsp::sched
