// SPDX-License-Identifier: MIT
/// \file
/// Tiles and tensors of the interface, on simulated cores: layouts, valid shapes, addresses.
#pragma once

#include <type_traits>

#include "core.hpp"

#define AICORE
#define __aicore__
#define __gm__

using half = _Float16;
/// The upper half of a float, rounded to nearest even.
struct bfloat16_t {
  uint16_t bits;
  bfloat16_t() = default;
  explicit bfloat16_t(float value) {
    uint32_t word;
    memcpy(&word, &value, 4);
    bits = value != value ? 0x7FC0 : uint16_t((word + 0x7FFF + ((word >> 16) & 1)) >> 16);
  }
  operator float() const {
    const uint32_t word = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
  }
};

namespace pto {

enum class TileType { Vec, Mat, Left, Right, Acc };
enum class BLayout { RowMajor, ColMajor };
enum class SLayout { NoneBox, RowMajor, ColMajor };
enum class PadValue { Null };
enum class CompactMode { Null };
enum class Layout { ND, DN };
enum class CmpMode { EQ, NE, LT, LE, GT, GE };
enum class RoundMode { CAST_RINT, CAST_ROUND, CAST_FLOOR, CAST_CEIL, CAST_TRUNC };

template <int A, int B, int C, int D, int E>
struct Shape {
  static_assert(A == 1 && B == 1 && C == 1 && D == -1 && E == -1, "rows and columns are given at run time");
  int64_t rows, cols;
  Shape(int64_t r, int64_t c) : rows(r), cols(c) {}
};
template <int A, int B, int C, int D, int E>
struct Stride {
  static_assert(A == 1 && B == 1 && C == 1, "matrices have two strides");
  static_assert((D == -1 && E == 1) || (D == 1 && E == -1), "one of the strides is given at run time");
  int64_t row, col;
  explicit Stride(int64_t given) : row(D == 1 ? 1 : given), col(E == 1 ? 1 : given) {}
};
template <class T, class S, class D, Layout L = Layout::ND>
struct GlobalTensor {
  using Type = T;
  static constexpr Layout kLayout = L;
  T* data;
  S shape;
  D stride;
  GlobalTensor(T* d, S s, D t) : data(d), shape(s), stride(t) {
    const bool is_contiguous = L == Layout::ND ? t.col == 1 : t.row == 1;
    standin::require(is_contiguous, "a tensor whose layout is not that of its strides");
  }
  T& at(int64_t i, int64_t j) const { return data[i * stride.row + j * stride.col]; }
  /// The bytes of each contiguous line.
  std::vector<standin::Range> ranges() const {
    std::vector<standin::Range> found;
    const int64_t lines = L == Layout::ND ? shape.rows : shape.cols;
    const int64_t count = L == Layout::ND ? shape.cols : shape.rows;
    for (int64_t i = 0; i < lines; ++i) {
      const uint64_t start = reinterpret_cast<uint64_t>(&(L == Layout::ND ? at(i, 0) : at(0, i)));
      found.push_back({standin::kGlobal, start, start + count * sizeof(T)});
    }
    return found;
  }
};

constexpr int space_of(TileType type) {
  constexpr int spaces[] = {standin::kUb, standin::kL1, standin::kL0a, standin::kL0b, standin::kL0c};
  return spaces[int(type)];
}

/// A pointer to elements of the unified buffer: the core sees what the scalar unit reads and writes.
template <class T>
class Pointer {
 public:
  class Element {
   public:
    explicit Element(uint64_t address) : address_(address) {}
    operator T() const {
      standin::core().access(address_, sizeof(T), false);
      return *place();
    }
    void operator=(T value) const {
      standin::core().access(address_, sizeof(T), true);
      *place() = value;
    }

   private:
    T* place() const { return reinterpret_cast<T*>(standin::core().at(standin::kUb, int64_t(address_))); }
    uint64_t address_;
  };
  explicit Pointer(int64_t address) : address_(address) {}
  Element operator[](int64_t i) const { return Element(uint64_t(address_) + uint64_t(i) * sizeof(T)); }

