// SPDX-License-Identifier: MIT
/// \file
/// Unfinished tasks of earlier runs that a run conflicts with.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pto/wsp/bind/alias.hpp"
#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/graph/boxes.hpp"
#include "pto/wsp/graph/checker.hpp"
#include "pto/wsp/progress.hpp"
#include "pto/wsp/sched/completions.hpp"

namespace pto::wsp::sched {

/// An earlier run, and its arrays. They outlive `Imports::add`.
struct EarlierRun {
  const bytecode::Plan& plan;
  const std::vector<bind::ArrayRef>& arrays;
  Completions& completions;
};

/// Calls `visit(box)` for the elements of an argument. Indices that tasks write count as all rows.
template <class Visit>
void for_argument(const bytecode::Plan& plan, const bytecode::QuickIo& io, const int64_t* registers,
                  Visit visit) {
  if (io.rows < 0)
    return visit(graph::evaluate_box(plan, plan.dims.data() + io.first_dim, io.rank, registers));
  graph::Box box = graph::evaluate_box(plan, plan.dims.data() + io.first_dim, io.rank, registers);
  const bytecode::QuickRows& rows = plan.rows[size_t(io.rows)];
  if (!rows.is_written && box.hi[0] - box.lo[0] <= graph::kMaxRowBoxes)
    return graph::for_rows(plan, io, box, visit);
  for (size_t d = 0; d <= rows.num_merged; ++d) {
    box.lo[d] = 0;
    box.hi[d] = plan.layouts[io.tensor].shape[d];
  }
  visit(box);
}

/// The least box of an array that has all of its elements in some bytes. \pre strides are not negative
inline graph::Box box_of_bytes(const bind::ArrayRef& array, int64_t first, int64_t last) {
  graph::Box box;
  int d = 0;
  int64_t span = bind::detail::span_bytes(array);
  for (; d < array.rank; ++d) {
    const int64_t stride = array.stride_bytes[d], inner = span - (array.shape[d] - 1) * stride;
    if (stride < inner) break;  // rows overlap, or are in another order
    box.lo[d] = std::clamp<int64_t>(first / stride, 0, array.shape[d]);
    box.hi[d] = std::clamp<int64_t>(last / stride + 1, 0, array.shape[d]);
    span = inner;
    if (first / stride != last / stride) {
      ++d;
      break;
    }
    first %= stride;
    last %= stride;
  }
  for (; d < array.rank; ++d) {
    box.lo[d] = 0;
    box.hi[d] = array.shape[d];
  }
  return box;
}

/// The elements of `array` that a box of another array may share.
inline graph::Box box_in(const bind::ArrayRef& array, const bind::ArrayRef& other, const graph::Box& box) {
  if (bind::is_same_view(array, other)) return box;
  int64_t first = reinterpret_cast<intptr_t>(other.data) - reinterpret_cast<intptr_t>(array.data);
  int64_t last = first + dtype_bytes(other.dtype) - 1;
  for (int d = 0; d < other.rank; ++d) {
    first += box.lo[d] * other.stride_bytes[d];
    last += (box.hi[d] - 1) * other.stride_bytes[d];
  }
  const int64_t span = bind::detail::span_bytes(array);
  if (last < 0 || first >= span) return {};  // empty
  return box_of_bytes(array, std::max<int64_t>(first, 0), std::min(last, span - 1));
}

/// Tasks of earlier runs in the form of slices that come before the first slice of a run. No worker runs
/// them: such a slice completes when its task does, or its group of consecutive tasks of one run. So the
/// walks of the run wait for it as for their own slices.
class Imports : public std::enable_shared_from_this<Imports> {
 public:
  /// The tasks of one run are in at most this many slices.
  static constexpr uint64_t kMaxSlices = 1024;
  /// Runs that are followed at a time. With more, fewer slices remain for the own tasks.
  static constexpr size_t kMaxRuns = 4;

  /// \param arrays  one per tensor of the program
  Imports(const bytecode::Program& program, const std::vector<bind::ArrayRef>& arrays)
      : program_(program), arrays_(arrays), tensors_(arrays.size()) {}

  /// Adds the unfinished tasks of an earlier run. False if the runs cannot be compared task by task: data
  /// decide which tasks the earlier run has, it has too many, or one run writes what decides in the other.
  bool add(const EarlierRun& earlier) {
    const bytecode::Program& program = earlier.plan.program();
    const auto is_flush = [](const bytecode::QuickSet& set) { return set.is_flush; };
    if (sources_.size() == kMaxRuns || program.is_network() || program_.is_network()) return false;
    if (std::any_of(earlier.plan.sets.begin(), earlier.plan.sets.end(), is_flush)) return false;
    std::vector<std::vector<Pair>> pairs(earlier.arrays.size());
    bool is_any = false;
    for (size_t i = 0; i < arrays_.size(); ++i) {
      for (size_t j = 0; j < earlier.arrays.size(); ++j) {
        const bool writes = program_.tensors[i].written != 0;
        if (!writes && program.tensors[j].written == 0) continue;
        if (is_reversed(arrays_[i]) || is_reversed(earlier.arrays[j])) return false;
        if (bind::find_overlap(arrays_[i], earlier.arrays[j]) == bind::Overlap::kNone) continue;
        if (program_.decides[i] || program.decides[j]) return false;
        pairs[j].push_back({i, writes});
        is_any = true;
      }
    }
    return !is_any || add_tasks(earlier, pairs);
  }

