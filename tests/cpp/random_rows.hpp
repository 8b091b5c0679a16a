// SPDX-License-Identifier: MIT
/// \file
/// Random workloads of row sets and boxes of the same tensors, through index tensors with and without
/// repeats, bound or written in the run; with an independent sequential meaning and a pairwise order checker.
#pragma once

#include <algorithm>
#include <vector>

#include "assembler.hpp"
#include "check.hpp"
#include "choices.hpp"
#include "mix_kernels.hpp"

namespace random_rows {

using namespace assembler;

struct Tensor {
  std::vector<int64_t> shape, stride;
  std::vector<uint64_t> data;
  std::vector<int32_t> indices;  ///< of an index tensor, which has no data
};

/// A range [start, start + extent) with start = (first + i * step) % modulus, where i counts a loop's
/// iterations.
struct Span {
  int64_t first, step, modulus, extent;
  int64_t start(int64_t i) const { return (first + i * step) % modulus; }
};

struct Io {
  Role role;
  uint16_t tensor;
  int merged;  ///< of a row set; -1: a box
  uint16_t index;
  std::vector<Span> spans;  ///< of a row set: positions, then the dimensions that are left
};

struct Statement {
  uint16_t kernel;
  std::vector<Io> ios;
  int64_t scalar;
};

struct Phase {
  int64_t trips;
  Op op;
  std::vector<Statement> body;
};

/// A task as the test understands it.
struct Task {
  struct Access {
    uint16_t tensor;
    bool writes;
    bool by_position;
    bool is_known;       ///< elements are known before the run: no task writes the indices
    int64_t generation;  ///< of the indices: how often they have been written before
    const Io* io;
    std::vector<int64_t> lo, hi;
    std::vector<uint64_t> touches;  ///< a bit per element of the tensor
    void touch(int64_t element) { touches[size_t(element) / 64] |= uint64_t{1} << element % 64; }
  };
  const Statement* statement;
  std::vector<Access> accesses;
};

template <class Meet>
bool any_pair(const Task& a, const Task& b, Meet meet) {
  for (const Task::Access& x : a.accesses) {
    for (const Task::Access& y : b.accesses) {
      if (x.tensor == y.tensor && (x.writes || y.writes) && meet(x, y)) return true;
    }
  }
  return false;
}

/// Whether two accesses touch a common element.
inline bool meet(const Task::Access& x, const Task::Access& y) {
  for (size_t i = 0; i < x.touches.size(); ++i) {
    if ((x.touches[i] & y.touches[i]) != 0) return true;
  }
  return false;
}

/// Whether tasks a and b touch a common element that one of them writes.
inline bool conflict(const Task& a, const Task& b) { return any_pair(a, b, meet); }

/// Whether a task may name another one to wait for: they touch a common element, or an index that a task
/// writes decides what one of them touches. Where both are row sets of the same distinct indices, their
/// positions meet.
inline bool may_wait(const Task& a, const Task& b) {
  return any_pair(a, b, [](const Task::Access& x, const Task::Access& y) {
    if (x.is_known && y.is_known) return meet(x, y);
    const bool both = x.by_position && y.by_position && x.io->index == y.io->index &&
                      x.io->merged == y.io->merged && x.generation == y.generation;
    for (size_t d = 0; d < x.lo.size() && both; ++d) {
      if (std::max(x.lo[d], y.lo[d]) >= std::min(x.hi[d], y.hi[d])) return false;
    }
    return true;
  });
}

class Workload {
 public:
  explicit Workload(uint64_t seed) : choices_(seed), program_(mix::library().table()) {
    for (int i = pick(1, 2); i > 0; --i) add_tensor();
    const auto num_data = uint16_t(tensors_.size());
    for (uint16_t i = 0; i < num_data; ++i) add_indices(i);
    rounds_ = pick(1, 3);
    for (int i = pick(2, 5); i > 0; --i) add_phase();
    emit();
    choices::note_program(program_.bytes());
    expand();
  }

  std::vector<uint8_t> bytes() const { return program_.bytes(); }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::vector<Task>& tasks() const { return tasks_; }

