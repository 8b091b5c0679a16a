// SPDX-License-Identifier: MIT
/// \file
/// The arguments of kernels: the views and scalars of every site, filled in from registers.
///
/// A part of an argument that depends only on loops changes only when one of them advances. A walk in program
/// order fills it in then (`enter`), and fills in the rest at each task (`fill_rest`). A worker that runs
/// tasks in another order fills in all parts (`fill`).
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "pto/wsp/bytecode/plan.hpp"

namespace pto::wsp::bytecode {

class Arguments {
 public:
  Arguments() = default;
  Arguments(const Arguments&) = delete;

  /// Binds to `plan`, with tensors at `bases`.
  void bind(const Plan& plan, const std::vector<char*>& bases) {
    if (number_ != plan.number) build(plan);
    plan_ = &plan;
    if (bases != bases_) move_to(bases);
  }

  /// How the kernel of a site is called.
  struct Call {
    KernelFn fn;
    const View* views;
    const Scalar* scalars;
    bool is_plain;   ///< no workspace, no blocks, no written rows
    bool is_simple;  ///< plain, and complete without checks after its loops are entered
  };
  const Call& call(uint32_t site) const { return calls_[site]; }

  /// The first index of a row set, or null for other arguments.
  const int32_t* indices(uint32_t io) const {
    const int32_t rows = plan_->ios[io].rows;
    return rows < 0 ? nullptr : reinterpret_cast<const int32_t*>(bases_[plan_->rows[size_t(rows)].tensor]);
  }

  void fill(uint32_t site, const int64_t* registers) { store(sites_[site].all, registers); }
  void fill_rest(uint32_t site, const int64_t* registers) { store(sites_[site].rest, registers); }
  /// Fills in the parts that change with an iteration of `loop`.
  void enter(uint32_t loop, const int64_t* registers) { store(loops_[loop], registers); }
  /// The same for generated source. It stays where it is, and is of the plan that is bound.
  const walk::Arguments& of_walk() const { return of_walk_; }

 private:
  using AffineWord = walk::AffineWord;
  using Section = walk::Section;
  using Stores = walk::Stores;

  /// Eight bytes of an argument: `base + sum of terms + sum of parts`.
  struct WordForm {
    char* target;
    uint64_t base;
    uint32_t first_term, num_terms;  ///< in `terms_`
    uint32_t first_part, num_parts;  ///< in `parts_`
    int32_t tensor;
  };

  struct Product {
    Value value;
    uint64_t scale;
  };

  struct SiteStores {
    Stores all, rest;  ///< `rest` are the last ones of `all`
  };

  /// A part of an argument, and the loop that fills it in, or one of these values.
  static constexpr int32_t kNever = -2;   ///< it does not change
  static constexpr int32_t kAtTask = -1;  ///< it depends on more than loops
  struct Draft {
    WordForm form;
    int32_t loop;
  };

  void build(const Plan& plan) {
    plan_ = &plan;
    number_ = 0;  // 0 until all parts exist, because memory may run out
    views_ = plan.views;
    bases_.assign(plan.layouts.size(), nullptr);
    scalars_.resize(plan.scalars.size());
    for (size_t i = 0; i < plan.scalars.size(); ++i) scalars_[i].i64 = plan.scalars[i].bits;
    sites_.clear();
    calls_.clear();
    lines_.clear();
    forms_.clear();
    terms_.clear();
    parts_.clear();
    std::vector<Draft> drafts;
    for (uint32_t site = 0; site < plan.sites.size(); ++site) {
      const size_t first = drafts.size();
      draft_views(plan.sites[site], drafts);
      draft_scalars(plan.sites[site], drafts);
      for (size_t i = first; i < drafts.size(); ++i) drafts[i].loop = loop_of(drafts[i].form, site);
      sites_.push_back(add_site(drafts, first));
      calls_.push_back(make_call(plan.sites[site], sites_.back()));
    }
    fixed_ = add(drafts, 0, [](int32_t loop) { return loop == kNever; });
    add_loops(std::move(drafts));
  }

