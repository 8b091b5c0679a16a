// SPDX-License-Identifier: MIT
/// \file
/// The graphs of the case as streams of accesses, and the edges that follow from them, for the peers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace graphs {

/// Tasks in program order, with the cells that each reads and writes.
struct Stream {
  std::vector<uint32_t> first_access{0};  ///< per task, and the end
  std::vector<uint32_t> num_reads;        ///< per task: its first accesses are reads, the others writes
  std::vector<int32_t> cells;             ///< of the accesses; what is read and written is in both lists
  int32_t num_cells = 0;

  size_t num_tasks() const { return num_reads.size(); }

  void task(std::initializer_list<int32_t> reads, std::initializer_list<int32_t> writes) {
    cells.insert(cells.end(), reads);
    cells.insert(cells.end(), writes);
    num_reads.push_back(uint32_t(reads.size()));
    first_access.push_back(uint32_t(cells.size()));
  }
};

/// Names of the n cells of a tensor: tensor(i) is cell i of it.
class Tensor {
 public:
  Tensor(Stream& stream, int n) : first_(stream.num_cells) { stream.num_cells += n; }
  int32_t operator()(int i) const { return first_ + i; }

 private:
  int32_t first_;
};

/// The LLaMA layer of programs.py. Weights, which nothing writes, are left out.
inline Stream llama(int n) {
  Stream s;
  const Tensor x(s, n), y(s, n), q(s, n), k(s, n), v(s, n), qr(s, n), kr(s, n), attn(s, n), row_max(s, n),
      row_sum(s, n), hidden(s, n), norm(s, n), scores(s, n), probs(s, n), scale(s, n), gate(s, n), up(s, n),
      swiglu(s, n), mlp(s, n);
  for (int i = 0; i < n; ++i) {
    s.task({x(i)}, {norm(i)});
    for (const Tensor* t : {&q, &k, &v}) s.task({norm(i)}, {(*t)(i)});
    s.task({q(i)}, {qr(i)});
    s.task({k(i)}, {kr(i)});
  }
  for (int i = 0; i < n; ++i) {
    s.task({}, {attn(i), row_sum(i), row_max(i)});
    for (int j = 0; j < n; ++j) {
      s.task({qr(i), kr(j)}, {scores(i)});
      s.task({scores(i), row_max(i), row_sum(i)}, {row_max(i), row_sum(i), probs(i), scale(i)});
      s.task({attn(i), probs(i), v(j), scale(i)}, {attn(i)});
    }
    s.task({attn(i), row_sum(i)}, {attn(i)});
  }
  for (int i = 0; i < n; ++i) {
    s.task({attn(i)}, {norm(i)});
    s.task({norm(i), x(i)}, {hidden(i)});
    s.task({hidden(i)}, {norm(i)});
    s.task({norm(i)}, {gate(i)});
    s.task({norm(i)}, {up(i)});
    s.task({gate(i), up(i)}, {swiglu(i)});
    s.task({swiglu(i)}, {mlp(i)});
    s.task({mlp(i), hidden(i)}, {y(i)});
  }
  return s;
}

inline Stream independent(int n) {
  Stream s;
  const Tensor y(s, n);
  for (int i = 0; i < n; ++i) s.task({}, {y(i)});
  return s;
}

inline Stream fan(int n, int rounds) {
  Stream s;
  const Tensor state(s, 1), y(s, n);
  s.task({state(0)}, {state(0)});
  for (int r = 0; r < rounds; ++r) {
    for (int i = 0; i < n; ++i) s.task({state(0)}, {y(i)});
    s.task({state(0)}, {state(0)});
  }
  return s;
}

inline Stream chain(int n) {
  Stream s;
  const Tensor state(s, 1);
  for (int i = 0; i < n; ++i) s.task({state(0)}, {state(0)});
  return s;
}

inline Stream wavefront(int n) {
  Stream s;
  const Tensor a(s, (n + 1) * (n + 1));
  const auto at = [&](int i, int j) { return a(i * (n + 1) + j); };
  for (int i = 1; i <= n; ++i) {
    for (int j = 1; j <= n; ++j) s.task({at(i - 1, j), at(i, j - 1), at(i, j)}, {at(i, j)});
  }
  return s;
}

/// The graph called `name` of size `n`.
inline Stream make(const std::string& name, int n) {
  if (name == "llama") return llama(n);
  if (name == "independent") return independent(n);
  if (name == "fan") return fan(n, 10);
  if (name == "chain") return chain(n);
  return wavefront(n);
}

/// Read after write, write after read and write after write, as successors of each task: each pair once, and
/// no write after a write that was read in between.
struct Edges {
  std::vector<uint32_t> first;  ///< per task, and the end
  std::vector<uint32_t> successors;
  std::vector<uint32_t> num_predecessors;
};

inline Edges find_edges(const Stream& stream) {
  struct Cell {
    int64_t writer = -1;
    std::vector<uint32_t> readers;
  };
  std::vector<Cell> cells(size_t(stream.num_cells));
  std::vector<std::pair<uint32_t, uint32_t>> edges;
  std::vector<uint32_t> before;
  Edges out;
  for (uint32_t task = 0; task < stream.num_tasks(); ++task) {
    before.clear();
    const int32_t* access = stream.cells.data() + stream.first_access[task];
    const int32_t* writes = access + stream.num_reads[task];
    const int32_t* end = stream.cells.data() + stream.first_access[task + 1];
    for (const int32_t* c = access; c != end; ++c) {
      Cell& cell = cells[size_t(*c)];
      if (c >= writes) before.insert(before.end(), cell.readers.begin(), cell.readers.end());
      // Readers represent the writer that they wait for.
      if (cell.writer >= 0 && (c < writes || cell.readers.empty())) before.push_back(uint32_t(cell.writer));
    }
    for (const int32_t* c = access; c != writes; ++c) cells[size_t(*c)].readers.push_back(task);
    for (const int32_t* c = writes; c != end; ++c) cells[size_t(*c)] = {task, {}};
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    before.erase(std::remove(before.begin(), before.end(), task), before.end());
    for (uint32_t b : before) edges.push_back({b, task});
    out.num_predecessors.push_back(uint32_t(before.size()));
  }
  std::sort(edges.begin(), edges.end());
  out.first.assign(stream.num_tasks() + 1, 0);
  for (const auto& edge : edges) {
    ++out.first[edge.first + 1];
    out.successors.push_back(edge.second);
  }
  for (size_t i = 0; i < stream.num_tasks(); ++i) out.first[i + 1] += out.first[i];
  return out;
}

}  // namespace graphs
