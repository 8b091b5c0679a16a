// SPDX-License-Identifier: MIT
/// \file
/// Builds a graph that is kept: one walk of the program, with the hazards of all tasks.
#pragma once

#include <vector>

#include "pto/wsp/bytecode/regions.hpp"
#include "pto/wsp/sched/kept_graph.hpp"
#include "pto/wsp/sched/ordering.hpp"
#include "pto/wsp/sched/run.hpp"

namespace pto::wsp::sched {

/// Nothing runs while names are given, so that a task is known to wait for all that it could have to wait for
/// in any run. Stops at flush points: whoever builds then runs what there is, and says what it read.
class GraphBuilder {
 public:
  enum class Outcome { kMore, kFlush, kEnded };

  GraphBuilder(KeptGraph& graph, Run& run)
      : graph_(graph), run_(run), plan_(run.plan()), expander_(plan_), checker_(plan_) {
    ordering_.begin(run);
    NumberingStart start;
    start.jitter = run.options().jitter;
    numbering_.begin(start);
    for (uint32_t reg = 0; reg < plan_.program().header.num_registers; ++reg) {
      if (plan_.program().is_variable[reg]) variables_.push_back({reg, 0});
    }
    for (uint32_t site = 0; site < plan_.sites.size(); ++site) add_site(site);
    most_words_ = ptrdiff_t(kMostWords + 3 * variables_.size());
    add_chunk();
  }

  uint64_t num_tasks() const { return num_tasks_; }
  const bytecode::Expander& expander() const { return expander_; }

  /// Goes on for a while. Throws what only the walk can find.
  Outcome step() {
    for (int events = 0; events < kStepEvents; ++events) {
      const bytecode::Event event = expander_.next();
      if (event.kind == bytecode::Event::kTask) {
        emit(event.index);
      } else if (!handle(event)) {
        return event.kind == bytecode::Event::kFlush ? Outcome::kFlush : Outcome::kEnded;
      }
    }
    return Outcome::kMore;
  }

  /// The value that the flush point waits for. \pre all tasks before it are complete
  int64_t read_flushed() const { return plan_.evaluate(plan_.sets[flush_].value, expander_.registers()); }
  void pass_flush(int64_t value) { expander_.assign(flush_, value); }

 private:
  static constexpr int kStepEvents = 1024;
  static constexpr size_t kMostWords =
      8 + 3 * WaitList::kMostNames + 7 * size_t(bytecode::kMaxLoopDepth);  ///< without variables
  /// What 4 bytes can count, and some slices.
  static constexpr uint64_t kMostTasks = UINT32_MAX - 1024;
  static_assert(kMostWords + 3 * UINT16_MAX < KeptGraph::kChunkWords);

  struct Variable {
    uint32_t reg;
    int64_t value;  ///< that was written down last
  };

  /// What is known beforehand of the tasks of a site.
  struct Site {
    uint64_t ns;             ///< what one may take, if `is_usual`
    int32_t loop;            ///< around the site, or -1
    bool is_unit;            ///< each is a unit of its own
    bool is_usual;           ///< nothing is looked at but what it touches
    bool is_silent_between;  ///< one between others of its loop waits for nothing, and who comes behind waits
                             ///< for later ones
  };

  /// That the strand which is number `by` - 1 waits for a task.
  struct Awaited {
    uint64_t by;
    Name name;
  };
  static constexpr uint32_t kMostAwaited = 64;  ///< that are remembered

  /// Where a slice lies in its strand.
  struct Place {
    uint32_t strand;
    uint32_t first;  ///< tasks of the strand before the slice
  };

  /// False where the walk cannot go on by itself.
  bool handle(bytecode::Event event) {
    switch (event.kind) {
      case bytecode::Event::kUnit:
      case bytecode::Event::kUnitEnd:
        if (numbering_.is_open() && numbering_.is_over()) close(true);
        return true;
      case bytecode::Event::kEnter:
        close_open();
        numbering_.enter_group();
        return true;
      case bytecode::Event::kIteration:
        close_open();
        numbering_.begin_iteration();
        return true;
      case bytecode::Event::kLeave:
        close_open();
        numbering_.leave_group();
        return true;
      case bytecode::Event::kFlush:
        close_open();
        flush_ = event.index;
        return false;
      case bytecode::Event::kEnd:
        close_open();
        graph_.finish(num_tasks_, room_);
        return false;
      default: return true;
    }
  }

  void add_site(uint32_t site) {
    const bytecode::QuickSite& quick = plan_.sites[site];
    const bytecode::SiteForm& form = plan_.program().sites[site];
    const bool is_usual = !quick.checks_late && !quick.cost.is_given;
    const bool is_silent = is_usual && form.num_afters == 0 && ordering_.is_silent_between(site);
    sites_.push_back(
        {is_usual ? run_.task_cost(site, nullptr) : 0, form.loop, quick.is_unit, is_usual, is_silent});
  }

  void emit(uint32_t site) {
    const Site& known = sites_[site];
    if (known.is_silent_between && expander_.is_between(site) && numbering_.has_room()) {
      make_room();
      numbering_.add_task(known.ns);
    } else {
      order(site, known);
    }
    write_state(known.loop);
    write(GraphOp::kTask, site);
    ++num_tasks_;
  }

  /// Finds the place of a task, and writes down what it waits for.
  void order(uint32_t site, const Site& known) {
    if (!known.is_usual) check_late(site);
    if (numbering_.is_open() && (known.is_unit ? numbering_.is_over() : numbering_.is_full()))
      close(known.is_unit);
    if (!numbering_.is_open()) open();
    make_room();
    numbering_.add_task(known.is_usual ? known.ns : run_.task_cost(site, expander_.registers()));
    ordering_.add_task(site, expander_, numbering_, true);
    const WaitList& waits = ordering_.waits();
    for (int i = 0, count = waits.size(); i < count; ++i) write_wait(waits[i]);
  }

