// SPDX-License-Identifier: MIT
/// \file
/// A simulated core: its pipes, its flags and its memories. A task uses those of a vector core or of a cube
/// core.
///
/// A tile call adds an instruction to the queue of its pipe. Nothing is executed until a barrier of all
/// pipes, so each pipe can run as far ahead, or as late, as the flags allow: `Order` chooses. A vector clock
/// per pipe finds accesses that no flag orders, even where the values agree.
#pragma once

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace.hpp"

enum Pipe { PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_MTE1, PIPE_M, PIPE_FIX, PIPE_S, PIPE_ALL };
constexpr int EVENT_ID0 = 0;

enum class NPUArch { A2A3, A5 };

namespace standin {

constexpr int kPipes = PIPE_ALL;
constexpr int64_t kBlock = 32;
constexpr int64_t kEvents = 8;
constexpr const char* kNames[] = {"V", "MTE2", "MTE3", "MTE1", "M", "FIX", "S", "ALL"};

/// Memories: global memory has addresses, the others have offsets.
enum Space { kGlobal, kUb, kL1, kL0a, kL0b, kL0c, kSpaces };
constexpr const char* kSpaceNames[] = {"global memory", "the unified buffer", "L1", "L0A", "L0B", "L0C"};
inline int64_t capacity(int space, NPUArch arch) {
  const bool is_a5 = arch == NPUArch::A5;
  const int64_t kib[] = {0, is_a5 ? 256 : 192, 512, 64, 64, is_a5 ? 256 : 128};
  return kib[space] << 10;
}

/// What tests read and set. One lock guards it, and a core locks it while it executes.
struct Shared {
  std::recursive_mutex lock;
  bool loads_first = true;
  /// A flag or barrier of the code: its file and line.
  using Site = std::pair<std::string, int>;
  std::map<Site, int64_t> sites;  ///< those that ran so far, with their numbers
  int64_t skipped = -1;           ///< number of the one that is left out
  std::vector<std::string> reports;
  Trace trace;

  bool skips(const char* file, int line) {
    return sites.emplace(Site(file, line), int64_t(sites.size())).first->second == skipped;
  }
  void report(const std::string& text) {
    if (reports.size() < 20) reports.push_back(text);
  }
};
inline Shared& shared() {
  static Shared found;
  return found;
}

using Clock = std::array<int64_t, kPipes>;
struct Range {
  int space;
  uint64_t start, stop;
  bool is_global() const { return space == kGlobal; }
};

struct Entry {
  enum Kind { kWork, kSet, kWait } kind;
  int other;  ///< pipe of the flag
  int event;
  std::string name;
  std::vector<Range> reads, writes;
  std::function<void()> work;
};

class Core {
 public:
  /// Begins a task: memories hold NaN patterns that no instruction wrote.
  void begin(NPUArch arch) {
    finish();
    for (int space = kUb; space < kSpaces; ++space) {
      const size_t size = size_t(capacity(space, arch));
      if (bytes_[space].size() == size && !is_used_[space]) continue;
      bytes_[space].assign(size, 0xFF);
      written_[space].assign(size, false);
      is_used_[space] = false;
    }
    arch_ = arch;
  }
  bool is_a5() const { return arch_ == NPUArch::A5; }
  int64_t size(int space) const { return capacity(space, arch_); }
  uint8_t* at(int space, int64_t address) { return bytes_[space].data() + address; }

  /// Keeps what the task executes, if it is the first of its kind.
  void keep(const char* function, int number, const void* views, const void* scalars) {
    std::lock_guard<std::recursive_mutex> guard(shared().lock);
    trace_ = shared().trace.head(function, number, views, scalars);
  }

  void issue(Pipe pipe, std::string name, Amount amount, std::vector<Range> reads, std::vector<Range> writes,
             std::function<void()> work) {
    const int64_t sizes[] = {amount.rows, amount.cols, amount.terms, amount.itemsize};
    if (!trace_.empty()) {
      trace_ += std::string("i ") + kNames[pipe] + " " + name;
      for (const int64_t size : sizes) trace_ += " " + std::to_string(size);
      trace_ += "\n";
    }
    queues_[pipe].push_back({Entry::kWork, 0, 0, name, std::move(reads), std::move(writes), std::move(work)});
    Entry& entry = queues_[pipe].back();
    const int64_t index = ++counts_[pipe];
    for (const Range& range : entry.reads) note(range, pipe, index, false, name);
    for (const Range& range : entry.writes) note(range, pipe, index, true, name);
  }