  /// Runs every task in program order on `data`.
  void run_in_order(std::vector<Tensor>& data) const {
    for (size_t task = 0; task < tasks_.size(); ++task) {
      const Statement& statement = *tasks_[task].statement;
      std::vector<View> views;
      for (const Task::Access& access : tasks_[task].accesses) {
        if (access.io->tensor == access.tensor) views.push_back(view_of(access, data));
      }
      if (statement.kernel != mix::kFill) {
        mix::apply(views.data(), mix::patterns()[statement.kernel / 3u], task);
        continue;
      }
      auto* indices = static_cast<int32_t*>(views[0].data);
      for (int64_t i = 0; i < views[0].shape[0]; ++i)
        indices[i] = mix::filled(i, statement.scalar, views[0].shape[0]);
    }
  }

  void check_order(const mix::Stamps& stamps) const {
    for (size_t j = 0; j < tasks_.size(); ++j) {
      CHECK(stamps.start[j] != 0 && stamps.end[j] != 0);
      for (size_t i = 0; i < j; ++i) {
        if (conflict(tasks_[i], tasks_[j])) CHECK(stamps.end[i] < stamps.start[j]);
      }
    }
  }

 private:
  int pick(int64_t lo, int64_t hi) { return int(choices_.pick(lo, hi)); }

  void add_tensor() {
    Tensor tensor;
    const int rank = pick(1, 3);
    const int64_t sizes[] = {1, 2, 5, 12, 24};
    for (int d = 0; d < rank; ++d) tensor.shape.push_back(sizes[pick(d == 0 ? 2 : 0, d == 0 ? 4 : 3)]);
    tensor.stride.assign(size_t(rank), 1);
    int64_t stride = 1;
    for (size_t d = size_t(rank); d-- > 0;) {
      tensor.stride[d] = stride;
      stride *= tensor.shape[d] + (d == 2 ? pick(0, 1) : 0);
    }
    tensor.data.resize(size_t(stride));
    for (size_t i = 0; i < tensor.data.size(); ++i) tensor.data[i] = mix::scramble(i + 1);
    tensors_.push_back(tensor);
    program_.tensor(DType::u64, tensor.shape);
    kinds_.push_back({});
  }

  /// Index tensors for the rows of tensor `of`.
  void add_indices(uint16_t of) {
    for (int merged = 0; merged < std::min(2, int(tensors_[of].shape.size())); ++merged) {
      int64_t rows = 1;
      for (int d = 0; d <= merged; ++d) rows *= tensors_[of].shape[size_t(d)];
      std::vector<int32_t> names;
      for (int32_t row = 0; row < rows; ++row) names.push_back(row);
      choices_.shuffle(names);
      names.resize(size_t(pick(2, int(rows))));
      const int kind = pick(0, 3);
      const size_t count = names.size();
      if (kind == 1) names.insert(names.end(), names.begin(), names.end());  // each named twice
      Tensor tensor{{int64_t(names.size()), 1}, {1, 1}, {}, names};
      tensors_.push_back(tensor);
      program_.tensor(DType::i32, tensor.shape, kind >= 2, kind == 2);
      kinds_.push_back({of, merged, kind != 1 && kind != 3, kind >= 2, int64_t(count)});
    }
  }

  void add_phase() {
    const Op ops[] = {Op::PARALLEL_FOR, Op::RANGE_FOR};
    phases_.push_back({pick(1, 12), ops[pick(0, 1)], {}});
    for (int i = pick(1, 2); i > 0; --i) {
      const int num_tensors = int(tensors_.size());
      const auto target = uint16_t(pick(0, num_tensors - 1));
      phases_.back().body.push_back(kinds_[target].is_written && pick(0, 1) == 0
                                        ? make_fill(target)
                                        : make_statement(phases_.back().trips));
    }
    // A second rotation in one loop would be written by every iteration; one is enough.
    if (phases_.back().body[0].kernel == mix::kFill) phases_.back().trips = 1;
  }

