// SPDX-License-Identifier: MIT
/// \file
/// What runs a program as a command: the engine, and arrays from and to files. One unit of a program includes
/// this, for it takes most of the time to compile and is the same in all programs.
#pragma once

#include <cerrno>
#include <cmath>
#include <iostream>
#include <map>
#include <utility>

#include "pto/wsp/host/call.hpp"

namespace pto::wsp::host {

namespace detail {

/// An integer of a type, in decimal or with 0x.
inline int64_t parse_integer(const std::string& text, DType dtype, const std::string& option) {
  char* end = nullptr;
  errno = 0;
  const int base = text.find("0x") == std::string::npos ? 10 : 16;
  const int64_t value = std::strtoll(text.c_str(), &end, base);
  const int bits = int(dtype_bytes(dtype)) * 8;
  const bool is_signed = dtype >= DType::i8 && dtype <= DType::i64;
  const int64_t high = is_signed || bits == 64 ? INT64_MAX >> (64 - bits) : (int64_t(1) << bits) - 1;
  const int64_t low = is_signed ? -high - 1 : 0;
  if (text.empty() || *end != 0 || errno != 0 || value < low || value > high)
    throw Mistake(option + ": expected a number of type " + dtype_name(dtype) + ", found `" + text + "`");
  return value;
}

inline int64_t parse_float(const std::string& text, const std::string& name) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_infinite = text.find_first_of("0123456789") == std::string::npos;
  if (text.empty() || *end != 0 || (std::isinf(float(value)) && !is_infinite))
    throw Mistake("--set " + name + ": expected a number of type f32, found `" + text + "`");
  return bits_of(float(value));
}

inline int64_t parse_value(const std::string& text, const bytecode::SymbolDescriptor& symbol,
                           const std::string& name) {
  if (symbol.dtype == DType::f32) return parse_float(text, name);
  if (symbol.dtype == DType::b1 && (text == "true" || text == "false")) return text == "true";
  if (symbol.kind == bytecode::SymbolKind::SIZE) {
    const int64_t size = parse_integer(text, DType::i64, "--set " + name);
    if (size < 0) throw Mistake("--set " + name + ": a size is at least 0");
    return size;
  }
  const int64_t value = parse_integer(text, symbol.dtype, "--set " + name);
  if (symbol.dtype == DType::b1 && value > 1) throw Mistake("--set " + name + ": expected true or false");
  return value;
}

/// Element i of an array of integers, of any width.
inline int64_t integer_at(const Array& array, int64_t i) {
  const int64_t bytes = dtype_bytes(array.dtype());
  const bool is_signed = array.dtype() >= DType::i8 && array.dtype() <= DType::i64;
  uint64_t bits = 0;
  std::memcpy(&bits, array.data() + i * bytes, size_t(bytes));
  const int unused = 64 - 8 * int(bytes);
  return is_signed ? int64_t(bits << unused) >> unused : int64_t(bits);
}

/// A flat array of integers as i64 [n], or as i32 [n, 1], which has to hold those in [first, last).
inline Array flat_integers(const Array& array, DType dtype, int64_t first, int64_t last,
                           const std::string& path) {
  const bool is_flat = array.shape().size() == 1 && array.dtype() >= DType::i8 && array.dtype() <= DType::u64;
  if (!is_flat) throw Mistake(path + ": expected a flat array of integers, found " + array.text());
  const int64_t size = array.shape()[0], high = dtype == DType::i32 ? INT32_MAX : INT64_MAX;
  Array made(dtype, dtype == DType::i32 ? std::vector<int64_t>{size, 1} : std::vector<int64_t>{size});
  for (int64_t i = first; i < std::min(size, last); ++i) {
    const int64_t value = integer_at(array, i);
    if (value < 0 || value > high)
      throw Mistake(path + ": element " + std::to_string(i) + " is not in [0, " + std::to_string(high) + "]");
    std::memcpy(made.data() + i * dtype_bytes(dtype), &value, size_t(dtype_bytes(dtype)));
  }
  return made;
}

/// The command line: options by kind, each `NAME=VALUE`.
struct Options {
  std::map<std::string, std::string> set, input, output;
  uint32_t workers = 0;
  bool has_stats = false;
  std::string dump;
};

inline Options parse_options(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::map<std::string, std::string>*> kinds = {
      {"--set", &options.set}, {"--input", &options.input}, {"--output", &options.output}};
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--stats") {
      options.has_stats = true;
      continue;
    }
    const auto kind = kinds.find(option);
    const bool is_single = option == "--workers" || option == "--dump";
    if ((kind == kinds.end() && !is_single) || i + 1 == argc)
      throw Mistake("`" + option +
                    "`: expected --set, --input, --output or --workers with a value, or --stats");
    const std::string value = argv[++i];
    if (option == "--workers") {
      options.workers = uint32_t(parse_integer(value, DType::u16, option));
      if (options.workers == 0) throw Mistake("--workers: expected a number from 1 on");
      continue;
    }
    if (option == "--dump") {
      options.dump = value;
      continue;
    }
    const size_t equals = value.find('=');
    if (equals == 0 || equals == std::string::npos || equals + 1 == value.size())
      throw Mistake(option + ": expected NAME=VALUE, found `" + value + "`");
    if (!kind->second->emplace(value.substr(0, equals), value.substr(equals + 1)).second)
      throw Mistake(option + ": `" + value.substr(0, equals) + "` is given twice");
  }
  return options;
}

}  // namespace detail

