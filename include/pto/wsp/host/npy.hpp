// SPDX-License-Identifier: MIT
/// \file
/// Arrays in `.npy` files: little-endian, in row-major order, of the element types of tensors.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "pto/wsp/abi.hpp"

namespace pto::wsp::host {

/// A mistake of the caller, in words.
struct Mistake : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The name of an element type, as PTO-WSP writes it.
inline const char* dtype_name(DType dtype) {
  static const char* const kNames[kNumDTypes] = {"f32", "f16", "bf16", "f64", "i8",  "i16", "i32",
                                                 "i64", "u8",  "u16",  "u32", "u64", "b1"};
  return kNames[static_cast<int>(dtype)];
}

/// How a `.npy` file names an element type. numpy itself has no bf16: its elements are two opaque bytes.
inline const char* dtype_descr(DType dtype) {
  static const char* const kDescr[kNumDTypes] = {"<f4", "<f2", "|V2", "<f8", "|i1", "<i2", "<i4",
                                                 "<i8", "|u1", "<u2", "<u4", "<u8", "|b1"};
  return kDescr[static_cast<int>(dtype)];
}

/// An array that this process owns, aligned to cache lines.
class Array {
 public:
  Array() = default;
  /// The elements are zero. Throws std::bad_alloc or Mistake if they do not fit into memory.
  Array(DType dtype, std::vector<int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
    int64_t bytes = dtype_bytes(dtype);
    for (const int64_t size : shape_) {
      if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > INT64_MAX - kAlign)
        throw Mistake("an array does not fit into memory");
    }
    num_bytes_ = size_t(bytes);
    data_.reset(static_cast<char*>(std::aligned_alloc(kAlign, (num_bytes_ / kAlign + 1) * kAlign)));
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(data_.get(), 0, num_bytes_);
  }

  DType dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  char* data() const { return data_.get(); }
  size_t num_bytes() const { return num_bytes_; }

  /// For messages: `f32[64, 128]`.
  std::string text() const {
    std::string text = std::string(dtype_name(dtype_)) + "[";
    for (size_t d = 0; d < shape_.size(); ++d) text += (d ? ", " : "") + std::to_string(shape_[d]);
    return text + "]";
  }

 private:
  static constexpr int64_t kAlign = 64;
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  DType dtype_ = DType::f32;
  std::vector<int64_t> shape_;
  size_t num_bytes_ = 0;
  std::unique_ptr<char, Free> data_;
};

namespace detail {

/// The text after `'key':` in the header of a file.
inline std::string header_value(const std::string& header, const char* key, const std::string& path) {
  const size_t at = header.find("'" + std::string(key) + "':");
  if (at == std::string::npos) throw Mistake(path + ": the header has no `" + key + "`");
  const size_t value = header.find_first_not_of(' ', at + std::strlen(key) + 3);
  if (value == std::string::npos) throw Mistake(path + ": the header has no `" + key + "`");
  return header.substr(value);
}

inline DType parse_descr(const std::string& text, const std::string& path) {
  const std::string descr = text.substr(1, text.find('\'', 1) - 1);
  for (int i = 0; i < kNumDTypes; ++i) {
    const std::string known = dtype_descr(DType(i));
    if (descr == known || (descr.size() == 3 && descr.substr(1) == "V2" && known == "|V2")) return DType(i);
  }
  throw Mistake(path + ": elements of type `" + descr + "` are not supported");
}

inline std::vector<int64_t> parse_shape(const std::string& text, const std::string& path) {
  std::vector<int64_t> shape;
  std::istringstream in(text.substr(1, text.find(')') - 1));
  for (std::string size; std::getline(in, size, ',');) {
    if (size.find_first_not_of(' ') == std::string::npos) continue;
    char* end = nullptr;
    errno = 0;
    shape.push_back(std::strtoll(size.c_str(), &end, 10));
    if (*end != 0 || errno != 0 || shape.back() < 0) throw Mistake(path + ": the header has no shape");
  }
  return shape;
}

}  // namespace detail

/// Reads a file. Throws Mistake with the file's name.
inline Array read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Mistake(path + ": the file cannot be opened");
  char start[8] = {};
  file.read(start, sizeof(start));
  if (std::memcmp(start, "\x93NUMPY", 6) != 0) throw Mistake(path + ": expected a `.npy` file");
  unsigned char length[4] = {};
  file.read(reinterpret_cast<char*>(length), start[6] == 1 ? 2 : 4);
  std::string header(length[0] | length[1] << 8 | length[2] << 16 | size_t(length[3]) << 24, ' ');
  if (header.size() > (1 << 16) || !file.read(header.data(), std::streamsize(header.size())))
    throw Mistake(path + ": the header is damaged");
  const DType dtype = detail::parse_descr(detail::header_value(header, "descr", path), path);
  const std::vector<int64_t> shape = detail::parse_shape(detail::header_value(header, "shape", path), path);
  if (detail::header_value(header, "fortran_order", path).rfind("False", 0) != 0)
    throw Mistake(path + ": expected an array in C order");
  Array array(dtype, shape);
  if (!file.read(array.data(), std::streamsize(array.num_bytes())) && array.num_bytes() > 0)
    throw Mistake(path + ": the file is cut off");
  return array;
}

/// Writes a file. Throws Mistake with the file's name.
inline void write_npy(const Array& array, const std::string& path) {
  std::string header =
      "{'descr': '" + std::string(dtype_descr(array.dtype())) + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : array.shape()) header += std::to_string(size) + ",";
  header += "), }";
  header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  const char length[2] = {char(header.size() & 0xff), char(header.size() >> 8)};
  file.write("\x93NUMPY\x01\x00", 8).write(length, 2).write(header.data(), std::streamsize(header.size()));
  file.write(array.data(), std::streamsize(array.num_bytes()));
  if (!file.flush()) throw Mistake(path + ": the file cannot be written");
}

}  // namespace pto::wsp::host
