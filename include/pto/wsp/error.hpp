// SPDX-License-Identifier: MIT
/// \file
/// The one exception of the engine. Callers turn `code` and `details` into an error of the catalogue.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pto::wsp {

/// A fact of an error: a number, a text or a list of numbers.
struct Detail {
  enum Kind { kNumber, kText, kList } kind;
  int64_t number = 0;
  std::string text;
  std::vector<int64_t> list;
};

/// A named engine error: a kebab-case code, a sentence, and the facts of the case.
class EngineError : public std::runtime_error {
 public:
  EngineError(std::string code, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)) {}

  EngineError&& with(std::string key, std::string text) && {
    return std::move(*this).add(std::move(key), {Detail::kText, 0, std::move(text), {}});
  }
  EngineError&& with(std::string key, std::vector<int64_t> list) && {
    return std::move(*this).add(std::move(key), {Detail::kList, 0, {}, std::move(list)});
  }
  EngineError&& with_int(std::string key, int64_t number) && {
    return std::move(*this).add(std::move(key), {Detail::kNumber, number, {}, {}});
  }

  const std::string& code() const { return code_; }
  const std::vector<std::pair<std::string, Detail>>& details() const { return details_; }

  bool has(const std::string& key) const {
    for (const auto& detail : details_) {
      if (detail.first == key) return true;
    }
    return false;
  }

  /// The integer detail `key`, or -1.
  int64_t number(const std::string& key) const {
    for (const auto& [name, value] : details_) {
      if (name == key && value.kind == Detail::kNumber) return value.number;
    }
    return -1;
  }

 private:
  EngineError&& add(std::string key, Detail detail) && {
    details_.emplace_back(std::move(key), std::move(detail));
    return std::move(*this);
  }

  std::string code_;
  std::vector<std::pair<std::string, Detail>> details_;
};

}  // namespace pto::wsp
