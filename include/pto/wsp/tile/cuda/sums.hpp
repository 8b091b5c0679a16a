// SPDX-License-Identifier: MIT
/// \file
/// Sums of products of two tiles of f16, or of two of bf16, in registers, by tensor cores: 16 terms at a time
/// are added to sums in f32. python/pto_wsp/targets/cuda/sums.py chooses the shapes.
#pragma once

#include "pto/wsp/tile/cuda/ops.hpp"
#include "pto/wsp/tile/cuda/tile.hpp"

namespace pto::wsp::cuda {

/// Warps that share the sums of a tile, and rows and columns of a square of sums: two results of `mma`.
inline constexpr int kSumsWarps = 4, kSquare = 16;

/// Squares of a warp that leave registers for the places of their lines.
inline constexpr int kFewSquares = 8;

/// Which operand of a product a matrix is. Its lines are rows of the left one, or columns of the right one.
enum class Side { left, right };

/// The first line, or term, that word `m` of an operand of `mma` has after that of word 0.
template <Side kSide>
PTO_DEVICE_INLINE int word_line(int m) {
  return (kSide == Side::left ? m % 2 : m / 2) * 8;
}
template <Side kSide>
PTO_DEVICE_INLINE int word_term(int m) {
  return (kSide == Side::left ? m / 2 : m % 2) * 8;
}

/// An operand in shared memory.
/// \tparam kTurned whether rows of the tile are terms, not lines
/// \tparam kStride elements between rows; an odd number of units of 16 bytes has rows in different banks
template <class T, Side kSide, bool kTurned, int kStride>
class SharedMatrix {
  static_assert(kStride % 8 == 0, "a row of a matrix begins at a multiple of 16 bytes");
  static constexpr int kLine = kTurned ? 1 : kStride, kTerm = kTurned ? kStride : 1;

 public:
  using Type = T;
  static constexpr bool kIsShared = true;

  PTO_DEVICE_INLINE explicit SharedMatrix(const Tile<T>& tile)
      : first_(shared_place(tile.data)),
        rows_(static_cast<int>(tile.rows)),
        cols_(static_cast<int>(tile.cols)) {
    const int m = thread() % kWarp / 8, line = word_line<kSide>(m), term = word_term<kSide>(m);
    row_ = thread() % 8 + (kTurned ? term : line);
    col_ = kTurned ? line : term;
  }
  /// Where this thread reads lines from the given one on. All 16 are valid, or words of the others are those
  /// of valid lines.
  template <bool kIsWhole>
  PTO_DEVICE_INLINE SharedPlace place(int line) const {
    if constexpr (kIsWhole) return at(row_, col_) + 2 * line * kLine;
    return part_place(line, 0);
  }
  /// Loads lines from a place on, and terms from the given one on, as `mma` takes them; all terms are valid.
  PTO_DEVICE_INLINE void load(uint32_t (&words)[4], SharedPlace place, int term) const {
    load_matrices<kTurned>(words, place + 2 * term * kTerm);
  }
  /// Loads lines and terms from the given ones on. Words of those that are not valid are arbitrary.
  PTO_DEVICE_INLINE void load_part(uint32_t (&words)[4], int line, int term, int) const {
    load_matrices<kTurned>(words, part_place(line, term));
  }

 private:
  PTO_DEVICE_INLINE SharedPlace part_place(int line, int term) const {
    const int row = min(row_ + (kTurned ? term : line), rows_ - 1), col = col_ + (kTurned ? line : term);
    return at(row, col < cols_ ? col : 0);
  }
  PTO_DEVICE_INLINE SharedPlace at(int row, int col) const { return first_ + 2 * (row * kStride + col); }

  SharedPlace first_;
  int rows_, cols_, row_, col_;
};

/// An operand in the global memory of the block.
template <class T, Side kSide, bool kTurned>
class GlobalMatrix {
 public:
  using Type = T;
  static constexpr bool kIsShared = false;

  PTO_DEVICE_INLINE explicit GlobalMatrix(const Tile<T>& tile)
      : tile_(tile), lines_(kTurned ? tile.cols : tile.rows) {}
  PTO_DEVICE_INLINE void load_part(uint32_t (&words)[4], int line, int term, int depth) const {
    PTO_UNROLL for (int m = 0; m < 4; ++m) {
      const int64_t at = min(int64_t{line + word_line<kSide>(m) + thread() % kWarp / 4}, lines_ - 1);
      const int first = term + word_term<kSide>(m) + thread() % 4 * 2;
      words[m] = bits(at, first, depth) | bits(at, first + 1, depth) << 16;
    }
  }

