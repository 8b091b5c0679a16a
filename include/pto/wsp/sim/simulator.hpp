// SPDX-License-Identifier: MIT
/// \file
/// Runs the tasks of a walk on a simulated machine: discrete events, one thread, the same result every time.
///
/// Dispatchers make tasks in program order; a task that waits for nothing is ready; the first ready task, by
/// the schedule, starts on an idle core of each kind that it takes. Its transfers share the rates of global
/// memory and of the cache with those of other cores. When a dispatcher sees that it is complete, its cores
/// are idle again and tasks that waited for it go on.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "pto/wsp/error.hpp"
#include "pto/wsp/sched/options.hpp"
#include "pto/wsp/sim/caches.hpp"
#include "pto/wsp/sim/chains.hpp"
#include "pto/wsp/sim/cores.hpp"
#include "pto/wsp/sim/machine.hpp"
#include "pto/wsp/sim/memory.hpp"
#include "pto/wsp/sim/placed_tasks.hpp"
#include "pto/wsp/sim/prefetches.hpp"
#include "pto/wsp/sim/result.hpp"
#include "pto/wsp/sim/waits.hpp"

namespace pto::wsp::sim {

/// `Source` provides `bool next(SourceTask&)`, the tasks in program order, and `const TaskCost&
/// cost(number)`.
template <class Source>
class Simulator {
 public:
  /// \param most_times  with more tasks, none is written down
  /// \param starts_per_cycle  0 = as many as there can be
  /// \param calendar  where and in which order tasks run, or null
  Simulator(const Machine& machine, const sched::PolicyOptions& options, double starts_per_cycle,
            Source& source, uint64_t most_times, bool (*is_interrupted)(),
            const sched::Calendar* calendar = nullptr)
      : machine_(machine),
        options_(options),
        pace_(starts_per_cycle > 0 ? 1 / starts_per_cycle : 0),
        source_(source),
        most_times_(most_times),
        is_interrupted_(is_interrupted) {
    if (calendar != nullptr) placed_.emplace(*calendar);
  }

  SimResult run() {
    begin();
    for (uint64_t steps = 1; step(); ++steps) {
      if (steps % kStepsPerLook == 0 && is_interrupted_ != nullptr && is_interrupted_())
        throw EngineError("run-cancelled", "the simulation was cancelled");
    }
    if (live_.oldest() != live_.end() || !is_all_made())
      throw EngineError("stuck", "no task of a simulation can go on");
    result_.tasks = live_.end();
    result_.cycles = now_;
    result_.longest = chains_.longest();
    return std::move(result_);
  }

 private:
  enum class Kind : uint8_t { kComplete, kMade, kBegin, kPace };

  struct Event {
    double time;
    Kind kind;
    uint64_t number;  ///< of a task or a dispatcher
    bool operator<(const Event& other) const {
      if (time != other.time) return time > other.time;
      return kind != other.kind ? kind > other.kind : number > other.number;
    }
  };

  struct Dispatcher {
    std::deque<uint64_t> own;  ///< tasks that a walk has made for it, which it has not reached
    uint64_t next = 0;         ///< the task after its latest one
    uint32_t records = 0;
    uint64_t making = kNoTask;
    double stalled_since = -1;
    bool is_over = false;
    bool is_gated = false;  ///< it waits for values
  };

  void begin() {
    live_.begin();
    waits_.begin();
    chains_.begin();
    cores_.begin(machine_, options_);
    ready_.begin();
    gm_.begin(machine_.gm_rate, machine_.gm_core_rate);
    l2_.begin(machine_.l2_rate, machine_.l2_core_rate);
    caches_.begin(machine_);
    prefetches_.begin();
    dispatchers_.assign(machine_.dispatchers, {});
    events_ = {};
    num_kinds_ = uint32_t(machine_.cores.size());
    result_ = {};
    result_.busy.assign(num_kinds_, 0);
    result_.idle.assign(num_kinds_, std::vector<double>(kNumIdle, 0));
    result_.generating.assign(dispatchers_.size(), 0);
    result_.stalled.assign(dispatchers_.size(), 0);
    result_.made.assign(dispatchers_.size(), 0);
    for (uint32_t i = 0; i < dispatchers_.size(); ++i) events_.push({machine_.begin, Kind::kBegin, i});
  }

