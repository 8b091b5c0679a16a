// SPDX-License-Identifier: MIT
#include "arrays.hpp"

#include <cstring>
#include <string>
#include <string_view>

#include "pto/wsp/abi.hpp"

namespace nb = nanobind;

namespace pto::wsp::python {

namespace {

EngineError array_error(const char* code, const std::string& message, size_t index) {
  return EngineError(code, message).with_int("tensor", int64_t(index));
}

/// True for an array of ml_dtypes.bfloat16, which has no buffer format.
bool is_bfloat16(nb::handle array) {
  if (!nb::hasattr(array, "dtype") || !nb::hasattr(array, "view")) return false;
  const nb::object dtype = array.attr("dtype");
  return std::string_view(nb::str(dtype).c_str()) == "bfloat16";
}

/// Why `array` has no buffer: it lives elsewhere, or it is not an array at all.
[[noreturn]] void refuse(nb::handle array, size_t index) {
  const std::string type = nb::inst_name(array).c_str();
  if (nb::hasattr(array, "__dlpack_device__")) {
    const auto device = nb::cast<nb::tuple>(array.attr("__dlpack_device__")());
    constexpr int64_t kCpu = 1;
    if (nb::cast<int64_t>(device[0]) != kCpu) {
      throw array_error("wrong-device", "an array is not in the memory of this machine", index)
          .with("type", type);
    }
  }
  throw array_error("unsupported-array", "an argument is not an array with a buffer: " + type, index)
      .with("type", type);
}

DType dtype_of(char code, Py_ssize_t bytes) {
  switch (code) {
    case '?': return DType::b1;
    case 'e': return DType::f16;
    case 'f': return DType::f32;
    case 'd': return DType::f64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q': return bytes == 1 ? DType::i8 : bytes == 2 ? DType::i16 : bytes == 4 ? DType::i32 : DType::i64;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q': return bytes == 1 ? DType::u8 : bytes == 2 ? DType::u16 : bytes == 4 ? DType::u32 : DType::u64;
    default: return DType(kNumDTypes);
  }
}

bool is_foreign(char order, Py_ssize_t bytes) {
  const uint16_t probe = 1;
  const bool is_little = *reinterpret_cast<const char*>(&probe) == 1;
  return bytes > 1 && (is_little ? order == '>' || order == '!' : order == '<');
}

bind::ArrayRef to_ref(const Py_buffer& buffer, size_t index) {
  if (buffer.ndim > kMaxTensorRank) {
    throw array_error("too-many-dimensions", "an array has more dimensions than a tensor may have", index)
        .with_int("found", buffer.ndim)
        .with_int("max", kMaxTensorRank);
  }
  const char* format = buffer.format == nullptr ? "B" : buffer.format;
  const bool has_order = std::strchr("@=<>!", format[0]) != nullptr && format[0] != 0;
  if (has_order && is_foreign(format[0], buffer.itemsize)) {
    throw array_error("foreign-byte-order", "an array has the byte order of another machine", index);
  }
  const char* code = format + (has_order ? 1 : 0);
  const DType dtype = code[0] != 0 && code[1] == 0 ? dtype_of(code[0], buffer.itemsize) : DType(kNumDTypes);
  if (dtype_bytes(dtype) != buffer.itemsize) {
    throw array_error("unknown-dtype", "an array has an element type that tensors do not have", index)
        .with("format", std::string(format));
  }
  bind::ArrayRef ref;
  ref.data = buffer.buf;
  ref.dtype = dtype;
  ref.rank = buffer.ndim;
  ref.is_read_only = buffer.readonly != 0;
  for (int d = 0; d < buffer.ndim; ++d) {
    ref.shape[d] = buffer.shape[d];
    ref.stride_bytes[d] = buffer.strides[d];
  }
  return ref;
}

}  // namespace

BoundArrays::BoundArrays(nb::tuple arrays) {
  buffers_.reserve(arrays.size());
  refs_.reserve(arrays.size());
  try {
    for (size_t i = 0; i < arrays.size(); ++i) add(arrays[i], i);
  } catch (...) {
    release();
    throw;
  }
}

BoundArrays::~BoundArrays() { release(); }

void BoundArrays::release() {
  for (Py_buffer& buffer : buffers_) PyBuffer_Release(&buffer);
  buffers_.clear();
}

void BoundArrays::add(nb::handle array, size_t index) {
  Py_buffer buffer;
  bool is_bf16 = false;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    is_bf16 = is_bfloat16(array);
    if (!is_bf16) refuse(array, index);
    const nb::object words = array.attr("view")("uint16");
    if (PyObject_GetBuffer(words.ptr(), &buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) throw nb::python_error();
  }
  buffers_.push_back(buffer);
  refs_.push_back(to_ref(buffer, index));
  if (is_bf16) refs_.back().dtype = DType::bf16;
}

int64_t scalar_bits(nb::handle value, DType dtype, size_t index) {
  Scalar scalar{0};
  const bool is_float = dtype <= DType::f64;
  if (is_float) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (dtype == DType::f64) {
      scalar.f64 = number;
    } else {
      scalar.f32 = float(number);
    }
  } else if (dtype == DType::b1) {
    scalar.i64 = PyObject_IsTrue(value.ptr());
  } else {
    const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
    if (number.is_valid()) scalar.i64 = PyLong_AsLongLong(number.ptr());
  }
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw EngineError("wrong-scalar",
                      is_float ? "a scalar is not a number" : "a scalar is not an integer of 64 bits")
        .with_int("index", int64_t(index))
        .with_int("dtype", int64_t(dtype));
  }
  return scalar.i64;
}

}  // namespace pto::wsp::python
