// SPDX-License-Identifier: MIT
/// \file
/// Sorting rows of values with their indices, merging sorted rows, and elements picked by index.
///
/// A *pair* is an i64: in its high half a key that orders floats as integers, in its low half the complement
/// of the index. Pairs in descending order are values in descending order and, where values are equal,
/// indices in ascending order. NaN ranks above every number, all NaNs are equal; -0 counts as 0. `kNoPair`
/// represents an absent one: it ranks below all others and reads as the value -inf and the index -1.
#pragma once

#include "pto/wsp/tile/convert.hpp"
#include "pto/wsp/tile/move.hpp"

namespace pto::wsp::tile {

inline constexpr int64_t kNoPair = INT64_MIN;

// --- pairs as vectors -------------------------------------------------------------------------------------

PTO_INLINE inline L pairs(F values, I indices) {
  const F plain = values == 0.0f ? F{} : values;
  const I bits = plain != plain ? I{} + 0x7fc00000 : (I)plain;
  const I key = bits ^ ((bits >> 31) & 0x7fffffff);
  return (L)((UL)widened<int32_t>(key) << 32) | widened<uint32_t>(~indices);
}
PTO_INLINE inline F pair_values(L p) {
  const I key = __builtin_convertvector(p >> 32, I);
  const F value = (F)(key ^ ((key >> 31) & 0x7fffffff));
  // Below the key of -inf there are absent pairs only.
  return key < static_cast<int32_t>(0x807fffffu) ? splat(-__builtin_inff()) : value;
}
PTO_INLINE inline I pair_indices(L p) { return ~__builtin_convertvector(p, I); }

// --- sorting ----------------------------------------------------------------------------------------------

inline constexpr int kSortBlock = 32;

/// Comparators of Batcher's odd-even merge sort of 32 elements.
struct SortNetwork {
  static constexpr int kSize = 191;
  uint8_t first[kSize] = {};
  uint8_t second[kSize] = {};

  constexpr SortNetwork() {
    int count = 0;
    for (int p = 1; p < kSortBlock; p *= 2) {
      for (int k = p; k >= 1; k /= 2) {
        for (int j = k % p; j + k < kSortBlock; j += 2 * k) {
          for (int i = j; i < j + k && i + k < kSortBlock; ++i) {
            if (i / (2 * p) == (i + k) / (2 * p)) {
              first[count] = static_cast<uint8_t>(i);
              second[count++] = static_cast<uint8_t>(i + k);
            }
          }
        }
      }
    }
  }
};
inline constexpr SortNetwork kSortNetwork{};

/// Sort each block of 32 pairs in descending order, the last one as far as it goes: one block per lane.
[[gnu::noinline]] inline void sort_blocks(int64_t* row, int64_t n) {
  constexpr int kBlocks = PTO_LANES / 2;
  typedef int64_t P __attribute__((vector_size(8 * kBlocks)));
  for (int64_t j0 = 0; j0 < n; j0 += kBlocks * kSortBlock) {
    alignas(64) int64_t columns[kSortBlock][kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      const int64_t j = j0 + b * kSortBlock;
      for (int i = 0; i < kSortBlock; ++i) columns[i][b] = j + i < n ? row[j + i] : kNoPair;
    }
    for (int c = 0; c < SortNetwork::kSize; ++c) {
      P a, b;
      __builtin_memcpy(&a, columns[kSortNetwork.first[c]], sizeof a);
      __builtin_memcpy(&b, columns[kSortNetwork.second[c]], sizeof b);
      const P larger = a > b ? a : b;
      const P smaller = a > b ? b : a;
      __builtin_memcpy(columns[kSortNetwork.first[c]], &larger, sizeof a);
      __builtin_memcpy(columns[kSortNetwork.second[c]], &smaller, sizeof b);
    }
    for (int b = 0; b < kBlocks; ++b) {
      const int64_t j = j0 + b * kSortBlock;
      for (int i = 0; i < kSortBlock && j + i < n; ++i) row[j + i] = columns[i][b];
    }
  }
}

/// Two descending runs of one length on their way into one, from both ends: neither run can be used up before
/// the middle, and there are no branches.
struct EvenMerge {
  const int64_t *a, *b, *a_last, *b_last;
  int64_t *next, *last;

