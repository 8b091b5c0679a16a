// SPDX-License-Identifier: MIT
/// \file
/// The matrix product of tiles, accumulated in f32.
///
/// Element (i, j) is one chain of fused multiply-adds over k in ascending order, in every block of rows and
/// columns. So a row has the same bits for any number of valid rows and columns.
#pragma once

#include "pto/wsp/tile/ahead.hpp"
#include "pto/wsp/tile/amx.hpp"
#include "pto/wsp/tile/move.hpp"
#include "pto/wsp/tile/pairs.hpp"
#include "pto/wsp/tile/terms.hpp"

namespace pto::wsp::tile {

/// Prefetches during a product: the rows of the next block of its right operand, one at a time. A product
/// calls `next` every `spacing` terms. With few groups of rows, memory is the limit: more lines can be in
/// flight to the second-level cache than to the first.
template <int64_t kWidth, class B>
struct Behind {
  static constexpr int64_t kFewGroups = 4;

  const B* row;
  int64_t stride;
  int64_t spacing;

  void begin_block(const B* first, int64_t row_stride, int64_t groups) {
    row = first;
    stride = row_stride;
    spacing = groups;
  }
  PTO_INLINE void next() {
    spacing > kFewGroups ? prefetch_lines<kWidth>(row) : prefetch_lines<kWidth, kSecondCache>(row);
    row += stride;
  }
};

/// The same, and with each row some lines of a window.
template <int64_t kWidth, class B>
struct BehindAndAhead : Behind<kWidth, B> {
  Ahead ahead;
  int lines;

  /// \param rows of all blocks of the product together
  BehindAndAhead(const Ahead& soon, int64_t rows)
      : Behind<kWidth, B>{}, ahead(soon), lines(rows > 0 ? int((soon.lines() + rows - 1) / rows) : 0) {}

  PTO_INLINE void next() {
    Behind<kWidth, B>::next();
    ahead.next(lines);
  }
};

/// The lines of a window, spread over the whole of a product.
class Spread {
 public:
  /// \param terms of the product, all of its blocks together
  Spread(const Ahead& ahead, int64_t terms) : ahead_(ahead) {
    const int64_t lines = ahead.lines();
    if (lines < terms) spacing = lines > 0 ? terms / lines : terms;
    if (lines > terms && terms > 0) burst_ = int((lines + terms - 1) / terms);
  }

  template <class B>
  void begin_block(const B*, int64_t, int64_t) {}
  PTO_INLINE void next() { ahead_.next(burst_); }

  int64_t spacing = 1;

 private:
  Ahead ahead_;
  int burst_ = 1;
};

/// Hides a pointer from the compiler, which would otherwise precompute the pointers of all rows without
/// registers for them.
template <class T>
PTO_INLINE inline T* opaque(T* p) {
  asm("" : "+r"(p));
  return p;
}

/// c[rows][kVectors * kLanes] (+)= a @ b over `steps` terms or pairs of them, for 0 < rows <= kRows; whole
/// vectors of `b` and `c` are accessed. Rows beyond the last are computed from it again and not written.
template <class Terms, int kRows, int kVectors, class Left, class Soon>
PTO_INLINE inline void matmul_block(int64_t rows, float* c, int64_t c_stride, Left a,
                                    const typename Terms::Right* b, int64_t b_stride, int64_t steps,
                                    bool accumulate, Soon& soon) {
  F sum[kRows][kVectors] = {};
  int64_t left_row[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) left_row[r] = (r < rows ? r : rows - 1) * a.row_step;
  if (accumulate) {
    const float* from = c;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = load(from + v * kLanes, Full{});
      from = opaque(from + (r + 1 < rows ? c_stride : 0));
    }
  }
  const auto add_step = [&](const auto* left_terms, const auto* right_terms) PTO_INLINE {
    decltype(Terms::right(right_terms)) right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) right[v] = Terms::right(right_terms + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto left = Terms::left(r == 0 ? left_terms : left_terms + left_row[r]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = Terms::add(left, right[v], sum[r][v]);
    }
  };
  constexpr int kUnroll = 4;
  int64_t t = 0;
  const auto next_step = [&]() PTO_INLINE {
    add_step(a.data, b);
    a.data += a.k_step * Terms::kTerms;
    b += b_stride;
  };
  for (int64_t wait = 0; t + kUnroll <= steps; t += kUnroll) {
    for (; wait <= 0; wait += soon.spacing) soon.next();
    wait -= kUnroll * Terms::kTerms;
#pragma GCC unroll 4
    for (int u = 0; u < kUnroll; ++u) next_step();
  }
  for (; t < steps; ++t) next_step();
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    if (r >= rows) break;
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) store(c + v * kLanes, sum[r][v], Full{});
    c = opaque(c + c_stride);
  }
}

