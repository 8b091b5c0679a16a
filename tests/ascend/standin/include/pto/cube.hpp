// SPDX-License-Identifier: MIT
/// \file
/// Moves between memories, and products of cube cores.
#pragma once

#include "tile.hpp"

namespace pto {

template <class TileT, class Global>
constexpr bool fits_layout() {
  if (TileT::kType == TileType::Vec) return Global::kLayout == Layout::ND && !TileT::kIsColumn;
  const bool is_straight = TileT::kOuter == BLayout::ColMajor && TileT::kInner == SLayout::RowMajor;
  const bool is_turned = TileT::kOuter == BLayout::RowMajor && TileT::kInner == SLayout::ColMajor;
  return Global::kLayout == Layout::ND ? is_straight : is_turned;
}

template <class TileT, class T, class S, class D, Layout L>
void TLOAD(TileT& tile, GlobalTensor<T, S, D, L>& from) {
  using Global = GlobalTensor<T, S, D, L>;
  static_assert(TileT::kType == TileType::Vec || TileT::kType == TileType::Mat);
  static_assert(std::is_same_v<typename TileT::Type, T> && fits_layout<TileT, Global>());
  const bool fits = tile.rows == from.shape.rows && tile.cols == from.shape.cols;
  standin::require(fits, "TLOAD of another shape than the valid one");
  standin::require(from.shape.rows < 4096, "TLOAD of more than 4095 bursts");
  const TileT t = tile;
  const Global g = from;
  standin::core().issue(PIPE_MTE2, "TLOAD", amount_of(t), g.ranges(), t.ranges(), [t, g] {
    for (int64_t i = 0; i < t.rows; ++i) {
      for (int64_t j = 0; j < t.cols; ++j) memcpy(&t.at(i, j), &g.at(i, j), sizeof(T));
    }
  });
}

template <class TileT, class T, class S, class D>
void TSTORE(GlobalTensor<T, S, D>& to, TileT& tile) {
  static_assert(TileT::kType == TileType::Vec || TileT::kType == TileType::Acc);
  static_assert(std::is_same_v<typename TileT::Type, T> && !TileT::kIsColumn);
  const bool fits = tile.rows == to.shape.rows && tile.cols == to.shape.cols;
  standin::require(fits, "TSTORE of another shape than the valid one");
  standin::require(to.shape.rows < 4096, "TSTORE of more than 4095 bursts");
  const TileT t = tile;
  const GlobalTensor<T, S, D> g = to;
  const Pipe pipe = TileT::kType == TileType::Vec ? PIPE_MTE3 : PIPE_FIX;
  standin::core().issue(pipe, "TSTORE", amount_of(t), t.ranges(), g.ranges(), [t, g] {
    for (int64_t i = 0; i < t.rows; ++i) {
      for (int64_t j = 0; j < t.cols; ++j) memcpy(&g.at(i, j), &t.at(i, j), sizeof(T));
    }
  });
}

/// A part of an operand, from L1 to L0.
template <class D, class A, std::enable_if_t<A::kType == TileType::Mat, int> = 0>
void TMOV(D& d, A& a) {
  static_assert(D::kType == TileType::Left || D::kType == TileType::Right);
  static_assert(std::is_same_v<typename D::Type, typename A::Type>);
  static_assert(D::kType == TileType::Right || A::kInner == SLayout::RowMajor,
                "a left operand that is turned");
  standin::require(d.rows == a.rows && d.cols == a.cols, "TMOV to another valid shape");
  standin::core().issue(PIPE_MTE1, D::kType == TileType::Left ? "TMOV_L0A" : "TMOV_L0B", amount_of(a),
                        a.ranges(), d.ranges(), [d, a] {
                          for (int64_t i = 0; i < d.rows; ++i) {
                            for (int64_t j = 0; j < d.cols; ++j) d.at(i, j) = a.at(i, j);
                          }
                        });
}

template <class T>
constexpr bool kIsFactor = std::is_same_v<T, float> || std::is_same_v<T, half> ||
                           std::is_same_v<T, bfloat16_t> || std::is_same_v<T, int8_t>;

template <class D, class A, class B>
void product(const char* name, D& d, A& a, B& b, bool adds) {
  using T = typename A::Type;
  using Total = typename D::Type;
  static_assert(D::kType == TileType::Acc && A::kType == TileType::Left && B::kType == TileType::Right);
  static_assert(std::is_same_v<T, typename B::Type> && kIsFactor<T>);
  static_assert(std::is_same_v<Total, std::conditional_t<std::is_same_v<T, int8_t>, int32_t, float>>);
  standin::require(d.rows == a.rows && a.cols == b.rows && d.cols == b.cols,
                   "operands of a product do not fit");
  const int64_t longest = std::max(std::max(a.rows, a.cols), b.cols);
  standin::require(longest < 4096, "a product with more than 4095 rows, columns or terms");
  auto reads = a.ranges();
  for (const auto& of : {b.ranges(), adds ? d.ranges() : std::vector<standin::Range>{}}) {
    reads.insert(reads.end(), of.begin(), of.end());
  }
  standin::core().issue(PIPE_M, name, {d.rows, d.cols, int64_t(sizeof(T)), a.cols}, std::move(reads),
                        d.ranges(), [d, a, b, adds] {
                          for (int64_t i = 0; i < d.rows; ++i) {
                            for (int64_t j = 0; j < d.cols; ++j) {
                              Total total = adds ? d.at(i, j) : Total(0);
                              for (int64_t k = 0; k < a.cols; ++k)
                                total += Total(a.at(i, k)) * Total(b.at(k, j));
                              d.at(i, j) = total;
                            }
                          }
                        });
}
template <class D, class A, class B>
void TMATMUL(D& d, A& a, B& b) {
  product("TMATMUL", d, a, b, false);
}
template <class D, class A, class B>
void TMATMUL_ACC(D& d, D& c, A& a, B& b) {
  standin::require(d.address == c.address, "TMATMUL_ACC of a sum in another place");
  product("TMATMUL_ACC", d, a, b, true);
}

}  // namespace pto
