// SPDX-License-Identifier: MIT
/// \file
/// What random generators choose, one number after the other. The choices of a failing case can be made
/// again, and made smaller: see seeds.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace choices {

/// Each choice as its distance from the least one: so the least sequence is empty, or all zeros.
using Sequence = std::vector<int64_t>;

/// The sequences of all generators that one case makes, in the order of their construction.
struct Case {
  std::vector<Sequence> replayed;  ///< what they choose; empty: what the seed says
  std::vector<Sequence> made;      ///< what they chose
  std::vector<std::vector<uint8_t>> programs;
};

/// The case that is under way, or null. Generators are made by the thread that checks it.
inline Case*& current() {
  static Case* current = nullptr;
  return current;
}

/// Lets a report show a program that a case has made.
inline void note_program(const std::vector<uint8_t>& bytes) {
  if (current() != nullptr) current()->programs.push_back(bytes);
}

class Choices {
 public:
  explicit Choices(uint64_t seed) : random_(seed) {
    Case* const current = choices::current();
    if (current == nullptr) return;
    number_ = current->made.size();
    is_recorded_ = true;
    current->made.emplace_back();
    if (number_ < current->replayed.size()) {
      is_replayed_ = true;
      replayed_ = current->replayed[number_];
    }
  }

  /// A number in [lo, hi].
  int64_t pick(int64_t lo, int64_t hi) {
    int64_t chosen = 0;
    if (!is_replayed_) {
      chosen = int64_t(random_() % uint64_t(hi - lo + 1));
    } else if (next_ < replayed_.size()) {
      chosen = std::clamp<int64_t>(replayed_[next_++], 0, hi - lo);
    }
    if (is_recorded_ && current() != nullptr) current()->made[number_].push_back(chosen);
    return lo + chosen;
  }

  template <class T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = 0; i + 1 < values.size(); ++i)
      std::swap(values[i], values[i + size_t(pick(0, int64_t(values.size() - i) - 1))]);
  }

 private:
  std::mt19937_64 random_;
  Sequence replayed_;
  size_t number_ = 0;
  size_t next_ = 0;
  bool is_recorded_ = false;
  bool is_replayed_ = false;
};

}  // namespace choices
