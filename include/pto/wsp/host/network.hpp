// SPDX-License-Identifier: MIT
/// \file
/// A program that is a network: what it refuses of its arrays, and its errors in its own words.
#pragma once

#include <string>
#include <vector>

#include "pto/wsp/bind/arguments.hpp"
#include "pto/wsp/bytecode/program.hpp"
#include "pto/wsp/error.hpp"
#include "pto/wsp/host/program.hpp"

namespace pto::wsp::host {

namespace detail {

inline const std::vector<int64_t>& numbers_of(const EngineError& error, const std::string& key) {
  static const std::vector<int64_t> none;
  for (const auto& [name, detail] : error.details()) {
    if (name == key) return detail.list;
  }
  return none;
}

/// The send or receive at an instruction.
inline const Move* find_move(const Program& program, int64_t pc) {
  for (const Move& move : program.moves) {
    if (move.pc == pc) return &move;
  }
  return nullptr;
}

/// What a process waits for at a send or receive, by the numbers of `sched::Admission`.
inline std::string describe_wait(const Program& program, int64_t process, int64_t pc, int64_t why) {
  static const char* const kWaits[] = {"",
                                       "for its turn to send to",
                                       "for its turn to receive from",
                                       "for a free buffer of",
                                       "for a token of",
                                       "for the receipt of its token of"};
  const Move* move = find_move(program, pc);
  std::string text = "\n  process `" + std::string(program.processes[size_t(process)].name) + "`";
  if (move == nullptr) return text;
  if (*move->place != 0) text += " at " + std::string(move->place);
  return text + " waits " + kWaits[size_t(why)] + " `" + program.tensors[move->tensor].name + "`";
}

}  // namespace detail

/// What follows the first line of an error of a network. Empty for errors that any program can have.
inline std::string explain_network(const Program& program, const EngineError& error) {
  std::string text;
  if (error.code() == "channel-ended") {
    const Move* move = detail::find_move(program, error.number("pc"));
    text = "\n  process `" + std::string(program.processes[size_t(error.number("process"))].name) + "`";
    if (move == nullptr) return text;
    if (*move->place != 0) text += " at " + std::string(move->place);
    return text + " needs channel `" + program.tensors[move->tensor].name + "`, after " +
           std::to_string(error.number("received")) + " tokens that were received";
  }
  if (error.code() != "deadlock" && error.code() != "unreceived-tokens") return text;
  const std::vector<int64_t>& blocked = detail::numbers_of(error, "blocked");
  for (size_t i = 0; i + 2 < blocked.size(); i += 3)
    text += detail::describe_wait(program, blocked[i], blocked[i + 1], blocked[i + 2]);
  const std::vector<int64_t>& fills = detail::numbers_of(error, "channels");
  for (size_t i = 0; i + 3 < fills.size(); i += 4) {
    text += "\n  channel `" + std::string(program.tensors[size_t(fills[i])].name) + "`: ";
    text += std::to_string(fills[i + 1]) + " tokens sent, " + std::to_string(fills[i + 2]) + " received, ";
    text += std::to_string(fills[i + 1] - fills[i + 3]) + " buffers in use";
  }
  return text;
}

/// Refuses arrays of a network that share memory, if tasks write one of them: its processes share a tensor
/// under one name alone. Throws Mistake.
inline void require_separate(const Program& program, const bytecode::Program& code,
                             const std::vector<bind::ArrayRef>& refs) {
  const auto end_of = [&](size_t i) {
    int64_t bytes = dtype_bytes(refs[i].dtype);
    for (int d = 0; d < refs[i].rank; ++d) bytes *= refs[i].shape[d];
    return static_cast<const char*>(refs[i].data) + bytes;
  };
  for (size_t i = 0; i < refs.size(); ++i) {
    for (size_t j = i + 1; j < refs.size(); ++j) {
      const auto *a = static_cast<const char*>(refs[i].data), *b = static_cast<const char*>(refs[j].data);
      const bool is_written = code.tensors[i].written != 0 || code.tensors[j].written != 0;
      if (is_written && a < end_of(j) && b < end_of(i))
        throw Mistake(std::string(program.tensors[i].name) + " and " + program.tensors[j].name +
                      " share memory: processes of a network share a tensor under one name alone");
    }
  }
}

}  // namespace pto::wsp::host