/// One run of a program on the arrays of files.
class Command {
 public:
  Command(const Program& program, detail::Options options)
      : program_(program),
        options_(std::move(options)),
        executable_(make_executable(program)),
        values_(program.symbols.size()),
        arrays_(program.tensors.size()) {}

  void run() {
    for (const auto* given : {&options_.input, &options_.output}) {
      for (const auto& pair : *given) tensor_number(pair.first);
    }
    for (const auto& pair : options_.output) {
      if (!descriptor(tensor_number(pair.first)).written)
        throw Mistake("--output " + pair.first + ": the program only reads it");
      for (const auto& other : options_.output) {
        if (other.first < pair.first && other.second == pair.second)
          throw Mistake("--output " + pair.first + ": `" + other.first + "` goes to the same file");
      }
    }
    set_values();
    for (const TensorKind kind : {TensorKind::kOffsets, TensorKind::kIndices, TensorKind::kArray}) {
      for (const auto& pair : options_.input) {
        const size_t i = tensor_number(pair.first);
        if (program_.tensors[i].kind == kind) read(i, pair.second);
      }
    }
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (program_.tensors[i].is_read && arrays_[i].data() == nullptr)
        throw Mistake("give `--input " + std::string(program_.tensors[i].name) + "=FILE`");
    }
    program_.derive(values_);
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i].data() == nullptr) arrays_[i] = make(i);
    }
    execute();
    for (const auto& pair : options_.output) write_npy(arrays_[tensor_number(pair.first)], pair.second);
  }

 private:
  const bytecode::TensorDescriptor& descriptor(size_t i) const { return executable_.program().tensors[i]; }

  size_t tensor_number(const std::string& name) const {
    for (size_t i = 0; i < program_.tensors.size(); ++i) {
      if (name == program_.tensors[i].name && program_.tensors[i].kind != TensorKind::kLocal) return i;
    }
    throw Mistake("the program has no tensor `" + name + "`");
  }

  void set_values() {
    const auto& known = executable_.program().symbols;
    std::map<std::string, std::string> given = options_.set;
    for (size_t i = 0; i < known.size(); ++i) {
      const Symbol& symbol = program_.symbols[i];
      const auto found = given.find(symbol.name);
      if (symbol.is_hidden) continue;
      if (found != given.end()) {
        values_[i] = detail::parse_value(found->second, known[i], symbol.name);
        given.erase(found);
      } else if (symbol.default_bits) {
        values_[i] = symbol.default_bits;
      } else if (known[i].kind == bytecode::SymbolKind::SCALAR) {
        throw Mistake("give `--set " + std::string(symbol.name) + "=...`");
      }
    }
    if (!given.empty()) throw Mistake("the program has no size or scalar `" + given.begin()->first + "`");
  }

  void read(size_t i, const std::string& path) {
    Array array = read_npy(path);
    if (program_.tensors[i].kind == TensorKind::kOffsets)
      array = read_offsets(program_.tensors[i], array, path);
    if (program_.tensors[i].kind == TensorKind::kIndices)
      array = read_indices(program_.tensors[i], array, path);
    const bytecode::TensorDescriptor& tensor = descriptor(i);
    bool is_right = array.dtype() == tensor.dtype && array.shape().size() == tensor.rank;
    for (size_t d = 0; is_right && d < tensor.rank; ++d) {
      const int64_t dim = tensor.dims[d], size = array.shape()[d];
      std::optional<int64_t>* symbol = dim < 0 ? &values_[size_t(-1 - dim)] : nullptr;
      if (symbol != nullptr && !*symbol) *symbol = size;
      is_right = size == (symbol != nullptr ? **symbol : dim);
    }
    if (!is_right) throw Mistake(path + ": expected " + expected(i) + ", found " + array.text());
    arrays_[i] = std::move(array);
  }

  /// Takes the number of rows from the offsets of an axis.
  Array read_offsets(const Tensor& tensor, const Array& given, const std::string& path) {
    Array offsets = detail::flat_integers(given, DType::i64, 0, INT64_MAX, path);
    const int64_t rows = offsets.shape()[0] - 1;
    if (rows < 0) throw Mistake(path + ": expected at least one element");
    for (int64_t b = 0; b < rows; ++b) {
      if (detail::integer_at(offsets, b + 1) < detail::integer_at(offsets, b))
        throw Mistake(path + ": element " + std::to_string(b + 1) + " is less than the one before");
    }
    std::optional<int64_t>& known = values_[tensor.axis];
    if (known && *known != rows)
      throw Mistake(path + ": expected " + program_.symbols[tensor.axis].name + " = " +
                    std::to_string(*known) + ", found " + std::to_string(rows));
    known = rows;
    return offsets;
  }

  /// Indices that no row has are not looked at.
  Array read_indices(const Tensor& tensor, const Array& given, const std::string& path) {
    const Array& offsets = arrays_[tensor.axis];
    if (offsets.data() == nullptr)
      throw Mistake("give `--input " + std::string(program_.tensors[tensor.axis].name) + "=FILE`");
    const int64_t first = detail::integer_at(offsets, 0);
    const int64_t last = detail::integer_at(offsets, offsets.shape()[0] - 1);
    Array indices = detail::flat_integers(given, DType::i32, first, last, path);
    if (indices.shape()[0] < last) throw Mistake(path + ": expected " + std::to_string(last) + " elements");
    return indices;
  }

  std::string expected(size_t i) const {
    const bytecode::TensorDescriptor& tensor = descriptor(i);
    std::string text = std::string(dtype_name(tensor.dtype)) + "[";
    for (int d = 0; d < tensor.rank; ++d) {
      if (d > 0) text += ", ";
      if (tensor.dims[d] >= 0) {
        text += std::to_string(tensor.dims[d]);
        continue;
      }
      const size_t symbol = size_t(-1 - tensor.dims[d]);
      text += program_.symbols[symbol].name;
      if (values_[symbol]) text += " = " + std::to_string(*values_[symbol]);
    }
    return text + "]";
  }

  Array make(size_t i) const {
    return Array(descriptor(i).dtype, shape_of(program_, descriptor(i), values_));
  }

  void execute() {
    std::vector<bind::ArrayRef> refs;
    for (const Array& array : arrays_) refs.push_back(packed_ref(array.data(), array.dtype(), array.shape()));
    sched::RunOptions run_options = program_.options;
    run_options.workers = options_.workers;
    std::optional<CrashWatch> watch;
    if (program_.native != nullptr) {
      program_.native->current_call = current_call;
      watch.emplace();
    }
    const char* dump = options_.dump.empty() ? nullptr : options_.dump.c_str();
    if (dump != nullptr && program_.orchestrate == nullptr)
      throw Mistake("--dump: only programs of the target c-orchestration write a task dump");
    const RunResult result = run_program(program_, executable_, refs, values_, run_options, dump);
    if (options_.has_stats)
      std::cout << result.tasks << " tasks on " << result.workers << " workers in "
                << double(result.run_ns) / 1e6 << " ms\n";
  }

  const Program& program_;
  const detail::Options options_;
  Executable executable_;
  Values values_;
  std::vector<Array> arrays_;
};

/// Runs a program as the command line says. Returns the exit status: 0 done, 1 refused or failed.
int run_command(const Program& program, int argc, char** argv) {
  std::optional<Command> command;
  try {
    command.emplace(program, detail::parse_options(argc, argv));
    command->run();
    return 0;
  } catch (const Mistake& mistake) {
    std::cerr << "error: " << mistake.what() << "\n";
  } catch (const EngineError& error) {
    std::cerr << explain(program, error) << "\n";
  } catch (const std::bad_alloc&) {
    std::cerr << "error: out of memory\n";
  }
  return 1;
}

}  // namespace pto::wsp::host