  Statement make_fill(uint16_t index) {
    return {mix::kFill,
            {{Role::out, index, -1, 0, {{0, 0, 1, tensors_[index].shape[0]}, {0, 0, 1, 1}}}},
            pick(0, 100)};
  }

  Statement make_statement(int64_t trips) {
    const auto pattern = uint16_t(pick(0, int(mix::patterns().size()) - 1));
    for (;;) {
      Statement statement{uint16_t(pattern * 3), {}, 0};
      size_t rank = 0;
      bool fits = true;
      for (Role role : mix::patterns()[pattern]) {
        statement.ios.push_back(make_io(role, trips));
        fits = fits && (rank == 0 || rank == statement.ios.back().spans.size());
        rank = statement.ios.back().spans.size();
      }
      if (!fits) continue;
      statement.kernel = uint16_t(pattern * 3 + rank - 1);
      return statement;
    }
  }

  Io make_io(Role role, int64_t trips) {
    std::vector<uint16_t> data, indices;
    for (uint16_t i = 0; i < tensors_.size(); ++i)
      (tensors_[i].indices.empty() ? data : indices).push_back(i);
    Io io{role, data[size_t(pick(0, int(data.size()) - 1))], -1, 0, {}};
    if (pick(0, 2) != 0) {
      io.index = indices[size_t(pick(0, int(indices.size()) - 1))];
      const Kind& kind = kinds_[io.index];
      io.tensor = kind.of;
      io.merged = kind.merged;
      io.spans.push_back(make_span(tensors_[io.index].shape[0], trips, kind.longest));
    }
    const std::vector<int64_t>& shape = tensors_[io.tensor].shape;
    for (size_t d = size_t(io.merged + 1); d < shape.size(); ++d)
      io.spans.push_back(make_span(shape[d], trips, shape[d]));
    return io;
  }

  Span make_span(int64_t size, int64_t trips, int64_t longest) {
    if (pick(0, 4) == 0 && longest == size) return {0, 0, 1, size};
    const int64_t part = size / trips;
    if (part > 0 && part <= longest && pick(0, 1) == 0) return {0, part, kNoModulus, pick(0, int(part))};
    const int64_t extent = pick(1, int(std::min<int64_t>(longest, 4)));
    return {pick(0, 3), pick(0, 3), size - extent + 1, extent};
  }

  void emit() {
    program_.loop(Op::RANGE_FOR, program_.constant(rounds_));
    for (const Phase& phase : phases_) {
      const uint32_t reg = program_.loop(phase.op, program_.constant(phase.trips));
      for (const Statement& statement : phase.body) {
        program_.task(statement.kernel);
        if (statement.kernel == mix::kFill) program_.param(program_.constant(statement.scalar));
        for (const Io& io : statement.ios) emit(io, reg, statement.kernel == mix::kFill);
      }
      program_.end();
    }
    program_.end();
  }

  void emit(const Io& io, uint32_t reg, bool is_whole) {
    program_.io(io.role, io.tensor);
    for (size_t d = 0; d < io.spans.size(); ++d) {
      if (is_whole) {
        program_.full();
        continue;
      }
      const Span& span = io.spans[d];
      Expr start = program_.add(program_.constant(span.first),
                                program_.mul(program_.reg(reg), program_.constant(span.step)));
      if (span.modulus != kNoModulus)
        start = program_.apply(Op::EXPR_MOD, {start, program_.constant(span.modulus)});
      const Expr extent = program_.constant(span.extent);
      if (d == 0 && io.merged >= 0) {
        program_.rows(io.index, start, extent, io.merged);
      } else {
        program_.range(start, extent);
      }
    }
  }

  // The meaning, written without the engine.

  void expand() {
    std::vector<Tensor> now = tensors_;
    std::vector<int64_t> generation(tensors_.size(), 0);
    for (int round = 0; round < rounds_; ++round) {
      for (const Phase& phase : phases_) {
        for (int64_t i = 0; i < phase.trips; ++i) {
          for (const Statement& statement : phase.body) add_instance(statement, i, now, generation);
        }
      }
    }
  }

