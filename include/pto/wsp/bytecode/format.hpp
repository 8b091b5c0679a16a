// SPDX-License-Identifier: MIT
/// \file
/// The PTOW bytecode: the memory format of a lowered workload. docs/bytecode.md describes it.
///
/// Layout: Header, then the sections it counts, each starting at a multiple of 8 bytes, in this order:
/// Instruction[num_instructions], AxisDescriptor[num_axes], KernelDescriptor[num_kernels],
/// TensorDescriptor[num_tensors], SymbolDescriptor[num_symbols], int64_t constants[num_constants].
/// All integers are little endian.
#pragma once

#include <stdint.h>

#include "pto/wsp/abi.hpp"

namespace pto::wsp::bytecode {

inline constexpr uint32_t kMagic = 0x50544F57;  // "PTOW"
inline constexpr uint32_t kVersion = 5;

inline constexpr uint32_t kMaxLoopDepth = 16;    ///< nesting of loops
inline constexpr uint32_t kMaxCondDepth = 256;   ///< nesting of conditions: an else-if chain nests
inline constexpr int64_t kMaxBuffers = 1 << 20;  ///< of a channel
inline constexpr uint32_t kMaxExprStack = 32;    ///< operands alive while an expression is evaluated

/// Opcodes. Ranges from 0x18, 0x25, 0x35, 0x48 and 0x50 extend the original numbering of 0x00 to 0x4F.
// clang-format off
enum class Op : uint8_t {
  HALT = 0x00,  ///< end of the program
  NOP = 0x01,

  // Structure. operand1 = axis, operand2 = index of the matching END_LOOP.
  PARALLEL_FOR = 0x10,  ///< P: iterations are stated to be independent
  FOR_EACH = 0x11,      ///< P.seq: iteration i is complete before i + 1 begins
  COND = 0x13,          ///< operand2 = expression: what follows is skipped unless it is nonzero
  RANGE_FOR = 0x18,     ///< P.range: program order, ordered by data alone
  END_LOOP = 0x19,      ///< operand1 = axis, operand2 = index of its loop instruction
  ELSE = 0x1A,          ///< operand2 = index of its COND; at most one, and nothing of a loop in between
  END_COND = 0x1B,      ///< operand2 = index of its COND
  SET = 0x1C,           ///< operand1 = a register that no axis owns, operand2 = expression
  PROCESS = 0x1E,       ///< operand2 = index of its END_PROCESS; a network has nothing outside of processes
  END_PROCESS = 0x1F,   ///< operand2 = index of its PROCESS
  FAIL = 0x1D,          ///< operand1 = the compiler's number of the reason, operand2 = expression to report