  // Time

  /// Handles the next event; false if there is none.
  bool step() {
    const double event = events_.empty() ? kNever : events_.top().time;
    const double gm = gm_.next_end(), l2 = l2_.next_end();
    const double time = std::min({event, gm, l2});
    if (time == kNever) return false;
    pass(time);
    if (gm <= time) {
      end_gm_transfer(gm_.end_next());
    } else if (l2 <= time) {
      end_transfer(l2_.end_next());
    } else {
      const Event next = events_.top();
      events_.pop();
      handle(next);
    }
    return true;
  }

  void handle(const Event& event) {
    switch (event.kind) {
      case Kind::kComplete: complete(event.number); break;
      case Kind::kMade: made(uint32_t(event.number)); break;
      case Kind::kBegin: make_next(uint32_t(event.number)); break;
      case Kind::kPace: break;
    }
    // What happens at the same moment happens before tasks start.
    if (events_.empty() || events_.top().time > now_) start_tasks();
  }

  /// Moves time on, and counts what cores did until then.
  void pass(double time) {
    const double cycles = time - now_;
    if (cycles > 0) {
      const Idle why = idle_cause();
      for (uint32_t kind = 0; kind < num_kinds_; ++kind)
        result_.idle[kind][int(why)] += cycles * cores_.num_idle(kind);
      now_ = time;
    }
  }

  Idle idle_cause() const {
    if (now_ < machine_.begin) return Idle::kBegin;
    if (!(placed_ ? placed_->is_empty() : ready_.is_empty()))
      return is_held() || now_ < next_start_ ? Idle::kSchedule : Idle::kOther;
    if (num_waiting_ > 0) return Idle::kTasks;
    if (num_gates_ > 0) return Idle::kValues;
    return is_all_made() ? Idle::kEnd : Idle::kMaking;
  }

  // Making

  bool is_all_made() const { return is_source_over_ && num_over_ == dispatchers_.size(); }

  /// A window keeps a place for the oldest task that is not complete, because the others may wait for it.
  /// A dispatcher always has a record for this task.
  bool has_room(const Dispatcher& dispatcher) const {
    if (placed_ || dispatcher.own.front() == live_.oldest()) return true;
    return dispatcher.records < machine_.records &&
           num_recorded_ + (is_oldest_made() ? 0 : 1) < options_.window;
  }

  /// Whether a dispatcher has begun to make the oldest task that is not complete.
  bool is_oldest_made() const {
    const Dispatcher& owner = dispatchers_[live_[live_.oldest()].dispatcher];
    return owner.own.empty() || owner.own.front() != live_.oldest();
  }

  /// A dispatcher looks for its next task.
  void make_next(uint32_t number) {
    Dispatcher& dispatcher = dispatchers_[number];
    if (dispatcher.is_over || dispatcher.making != kNoTask) return;
    if (dispatcher.own.empty() && !pull(number)) {
      dispatcher.is_gated = num_gates_ > 0;
      if (dispatcher.is_gated) {
        ++num_gated_;
        return;
      }
      dispatcher.is_over = true;
      ++num_over_;
      return;
    }
    if (!has_room(dispatcher)) {
      if (dispatcher.stalled_since < 0) {
        dispatcher.stalled_since = now_;
        ++num_stalled_;
        ++result_.stalls;
      }
      return;
    }
    if (dispatcher.stalled_since >= 0) {
      result_.stalled[number] += now_ - dispatcher.stalled_since;
      dispatcher.stalled_since = -1;
      --num_stalled_;
    }
    const uint64_t task = dispatcher.own.front();
    dispatcher.own.pop_front();
    dispatcher.making = task;
    const bool frees_place = task == live_.oldest();
    ++dispatcher.records;
    ++num_recorded_;
    const double cycles = machine_.generate + machine_.skip * double(task - dispatcher.next);
    dispatcher.next = task + 1;
    result_.generating[number] += cycles;
    ++result_.made[number];
    events_.push({now_ + cycles, Kind::kMade, number});
    if (frees_place) retry_stalled();
  }