 private:
  int64_t address_;
};

template <TileType L, class T, int R, int C, BLayout B = BLayout::RowMajor, int VR = R, int VC = C,
          SLayout S = SLayout::NoneBox, int F = 512, PadValue P = PadValue::Null,
          CompactMode K = CompactMode::Null>
struct Tile {
  using Type = T;
  static constexpr TileType kType = L;
  static constexpr BLayout kOuter = B;
  static constexpr SLayout kInner = S;
  static constexpr int kRows = R, kCols = C;
  static constexpr bool kIsColumn = B == BLayout::ColMajor && S == SLayout::NoneBox;
  /// Rows and columns of a fractal; of tiles without fractals, of a line.
  static constexpr int kLine = F == 1024 ? 16 : 32 / int(sizeof(T));
  static constexpr int kInnerRows = S == SLayout::NoneBox    ? (kIsColumn ? R : 1)
                                    : S == SLayout::RowMajor ? 16
                                                             : kLine;
  static constexpr int kInnerCols = S == SLayout::NoneBox    ? (kIsColumn ? 1 : C)
                                    : S == SLayout::RowMajor ? kLine
                                                             : 16;
  static_assert(S != SLayout::NoneBox || (kIsColumn ? R : C) * sizeof(T) % 32 == 0,
                "rows are whole blocks of 32 bytes");
  static_assert(R % kInnerRows == 0 && C % kInnerCols == 0, "a tile is whole fractals");

  explicit Tile(int64_t rows) : rows(rows), cols(VC) { static_assert(VR == -1 && VC != -1); }
  Tile(int64_t r, int64_t c) : rows(r), cols(c) { static_assert(VR == -1 && VC == -1); }
  Pointer<T> data() const {
    static_assert(L == TileType::Vec, "the scalar unit reads the unified buffer alone");
    return Pointer<T>(address);
  }
  int64_t GetValidRow() const { return rows; }
  int64_t GetValidCol() const { return cols; }
  void SetValidRow(int64_t r) {
    static_assert(VR == -1);
    rows = r;
    check();
  }
  void SetValidShape(int64_t r, int64_t c) {
    static_assert(VR == -1 && VC == -1);
    rows = r, cols = c;
    check();
  }
  void check() const {
    standin::require(rows >= 1 && rows <= R && cols >= 1 && cols <= C, "a valid shape is beyond its tile");
  }
  static int64_t offset(int64_t i, int64_t j) {
    const int64_t outer = B == BLayout::ColMajor ? j / kInnerCols * (R / kInnerRows) + i / kInnerRows
                                                 : i / kInnerRows * (C / kInnerCols) + j / kInnerCols;
    const int64_t r = i % kInnerRows, c = j % kInnerCols;
    const bool is_by_columns = S == SLayout::ColMajor || kIsColumn;
    return outer * kInnerRows * kInnerCols + (is_by_columns ? c * kInnerRows + r : r * kInnerCols + c);
  }
  T& at(int64_t i, int64_t j) const {
    return reinterpret_cast<T*>(standin::core().at(space_of(L), address))[offset(i, j)];
  }
  /// The bytes of the valid part of each line of each fractal.
  std::vector<standin::Range> ranges() const {
    std::vector<standin::Range> found;
    const bool is_by_columns = S == SLayout::ColMajor || kIsColumn;
    const int64_t step_i = is_by_columns ? kInnerRows : 1, step_j = is_by_columns ? 1 : kInnerCols;
    for (int64_t i = 0; i < rows; i += step_i) {
      for (int64_t j = 0; j < cols; j += step_j) {
        const int64_t count = is_by_columns ? std::min(step_i, rows - i) : std::min(step_j, cols - j);
        const uint64_t start = address + offset(i, j) * sizeof(T);
        found.push_back({space_of(L), start, start + count * sizeof(T)});
      }
    }
    return found;
  }

  int64_t rows, cols, address = -1;
};

template <class TileT>
standin::Amount amount_of(const TileT& tile) {
  return {tile.rows, tile.cols, int64_t(sizeof(typename TileT::Type))};
}

/// Operands and sums of products. The generations order the fractals of left operands differently, which
/// code that uses these names does not see.
template <class T, int R, int C>
using TileLeft = Tile<TileType::Left, T, R, C, BLayout::ColMajor, R, C, SLayout::RowMajor, 512>;
template <class T, int R, int C>
using TileRight = Tile<TileType::Right, T, R, C, BLayout::RowMajor, R, C, SLayout::ColMajor, 512>;
template <class T, int R, int C>
using TileAcc = Tile<TileType::Acc, T, R, C, BLayout::ColMajor, R, C, SLayout::RowMajor, 1024>;

template <class TileT>
void TASSIGN(TileT& tile, int64_t address) {
  const int64_t bytes = int64_t(TileT::kRows) * TileT::kCols * int64_t(sizeof(typename TileT::Type));
  const int64_t size = standin::core().size(space_of(TileT::kType));
  standin::require(address % standin::kBlock == 0, "the address of a tile is not a multiple of 32");
  standin::require(address >= 0 && address + bytes <= size, "a tile is beyond its memory");
  tile.address = address;
}

}  // namespace pto