  void check_late(uint32_t site) {
    if (plan_.sites[site].checks_late) checker_.check(plan_.sites[site], expander_.registers(), true);
  }

  void open() {
    const bool begins_strand = numbering_.begins_strand();
    if (num_tasks_ > kMostTasks)
      throw EngineError("too-many-tasks", "a graph of so many tasks cannot be built");
    numbering_.open();
    make_room();
    if (begins_strand) {
      first_in_strand_ = num_tasks_;
      graph_.begin_strand(room_.at, num_tasks_);
    } else {
      write(GraphOp::kSlice, 0);
    }
    places_.push_back({uint32_t(graph_.num_built() - 1), uint32_t(num_tasks_ - first_in_strand_)});
    is_fresh_ = true;
  }

  void close_open() {
    if (numbering_.is_open()) close(true);
  }

  void close(bool ends_strand) {
    make_room();
    for (const Group& group : numbering_.groups()) write(GraphOp::kReach, group.line);
    if (ends_strand) write(GraphOp::kEnd, 0);
    if (ends_strand) graph_.publish(graph_.num_built());
    numbering_.close(ends_strand);
  }

  // Waits

  void write_wait(Name name) {
    if (is_task_name(name)) return write_task_wait(name);
    if (is_watermark_name(name)) {
      // A strand that was begun before a moment is waited for whole.
      const Place last = places_[name - 1];
      const uint64_t strands = std::min<uint64_t>(last.strand + uint64_t{1}, graph_.num_built() - 1);
      if (strands > 0) write(GraphOp::kWaitAll, uint32_t(strands));
    } else {
      write(GraphOp::kWaitGroup, group_line_of(name));
      write_wide(int64_t(name & kGroupMask));
    }
  }

  /// A strand that has waited for a task does not wait for it, or for one before it in its slice, again.
  void write_task_wait(Name name) {
    const uint64_t by = graph_.num_built(), slice = slice_of(name);
    Awaited& last = awaited_[slice % kMostAwaited];
    if (last.by == by && slice_of(last.name) == slice && last.name >= name) return;
    last = {by, name};
    const Place place = places_[slice];
    if (place.strand + uint64_t{1} == by) return;  // a strand runs in program order
    write(GraphOp::kWait, place.strand);
    *room_.at++ = place.first + uint32_t(name & kTaskMask);
  }

  // What a task can count on

  /// For a task in `loop`, if that is not -1.
  void write_state(int32_t loop) {
    const uint32_t depth = is_fresh_ ? 0 : expander_.changed_depth();
    if (depth != bytecode::kMaxLoopDepth) {
      expander_.forget_changes();
      write_loops(loop, depth);
    }
    for (Variable& variable : variables_) {
      const int64_t value = expander_.registers()[variable.reg];
      if (value == variable.value && !is_fresh_) continue;
      variable.value = value;
      write(GraphOp::kSet, variable.reg);
      write_wide(value);
    }
    is_fresh_ = false;
  }

  /// From the outside in, down to `loop`.
  void write_loops(int32_t loop, uint32_t from_depth) {
    if (loop < 0 || plan_.loops[size_t(loop)].depth < from_depth) return;
    write_loops(plan_.program().loops[size_t(loop)].parent, from_depth);
    const bytecode::QuickLoop& quick = plan_.loops[size_t(loop)];
    const int64_t* registers = expander_.registers() + quick.reg;
    bool is_near = true;
    for (uint32_t i = 0; i < quick.num_registers(); ++i)
      is_near = is_near && registers[i] == int32_t(registers[i]);
    write(is_near ? GraphOp::kEnterNear : GraphOp::kEnter, uint32_t(loop));
    for (uint32_t i = 0; i < quick.num_registers(); ++i) {
      if (is_near) {
        *room_.at++ = uint32_t(registers[i]);
      } else {
        write_wide(registers[i]);
      }
    }
  }

  // Words

  void write(GraphOp op, uint32_t operand) { *room_.at++ = operand << kGraphOpBits | uint32_t(op); }

  void write_wide(int64_t value) {
    std::memcpy(room_.at, &value, sizeof(value));
    room_.at += 2;
  }

  /// For all that is written of one task, or at the end of a slice.
  void make_room() {
    if (room_.end - room_.at >= most_words_) return;
    uint32_t* at = room_.at;
    add_chunk();
    *at++ = uint32_t(GraphOp::kJump);
    const uint32_t* to = room_.at;
    std::memcpy(at, &to, sizeof(to));
  }

  void add_chunk() { room_ = graph_.add_chunk(); }

  KeptGraph& graph_;
  Run& run_;
  const bytecode::Plan& plan_;
  Ordering ordering_;
  bytecode::Expander expander_;
  bytecode::TaskChecker checker_;
  Numbering numbering_;
  std::vector<Site> sites_;
  std::vector<Place> places_;  ///< per slice
  Awaited awaited_[kMostAwaited] = {};
  std::vector<Variable> variables_;
  KeptGraph::Room room_{};
  ptrdiff_t most_words_ = 0;
  uint64_t num_tasks_ = 0;
  uint64_t first_in_strand_ = 0;  ///< task
  uint32_t flush_ = 0;
  bool is_fresh_ = false;  ///< nothing was written down of the state since the slice began
};

}  // namespace pto::wsp::sched
