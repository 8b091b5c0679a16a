// SPDX-License-Identifier: MIT
/// \file
/// Plans of test programs, and what their tasks touch according to them.
#pragma once

#include <vector>

#include "mix_kernels.hpp"
#include "pto/wsp/bytecode/expander.hpp"
#include "pto/wsp/bytecode/quicken.hpp"
#include "pto/wsp/bytecode/rows.hpp"
#include "pto/wsp/bytecode/validate.hpp"
#include "pto/wsp/graph/cell_grid.hpp"
#include "pto/wsp/graph/footprint.hpp"

namespace planned {

using namespace pto::wsp;

using Shape = std::vector<int64_t>;

/// A program and its plan for tensors of its own sizes, each in memory of its own.
class Planned {
 public:
  /// `bases[i]` is the data of tensor i, for those that row sets take indices from.
  Planned(const std::vector<uint8_t>& bytes, const std::vector<Shape>& shapes, std::vector<char*> bases = {})
      : program_(bytecode::load_program(bytes.data(), bytes.size(), mix::library().table())) {
    std::vector<bytecode::TensorLayout> layouts;
    for (const Shape& shape : shapes) {
      bytecode::TensorLayout layout{};
      int64_t stride = 1;
      for (size_t d = shape.size(); d-- > 0; stride *= shape[d]) {
        layout.shape[d] = shape[d];
        layout.stride[d] = stride;
      }
      layout.group = uint32_t(layouts.size());
      layouts.push_back(layout);
    }
    plan = bytecode::make_plan({&program_, {}}, layouts, mix::library().table());
    bases.resize(shapes.size(), nullptr);
    bytecode::bind_elements(plan, bases);
    bytecode::look_at_rows(plan);
    spaces = graph::find_spaces(plan);
  }
  Planned(const Planned&) = delete;

  /// The steps of a walk in which some loops make the events of groups.
  template <class IsGroups>
  std::vector<bytecode::QuickStep> grouped(IsGroups is_groups) const {
    return bytecode::with_events(plan, [&](uint32_t loop) {
      return is_groups(loop) ? bytecode::LoopEvents::kGroups : bytecode::LoopEvents::kNone;
    });
  }

  bytecode::Plan plan;
  std::vector<graph::Space> spaces;

 private:
  bytecode::Program program_;
};

template <class Workload>
std::vector<Shape> shapes_of(const Workload& workload) {
  std::vector<Shape> shapes;
  for (const auto& tensor : workload.tensors()) shapes.push_back(tensor.shape);
  return shapes;
}

/// What a task touches in one space.
struct Touched {
  uint32_t space;
  bool writes;
  graph::Box box;
};

struct Task {
  uint32_t site;
  std::vector<int64_t> registers;
  std::vector<Touched> touched;
};

inline std::vector<Touched> touched_by(const Planned& planned, uint32_t site, const int64_t* registers) {
  std::vector<Touched> touched;
  for (uint32_t i = 0; i < planned.spaces.size(); ++i) {
    for (const graph::Footprint& footprint : planned.spaces[i].footprints) {
      if (footprint.site != site) continue;
      Touched one{i, footprint.writes, {}};
      bool is_empty = false;
      for (size_t d = 0; d < footprint.dims.size(); ++d) {
        one.box.lo[d] = planned.plan.evaluate(footprint.dims[d].start, registers);
        one.box.hi[d] = one.box.lo[d] + planned.plan.evaluate(footprint.dims[d].extent, registers);
        is_empty = is_empty || one.box.hi[d] <= one.box.lo[d];
      }
      if (!is_empty) touched.push_back(one);
    }
  }
  return touched;
}

inline bool meet(const graph::Box& a, const graph::Box& b, size_t rank) {
  for (size_t d = 0; d < rank; ++d) {
    if (a.lo[d] >= b.hi[d] || b.lo[d] >= a.hi[d]) return false;
  }
  return true;
}

inline bool conflict(const Planned& planned, const Task& a, const Task& b) {
  for (const Touched& x : a.touched) {
    for (const Touched& y : b.touched) {
      if (x.space == y.space && (x.writes || y.writes) &&
          meet(x.box, y.box, planned.spaces[x.space].size.size()))
        return true;
    }
  }
  return false;
}

/// The loops of one kind around a task, outermost first: which run of the loop, and which iteration of it.
using Place = std::vector<std::pair<int, int>>;

struct PlacedTask {
  Task task;
  Place place;
};

/// The tasks of a program with their places among the loops of kind `op`; `flushed` is what flush points
/// read.
inline std::vector<PlacedTask> walk(Planned& planned, const std::vector<int64_t>& flushed, bytecode::Op op) {
  const auto steps = planned.grouped([&](uint32_t loop) { return planned.plan.loops[loop].op == op; });
  std::vector<PlacedTask> tasks;
  Place place;
  int num_runs = 0;
  size_t num_flushed = 0;
  bytecode::Expander expander(planned.plan, steps);
  for (;;) {
    const bytecode::Event event = expander.next();
    using Kind = bytecode::Event::Kind;
    if (event.kind == Kind::kEnd) return tasks;
    if (event.kind == Kind::kFlush) expander.assign(event.index, flushed[num_flushed++]);
    if (event.kind == Kind::kEnter) place.push_back({num_runs++, 0});
    if (event.kind == Kind::kIteration) ++place.back().second;
    if (event.kind == Kind::kLeave) place.pop_back();
    if (event.kind != Kind::kTask) continue;
    tasks.push_back(
        {{event.index, expander.copy_registers(), touched_by(planned, event.index, expander.registers())},
         place});
  }
}

/// Whether two tasks are in the same run of a loop, but not in the same iteration.
inline bool are_in_different_iterations(const Place& a, const Place& b) {
  for (size_t i = 0; i < a.size() && i < b.size() && a[i].first == b[i].first; ++i) {
    if (a[i].second != b[i].second) return true;
  }
  return false;
}

}  // namespace planned
