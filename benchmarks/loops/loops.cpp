// The kernels of programs.py as plain loops: any sizes, pointers that do not overlap, sums in the order they
// are written.
#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

float of_bits(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

std::uint16_t to_bits(float value) {
  std::uint32_t wide;
  std::memcpy(&wide, &value, sizeof wide);
  if (value != value) return static_cast<std::uint16_t>((wide >> 16) | 0x40);
  return static_cast<std::uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
}

// What a task costs the kernel, a repetition costs the loop: its arguments are not known to be those before.
#define LOOP(NAME, IN, OUT)                                                                             \
  static void NAME##_once(const IN* __restrict x, const IN* __restrict z, OUT* __restrict y, long rows, \
                          long cols);                                                                   \
  extern "C" void NAME(const IN* x, const IN* z, OUT* y, long rows, long cols, long times) {            \
    for (long i = 0; i < times; ++i) {                                                                  \
      asm volatile("" : "+r"(x), "+r"(z), "+r"(y), "+r"(rows), "+r"(cols) : : "memory");                \
      NAME##_once(x, z, y, rows, cols);                                                                 \
    }                                                                                                   \
  }                                                                                                     \
  static void NAME##_once(const IN* __restrict x, const IN* __restrict z, OUT* __restrict y, long rows, \
                          long cols)

}  // namespace

LOOP(scale_add, float, float) {
  for (long i = 0; i < rows * cols; ++i) y[i] = x[i] * 0.5f + z[i];
}

LOOP(clamp, float, float) {
  for (long i = 0; i < rows * cols; ++i) {
    const float scaled = (x[i] - z[i]) * 0.25f;
    const float raised = scaled > -1.0f ? scaled : -1.0f;
    y[i] = raised < 1.0f ? raised : 1.0f;
  }
}

LOOP(leaky, float, float) {
  for (long i = 0; i < rows * cols; ++i) y[i] = x[i] > z[i] ? x[i] : x[i] * 0.1f;
}

LOOP(divide, float, float) {
  for (long i = 0; i < rows * cols; ++i) y[i] = x[i] / z[i];
}

LOOP(row_sum, float, float) {
  for (long r = 0; r < rows; ++r) {
    float sum = 0;
    for (long c = 0; c < cols; ++c) sum += x[r * cols + c] * z[r * cols + c];
    y[r] = sum;
  }
}

LOOP(col_max, float, float) {
  for (long c = 0; c < cols; ++c) y[c] = -INFINITY;
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < cols; ++c) {
      const float value = x[r * cols + c] * z[r * cols + c];
      y[c] = value > y[c] ? value : y[c];
    }
}

LOOP(row_argmax, float, std::int32_t) {
  for (long r = 0; r < rows; ++r) {
    float best = x[r * cols] + z[r * cols];
    std::int32_t at = 0;
    for (long c = 1; c < cols; ++c) {
      const float value = x[r * cols + c] + z[r * cols + c];
      if (value > best) best = value, at = static_cast<std::int32_t>(c);
    }
    y[r] = at;
  }
}

LOOP(softmax, float, float) {
  for (long r = 0; r < rows; ++r) {
    const float *a = x + r * cols, *b = z + r * cols;
    float* to = y + r * cols;
    float highest = -INFINITY, sum = 0;
    for (long c = 0; c < cols; ++c) highest = a[c] + b[c] > highest ? a[c] + b[c] : highest;
    for (long c = 0; c < cols; ++c) to[c] = std::exp(a[c] + b[c] - highest);
    for (long c = 0; c < cols; ++c) sum += to[c];
    for (long c = 0; c < cols; ++c) to[c] /= sum;
  }
}

LOOP(layer_norm, float, float) {
  for (long r = 0; r < rows; ++r) {
    const float *a = x + r * cols, *b = z + r * cols;
    float* to = y + r * cols;
    float sum = 0, squares = 0;
    for (long c = 0; c < cols; ++c) sum += a[c];
    const float mean = sum / static_cast<float>(cols);
    for (long c = 0; c < cols; ++c) squares += (a[c] - mean) * (a[c] - mean);
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(cols) + 1e-5f);
    for (long c = 0; c < cols; ++c) to[c] = (a[c] - mean) * scale + b[c];
  }
}

LOOP(transpose, float, float) {
  for (long r = 0; r < rows; ++r)
    for (long c = 0; c < cols; ++c) y[c * rows + r] = x[r * cols + c] + z[r * cols + c];
}

LOOP(product, float, float) {
  for (long r = 0; r < rows; ++r) {
    for (long c = 0; c < cols; ++c) y[r * cols + c] = 0;
    for (long k = 0; k < cols; ++k)
      for (long c = 0; c < cols; ++c) y[r * cols + c] += x[r * cols + k] * z[k * cols + c];
  }
}

LOOP(to_bf16, float, std::uint16_t) {
  for (long i = 0; i < rows * cols; ++i) y[i] = to_bits(x[i] + z[i]);
}

LOOP(of_bf16, std::uint16_t, float) {
  for (long i = 0; i < rows * cols; ++i) y[i] = of_bits(x[i]) * of_bits(z[i]);
}

LOOP(of_i8, std::int8_t, float) {
  for (long i = 0; i < rows * cols; ++i) y[i] = static_cast<float>(x[i]) * 0.125f + static_cast<float>(z[i]);
}

LOOP(add_i32, std::int32_t, std::int32_t) {
  for (long i = 0; i < rows * cols; ++i)
    y[i] = static_cast<std::int32_t>((static_cast<std::uint32_t>(x[i]) + static_cast<std::uint32_t>(z[i])) *
                                     static_cast<std::uint32_t>(x[i]));
}

LOOP(add_i16, std::int16_t, std::int16_t) {
  for (long i = 0; i < rows * cols; ++i) y[i] = static_cast<std::int16_t>(x[i] + z[i]);
}

LOOP(divide_i32, std::int32_t, std::int32_t) {
  for (long i = 0; i < rows * cols; ++i) y[i] = x[i] / z[i];
}
