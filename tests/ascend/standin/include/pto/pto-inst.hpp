// SPDX-License-Identifier: MIT
/// \file
/// The part of the PTO tile interface that emitted kernels use, on simulated cores. It checks what hardware
/// would not forgive: capacities, alignment, types, valid shapes, unwritten bytes and missing flags.
#pragma once

#include <math.h>

#include <limits>
#include <type_traits>

#include "cube.hpp"

namespace pto {

// --- vector instructions -----------------------------------------------------------------------------------

using Ranges = std::vector<standin::Range>;
inline Ranges operator+(Ranges a, const Ranges& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

template <class A, class B>
void same_shape(const A& a, const B& b, const char* name) {
  standin::require(a.rows == b.rows && a.cols == b.cols, name);
}
template <class T>
void arithmetic() {
  constexpr bool is_plain = std::is_same_v<T, float> || std::is_same_v<T, half> ||
                            std::is_same_v<T, int32_t> || std::is_same_v<T, int16_t>;
  const bool is_wide = std::is_same_v<T, bfloat16_t> && standin::core().is_a5();
  standin::require(is_plain || is_wide, "vector arithmetic of a type that the generation has not");
}

template <class T>
auto wide(T value) {
  if constexpr (std::is_integral_v<T>) {
    return value;
  } else {
    return float(value);
  }
}
/// Integers wrap.
template <class T, class F>
T rounded(F value) {
  return T(value);
}

/// d[i, j] = f(i, j) over the valid shape of d. The amount is that of the largest operand.
template <class D, class F>
void each(const char* name, standin::Amount amount, const D& d, Ranges reads, F f, Ranges also = {}) {
  arithmetic<typename D::Type>();
  standin::core().issue(PIPE_V, name, amount, std::move(reads), d.ranges() + also, [d, f] {
    for (int64_t i = 0; i < d.rows; ++i) {
      for (int64_t j = 0; j < d.cols; ++j) d.at(i, j) = f(i, j);
    }
  });
}

template <class D, class F>
void each(const char* name, const D& d, Ranges reads, F f, Ranges also = {}) {
  each(name, amount_of(d), d, std::move(reads), f, std::move(also));
}

#define STANDIN_BINARY(OP, EXPRESSION)                                                \
  template <class D, class A, class B>                                                \
  void T##OP(D& d, A& a, B& b) {                                                      \
    using T = typename D::Type;                                                       \
    static_assert(std::is_same_v<T, typename A::Type> && !D::kIsColumn);              \
    same_shape(d, a, "T" #OP), same_shape(d, b, "T" #OP);                             \
    each("T" #OP, d, a.ranges() + b.ranges(), [a, b](int64_t i, int64_t j) {          \
      const auto x = wide(a.at(i, j)), y = wide(b.at(i, j));                          \
      return rounded<T>(EXPRESSION);                                                  \
    });                                                                               \
  }                                                                                   \
  template <class D, class A>                                                         \
  void T##OP##S(D& d, A& a, typename D::Type s) {                                     \
    using T = typename D::Type;                                                       \
    static_assert(std::is_same_v<T, typename A::Type> && !D::kIsColumn);              \
    same_shape(d, a, "T" #OP "S");                                                    \
    each("T" #OP "S", d, a.ranges(), [a, s](int64_t i, int64_t j) {                   \
      const auto x = wide(a.at(i, j)), y = wide(s);                                   \
      return rounded<T>(EXPRESSION);                                                  \
    });                                                                               \
  }                                                                                   \
  template <class D, class A, class V>                                                \
  void TROWEXPAND##OP(D& d, A& a, V& v) {                                             \
    using T = typename D::Type;                                                       \
    static_assert(std::is_same_v<D, A> && V::kIsColumn, "d and a have one type");     \
    same_shape(d, a, "TROWEXPAND" #OP);                                               \
    standin::require(v.rows == a.rows, "TROWEXPAND" #OP " of another column");        \
    each(                                                                             \
        "TROWEXPAND" #OP, d, a.ranges() + v.ranges(),                                 \
        [a, v](int64_t i, int64_t j) {                                                \
          const auto x = wide(a.at(i, j)), y = wide(v.at(i, 0));                      \
          return rounded<T>(EXPRESSION);                                              \
        },                                                                            \
        expand_scratch());                                                            \
  }                                                                                   \
  template <class D, class A, class V>                                                \
  void TCOLEXPAND##OP(D& d, A& a, V& v) {                                             \
    using T = typename D::Type;                                                       \
    static_assert(std::is_same_v<D, A>, "d and a have one type");                     \
    same_shape(d, a, "TCOLEXPAND" #OP);                                               \
    standin::require(v.rows == 1 && v.cols == a.cols, "TCOLEXPAND of another row");   \
    each("TCOLEXPAND" #OP, d, a.ranges() + v.ranges(), [a, v](int64_t i, int64_t j) { \
      const auto x = wide(a.at(i, j)), y = wide(v.at(0, j));                          \
      return rounded<T>(EXPRESSION);                                                  \
    });                                                                               \
  }

