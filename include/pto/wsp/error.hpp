// SPDX-License-Identifier: MIT
/// \file
/// The one exception of the engine. Callers turn `code` and `details` into an error of the catalogue.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pto::wsp {

using Detail = std::variant<int64_t, std::string, std::vector<int64_t>>;

/// A named engine error: a kebab-case code, a sentence, and the facts behind it.
class EngineError : public std::runtime_error {
 public:
  EngineError(std::string code, const std::string& message) : std::runtime_error(message), code_(std::move(code)) {}

  EngineError&& with(std::string key, Detail value) && {
    details_.emplace_back(std::move(key), std::move(value));
    return std::move(*this);
  }
  EngineError&& with_int(std::string key, int64_t value) && { return std::move(*this).with(std::move(key), value); }

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
      if (name == key && std::holds_alternative<int64_t>(value)) return std::get<int64_t>(value);
    }
    return -1;
  }

 private:
  std::string code_;
  std::vector<std::pair<std::string, Detail>> details_;
};

}  // namespace pto::wsp
