// SPDX-License-Identifier: MIT
/// \file
/// Matrix products of few rows, whose right operand is read once, where it lies: bound by memory, not by
/// arithmetic.
///
/// The right operand is a window, of any rows of a view, and is neither copied nor turned. Rows that lie
/// anywhere are read in kStreams places in turn: the processor's own prefetcher follows each of them to its
/// end, and brings more than prefetches of a program do. While lines are read, as many lines of what is
/// needed next are brought nearer: spread like this they cost nothing, where a burst of them would hold up
/// everything behind it.
#pragma once

#include "pto/wsp/tile/matmul.hpp"

namespace pto::wsp::tile {

/// Lines of memory in so many elements, begun ones too.
template <class T>
constexpr int lines_in(int elements) {
  return (elements * int(sizeof(T)) + int(kLineBytes) - 1) / int(kLineBytes);
}

/// Calls `body` with the constants kFirst .. kEnd - 1: vectors that are indexed by constants alone stay in
/// registers, whatever else happens to them.
template <int kEnd, int kFirst = 0, class Body>
PTO_INLINE inline void for_constants(const Body& body) {
  if constexpr (kFirst < kEnd) {
    body(Constant<kFirst>{});
    for_constants<kEnd, kFirst + 1>(body);
  }
}

template <int kCount>
PTO_INLINE inline void clear(F* v) {
  for_constants<kCount>([&](auto i) PTO_INLINE { v[i.value] = F{}; });
}

// Of each group of 8 or 16 lanes of two vectors one half, of `a` and then of `b`; of each group of 4 the two
// lanes of one half, of `a` and `b` in turn.
#if PTO_LANES == 16
#define PTO_LOW_16(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23)
#define PTO_HIGH_16(a, b) \
  __builtin_shufflevector(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31)
#define PTO_LOW_8(a, b) \
  __builtin_shufflevector(a, b, 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27)
#define PTO_HIGH_8(a, b) \
  __builtin_shufflevector(a, b, 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31)
#define PTO_LOW_4(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define PTO_HIGH_4(a, b) \
  __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#elif PTO_LANES == 8
#define PTO_LOW_8(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define PTO_HIGH_8(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define PTO_LOW_4(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define PTO_HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#else
#define PTO_LOW_4(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define PTO_HIGH_4(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/// Two vectors as one: in each group of so many lanes the sums of the lanes of both halves, of `a` and of
/// `b`.
template <int kGroup>
PTO_INLINE inline F fold_halves(F a, F b) {
#if PTO_LANES == 16
  if constexpr (kGroup == 16) return PTO_LOW_16(a, b) + PTO_HIGH_16(a, b);
#endif
#if PTO_LANES >= 8
  if constexpr (kGroup == 8) return PTO_LOW_8(a, b) + PTO_HIGH_8(a, b);
#endif
  return PTO_LOW_4(a, b) + PTO_HIGH_4(a, b);
}

/// Folds kCount vectors, of which each group of kGroup lanes is one sum in parts, into one: there, each group
/// has the sums of all vectors, in their order. Overwrites v.
template <int kCount, int kGroup>
PTO_INLINE inline void fold_vectors(F* v) {
  if constexpr (kCount > 1) {
    constexpr int kHalf = kCount / 2;
    for_constants<kHalf>(
        [&](auto i) PTO_INLINE { v[i.value] = fold_halves<kGroup>(v[i.value], v[i.value + kHalf]); });
    fold_vectors<kHalf, kGroup / 2>(v);
  }
}

/// Whether two elements share a lane, so that two vectors of them are widened where they lie: first those at
/// even places, then those at odd ones.
template <class T>
inline constexpr bool kInPairs = false;
template <>
inline constexpr bool kInPairs<Bf16> = true;
template <>
inline constexpr bool kInPairs<const Bf16> = true;

/// Places of a right operand that are read in turn.
inline constexpr int kStreams = 8;

/// Elements of which two vectors are read at a time.
inline constexpr int64_t kPairLanes = 2 * kLanes;

PTO_INLINE inline void load_pairs(const Bf16* from, F* to) {
  U both;
  __builtin_memcpy(&both, from, sizeof both);
  to[0] = (F)(both << 16);
  to[1] = (F)(both & 0xffff0000u);
}

/// Two vectors of neighbours as those at even and those at odd places.
template <class T>
PTO_INLINE inline void unzip(const T* from, F* to) {
  const F low = load(from, Full{}), high = load(from + kLanes, Full{});
  to[0] = PTO_UNZIP_EVEN(low, high);
  to[1] = PTO_UNZIP_ODD(low, high);
}

/// Where the rows of a left operand begin; rows beyond the last are computed from it again and not written.
template <int kRows>
struct LeftRows {
  int64_t at[kRows];