#define STANDIN_UNARY(NAME, EXPRESSION)                                             \
  template <class D, class A, std::enable_if_t<A::kType == TileType::Vec, int> = 0> \
  void NAME(D& d, A& a) {                                                           \
    using T = typename D::Type;                                                     \
    static_assert(std::is_same_v<T, typename A::Type>);                             \
    same_shape(d, a, #NAME);                                                        \
    each(#NAME, d, a.ranges(), [a](int64_t i, int64_t j) {                          \
      const auto x = wide(a.at(i, j));                                              \
      return rounded<T>(EXPRESSION);                                                \
    });                                                                             \
  }

/// Row broadcasts of three operands overwrite the top of the buffer.
inline Ranges expand_scratch() {
  if (standin::core().is_a5()) return {};
  return {{standin::kUb, 184 << 10, 192 << 10}};
}

STANDIN_BINARY(ADD, x + y)
STANDIN_BINARY(SUB, x - y)
STANDIN_BINARY(MUL, x* y)
STANDIN_BINARY(DIV, x / y)
STANDIN_BINARY(MAX, x > y || x != x ? x : y)
STANDIN_BINARY(MIN, x < y || x != x ? x : y)
STANDIN_BINARY(FMOD, fmodf(x, y))
STANDIN_BINARY(AND, int32_t(x) & int32_t(y))
STANDIN_BINARY(OR, int32_t(x) | int32_t(y))
#undef STANDIN_BINARY

STANDIN_UNARY(TMOV, x)
STANDIN_UNARY(TNOT, ~int32_t(x))
STANDIN_UNARY(TABS, fabsf(x))
STANDIN_UNARY(TNEG, -x)
STANDIN_UNARY(TRELU, x > 0 || x != x ? x : 0)
STANDIN_UNARY(TSQRT, sqrtf(x))
STANDIN_UNARY(TRSQRT, 1 / sqrtf(x))
STANDIN_UNARY(TEXP, float(exp(double(x))))
STANDIN_UNARY(TLOG, float(log(double(x))))
#undef STANDIN_UNARY

/// d = s / a.
template <class D, class A>
void TDIVS(D& d, float s, A& a) {
  same_shape(d, a, "TDIVS");
  each("TRECIP", d, a.ranges(),
       [a, s](int64_t i, int64_t j) { return rounded<typename D::Type>(s / wide(a.at(i, j))); });
}
template <class D, class A>
void TLRELU(D& d, A& a, typename D::Type s) {
  same_shape(d, a, "TLRELU");
  each("TLRELU", d, a.ranges(), [a, s](int64_t i, int64_t j) {
    const float x = a.at(i, j);
    return rounded<typename D::Type>(x > 0 || x != x ? x : x * float(s));
  });
}
template <class D>
void TEXPANDS(D& d, typename D::Type s) {
  each("TEXPANDS", d, {}, [s](int64_t, int64_t) { return s; });
}
template <class D, class A>
void TROWEXPAND(D& d, A& a) {
  static_assert(A::kIsColumn && !D::kIsColumn);
  standin::require(a.rows == d.rows, "TROWEXPAND of another column");
  each("TROWEXPAND", d, a.ranges(), [a](int64_t i, int64_t) { return a.at(i, 0); }, expand_scratch());
}
template <class D, class A>
void TCOLEXPAND(D& d, A& a) {
  standin::require(a.rows == 1 && a.cols == d.cols, "TCOLEXPAND of another row");
  each("TCOLEXPAND", d, a.ranges(), [a](int64_t, int64_t j) { return a.at(0, j); });
}

/// The temporary tile has a row per column of `a`, of whole groups of 16 elements.
template <class D, class A, class T>
void TTRANS(D& d, A& a, T& tmp) {
  static_assert(std::is_same_v<typename D::Type, typename A::Type>, "a transpose of two types");
  static_assert(std::is_same_v<typename D::Type, typename T::Type>, "a transpose of two types");
  static_assert(sizeof(typename A::Type) >= 2 && T::kCols % 16 == 0);
  standin::require(d.rows == a.cols && d.cols == a.rows, "TTRANS of another shape");
  standin::require(T::kRows >= a.cols && T::kCols >= a.rows, "the temporary tile of TTRANS is too small");
  each("TTRANS", amount_of(a), d, a.ranges(), [a](int64_t i, int64_t j) { return a.at(j, i); }, tmp.ranges());
}