  void add_instance(const Statement& statement, int64_t i, std::vector<Tensor>& now,
                    std::vector<int64_t>& generation) {
    Task task{&statement, {}};
    for (const Io& io : statement.ios) {
      Task::Access access{io.tensor, io.role != Role::in, false, true, 0, &io, {}, {}, {}};
      for (const Span& span : io.spans) {
        access.lo.push_back(span.start(i));
        access.hi.push_back(span.start(i) + span.extent);
      }
      access.by_position = io.merged >= 0 && kinds_[io.index].is_distinct;
      access.is_known = io.merged < 0 || !kinds_[io.index].is_written;
      if (io.merged >= 0) access.generation = generation[io.index];
      touch(access, now);
      task.accesses.push_back(access);
      if (io.merged >= 0 && access.lo[0] < access.hi[0]) task.accesses.push_back(index_read(access));
    }
    if (statement.kernel == mix::kFill) {
      Tensor& tensor = now[statement.ios[0].tensor];
      for (int64_t k = 0; k < tensor.shape[0]; ++k)
        tensor.indices[size_t(k)] = mix::filled(k, statement.scalar, tensor.shape[0]);
      ++generation[statement.ios[0].tensor];
    }
    tasks_.push_back(task);
  }

  /// A row set also reads its indices.
  Task::Access index_read(const Task::Access& access) const {
    static const Io box{Role::in, 0, -1, 0, {}};
    Task::Access read{access.io->index,  false, false, true, 0, &box, {access.lo[0], 0},
                      {access.hi[0], 1}, {}};
    read.touches.assign(tensors_[read.tensor].indices.size() / 64 + 1, 0);
    for (int64_t i = access.lo[0]; i < access.hi[0]; ++i) read.touch(i);
    return read;
  }

  void touch(Task::Access& access, const std::vector<Tensor>& now) const {
    const Tensor& tensor = tensors_[access.tensor];
    access.touches.assign((tensor.data.size() + tensor.indices.size()) / 64 + 1, 0);
    touch_from(access, now, 0, 0);
  }

  void touch_from(Task::Access& access, const std::vector<Tensor>& now, size_t span, int64_t offset) const {
    if (span == access.lo.size()) return access.touch(offset);
    const bool is_rows = span == 0 && access.io->merged >= 0;
    const size_t dim = span + size_t(std::max(access.io->merged, 0));
    for (int64_t i = access.lo[span]; i < access.hi[span]; ++i) {
      const int64_t at = is_rows ? now[access.io->index].indices[size_t(i)] : i;
      touch_from(access, now, span + 1, offset + at * tensors_[access.tensor].stride[dim]);
    }
  }

  View view_of(const Task::Access& access, std::vector<Tensor>& data) const {
    Tensor& tensor = data[access.tensor];
    View view{tensor.data.data(), {1, 1, 1, 1}, {0, 0, 0, 0}, nullptr};
    if (!tensor.indices.empty()) view.data = tensor.indices.data();
    for (size_t span = 0; span < access.lo.size(); ++span) {
      const size_t dim = span + size_t(std::max(access.io->merged, 0));
      view.shape[span] = access.hi[span] - access.lo[span];
      view.stride[span] = tensor.stride[dim];
      if (span == 0 && access.io->merged >= 0) {
        view.rows = data[access.io->index].indices.data() + access.lo[0];
      } else if (tensor.indices.empty()) {
        view.data = static_cast<uint64_t*>(view.data) + access.lo[span] * tensor.stride[dim];
      }
    }
    return view;
  }

  static constexpr int64_t kNoModulus = int64_t{1} << 40;

  /// What an index tensor is for.
  struct Kind {
    uint16_t of = 0;
    int merged = 0;
    bool is_distinct = false;  ///< and known to be
    bool is_written = false;
    int64_t longest = 0;  ///< so many indices in a row are distinct
  };

  choices::Choices choices_;
  Assembler program_;
  std::vector<Tensor> tensors_;
  std::vector<Kind> kinds_;
  std::vector<Phase> phases_;
  std::vector<Task> tasks_;
  int rounds_ = 1;
};

}  // namespace random_rows