  void add_loops(std::vector<Draft> drafts) {
    const auto is_before = [](const Draft& a, const Draft& b) { return a.loop < b.loop; };
    std::stable_sort(drafts.begin(), drafts.end(), is_before);
    loops_.clear();
    auto first = std::find_if(drafts.begin(), drafts.end(), [](const Draft& d) { return d.loop >= 0; });
    for (int32_t loop = 0; loop < int32_t(plan_->loops.size()); ++loop) {
      const auto last = std::find_if(first, drafts.end(), [&](const Draft& d) { return d.loop != loop; });
      loops_.push_back(add({first, last}, 0, [](int32_t) { return true; }));
      first = last;
    }
    of_walk_ = {lines_.data(), loops_.data(), this, store_forms};
    number_ = plan_->number;
  }

  static void store_forms(void* arguments, const Section& forms, const int64_t* registers) {
    static_cast<Arguments*>(arguments)->store({{0, 0}, forms}, registers);
  }

  SiteStores add_site(const std::vector<Draft>& drafts, size_t first) {
    SiteStores site;
    site.all = add(drafts, first, [](int32_t loop) { return loop >= 0; });
    site.rest = add(drafts, first, [](int32_t loop) { return loop == kAtTask; });
    site.all.lines.end = site.rest.lines.end;
    site.all.forms.end = site.rest.forms.end;
    return site;
  }

  Call make_call(const QuickSite& site, const SiteStores& stores) const {
    const bool has_rest = !stores.rest.lines.is_empty() || !stores.rest.forms.is_empty();
    return {site.fn, views_.data() + site.first_io, scalars_.data() + site.first_scalar, site.is_plain,
            site.is_plain && !site.checks_late && !has_rest};
  }

  template <class IsWanted>
  Stores add(const std::vector<Draft>& drafts, size_t first, IsWanted is_wanted) {
    Stores stores{{uint32_t(lines_.size()), 0}, {uint32_t(forms_.size()), 0}};
    for (size_t i = first; i < drafts.size(); ++i) {
      const WordForm& form = drafts[i].form;
      if (!is_wanted(drafts[i].loop)) continue;
      if (form.num_parts > 0 || form.num_terms > 1) {
        forms_.push_back(form);
      } else {
        const Term term = form.num_terms == 0 ? Term{0, 0} : terms_[form.first_term];
        lines_.push_back({form.target, form.base, uint64_t(term.coef), term.reg, form.tensor});
      }
    }
    stores.lines.end = uint32_t(lines_.size());
    stores.forms.end = uint32_t(forms_.size());
    return stores;
  }

  void draft_views(const QuickSite& site, std::vector<Draft>& drafts) {
    const Patch* end = plan_->patches.data() + site.first_patch + site.num_patches;
    for (const Patch* patch = end - site.num_patches; patch != end; ++patch) {
      const uint32_t io = site.first_io + patch->view;
      View& view = views_[io];
      switch (patch->kind) {
        case Patch::kSetData:
          drafts.push_back({make_form(&view.data, patch->value, 1, plan_->ios[io].tensor), 0});
          for (const Patch* add = patch + 1; add != end && add->view == patch->view; ++add) {
            if (add->kind == Patch::kAddData) add_part(drafts.back().form, add->value, add->scale);
          }
          break;
        case Patch::kAddData: break;  // part of the previous kSetData
        case Patch::kExtent:
          drafts.push_back({make_form(&view.shape[patch->slot], patch->value, 1, -1), 0});
          break;
        case Patch::kRows: {
          const uint16_t tensor = plan_->rows[size_t(plan_->ios[io].rows)].tensor;
          drafts.push_back({make_form(&view.rows, patch->value, sizeof(int32_t), tensor), 0});
        }
      }
    }
  }

  void draft_scalars(const QuickSite& site, std::vector<Draft>& drafts) {
    for (uint32_t i = site.first_scalar; i < site.first_scalar + site.num_scalars; ++i) {
      const QuickScalar& scalar = plan_->scalars[i];
      if (!scalar.is_fixed) drafts.push_back({make_form(&scalars_[i], scalar.value, 1, -1), 0});
    }
  }

