// SPDX-License-Identifier: MIT
/// \file
/// Checks a statement on the real regions of a run: conflicting tasks are never *apart*. A relation defines
/// apart. There are two: tasks are apart in different iterations of one P loop, or if neither an edge nor a
/// P.seq loop orders them (edges.hpp).
///
/// The checker visits the tasks in program order. It drops an access that a later write covers: a task that
/// is apart from the access is apart from the write, too, or the write was apart from the access. It also
/// drops reads that the relation represents by others.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/graph/boxes.hpp"
#include "pto/wsp/graph/cell_grid.hpp"
#include "pto/wsp/graph/footprint.hpp"

namespace pto::wsp::graph {

namespace detail {

/// Accesses of one kind to one memory that are still needed.
class AccessSet {
 public:
  struct Entry {
    Box box;
    uint64_t task;
    uint32_t io;
    bool writes;
    bool is_dead = false;
  };

  AccessSet(int rank, const int64_t* size, const int64_t* typical)
      : rank_(rank), grid_(rank, size, typical, kMaxCells) {}

  /// Calls `visit(entry)` for the entries that a box intersects, some more than once; true stops.
  template <class Visit>
  bool find(const Box& box, Visit visit) {
    for (const auto& layer : grid_.layers()) {
      if (find_in(layer->grid, layer->content, box, visit)) return true;
    }
    return false;
  }

  void add(const Entry& access) {
    auto& layer = grid_.layer_of(access.box);
    Chains& chains = layer.content;
    const auto entry = uint32_t(chains.entries.size());
    chains.entries.push_back(access);
    layer.grid.for_cells(access.box, [&](int64_t cell) {
      uint32_t& head = chains.heads[size_t(cell)];
      if (head == kNone) chains.used.push_back(cell);
      chains.links.push_back({entry, head});
      head = uint32_t(chains.links.size() - 1);
    });
  }