  EvenMerge(const int64_t* first, const int64_t* second, int64_t length, int64_t* out)
      : a(first), b(second), a_last(first + length - 1), b_last(second + length - 1) {
    next = out;
    last = out + 2 * length - 1;
  }
  PTO_INLINE void step() {
    const int64_t x = *a, y = *b, u = *a_last, v = *b_last;
    const bool left = x >= y, least = u < v;
    *next++ = left ? x : y;
    *last-- = least ? u : v;
    a += left;
    b += !left;
    a_last -= least;
    b_last -= !least;
  }
};

/// The first `n` of the merge of two descending runs; `n` is at most their lengths together.
inline void merge_runs(const int64_t* a, int64_t a_length, const int64_t* b, int64_t b_length, int64_t* out,
                       int64_t n) {
  if (a_length == b_length && n == 2 * a_length) {
    EvenMerge merge(a, b, a_length, out);
    for (int64_t i = 0; i < a_length; ++i) merge.step();
    return;
  }
  const int64_t *a_end = a + a_length, *b_end = b + b_length;
  int64_t i = 0;
  for (; i < n && a < a_end && b < b_end; ++i) {
    const int64_t x = *a, y = *b;
    const bool left = x >= y;
    out[i] = left ? x : y;
    a += left;
    b += !left;
  }
  for (; i < n; ++i) out[i] = a < a_end ? *a++ : *b++;
}

/// Merge neighbouring runs of `run` pairs, where it can two pairs of runs at a time, which do not wait for
/// each other.
[[gnu::noinline]] inline void merge_neighbours(const int64_t* from, int64_t* to, int64_t n, int64_t run) {
  int64_t j = 0;
  for (; j + 4 * run <= n; j += 4 * run) {
    EvenMerge low(from + j, from + j + run, run, to + j);
    EvenMerge high(from + j + 2 * run, from + j + 3 * run, run, to + j + 2 * run);
    for (int64_t i = 0; i < run; ++i) {
      low.step();
      high.step();
    }
  }
  for (; j < n; j += 2 * run) {
    const int64_t a = n - j < run ? n - j : run;
    const int64_t b = n - j - a < run ? n - j - a : run;
    merge_runs(from + j, a, from + j + a, b, to + j, a + b);
  }
}

/// Whether each run of `run` pairs is in descending order.
[[gnu::noinline]] inline bool is_descending(const int64_t* row, int64_t n, int64_t run) {
  bool bad = false;
  for (int64_t j = 0; j < n; j += run) {
    const int64_t end = n - j < run ? n : j + run;
    for (int64_t i = j + 1; i < end; ++i) bad |= row[i - 1] < row[i];
  }
  return !bad;
}

template <class T>
PTO_INLINE inline void make_pairs(const T* values, const int32_t* indices, int64_t* to, int64_t n) {
  columns(n, [&](int64_t j, auto access) PTO_INLINE {
    store(to + j, pairs(load(values + j, access), load(indices + j, access)), access);
  });
}

/// Instructions on whole tiles whose shapes fit: tile.hpp has them with checks, generated code has made its
/// own.
namespace unchecked {

/// Each block of 32 columns of values and their indices as pairs, sorted.
template <class T>
void sort32(const Tile<int64_t>& to, const Tile<T>& x, const Tile<int32_t>& indices) {
  for (int64_t i = 0; i < x.rows; ++i) {
    make_pairs(x.row(i), indices.row(i), to.row(i), x.cols);
    sort_blocks(to.row(i), x.cols);
  }
}

/// Each row of values and their indices as pairs, sorted.
/// \param spare as many pairs as a row has columns
template <class T>
void sort(const Tile<int64_t>& to, const Tile<T>& x, const Tile<int32_t>& indices, int64_t* spare) {
  int passes = 0;
  for (int64_t run = kSortBlock; run < x.cols; run *= 2) ++passes;
  for (int64_t i = 0; i < x.rows; ++i) {
    int64_t* from = passes % 2 ? spare : to.row(i);
    int64_t* other = passes % 2 ? to.row(i) : spare;
    make_pairs(x.row(i), indices.row(i), from, x.cols);
    sort_blocks(from, x.cols);
    for (int64_t run = kSortBlock; run < x.cols; run *= 2) {
      merge_neighbours(from, other, x.cols, run);
      int64_t* const made = other;
      other = from;
      from = made;
    }
  }
}

/// Each four neighbouring runs of `run` pairs merged into one; false where a run is not sorted.
/// \param spare as many pairs as a row has columns
[[nodiscard]] inline bool mrgsort(const Tile<int64_t>& to, const Tile<int64_t>& from, int64_t run,
                                  int64_t* spare) {
  for (int64_t i = 0; i < from.rows; ++i) {
    if (!is_descending(from.row(i), from.cols, run)) return false;
    merge_neighbours(from.row(i), spare, from.cols, run);
    merge_neighbours(spare, to.row(i), from.cols, 2 * run);
  }
  return true;
}

/// The first `to.cols` pairs of two sorted rows, absent ones where there are fewer; false where a row is not
/// sorted.
[[nodiscard]] inline bool merge(const Tile<int64_t>& to, const Tile<int64_t>& a, const Tile<int64_t>& b) {
  for (int64_t i = 0; i < to.rows; ++i) {
    if (!is_descending(a.row(i), a.cols, a.cols) || !is_descending(b.row(i), b.cols, b.cols)) return false;
    const int64_t n = a.cols + b.cols < to.cols ? a.cols + b.cols : to.cols;
    merge_runs(a.row(i), a.cols, b.row(i), b.cols, to.row(i), n);
    for (int64_t j = n; j < to.cols; ++j) to.row(i)[j] = kNoPair;
  }
  return true;
}

/// The values of the first `to.cols` pairs of each row; -inf where there are fewer.
inline void extract_topk_values(const Tile<float>& to, const Tile<int64_t>& from) {
  const int64_t n = from.cols < to.cols ? from.cols : to.cols;
  for (int64_t i = 0; i < to.rows; ++i) {
    columns(n, [&](int64_t j, auto access)
                   PTO_INLINE { store(to.row(i) + j, pair_values(load(from.row(i) + j, access)), access); });
    for (int64_t j = n; j < to.cols; ++j) to.row(i)[j] = -__builtin_inff();
  }
}

/// The indices of the first `to.cols` pairs of each row; -1 where there are fewer.
inline void extract_topk_indices(const Tile<int32_t>& to, const Tile<int64_t>& from) {
  const int64_t n = from.cols < to.cols ? from.cols : to.cols;
  for (int64_t i = 0; i < to.rows; ++i) {
    columns(n, [&](int64_t j, auto access)
                   PTO_INLINE { store(to.row(i) + j, pair_indices(load(from.row(i) + j, access)), access); });
    for (int64_t j = n; j < to.cols; ++j) to.row(i)[j] = -1;
  }
}

// --- picking by index -------------------------------------------------------------------------------------

/// to[i][j] = from[i][indices[i][j]]; false where an index lies outside the row.
template <class T>
[[nodiscard]] bool take(const Tile<T>& to, const Tile<T>& from, const Tile<int32_t>& indices) {
  for (int64_t i = 0; i < indices.rows; ++i) {
    const int32_t* const at = indices.row(i);
    bool bad = false;
    for (int64_t j = 0; j < indices.cols; ++j) bad |= at[j] < 0 || at[j] >= from.cols;
    if (bad) return false;
    for (int64_t j = 0; j < indices.cols; ++j) to.row(i)[j] = from.row(i)[at[j]];
  }
  return true;
}

/// `to` is `from` with values[i][j] at [i][indices[i][j]]; false where an index lies outside the row.
template <class T>
[[nodiscard]] bool put(const Tile<T>& to, const Tile<T>& from, const Tile<T>& values,
                       const Tile<int32_t>& indices) {
  copy(from, to.data, to.stride);
  for (int64_t i = 0; i < indices.rows; ++i) {
    const int32_t* const at = indices.row(i);
    for (int64_t j = 0; j < indices.cols; ++j) {
      if (at[j] < 0 || at[j] >= to.cols) return false;
      to.row(i)[at[j]] = values.row(i)[j];
    }
  }
  return true;
}

/// The index of the element of each row that ranks first; -1 where a row is empty.
///
/// A NaN ranks before all others, and of equal elements the one with the lower index.
/// \param beats whether a vector's lanes are larger (or smaller) than another's
template <class T, class Beats>
PTO_INLINE inline void row_arg(const Tile<int32_t>& to, const Tile<T>& from, const Beats& beats) {
  for (int64_t i = 0; i < from.rows; ++i) {
    if (from.cols == 0) {
      to.row(i)[0] = -1;
      continue;
    }
    auto best = load_splat(from.row(i));
    I place = splat(int32_t{-1});
    columns(from.cols, [&](int64_t j, auto access) PTO_INLINE {
      const auto v = keep(load(from.row(i) + j, access), access, best);
      const I here = keep(splat(static_cast<int32_t>(j)) + lane_numbers(), access, place);
      const I better = (place < 0) | beats(v, best) | (ne(v, v) & eq(best, best));
      best = select(better, v, best);
      place = select(better, here, place);
    });
    int first = 0;
    for (int l = 1; l < kLanes; ++l) {
      const bool is_number = best[l] == best[l], was_number = best[first] == best[first];
      const bool same = is_number == was_number && (best[l] == best[first] || !is_number);
      const bool wins = place[l] >= 0 && (place[first] < 0 || (is_number != was_number ? was_number
                                                               : same ? place[l] < place[first]
                                                                      : beats.of(best[l], best[first])));
      if (wins) first = l;
    }
    to.row(i)[0] = place[first];
  }
}

struct Larger {
  template <class V>
  PTO_INLINE I operator()(V a, V b) const {
    return gt(a, b);
  }
  template <class S>
  bool of(S a, S b) const {
    return a > b;
  }
};
struct Smaller {
  template <class V>
  PTO_INLINE I operator()(V a, V b) const {
    return lt(a, b);
  }
  template <class S>
  bool of(S a, S b) const {
    return a < b;
  }
};

template <class T>
[[gnu::noinline]] void rowargmax(const Tile<int32_t>& to, const Tile<T>& from) {
  row_arg(to, from, Larger{});
}
template <class T>
[[gnu::noinline]] void rowargmin(const Tile<int32_t>& to, const Tile<T>& from) {
  row_arg(to, from, Smaller{});
}

}  // namespace unchecked

}  // namespace pto::wsp::tile