  /// How many slices come before the first slice of the run.
  uint64_t num_slices() const { return remaining_.size(); }

  /// \param first_slice  the number of the first of the slices
  /// \param call  wakes a thread of the run; \param cancel  ends the run
  template <class Crew>
  void begin(Progress& progress, uint64_t first_slice, Crew& crew) {
    progress_ = &progress;
    first_slice_ = first_slice;
    num_incomplete_.store(remaining_.size(), std::memory_order_relaxed);
    crew_ = &crew;
    call_ = [](void* of) { static_cast<Crew*>(of)->call(); };
    cancel_ = [](void* of) { static_cast<Crew*>(of)->cancel(); };
  }
  /// Begins to complete slices. \pre begin()
  void follow() {
    for (const auto& source : sources_) {
      source->completions->follow(std::shared_ptr<Source>(shared_from_this(), source.get()));
      for (size_t k = 0; k < source->tasks.size(); ++k) {
        if (source->completions->is_complete(source->tasks[k])) source->complete(k);
      }
    }
  }
  /// The run is over: nothing of it is used from now on.
  void detach() {
    const std::lock_guard<std::mutex> lock(mutex_);
    crew_ = nullptr;
  }

  /// Whether every slice is complete.
  bool are_complete() const { return num_incomplete_.load(std::memory_order_acquire) == 0; }

  /// Adds what a task of the run waits for.
  void find(const bytecode::Plan& plan, uint32_t site_index, const int64_t* registers, WaitList& waits) {
    if (are_complete() || waits.is_muted()) return;
    const bytecode::QuickSite& site = plan.sites[site_index];
    for (uint32_t i = 0; i < site.num_io; ++i) {
      const bytecode::QuickIo& io = plan.ios[site.first_io + i];
      Tensor& tensor = tensors_[io.tensor];
      if (tensor.writes == nullptr) continue;
      const auto wait = [&](graph::detail::AccessSet::Entry& entry) {
        waits.add(complete_name(first_slice_ + entry.task));
        return false;
      };
      for_argument(plan, io, registers, [&](const graph::Box& box) {
        if (is_empty(box, io.rank)) return;
        tensor.writes->find(box, wait);
        if (io.role != Role::in) tensor.reads->find(box, wait);
      });
    }
  }

 private:
  /// A tensor of the run that overlaps one of the earlier run.
  struct Pair {
    size_t tensor;
    bool is_written;
  };

  /// The accesses of earlier tasks to a tensor. `task` of an entry is a slice.
  struct Tensor {
    std::unique_ptr<graph::detail::AccessSet> writes{}, reads{};
  };

  struct Source final : Completions::Follower {
    void on_complete(uint64_t task) override {
      const auto found = std::lower_bound(tasks.begin(), tasks.end(), task);
      if (found != tasks.end() && *found == task) complete(size_t(found - tasks.begin()));
    }
    void on_end(bool has_failed) override {
      if (has_failed) return all->fail();
      for (size_t k = 0; k < tasks.size(); ++k) complete(k);
    }
    void complete(size_t k) {
      if (is_complete[k].exchange(1, std::memory_order_acq_rel) == 0) all->complete_in(slice_of(k));
    }
    size_t slice_of(size_t k) const { return first + k / group; }

    Imports* all = nullptr;
    Completions* completions = nullptr;  ///< alive until the run follows it
    std::vector<uint64_t> tasks{};       ///< ascending
    std::vector<std::atomic<uint8_t>> is_complete{};
    size_t first = 0, group = 1;  ///< the first slice, and how many tasks are in one
  };

  struct Access {
    size_t tensor;
    graph::Box box;
    bool writes;
    size_t k;  ///< number of the task among those of the source
  };

  static bool is_reversed(const bind::ArrayRef& array) {
    return std::any_of(array.stride_bytes, array.stride_bytes + array.rank,
                       [](int64_t stride) { return stride < 0; });
  }

