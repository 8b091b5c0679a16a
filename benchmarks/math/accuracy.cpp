// SPDX-License-Identifier: MIT
// The largest error of an elementwise function over given floats, against the same function in double.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return std::isinf(x) && x < 0 ? -0.0 : x * sigmoid(x); }
double gelu(double x) { return std::isinf(x) && x < 0 ? -0.0 : x * (std::erfc(-x * std::sqrt(0.5)) / 2); }
double rsqrt(double x) { return 1 / std::sqrt(x); }

struct Function {
  const char* name;
  double (*meaning)(double);
};
const Function kFunctions[] = {
    {"exp", std::exp},   {"expm1", std::expm1}, {"log", std::log},    {"log1p", std::log1p},
    {"tanh", std::tanh}, {"erf", std::erf},     {"sigmoid", sigmoid}, {"silu", silu},
    {"gelu", gelu},      {"rsqrt", rsqrt},      {"sqrt", std::sqrt},
};

// Distance in units of the last place of the nearest float; infinite where one of the two is NaN, or
// where a zero has the wrong sign.
double error_in_ulp(float found, double exact) {
  const float nearest = static_cast<float>(exact);
  if (std::isnan(nearest) || std::isnan(found))
    return std::isnan(nearest) && std::isnan(found) ? 0 : INFINITY;
  if (std::isinf(nearest) || std::isinf(found)) return nearest == found ? 0 : INFINITY;
  if (found == 0 && exact == 0) return std::signbit(found) == std::signbit(exact) ? 0 : INFINITY;
  int exponent;
  std::frexp(std::fmax(std::fabs(nearest), std::numeric_limits<float>::min()), &exponent);
  return std::ldexp(std::fabs(found - exact), 24 - exponent);
}

}  // namespace

// The floats whose bits are first, first + step, ...: `n` of them.
extern "C" void pto_floats(uint32_t first, uint32_t step, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i, first += step) std::memcpy(x + i, &first, 4);
}

// The largest error of y[i] as the value of a function at x[i]; negative where the name is unknown.
extern "C" double pto_max_ulp(const char* name, int64_t n, const float* x, const float* y) {
  for (const Function& function : kFunctions) {
    if (std::strcmp(function.name, name) != 0) continue;
    double worst = 0;
    for (int64_t i = 0; i < n; ++i) worst = std::fmax(worst, error_in_ulp(y[i], function.meaning(x[i])));
    return worst;
  }
  return -1;
}