enum class Fold { kSum, kMax, kMin };
template <class T>
double folded(Fold fold, double total, T value) {
  const double x = double(wide(value));
  if (fold == Fold::kSum) return total + x;
  if (x != x || total != total) return x != x ? x : total;
  return fold == Fold::kMax ? std::max(total, x) : std::min(total, x);
}
template <class D, class A, class T>
void row_fold(const char* name, Fold fold, D& d, A& a, T& tmp) {
  static_assert(D::kIsColumn && !A::kIsColumn && std::is_same_v<typename D::Type, typename A::Type>);
  standin::require(d.rows == a.rows, "a reduction to another column");
  same_shape(a, tmp, "the temporary tile of a reduction has another shape");
  each(
      name, amount_of(a), d, a.ranges(),
      [a, fold](int64_t i, int64_t) {
        double total = fold == Fold::kSum ? 0 : double(wide(a.at(i, 0)));
        for (int64_t j = 0; j < a.cols; ++j) total = folded(fold, total, a.at(i, j));
        return rounded<typename D::Type>(float(total));
      },
      tmp.ranges());
}
template <class D, class A>
void col_fold(const char* name, Fold fold, D& d, A& a) {
  standin::require(d.rows == 1 && d.cols == a.cols, "a reduction to another row");
  each(name, amount_of(a), d, a.ranges(), [a, fold](int64_t, int64_t j) {
    double total = fold == Fold::kSum ? 0 : double(wide(a.at(0, j)));
    for (int64_t i = 0; i < a.rows; ++i) total = folded(fold, total, a.at(i, j));
    if constexpr (std::is_integral_v<typename D::Type>) {
      return typename D::Type(int64_t(total));
    } else {
      return rounded<typename D::Type>(float(total));
    }
  });
}
#define STANDIN_FOLD(OP, FOLD)                   \
  template <class D, class A, class T>           \
  void TROW##OP(D& d, A& a, T& tmp) {            \
    row_fold("TROW" #OP, Fold::FOLD, d, a, tmp); \
  }                                              \
  template <class D, class A>                    \
  void TCOL##OP(D& d, A& a) {                    \
    col_fold("TCOL" #OP, Fold::FOLD, d, a);      \
  }
STANDIN_FOLD(SUM, kSum)
STANDIN_FOLD(MAX, kMax)
STANDIN_FOLD(MIN, kMin)
#undef STANDIN_FOLD

// --- comparisons and selects -------------------------------------------------------------------------------

template <class T>
bool compares(T a, T b, CmpMode mode) {
  switch (mode) {
    case CmpMode::EQ: return a == b;
    case CmpMode::NE: return a != b;
    case CmpMode::LT: return a < b;
    case CmpMode::LE: return a <= b;
    case CmpMode::GT: return a > b;
    case CmpMode::GE: return a >= b;
  }
  return false;
}

/// A mask holds a bit per element, the lowest first. Versions of the library agree on its rows only if its
/// valid columns are all of them.
template <class M>
void packed_rows(const M& mask, int64_t rows, int64_t cols) {
  static_assert(std::is_same_v<typename M::Type, uint8_t> && !M::kIsColumn, "a mask is a tile of bytes");
  standin::require(mask.rows == rows && mask.cols == M::kCols, "a mask has other rows, or not all columns");
  standin::require(cols <= 8 * M::kCols, "a mask is too narrow");
}

/// Bits after the last column are garbage.
template <class M, class A>
void TCMPS(M& mask, A& a, typename A::Type s, CmpMode mode) {
  using T = typename A::Type;
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, int32_t>,
                "no instruction compares this type");
  packed_rows(mask, a.rows, a.cols);
  standin::core().issue(PIPE_V, "TCMPS", amount_of(a), a.ranges(), mask.ranges(), [mask, a, s, mode] {
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < M::kCols; ++j) mask.at(i, j) = 0x55;
      for (int64_t j = 0; j < a.cols; ++j) {
        const uint8_t bit = uint8_t(1 << j % 8);
        uint8_t& byte = mask.at(i, j / 8);
        byte = uint8_t(compares(a.at(i, j), s, mode) ? byte | bit : byte & ~bit);
      }
    }
  });
}

template <class D, class M, class A, class B, class T>
void TSEL(D& d, M& mask, A& a, B& b, T& tmp) {
  static_assert(std::is_same_v<typename D::Type, typename A::Type>, "a select of two types");
  static_assert(std::is_same_v<typename D::Type, typename B::Type>, "a select of two types");
  static_assert(std::is_same_v<typename T::Type, uint32_t> && T::kRows == 1 && T::kCols == 16);
  same_shape(d, a, "TSEL"), same_shape(d, b, "TSEL");
  packed_rows(mask, d.rows, d.cols);
  each(
      "TSEL", d, mask.ranges() + a.ranges() + b.ranges(),
      [mask, a, b](int64_t i, int64_t j) { return mask.at(i, j / 8) >> j % 8 & 1 ? a.at(i, j) : b.at(i, j); },
      tmp.ranges());
}