  LeftRows(int64_t rows, int64_t step) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) at[r] = (r < rows ? r : rows - 1) * step;
  }
};

/// Rows of a right operand whose products are summed side by side: as many as there are registers for.
template <int kRows>
constexpr int kDotColumns = kHasManyRegisters && kRows <= 4 ? 4 : 2;

/// Rows of a left operand as a right operand `B` wants them: where that comes in pairs, the first terms of
/// each row are unzipped, so many at most.
template <int kRows, class A, class B>
struct LeftTerms {
  static constexpr int64_t kUnzipped = kInPairs<B> ? 256 : 0;

  const A* data;
  LeftRows<kRows> rows;
  int64_t unzipped = 0;  ///< terms of a row; whole pairs of vectors
  float pairs[kInPairs<B> ? kRows * kUnzipped : 1];

  template <class Step>
  LeftTerms(const Strided<A, Step>& a, int64_t count, int64_t k) : data(a.data), rows(count, a.row_step) {
    if constexpr (kInPairs<B>) {
      for (; unzipped + kPairLanes <= (k < kUnzipped ? k : kUnzipped); unzipped += kPairLanes) {
        for (int r = 0; r < kRows; ++r) {
          float* const to = pairs + r * kUnzipped + unzipped;
          F both[2];
          unzip(data + rows.at[r] + unzipped, both);
          store(to, both[0], Full{});
          store(to + kLanes, both[1], Full{});
        }
      }
    }
  }
};

/// The products of the rows of `a` with kDotColumns rows of `b`, over k terms: each lane sums every kLanes-th
/// of them, or pairs of neighbours. A row's sums, folded into one vector, go to `sums[row][j]`.
template <int kRows, class A, class B>
PTO_INLINE inline void dot_block(const LeftTerms<kRows, A, B>& a, const B* const* b, int64_t k,
                                 F (*sums)[kLanes / kDotColumns<kRows>], int64_t j, Ahead& ahead) {
  constexpr int kColumns = kDotColumns<kRows>;
  F s[kRows * kColumns];
  clear<kRows * kColumns>(s);
  const auto add_products = [&](auto r, F left, const F* right) PTO_INLINE {
    for_constants<kColumns>([&](auto c) PTO_INLINE {
      constexpr int at = r.value * kColumns + c.value;
      s[at] = add_product(left, right[c.value], s[at]);
    });
  };
  if constexpr (kInPairs<B>) {
    for (int64_t t = 0; t < a.unzipped; t += kPairLanes) {
      F even[kColumns], odd[kColumns];
      for_constants<kColumns>([&](auto c) PTO_INLINE {
        F both[2];
        load_pairs(b[c.value] + t, both);
        even[c.value] = both[0], odd[c.value] = both[1];
      });
      for_constants<kRows>([&](auto r) PTO_INLINE {
        const float* const left = a.pairs + r.value * a.kUnzipped + t;
        add_products(r, load(left, Full{}), even);
        add_products(r, load(left + kLanes, Full{}), odd);
      });
      ahead.next<lines_in<B>(kColumns * kPairLanes)>();
    }
  }
  const auto add_vectors = [&](int64_t t, auto n) PTO_INLINE {
    F right[kColumns];
    for_constants<kColumns>([&](auto c) PTO_INLINE { right[c.value] = load(b[c.value] + t, n); });
    for_constants<kRows>(
        [&](auto r) PTO_INLINE { add_products(r, load(a.data + a.rows.at[r.value] + t, n), right); });
  };
  int64_t t = a.unzipped;
  for (; t + kPairLanes <= k; t += kPairLanes) {
    add_vectors(t, Full{});
    add_vectors(t + kLanes, Full{});
    ahead.next<lines_in<B>(kColumns * kPairLanes)>();
  }
  columns(k - t, [&](int64_t i, auto n) PTO_INLINE { add_vectors(t + i, n); });
  for_constants<kRows>([&](auto r) PTO_INLINE {
    fold_vectors<kColumns, kLanes>(s + r.value * kColumns);
    sums[r.value][j] = s[r.value * kColumns];
  });
}