template <class Terms, int kVectors, int kMaxRows, class Left, class Soon>
PTO_INLINE inline void matmul_rows(int64_t rows, float* c, int64_t c_stride, Left a,
                                   const typename Terms::Right* b, int64_t b_stride, int64_t steps,
                                   bool accumulate, Soon& soon) {
#define PTO_BLOCK(least, most)                                                                         \
  if constexpr (least <= kMaxRows && least <= kBlockRows<kVectors>) {                                  \
    if (rows >= least) {                                                                               \
      return matmul_block<Terms, most, kVectors>(rows, c, c_stride, a, b, b_stride, steps, accumulate, \
                                                 soon);                                                \
    }                                                                                                  \
  }
  PTO_BLOCK(7, 8)
  PTO_BLOCK(5, 6)
  PTO_BLOCK(2, 4)
  PTO_BLOCK(1, 1)
#undef PTO_BLOCK
}

/// Whether rows that are `stride` bytes apart share too few sets of the first-level cache to stay there.
constexpr bool is_crowded(int64_t rows, uint64_t stride) {
  constexpr uint64_t kPeriod = 4096, kFirstCacheBytes = 32 << 10;
  const uint64_t power = stride & (0 - stride);  // the largest that divides it
  return uint64_t(rows) * (power < kPeriod ? power : kPeriod) > kFirstCacheBytes;
}

// The cost of copies was measured with AVX2. Wider vectors that cross lines wait for multiply-adds anyway.
inline constexpr int64_t kManyGroups = 16, kFewGroups = PTO_LANES == 16 ? kManyGroups : 4;

/// Whether blocks of a right operand are copied: small floats are widened, and vectors that cross lines
/// justify a copy if enough `groups` of rows read each.
template <class B>
PTO_INLINE inline bool is_copied(const B* first, int64_t stride, int64_t groups) {
  constexpr uint64_t kVectorBytes = kLanes * sizeof(float);
  const uint64_t place = reinterpret_cast<uint64_t>(first) | (uint64_t(stride) * sizeof(B));
  return sizeof(B) < sizeof(float) || (groups >= kFewGroups && place % kVectorBytes != 0);
}

/// A block of a right operand, whole vectors of which can be read as f32: the block itself, or a copy. A
/// block that does not stay in the first cache is copied where enough `groups` of rows read it, too.
template <int64_t kWidth, class B>
PTO_INLINE inline Tile<float> whole_vectors(const Tile<B>& block, int64_t padding, int64_t groups,
                                            float* panel) {
  if constexpr (sizeof(B) == sizeof(float)) {
    const uint64_t stride = uint64_t(block.stride) * sizeof(float);
    const bool is_slow = is_copied(block.data, block.stride, groups) ||
                         (groups >= kManyGroups && is_crowded(block.rows, stride));
    if (!is_slow && block.cols + padding >= kWidth) return block;
  }
  for (int64_t t = 0; t < block.rows; ++t) {
    columns(block.cols, [&](int64_t j, auto n) PTO_INLINE {
      store(panel + t * kWidth + j, load_terms(block.row(t) + j, n), Full{});
    });
  }
  return {panel, kWidth, block.rows, block.cols};
}

