// SPDX-License-Identifier: MIT
/// \file
/// The operations of strands of a kept graph, and a cursor that reads them.
#pragma once

#include <cstdint>
#include <cstring>

namespace pto::wsp::sched {

/// The low bits of the first word of an operation; the other bits are its operand. Values of 8 bytes may be
/// written in 4 bytes if they fit.
enum class GraphOp : uint32_t {
  kTask,            ///< operand = site
  kEnterDense,      ///< operand = loop that advances; its index follows, in 8 bytes
  kEnterDenseNear,  ///< the same, in 4 bytes
  kEnterTiles,      ///< operand = loop over tiles; index, start and length follow, in 8 bytes each
  kEnterTilesNear,  ///< the same, in 4 bytes each
  kSet,             ///< operand = variable; its value follows, in 8 bytes
  kWait,            ///< operand = strand; how many of its tasks must be complete follows, in 4 bytes
  kWaitAll,         ///< operand = strands: all before this one must be complete
  kWaitGroup,       ///< operand = group line; how many slices must be complete there follows, in 8 bytes
  kReach,           ///< operand = group line: a slice is complete there
  kSlice,           ///< a slice begins: later operations rely on no earlier state
  kJump,            ///< the strand continues at the address that follows
  kEnd,             ///< of the strand
};
inline constexpr int kGraphOpBits = 4;
inline constexpr uint32_t kMaxGraphOperand = UINT32_MAX >> kGraphOpBits;

/// Words of each operation.
inline constexpr int kGraphOpWords[] = {1, 3, 2, 7, 4, 3, 2, 1, 3, 1, 1, 3, 1};
static_assert(sizeof(kGraphOpWords) / sizeof(int) == size_t(GraphOp::kEnd) + 1);

/// Reads the operations of a strand in order. `advance` follows jumps.
class GraphCursor {
 public:
  GraphCursor() = default;
  explicit GraphCursor(const uint32_t* at) : at_(at) {}

  [[gnu::always_inline]] inline GraphOp op() const { return GraphOp(*at_ & ((1u << kGraphOpBits) - 1)); }
  [[gnu::always_inline]] inline uint32_t operand() const { return *at_ >> kGraphOpBits; }

  bool is_wait() const {
    return op() == GraphOp::kWait || op() == GraphOp::kWaitAll || op() == GraphOp::kWaitGroup;
  }
  bool is_enter() const { return op() >= GraphOp::kEnterDense && op() <= GraphOp::kEnterTilesNear; }

  // What follows the first word

  /// kWait: tasks. kWaitGroup: slices.
  uint64_t count() const { return op() == GraphOp::kWait ? at_[1] : uint64_t(wide(0)); }
  /// kSet
  int64_t value() const { return wide(0); }
  /// kEnter...: writes the registers of the loop.
  [[gnu::always_inline]] inline void read_registers(int64_t* registers) const {
    switch (op()) {
      case GraphOp::kEnterDense: registers[0] = wide(0); break;
      case GraphOp::kEnterDenseNear: registers[0] = near(0); break;
      case GraphOp::kEnterTiles:
        for (int i = 0; i < 3; ++i) registers[i] = wide(i);
        break;
      default:
        for (int i = 0; i < 3; ++i) registers[i] = near(i);
    }
  }

  /// Moves to the next operation of the strand. \pre this one is not the last
  [[gnu::always_inline]] inline void advance() {
    at_ += kGraphOpWords[int(op())];
    if (op() == GraphOp::kJump) std::memcpy(&at_, at_ + 1, sizeof(at_));
  }
  /// The same for an operation of `words` words that no jump follows, or whose jump the reader follows.
  [[gnu::always_inline]] inline void skip(int words) { at_ += words; }
  void jump() { std::memcpy(&at_, at_ + 1, sizeof(at_)); }

  const uint32_t* address() const { return at_; }
  bool operator==(const GraphCursor& other) const { return at_ == other.at_; }
  bool operator!=(const GraphCursor& other) const { return at_ != other.at_; }

 private:
  int64_t wide(int i) const {
    int64_t value = 0;
    std::memcpy(&value, at_ + 1 + 2 * i, sizeof(value));
    return value;
  }
  int64_t near(int i) const { return int32_t(at_[1 + i]); }

  const uint32_t* at_ = nullptr;
};

}  // namespace pto::wsp::sched