 private:
  PTO_DEVICE_INLINE uint32_t bits(int64_t line, int term, int depth) const {
    if (term >= depth) return 0;
    return (kTurned ? tile_.row(term)[line] : tile_.row(line)[term]).bits;
  }

  Tile<T> tile_;
  int64_t lines_;
};

/// Sums of a tile, or of a part of one. A warp has kRows x kCols squares of them, kAcross warps are side by
/// side.
template <int kRows, int kCols, int kAcross>
class Sums {
  static constexpr int kWarps = kBlockThreads / kWarp;
  static_assert(kSumsWarps % kAcross == 0 && kSumsWarps % kWarps == 0, "warps share the sums evenly");
  using Squares = float[kRows][kCols][2][4];

 public:
  /// Rows and columns.
  static constexpr int kHigh = kSquare * kRows * (kSumsWarps / kAcross), kWide = kSquare * kCols * kAcross;

  /// Sums of the elements of a tile from [row, col] on.
  PTO_DEVICE_INLINE explicit Sums(const Tile<float>& tile, int64_t row = 0, int64_t col = 0)
      : rows_(static_cast<int>(tile.rows)),
        cols_(static_cast<int>(tile.cols)),
        row_(static_cast<int>(row)),
        col_(static_cast<int>(col)) {}

  /// Sets sum [i, j] to start(i, j).
  template <class Start>
  PTO_DEVICE_INLINE void start(const Start& start) {
    each([&](float& sum, int i, int j) { sum = i < rows_ && j < cols_ ? start(i, j) : 0.0f; });
  }
  /// Sets sum [i, j] to changed(sum [i, j], i, j).
  template <class Changed>
  PTO_DEVICE_INLINE void change(const Changed& changed) {
    each([&](float& sum, int i, int j) {
      if (i < rows_ && j < cols_) sum = changed(sum, i, j);
    });
  }
  /// Adds a @ b, over `depth` terms, at most kTerms.
  template <int kTerms, class A, class B>
  PTO_DEVICE_INLINE void add(const A& a, const B& b, int64_t depth) {
    const int terms = static_cast<int>(depth);
    constexpr int kWhole = kTerms / kMmaTerms * kMmaTerms;
    each_warp([&](Squares& sums, int row, int col) {
      int first = 0;
      if constexpr (A::kIsShared && B::kIsShared && kWhole > 0) {
        if (terms >= kWhole) first = add_terms<kWhole>(sums, a, b, row, col);
      }
      if (first < terms) add_part(sums, a, b, row, col, first, terms);
    });
  }
  /// Writes the sums to the tile that they are of.
  PTO_DEVICE_INLINE void write(const Tile<float>& to) {
    each([&](float& sum, int i, int j) {
      if (i < rows_ && j < cols_) to.row(i)[j] = sum;
    });
  }