  /// A flag that is set before its pipe has anything to do orders nothing: it is never left out.
  void set(Pipe from, Pipe to, int event, const char* file, int line) {
    Flag& flag = flags_[from][to][check_event(event)];
    flag.is_skipped = counts_[from] > fenced_[from] && shared().skips(file, line);
    if (flag.is_skipped) return;
    if (flag.sets != flag.waits) report("flag is set twice: ", from, to, event);
    if (known_[from][to] < flag.waited)
      report("flag is set before its last wait must be over: ", from, to, event);
    ++flag.sets;
    flag.clock = known_[from];
    flag.clock[from] = counts_[from];
    keep_flag("s ", from, to, event);
    queues_[from].push_back({Entry::kSet, to, event, {}, {}, {}, {}});
  }
  void wait(Pipe from, Pipe to, int event) {
    Flag& flag = flags_[from][to][check_event(event)];
    if (flag.is_skipped) return;
    if (flag.waits >= flag.sets) report("flag is not set before it is waited for: ", from, to, event);
    ++flag.waits;
    flag.waited = ++counts_[to];
    for (int p = 0; p < kPipes; ++p) known_[to][p] = std::max(known_[to][p], flag.clock[p]);
    keep_flag("w ", from, to, event);
    queues_[to].push_back({Entry::kWait, from, event, {}, {}, {}, {}});
    if (to == PIPE_S) catch_up();
  }
  /// The scalar unit reads or writes bytes of the unified buffer, at this point of the code.
  void access(uint64_t address, uint64_t size, bool writes) {
    std::lock_guard<std::recursive_mutex> guard(shared().lock);
    note({kUb, address, address + size}, PIPE_S, ++counts_[PIPE_S], writes, "the scalar unit");
    const auto begin = written_[kUb].begin() + int64_t(address);
    if (writes) {
      std::fill(begin, begin + int64_t(size), true);
      is_used_[kUb] = true;
    } else if (!std::all_of(begin, begin + int64_t(size), [](bool is) { return is; })) {
      shared().report("the scalar unit reads bytes that nothing wrote");
    }
  }
  void barrier(Pipe pipe, const char* file, int line) {
    if (pipe == PIPE_ALL) {
      if (!trace_.empty()) trace_ += "b\n";
      complete();
    } else if (!shared().skips(file, line)) {
      known_[pipe][pipe] = counts_[pipe];
    }
  }

  /// Ends a task: all flags must be waited for.
  void finish() {
    std::lock_guard<std::recursive_mutex> guard(shared().lock);
    complete();
    shared().trace.text += trace_;
    trace_.clear();
    for (auto& of_pipe : flags_) {
      for (auto& of_pair : of_pipe) {
        for (Flag& flag : of_pair) {
          if (flag.sets != flag.waits) shared().report("a flag is set and not waited for");
          flag = Flag{};
        }
      }
    }
  }

 private:
  struct Flag {
    int64_t sets = 0, waits = 0, waited = 0;
    Clock clock{};
    bool is_up = false;
    bool is_skipped = false;
  };
  struct Shadow {
    int writer = -1;
    int64_t written = 0;
    Clock read{};
  };

  void keep_flag(const char* kind, int from, int to, int event) {
    if (!trace_.empty())
      trace_ += std::string(kind) + kNames[from] + " " + kNames[to] + " " + std::to_string(event) + "\n";
  }

  static int check_event(int event) { return event >= 0 && event < kEvents ? event : 0; }

  void report(const char* what, int from, int to, int event) {
    std::lock_guard<std::recursive_mutex> guard(shared().lock);
    shared().report(what + std::string(kNames[from]) + " to " + kNames[to] + ", event " +
                    std::to_string(event));
  }

  /// Whether instruction `index` of `other` must be complete before the next one of `pipe` starts.
  bool is_ordered(int pipe, int other, int64_t index) const {
    if (other == pipe && (pipe == PIPE_M || pipe == PIPE_S || (pipe == PIPE_V && is_a5()))) return true;
    return index <= known_[pipe][other];
  }

  void note(const Range& range, int pipe, int64_t index, bool writes, const std::string& name) {
    const uint64_t unit = range.is_global() ? 4 : kBlock;
    bool is_bad = false;
    for (uint64_t at = range.start / unit; at * unit < range.stop; ++at) {
      Shadow& shadow = shadows_[range.space][at];
      const bool is_mine = shadow.writer == pipe && shadow.written == index;
      if (shadow.writer >= 0 && !is_mine && !is_ordered(pipe, shadow.writer, shadow.written)) is_bad = true;
      if (!writes) {
        shadow.read[pipe] = index;
        continue;
      }
      for (int p = 0; p < kPipes; ++p) {
        const bool is_own = p == pipe && shadow.read[p] == index;
        if (shadow.read[p] && !is_own && !is_ordered(pipe, p, shadow.read[p])) is_bad = true;
      }
      shadow.writer = pipe;
      shadow.written = index;
    }
    if (is_bad) {
      std::lock_guard<std::recursive_mutex> guard(shared().lock);
      shared().report("no flag orders " + name + (writes ? ", which writes" : ", which reads"));
    }
  }