  // Tasks: TASK, then num_scalars PARAM_*, then num_io times (IO_*, then one DIM_* per tensor dimension), then
  // at most one each of WORKSPACE, COST and the marks (see Mark), and any number of AFTER, in this order.
  TASK = 0x20,           ///< operand1 = kernel, operand2 = num_io << 16 | num_scalars
  PARAM_CONST = 0x21,    ///< operand2 = constant holding the Scalar's bits
  PARAM_LOOPVAR = 0x22,  ///< operand2 = register
  IO_INPUT = 0x23,       ///< operand1 = tensor
  IO_OUTPUT = 0x24,      ///< operand1 = tensor
  IO_INOUT = 0x25,       ///< operand1 = tensor
  PARAM_SYMBOL = 0x26,   ///< operand2 = symbol: its 8 bytes are passed as they are
  PARAM_EXPR = 0x27,     ///< operand2 = expression
  DIM_INDEX = 0x28,      ///< operand2 = expression: one index; the dimension is dropped from the view
  DIM_RANGE = 0x29,      ///< operand2 = expression for the start; the extent follows as DIM_EXTENT
  DIM_EXTENT = 0x2A,     ///< operand2 = expression for the extent of the DIM_RANGE before it
  DIM_TILE = 0x2B,       ///< operand1 = TILES axis of an enclosing loop: its current clipped range
  DIM_FULL = 0x2C,       ///< the whole dimension
  DIM_ROWS = 0x2D,       ///< first dimension only; operand1 = index tensor ([n, 1] i32), operand2 = expression for
                         ///< the first index; how many follows as DIM_EXTENT, then the DIM_MERGED dimensions
  DIM_MERGED = 0x2E,     ///< indexed together with the DIM_ROWS before it; the view does not have it
  AFTER = 0x2F,          ///< operand2 = index of an earlier TASK: its latest task is complete before this one begins
  WORKSPACE = 0x35,      ///< operand2 = expression: bytes
  COST = 0x36,           ///< operand2 = expression: estimated nanoseconds
  KEY = 0x37,            ///< operand2 = expression: which dispatcher; operand1 = n: it lies in [0, n), 0: anywhere
  ORDER = 0x38,          ///< operand2 = expression: number operand1 of the keys by which ready tasks start
  STREAM = 0x39,         ///< operand2 = expression: tasks of one stream start in program order, one at a time
  POOL = 0x3A,           ///< operand2 = expression: of the workers, those of this pool run the task
  TURN = 0x3B,           ///< operand2 = expression: tasks of different numbers take turns
  ADMIT = 0x3C,          ///< operand2 = expression: tasks of n numbers may be in flight
  GROUP = 0x3D,          ///< operand2 = expression: of the workers of its pool, those of this group run the task
  PREFETCH = 0x3E,       ///< operand2 = expression: while tasks of a number run, inputs of the next ones are fetched

  // Tokens. operand1 = the first of the registers of a token, which no axis owns: its buffer, its number in the
  // channel, then its scalars, which SETs in front of a SEND give.
  SEND = 0x48,         ///< operand2 = ring: waits for a buffer, which the tasks up to END_SEND write
  END_SEND = 0x49,     ///< operand2 = index of its SEND
  RECEIVE = 0x4A,      ///< operand2 = ring: waits for a token, which the tasks up to END_RECEIVE read
  END_RECEIVE = 0x4B,  ///< operand2 = index of its RECEIVE
  RECEIVE_EACH = 0x4C, ///< RECEIVE as the first of a loop, which ends where the channel is closed
  WAIT = 0x4D,         ///< operand1 = register: cycles, which a SET in front of it gives; below 0 counts as 0

