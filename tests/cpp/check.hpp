// SPDX-License-Identifier: MIT
/// \file
/// Test macros: CHECK says what was expected and where; TEST registers a function; main runs all of them, or
/// those of the file that it is told.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "pto/wsp/error.hpp"

namespace check {

/// A run that is stuck says so within a second; other work on the machine, and sanitizers, make it later.
inline constexpr std::chrono::seconds kStuckLimit{10};

struct Case {
  const char* file;
  const char* name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

struct Register {
  Register(const char* file, const char* name, void (*body)()) { cases().push_back({file, name, body}); }
};

/// A check that failed, where `throws`.
struct Failed {
  std::string text;
};

/// Whether this thread throws a Failed where a check fails, and does not end the process.
inline bool& throws() {
  thread_local bool throws = false;
  return throws;
}

[[noreturn]] inline void fail(const char* file, int line, const std::string& text) {
  if (throws()) throw Failed{std::string(file) + ":" + std::to_string(line) + ": " + text};
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, text.c_str());
  std::abort();
}

/// The code of the EngineError that `body` throws, or "none".
inline std::string code_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const pto::wsp::EngineError& error) {
    return error.code();
  }
  return "none";
}

}  // namespace check

#define CHECK(condition) \
  if (!(condition)) check::fail(__FILE__, __LINE__, #condition)
#define CHECK_EQ(a, b)                                                                       \
  do {                                                                                       \
    const auto check_a = (a);                                                                \
    const auto check_b = (b);                                                                \
    if (!(check_a == check_b)) {                                                             \
      check::fail(__FILE__, __LINE__,                                                        \
                  std::string(#a " == " #b ", found ") + std::to_string(check_a) + " and " + \
                      std::to_string(check_b));                                              \
    }                                                                                        \
  } while (0)
#define CHECK_CODE(expected, ...)                                                                        \
  do {                                                                                                   \
    const std::string found = check::code_of([&] { __VA_ARGS__; });                                      \
    if (found != (expected))                                                                             \
      check::fail(__FILE__, __LINE__, std::string("expected error ") + (expected) + ", found " + found); \
  } while (0)
#define TEST(name)                                                     \
  static void name();                                                  \
  static const check::Register register_##name(__FILE__, #name, name); \
  static void name()

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? "/" + std::string(argv[1]) + ".cpp" : "";
  int num_run = 0;
  for (const check::Case& test : check::cases()) {
    const std::string file = test.file;
    if (file.size() < wanted.size() || file.substr(file.size() - wanted.size()) != wanted) continue;
    std::printf("%s\n", test.name);
    std::fflush(stdout);
    test.body();
    ++num_run;
  }
  return num_run > 0 ? 0 : 1;
}
