// SPDX-License-Identifier: MIT
/// \file
/// The tile library with memory that its caller made: nothing is written beside what a caller names.
#include <numeric>
#include <string>
#include <vector>

#define PTO_LANES 4

#include "../check.hpp"
#include "pto/wsp/tile/group.hpp"
#include "pto/wsp/tile/tile.hpp"

namespace {

using namespace pto::wsp;
using namespace pto::wsp::tile;

/// The message of the failure that `body` ends with, or "none".
template <class Body>
std::string failure_of(const Body& body) {
  try {
    body();
  } catch (const KernelFailure& failure) {
    return failure.message;
  }
  return "none";
}

/// A view of `rows` x `cols` elements whose rows are `stride` apart.
template <class T>
View view_of(T* data, int64_t rows, int64_t cols, int64_t stride) {
  return {const_cast<std::remove_const_t<T>*>(data), {rows, cols, 1, 1}, {stride, 1, 0, 0}, nullptr};
}
template <class T>
View view_of(std::vector<T>& data) {
  return {data.data(), {int64_t(data.size()), 1, 1, 1}, {1, 0, 0, 0}, nullptr};
}

/// Groups {2, 0, 1, 0, 2} into arrays of these sizes, with indices that lie `stride` apart.
std::string group(std::vector<int64_t>& offsets, std::vector<int32_t>& indices, int64_t rows,
                  int64_t stride) {
  std::vector<int64_t> keys{2, 0, 1, 0, 2};
  const View key_view = view_of(keys), offset_view = view_of(offsets);
  const View index_view = view_of(indices.data(), rows, 1, stride);
  return failure_of([&] {
    group_by(TensorView<const int64_t, 1>(key_view), TensorView<int64_t, 1>(offset_view),
             TensorView<int32_t, 2>(index_view));
  });
}

TEST(groups_respect_the_layout_of_their_output) {
  for (const int64_t stride : {1, 3}) {
    std::vector<int64_t> offsets(4, -1);
    std::vector<int32_t> indices(size_t(5 * stride), -1);
    CHECK(group(offsets, indices, 5, stride) == "none");
    CHECK((offsets == std::vector<int64_t>{0, 2, 3, 5}));
    const std::vector<int32_t> sorted{1, 3, 2, 0, 4};
    for (int64_t i = 0; i < 5 * stride; ++i)
      CHECK_EQ(indices[size_t(i)], i % stride == 0 ? sorted[size_t(i / stride)] : -1);
  }
}

TEST(groups_refuse_output_of_another_size) {
  std::vector<int64_t> offsets(4, -1), none;
  std::vector<int32_t> indices(6, -1);
  CHECK(group(none, indices, 5, 1) == "the offsets have no room for the end of the last group");
  CHECK(group(offsets, indices, 4, 1) == "there is not one index per element");
  CHECK(group(offsets, indices, 6, 1) == "there is not one index per element");
  CHECK((indices == std::vector<int32_t>(6, -1)));
}

TEST(arenas_refuse_sizes_beyond_all_memory) {
  alignas(kScratchAlign) char memory[256];
  const std::string message = "the workspace is too small for the kernel's tiles";
  for (const int64_t n :
       {int64_t{65}, int64_t{1} << 61, int64_t{1} << 62, INT64_MAX, int64_t{-1}, INT64_MIN}) {
    CHECK(failure_of([&] { Arena(memory, 256).array<float>(n); }) == message);
    CHECK(failure_of([&] { Arena(memory, 256).tile<float>(n, 32); }) == message);
    CHECK(failure_of([&] { Arena(memory, 256).tile<float>(32, n); }) == message);
    CHECK(failure_of([&] { Arena(memory, 256).tile<float>(n, 1); }) == message);
  }
  CHECK(failure_of([&] { Arena(memory, 256).array<float>(64); }) == "none");
  CHECK(failure_of([&] { Arena(memory, 256).tile<float>(2, 32); }) == "none");
  CHECK(failure_of([&] { Arena(memory, 0).tile<float>(0, 7); }) == "none");
}

/// Calls `product(to, a, b, arena)` with a destination of 5 x `cols` inside a tile of 64 columns, all 1.
template <class Product>
void check_part(int64_t cols, const Product& product) {
  std::vector<float> memory(1 << 16);
  Arena arena(memory.data(), memory.size() * sizeof(float));
  const auto wide = arena.tile<float>(5, 64), a = arena.tile<float>(5, 3), b = arena.tile<float>(3, cols);
  expands(wide, 1);
  expands(a, 2);
  expands(b, 3);
  product(Tile<float>{wide.data, wide.stride, 5, cols}, a, b, arena);
  for (int64_t i = 0; i < 5; ++i) {
    for (int64_t j = 0; j < 64; ++j) CHECK_EQ(wide.row(i)[j] == 1, j >= cols);
  }
}

TEST(products_write_nothing_beside_a_part_of_a_tile) {
  for (const int64_t cols : {1, 2, 5, 17, 31, 32, 40, 63}) {
    check_part(cols, [](auto to, auto& a, auto& b, Arena arena) { matmul(to, a, b, arena); });
    check_part(cols, [](auto to, auto& a, auto& b, Arena arena) { matmul_acc(to, a, b, arena); });
    check_part(cols, [](auto to, auto& a, auto& b, Arena arena) {
      const auto bias = arena.tile<float>(1, to.cols);
      expands(bias, 1);
      matmul_bias(to, a, b, bias, arena);
    });
  }
}

TEST(products_write_nothing_beside_user_memory) {
  std::vector<float> room(1 << 14), out(5 * 7);
  Arena arena(room.data(), room.size() * sizeof(float));
  const auto a = arena.tile<float>(5, 3), b = arena.tile<float>(3, 7);
  expands(a, 2);
  expands(b, 3);
  matmul(Tile<float>{out.data(), 7, 5, 7}, a, b, arena);
  CHECK((out == std::vector<float>(5 * 7, 18)));
}

}  // namespace
