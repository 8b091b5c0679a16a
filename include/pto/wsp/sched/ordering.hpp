// SPDX-License-Identifier: MIT
/// \file
/// Finds the waits of the tasks of one walk: earlier tasks that touch the same elements, explicit edges, the
/// previous task of a stream, the previous slice of the strand, and barriers.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "pto/wsp/graph/hazards.hpp"
#include "pto/wsp/sched/policy.hpp"
#include "pto/wsp/sched/run.hpp"
#include "pto/wsp/sched/trusted_loops.hpp"

namespace pto::wsp::sched {

class Ordering {
 public:
  using Unit = graph::UnitSummary;

  /// For a walk in which no wait is ever satisfied.
  Ordering() = default;
  explicit Ordering(Progress& progress) : waits_(progress) {}

  /// Forgets all tasks. Names that remain in hazard maps of the same plan are satisfied.
  void begin(const Run& run) {
    plan_ = &run.plan();
    options_ = &run.options();
    is_plain_ =
        options_->deps != Deps::kTrust && options_->deps != Deps::kNone && options_->streams == Streams::kOff;
    const auto& sets = plan_->sets;
    tracks_ =
        options_->deps != Deps::kNone ||
        std::any_of(sets.begin(), sets.end(), [](const bytecode::QuickSet& set) { return set.is_flush; });
    if (hazards_ == nullptr || prepared_ != run.prepared() || hazards_->deps() != options_->deps) {
      hazards_.reset();
      hazards_ = std::make_unique<graph::Hazards>(*plan_, options_->deps);
      prepared_ = run.prepared();
    }
    latest_.assign(plan_->sites.size(), 0);
    streams_.clear();
    batch_slice_ = 0;
    admissions_.assign(options_->in_flight, 0);
    latest_admitted_ = admitted_after_ = 0;
    trusted_.begin(*plan_);
  }

  /// Makes `slice` and later ones wait for all slices before it.
  void begin_batch(uint64_t slice) { batch_slice_ = slice; }

  /// Slices from `slice` on are of value number `value` from 1 on, or of none if that is 0. The value is
  /// admitted when all slices before the value `in_flight - 1` before it are complete. So those before them
  /// are, and as many values are in flight as may.
  void admit(uint64_t value, uint64_t slice) {
    admitted_after_ = 0;
    if (value == 0) return;
    const uint64_t num = admissions_.size();
    if (value != latest_admitted_) admissions_[value % num] = slice;
    latest_admitted_ = value;
    if (value > num) admitted_after_ = admissions_[(value + 1) % num];
  }

  /// What the task, or the unit, that was looked at last waits for.
  WaitList& waits() { return waits_; }
  const WaitList& waits() const { return waits_; }

  /// Finds the waits of the latest task of the open slice if this dispatcher owns it, and makes later tasks
  /// wait for it.
  void add_task(uint32_t site, const bytecode::Expander& expander, const Numbering& numbering, bool is_ours,
                bool is_between) {
    const uint64_t slice = numbering.slice();
    const Stamp stamp{task_name(slice, numbering.num_tasks()), slice + 1};
    if (is_plain_) {
      waits_.begin(numbering.strand(), slice, !is_ours);
      hazards_->access(site, expander.registers(), stamp, waits_, is_between);
    } else {
      add_hazards(site, expander, stamp, numbering, is_ours, is_between);
    }
    add_afters(site, stamp.name);
    if (options_->imports != nullptr) options_->imports->find(*plan_, site, expander.registers(), waits_);
    waits_.finish();
    if (is_ours && numbering.num_tasks() == 1) add_slice_waits(numbering);
  }

  /// Whether a task of `site` in an inner iteration (see Walk::is_between) has no waits of its own.
  bool is_silent_between(uint32_t site) const {
    return options_->streams == Streams::kOff && hazards_->is_silent_between(site);
  }

  /// Begins a unit (an iteration of `loop`) in the open slice.
  void begin_unit(uint32_t loop, const int64_t* registers, const Numbering& numbering) {
    visit(int32_t(loop), registers, numbering, numbering.num_tasks() == 0);
  }

  /// Whether all waits of the unit are satisfied.
  bool is_ready(const Unit& unit, const Unit::Shape& shape, const int64_t* registers,
                const Numbering& numbering) {
    begin_waits(numbering, false);
    if (options_->deps != Deps::kNone) hazards_->find(unit, shape, registers, waits_);
    waits_.finish();
    if (numbering.num_tasks() == 0) add_slice_waits(numbering);
    return waits_.have_passed();
  }

  /// Makes later tasks wait for a unit of another dispatcher. The unit ends in the open slice.
  void add_unit(const Unit& unit, const Unit::Shape& shape, const int64_t* registers,
                const Numbering& numbering) {
    if (!tracks_) return;
    const uint64_t last = numbering.slice();
    waits_.begin(numbering.strand(), last, true);
    hazards_->pass_over(unit, shape, registers, {complete_name(last), last + 1}, waits_);
  }