/// Pairs of the rows of a block of a right operand, without the last one of an odd number; whole vectors of a
/// pair can be read.
template <int64_t kWidth>
inline void pair_rows(const Tile<Bf16>& block, uint32_t* panel) {
  for (int64_t t = 0; t + 1 < block.rows; t += 2) {
    columns(block.cols, [&](int64_t j, auto n) PTO_INLINE {
      U pairs[1];
      load_rows<1>(block.row(t) + j, block.row(t + 1) + j, pairs, n);
      store(panel + t / 2 * kWidth + j, pairs[0], Full{});
    });
  }
}

/// Terms of a block of a right operand, whose rows are `stride` bytes apart: what of it is used at a time
/// stays in the first cache. Where these rows of four vectors do not, half of them may.
template <int kVectors>
constexpr int64_t matmul_depth(int64_t stride, bool is_copied) {
  constexpr int64_t kDepth = 128, kHalf = kDepth / 2;
  if (kVectors <= 2) return stride <= 128 ? 2 * kDepth : kDepth;
  const bool is_half_better = is_crowded(kDepth, uint64_t(stride)) && !is_crowded(kHalf, uint64_t(stride));
  return is_half_better && !is_copied ? kHalf : kDepth;
}

/// c (+)= a @ b for one block of columns of a right operand, whose rows, or pairs of them, are `stride`
/// apart.
template <class Terms, int kVectors, int kMaxRows, class Left, class Soon>
PTO_INLINE inline void matmul_columns(const Tile<float>& c, const Left& a, const typename Terms::Right* b,
                                      int64_t stride, int64_t steps, bool accumulate, Soon& soon) {
  // Equal groups, but for even numbers of rows: there are blocks of that size.
  const int64_t groups = (c.rows + kBlockRows<kVectors> - 1) / kBlockRows<kVectors>, pairs = (c.rows + 1) / 2;
  for (int64_t g = 0, i = 0; g < groups; ++g) {
    const int64_t even = 2 * (pairs / groups + (g < pairs % groups));
    const int64_t rows = even < c.rows - i ? even : c.rows - i;
    const Left left{a.data + i * a.row_step, a.row_step, a.k_step};
    matmul_rows<Terms, kVectors, kMaxRows>(rows, c.row(i), c.stride, left, b, stride, steps, accumulate,
                                           soon);
    i += rows;
  }
}

/// Whether products of these operands are made of pairs in registers of 16 x 16 sums; if not, perhaps in
/// vectors.
template <class Left, class B>
inline constexpr bool kUsesMatrixRegisters = kIsPaired<Left, B> && amx::kIsKnown;

/// The same for as many terms of a block as are added in pairs; returns how many.
template <int kVectors, int kMaxRows, class Left, class Soon>
PTO_INLINE inline int64_t add_pairs(const Tile<float>& c, const Left& a, const Tile<Bf16>& block,
                                    bool accumulate, uint32_t* pairs, Soon& soon) {
  constexpr int64_t kWidth = kVectors * kLanes;
  if constexpr (amx::kIsKnown) {
    if (block.rows >= amx::kTerms && amx::is_allowed()) {
      const int64_t steps = block.rows / amx::kTerms;
      pair_rows<kWidth>({block.data, block.stride, steps * amx::kTerms, block.cols}, pairs);
      amx::matmul_columns<kVectors>(c, a, pairs, steps, accumulate, soon);
      return steps * amx::kTerms;
    }
  }
  if constexpr (kHasPairDots && !amx::kIsKnown) {
    if (block.rows > 1) {
      pair_rows<kWidth>(block, pairs);
      matmul_columns<Pairs, kVectors, kMaxRows>(c, a, pairs, kWidth, block.rows / 2, accumulate, soon);
      return block.rows / 2 * 2;
    }
  }
  return 0;
}

