// SPDX-License-Identifier: MIT
/// \file
/// Errors of networks in words, for programs that know the names of their processes and channels.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pto/wsp/error.hpp"

namespace pto::wsp::sched {

/// A send or receive of a network.
struct Move {
  int64_t pc;         ///< its instruction
  size_t tensor;      ///< its channel
  const char* place;  ///< in the source, or empty
};

/// The names of a network, by the numbers of its bytecode.
struct NetworkNames {
  std::vector<const char*> processes, tensors;
  std::vector<Move> moves;
};

namespace detail {

inline const std::vector<int64_t>& numbers_of(const EngineError& error, const std::string& key) {
  static const std::vector<int64_t> none;
  for (const auto& [name, detail] : error.details()) {
    if (name == key) return detail.list;
  }
  return none;
}

/// The send or receive at an instruction.
inline const Move* find_move(const NetworkNames& names, int64_t pc) {
  for (const Move& move : names.moves) {
    if (move.pc == pc) return &move;
  }
  return nullptr;
}

/// What a process waits for at a send or receive, by the numbers of `sched::Admission`.
inline std::string describe_wait(const NetworkNames& names, int64_t process, int64_t pc, int64_t why) {
  static const char* const kWaits[] = {"",
                                       "for its turn to send to",
                                       "for its turn to receive from",
                                       "for a free buffer of",
                                       "for a token of",
                                       "for the receipt of its token of"};
  const Move* move = find_move(names, pc);
  std::string text = "\n  process `" + std::string(names.processes[size_t(process)]) + "`";
  if (move == nullptr) return text;
  if (*move->place != 0) text += " at " + std::string(move->place);
  return text + " waits " + kWaits[size_t(why)] + " `" + names.tensors[move->tensor] + "`";
}

}  // namespace detail

/// What follows the first line of an error of a network. Empty for errors that any program can have.
inline std::string explain_network(const NetworkNames& names, const EngineError& error) {
  std::string text;
  if (error.code() == "channel-ended") {
    const Move* move = detail::find_move(names, error.number("pc"));
    text = "\n  process `" + std::string(names.processes[size_t(error.number("process"))]) + "`";
    if (move == nullptr) return text;
    if (*move->place != 0) text += " at " + std::string(move->place);
    return text + " needs channel `" + names.tensors[move->tensor] + "`, after " +
           std::to_string(error.number("received")) + " tokens that were received";
  }
  if (error.code() != "deadlock" && error.code() != "unreceived-tokens") return text;
  const std::vector<int64_t>& blocked = detail::numbers_of(error, "blocked");
  for (size_t i = 0; i + 2 < blocked.size(); i += 3)
    text += detail::describe_wait(names, blocked[i], blocked[i + 1], blocked[i + 2]);
  const std::vector<int64_t>& fills = detail::numbers_of(error, "channels");
  for (size_t i = 0; i + 3 < fills.size(); i += 4) {
    text += "\n  channel `" + std::string(names.tensors[size_t(fills[i])]) + "`: ";
    text += std::to_string(fills[i + 1]) + " tokens sent, " + std::to_string(fills[i + 2]) + " received, ";
    text += std::to_string(fills[i + 1] - fills[i + 3]) + " buffers in use";
  }
  return text;
}

}  // namespace pto::wsp::sched