  bool add_tasks(const EarlierRun& earlier, const std::vector<std::vector<Pair>>& pairs) {
    auto source = std::make_unique<Source>();
    source->all = this;
    source->completions = &earlier.completions;
    std::vector<Access> accesses;
    try {
      if (!find_tasks(earlier, pairs, source->tasks, accesses)) return false;
    } catch (const EngineError&) {
      return false;  // the earlier run finds it too
    }
    if (source->tasks.empty()) return true;
    source->is_complete = std::vector<std::atomic<uint8_t>>(source->tasks.size());
    source->first = remaining_.size();
    source->group = (source->tasks.size() - 1) / kMaxSlices + 1;
    number(*source, accesses);
    sources_.push_back(std::move(source));
    return true;
  }

  /// Finds the unfinished tasks that conflict with the run. False if the earlier run has too many tasks.
  bool find_tasks(const EarlierRun& earlier, const std::vector<std::vector<Pair>>& pairs,
                  std::vector<uint64_t>& tasks, std::vector<Access>& accesses) const {
    bytecode::Expander expander(earlier.plan, earlier.plan.steps);
    for (;;) {
      const bytecode::Event event = expander.next();
      if (event.kind == bytecode::Event::kEnd) return true;
      if (event.kind != bytecode::Event::kTask) continue;
      const uint64_t task = expander.num_tasks() - 1;
      if (task == Completions::kMaxTasks) return false;
      if (earlier.completions.is_complete(task)) continue;
      const size_t before = accesses.size();
      add_accesses(earlier, pairs, event.index, expander.registers(), tasks.size(), accesses);
      if (accesses.size() > before) tasks.push_back(task);
    }
  }

  void add_accesses(const EarlierRun& earlier, const std::vector<std::vector<Pair>>& pairs,
                    uint32_t site_index, const int64_t* registers, size_t k,
                    std::vector<Access>& accesses) const {
    const bytecode::QuickSite& site = earlier.plan.sites[site_index];
    for (uint32_t i = 0; i < site.num_io; ++i) {
      const bytecode::QuickIo& io = earlier.plan.ios[site.first_io + i];
      const bool writes = io.role != Role::in;
      for (const Pair& pair : pairs[io.tensor]) {
        if (!writes && !pair.is_written) continue;
        for_argument(earlier.plan, io, registers, [&](const graph::Box& box) {
          if (is_empty(box, io.rank)) return;
          const bind::ArrayRef& own = arrays_[pair.tensor];
          const graph::Box shared = box_in(own, earlier.arrays[io.tensor], box);
          if (!is_empty(shared, own.rank)) accesses.push_back({pair.tensor, shared, writes, k});
        });
      }
    }
  }

  /// Gives slices to the tasks of a source, and keeps their accesses.
  void number(const Source& source, const std::vector<Access>& accesses) {
    std::vector<uint32_t> remaining;
    for (const auto& old : remaining_) remaining.push_back(old.load(std::memory_order_relaxed));
    remaining.resize(source.slice_of(source.tasks.size() - 1) + 1);
    for (size_t k = 0; k < source.tasks.size(); ++k) ++remaining[source.slice_of(k)];
    remaining_ = std::vector<std::atomic<uint32_t>>(remaining.size());
    for (size_t i = 0; i < remaining.size(); ++i)
      remaining_[i].store(remaining[i], std::memory_order_relaxed);
    for (const Access& access : accesses) {
      Tensor& tensor = tensors_[access.tensor];
      if (tensor.writes == nullptr) make_sets(tensor, arrays_[access.tensor], access.box);
      (access.writes ? tensor.writes : tensor.reads)
          ->add({access.box, source.slice_of(access.k), 0, access.writes});
    }
  }

  static void make_sets(Tensor& tensor, const bind::ArrayRef& array, const graph::Box& box) {
    int64_t typical[kMaxTensorRank] = {};
    for (int d = 0; d < array.rank; ++d) typical[d] = std::max<int64_t>(box.hi[d] - box.lo[d], 1);
    tensor.writes = std::make_unique<graph::detail::AccessSet>(array.rank, array.shape, typical);
    tensor.reads = std::make_unique<graph::detail::AccessSet>(array.rank, array.shape, typical);
  }

  void complete_in(size_t slice) {
    if (remaining_[slice].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (crew_ == nullptr) return;
    progress_->reach(complete_name(first_slice_ + slice));
    num_incomplete_.fetch_sub(1, std::memory_order_release);
    call_(crew_);
  }

  void fail() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (crew_ != nullptr) cancel_(crew_);
  }

  const bytecode::Program& program_;
  const std::vector<bind::ArrayRef>& arrays_;
  std::vector<Tensor> tensors_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::vector<std::atomic<uint32_t>> remaining_;  ///< per slice: tasks that are not complete
  std::atomic<size_t> num_incomplete_{0};         ///< slices
  Progress* progress_ = nullptr;
  uint64_t first_slice_ = 0;
  std::mutex mutex_;
  void* crew_ = nullptr;  ///< null when the run is over
  void (*call_)(void*) = nullptr;
  void (*cancel_)(void*) = nullptr;
};

}  // namespace pto::wsp::sched
