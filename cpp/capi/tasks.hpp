// SPDX-License-Identifier: MIT
/// \file
/// The tasks of a runtime: what they are called, what they run, and what memory they touch.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "pto/wsp/abi.hpp"
#include "pto/wsp/error.hpp"
#include "pto/wsp/pto_runtime.h"
#include "pto/wsp/sched/kept_graph.hpp"
#include "regions.hpp"

namespace pto::wsp::capi {

/// A name that tasks have, and what is registered for it.
struct Name {
  std::string text;
  PTOInCoreFunc function = nullptr;
  const KernelInfo* kernel = nullptr;  ///< of a kernel library
};

/// Texts are compared, not addresses: callers may use one buffer for many names.
class Names {
 public:
  [[gnu::always_inline]] inline Name* find(const char* text) {
    const Recent& recent = recent_[place_of_recent(text)];
    return recent.text == text && std::strcmp(text, recent.chars) == 0 ? recent.name : find_among_all(text);
  }

  /// Forgets all. \pre no task has one
  void clear() {
    std::fill(std::begin(recent_), std::end(recent_), Recent{});
    names_.clear();
  }

 private:
  static constexpr size_t kNumRecent = 64;
  struct Recent {
    const char* text = nullptr;   ///< of a call
    const char* chars = nullptr;  ///< of the name
    Name* name = nullptr;
  };

  static size_t place_of_recent(const char* text) {
    return (reinterpret_cast<uintptr_t>(text) >> 3) % kNumRecent;
  }

  [[gnu::noinline]] Name* find_among_all(const char* text) {
    const auto [at, is_new] = names_.try_emplace(text);
    if (is_new) at->second = std::make_unique<Name>(Name{text});
    recent_[place_of_recent(text)] = {text, at->second->text.c_str(), at->second.get()};
    return at->second.get();
  }

  Recent recent_[kNumRecent];
  std::unordered_map<std::string, std::unique_ptr<Name>> names_;
};

/// A region, and what a task does with it.
class Argument {
 public:
  Argument() = default;
  Argument(uint32_t region, Role role) : bits_(region << kRoleBits | uint32_t(role)) {}

  uint32_t region() const { return bits_ >> kRoleBits; }
  Role role() const { return Role(bits_ & ((1u << kRoleBits) - 1)); }
  bool writes() const { return role() != Role::in; }

 private:
  static constexpr int kRoleBits = 2;
  static_assert(Regions::kMaxRegions <= uint32_t{1} << (32 - kRoleBits));

  uint32_t bits_;
};

struct Task {
  /// By hand, a task that was submitted is taken, and may be begun, before it is complete.
  enum class State : uint8_t { kOpen, kSubmitted, kTaken, kBegun, kComplete };

  const Name* name;
  PTOInCoreFunc function;
  Argument* arguments;
  uint32_t num_arguments;
  int32_t buffer_bytes, reuse_bytes;
  std::atomic<State> now;

  State state() const { return now.load(std::memory_order_relaxed); }
  void set(State state) { now.store(state, std::memory_order_relaxed); }

  /// What it runs, or null.
  PTOInCoreFunc body() const { return function != nullptr ? function : name->function; }
  const KernelInfo* kernel() const { return body() != nullptr ? nullptr : name->kernel; }
};

/// Arguments of tasks, one after the other.
class ArgumentStore {
 public:
  /// Where the next one will be.
  Argument* tip() const { return tip_; }

  /// Adds one after the one before; false where there is no room.
  bool add(Argument argument) {
    if (tip_ == end_) return false;
    *tip_++ = argument;
    return true;
  }

  /// Adds an argument to those of a task, which are moved to where there is room after them.
  void add_to(Task& task, Argument argument) {
    const size_t count = task.num_arguments;
    const bool is_last = task.arguments + count == tip_;
    if (!is_last || tip_ == end_) {
      if (size_t(end_ - tip_) <= count) add_chunk(std::max(kChunk, 2 * count + 1));
      if (count > 0) std::memcpy(tip_, task.arguments, count * sizeof(Argument));
      task.arguments = tip_;
      tip_ += count;
    }
    *tip_++ = argument;
    ++task.num_arguments;
  }