  void retry_stalled() {
    for (uint32_t i = 0; num_stalled_ > 0 && i < dispatchers_.size(); ++i) {
      if (dispatchers_[i].stalled_since >= 0) make_next(i);
    }
  }

  /// Walks on until there is a task for a dispatcher; false at the end. A task without an owner is that of
  /// the dispatcher that comes to it first.
  bool pull(uint32_t number) {
    while (!is_source_over_) {
      if (!has_pulled_ && !source_.next(source_task_)) {
        is_source_over_ = true;
        break;
      }
      if (!has_pulled_) {
        for (const sched::Name name : source_task_.gates) num_gates_ += waits_.add(live_, kGate, name);
      }
      has_pulled_ = num_gates_ > 0;
      if (has_pulled_) return false;
      const uint32_t owner = add(number);
      if (owner == number) return true;
    }
    return false;
  }

  /// Adds the task that the walk has made; returns its dispatcher.
  uint32_t add(uint32_t number) {
    const uint64_t task = live_.end();
    LiveTask& live = live_.add();
    result_.max_live = std::max(result_.max_live, live_.end() - live_.oldest());
    const uint32_t owner = source_task_.traits.owner;
    live.site = source_task_.site;
    live.cost = source_task_.cost;
    live.dispatcher = owner == sched::kNoOwner ? number : owner;
    live.lane = source_task_.traits.lane;
    live.rank = source_task_.traits.rank;
    live.value = source_task_.value;
    for (const sched::Name name : source_task_.waits) live.num_waits += waits_.add(live_, task, name);
    const TaskCost& cost = source_.cost(live.cost);
    if (records_ && task >= most_times_) forget_times();
    if (records_) {
      chains_.add(source_task_, cost.cycles);
      result_.times.push_back(
          {live.site, live.cost, live.dispatcher, 0, 0, -1, 0, Cause::kMade, kNoTask, 0, 0, 0, 0});
    }
    if (live.cost >= result_.calls.size()) {
      result_.calls.resize(live.cost + 1, 0);
      result_.spent.resize(live.cost + 1, 0);
    }
    ++result_.calls[live.cost];
    result_.operations += cost.operations;
    live.groups.swap(source_task_.groups);
    live.uses.swap(source_task_.uses);
    if (options_.prefetch != 0) prefetches_.add_stores(live.uses);
    dispatchers_[live.dispatcher].own.push_back(task);
    return live.dispatcher;
  }

  void forget_times() {
    records_ = false;
    chains_.begin();
    result_.times.clear();
    result_.times.shrink_to_fit();
  }

  /// A dispatcher has made a task.
  void made(uint32_t number) {
    Dispatcher& dispatcher = dispatchers_[number];
    const uint64_t task = dispatcher.making;
    dispatcher.making = kNoTask;
    LiveTask& live = live_[task];
    live.is_made = true;
    live.made = now_;
    ++num_made_;
    ++num_waiting_;
    if (live.num_waits == 0) be_ready(task);
    if (prefetches_.running() != 0) prefetch();
    make_next(number);
  }

  // Running

  void be_ready(uint64_t task) {
    LiveTask& live = live_[task];
    live.ready = now_;
    --num_waiting_;
    if (placed_) return placed_->add(task);
    ready_.add(source_.cost(live.cost).kinds, live.lane, live.rank, task);
  }

  /// Whether the schedule lets no task start yet.
  bool is_held() const {
    if (options_.start == sched::Start::kImmediate || is_all_made()) return false;
    if (num_stalled_ + num_over_ + num_gated_ == dispatchers_.size()) return false;
    return options_.start == sched::Start::kAfterBuild || num_made_ < options_.threshold;
  }

