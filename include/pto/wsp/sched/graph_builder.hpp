// SPDX-License-Identifier: MIT
/// \file
/// Builds a kept graph: one walk of the program, with the hazards of all tasks.
#pragma once

#include <vector>

#include "pto/wsp/sched/kept_graph.hpp"
#include "pto/wsp/sched/run.hpp"
#include "pto/wsp/sched/walk.hpp"

namespace pto::wsp::sched {

/// No wait is ever satisfied during this walk, so a task gets all waits that it may need in any run. The
/// builder stops at flush points. Its caller then runs the tasks built so far and passes the value that was
/// read.
class GraphBuilder {
 public:
  enum class Outcome { kMore, kFlush, kEnded };

  GraphBuilder(KeptGraph& graph, Run& run) : graph_(graph), run_(run), plan_(run.plan()) {
    // No slice of this walk has a line in the run's progress: its numbers begin at 0.
    NumberingStart start;
    start.max_tasks = run.numbering_start().max_tasks;
    start.jitter = run.options().jitter;
    walk_.begin(run, start, run.options().num_dispatchers());
    is_scheduled_ = run.options().is_scheduled();
    for (uint32_t reg = 0; reg < plan_.program().header.num_registers; ++reg) {
      if (plan_.program().is_variable[reg]) variables_.push_back({reg, 0});
    }
    for (uint32_t site = 0; site < plan_.sites.size(); ++site) add_site(site);
    writer_.begin(graph, kMaxWords + 3 * variables_.size());
  }

  uint64_t num_tasks() const { return num_tasks_; }
  const bytecode::Expander& expander() const { return walk_.expander(); }

  /// Continues the walk for a bounded number of events. Throws errors that only the walk can find.
  Outcome step() {
    for (int events = 0; events < kStepEvents; ++events) {
      if (!walk_.handle(walk_.expander().next(), *this)) return outcome_;
    }
    return Outcome::kMore;
  }

  /// The value that the flush point waits for. \pre all tasks before it are complete
  int64_t read_flushed() const { return plan_.evaluate(plan_.sets[flush_].value, walk_.registers()); }
  void pass_flush(int64_t value) { walk_.expander().assign(flush_, value); }

 private:
  friend class Walk;  // which calls the functions of an engine

  static constexpr int kStepEvents = 1024;
  static constexpr size_t kMaxWords =
      6 + 3 * WaitList::kMaxNames + 7 * size_t(bytecode::kMaxLoopDepth);  ///< without variables
  /// What 4 bytes can count, and some slices.
  static constexpr uint64_t kMaxTasks = UINT32_MAX - 1024;
  static_assert(kMaxWords + 3 * UINT16_MAX < KeptGraph::kChunkWords);

  struct Variable {
    uint32_t reg;
    int64_t value;  ///< that was written last
  };

  /// Facts about the tasks of a site that hold before the walk.
  struct Site {
    uint64_t ns;    ///< estimated time of one task, if `is_usual`
    int32_t loop;   ///< around the site, or -1
    bool is_usual;  ///< only its regions order it
    /// Depth of the loop around the site if its tasks in inner iterations wait for nothing and later tasks
    /// wait for the last of them; else -1.
    int32_t silent_depth;
  };

  /// Notes that strand number `by` - 1 waits for a task.
  struct Awaited {
    uint64_t by;
    Name name;
  };
  static constexpr uint32_t kMaxAwaited = 64;  ///< that are remembered

  /// The position of a slice in its strand.
  struct Place {
    uint32_t strand;
    uint32_t first;  ///< tasks of the strand before the slice
  };

  // Events

  bool begin_unit(uint32_t) { return true; }
  void end_unit() {}

  /// Ends the strand, because the tasks built so far must run before the walk continues.
  bool on_flush(uint32_t set) {
    if (numbering().is_open()) close(true);
    flush_ = set;
    outcome_ = Outcome::kFlush;
    return false;
  }

  bool on_end() {
    graph_.finish(num_tasks_, writer_.room());
    outcome_ = Outcome::kEnded;
    return false;
  }

  void add_site(uint32_t site) {
    const bytecode::QuickSite& quick = plan_.sites[site];
    const bytecode::SiteForm& form = plan_.program().sites[site];
    const bool is_usual = !quick.checks_late && !quick.cost.is_given;
    const bool is_silent = is_usual && form.num_afters == 0 && walk_.ordering().is_silent_between(site);
    const int32_t silent_depth = is_silent ? run_.marks()->sites[site].repeat_depth : -1;
    sites_.push_back({is_usual ? run_.task_cost(site, nullptr) : 0, form.loop, is_usual, silent_depth});
  }