/// The same for a block as it lies in memory.
template <int kVectors, int kMaxRows, class Left, class B, class Soon>
PTO_INLINE inline void matmul_block_columns(const Tile<float>& c, const Left& a, const Tile<B>& block,
                                            bool accumulate, int64_t b_padding, float* panel, Soon& soon) {
  constexpr int64_t kWidth = kVectors * kLanes;
  int64_t done = 0;
  if constexpr (kAddsPairs<Left, B> || kUsesMatrixRegisters<Left, B>) {
    done = add_pairs<kVectors, kMaxRows>(c, a, block, accumulate, reinterpret_cast<uint32_t*>(panel), soon);
    if (done > 0 && done == block.rows) return;
  }
  const Tile<B> rest{block.row(done), block.stride, block.rows - done, block.cols};
  const Left left{a.data + done * a.k_step, a.row_step, a.k_step};
  const int64_t groups = (c.rows + kBlockRows<kVectors> - 1) / kBlockRows<kVectors>;
  const Tile<float> right = whole_vectors<kWidth>(rest, b_padding, groups, panel);
  matmul_columns<Singles, kVectors, kMaxRows>(c, left, right.data, right.stride, right.rows,
                                              accumulate || done > 0, soon);
}

/// The blocks of c (+)= a @ b, for `matmul`.
template <int kVectors, int kMaxRows, class Left, class B, class Soon>
PTO_INLINE inline void matmul_blocks(const Tile<float>& c, const Left& a, const Right<B>& b, bool accumulate,
                                     int64_t b_padding, float* panel, Soon& soon) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t groups = (c.rows + kBlockRows<kVectors> - 1) / kBlockRows<kVectors>;
  const int64_t block_depth =
      matmul_depth<kVectors>(b.stride * int64_t(sizeof(B)), is_copied(b.data, b.stride, groups));
  const bool is_packed = b.panel_step != kWidth, is_dense = b.stride == c.cols;
  for (int64_t k0 = 0; k0 == 0 || k0 < b.rows; k0 += block_depth) {
    const int64_t depth = b.rows - k0 < block_depth ? b.rows - k0 : block_depth;
    const Left left{a.data + k0 * a.k_step, a.row_step, a.k_step};
    B* first = b.data + k0 * b.stride;
    for (int64_t j = 0; j < c.cols; j += kWidth, first += b.panel_step) {
      const Tile<B> block{first, b.stride, depth, c.cols - j < kWidth ? c.cols - j : kWidth};
      if (is_packed) {
        soon.begin_block(first + b.panel_step, b.stride, groups);
      } else {
        const B* const behind = first + depth * b.stride;
        is_dense ? soon.begin_block(behind + j * (depth - 1), kWidth, groups)
                 : soon.begin_block(behind, b.stride, groups);
      }
      const Tile<float> sums{c.data + j, c.stride, c.rows, block.cols};
      const auto add_block = [&](auto vectors) PTO_INLINE {
        matmul_block_columns<decltype(vectors)::value, kMaxRows>(sums, left, block, accumulate || k0 > 0,
                                                                 b_padding, panel, soon);
      };
      constexpr int kFew = kVectors < 2 ? kVectors : 2;
      block.cols <= kFew* kLanes ? add_block(Constant<kFew>{}) : add_block(Constant<kVectors>{});
    }
  }
}

// --- one row ----------------------------------------------------------------------------------------------

/// Vectors of columns of one row that are summed side by side. Memory is read in sequence if the rows of a
/// right operand are not longer.
inline constexpr int kRowVectors = PTO_LANES == 16 ? 4 : 8;

/// `stream_distance` for one row. Where PTO_FAST_SEQUENCES is defined the processor reads a sequence as fast
/// as memory: prefetches cost a sixth, but for elements that have to be widened.
template <class B>
inline int64_t row_distance(int64_t stride) {
#ifdef PTO_FAST_SEQUENCES
  constexpr int64_t kNear = 1536;
  if (stride <= kRowVectors * kLanes) return sizeof(B) < sizeof(float) ? kNear / int64_t(sizeof(B)) : 0;
#endif
  return stream_distance<B>(stride);
}

