// SPDX-License-Identifier: MIT
/// \file
/// Random cases by their seeds. A case that fails is made smaller, as long as it fails, and then shown.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "check.hpp"
#include "choices.hpp"
#include "program_text.hpp"

namespace seeds {

/// What fails in a case, or nothing. What its generators chose is left in `one`.
template <class Check>
std::optional<std::string> failure_of(choices::Case& one, uint64_t seed, Check& check) {
  one.made.clear();
  one.programs.clear();
  choices::current() = &one;
  check::throws() = true;
  std::optional<std::string> failure;
  try {
    check(seed);
  } catch (const check::Failed& failed) {
    failure = failed.text;
  } catch (const pto::wsp::EngineError& error) {
    failure = error.code() + ": " + error.what();
  }
  check::throws() = false;
  choices::current() = nullptr;
  return failure;
}

/// Makes a failing case smaller: fewer choices, then smaller ones.
template <class Check>
class Shrinker {
 public:
  Shrinker(choices::Case found, uint64_t seed, Check& check)
      : best_(std::move(found)), seed_(seed), check_(check) {
    best_.replayed = best_.made;
  }

  choices::Case run() {
    do {
      has_changed_ = false;
      for (size_t i = 0; i < best_.replayed.size(); ++i) {
        for (size_t size : {64, 16, 4, 2, 1}) drop(i, size);
        for (size_t at = 0; at < best_.replayed[i].size(); ++at) lower(i, at);
        for (size_t at = 0; at < best_.replayed[i].size(); ++at) count_down(i, at);
      }
    } while (has_changed_ && !is_late());
    return best_;
  }

 private:
  static constexpr std::chrono::seconds kPatience{20};

  bool is_late() const { return std::chrono::steady_clock::now() > start_ + kPatience; }

  void drop(size_t i, size_t size) {
    for (size_t end = best_.replayed[i].size(); end >= size && !is_late(); end -= std::min(end, size)) {
      choices::Case smaller = best_;
      choices::Sequence& sequence = smaller.replayed[i];
      if (end > sequence.size()) continue;
      sequence.erase(sequence.begin() + std::ptrdiff_t(end - size), sequence.begin() + std::ptrdiff_t(end));
      try_case(std::move(smaller));
    }
  }

  void lower(size_t i, size_t at) {
    for (const int64_t value : {int64_t{0}, best_.replayed[i][at] / 2, best_.replayed[i][at] - 1}) {
      if (at >= best_.replayed[i].size() || value < 0 || value >= best_.replayed[i][at] || is_late()) return;
      choices::Case smaller = best_;
      smaller.replayed[i][at] = value;
      if (try_case(std::move(smaller))) return;
    }
  }

  /// One less of something that was counted, whose own choices come next or a little later.
  void count_down(size_t i, size_t at) {
    constexpr size_t kMostDropped = 40;
    for (size_t size = 1; size < kMostDropped && !is_late(); ++size) {
      if (at >= best_.replayed[i].size() || best_.replayed[i][at] == 0) return;
      if (at + size >= best_.replayed[i].size()) return;
      choices::Case smaller = best_;
      choices::Sequence& sequence = smaller.replayed[i];
      --sequence[at];
      const auto first = sequence.begin() + std::ptrdiff_t(at) + 1;
      sequence.erase(first, first + std::ptrdiff_t(size));
      if (try_case(std::move(smaller))) size = 0;
    }
  }

  /// Keeps a case that fails and has become smaller.
  bool try_case(choices::Case smaller) {
    if (!failure_of(smaller, seed_, check_)) return false;
    smaller.replayed = smaller.made;
    const bool is_smaller = size_of(smaller) < size_of(best_);
    if (is_smaller) best_ = std::move(smaller);
    has_changed_ = has_changed_ || is_smaller;
    return is_smaller;
  }

  /// How many choices there are, and their sum.
  static std::pair<size_t, int64_t> size_of(const choices::Case& one) {
    std::pair<size_t, int64_t> size{0, 0};
    for (const choices::Sequence& sequence : one.replayed) {
      size.first += sequence.size();
      for (const int64_t choice : sequence) size.second += choice;
    }
    return size;
  }

  choices::Case best_;
  uint64_t seed_;
  Check& check_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool has_changed_ = false;
};

/// Checks one case. Where it fails, ends the test with the smallest case that was found.
template <class Check>
void check_seed(uint64_t seed, Check& check) {
  choices::Case one;
  const std::optional<std::string> failure = failure_of(one, seed, check);
  if (!failure) return;
  std::fprintf(stderr, "seed %llu (PTO_WSP_SEED): %s\n", static_cast<unsigned long long>(seed),
               failure->c_str());
  choices::Case small = Shrinker<Check>(std::move(one), seed, check).run();
  const std::string reason = failure_of(small, seed, check).value_or("it does not fail each time");
  for (const auto& bytes : small.programs)
    std::fprintf(stderr, "%s\n", program_text::Printer(bytes).print().c_str());
  check::fail(__FILE__, __LINE__, "the program above: " + reason);
}

/// Calls `check(seed)` for `count` seeds from `first` on.
template <class Check>
void for_seeds(uint64_t first, uint64_t count, Check check) {
  for (uint64_t seed = first; seed < first + count; ++seed) check_seed(seed, check);
}

/// Calls `check(seed)` for so long, with seeds from `first` on; only with that in PTO_WSP_SEED, if it is set,
/// or from it on for PTO_WSP_SECONDS, if these are set too.
template <class Check>
void for_seeds(uint64_t first, std::chrono::milliseconds time, Check check) {
  if (const char* chosen = std::getenv("PTO_WSP_SEED")) {
    first = uint64_t(std::strtoull(chosen, nullptr, 10));
    const char* seconds = std::getenv("PTO_WSP_SECONDS");
    time = std::chrono::seconds(seconds != nullptr ? std::strtoll(seconds, nullptr, 10) : 0);
    std::printf("  from seed %s on\n", chosen);
  }
  const auto end = std::chrono::steady_clock::now() + time;
  uint64_t seed = first;
  do {
    check_seed(seed++, check);
  } while (std::chrono::steady_clock::now() < end);
  std::printf("  %llu workloads\n", static_cast<unsigned long long>(seed - first));
}

}  // namespace seeds