  void clear() {
    for (const auto& layer : grid_.layers()) {
      Chains& chains = layer->content;
      for (const int64_t cell : chains.used) chains.heads[size_t(cell)] = kNone;
      chains.used.clear();
      chains.entries.clear();
      chains.links.clear();
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr int64_t kMaxCells = 1 << 17;

  struct Link {
    uint32_t entry;
    uint32_t next;
  };

  /// Per cell, its entries one after the other.
  struct Chains {
    explicit Chains(const CellGrid& grid) : heads(size_t(grid.num_cells()), kNone) {}

    std::vector<uint32_t> heads;
    std::vector<int64_t> used;
    std::vector<Entry> entries;
    std::vector<Link> links;
  };

  template <class Visit>
  bool find_in(const CellGrid& grid, Chains& chains, const Box& box, Visit visit) {
    bool is_found = false;
    if (grid.range_of(box).count > int64_t(chains.entries.size())) {
      for (Entry& entry : chains.entries) is_found = is_found || meets(entry, box, visit);
    } else {
      grid.for_cells(box, [&](int64_t cell) {
        is_found = is_found || find_at(chains.heads[size_t(cell)], chains, box, visit);
      });
    }
    return is_found;
  }

  /// Unlinks dead entries on its way.
  template <class Visit>
  bool find_at(uint32_t& head, Chains& chains, const Box& box, Visit visit) {
    for (uint32_t* at = &head; *at != kNone;) {
      Link& link = chains.links[*at];
      if (meets(chains.entries[link.entry], box, visit)) return true;
      if (chains.entries[link.entry].is_dead) {
        *at = link.next;
      } else {
        at = &link.next;
      }
    }
    return false;
  }

  template <class Visit>
  bool meets(Entry& entry, const Box& box, Visit visit) const {
    return !entry.is_dead && intersects(entry.box, box, rank_) && visit(entry);
  }

  int rank_;
  LayeredGrid<Chains> grid_;
};

/// The accesses to one memory.
class CheckedMemory {
 public:
  CheckedMemory(int rank, const int64_t* size, const int64_t* typical)
      : rank_(rank), reads_(rank, size, typical), writes_(rank, size, typical) {}

  int rank() const { return rank_; }

  /// Returns an entry that conflicts with an access and is apart from it. Otherwise remembers the access.
  /// \pre the box is not empty, and the relation is active
  template <class Relation>
  const AccessSet::Entry* access(const AccessSet::Entry& self, Relation& relation) {
    const Box& box = self.box;
    const bool writes = self.writes;
    const AccessSet::Entry* found = nullptr;
    const auto conflicts = [&](AccessSet::Entry& other) {
      const bool is_apart = relation.is_apart(other.task);
      if (is_apart) found = &other;
      other.is_dead = writes && !is_apart && covers(box, other.box, rank_);
      return is_apart;
    };
    if (writes_.find(box, conflicts) || (writes && reads_.find(box, conflicts))) return found;
    if (writes) {
      writes_.add(self);
    } else if (!Relation::kComparesReads || !is_known(box, relation)) {
      reads_.add(self);
    }
    return nullptr;
  }

  void clear() {
    reads_.clear();
    writes_.clear();
  }

 private:
  /// Whether a read that is kept represents this one.
  template <class Relation>
  bool is_known(const Box& box, Relation& relation) {
    return reads_.find(box, [&](AccessSet::Entry& other) {
      const bool is_alike = relation.is_alike(other.task);
      if (covers(other.box, box, rank_)) return is_alike || relation.is_apart(other.task);
      other.is_dead = is_alike && covers(box, other.box, rank_);
      return false;
    });
  }

  int rank_;
  AccessSet reads_, writes_;
};

/// The checked accesses to one memory. They are compared in the elements of the tensor, and row sets as boxes
/// of one row each. If tasks write the indices of row sets, positions are compared: only the tasks know the
/// rows, but the rows differ.
struct CheckedSpaces {
  struct Positions {
    uint32_t indices;  ///< memory of the indices
    int num_merged;
    std::unique_ptr<CheckedMemory> accesses;
  };

  std::unique_ptr<CheckedMemory> elements;
  std::vector<Positions> positions;
  const CheckedMemory* used = nullptr;  ///< since the last reset
  bool is_mixed = false;                ///< another memory than `used` was used since
  bool is_written = false;              ///< in it
};

/// Tasks are apart if they are in different iterations of a P loop. The tasks apart from the current one form
/// one interval of task numbers per open P loop: from the begin of the loop to the begin of the current
/// iteration. A read represents the reads that it covers in its iteration and in earlier ones. Without an
/// open P loop, no access is kept.
class Iterations {
 public:
  static constexpr bytecode::Op kMarked = bytecode::Op::PARALLEL_FOR;  ///< loops that it follows
  static constexpr bool kComparesReads = true;                         ///< some reads represent others
  static constexpr const char* kCode = "iterations-conflict";
  static constexpr const char* kMessage = "iterations of a P loop touch the same elements";

  explicit Iterations(const Plan& plan) : plan_(plan) {}

  void enter(uint32_t loop, uint64_t next_task) { open_.push_back({loop, next_task, next_task}); }
  void iterate(uint64_t next_task) { open_.back().iteration = next_task; }
  /// Returns whether all accesses can be dropped.
  bool leave() {
    open_.pop_back();
    return open_.empty();
  }
  bool is_active() const { return !open_.empty(); }
  /// Begins the next task, of `site`.
  void begin_task(uint32_t) {}

  bool is_apart(uint64_t task) const { return loop_between(task) != nullptr; }
  /// Whether the same tasks are apart from an earlier task and from the current one.
  bool is_alike(uint64_t task) const { return task >= open_.back().iteration; }
  /// Adds the details of a task that is apart from the current one.
  EngineError explain(EngineError error, uint64_t task) const {
    return std::move(error).with_int("loop_pc", plan_.program().loops[loop_between(task)->loop].begin_pc);
  }

 private:
  struct Open {
    uint32_t loop;
    uint64_t begin;      ///< the first task of its first iteration
    uint64_t iteration;  ///< first task of its current iteration
  };

  /// The open loop that has a task in an earlier iteration, or null.
  const Open* loop_between(uint64_t task) const {
    for (const Open& loop : open_) {
      if (task >= loop.begin && task < loop.iteration) return &loop;
    }
    return nullptr;
  }

  const Plan& plan_;
  std::vector<Open> open_;
};

template <class Relation>
class Checker : public bytecode::EventVisitor {
 public:
  Checker(const Plan& plan, const std::vector<int64_t>& flushed)
      : plan_(plan),
        flushed_(flushed),
        steps_(bytecode::with_events(plan,
                                     [&](uint32_t loop) {
                                       return plan.loops[loop].op == Relation::kMarked
                                                  ? bytecode::LoopEvents::kGroups
                                                  : bytecode::LoopEvents::kNone;
                                     })),
        replay_(plan, steps_, flushed),
        relation_(plan_),
        memories_(plan.layouts.size()) {
    for (const bytecode::QuickIo& io : plan_.ios) {
      CheckedSpaces& memory = memories_[plan_.layouts[io.tensor].group];
      if (io.role != Role::in && memory.elements == nullptr) memory.elements = make_elements(io);
    }
  }

  Checker(const Checker&) = delete;
  Checker& operator=(const Checker&) = delete;

  /// Visits the tasks up to the first flush point whose value is not in `flushed`. Returns false if
  /// `is_stopped`, called between tasks, stopped it. Throws `Relation::kCode` at the first conflicting pair
  /// that is apart, or `unknown-rows` if that depends on indices that tasks write.
  template <class IsStopped>
  bool run(IsStopped is_stopped) {
    while (!is_stopped()) {
      if (!bytecode::visit(replay_.next(), *this)) return true;
    }
    return false;
  }

  bool on_enter(uint32_t loop) {
    relation_.enter(loop, num_tasks());
    return true;
  }
  bool on_iteration(uint32_t) {
    relation_.iterate(num_tasks());
    return true;
  }
  bool on_leave(uint32_t) {
    if (relation_.leave()) forget();
    return true;
  }
  bool on_task(uint32_t site) {
    relation_.begin_task(site);
    if (relation_.is_active()) check(site);
    return true;
  }

 private:
  /// The access that is being checked.
  struct CheckedAccess {
    uint32_t site;
    uint32_t io;
    uint16_t tensor;
    bool writes;
    int64_t positions = -1;  ///< the index tensor, where the rows of a row set are compared by position
  };

  uint64_t num_tasks() const { return replay_.expander().num_tasks(); }

  std::unique_ptr<CheckedMemory> make_elements(const bytecode::QuickIo& from) const {
    const bytecode::TensorLayout& layout = plan_.layouts[from.tensor];
    int64_t typical[kMaxTensorRank] = {};
    for (const bytecode::QuickIo& io : plan_.ios) {
      if (plan_.layouts[io.tensor].group != layout.group) continue;
      for (int d = 0; d < from.rank; ++d) {
        const bool is_row = io.rows >= 0 && d <= plan_.rows[size_t(io.rows)].num_merged;
        const int64_t extent = is_row ? 1 : plan_.dims[io.first_dim + uint32_t(d)].extent_form.range.hi;
        if (extent <= layout.shape[d] / 2) typical[d] = std::max(typical[d], extent);
      }
    }
    for (int d = 0; d < from.rank; ++d) typical[d] = typical[d] <= 0 ? layout.shape[d] : typical[d];
    return std::make_unique<CheckedMemory>(from.rank, layout.shape, typical);
  }

  void forget() {
    for (CheckedSpaces& memory : memories_) {
      memory.used = nullptr;
      memory.is_mixed = memory.is_written = false;
      if (memory.elements != nullptr) memory.elements->clear();
      for (auto& positions : memory.positions) positions.accesses->clear();
    }
  }

  void check(uint32_t site_index) {
    const bytecode::QuickSite& site = plan_.sites[site_index];
    const int64_t* registers = replay_.expander().registers();
    task_ = num_tasks() - 1;
    for (uint32_t i = 0; i < site.num_io; ++i) {
      const bytecode::QuickIo& io = plan_.ios[site.first_io + i];
      const CheckedAccess access{site_index, i, io.tensor, io.role != Role::in};
      if (io.rows < 0) {
        check_box(access, memory_of(io.tensor).elements.get(), box_of(io, registers));
        continue;
      }
      const bytecode::QuickRows& rows = plan_.rows[size_t(io.rows)];
      Box indices = box_of(io, registers);
      indices.lo[1] = 0;
      indices.hi[1] = 1;
      check_box({site_index, i, rows.tensor, false}, memory_of(rows.tensor).elements.get(), indices);
      check_rows(access, io, rows, registers);
    }
  }

  CheckedSpaces& memory_of(uint16_t tensor) { return memories_[plan_.layouts[tensor].group]; }

  Box box_of(const bytecode::QuickIo& io, const int64_t* registers) const {
    return evaluate_box(plan_, plan_.dims.data() + io.first_dim, io.rank, registers);
  }

  void check_rows(const CheckedAccess& access, const bytecode::QuickIo& io, const bytecode::QuickRows& rows,
                  const int64_t* registers) {
    CheckedSpaces& memory = memory_of(io.tensor);
    if (memory.elements == nullptr) return;
    Box box = box_of(io, registers);
    if (rows.is_written) return check_positions(access, io, rows, box);
    for_rows(plan_, io, box, [&](const Box& row) { check_box(access, memory.elements.get(), row); });
  }

  void check_positions(CheckedAccess access, const bytecode::QuickIo& io, const bytecode::QuickRows& rows,
                       Box box) {
    CheckedSpaces& memory = memory_of(io.tensor);
    if (!rows.is_distinct) fail_unknown(access, io.tensor);
    const uint32_t indices = plan_.layouts[rows.tensor].group;
    const auto is_same = [&](auto& each) {
      return each.indices == indices && each.num_merged == rows.num_merged;
    };
    auto found = std::find_if(memory.positions.begin(), memory.positions.end(), is_same);
    if (found == memory.positions.end()) {
      found = memory.positions.insert(found, {indices, rows.num_merged, make_positions(io, rows)});
    }
    for (int d = rows.num_merged + 1; d < io.rank; ++d) {
      box.lo[d - rows.num_merged] = box.lo[d];
      box.hi[d - rows.num_merged] = box.hi[d];
    }
    access.positions = rows.tensor;
    check_box(access, found->accesses.get(), box);
  }

  std::unique_ptr<CheckedMemory> make_positions(const bytecode::QuickIo& io,
                                                const bytecode::QuickRows& rows) const {
    int64_t size[kMaxTensorRank], typical[kMaxTensorRank];
    for (int d = 0; d + rows.num_merged < io.rank; ++d) {
      const int from = d == 0 ? 0 : d + rows.num_merged;
      size[d] = plan_.layouts[d == 0 ? rows.tensor : io.tensor].shape[from];
      const int64_t extent = plan_.dims[io.first_dim + uint32_t(from)].extent_form.range.hi;
      typical[d] = std::clamp<int64_t>(extent, 1, std::max<int64_t>(size[d], 1));
    }
    return std::make_unique<CheckedMemory>(io.rank - rows.num_merged, size, typical);
  }

  void check_box(const CheckedAccess& access, CheckedMemory* space, const Box& box) {
    if (space == nullptr || is_empty(box, space->rank())) return;
    CheckedSpaces& memory = memory_of(access.tensor);
    memory.is_written = memory.is_written || access.writes;
    memory.is_mixed = memory.is_mixed || (memory.used != nullptr && memory.used != space);
    memory.used = space;
    if (memory.is_mixed && memory.is_written) fail_unknown(access, access.tensor);
    const AccessSet::Entry* other = space->access({box, task_, access.io, access.writes}, relation_);
    if (other != nullptr) fail(access, *other, box, space->rank());
  }

  [[noreturn]] void fail_unknown(const CheckedAccess& access, uint16_t tensor) const {
    throw EngineError("unknown-rows", "which rows a task touches is not known to the check")
        .with_int("pc", plan_.sites[access.site].pc)
        .with_int("io", access.io)
        .with_int("tensor", tensor);
  }

  [[noreturn]] void fail(const CheckedAccess& access, const AccessSet::Entry& other, const Box& box,
                         int rank) const {
    std::vector<int64_t> lo, hi;
    for (int d = 0; d < rank; ++d) {
      lo.push_back(std::max(box.lo[d], other.box.lo[d]));
      hi.push_back(std::min(box.hi[d], other.box.hi[d]));
    }
    const auto [site, registers] = find_task(other.task);
    const auto [own_site, own_registers] = find_task(task_);
    throw relation_.explain(EngineError(Relation::kCode, Relation::kMessage), other.task)
        .with_int("pc", plan_.sites[own_site].pc)
        .with_int("task", int64_t(task_))
        .with_int("io", access.io)
        .with_int("writes", access.writes)
        .with("registers", own_registers)
        .with_int("other_pc", plan_.sites[site].pc)
        .with_int("other_task", int64_t(other.task))
        .with_int("other_io", other.io)
        .with_int("other_writes", other.writes)
        .with("other_registers", registers)
        .with_int("tensor", access.tensor)
        .with_int("positions", access.positions)
        .with("lo", std::move(lo))
        .with("hi", std::move(hi));
  }

  /// The site and the registers of a task, found by another walk.
  std::pair<uint32_t, std::vector<int64_t>> find_task(uint64_t task) const {
    bytecode::Replay replay(plan_, flushed_);
    int64_t site = replay.next_task();
    for (uint64_t i = 0; i < task; ++i) site = replay.next_task();
    return {uint32_t(site), replay.expander().copy_registers()};
  }

  const Plan& plan_;
  const std::vector<int64_t>& flushed_;
  const std::vector<bytecode::QuickStep> steps_;
  bytecode::Replay replay_;
  Relation relation_;
  std::vector<CheckedSpaces> memories_;
  uint64_t task_ = 0;
};

}  // namespace detail

/// Checks that no two tasks of different iterations of a P loop touch a common element that one of them
/// writes: see Checker::run. \pre bind_elements, and the regions have been checked
/// \complexity close to linear in the number of tasks, and of rows of row sets
template <class IsStopped>
bool check_iterations(const Plan& plan, const std::vector<int64_t>& flushed, IsStopped is_stopped) {
  return detail::Checker<detail::Iterations>(plan, flushed).run(is_stopped);
}

}  // namespace pto::wsp::graph