/// Adds the products of one factor with kVectors vectors, kStep of which `load_step` brings at a time.
template <class Terms, int kStep, int kVectors, class V, class Load>
PTO_INLINE inline void add_row(F (&sum)[kVectors], V left, const Load& load_step) {
  for_constants<kVectors / kStep>([&](auto i) PTO_INLINE {
    constexpr int first = i.value * kStep;
    V right[kStep];
    load_step(first * kLanes, right);
    for_constants<kStep>([&](auto v) PTO_INLINE {
      sum[first + v.value] = Terms::add(left, right[v.value], sum[first + v.value]);
    });
  });
}

/// c[1][kVectors * kLanes] (+)= a @ b, where whole rows of `b` are `n`.
template <int kVectors, class Left, class B, class N>
PTO_INLINE inline void row_block(float* c, const Left& a, const Tile<B>& b, bool accumulate, Spread& soon,
                                 N n) {
  constexpr int kStep = kVectors % 2 == 0 ? 2 : 1;
  F sum[kVectors] = {};
  if (accumulate) load_sums<kVectors, B>(c, sum);
  const int64_t distance = row_distance<B>(b.stride);
  int64_t wait = 0;
  const auto begin_row = [&](int64_t t) PTO_INLINE {
    if (distance > 0) prefetch_lines<kVectors * kLanes>(b.row(t) + distance);
    if (--wait < 0) {
      soon.next();
      wait = soon.spacing - 1;
    }
    return b.row(t);
  };
  int64_t t = 0;
  if constexpr (kAddsPairs<Left, B>) {
    for (; t + 1 < b.rows; t += 2) {
      const B *const row = begin_row(t), *const next = begin_row(t + 1);
      add_row<Pairs, kStep>(sum, Pairs::left(a.data + t), [&](int64_t j, U* right) PTO_INLINE {
        load_rows<kStep>(row + j, next + j, right, n);
      });
    }
  }
  for (; t < b.rows; ++t) {
    const B* const row = begin_row(t);
    add_row<Singles, kStep>(sum, load_splat(a.data + t * a.k_step),
                            [&](int64_t j, F* right) PTO_INLINE { load_row<kStep>(row + j, right, n); });
  }
  store_sums<kVectors, B>(sum, c);
}

/// c (+)= a @ b for one row, which reads `b` in place.
template <class Left, class B>
[[gnu::noinline]] void matmul_row(const Tile<float>& c, const Left& a, const Tile<B>& b, bool accumulate,
                                  const Ahead& ahead) {
  constexpr int64_t kWide = kRowVectors * kLanes, kFour = 4 * kLanes, kPair = 2 * kLanes;
  Spread soon(ahead, b.rows * ((b.cols + kWide - 1) / kWide));
  const auto add_block = [&](int64_t j, auto vectors, auto n) PTO_INLINE {
    const Tile<B> block{b.data + j, b.stride, b.rows, b.cols - j};
    row_block<decltype(vectors)::value>(c.data + j, a, block, accumulate, soon, n);
  };
  int64_t j = 0;
  for (; j + kWide <= b.cols; j += kWide) add_block(j, Constant<kRowVectors>{}, Full{});
  if constexpr (kFour < kWide) {
    for (; j + kFour <= b.cols; j += kFour) add_block(j, Constant<4>{}, Full{});
  }
  for (; j + kPair <= b.cols; j += kPair) add_block(j, Constant<2>{}, Full{});
  columns(b.cols - j, [&](int64_t i, auto n) PTO_INLINE { add_block(j + i, Constant<1>{}, n); });
}

// --- any rows ---------------------------------------------------------------------------------------------

