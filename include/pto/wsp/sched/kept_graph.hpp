// SPDX-License-Identifier: MIT
/// \file
/// A graph that is kept: all tasks of a run, written down in the order of the program, with what each strand
/// must wait for.
///
/// A strand is a row of operations. They say what a walk of the program would find there: which loops go on,
/// which variables change, what is waited for, and which tasks run. So a task takes a few bytes, and its
/// arguments are filled in where loops go on, as in a walk. Nothing in them depends on addresses.
#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/sched/progress.hpp"

namespace pto::wsp::sched {

/// The low bits of an operation's first word; the others are its operand.
enum class GraphOp : uint32_t {
  kTask,       ///< operand = site
  kEnter,      ///< operand = loop; its registers follow, in 8 bytes each
  kEnterNear,  ///< the same, in 4 bytes each
  kSet,        ///< operand = variable; its value follows, in 8 bytes
  kWait,       ///< operand = strand; how many of its tasks must be complete follows, in 4 bytes
  kWaitAll,    ///< operand = strands: all before this one must be complete
  kWaitGroup,  ///< operand = group line; how many slices must be complete there follows, in 8 bytes
  kReach,      ///< operand = group line: a slice is complete there
  kSlice,      ///< what follows does not count on any state from before
  kJump,       ///< the strand goes on at the address that follows
  kEnd,        ///< of the strand
};
inline constexpr int kGraphOpBits = 4;

constexpr GraphOp op_of(uint32_t word) { return GraphOp(word & ((1u << kGraphOpBits) - 1)); }
constexpr uint32_t operand_of(uint32_t word) { return word >> kGraphOpBits; }

/// Reads eight bytes of an operation.
inline int64_t read_wide(const uint32_t* words) {
  int64_t value = 0;
  std::memcpy(&value, words, sizeof(value));
  return value;
}

/// An array that grows while others read what was in it before.
template <class T, uint64_t kChunk = 512>
class StableArray {
 public:
  StableArray() : chunks_(static_cast<T**>(std::calloc(kMaxChunks, sizeof(T*)))) {
    if (chunks_ == nullptr) throw std::bad_alloc();
  }
  StableArray(const StableArray&) = delete;
  StableArray& operator=(const StableArray&) = delete;
  ~StableArray() {
    for (uint64_t i = 0; i < kMaxChunks && chunks_[i] != nullptr; ++i) std::free(chunks_[i]);
    std::free(chunks_);
  }

  T& operator[](uint64_t i) { return chunks_[i / kChunk][i % kChunk]; }
  const T& operator[](uint64_t i) const { return chunks_[i / kChunk][i % kChunk]; }

  /// Makes element `i` exist, as zeros if it was not there before. \pre it is called for each one in turn,
  /// from 0 on, by one thread
  T& extend(uint64_t i) {
    if (i % kChunk == 0) next_ = reach_chunk(i / kChunk);
    return *next_++;
  }

 private:
  static constexpr uint64_t kMaxChunks = 1 << 18;

  [[gnu::noinline]] T* reach_chunk(uint64_t i) {
    if (i == kMaxChunks)
      throw EngineError("too-many-strands", "more strands are alive than the engine can name");
    T*& chunk = chunks_[i];
    if (chunk != nullptr) return chunk;
    void* memory = std::aligned_alloc(kLineBytes, kChunk * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, kChunk * sizeof(T));
    return chunk = static_cast<T*>(memory);
  }

  T** const chunks_;                       ///< from calloc: an array that stays small touches little of it
  alignas(kLineBytes) T* next_ = nullptr;  ///< of the thread that extends
};

class KeptGraph {
 public:
  struct Strand {
    const uint32_t* ops;
    uint64_t first_task : 63;
    uint64_t follows : 1;  ///< its first task waits for one of the strand before it
  };

  // Building, by one thread; the others may read strands that were published.

  /// Room for words, and where it ends.
  struct Room {
    uint32_t* at;
    uint32_t* end;
  };
  static constexpr size_t kChunkWords = 1 << 18;

  Room add_chunk() {
    if (num_chunks_ == chunks_.size()) chunks_.emplace_back(new uint32_t[kChunkWords]);
    uint32_t* words = chunks_[num_chunks_++].get();
    return {words, words + kChunkWords};
  }

  /// Makes room for another graph; the memory of this one stays warm. \pre nobody uses the graph
  void clear() {
    num_chunks_ = 0;
    num_built_ = 0;
    publish(0);
  }

  /// Adds a strand whose operations begin at `ops`.
  void begin_strand(const uint32_t* ops, uint64_t first_task, bool follows = false) {
    reached_.extend(num_built_);
    strands_.extend(num_built_++) = {ops, first_task, follows};
  }
  uint64_t num_built() const { return num_built_; }