  // Expressions: postfix over i64, after HALT, each ended by EXPR_END. Named by their first instruction.
  EXPR_END = 0x50,
  EXPR_CONST = 0x51,     ///< operand2 = constant
  EXPR_REG = 0x52,       ///< operand2 = register
  EXPR_SYMBOL = 0x53,    ///< operand2 = symbol (i64)
  /// operand1 = integer tensor, operand2 = its rank: pops the indices, last on top. Of a tensor that a task
  /// writes only in the expression of a SET, which waits for the tasks that write the element.
  EXPR_ELEMENT = 0x54,
  EXPR_ADD = 0x58, EXPR_SUB = 0x59, EXPR_MUL = 0x5A,
  EXPR_FLOORDIV = 0x5B, EXPR_MOD = 0x5C,  ///< as in Python; division by zero is an error
  EXPR_MIN = 0x5D, EXPR_MAX = 0x5E, EXPR_NEG = 0x5F,
  EXPR_LT = 0x60, EXPR_LE = 0x61, EXPR_EQ = 0x62, EXPR_NE = 0x63,  ///< give 0 or 1
  EXPR_AND = 0x64, EXPR_OR = 0x65, EXPR_NOT = 0x66,                ///< of truth values (nonzero is true)
  EXPR_SELECT = 0x67,    ///< pops else, then, condition; both arms have been evaluated
  EXPR_BITAND = 0x68, EXPR_BITOR = 0x69, EXPR_XOR = 0x6A, EXPR_INVERT = 0x6B,
  EXPR_SHL = 0x6C, EXPR_SHR = 0x6D,  ///< shifts outside 0..63 and bits lost by SHL are errors; SHR keeps the sign
  EXPR_BOOL = 0x6E,                  ///< 1 if nonzero, else 0
  EXPR_U64 = 0x6F,                   ///< the operand; below 0 is an error
  EXPR_F32 = 0x70,                   ///< the bits of the nearest f32
  EXPR_WITHIN = 0x71,                ///< a of a and b; outside [0, b] it is an error
};
// clang-format on

struct Instruction {
  Op op;
  uint8_t flags;  ///< 0
  uint16_t operand1;
  uint32_t operand2;
};

/// The original header, then the fields that this version adds.
struct Header {
  uint32_t magic;
  uint32_t version;
  uint32_t num_instructions;
  uint32_t num_axes;
  uint32_t num_kernels;
  uint32_t num_tensors;
  uint32_t num_symbols;
  uint32_t num_constants;
  uint32_t num_registers;
  uint32_t total_bytes;  ///< header and all sections
  uint64_t kernel_table_hash;
};

enum class AxisKind : uint8_t {
  DENSE = 0,  ///< variable i in [0, extent)
  TILES = 1,  ///< i in [0, ceil(extent / tile)); start = i * tile, length = min(tile, extent - start)
};

/// What a loop runs over. A DENSE axis owns register `reg` = i; a TILES axis also owns `reg` + 1 = start and
/// `reg` + 2 = length. Extents below 0 and tiles below 1 are errors.
struct AxisDescriptor {
  AxisKind kind;
  uint8_t reserved0;
  uint16_t reg;
  uint32_t extent_expr;
  uint32_t tile_expr;  ///< TILES only, else 0
  uint32_t reserved1;
};

struct KernelDescriptor {
  uint64_t name_hash;  ///< FNV-1a 64 of the kernel's name
  uint16_t index;      ///< in the library's table
  uint16_t num_io;
  uint16_t num_scalars;
  uint16_t reserved;
};

enum class ChannelKind : uint8_t {
  NONE = 0,        ///< a tensor
  RING = 1,        ///< the buffers of a channel, as many as dims[0]
  RENDEZVOUS = 2,  ///< the one buffer of a channel whose sends end when their token is received
};

/// Which of several senders of a channel sends the next token.
enum class MergeKind : uint8_t {
  TURNS = 0,  ///< they take turns
  TIME = 1,   ///< the first that finds a free buffer
};

/// A tensor that the run binds. dims[d] >= 0 is a fixed size; dims[d] = -1 - s is the value of symbol s,
/// taken from the first tensor that has it and checked for the others.
struct TensorDescriptor {
  DType dtype;
  uint8_t rank;
  uint8_t written;   ///< 1 if some task writes it: a read-only array is then refused
  uint8_t distinct;  ///< 1 if its elements differ from each other by construction
  ChannelKind channel;
  uint8_t scalars;  ///< of each token of a channel
  MergeKind merge;
  uint8_t reserved[1];
  int64_t dims[kMaxTensorRank];
};

enum class SymbolKind : uint8_t {
  SIZE = 0,    ///< extent of tensor dimensions, inferred from them, or given
  SCALAR = 1,  ///< given; passed to kernels as it is; as EXPR_SYMBOL only if its dtype is an integer
};

struct SymbolDescriptor {
  SymbolKind kind;
  DType dtype;  ///< i64 for SIZE
  uint8_t reserved[6];
};

static_assert(sizeof(Instruction) == 8 && sizeof(Header) == 48 && sizeof(AxisDescriptor) == 16);
static_assert(sizeof(KernelDescriptor) == 16 && sizeof(TensorDescriptor) == 72 &&
              sizeof(SymbolDescriptor) == 8);

}  // namespace pto::wsp::bytecode