  template <class T>
  WordForm make_form(T* target, const Value& value, int64_t scale, int32_t tensor) {
    static_assert(sizeof(T) == 8, "arguments are filled in eight bytes at a time");
    WordForm form{
        reinterpret_cast<char*>(target), 0, uint32_t(terms_.size()), 0, uint32_t(parts_.size()), 0, tensor};
    if (value.postfix != kNoPostfix) {
      add_part(form, value, scale);
      return form;
    }
    form.base = uint64_t(value.c0) * uint64_t(scale);
    form.num_terms = value.num_terms;
    for (uint32_t i = 0; i < value.num_terms; ++i) {
      const Term term = plan_->terms[value.first_term + i];
      terms_.push_back({int64_t(uint64_t(term.coef) * uint64_t(scale)), term.reg});
    }
    return form;
  }

  void add_part(WordForm& form, const Value& value, int64_t scale) {
    parts_.push_back({value, uint64_t(scale)});
    ++form.num_parts;
  }

  /// The innermost loop around a site that a part of its arguments depends on, if every iteration has a task
  /// of the site. Otherwise iterations without the task would pay for it.
  int32_t loop_of(const WordForm& form, uint32_t site) const {
    if (form.num_parts > 0) return kAtTask;
    if (form.num_terms == 0) return kNever;
    const Program& program = plan_->program();
    int32_t innermost = kNever;
    for (uint32_t i = 0; i < form.num_terms; ++i) {
      const uint32_t reg = terms_[form.first_term + i].reg;
      if (program.is_variable[reg]) return kAtTask;
      int32_t loop = program.sites[site].loop;
      while (loop >= 0 && !owns(program, loop, reg)) loop = program.loops[size_t(loop)].parent;
      if (loop < 0) return kAtTask;
      innermost = std::max(innermost, loop);
    }
    const bool is_always_there = is_in_every_iteration(program.loops[size_t(innermost)], program.sites[site]);
    return is_always_there ? innermost : kAtTask;
  }

  static bool owns(const Program& program, int32_t loop, uint32_t reg) {
    const AxisDescriptor& axis = program.axes[program.loops[size_t(loop)].axis];
    return reg >= axis.reg && reg < axis.reg + (axis.kind == AxisKind::TILES ? 3u : 1u);
  }

  void move_to(const std::vector<char*>& bases) {
    const auto move = [&](auto& stores) {
      for (auto& store : stores) {
        if (store.tensor < 0) continue;
        const auto tensor = size_t(store.tensor);
        store.base += uint64_t(reinterpret_cast<uintptr_t>(bases[tensor]) -
                               reinterpret_cast<uintptr_t>(bases_[tensor]));
      }
    };
    move(lines_);
    move(forms_);
    bases_ = bases;
    const int64_t no_register = 0;
    store(fixed_, &no_register);
  }

  void store(const Stores& stores, const int64_t* registers) {
    for (const AffineWord *line = lines_.data() + stores.lines.first, *end = lines_.data() + stores.lines.end;
         line != end; ++line) {
      const uint64_t value = line->base + line->coef * uint64_t(registers[line->reg]);
      std::memcpy(line->target, &value, sizeof(value));
    }
    for (uint32_t i = stores.forms.first; i != stores.forms.end; ++i) {
      const uint64_t value = evaluate(forms_[i], registers);
      std::memcpy(forms_[i].target, &value, sizeof(value));
    }
  }

  uint64_t evaluate(const WordForm& form, const int64_t* registers) const {
    uint64_t sum = form.base;
    for (uint32_t i = 0; i < form.num_terms; ++i) {
      const Term& term = terms_[form.first_term + i];
      sum += uint64_t(term.coef) * uint64_t(registers[term.reg]);
    }
    for (uint32_t i = 0; i < form.num_parts; ++i) {
      const Product& part = parts_[form.first_part + i];
      sum += part.scale * uint64_t(plan_->evaluate(part.value, registers));
    }
    return sum;
  }

  const Plan* plan_ = nullptr;
  uint64_t number_ = 0;
  std::vector<View> views_;      ///< one per io
  std::vector<Scalar> scalars_;  ///< one per scalar argument
  std::vector<char*> bases_;     ///< per tensor
  std::vector<AffineWord> lines_;
  std::vector<WordForm> forms_;
  std::vector<Term> terms_;
  std::vector<Product> parts_;
  std::vector<SiteStores> sites_;
  std::vector<Call> calls_;
  std::vector<Stores> loops_;
  Stores fixed_{};
  walk::Arguments of_walk_;
};

}  // namespace pto::wsp::bytecode
