// SPDX-License-Identifier: MIT
/// \file
/// What the tasks of simulated cores execute, as text. Tasks of one function with equal shapes and scalars do
/// the same: the first one is kept.
///
///     t FUNCTION PHASE; SHAPES; SCALARS
///     i PIPE NAME ROWS COLUMNS TERMS ITEMSIZE       an instruction, in the order of the code
///     s FROM TO EVENT                               a flag is set
///     w FROM TO EVENT                               a flag is waited for
///     b                                             all pipes complete
#pragma once

#include <stdint.h>

#include <map>
#include <set>
#include <sstream>
#include <string>

/// The number of a phase, where a function has none of its own.
constexpr int32_t phase = -1;

namespace standin {

/// How much an instruction does: the shape of its largest operand, and of products the number of terms.
struct Amount {
  int64_t rows, cols, itemsize, terms = 0;
  int64_t bytes() const { return rows * cols * itemsize; }
};

/// The same words as the `View` of emitted code.
struct AnyView {
  void* data;
  int64_t shape[4];
  int64_t stride[4];
  const int32_t* rows;
  bool streams;
};

struct Trace {
  struct Sizes {
    int views, scalars;
  };
  std::map<std::string, Sizes> functions;  ///< those that are kept, by name and phase
  std::set<std::string> seen;
  bool repeats = false;  ///< whether tasks that do the same are kept, too
  std::string text;

  /// Returns the line of a task, or nothing if it is not kept.
  std::string head(const char* function, int number, const void* views, const void* scalars) {
    std::ostringstream line;
    line << function << " " << number;
    const auto found = functions.find(line.str());
    if (found == functions.end()) return {};
    for (int i = 0; i < found->second.views; ++i) {
      line << ";";
      for (const int64_t extent : static_cast<const AnyView*>(views)[i].shape) line << " " << extent;
    }
    for (int i = 0; i < found->second.scalars; ++i) line << "; " << static_cast<const int64_t*>(scalars)[i];
    return seen.insert(line.str()).second || repeats ? "t " + line.str() + "\n" : std::string();
  }
};

}  // namespace standin