/// kLanes columns of c: neighbours from `first` on, as many from `first + apart`, and so on.
template <int kRows, class A, class B>
PTO_INLINE inline void dots_block(const Tile<float>& c, const LeftTerms<kRows, A, B>& a, const Window<B>& b,
                                  int64_t first, int64_t apart, bool accumulate, Ahead& ahead) {
  constexpr int kColumns = kDotColumns<kRows>, kStep = kLanes / kColumns;
  constexpr uint64_t kBytes = kStep * sizeof(float);
  F sums[kRows][kStep];
  for (int64_t j = 0; j < kStep; ++j) {
    const B* right[kColumns];
    for_constants<kColumns>([&](auto n) PTO_INLINE {
      // Columns beyond the last are computed from it again: they are padding.
      const int64_t column = first + j + n.value * apart;
      right[n.value] = b.row(column < b.rows ? column : b.rows - 1);
    });
    dot_block<kRows, A, B>(a, right, b.cols, sums, j, ahead);
  }
  for_constants<kRows>([&](auto r) PTO_INLINE {
    if (r.value >= c.rows) return;
    fold_vectors<kStep, kStep>(sums[r.value]);
    float* const to = c.row(r.value) + first;
    float parts[kLanes];
    if (accumulate) {
      for_constants<kColumns>([&](auto n) PTO_INLINE {
        __builtin_memcpy(parts + n.value * kStep, to + n.value * apart, kBytes);
      });
      sums[r.value][0] = add(load(parts, Full{}), sums[r.value][0]);
    }
    store(parts, sums[r.value][0], Full{});
    for_constants<kColumns>(
        [&](auto n) PTO_INLINE { __builtin_memcpy(to + n.value * apart, parts + n.value * kStep, kBytes); });
  });
}

template <int kRows, class A, class Step, class B>
void dots_rows(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b, bool accumulate,
               Ahead ahead) {
  constexpr int kColumns = kDotColumns<kRows>, kStep = kLanes / kColumns;
  const LeftTerms<kRows, A, B> left(a, c.rows, b.cols);
  const int64_t apart = b.rows / (kStreams * kStep) * kStep;
  for (int64_t j = 0; j < apart; j += kStep) {
    for (int64_t s = 0; s < kStreams; s += kColumns)
      dots_block<kRows>(c, left, b, s * apart + j, apart, accumulate, ahead);
  }
  for (int64_t j = kStreams * apart; j < b.rows; j += kLanes)
    dots_block<kRows>(c, left, b, j, kStep, accumulate, ahead);
}

