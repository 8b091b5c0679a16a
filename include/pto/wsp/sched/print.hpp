// SPDX-License-Identifier: MIT
/// \file
/// Formats the output of kernels as lines that name the task. `pto_wsp.interp.printing` writes the same text.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "pto/wsp/abi.hpp"

namespace pto::wsp::sched {

namespace detail {

inline std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

inline float half_to_float(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                               : std::ldexp(float(exponent == 0 ? fraction : fraction + 1024),
                                            (exponent == 0 ? 1 : exponent) - 25);
  return (bits & 0x8000) != 0 ? -value : value;
}

template <class T>
T read_as(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return value;
}

inline std::string element_text(DType dtype, const void* element) {
  switch (dtype) {
    case DType::f32: return float_text(double(read_as<float>(element)));
    case DType::f64: return float_text(read_as<double>(element));
    case DType::f16: return float_text(double(half_to_float(read_as<uint16_t>(element))));
    case DType::bf16: {
      const uint32_t bits = uint32_t(read_as<uint16_t>(element)) << 16;
      return float_text(double(read_as<float>(&bits)));
    }
    case DType::i8: return std::to_string(read_as<int8_t>(element));
    case DType::i16: return std::to_string(read_as<int16_t>(element));
    case DType::i32: return std::to_string(read_as<int32_t>(element));
    case DType::i64: return std::to_string(read_as<int64_t>(element));
    case DType::u8: return std::to_string(read_as<uint8_t>(element));
    case DType::u16: return std::to_string(read_as<uint16_t>(element));
    case DType::u32: return std::to_string(read_as<uint32_t>(element));
    case DType::u64: return std::to_string(read_as<uint64_t>(element));
    case DType::b1: return read_as<uint8_t>(element) != 0 ? "true" : "false";
  }
  return "?";
}

/// Calls `write(i)` for the shown positions in [0, count), and `skip()` for each gap.
template <class Write, class Skip>
void for_shown(int64_t count, const Write& write, const Skip& skip) {
  constexpr int64_t kEnd = 4;
  for (int64_t i = 0; i < count; ++i) {
    if (i == kEnd && count > 2 * kEnd) {
      skip();
      i = count - kEnd;
    }
    write(i);
  }
}

/// Assembles lines that begin with the task.
class PrintedLines {
 public:
  PrintedLines(const TaskContext& context, const char* kernel)
      : tag_("task " + std::to_string(context.task) +
             (context.block_num > 1 ? ", block " + std::to_string(context.block_idx) : "") + ", " + kernel +
             ":") {}

  void add(const Printed& part) {
    switch (part.kind) {
      case Printed::Kind::text: return word(static_cast<const char*>(part.data));
      case Printed::Kind::scalar: return word(element_text(part.dtype, &part.scalar));
      case Printed::Kind::tile: return add_tile(part);
    }
  }
  std::string finish() {
    if (!is_at_start_ || text_.empty()) end_line();
    return std::move(text_);
  }

 private:
  void word(const std::string& word) {
    if (is_at_start_) text_ += tag_;
    is_at_start_ = false;
    text_ += " ";
    for (const char c : word) text_ += c == '\n' ? "\n" + tag_ + " " : std::string(1, c);
  }
  void end_line() {
    if (is_at_start_) text_ += tag_;
    text_ += "\n";
    is_at_start_ = true;
  }

  void add_tile(const Printed& part) {
    word("[" + std::to_string(part.rows) + ", " + std::to_string(part.cols) + "]");
    end_line();
    const auto skip = [&] { word("..."); };
    const auto row = [&](int64_t i) {
      word(" ");
      for_shown(part.cols, [&](int64_t j) { word(element_text(part.dtype, place(part, i, j))); }, skip);
      end_line();
    };
    for_shown(part.rows, row, [&] {
      word("  ...");
      end_line();
    });
  }
  static const char* place(const Printed& part, int64_t i, int64_t j) {
    return static_cast<const char*>(part.data) + (i * part.stride + j) * dtype_bytes(part.dtype);
  }

  const std::string tag_;
  std::string text_;
  bool is_at_start_ = true;
};

}  // namespace detail

/// Writes the output of a kernel to `sink`, or to standard output if it is null, in one call of whole lines.
inline void print_parts(void (*sink)(void* printer, const std::string& text), void* printer,
                        const TaskContext& context, const char* kernel, const Printed* parts,
                        int32_t num_parts) {
  detail::PrintedLines lines(context, kernel);
  for (int32_t i = 0; i < num_parts; ++i) lines.add(parts[i]);
  const std::string text = lines.finish();
  if (sink != nullptr) return sink(printer, text);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace pto::wsp::sched