  /// Shows the strands that are complete by now to those who run them.
  void publish(uint64_t num_strands) { num_strands_.store(num_strands, std::memory_order_release); }
  /// Ends with so many tasks, and with some room that is not used.
  void finish(uint64_t num_tasks, Room rest) {
    num_tasks_ = num_tasks;
    num_unused_ = size_t(rest.end - rest.at);
  }

  uint64_t num_tasks() const { return num_tasks_; }
  uint64_t num_strands() const { return num_strands_.load(std::memory_order_acquire); }
  uint64_t num_bytes() const {
    return (num_chunks_ * kChunkWords - num_unused_) * sizeof(uint32_t) +
           num_built_ * (sizeof(Strand) + sizeof(Count));
  }

  // Running

  /// Begins a run: nothing is complete. \pre nobody runs the graph
  void begin_run() {
    ++num_runs_;
    watermark_.store(0, std::memory_order_relaxed);
    for (uint32_t i = 0; i < kNumGroupLines; ++i)
      group_bases_[i] = groups_[i].reached.load(std::memory_order_relaxed);
  }
  /// So many runs can be told apart.
  bool is_worn() const { return num_runs_ == kMaxRuns; }

  const Strand& strand(uint64_t i) const { return strands_[i]; }

  /// How far a strand has come in this run.
  class Reach {
   public:
    Reach(std::atomic<uint64_t>& reached, uint64_t run) : reached_(reached), run_(run) {}
    void tasks(uint64_t count) { reached_.store(run_ | count, std::memory_order_release); }
    void end() { tasks(kComplete); }

   private:
    std::atomic<uint64_t>& reached_;
    const uint64_t run_;
  };
  Reach reach(uint64_t strand) { return {reached_[slot_of(strand)], num_runs_ << kTaskBitsOfRun}; }
  void reach_in_group(uint32_t line) { groups_[line].reached.fetch_add(1, std::memory_order_release); }

  // Acquire: what the tasks in question wrote is visible once one of these is true.
  bool has_reached(uint64_t strand, uint64_t tasks) const {
    return reached_[slot_of(strand)].load(std::memory_order_acquire) >= (num_runs_ << kTaskBitsOfRun | tasks);
  }
  bool has_reached_in_group(uint32_t line, uint64_t slices) const {
    return groups_[line].reached.load(std::memory_order_acquire) - group_bases_[line] >= slices;
  }
  /// So many strands, the first ones, are complete.
  uint64_t num_complete() {
    uint64_t watermark = watermark_.load(std::memory_order_acquire);
    if (!watermark_lock_.try_lock()) return watermark;
    watermark = watermark_.load(std::memory_order_relaxed);
    const uint64_t before = watermark;
    while (watermark < num_strands() && has_reached(watermark, kComplete)) ++watermark;
    if (watermark != before) watermark_.store(watermark, std::memory_order_release);
    watermark_lock_.unlock();
    return watermark;
  }

 private:
  static constexpr int kTaskBitsOfRun = 40;
  static constexpr uint64_t kComplete = (uint64_t{1} << kTaskBitsOfRun) - 1;
  static constexpr uint64_t kCountChunk = 1024;
  static constexpr uint64_t kMaxRuns = (uint64_t{1} << (64 - kTaskBitsOfRun)) - 1;

  using Count = std::atomic<uint64_t>;
  struct alignas(kLineBytes) Line {
    Count reached;
  };

  /// Where the count of a strand is. Strands that follow each other, which different workers may run at the
  /// same time, lie on different lines; those that share one are far apart.
  static constexpr uint64_t slot_of(uint64_t strand) {
    constexpr uint64_t kPerLine = kLineBytes / sizeof(Count), kNumLines = kCountChunk / kPerLine;
    const uint64_t in_chunk = strand % kCountChunk;
    return strand - in_chunk + in_chunk % kNumLines * kPerLine + in_chunk / kNumLines;
  }

  std::vector<std::unique_ptr<uint32_t[]>> chunks_;
  size_t num_chunks_ = 0;  ///< that are in use
  StableArray<Strand> strands_;
  StableArray<Count, kCountChunk> reached_;  ///< run, and tasks of the strand that are complete in it
  uint64_t num_built_ = 0;
  uint64_t num_tasks_ = 0;
  size_t num_unused_ = 0;
  uint64_t num_runs_ = 0;
  std::array<Line, kNumGroupLines> groups_{};
  std::array<uint64_t, kNumGroupLines> group_bases_{};
  alignas(kLineBytes) std::atomic<uint64_t> num_strands_{0};
  alignas(kLineBytes) std::atomic<uint64_t> watermark_{0};
  SpinLock watermark_lock_;
};

}  // namespace pto::wsp::sched
