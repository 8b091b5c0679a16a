// SPDX-License-Identifier: MIT
/// \file
/// What others need for the same graphs: a loop (the floor), gcc's tasks with `depend`, and oneTBB's flow
/// graph.
///
/// A body stores one number through an indirect call. A run writes two times in nanoseconds: of building, and
/// of running what was built. libgomp finds the edges itself, while it runs; the flow graph is handed them.
#include <omp.h>

#include <chrono>
#include <deque>
#include <memory>
#include <thread>

#include "graphs.hpp"

#ifdef WITH_TBB
#include <tbb/flow_graph.h>
#include <tbb/global_control.h>
#include <tbb/task_arena.h>
#endif

namespace {

double now_ns() {
  return double(std::chrono::duration_cast<std::chrono::nanoseconds>(
                    std::chrono::steady_clock::now().time_since_epoch())
                    .count());
}

void store_one(int32_t* cell) { *cell = 1; }
void (*volatile body)(int32_t*) = store_one;

struct Graph {
  graphs::Stream stream;
  graphs::Edges edges;
  std::vector<int32_t> cells;

  explicit Graph(graphs::Stream s) : stream(std::move(s)), edges(graphs::find_edges(stream)) {
    cells.assign(size_t(stream.num_cells), 0);
  }
  int32_t* written(size_t task) { return &cells[size_t(stream.cells[stream.first_access[task + 1] - 1])]; }
};

}  // namespace

extern "C" {

void* graph_make(const char* name, int n) { return new Graph(graphs::make(name, n)); }
void graph_free(void* graph) { delete static_cast<Graph*>(graph); }
int64_t graph_tasks(void* graph) { return int64_t(static_cast<Graph*>(graph)->stream.num_tasks()); }
int64_t graph_edges(void* graph) { return int64_t(static_cast<Graph*>(graph)->edges.successors.size()); }

/// The bodies in program order, on this thread.
void run_loop(void* opaque, int, double* times) {
  Graph& graph = *static_cast<Graph*>(opaque);
  const double start = now_ns();
  void (*const call)(int32_t*) = body;
  for (size_t task = 0; task < graph.stream.num_tasks(); ++task) call(graph.written(task));
  times[0] = 0;
  times[1] = now_ns() - start;
}

/// One thread makes the tasks, all run them.
void run_libgomp(void* opaque, int workers, double* times) {
  Graph& graph = *static_cast<Graph*>(opaque);
  const graphs::Stream& s = graph.stream;
  int32_t* const cells = graph.cells.data();
  const double start = now_ns();
#pragma omp parallel num_threads(workers)
#pragma omp single
  for (size_t task = 0; task < s.num_tasks(); ++task) {
    const int32_t* reads = s.cells.data() + s.first_access[task];
    const int32_t* writes = reads + s.num_reads[task];
    const int num_reads = int(s.num_reads[task]);
    const int num_writes = int(s.first_access[task + 1] - s.first_access[task]) - num_reads;
    int32_t* const out = graph.written(task);
#pragma omp task firstprivate(out) depend(iterator(int r = 0 : num_reads), in : cells[reads[r]]) \
    depend(iterator(int w = 0 : num_writes), inout : cells[writes[w]])
    body(out);
  }
  times[0] = 0;
  times[1] = now_ns() - start;
}

#ifdef WITH_TBB
void run_tbb(void* opaque, int workers, double* times) {
  using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;
  Graph& graph = *static_cast<Graph*>(opaque);
  const tbb::global_control limit(tbb::global_control::max_allowed_parallelism, size_t(workers));
  tbb::task_arena arena(workers);
  arena.execute([&] {
    double start = now_ns();
    tbb::flow::graph flow;
    std::deque<Node> nodes;
    for (size_t task = 0; task < graph.stream.num_tasks(); ++task) {
      int32_t* const out = graph.written(task);
      nodes.emplace_back(flow, [out](const tbb::flow::continue_msg&) { body(out); });
    }
    for (size_t task = 0; task < nodes.size(); ++task) {
      for (uint32_t e = graph.edges.first[task]; e < graph.edges.first[task + 1]; ++e)
        tbb::flow::make_edge(nodes[task], nodes[graph.edges.successors[e]]);
    }
    times[0] = now_ns() - start;
    start = now_ns();
    for (size_t task = 0; task < nodes.size(); ++task) {
      if (graph.edges.num_predecessors[task] == 0) nodes[task].try_put(tbb::flow::continue_msg());
    }
    flow.wait_for_all();
    times[1] = now_ns() - start;
  });
}
#endif

/// Keeps one core busy until `busy_stop`, on the last core that this process may use.
namespace {
std::atomic<bool> is_busy{false};
std::unique_ptr<std::thread> busy_thread;
}  // namespace

void busy_start(int core) {
  is_busy = true;
  busy_thread = std::make_unique<std::thread>([core] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    while (is_busy.load(std::memory_order_relaxed)) {
    }
  });
}

void busy_stop() {
  is_busy = false;
  busy_thread->join();
  busy_thread.reset();
}

}  // extern "C"