/// kVectors vectors of columns from `j`; where elements come in pairs, two sums are those of the even and of
/// the odd columns of two vectors.
template <int kRows, int kVectors, class A, class Step, class B, class N>
PTO_INLINE inline void stream_block(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                    int64_t j, bool accumulate, Ahead& ahead, N n) {
  constexpr bool kPairs = kInPairs<B> && kVectors % 2 == 0;
  const LeftRows<kRows> rows(c.rows, a.row_step), targets(c.rows, c.stride);
  F sum[kRows * kVectors];
  clear<kRows * kVectors>(sum);
  if (accumulate) {
    for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
      const float* const from = c.data + targets.at[i.value / kVectors] + j + i.value % kVectors * kLanes;
      if constexpr (!kPairs) {
        sum[i.value] = load(from, Full{});
      } else if constexpr (i.value % 2 == 0) {
        unzip(from, sum + i.value);
      }
    });
  }
  const int64_t distance = b.index == nullptr ? stream_distance<B>(b.stride) : 0;
  for (int64_t t = 0; t < b.rows; ++t) {
    const B* const row = b.row(t) + j;
    if (distance > 0) prefetch_lines<kVectors * kLanes>(row + distance);
    F right[kVectors];
    for_constants<kVectors>([&](auto v) PTO_INLINE {
      if constexpr (!kPairs) {
        right[v.value] = load(row + v.value * kLanes, n);
      } else if constexpr (v.value % 2 == 0) {
        load_pairs(row + v.value * kLanes, right + v.value);
      }
    });
    for_constants<kRows>([&](auto r) PTO_INLINE {
      const F left = load_splat(a.data + rows.at[r.value] + t * a.k_step);
      for_constants<kVectors>([&](auto v) PTO_INLINE {
        constexpr int at = r.value * kVectors + v.value;
        sum[at] = add_product(left, right[v.value], sum[at]);
      });
    });
    ahead.next<lines_in<B>(kVectors * kLanes)>();
  }
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    constexpr int at = i.value;
    if (at / kVectors >= c.rows) return;
    float* const to = c.row(at / kVectors) + j + at % kVectors * kLanes;
    if constexpr (!kPairs) {
      store(to, sum[at], Full{});
    } else {
      constexpr int first = at / 2 * 2;
      const F even = sum[first], odd = sum[first + 1];
      store(to, at == first ? PTO_ZIP_LOW(even, odd) : PTO_ZIP_HIGH(even, odd), Full{});
    }
  });
}

template <int kRows, class A, class Step, class B>
void stream_rows(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b, bool accumulate,
                 Ahead ahead) {
  constexpr int kWide = kRows > 4 ? 2 : 4;
  int64_t j = 0;
  for (; b.cols - j >= kWide * kLanes; j += kWide * kLanes)
    stream_block<kRows, kWide>(c, a, b, j, accumulate, ahead, Full{});
  for (; b.cols - j >= kLanes; j += kLanes) stream_block<kRows, 1>(c, a, b, j, accumulate, ahead, Full{});
  if (j < b.cols) stream_block<kRows, 1>(c, a, b, j, accumulate, ahead, Tail{b.cols - j});
}

/// Vectors of columns whose sums of kRows rows fit the registers: whole pairs.
template <int kRows>
constexpr int kGatherWide = kHasManyRegisters ? 16 / kRows
                            : kRows == 1      ? 4
                                              : 2;

