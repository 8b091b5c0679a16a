// SPDX-License-Identifier: MIT
/// \file
/// A kept graph: all tasks of a run in program order, with what each strand must wait for.
///
/// A strand is a sequence of operations. They record the events of a walk: loops that advance, variables that
/// change, waits, and tasks. So a task takes a few bytes, and loops fill in its arguments when they advance,
/// as in a walk. No operation depends on addresses of tensors.
#pragma once

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/progress.hpp"
#include "pto/wsp/sched/graph_ops.hpp"
#include "pto/wsp/sched/policy.hpp"

namespace pto::wsp::sched {

/// An array that grows while other threads read its earlier elements.
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

  /// Makes element `i` exist; a new element is zero. \pre it is called for each one in turn, from 0 on, by
  /// one thread
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

  T** const chunks_;                       ///< from calloc: a small array touches little of it
  alignas(kLineBytes) T* next_ = nullptr;  ///< of the thread that extends
};

class KeptGraph {
 public:
  struct Strand {
    const uint32_t* ops;  ///< the first one, which is not a jump
    uint64_t first_task : 63;
    uint64_t follows : 1;  ///< its first task waits for a task of the strand before it
  };

  // Building, by one thread; the others may read strands that were published.

  /// Free memory for words, and its end.
  struct Room {
    uint32_t* at;
    uint32_t* end;
  };
  static constexpr size_t kChunkWords = 1 << 18;

  Room add_chunk() {
    if (num_chunks_ == chunks_.size())
      chunks_.push_back(std::unique_ptr<uint32_t[]>(new uint32_t[kChunkWords]));
    uint32_t* words = chunks_[num_chunks_++].get();
    return {words, words + kChunkWords};
  }

  /// Clears the graph and keeps its memory warm. \pre no thread uses the graph
  void clear() {
    num_chunks_ = 0;
    num_built_ = 0;
    publish(0);
  }

  /// Adds a strand whose operations begin at `ops`. In a graph for runs with policies, `traits` are those of
  /// its tasks. They are null for all strands or for none.
  void begin_strand(const uint32_t* ops, uint64_t first_task, bool follows = false,
                    const Traits* traits = nullptr) {
    reached_.extend(num_built_);
    if (traits != nullptr) traits_.extend(num_built_) = *traits;
    strands_.extend(num_built_++) = {ops, first_task, follows};
  }
  uint64_t num_built() const { return num_built_; }

  /// Lets workers run the first `num_strands` strands, which are complete.
  void publish(uint64_t num_strands) { num_strands_.store(num_strands, std::memory_order_release); }
  /// Finishes the graph with this number of tasks, and returns unused room.
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

  /// Begins a run: nothing is complete. \pre no thread runs the graph
  void begin_run() {
    ++num_runs_;
    watermark_.reset();
    for (uint32_t i = 0; i < kNumGroupLines; ++i)
      group_bases_[i] = groups_[i].reached.load(std::memory_order_relaxed);
  }
  /// Whether the run counters are exhausted.
  bool is_worn() const { return num_runs_ == kMaxRuns; }

  const Strand& strand(uint64_t i) const { return strands_[i]; }
  /// \pre the graph was built with traits
  const Traits& traits(uint64_t strand) const { return traits_[strand]; }

  /// The progress of a strand in this run.
  class StrandProgress {
   public:
    StrandProgress(std::atomic<uint64_t>& reached, uint64_t run) : reached_(reached), run_(run) {}
    void tasks(uint64_t count) { reached_.store(run_ | count, std::memory_order_release); }
    void end() { tasks(kComplete); }

   private:
    std::atomic<uint64_t>& reached_;
    const uint64_t run_;
  };
  StrandProgress progress_of(uint64_t strand) {
    return {reached_[slot_of(strand)], num_runs_ << kTaskBitsOfRun};
  }
  void reach_in_group(uint32_t line) { groups_[line].reached.fetch_add(1, std::memory_order_release); }

