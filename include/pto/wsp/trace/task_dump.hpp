// SPDX-License-Identifier: MIT
/// \file
/// Tasks and their waits as text: one line per task, or all details. docs/task_dump.md describes it.
#pragma once

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pto::wsp::trace {

/// A task as a dump shows it.
struct DumpedTask {
  std::string name;
  uint64_t function = 0;      ///< address of what runs; 0: nothing, or unknown
  uint64_t buffer_bytes = 0;  ///< tiles that share no memory
  uint64_t reused_bytes = 0;  ///< tiles that share memory where they are not in use together
  bool is_complete = false;
  std::vector<uint64_t> before;        ///< the tasks that it waits for, ascending
  std::vector<std::string> arguments;  ///< one line each: "in X[0:8, 0:8]"
};

class TaskDump {
 public:
  enum class Detail { kBrief, kVerbose };

  /// Adds the next task in program order. A task without a name is not shown: tasks that wait for it wait for
  /// what it waits for. \pre it waits for earlier tasks only
  void add(DumpedTask task) {
    const std::vector<uint64_t> before = std::move(task.before);
    task.before = shown(before);
    const bool is_shown = !task.name.empty();
    added_.push_back({before, is_shown ? std::vector<uint64_t>{tasks_.size()} : task.before, is_shown});
    if (!is_shown) return;
    after_.emplace_back();
    for (const uint64_t earlier : task.before) after_[earlier].push_back(tasks_.size());
    tasks_.push_back(std::move(task));
  }

  void write(std::FILE* out, Detail detail) const {
    write_summary(out);
    std::fprintf(out, "TASK TABLE\n");
    for (size_t i = 0; i < tasks_.size(); ++i) {
      write_task(out, i);
      if (detail == Detail::kVerbose) write_details(out, tasks_[i]);
    }
    if (detail == Detail::kVerbose) {
      write_ready_queue(out);
      write_tensor_map(out);
    }
    std::fprintf(out, "\nDEPENDENCY GRAPH\n");
    for (size_t i = 0; i < tasks_.size(); ++i) {
      for (const uint64_t after : after_[i]) std::fprintf(out, "  Task %zu -> Task %" PRIu64 "\n", i, after);
    }
    std::fprintf(out, "\nEND\n");
  }

 private:
  static constexpr const char* kRule =
      "================================================================================\n";
  static constexpr int kNameWidth = 14;

  struct Added {
    std::vector<uint64_t> before;   ///< added tasks that it waits for, ascending
    std::vector<uint64_t> numbers;  ///< its number, or those of the tasks that are shown in its place
    bool is_shown;
  };

  /// The numbers of the tasks that are shown for some added ones, ascending.
  std::vector<uint64_t> shown(const std::vector<uint64_t>& added) const {
    std::set<uint64_t> numbers;
    for (const uint64_t place : added) {
      const auto waits = [&](uint64_t other) {
        return std::binary_search(added_[other].before.begin(), added_[other].before.end(), place);
      };
      // A hidden task is left out if another one of them waits for it.
      if (!added_[place].is_shown && std::any_of(added.begin(), added.end(), waits)) continue;
      numbers.insert(added_[place].numbers.begin(), added_[place].numbers.end());
    }
    return {numbers.begin(), numbers.end()};
  }

  /// The number of incomplete tasks that a task waits for.
  size_t count_open(const DumpedTask& task) const {
    size_t count = 0;
    for (const uint64_t before : task.before) count += tasks_[before].is_complete ? 0 : 1;
    return count;
  }

  std::vector<uint64_t> ready_tasks() const {
    std::vector<uint64_t> ready;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (!tasks_[i].is_complete && count_open(tasks_[i]) == 0) ready.push_back(i);
    }
    return ready;
  }

  void write_summary(std::FILE* out) const {
    size_t num_complete = 0;
    for (const DumpedTask& task : tasks_) num_complete += task.is_complete ? 1 : 0;
    std::fprintf(out, "%sPTO RUNTIME DUMP\n%s\nSUMMARY\n", kRule, kRule);
    std::fprintf(out, "  Total tasks scheduled:  %zu\n", tasks_.size());
    std::fprintf(out, "  Total tasks completed:  %zu\n", num_complete);
    std::fprintf(out, "  Ready queue size:       %zu\n\n", ready_tasks().size());
  }

  void write_task(std::FILE* out, size_t i) const {
    const DumpedTask& task = tasks_[i];
    const size_t fanin = task.is_complete ? 0 : count_open(task);
    const char* state = task.is_complete ? "[DONE]" : fanin == 0 ? "[READY]" : "[WAIT]";
    std::fprintf(out, "  Task %zu: %-*s %-7s fanin=%zu buf=%" PRIu64 "B fanout=[", i, kNameWidth,
                 task.name.c_str(), state, fanin, task.reused_bytes);
    write_list(out, after_[i]);
    std::fprintf(out, "]\n");
  }

  static void write_details(std::FILE* out, const DumpedTask& task) {
    if (task.function != 0) std::fprintf(out, "    function 0x%" PRIx64 "\n", task.function);
    std::fprintf(out, "    buffers %" PRIu64 "B without reuse, %" PRIu64 "B with reuse\n    after [",
                 task.buffer_bytes, task.reused_bytes);
    write_list(out, task.before);
    std::fprintf(out, "]\n");
    for (const std::string& argument : task.arguments) std::fprintf(out, "    %s\n", argument.c_str());
  }

  void write_ready_queue(std::FILE* out) const {
    std::fprintf(out, "\nREADY QUEUE\n  Tasks: [");
    write_list(out, ready_tasks());
    std::fprintf(out, "]\n");
  }

  /// What the next task that touches a region as it is would find.
  void write_tensor_map(std::FILE* out) const {
    struct Entry {
      std::string region, writer;
      std::vector<uint64_t> readers;
    };
    std::vector<Entry> entries;
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      for (const std::string& argument : tasks_[i].arguments) {
        const size_t behind_role = argument.find(' ');
        std::string region = argument.substr(behind_role + 1);
        const auto [at, is_new] = places.try_emplace(region, entries.size());
        if (is_new) entries.push_back({std::move(region), "none", {}});
        Entry& entry = entries[at->second];
        if (argument.compare(0, behind_role, "in") == 0) {
          if (entry.readers.empty() || entry.readers.back() != i) entry.readers.push_back(i);
        } else {
          entry.writer = std::to_string(i);
          entry.readers.clear();
        }
      }
    }
    std::fprintf(out, "\nTENSOR MAP\n");
    for (const Entry& entry : entries) {
      std::fprintf(out, "  %s writer=%s readers=[", entry.region.c_str(), entry.writer.c_str());
      write_list(out, entry.readers);
      std::fprintf(out, "]\n");
    }
  }

  static void write_list(std::FILE* out, const std::vector<uint64_t>& tasks) {
    for (size_t i = 0; i < tasks.size(); ++i) std::fprintf(out, "%s%" PRIu64, i == 0 ? "" : ",", tasks[i]);
  }

  std::vector<Added> added_;
  std::vector<DumpedTask> tasks_;
  std::vector<std::vector<uint64_t>> after_;
};

}  // namespace pto::wsp::trace