/// kVectors vectors of columns from `j`: onto them, the products of some terms of kRows rows, of which those
/// of one term lie side by side and `left_step` from the next, with as many rows of a right operand.
template <int kRows, int kVectors, class B, class N>
PTO_INLINE inline void add_terms(float* const* c, const float* left, int left_step, const B* const* right,
                                 int terms, int64_t j, N n) {
  constexpr bool kPairs = kInPairs<B> && kVectors % 2 == 0;
  F sum[kRows * kVectors];
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    sum[i.value] = load(c[i.value / kVectors] + j + i.value % kVectors * kLanes, Full{});
  });
  for (int t = 0; t < terms; ++t, left += left_step) {
    F factors[kVectors];
    for_constants<kVectors>([&](auto v) PTO_INLINE {
      const B* const from = right[t] + j + v.value * kLanes;
      if constexpr (!kPairs) {
        factors[v.value] = load(from, n);
      } else if constexpr (v.value % 2 == 0) {
        load_pairs(from, factors + v.value);
      }
    });
    for_constants<kRows>([&](auto r) PTO_INLINE {
      const F splat = load_splat(left + r.value);
      for_constants<kVectors>([&](auto v) PTO_INLINE {
        constexpr int at = r.value * kVectors + v.value;
        sum[at] = add_product(splat, factors[v.value], sum[at]);
      });
    });
  }
  for_constants<kRows * kVectors>([&](auto i) PTO_INLINE {
    store(c[i.value / kVectors] + j + i.value % kVectors * kLanes, sum[i.value], Full{});
  });
}

/// Onto the rows of c, the products of terms t, t + apart, ... with their rows of `b`, kStreams at most.
template <int kRows, class A, class Step, class B>
PTO_INLINE inline void add_rows(float* const* c, const Strided<A, Step>& a, const LeftRows<kRows>& rows,
                                const Window<B>& b, int64_t t, int64_t apart, int terms, Ahead& ahead) {
  constexpr int kTogether = kRows > 4 && !kHasManyRegisters ? 4 : kRows, kWide = kGatherWide<kTogether>;
  float left[kStreams * kRows];
  const B* right[kStreams];
  for (int i = 0; i < terms; ++i) {
    const int64_t term = t + i * apart;
    right[i] = b.row(term);
    for_constants<kRows>([&](auto r) PTO_INLINE {
      left[i * kRows + r.value] = load_splat(a.data + rows.at[r.value] + term * a.k_step)[0];
    });
  }
  const auto add_block = [&](int64_t j, auto vectors, auto n) PTO_INLINE {
    for_constants<kRows / kTogether>([&](auto i) PTO_INLINE {
      constexpr int first = i.value * kTogether;
      add_terms<kTogether, vectors.value>(c + first, left + first, kRows, right, terms, j, n);
    });
    ahead.next(terms * lines_in<B>(vectors.value * kLanes));
  };
  int64_t j = 0;
  for (; j + kWide * kLanes <= b.cols; j += kWide * kLanes) add_block(j, Constant<kWide>{}, Full{});
  if constexpr (kWide > 2) {
    for (; j + kPairLanes <= b.cols; j += kPairLanes) add_block(j, Constant<2>{}, Full{});
  }
  columns(b.cols - j, [&](int64_t i, auto n) PTO_INLINE { add_block(j + i, Constant<1>{}, n); });
}

/// Pairs of vectors of a row, as even and odd places while pairs are added to it.
template <class Change>
PTO_INLINE inline void change_pairs(float* row, int64_t cols, const Change& change) {
  for (int64_t j = 0; j + kPairLanes <= cols; j += kPairLanes) {
    F both[2];
    change(row + j, both);
    store(row + j, both[0], Full{});
    store(row + j + kLanes, both[1], Full{});
  }
}