  void start_tasks() {
    if (is_held()) {
      was_held_ = true;
      return;
    }
    while (now_ >= next_start_) {
      const std::optional<uint64_t> task = placed_ ? placed_->take() : ready_.take(cores_);
      if (!task) break;
      start(*task);
      if (pace_ > 0) {
        next_start_ = std::max(now_, next_start_) + pace_;
        events_.push({next_start_, Kind::kPace, *task});
      }
    }
    was_held_ = false;
  }

  void start(uint64_t number) {
    LiveTask& task = live_[number];
    const TaskCost& cost = source_.cost(task.cost);
    task.start = now_;
    find_cause(task, cost);
    bool is_first = true;
    for (uint32_t kind = 0; cost.kinds >> kind != 0; ++kind) {
      if ((cost.kinds >> kind & 1) == 0) continue;
      const uint32_t core = placed_ ? cores_.take_core(kind, placed_->core_of(number, kind, is_first))
                                    : cores_.take(kind, task.lane);
      (is_first ? task.first_core : task.second_core) = core;
      is_first = false;
    }
    begin_transfers(number, task, cost);
    if (options_.prefetch != 0) {
      prefetches_.run(task.value);
      prefetch();
    }
  }

  /// Begins to move inputs of tasks of the next values into the shared cache.
  void prefetch() {
    for (uint64_t next = prefetches_.next(live_.oldest()); next < live_.end(); next = prefetches_.pass()) {
      const LiveTask& task = live_[next];
      if (!task.is_made || task.value > prefetches_.running() + options_.prefetch) return;
      if (task.value <= prefetches_.running()) continue;
      for (const Use& use : task.uses) {
        if (!use.is_loaded || prefetches_.is_stored_elsewhere(use)) continue;
        const uint64_t bytes = caches_.fetch(use);
        result_.prefetched_bytes += bytes;
        result_.gm_bytes += bytes;
        if (bytes > 0 && machine_.gm_rate < kNever) gm_.add(now_, double(bytes), prefetches_.add(use.region));
      }
    }
  }

  /// The transfer of a task or of a prefetch has ended. Tasks that began meanwhile have waited for a
  /// prefetch.
  void end_gm_transfer(uint64_t number) {
    if (!Prefetches::is_one(number)) return end_transfer(number);
    for (const uint64_t task : prefetches_.end(number)) end_transfer(task);
  }

  void find_cause(LiveTask& task, const TaskCost& cost) {
    if (task.ready < now_) {
      task.cause = was_held_ ? Cause::kStart : pace_ > 0 && next_start_ == now_ ? Cause::kPace : Cause::kCore;
      if (task.cause == Cause::kCore) task.because = latest_complete_[lowest(cost.kinds)];
    } else if (task.ready > task.made) {
      task.cause = Cause::kTask;
    }
  }

  static uint32_t lowest(uint32_t kinds) { return uint32_t(__builtin_ctz(kinds)); }

  void begin_transfers(uint64_t number, LiveTask& task, const TaskCost& cost) {
    const Moved moved = caches_.move(lowest(cost.kinds), task.first_core, task.uses, cost.spilled);
    result_.hits += moved.hits;
    result_.misses += moved.misses;
    result_.gm_bytes += moved.gm_bytes;
    result_.l2_bytes += moved.shared_bytes;
    task.least_end = now_ + cost.cycles + machine_.dispatch + moved.latency(machine_);
    task.num_waits = 1;
    for (const Use& use : task.uses) task.num_waits += prefetches_.wait(use.region, number);
    if (moved.gm_bytes > 0 && machine_.gm_rate < kNever) transfer(gm_, number, moved.gm_bytes);
    if (moved.shared_bytes > 0 && machine_.l2_bytes > 0 && machine_.l2_rate < kNever)
      transfer(l2_, number, moved.shared_bytes);
    end_transfer(number);
  }

  void transfer(SharedRate& rate, uint64_t task, uint64_t bytes) {
    ++live_[task].num_waits;
    rate.add(now_, double(bytes), task);
  }

  /// One of the transfers of a task has ended. After the last one the task has its ends to do.
  void end_transfer(uint64_t number) {
    LiveTask& task = live_[number];
    if (--task.num_waits > 0) return;
    task.end = std::max(task.least_end, now_ + source_.cost(task.cost).ends);
    events_.push({task.end + machine_.complete, Kind::kComplete, number});
  }

