// SPDX-License-Identifier: MIT
/// \file
/// Compares single tasks of a plan, where too few are in flight for hazard maps.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "pto/wsp/graph/boxes.hpp"

namespace pto::wsp::graph {

/// What a task touches, and where it is among the iterations of the loops that order it.
struct TaskPlace {
  struct Touched {
    uint32_t space;
    uint32_t group;
    bool writes;
    Box box;
  };

  uint32_t site = 0;
  std::vector<Touched> touched;
  std::vector<int64_t> iterations;  ///< of the P.seq loops around it
};

class TaskOrder {
 public:
  explicit TaskOrder(const Plan& plan)
      : plan_(plan), spaces_(find_spaces(plan)), of_site_(plan.sites.size()) {
    std::vector<bool> is_written(plan.layouts.size(), false);
    for (const Space& space : spaces_)
      is_written[space.group()] = is_written[space.group()] || space.is_written;
    for (uint32_t i = 0; i < spaces_.size(); ++i) {
      if (!is_written[spaces_[i].group()]) continue;
      for (const Footprint& footprint : spaces_[i].footprints)
        of_site_[footprint.site].accesses.push_back({i, &footprint});
    }
    for (uint32_t site = 0; site < plan.sites.size(); ++site) find_barriers(site);
  }
  TaskOrder(const TaskOrder&) = delete;

  /// Fills in the place of a task. A row set counts as all rows.
  void place(uint32_t site, const int64_t* registers, TaskPlace& place) const {
    const Site& of_site = of_site_[site];
    place.site = site;
    place.touched.clear();
    for (const Access& access : of_site.accesses) {
      const Footprint& footprint = *access.footprint;
      place.touched.push_back({access.space, spaces_[access.space].group(), footprint.writes,
                               evaluate_box(plan_, footprint.dims.data(), footprint.dims.size(), registers)});
    }
    place.iterations.clear();
    for (const uint32_t reg : of_site.barriers) place.iterations.push_back(registers[reg]);
  }

  /// Whether a task waits for an earlier one of its program order.
  bool waits(const TaskPlace& later, const TaskPlace& earlier) const {
    if (of_site_[later.site].barriers != of_site_[earlier.site].barriers) return true;
    if (later.iterations != earlier.iterations) return true;
    const bytecode::SiteForm& form = plan_.program().sites[later.site];
    const uint32_t* after = plan_.program().afters.data() + form.first_after;
    if (std::find(after, after + form.num_afters, earlier.site) != after + form.num_afters) return true;
    return std::any_of(later.touched.begin(), later.touched.end(), [&](const TaskPlace::Touched& a) {
      return std::any_of(earlier.touched.begin(), earlier.touched.end(),
                         [&](const TaskPlace::Touched& b) { return conflict(a, b); });
    });
  }

 private:
  struct Access {
    uint32_t space;
    const Footprint* footprint;
  };
  struct Site {
    std::vector<Access> accesses;
    std::vector<uint32_t> barriers;  ///< registers of the P.seq loops around it, innermost first
  };

  void find_barriers(uint32_t site) {
    const bytecode::Program& program = plan_.program();
    for (int32_t loop = program.sites[site].loop; loop >= 0; loop = program.loops[size_t(loop)].parent) {
      if (program.loops[size_t(loop)].op == bytecode::Op::FOR_EACH)
        of_site_[site].barriers.push_back(plan_.loops[size_t(loop)].reg);
    }
  }

  /// Accesses in different spaces of a memory count as overlapping.
  bool conflict(const TaskPlace::Touched& a, const TaskPlace::Touched& b) const {
    if (a.group != b.group || !(a.writes || b.writes)) return false;
    return a.space != b.space || intersects(a.box, b.box, int(spaces_[a.space].size.size()));
  }

  const Plan& plan_;
  const std::vector<Space> spaces_;
  std::vector<Site> of_site_;
};

}  // namespace pto::wsp::graph