  /// Drops all; memory stays warm.
  void clear() {
    tip_ = end_ = nullptr;
    num_chunks_ = 0;
  }

  /// What chunks take, but for the rest of the last one.
  uint64_t num_bytes() const {
    size_t size = 0;
    for (size_t i = 0; i < num_chunks_; ++i) size += chunks_[i].size;
    return (size - size_t(end_ - tip_)) * sizeof(Argument);
  }

 private:
  static constexpr size_t kChunk = 1 << 14;

  struct Chunk {
    std::unique_ptr<Argument[]> arguments;
    size_t size;
  };

  void add_chunk(size_t size) {
    if (num_chunks_ == chunks_.size() || chunks_[num_chunks_].size < size) {
      Chunk chunk{std::unique_ptr<Argument[]>(new Argument[size]), size};
      chunks_.insert(chunks_.begin() + std::ptrdiff_t(num_chunks_), std::move(chunk));
    }
    tip_ = chunks_[num_chunks_].arguments.get();
    end_ = tip_ + chunks_[num_chunks_++].size;
  }

  std::vector<Chunk> chunks_;
  size_t num_chunks_ = 0;  ///< that are in use
  Argument* tip_ = nullptr;
  Argument* end_ = nullptr;
};

/// All tasks by their numbers, and in the order of their submission. One thread adds, others read what is
/// published to them.
class Tasks {
 public:
  static constexpr uint32_t kMaxTasks = uint32_t{1} << 26;

  uint32_t num_allocated() const { return num_allocated_; }
  /// Acquire: these can be read.
  uint32_t num_submitted() const { return num_submitted_.load(std::memory_order_acquire); }
  Task& operator[](uint32_t number) { return tasks_[number]; }
  const Task& operator[](uint32_t number) const { return tasks_[number]; }

  /// The task that was submitted at this place, and its number.
  uint32_t number_at(uint32_t place) const { return order_[place]; }
  Task& at(uint32_t place) { return tasks_[order_[place]]; }
  const Task& at(uint32_t place) const { return tasks_[order_[place]]; }

  uint32_t add(const Name* name, PTOInCoreFunc function, int32_t buffer_bytes, int32_t reuse_bytes) {
    Task& task = tasks_.extend(num_allocated_);
    task.name = name;
    task.function = function;
    task.arguments = arguments_.tip();
    task.num_arguments = 0;
    task.buffer_bytes = buffer_bytes;
    task.reuse_bytes = reuse_bytes;
    task.set(Task::State::kOpen);
    latest_ = &task;
    return num_allocated_++;
  }

  /// Adds an argument to the task that was allocated last; false where there is no room. \pre no other task
  /// got one since
  bool add_to_latest(Argument argument) {
    if (!arguments_.add(argument)) return false;
    ++latest_->num_arguments;
    return true;
  }
  void add_argument(uint32_t number, Argument argument) { arguments_.add_to(tasks_[number], argument); }

  Regions& regions() { return regions_; }
  const Regions& regions() const { return regions_; }
  const Region& region(Argument argument) const { return regions_[argument.region()]; }

  /// Gives a task the next place.
  Task& submit(uint32_t number) {
    const uint32_t place = num_submitted_.load(std::memory_order_relaxed);
    order_.extend(place) = number;
    Task& task = number + 1 == num_allocated_ ? *latest_ : tasks_[number];
    task.set(Task::State::kSubmitted);
    num_submitted_.store(place + 1, std::memory_order_release);
    return task;
  }

  /// Drops all; memory stays warm.
  void clear() {
    arguments_.clear();
    regions_.clear();
    num_allocated_ = 0;
    num_submitted_.store(0, std::memory_order_relaxed);
  }

  uint64_t num_bytes() const {
    return arguments_.num_bytes() + regions_.num_bytes() + num_allocated_ * (sizeof(Task) + sizeof(uint32_t));
  }

 private:
  static constexpr uint64_t kChunk = 1 << 12;

  sched::StableArray<Task, kChunk> tasks_;
  sched::StableArray<uint32_t, kChunk> order_;
  ArgumentStore arguments_;
  Regions regions_;
  Task* latest_ = nullptr;
  uint32_t num_allocated_ = 0;
  std::atomic<uint32_t> num_submitted_{0};
};

}  // namespace pto::wsp::capi