 private:
  /// Calls `body` with the sums of this warp and their first row and column, unless all are outside.
  template <class Body>
  PTO_DEVICE_INLINE void each_warp(const Body& body) {
    PTO_UNROLL for (int turn = 0; turn < kSumsWarps / kWarps; ++turn) {
      const int place = thread() / kWarp + turn * kWarps;
      const int row = row_ + place / kAcross * kRows * kSquare,
                col = col_ + place % kAcross * kCols * kSquare;
      if (row < rows_ && col < cols_) body(sums_[turn], row, col);
    }
  }
  /// Calls `body` with each sum of this thread, its row and its column.
  template <class Body>
  PTO_DEVICE_INLINE void each(const Body& body) {
    const int down = thread() % kWarp / 4, across = thread() % 4 * 2;
    each_warp([&](Squares& sums, int row, int col) {
      PTO_UNROLL for (int k = 0; k < kRows * kCols * 8; ++k) {
        const int r = k / 8 / kCols, c = k / 8 % kCols, half = k / 4 % 2, at = k % 4;
        const int i = row + r * kSquare + at / 2 * 8 + down;
        body(sums[r][c][half][at], i, col + c * kSquare + half * 8 + across + at % 2);
      }
    });
  }
  /// sums += left @ right, of one square and 16 terms.
  template <class T>
  PTO_DEVICE_INLINE static void add_square(float (&sums)[2][4], const uint32_t (&left)[4],
                                           const uint32_t (&right)[4]) {
    PTO_UNROLL for (int half = 0; half < 2; ++half) {
      const uint32_t words[2] = {right[2 * half], right[2 * half + 1]};
      mma<kSame<T, Bf16>>(sums[half], left, words);
    }
  }
  /// Adds kTerms terms, all of which are valid, and returns how many it has added: none if lines of many
  /// squares are invalid, whose places take too many registers.
  template <int kTerms, class A, class B>
  PTO_DEVICE_INLINE int add_terms(Squares& sums, const A& a, const B& b, int row, int col) const {
    if (row + kRows * kSquare <= rows_ && col + kCols * kSquare <= cols_) {
      add_squares<kRows, kTerms, true>(sums, 0, a, b, row, col);
      return kTerms;
    }
    if constexpr (kRows * kCols > kFewSquares) {
      return 0;
    } else {
      constexpr int kDown = kRows % 2 == 0 ? 2 : 1;
      PTO_UNROLL for (int from = 0; from < kRows; from += kDown) {
        if (row + from * kSquare < rows_) add_squares<kDown, kTerms, false>(sums, from, a, b, row, col);
      }
      return kTerms;
    }
  }
  /// Adds kTerms terms to kDown rows of squares from the given one on. A row is added while words of the next
  /// one load.
  template <int kDown, int kTerms, bool kIsWhole, class A, class B>
  PTO_DEVICE_INLINE static void add_squares(Squares& sums, int from, const A& a, const B& b, int row,
                                            int col) {
    SharedPlace rows[kDown], cols[kCols];
    PTO_UNROLL for (int r = 0; r < kDown; ++r) rows[r] =
        a.template place<kIsWhole>(row + (from + r) * kSquare);
    PTO_UNROLL for (int c = 0; c < kCols; ++c) cols[c] = b.template place<kIsWhole>(col + c * kSquare);
    uint32_t left[2][4], right[2][kCols][4];
    a.load(left[0], rows[0], 0);
    PTO_UNROLL for (int c = 0; c < kCols; ++c) b.load(right[0][c], cols[c], 0);
    PTO_UNROLL for (int step = 0; step < kTerms / kMmaTerms; ++step) {
      const int now = step % 2, term = step * kMmaTerms, next = term + kMmaTerms;
      PTO_UNROLL for (int r = 0; r < kDown; ++r) {
        const int own = (step * kDown + r) % 2, below = r + 1;
        if (below < kDown) a.load(left[1 - own], rows[below % kDown], term);
        if (below == kDown && next < kTerms) a.load(left[1 - own], rows[0], next);
        PTO_UNROLL for (int c = r; c < kCols; c += kDown) {
          if (next < kTerms) b.load(right[1 - now][c], cols[c], next);
        }
        PTO_UNROLL for (int c = 0; c < kCols; ++c) {
          add_square<typename A::Type>(sums[from + r][c], left[own], right[now][c]);
        }
      }
    }
  }
  /// Adds terms from `first` to the last one. Squares that are outside are left out.
  template <class A, class B>
  PTO_DEVICE_INLINE void add_part(Squares& sums, const A& a, const B& b, int row, int col, int first,
                                  int terms) const {
    for (int k = first; k < terms; k += kMmaTerms) {
      PTO_UNROLL for (int r = 0; r < kRows; ++r) {
        if (row + r * kSquare >= rows_) continue;
        uint32_t left[4];
        load_valid<Side::left>(left, a, row + r * kSquare, k, terms);
        PTO_UNROLL for (int c = 0; c < kCols; ++c) {
          if (col + c * kSquare >= cols_) continue;
          uint32_t right[4];
          load_valid<Side::right>(right, b, col + c * kSquare, k, terms);
          add_square<typename A::Type>(sums[r][c], left, right);
        }
      }
    }
  }
  template <Side kSide, class M>
  PTO_DEVICE_INLINE static void load_valid(uint32_t (&words)[4], const M& matrix, int line, int term,
                                           int depth) {
    matrix.load_part(words, line, term, depth);
    if (term + kMmaTerms <= depth) return;
    PTO_UNROLL for (int m = 0; m < 4; ++m) {
      const int count = depth - (term + word_term<kSide>(m) + thread() % 4 * 2);
      words[m] &= count >= 2 ? 0xffffffffu : count == 1 ? 0xffffu : 0u;
    }
  }

  float sums_[kSumsWarps / kWarps][kRows][kCols][2][4];
  int rows_, cols_, row_, col_;
};

/// to = start(i, j) + a @ b, over `depth` terms, at most kTerms. `start` may read elements of `to` where they
/// are written.
template <class S, int kTerms, class A, class B, class Start>
PTO_DEVICE_INLINE void multiply(const Tile<float>& to, const A& a, const B& b, int64_t depth,
                                const Start& start) {
  for (int64_t row = 0; row < to.rows; row += S::kHigh) {
    for (int64_t col = 0; col < to.cols; col += S::kWide) {
      S sums(to, row, col);
      sums.start(start);
      sums.template add<kTerms>(a, b, depth);
      sums.write(to);
    }
  }
}

}  // namespace pto::wsp::cuda