/// c (+)= a @ b, where rows of `b` lie anywhere: terms i, i + n, ... i + 7 n for i from 0 to n - 1, an eighth
/// of their number, then those that are left. Sums wait in c, which stays in the first cache.
template <int kRows, class A, class Step, class B>
void gather_rows(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b, bool accumulate,
                 Ahead ahead) {
  const LeftRows<kRows> rows(c.rows, a.row_step);
  float* to[kRows];
  for (int r = 0; r < kRows; ++r) to[r] = c.row(r < c.rows ? r : c.rows - 1);
  for (int r = 0; r < c.rows && !accumulate; ++r) {
    for (int64_t j = 0; j < b.cols; j += kLanes) store(to[r] + j, F{}, Full{});
  }
  for (int r = 0; r < c.rows && accumulate && kInPairs<B>; ++r)
    change_pairs(to[r], b.cols, [](const float* from, F* both) PTO_INLINE { unzip(from, both); });
  const int64_t apart = b.rows / kStreams;
  const int64_t left = b.rows % kStreams;
  for (int64_t t = 0; t < apart + (left > 0); ++t) {
    const bool is_left = t == apart;
    add_rows<kRows>(to, a, rows, b, is_left ? b.rows - left : t, is_left ? 1 : apart,
                    is_left ? int(left) : kStreams, ahead);
  }
  for (int r = 0; r < c.rows && kInPairs<B>; ++r) {
    change_pairs(to[r], b.cols, [](const float* from, F* both) PTO_INLINE {
      const F even = load(from, Full{}), odd = load(from + kLanes, Full{});
      both[0] = PTO_ZIP_LOW(even, odd), both[1] = PTO_ZIP_HIGH(even, odd);
    });
  }
}

/// Calls `body` with a number of rows that is enough for `rows`, which are kMaxRows or fewer, and no more
/// than 8.
template <int kMaxRows, class Body>
PTO_INLINE inline void for_few_rows(int64_t rows, const Body& body) {
  static_assert(kMaxRows <= 8);
  if constexpr (kMaxRows > 4) {
    if (rows > 4) return body(Constant<8>{});
  }
  if constexpr (kMaxRows > 1) {
    if (rows > 1) return body(Constant<4>{});
  }
  if (rows > 0) body(Constant<1>{});
}

/// c (+)= a @ b^T, where a is m x k with its terms side by side, and b is n x k. Whole vectors of c are
/// written.
template <int kMaxRows, class A, class Step, class B>
[[gnu::noinline]] void stream_dots(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                   bool accumulate, Ahead ahead) {
  for_few_rows<kMaxRows>(
      c.rows, [&](auto rows) { dots_rows<rows.value>(c, a, b, accumulate, ahead.in_turns(kStreams)); });
}

/// Whether `matmul` reads a right operand faster than this header does: where memory is read in sequence and
/// sums of several rows by whole rows of `b` do not fit the registers.
template <class B>
PTO_INLINE inline bool is_better_in_blocks(const Tile<float>& c, const Window<B>& b) {
  constexpr uint64_t kBlockBytes = 2 * kLanes * sizeof(float);
  const bool is_sequence = b.index == nullptr && b.stride <= kRowVectors * kLanes;
  const uint64_t places = reinterpret_cast<uint64_t>(b.data) | uint64_t(b.stride * 4) | uint64_t(b.cols * 4);
  return PTO_LANES == 8 && is_sequence && (places | uint64_t(c.stride * 4)) % kBlockBytes == 0;
}

/// c (+)= a @ b, where a is m x k and b is k x n. Whole vectors of c are written; element (i, j) is one chain
/// of fused multiply-adds in ascending order, as in `matmul`, or in that of `gather_rows`.
template <int kMaxRows, class A, class Step, class B>
[[gnu::noinline]] void stream_matmul(const Tile<float>& c, const Strided<A, Step>& a, const Window<B>& b,
                                     bool accumulate, Ahead ahead) {
  const Tile<B> tile{b.data, b.stride, b.rows, b.cols};
  if (c.rows == 1 && b.index == nullptr) return matmul_row(c, a, tile, accumulate, ahead);
  if constexpr (sizeof(B) == sizeof(float)) {
    if (ahead.is_over() && is_better_in_blocks(c, b)) {
      return matmul<2, 8>(c, a, tile, accumulate, 0, nullptr);
    }
  }
  for_few_rows<kMaxRows>(c.rows, [&](auto rows) {
    if (b.index != nullptr) return gather_rows<rows.value>(c, a, b, accumulate, ahead.in_turns(kStreams));
    stream_rows<rows.value>(c, a, b, accumulate, ahead);
  });
}

}  // namespace pto::wsp::tile
