// SPDX-License-Identifier: MIT
/// \file
/// The seam of PTO-WSP: everything that crosses between the compiler, kernel libraries and the engine.
///
/// Kernel translation units include this file and nothing else, so it stays C++17 and free of C++ standard
/// headers. Python mirrors of the enumerations below are checked against them by tests/python/test_seam.py.
/// Changing anything here changes `kAbiVersion`; a library of another version is refused when it is loaded.
#pragma once

#include <stdint.h>

namespace pto::wsp {

inline constexpr uint32_t kAbiVersion = 4;

/// Highest rank of a kernel's tensor view, and of a tensor bound to a workload.
inline constexpr int kMaxViewRank = 4;
inline constexpr int kMaxTensorRank = 8;

/// Tile scratch and worker arenas are aligned to this many bytes.
inline constexpr int kScratchAlign = 64;

/// Element types. Values are part of the bytecode format.
// clang-format off
enum class DType : uint8_t {
  f32 = 0, f16 = 1, bf16 = 2, f64 = 3,
  i8 = 4, i16 = 5, i32 = 6, i64 = 7,
  u8 = 8, u16 = 9, u32 = 10, u64 = 11,
  b1 = 12,  ///< one byte per element, 0 or 1 (numpy bool)
};
// clang-format on
inline constexpr int kNumDTypes = 13;

/// Bytes per element, or 0 for a value that names no element type.
constexpr int64_t dtype_bytes(DType dtype) {
  // clang-format off
  switch (dtype) {
    case DType::i8: case DType::u8: case DType::b1: return 1;
    case DType::f16: case DType::bf16: case DType::i16: case DType::u16: return 2;
    case DType::f32: case DType::i32: case DType::u32: return 4;
    case DType::f64: case DType::i64: case DType::u64: return 8;
  }
  // clang-format on
  return 0;
}

/// How a kernel uses a tensor parameter.
enum class Role : uint8_t { in = 0, out = 1, inout = 2 };

/// The kind of core a kernel wants. Each core of a CPU is of every kind.
enum class Unit : uint8_t { any = 0, vector = 1, cube = 2, control = 3, mixed = 4 };

/// A kernel's view of one tensor argument.
///
/// `shape` holds the *valid* extents of this task: a kernel reads and writes elements inside them and no
/// others. Element (i, j, ...) lies at `data + (row(i) * stride[0] + j * stride[1] + ...) * dtype_bytes`,
/// where row(i) is `rows[i]` if `rows` is set and i otherwise. Strides count elements; the innermost stride
/// is 1. Entries at and beyond the parameter's rank are 1 (shape) and 0 (stride).
struct View {
  void* data;
  int64_t shape[kMaxViewRank];
  int64_t stride[kMaxViewRank];
  const int32_t* rows;  ///< row-index list of a row set, shape[0] long, or null
  /// Whether stores should bypass the caches: no task reads the elements, and the caches cannot hold them.
  /// The kernel's streaming stores are visible to all threads before it returns.
  bool streams = false;
};

/// One scalar argument: eight bytes read through the member that the parameter's dtype selects
/// (floats as `f32` or `f64`, every integer and bool as `i64`).
union Scalar {
  int64_t i64;
  double f64;
  float f32;
};

/// A part of what a kernel prints.
struct Printed {
  enum class Kind : uint8_t { text, scalar, tile };

  Kind kind;
  DType dtype;       ///< of a scalar (f32, i64 or b1), or of the elements of a tile
  const void* data;  ///< the text, which ends with a zero byte, or the first element of a tile
  Scalar scalar;
  int64_t rows;    ///< of the valid part of a tile
  int64_t cols;    ///< of the valid part of a tile
  int64_t stride;  ///< elements between the rows of a tile
};

/// The largest number of values that a failed check keeps.
inline constexpr int kMaxCheckValues = 24;

/// The result of a kernel that stopped because its run must end.
inline constexpr int32_t kStopped = -1;

struct TaskContext;

/// The connection of a running kernel to the engine. One thread uses a monitor at a time.
struct Monitor {
  const uint64_t* ticks;  ///< changes at times when the kernel should ask
  uint64_t seen_ticks;    ///< `*ticks` when the kernel asked last; the engine sets it
  /// Whether the run must end. The kernel then returns kStopped as soon as possible.
  bool (*is_stopped)(Monitor* monitor);
  /// Prints parts, with spaces between them, as one piece that names the kernel and the task.
  void (*print)(Monitor* monitor, const TaskContext* context, const char* kernel, const Printed* parts,
                int32_t num_parts);
  int64_t values[kMaxCheckValues];  ///< what the failed check found; of floats the bits of an f32
};

/// The environment of a running task.
struct TaskContext {
  void* scratch;             ///< KernelInfo::scratch_bytes bytes, kScratchAlign-aligned, contents undefined
  void* workspace;           ///< what the task asked for, kScratchAlign-aligned, contents undefined; or null
  uint64_t workspace_bytes;  ///< its size
  uint64_t task;             ///< number of the task in program order, from 0
  uint32_t block_idx;        ///< 0 .. block_num - 1
  uint32_t block_num;        ///< KernelInfo::block_dim
  Monitor* monitor;          ///< not null
};

/// A kernel. Returns 0, kStopped, or the number (> 0) of the run-time check in its body that failed; the
/// compiler keeps the table from that number to a source location and a message.
using KernelFn = int32_t (*)(const View* views, const Scalar* scalars, const TaskContext* context);

/// Declared parameter of a kernel. Extents are inclusive bounds of View::shape, per dimension: a tile
/// parameter has [0, capacity], a fixed dimension [n, n], a run-time dimension [0, INT64_MAX].
struct ParamInfo {
  Role role;
  DType dtype;
  uint8_t rank;
  uint8_t reserved;
  int64_t min_shape[kMaxViewRank];
  int64_t max_shape[kMaxViewRank];
};

/// One entry point of a kernel library.
struct KernelInfo {
  const char* name;  ///< unique in its library
  KernelFn fn;
  const ParamInfo* params;  ///< num_views entries, in the order of the `views` argument
  uint16_t num_views;
  uint16_t num_scalars;
  uint32_t scratch_bytes;
  uint32_t block_dim;  ///< >= 1: calls of a task of an SPMD kernel, which may run at the same time
  Unit unit;
  uint8_t reserved[3];  ///< zero; an engine refuses a kernel with another value
};

/// The table a kernel library exports through `pto_wsp_kernel_library`.
struct KernelLibrary {
  uint32_t abi_version;  ///< kAbiVersion
  uint32_t num_kernels;
  uint64_t table_hash;  ///< what the compiler computed over names and parameters; bytecode carries the same
  const KernelInfo* kernels;
};

using KernelLibraryFn = const KernelLibrary* (*)();

static_assert(sizeof(View) == 88 && sizeof(Scalar) == 8 && sizeof(TaskContext) == 48);
static_assert(sizeof(ParamInfo) == 72 && sizeof(KernelInfo) == 40 && sizeof(KernelLibrary) == 24);

}  // namespace pto::wsp

/// The one symbol that a kernel library exports.
extern "C" const pto::wsp::KernelLibrary* pto_wsp_kernel_library();
