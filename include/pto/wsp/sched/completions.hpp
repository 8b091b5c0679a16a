// SPDX-License-Identifier: MIT
/// \file
/// Which tasks of a run are complete, for later runs that wait for some of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>

namespace pto::wsp::sched {

/// The completed tasks of one run. Its workers add tasks while later runs begin to follow it.
class Completions {
 public:
  /// A part of a later run. Workers of the earlier run call it.
  class Follower {
   public:
    virtual ~Follower() = default;
    /// May be called twice for a task.
    virtual void on_complete(uint64_t task) = 0;
    /// The run is over. Unless it failed, all its tasks are complete. May be called twice.
    virtual void on_end(bool has_failed) = 0;
  };

  /// Runs with more tasks are not followed.
  static constexpr uint64_t kMaxTasks = uint64_t{1} << 18;

  Completions() = default;
  Completions(const Completions&) = delete;
  ~Completions() {
    for (auto& chunk : chunks_) std::free(chunk.load(std::memory_order_relaxed));
    for (Node* node = first_.load(std::memory_order_relaxed); node != nullptr;)
      delete std::exchange(node, node->next);
  }

  /// Sequentially consistent with `follow`: a follower asks for the task after it was added, or is called.
  void complete(uint64_t task) noexcept {
    if (std::atomic<uint8_t>* flag = flag_of(task)) flag->store(1, std::memory_order_seq_cst);
    for (Node* node = first_.load(std::memory_order_seq_cst); node != nullptr; node = node->next)
      node->follower->on_complete(task);
  }
  /// The run is over: no thread is in a task.
  void end(bool has_failed) noexcept {
    end_.store(has_failed ? End::kFailed : End::kComplete, std::memory_order_seq_cst);
    for (Node* node = first_.load(std::memory_order_seq_cst); node != nullptr; node = node->next)
      node->follower->on_end(has_failed);
  }

  /// Sequentially consistent. If it is true, the writes of the task are visible. A task for which there was
  /// no memory is never complete before the end.
  bool is_complete(uint64_t task) const {
    const Flag* chunk = task < kMaxTasks ? chunks_[task / kChunk].load(std::memory_order_acquire) : nullptr;
    return chunk != nullptr && chunk[task % kChunk].load(std::memory_order_seq_cst) != 0;
  }
  bool has_failed() const { return end_.load(std::memory_order_seq_cst) == End::kFailed; }

  /// Calls the follower from now on. It must ask for tasks that are complete already.
  void follow(std::shared_ptr<Follower> follower) {
    Node* node = new Node{std::move(follower), first_.load(std::memory_order_relaxed)};
    while (!first_.compare_exchange_weak(node->next, node, std::memory_order_seq_cst)) {
    }
    const End end = end_.load(std::memory_order_seq_cst);
    if (end != End::kNone) node->follower->on_end(end == End::kFailed);
  }

 private:
  enum class End : uint8_t { kNone, kComplete, kFailed };
  using Flag = std::atomic<uint8_t>;

  struct Node {
    std::shared_ptr<Follower> follower;
    Node* next;
  };

  static constexpr uint64_t kChunk = 4096;

  /// Null for a task beyond kMaxTasks, or without memory.
  Flag* flag_of(uint64_t task) noexcept {
    if (task >= kMaxTasks) return nullptr;
    std::atomic<Flag*>& chunk = chunks_[task / kChunk];
    Flag* flags = chunk.load(std::memory_order_acquire);
    if (flags == nullptr) {
      auto* fresh = static_cast<Flag*>(std::calloc(kChunk, sizeof(Flag)));
      if (fresh == nullptr) return nullptr;
      if (chunk.compare_exchange_strong(flags, fresh, std::memory_order_acq_rel)) {
        flags = fresh;
      } else {
        std::free(fresh);
      }
    }
    return flags + task % kChunk;
  }

  std::atomic<Flag*> chunks_[kMaxTasks / kChunk] = {};
  std::atomic<Node*> first_{nullptr};
  std::atomic<End> end_{End::kNone};
};

}  // namespace pto::wsp::sched
