// SPDX-License-Identifier: MIT
/// \file
/// Programs of tasks that touch memory, and what each task must come behind, by a map of single elements.
#pragma once

#include "../../../cpp/capi/recorder.hpp"

#include <algorithm>
#include <bitset>
#include <string>
#include <utility>
#include <vector>

#include "../check.hpp"
#include "../choices.hpp"

namespace accesses {

using namespace pto::wsp;

constexpr int kMaxTasks = 1024, kMaxCells = 120;
using Set = std::bitset<kMaxTasks>;
using Accesses = std::vector<std::pair<capi::Region, Role>>;
using Program = std::vector<Accesses>;

/// What each task must come behind, by cells of one element.
class Oracle {
 public:
  Set next(const Accesses& accesses, size_t task) {
    Set earlier;
    for (const auto& [region, role] : accesses)
      visit(region, [&earlier, writes = role != Role::in](Cell& cell) {
        if (cell.writer >= 0) earlier.set(size_t(cell.writer));
        if (writes) earlier |= cell.readers;
      });
    for (const auto& [region, role] : accesses)
      visit(region, [task, writes = role != Role::in](Cell& cell) {
        if (!writes && cell.writer != int(task)) cell.readers.set(task);
        if (writes) cell = {int(task), {}};
      });
    return earlier.reset(task);
  }

 private:
  struct Cell {
    int writer = -1;
    Set readers;
  };
  template <class Visit>
  void visit(const capi::Region& region, const Visit& body) {
    const auto first = size_t(region.first - region.tensor) / capi::Region::kElementBytes;
    for (size_t i = 0; i < size_t(region.rows) * size_t(region.cols); ++i) body(cells_[first + i]);
  }
  Cell cells_[kMaxCells];
};

/// What each task of a program must come behind.
inline std::vector<Set> earlier_of(const Program& program) {
  Oracle oracle;
  std::vector<Set> earlier;
  for (size_t task = 0; task < program.size(); ++task) earlier.push_back(oracle.next(program[task], task));
  return earlier;
}

/// The same, and what that must come behind, and so on.
inline std::vector<Set> all_earlier_of(const Program& program) {
  std::vector<Set> all = earlier_of(program);
  for (size_t task = 0; task < all.size(); ++task) {
    const Set direct = all[task];
    for (size_t i = direct._Find_first(); i < direct.size(); i = direct._Find_next(i)) all[task] |= all[i];
  }
  return all;
}

/// Adds a task that has not been submitted; returns its number.
inline uint32_t add_task(capi::Tasks& tasks, const Accesses& accesses) {
  const uint32_t number = tasks.add(nullptr, nullptr, 0, 0);
  for (const auto& [region, role] : accesses) {
    const uint32_t found = tasks.regions().find(region);
    tasks.add_argument(number, {found != capi::Regions::kNone ? found : tasks.regions().add(region), role});
  }
  return number;
}

/// Makes programs of several shapes, each in the memory of `kMaxCells` elements that it is given.
class Maker {
 public:
  explicit Maker(uint64_t seed) : choices_(seed) {}

  int below(int n) { return int(choices_.pick(0, n - 1)); }

  Program make(const int32_t* memory) {
    memory_ = memory;
    program_.clear();
    switch (below(6)) {
      case 0: make_chains(); break;
      case 1: make_trees(); break;
      case 2: make_attention(); break;
      case 3: make_stencil(); break;
      default: make_random(); break;
    }
    if (program_.size() > kMaxTasks) program_.resize(kMaxTasks, {});
    return std::move(program_);
  }

 private:
  capi::Region cells(int first, int count) const { return {memory_, 0, first, count, 1}; }
  void add(Accesses accesses) { program_.push_back(std::move(accesses)); }

  /// Rows of tasks that are longer than strands, and follow each other or read what others write.
  void make_chains() {
    const int num_chains = 1 + below(4), odds = 1 + below(40);
    while (program_.size() < kMaxTasks / 2) {
      const int chain = below(num_chains);
      for (int length = 1 + below(below(2) == 0 ? 10 : 600); length > 0; --length) {
        Accesses accesses{{cells(chain, 1), Role::inout}};
        if (below(odds) == 0) accesses.emplace_back(cells(below(num_chains), 1), Role::in);
        if (below(odds) == 0) accesses.emplace_back(cells(8 + below(8), 1), Role::out);
        add(std::move(accesses));
      }
    }
  }

  /// Sums of pairs, of pairs of these, and so on: over and over in the same memory.
  void make_trees() {
    const int leaves = 2 << below(6);
    for (int round = 1 + below(4); round > 0; --round) {
      for (int i = 0; i < leaves; ++i) add({{cells(i, 1), Role::out}});
      for (int width = 1; width < leaves; width *= 2)
        for (int i = 0; i + width < leaves; i += 2 * width)
          add({{cells(i + width, 1), Role::in}, {cells(i, 1), Role::inout}});
    }
  }

  /// Tasks of a layer with attention: strands follow each other within a row, and read other rows.
  void make_attention() {
    const int n = 1 + below(10);
    const auto at = [this](int tensor, int i) { return cells(12 * tensor + i, 1); };
    for (int i = 0; i < n; ++i) {
      add({{at(0, 0), Role::out}});
      for (int tensor = 1; tensor < 4; ++tensor) add({{at(0, 0), Role::in}, {at(tensor, i), Role::out}});
    }
    for (int q = 0; q < n; ++q) {
      add({{at(4, q), Role::out}, {at(5, q), Role::out}});
      for (int k = 0; k < n; ++k) {
        add({{at(1, q), Role::in}, {at(2, k), Role::in}, {at(6, q), Role::out}});
        add({{at(6, q), Role::in}, {at(5, q), Role::inout}, {at(7, q), Role::out}});
        add({{at(7, q), Role::in}, {at(3, k), Role::in}, {at(4, q), Role::inout}});
      }
    }
    for (int i = 0; i < n; ++i) add({{at(4, i), Role::in}, {at(0, 0), Role::inout}, {at(8, i), Role::out}});
  }

  /// Each step reads neighbours in one half of the memory and writes the other half.
  void make_stencil() {
    const int width = 1 + below(50);
    for (int step = 0; step < 12; ++step)
      for (int i = 0; i < width; ++i) {
        const int from = 60 * (step % 2), low = std::max(i - 1, 0), high = std::min(i + 2, width);
        add({{cells(from + low, high - low), Role::in}, {cells(60 - from + i, 1), Role::out}});
      }
  }

  /// Regions of all sizes, which overlap in part.
  void make_random() {
    const int num_cells = 16 + below(kMaxCells - 16);
    for (int task = 1 + below(400); task > 0; --task) {
      Accesses accesses;
      const int count = 1 + below(below(8) == 0 ? 12 : 3);
      for (int i = 0; i < count; ++i) {
        const int rows = below(4), cols = 1 + below(4), at = below(num_cells - rows * cols + 1);
        const Role role =
            i + 1 < count ? Role(below(8) == 0 ? below(3) : 0) : (below(2) == 0 ? Role::out : Role::inout);
        accesses.emplace_back(capi::Region(memory_, at / cols, at % cols, rows, cols), role);
      }
      add(std::move(accesses));
    }
  }

  choices::Choices choices_;
  const int32_t* memory_ = nullptr;
  Program program_;
};

}  // namespace accesses