/// c (+)= a @ b, where a is m x k and b is k x n. Products of bf16 are summed in pairs where the processor
/// does that in one instruction and terms of a row of `a` are neighbours.
///
/// Blocks of `b` are used in the order of memory if possible. During one block, as many following lines are
/// prefetched: those of the next block, or of the panel after `b`.
///
/// \tparam kVectors 1 where n never exceeds one vector, else 2
/// \tparam kMaxRows the largest m there can be, or more
/// \param c its rows are padded to whole blocks of columns, which are written
/// \param b_padding elements that may be read beyond the last row's valid part
/// \param panel room for a block of `b`: it is used where `b_padding` does not cover the last columns,
///        for small floats, which are widened once for all rows, and for blocks that cross lines
template <int kVectors, int kMaxRows, class Left, class B>
[[gnu::noinline]] void matmul(const Tile<float>& c, const Left& a, const Tile<B>& b, bool accumulate,
                              int64_t b_padding, float* panel) {
  constexpr int64_t kWidth = kVectors * kLanes;
  if constexpr (!kUsesMatrixRegisters<Left, B>) {
    if (c.rows == 1) return matmul_row(c, a, b, accumulate, Ahead{});
  }
  Behind<kWidth, B> behind{};
  const Right<B> right{b.data, b.stride, kWidth, b.rows, b.cols};
  matmul_blocks<kVectors, kMaxRows>(c, a, right, accumulate, b_padding, panel, behind);
}

/// The same, while lines of a window are brought nearer, too: on its own, for what the loop over terms needs
/// to do so takes registers.
template <int kVectors, int kMaxRows, class Left, class B>
[[gnu::noinline]] void matmul(const Tile<float>& c, const Left& a, const Tile<B>& b, bool accumulate,
                              int64_t b_padding, float* panel, const Ahead& ahead) {
  constexpr int64_t kWidth = kVectors * kLanes;
  if constexpr (!kUsesMatrixRegisters<Left, B>) {
    if (c.rows == 1) return matmul_row(c, a, b, accumulate, ahead);
  }
  BehindAndAhead<kWidth, B> soon(ahead, b.rows * ((b.cols + kWidth - 1) / kWidth));
  const Right<B> right{b.data, b.stride, kWidth, b.rows, b.cols};
  matmul_blocks<kVectors, kMaxRows>(c, a, right, accumulate, b_padding, panel, soon);
}

/// The same for a right operand in whole panels, while lines of what is needed next are brought nearer.
template <int kVectors, int kMaxRows, class Left>
[[gnu::noinline]] void matmul(const Tile<float>& c, const Left& a, const Right<float>& b, bool accumulate,
                              const Ahead& ahead) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t groups = (c.rows + kBlockRows<kVectors> - 1) / kBlockRows<kVectors>;
  Spread spread(ahead, groups * b.rows * ((b.cols + kWidth - 1) / kWidth));
  matmul_blocks<kVectors, kMaxRows>(c, a, b, accumulate, kWidth, nullptr, spread);
}

// --- right operands in panels -----------------------------------------------------------------------------

/// A copy of a window as a right operand. What follows the last column is garbage.
/// \param to room for whole panels
template <int kVectors, class T>
[[gnu::noinline]] Right<float> pack(const Window<T>& from, float* to) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t step = from.rows * kWidth;
  for (int64_t i = 0; i < from.rows; ++i) {
    const T* const row = from.row(i);
    columns(from.cols, [&](int64_t j, auto n) PTO_INLINE {
      store(to + j / kWidth * step + i * kWidth + j % kWidth, load_terms(row + j, n), Full{});
    });
  }
  return {to, kWidth, step, from.rows, from.cols};
}

/// A copy of the transpose of a window as a right operand.
template <int kVectors, class T>
[[gnu::noinline]] Right<float> pack_turned(const Window<T>& from, float* to) {
  constexpr int64_t kWidth = kVectors * kLanes;
  const int64_t step = from.cols * kWidth;
  for (int64_t i = 0; i < from.rows; i += kLanes) {
    const int64_t rows = from.rows - i < kLanes ? from.rows - i : kLanes;
    const T* row[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) row[r] = from.row(i + (r < rows ? r : rows - 1));
    float* const target = to + i / kWidth * step + i % kWidth;
    columns(from.cols, [&](int64_t j, auto n) PTO_INLINE {
      const auto lanes = [&](int64_t r) PTO_INLINE { return (U)load_terms(row[r] + j, n); };
      transpose_block<U>(target + j * kWidth, kWidth, lanes, kLanes, extent_of(n));
    });
  }
  return {to, kWidth, step, from.cols, from.rows};
}

}  // namespace pto::wsp::tile