  /// A dispatcher sees that a task is complete.
  void complete(uint64_t number) {
    LiveTask& task = live_[number];
    const TaskCost& cost = source_.cost(task.cost);
    bool is_first = true;
    for (uint32_t kind = 0; cost.kinds >> kind != 0; ++kind) {
      if ((cost.kinds >> kind & 1) == 0) continue;
      const uint32_t core = is_first ? task.first_core : task.second_core;
      if (is_first && records_) write_time(number, task, kind);
      is_first = false;
      cores_.give_back(kind, core);
      latest_complete_[kind] = number;
      result_.busy[kind] += task.end - task.start;
    }
    result_.spent[task.cost] += task.end - task.start;
    if (options_.prefetch != 0) prefetches_.end_stores(task.uses);
    if (placed_) placed_->complete(number);
    task.is_complete = true;
    --dispatchers_[task.dispatcher].records;
    --num_recorded_;
    waits_.complete(live_, number,
                    [this](uint64_t waiting, uint64_t because) { pass_wait(waiting, because); });
    if (num_gates_ == 0 && num_gated_ > 0) open_gate();
    retry_stalled();
  }

  void pass_wait(uint64_t waiting, uint64_t because) {
    if (waiting == kGate) {
      --num_gates_;
      return;
    }
    LiveTask& task = live_[waiting];
    task.because = because;
    if (--task.num_waits == 0 && task.is_made) be_ready(waiting);
  }

  /// The values are known for which dispatchers have waited.
  void open_gate() {
    num_gated_ = 0;
    for (Dispatcher& dispatcher : dispatchers_) {
      if (std::exchange(dispatcher.is_gated, false)) make_next(uint32_t(&dispatcher - dispatchers_.data()));
    }
  }

  void write_time(uint64_t number, const LiveTask& task, uint32_t kind) {
    const uint32_t others = source_.cost(task.cost).kinds & ~(1u << kind);
    const int32_t second = others != 0 ? int32_t(lowest(others)) : -1;
    result_.times[number] = {task.site,  task.cost,        task.dispatcher, kind,         task.first_core,
                             second,     task.second_core, task.cause,      task.because, task.made,
                             task.ready, task.start,       task.end};
  }

  static constexpr uint64_t kStepsPerLook = 1 << 16;
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  const Machine& machine_;
  const sched::PolicyOptions& options_;
  const double pace_;  ///< cycles between two starts
  Source& source_;
  const uint64_t most_times_;       ///< with more tasks, no times are written down
  bool (*const is_interrupted_)();  ///< asked now and then, unless it is null
  double now_ = 0;
  double next_start_ = 0;
  uint32_t num_kinds_ = 0;
  LiveTasks live_;
  Waits waits_;
  Chains chains_;
  Cores cores_;
  ReadyTasks ready_;
  std::optional<PlacedTasks> placed_;  ///< in place of `ready_`, by a calendar
  SharedRate gm_, l2_;
  Prefetches prefetches_;
  Caches caches_;
  std::vector<Dispatcher> dispatchers_;
  std::priority_queue<Event> events_;
  SourceTask source_task_;
  bool records_ = true;
  bool is_source_over_ = false;
  bool was_held_ = false;
  uint64_t num_made_ = 0;
  uint64_t num_recorded_ = 0;  ///< made and not seen complete
  uint64_t num_waiting_ = 0;   ///< made, and waiting for other tasks
  size_t num_over_ = 0, num_stalled_ = 0, num_gated_ = 0;
  bool has_pulled_ = false;  ///< the task that the walk has made waits for `num_gates_` moments
  uint32_t num_gates_ = 0;
  uint64_t latest_complete_[kMaxKinds] = {kNoTask, kNoTask, kNoTask, kNoTask,
                                          kNoTask, kNoTask, kNoTask, kNoTask};
  SimResult result_;
};

}  // namespace pto::wsp::sim