  /// The value of an expression at its place before `slice`. Nothing while a task that writes one of its
  /// elements is incomplete.
  std::optional<int64_t> read(const bytecode::Value& value, const int64_t* registers, uint64_t slice) {
    const auto is_known = [&](uint16_t tensor, const int64_t* indices) {
      return is_complete(tensor, indices, slice);
    };
    return bytecode::evaluate_known(*plan_, value, registers, is_known);
  }

  /// Calls `found(waits())` for each element of an expression, at its place before `slice`, that tasks write.
  template <class Found>
  void find_reads(const bytecode::Value& value, const int64_t* registers, uint64_t slice,
                  const Found& found) {
    bytecode::evaluate_known(*plan_, value, registers, [&](uint16_t tensor, const int64_t* indices) {
      look_up_writers(tensor, indices, slice);
      found(waits_);
      return true;
    });
  }

 private:
  /// The path of schedules that order tasks by more or by less than their accesses.
  [[gnu::noinline]] void add_hazards(uint32_t site, const bytecode::Expander& expander, const Stamp& stamp,
                                     const Numbering& numbering, bool is_ours, bool is_between) {
    const int64_t* registers = expander.registers();
    visit(plan_->program().sites[site].loop, registers, numbering, numbering.num_tasks() == 1);
    begin_waits(numbering, !is_ours || options_->deps == Deps::kNone);
    if (tracks_) hazards_->access(site, registers, stamp, waits_, is_between);
    if (options_->deps == Deps::kNone) waits_.begin(numbering.strand(), numbering.slice(), !is_ours);
    waits_.trust(nullptr);
    const bytecode::QuickSite& quick = plan_->sites[site];
    if (const auto stream = stream_of(*plan_, *options_, quick, registers, expander.num_tasks() - 1))
      add_stream(*stream, stamp.name);
  }

  void visit(int32_t loop, const int64_t* registers, const Numbering& numbering, bool begins_slice) {
    if (options_->deps == Deps::kTrust)
      spans_ = &trusted_.visit(loop, registers, numbering.slice(), begins_slice);
  }

  void begin_waits(const Numbering& numbering, bool is_muted) {
    waits_.begin(numbering.strand(), numbering.slice(), is_muted);
    if (options_->deps == Deps::kTrust) waits_.trust(spans_);
  }

  /// Adds the explicit edges of a task, and makes it the latest task of its site.
  void add_afters(uint32_t site, Name name) {
    const bytecode::SiteForm& form = plan_->program().sites[site];
    const uint32_t* after = plan_->program().afters.data() + form.first_after;
    for (uint32_t i = 0; i < form.num_afters; ++i) waits_.add(latest_[after[i]]);
    latest_[site] = name;
  }

  /// Adds the previous task of its stream.
  void add_stream(int64_t stream, Name name) {
    Name& latest = streams_[stream];
    waits_.add(latest);
    latest = name;
  }

  /// Adds what a whole slice must wait for: the batches before its own, values in flight, the slice before it
  /// in its strand, and the barriers around it.
  void add_slice_waits(const Numbering& numbering) {
    const uint64_t earlier = std::max(batch_slice_, admitted_after_);
    if (earlier != 0) waits_.require(watermark_name(earlier));
    if (numbering.slice() != numbering.strand()) waits_.require(complete_name(numbering.slice() - 1));
    for (const Group& group : numbering.groups()) {
      if (group.barrier > 0) waits_.require(group_name(group.line, group.barrier));
    }
  }

  /// Whether the tasks that write an element are complete.
  bool is_complete(uint16_t tensor, const int64_t* indices, uint64_t slice) {
    look_up_writers(tensor, indices, slice);
    return waits_.size() == 0;
  }

  void look_up_writers(uint16_t tensor, const int64_t* indices, uint64_t slice) {
    waits_.begin_look(slice);
    hazards_->find_writers(tensor, indices, waits_);
    waits_.finish();
  }

  const bytecode::Plan* plan_ = nullptr;
  const RunOptions* options_ = nullptr;
  std::shared_ptr<Prepared> prepared_;
  std::unique_ptr<graph::Hazards> hazards_;
  std::vector<Name> latest_;                   ///< per site, its latest task
  std::unordered_map<int64_t, Name> streams_;  ///< per stream, its latest task
  uint64_t batch_slice_ = 0;                   ///< the first one of the present batch, or 0
  std::vector<uint64_t> admissions_;           ///< of the latest values in flight, the first slices
  uint64_t latest_admitted_ = 0;               ///< number of a value
  uint64_t admitted_after_ = 0;                ///< slices before it are complete when the value begins, or 0
  TrustedLoops trusted_;
  const std::vector<TrustedSpan>* spans_ = nullptr;  ///< of the last task or unit
  bool is_plain_ = true;                             ///< accesses and explicit edges alone order tasks
  bool tracks_ = true;                               ///< accesses are tracked
  WaitList waits_;
};

}  // namespace pto::wsp::sched
