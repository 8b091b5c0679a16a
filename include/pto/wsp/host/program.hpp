// SPDX-License-Identifier: MIT
/// \file
/// A program as a command: arrays come from files, run on the engine, and go to files. command.hpp does it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/host/npy.hpp"
#include "pto/wsp/host/orchestration.h"
#include "pto/wsp/native.hpp"
#include "pto/wsp/sched/network_text.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/walk.hpp"

struct PTOGraph;
struct PTOLaunch;
struct PTOSession;

namespace pto::wsp::host {

/// A size or scalar of a program; its number is its place.
struct Symbol {
  const char* name;
  std::optional<int64_t> default_bits;
  bool is_hidden = false;  ///< it follows from others, or from the arrays of an axis
};

/// What a tensor of a program is for its caller.
enum class TensorKind {
  kArray,    ///< an array, of the very type
  kLocal,    ///< nothing: the program makes it
  kOffsets,  ///< where the rows of an axis begin and the last one ends: integers that never fall
  kIndices,  ///< the indices of all rows of a sparse axis: integers in [0, 2^31)
};

/// A tensor of a program; its number is its place.
struct Tensor {
  const char* name;
  TensorKind kind = TensorKind::kArray;
  bool is_read = false;  ///< tasks read what the caller gives, or it decides what runs
  size_t axis = 0;  ///< of kOffsets the symbol of the number of rows, of kIndices the tensor of the offsets
};

/// What a run-time check of a kernel means.
struct CheckText {
  const char* kernel;
  int64_t number;
  const char* text;
  const char* found;  ///< what follows it: {0}, {1}, ... are values that the check has kept
  size_t num_values;
  std::vector<const char*> scalars;  ///< names of scalars whose values it has kept after those

  std::string explain(const std::vector<int64_t>& values) const {
    std::string said = text, numbers = found;
    for (size_t i = 0; i < num_values && i < values.size(); ++i) {
      const std::string hole = "{" + std::to_string(i) + "}";
      const size_t at = numbers.find(hole);
      if (at != std::string::npos) numbers.replace(at, hole.size(), std::to_string(values[i]));
    }
    if (num_values > 0 && !numbers.empty()) said += ": " + numbers;
    for (size_t i = 0; i < scalars.size() && num_values + i < values.size(); ++i)
      said += "\n  " + std::string(scalars[i]) + " = " + std::to_string(values[num_values + i]);
    return said;
  }
};

/// A loop around a place in a workload, for errors.
struct SiteLoop {
  const char* name;   ///< of its variable
  size_t number;      ///< the register of its iteration
  const char* first;  ///< the variable in the first iteration, as text; null if it is `start`
  int64_t start;
  int64_t step;  ///< how much the variable grows per iteration

  std::string explain(int64_t iteration) const {
    const int64_t advance = iteration * step;
    return std::string(name) + " = " +
           (first == nullptr ? std::to_string(start + advance) : first + (" + " + std::to_string(advance)));
  }
};

/// What an instruction of the bytecode is in the workload.
struct Site {
  int64_t pc;
  const char* place;               ///< file and line
  const char* kernel;              ///< of a task; empty for everything else
  std::vector<const char*> views;  ///< parameters of the kernel that are parts of tensors
  std::vector<SiteLoop> loops;     ///< outermost first

  std::string explain(const EngineError& error) const {
    std::string said = std::string("\n  at ") + place;
    const int64_t view = error.has("io") ? error.number("io") : -1;
    if (size_t(view) < views.size()) said += std::string(", argument `") + views[size_t(view)] + "`";
    if (kernel[0] != 0) said += std::string(" of `") + kernel + "`";
    std::vector<int64_t> registers;
    for (const auto& [key, detail] : error.details())
      if (key == "registers") registers = detail.list;
    const char* between = " in iteration ";
    for (const SiteLoop& loop : loops) {
      if (loop.number >= registers.size()) continue;
      said += between + loop.explain(registers[loop.number]);
      between = ", ";
    }
    return said;
  }
};

/// A process of a network; its number is its place.
struct Process {
  const char* name;
};

using sched::Move;

/// The bits of a symbol, as the engine takes them.
using Values = std::vector<std::optional<int64_t>>;

/// A compiled program.
struct Program {
  const char* name;
  const uint8_t* bytecode;
  size_t bytecode_size;
  walk::WalkFn walk;                    ///< the walk as source, or null
  void (*orchestrate)(Orchestration*);  ///< adds the tasks by the C API; null: the engine expands them
  std::vector<Symbol> symbols;
  std::vector<Tensor> tensors;
  std::vector<CheckText> checks;
  std::vector<Site> sites;
  void (*derive)(Values& values);  ///< computes the derived symbols in their order; throws Mistake
  sched::RunOptions options;
  NativeKernels* native;           ///< of kernels that are written in C++; null if there are none
  std::vector<Process> processes;  ///< of a network
  std::vector<Move> moves;         ///< of a network
};

/// The value of a symbol that others follow from.
inline Scalar value_of(const Values& values, size_t symbol, const char* name) {
  if (!values[symbol]) throw Mistake("give `--set " + std::string(name) + "=...`");
  Scalar scalar;
  scalar.i64 = *values[symbol];
  return scalar;
}

/// Sets a symbol that follows from others; arrays must agree with it.
inline void set_derived(Values& values, size_t symbol, int64_t bits, const char* name) {
  if (values[symbol] && *values[symbol] != bits)
    throw Mistake("expected " + std::string(name) + " = " + std::to_string(bits) + ", found " +
                  std::to_string(*values[symbol]));
  values[symbol] = bits;
}

inline int64_t bits_of(float value) {
  Scalar scalar{0};
  scalar.f32 = value;
  return scalar.i64;
}

class Engine;

/// A program that is called with arrays in memory.
struct Callable {
  Program program;
  std::mutex mutex{};                ///< guards the following members
  std::shared_ptr<Engine> engine{};  ///< made by the first call
  const void* host = nullptr;        ///< library of the sessions of `hosted`
  std::shared_ptr<void> hosted{};    ///< the program in sessions, made by the first launch
};

/// The values and arrays of a call.
struct Given {
  Values values;
  std::vector<const void*> arrays;  ///< one per tensor; null for those of kLocal
  uint32_t workers;
};

/// Runs a program. Any thread may call it. Returns null, or an error that is valid until the next call of the
/// thread.
const char* call(Callable& callable, Given given);

/// Launches a program in a session. `graph` and `launch` may be null. Returns as `call` does.
const char* launch(Callable& callable, Given given, PTOSession* session, const PTOGraph* graph,
                   PTOLaunch** launch);

/// Makes a graph of a program, with a name that may be null. Returns as `call` does.
const char* make_graph(Callable& callable, PTOSession* session, const char* name, PTOGraph** graph);

/// Runs a program as the command line says. Returns the exit status: 0 done, 1 refused or failed.
int run_command(const Program& program, int argc, char** argv);

}  // namespace pto::wsp::host