// --- conversions -------------------------------------------------------------------------------------------

template <class D, class A>
constexpr bool kConverts =
    (std::is_same_v<A, float> &&
     (std::is_same_v<D, half> || std::is_same_v<D, bfloat16_t> || std::is_same_v<D, int16_t> ||
      std::is_same_v<D, int32_t> || std::is_same_v<D, int64_t>)) ||
    (std::is_same_v<A, half> &&
     (std::is_same_v<D, float> || std::is_same_v<D, int32_t> || std::is_same_v<D, int16_t> ||
      std::is_same_v<D, int8_t> || std::is_same_v<D, uint8_t>)) ||
    (std::is_same_v<A, bfloat16_t> && (std::is_same_v<D, float> || std::is_same_v<D, int32_t>)) ||
    (std::is_same_v<A, int16_t> && (std::is_same_v<D, half> || std::is_same_v<D, float>)) ||
    (std::is_same_v<A, int32_t> && (std::is_same_v<D, float> || std::is_same_v<D, int64_t>)) ||
    ((std::is_same_v<A, uint8_t> || std::is_same_v<A, int8_t>) && std::is_same_v<D, half>);

template <class T>
T converted(double x, RoundMode mode) {
  switch (mode) {
    case RoundMode::CAST_RINT: x = nearbyint(x); break;
    case RoundMode::CAST_ROUND: x = round(x); break;
    case RoundMode::CAST_FLOOR: x = floor(x); break;
    case RoundMode::CAST_CEIL: x = ceil(x); break;
    case RoundMode::CAST_TRUNC: x = trunc(x); break;
  }
  if (x != x) return 0;
  const double low = double(std::numeric_limits<T>::min()), high = double(std::numeric_limits<T>::max());
  return x <= low ? std::numeric_limits<T>::min() : x >= high ? std::numeric_limits<T>::max() : T(x);
}

template <class D, class A>
void TCVT(D& d, A& a, RoundMode mode) {
  using To = typename D::Type;
  using From = typename A::Type;
  static_assert(kConverts<To, From>, "no instruction converts these types");
  same_shape(d, a, "TCVT");
  const standin::Amount amount = sizeof(From) < sizeof(To) ? amount_of(d) : amount_of(a);
  standin::core().issue(PIPE_V, "TCVT", amount, a.ranges(), d.ranges(), [d, a, mode] {
    for (int64_t i = 0; i < d.rows; ++i) {
      for (int64_t j = 0; j < d.cols; ++j) {
        const auto x = wide(a.at(i, j));
        if constexpr (std::is_integral_v<To> && !std::is_integral_v<From>) {
          d.at(i, j) = converted<To>(double(x), mode);
        } else if constexpr (std::is_integral_v<To>) {
          d.at(i, j) = To(x);
        } else {
          standin::require(mode == RoundMode::CAST_RINT, "a float is rounded in another mode");
          d.at(i, j) = To(float(x));
        }
      }
    }
  });
}

}  // namespace pto

// --- what tests call ---------------------------------------------------------------------------------------

#define STANDIN_EXPORT extern "C" __attribute__((visibility("default"), used)) inline

/// Chooses whether loads run ahead, or as late as the flags allow.
STANDIN_EXPORT void standin_loads_first(bool loads_first) { standin::shared().loads_first = loads_first; }

/// Leaves out one flag or barrier of the code, counted from 0, from now on; none if negative. Returns how
/// many there were since none was left out.
STANDIN_EXPORT int64_t standin_skip(int64_t number) {
  const int64_t count = int64_t(standin::shared().sites.size());
  standin::shared().skipped = number;
  if (number < 0) standin::shared().sites.clear();
  return count;
}

/// Returns what was wrong since the last call, a line each.
STANDIN_EXPORT const char* standin_report() {
  static std::string text;
  text.clear();
  for (const std::string& line : standin::shared().reports) text += line + "\n";
  standin::shared().reports.clear();
  return text.c_str();
}

/// Keeps what tasks execute from now on, of functions that lines name: function, phase, views, scalars.
/// Of tasks that do the same, the first one is kept, or all.
STANDIN_EXPORT void standin_trace(const char* functions, bool repeats) {
  standin::Trace& trace = standin::shared().trace;
  trace = {};
  trace.repeats = repeats;
  std::istringstream lines(functions);
  std::string name, number;
  standin::Trace::Sizes sizes;
  while (lines >> name >> number >> sizes.views >> sizes.scalars)
    trace.functions[name + " " + number] = sizes;
}

/// Returns what was kept, see `trace.hpp`.
STANDIN_EXPORT const char* standin_traced() { return standin::shared().trace.text.c_str(); }