  [[gnu::always_inline]] inline bool on_task(uint32_t site) {
    const Site& known = sites_[site];
    if (known.silent_depth >= 0 && walk_.expander().is_between(uint32_t(known.silent_depth)) &&
        numbering().has_room()) {
      writer_.reserve();
      numbering().add_task(known.ns);
    } else {
      order(site, known);
    }
    write_state(known.loop);
    writer_.task(site);
    ++num_tasks_;
    return true;
  }

  /// Numbers a task and writes its waits.
  void order(uint32_t site, const Site& known) {
    if (!known.is_usual) walk_.check_late(site);
    walk_.place(site, *this);
    writer_.reserve();
    numbering().add_task(known.is_usual ? known.ns : run_.task_cost(site, walk_.registers()));
    walk_.order(site, true);
    const WaitList& waits = walk_.waits();
    for (int i = 0, count = waits.size(); i < count; ++i) write_wait(waits[i]);
  }

  bool open() {
    const bool begins_strand = numbering().begins_strand();
    if (num_tasks_ > kMaxTasks) throw EngineError("too-many-tasks", "the graph has too many tasks");
    numbering().open();
    writer_.reserve();
    if (begins_strand) {
      first_in_strand_ = num_tasks_;
      const Traits traits = walk_.policy().strand_traits(numbering().num_strands() - 1);
      graph_.begin_strand(writer_.at(), num_tasks_, false, is_scheduled_ ? &traits : nullptr);
    } else {
      writer_.slice();
    }
    places_.push_back({uint32_t(graph_.num_built() - 1), uint32_t(num_tasks_ - first_in_strand_)});
    is_fresh_ = true;
    return true;
  }

  void close(bool ends_strand) {
    writer_.reserve();
    for (const Group& group : numbering().groups()) writer_.reach(group.line);
    if (ends_strand) writer_.end();
    if (ends_strand) graph_.publish(graph_.num_built());
    numbering().close(ends_strand);
  }

  // Waits

  void write_wait(Name name) {
    if (is_task_name(name)) return write_task_wait(name);
    if (is_watermark_name(name)) {
      // Waits for the whole last strand before the count.
      const Place last = places_[name - 1];
      const uint64_t strands = std::min<uint64_t>(last.strand + uint64_t{1}, graph_.num_built() - 1);
      if (strands > 0) writer_.wait_all(uint32_t(strands));
    } else {
      writer_.wait_group(group_line_of(name), name & kGroupMask);
    }
  }

  /// Skips a wait for a task that the strand has waited for already, or for an earlier task of its slice.
  void write_task_wait(Name name) {
    const uint64_t by = graph_.num_built(), slice = slice_of(name);
    Awaited& last = awaited_[slice % kMaxAwaited];
    if (last.by == by && slice_of(last.name) == slice && last.name >= name) return;
    last = {by, name};
    const Place place = places_[slice];
    if (place.strand + uint64_t{1} == by) return;  // a strand runs in program order
    writer_.wait(place.strand, place.first + uint32_t(name & kTaskMask));
  }

  // State that a task relies on

  /// For a task in `loop`, if that is not -1.
  void write_state(int32_t loop) {
    const uint32_t depth = is_fresh_ ? 0 : walk_.expander().changed_depth();
    if (depth != bytecode::kMaxLoopDepth) {
      walk_.expander().forget_changes();
      write_loops(loop, depth);
    }
    for (Variable& variable : variables_) {
      const int64_t value = walk_.registers()[variable.reg];
      if (value == variable.value && !is_fresh_) continue;
      variable.value = value;
      writer_.set(variable.reg, value);
    }
    is_fresh_ = false;
  }

  /// From the outermost loop to `loop`.
  void write_loops(int32_t loop, uint32_t from_depth) {
    if (loop < 0 || plan_.loops[size_t(loop)].depth < from_depth) return;
    write_loops(plan_.program().loops[size_t(loop)].parent, from_depth);
    const bytecode::QuickLoop& quick = plan_.loops[size_t(loop)];
    writer_.enter(uint32_t(loop), walk_.registers() + quick.reg, quick.num_registers());
  }

  Numbering& numbering() { return walk_.numbering(); }

  KeptGraph& graph_;
  Run& run_;
  const bytecode::Plan& plan_;
  Walk walk_;
  Outcome outcome_ = Outcome::kMore;  ///< of the walk where it stopped last
  std::vector<Site> sites_;
  std::vector<Place> places_;  ///< per slice
  Awaited awaited_[kMaxAwaited] = {};
  std::vector<Variable> variables_;
  GraphWriter writer_;
  bool is_scheduled_ = false;
  uint64_t num_tasks_ = 0;
  uint64_t first_in_strand_ = 0;  ///< task
  uint32_t flush_ = 0;
  bool is_fresh_ = false;  ///< no state was written since the slice began
};

}  // namespace pto::wsp::sched