  /// Executes all queues. Flags that are set stay set.
  void complete() {
    std::lock_guard<std::recursive_mutex> guard(shared().lock);
    execute();
    fenced_ = counts_;
    for (Clock& clock : known_) clock = counts_;
    for (auto& shadow : shadows_) shadow.clear();
  }

  void execute() {
    advance();
    for (auto& queue : queues_) {
      if (!queue.empty()) shared().report("a pipe waits for a flag that is never set");
      queue.clear();
    }
  }
  /// Executes all that no flag holds back.
  void advance() {
    const bool ahead = shared().loads_first;
    const int order[] = {PIPE_MTE2, PIPE_MTE1, PIPE_V, PIPE_M, PIPE_MTE3, PIPE_FIX, PIPE_S};
    for (bool has_moved = true; has_moved;) {
      has_moved = false;
      for (int i = 0; i < kPipes && !has_moved; ++i) {
        const int pipe = order[ahead ? i : kPipes - 1 - i];
        has_moved = !queues_[pipe].empty() && step(pipe);
      }
    }
  }

  /// The scalar unit goes on when its flags are set. Other pipes do no more than that, or all that they can.
  void catch_up() {
    std::lock_guard<std::recursive_mutex> guard(shared().lock);
    if (shared().loads_first) advance();
    while (!queues_[PIPE_S].empty()) {
      if (!pull(PIPE_S, 0)) return;
    }
  }
  /// Executes the next instruction of a pipe, after those that it waits for; false if it can not.
  bool pull(int pipe, int depth) {
    if (queues_[pipe].empty() || depth > kPipes) return false;
    if (step(pipe)) return true;
    const Entry& entry = queues_[pipe].front();
    const int other = entry.other, event = check_event(entry.event);
    while (!flags_[other][pipe][event].is_up) {
      if (!pull(other, depth + 1)) return false;
    }
    return step(pipe);
  }

  bool step(int pipe) {
    Entry& entry = queues_[pipe].front();
    if (entry.kind == Entry::kWait) {
      Flag& flag = flags_[entry.other][pipe][check_event(entry.event)];
      if (!flag.is_up) return false;
      flag.is_up = false;
    } else if (entry.kind == Entry::kSet) {
      flags_[pipe][entry.other][check_event(entry.event)].is_up = true;
    } else {
      run(entry);
    }
    queues_[pipe].pop_front();
    return true;
  }

  void run(Entry& entry) {
    for (const Range& range : entry.reads) {
      if (range.is_global()) continue;
      const auto begin = written_[range.space].begin();
      if (!std::all_of(begin + range.start, begin + range.stop, [](bool is) { return is; })) {
        shared().report(entry.name + " reads bytes of " + kSpaceNames[range.space] + " that nothing wrote");
      }
    }
    entry.work();
    for (const Range& range : entry.writes) {
      if (range.is_global()) continue;
      const auto begin = written_[range.space].begin();
      std::fill(begin + range.start, begin + range.stop, true);
      is_used_[range.space] = true;
    }
  }

  NPUArch arch_ = NPUArch::A2A3;
  std::vector<uint8_t> bytes_[kSpaces];
  std::vector<bool> written_[kSpaces];
  bool is_used_[kSpaces]{};
  std::deque<Entry> queues_[kPipes];
  std::string trace_;  ///< of this task; empty if it is not kept
  Clock counts_{};
  Clock fenced_{};  ///< instructions of each pipe before the last barrier of all pipes
  Clock known_[kPipes]{};
  Flag flags_[kPipes][kPipes][kEvents]{};
  std::unordered_map<uint64_t, Shadow> shadows_[kSpaces];
};

inline Core& core() {
  thread_local Core found;
  return found;
}

/// A task of emitted code.
struct Task {
  Task(NPUArch arch, const char* function, int32_t number, const void* views, const void* scalars) {
    core().begin(arch);
    core().keep(function, number, views, scalars);
  }
  ~Task() { core().finish(); }
};

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::lock_guard<std::recursive_mutex> guard(shared().lock);
  shared().report(what);
}

}  // namespace standin

#define NPU_MEMORY_INIT(arch) const standin::Task standin_task(arch, __func__, phase, views, scalars)

inline void set_flag(Pipe from, Pipe to, int event, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  standin::core().set(from, to, event, file, line);
}
inline void wait_flag(Pipe from, Pipe to, int event) { standin::core().wait(from, to, event); }
inline void pipe_barrier(Pipe pipe, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  standin::core().barrier(pipe, file, line);
}