  // Acquire: if one of these is true, the writes of the tasks in question are visible.
  bool has_reached(uint64_t strand, uint64_t tasks) const {
    return reached_[slot_of(strand)].load(std::memory_order_acquire) >= (num_runs_ << kTaskBitsOfRun | tasks);
  }
  bool has_reached_in_group(uint32_t line, uint64_t slices) const {
    return groups_[line].reached.load(std::memory_order_acquire) - group_bases_[line] >= slices;
  }
  /// Whether the wait of an operation is satisfied.
  [[gnu::always_inline]] inline bool has_passed(GraphCursor wait) {
    switch (wait.op()) {
      case GraphOp::kWait: return has_reached(wait.operand(), wait.count());
      case GraphOp::kWaitAll: return num_complete() >= wait.operand();
      default: return has_reached_in_group(wait.operand(), wait.count());
    }
  }
  /// The number of leading strands that are complete.
  uint64_t num_complete() {
    return watermark_.advance(
        [this](uint64_t strand) { return strand < num_strands() && has_reached(strand, kComplete); });
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

  /// The position of the count of a strand. Neighbouring strands, which different workers may run at the same
  /// time, use different cache lines. Strands that share a line are far apart.
  static constexpr uint64_t slot_of(uint64_t strand) {
    constexpr uint64_t kPerLine = kLineBytes / sizeof(Count), kNumLines = kCountChunk / kPerLine;
    const uint64_t in_chunk = strand % kCountChunk;
    return strand - in_chunk + in_chunk % kNumLines * kPerLine + in_chunk / kNumLines;
  }

  std::vector<std::unique_ptr<uint32_t[]>> chunks_;
  size_t num_chunks_ = 0;  ///< that are in use
  StableArray<Strand> strands_;
  StableArray<Traits> traits_;
  StableArray<Count, kCountChunk> reached_;  ///< run number, and complete tasks of the strand in it
  uint64_t num_built_ = 0;
  uint64_t num_tasks_ = 0;
  size_t num_unused_ = 0;
  uint64_t num_runs_ = 0;
  std::array<Line, kNumGroupLines> groups_{};
  std::array<uint64_t, kNumGroupLines> group_bases_{};
  alignas(kLineBytes) std::atomic<uint64_t> num_strands_{0};
  alignas(kLineBytes) Watermark watermark_;
};

/// Writes the operations of strands into a graph.
class GraphWriter {
 public:
  /// Begins in new memory of the graph. `reserve` makes room for up to `most_words` words at a time.
  void begin(KeptGraph& graph, size_t most_words) {
    graph_ = &graph;
    most_words_ = ptrdiff_t(most_words + kGraphOpWords[int(GraphOp::kJump)]);
    room_ = graph.add_chunk();
  }

  /// Where the next operation is written.
  const uint32_t* at() const { return room_.at; }
  const KeptGraph::Room& room() const { return room_; }

  [[gnu::always_inline]] inline void reserve() {
    if (room_.end - room_.at < most_words_) jump_to_chunk();
  }

  // \pre there is room

  void task(uint32_t site) { write(GraphOp::kTask, site); }
  /// Writes the advance of a loop with 1 or 3 registers.
  void enter(uint32_t loop, const int64_t* registers, uint32_t num_registers) {
    bool is_near = true;
    for (uint32_t i = 0; i < num_registers; ++i) is_near = is_near && registers[i] == int32_t(registers[i]);
    const GraphOp op = num_registers == 1 ? GraphOp::kEnterDense : GraphOp::kEnterTiles;
    write(is_near ? GraphOp(uint32_t(op) + 1) : op, loop);
    for (uint32_t i = 0; i < num_registers; ++i) {
      if (is_near) {
        *room_.at++ = uint32_t(registers[i]);
      } else {
        write_wide(registers[i]);
      }
    }
  }
  void set(uint32_t variable, int64_t value) {
    write(GraphOp::kSet, variable);
    write_wide(value);
  }
  void wait(uint32_t strand, uint32_t num_tasks) {
    write(GraphOp::kWait, strand);
    *room_.at++ = num_tasks;
  }
  void wait_all(uint32_t num_strands) { write(GraphOp::kWaitAll, num_strands); }
  void wait_group(uint32_t line, uint64_t num_slices) {
    write(GraphOp::kWaitGroup, line);
    write_wide(int64_t(num_slices));
  }
  void reach(uint32_t line) { write(GraphOp::kReach, line); }
  void slice() { write(GraphOp::kSlice, 0); }
  void end() { write(GraphOp::kEnd, 0); }

 private:
  [[gnu::always_inline]] inline void write(GraphOp op, uint32_t operand) {
    *room_.at++ = operand << kGraphOpBits | uint32_t(op);
  }
  void write_wide(int64_t value) {
    std::memcpy(room_.at, &value, sizeof(value));
    room_.at += 2;
  }

  [[gnu::noinline]] void jump_to_chunk() {
    uint32_t* at = room_.at;
    room_ = graph_->add_chunk();
    *at++ = uint32_t(GraphOp::kJump);
    const uint32_t* to = room_.at;
    std::memcpy(at, &to, sizeof(to));
  }

  KeptGraph* graph_ = nullptr;
  KeptGraph::Room room_{};
  ptrdiff_t most_words_ = 0;
};

}  // namespace pto::wsp::sched
