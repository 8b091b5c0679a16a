// SPDX-License-Identifier: MIT
/// \file
/// The engine seen from C++, without Python: `native MODE PROGRAM` prints one number.
///
/// PROGRAM is a text: the paths of bytecode and kernel library, the shapes of the i32 tensors (rank, then
/// sizes), and the symbols (a number, or - for those that shapes decide). Modes: `startup` (ns from nothing
/// to the end of a first run with two workers), `roundtrip` (ns of one run, median of many), `interpret` (ns
/// per task with bodies that do nothing, one worker), `expand` (ns per task of the walk alone, arguments
/// filled in) and `loops` (the calls of the LLaMA layer with loops written in C++). A path after the symbols
/// is that of the walk as generated source.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "pto/wsp/engine.hpp"
#include "pto/wsp/library.hpp"

namespace {

using namespace pto::wsp;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Call {
  std::vector<uint8_t> bytecode;
  std::string library;
  std::vector<std::vector<int32_t>> memory;
  std::vector<bind::ArrayRef> arrays;
  std::vector<std::optional<int64_t>> symbols;
  std::string walk;

  explicit Call(const char* path) {
    std::ifstream in(path);
    std::string code;
    in >> code >> library;
    std::ifstream bytes(code, std::ios::binary);
    bytecode.assign(std::istreambuf_iterator<char>(bytes), {});
    size_t num_tensors = 0, num_symbols = 0;
    for (in >> num_tensors; arrays.size() < num_tensors;) add_array(in);
    for (in >> num_symbols; symbols.size() < num_symbols;) {
      std::string value;
      in >> value;
      symbols.push_back(value == "-" ? std::nullopt : std::optional<int64_t>(std::stoll(value)));
    }
    in >> walk;
  }

 private:
  void add_array(std::ifstream& in) {
    bind::ArrayRef ref{};
    in >> ref.rank;
    int64_t elements = 1;
    for (int d = 0; d < ref.rank; ++d) {
      in >> ref.shape[d];
      elements *= ref.shape[d];
    }
    int64_t stride = 4;
    for (int d = ref.rank; d-- > 0; stride *= ref.shape[d]) ref.stride_bytes[d] = stride;
    memory.emplace_back(size_t(elements));
    ref.data = memory.back().data();
    ref.dtype = DType::i32;
    arrays.push_back(ref);
  }
};

sched::RunOptions with_workers(uint32_t workers) {
  sched::RunOptions options;
  options.workers = workers;
  return options;
}

std::shared_ptr<const KernelLibrary> load(const std::string& path) {
  const auto library = std::make_shared<LoadedLibrary>(path);
  return {library, &library->table()};
}

int64_t startup(Call& call) {
  const int64_t start = now_ns();
  Executable executable(call.bytecode.data(), call.bytecode.size(), load(call.library));
  executable.run(call.arrays, call.symbols, with_workers(2));
  return now_ns() - start;
}

double roundtrip(Call& call) {
  Executable executable(call.bytecode.data(), call.bytecode.size(), load(call.library));
  std::vector<int64_t> times(2000);
  for (int64_t& time : times) {
    const int64_t start = now_ns();
    executable.run(call.arrays, call.symbols, with_workers(2));
    time = now_ns() - start;
  }
  std::nth_element(times.begin(), times.begin() + 1000, times.end());
  return double(times[1000]);
}

std::shared_ptr<const walk::WalkFn> walk_of(const Call& call) {
  return call.walk.empty() ? nullptr : load_walk(call.walk);
}

int32_t nothing(const View*, const Scalar*, const TaskContext*) { return 0; }

/// The best of some repetitions.
template <class Function>
double best_ns(Function function) {
  double best = 1e18;
  for (int i = 0; i < 5; ++i) {
    const int64_t start = now_ns();
    function();
    best = std::min(best, double(now_ns() - start));
  }
  return best;
}

double interpret(Call& call) {
  const std::shared_ptr<const KernelLibrary> loaded = load(call.library);
  std::vector<KernelInfo> kernels(loaded->kernels, loaded->kernels + loaded->num_kernels);
  for (KernelInfo& kernel : kernels) kernel.fn = nothing;
  auto table = std::make_shared<KernelLibrary>(*loaded);
  table->kernels = kernels.data();
  Executable executable(call.bytecode.data(), call.bytecode.size(), table, nullptr, walk_of(call));
  uint64_t tasks = 0;
  const double ns =
      best_ns([&] { tasks = executable.run(call.arrays, call.symbols, with_workers(1)).tasks; });
  return ns / double(tasks);
}

/// The walk alone: every event in program order, with arguments filled in.
double expand(Call& call) {
  const std::shared_ptr<const KernelLibrary> library = load(call.library);
  const std::shared_ptr<const walk::WalkFn> walk = walk_of(call);
  bytecode::Program program = bytecode::load_program(call.bytecode.data(), call.bytecode.size(), *library);
  if (walk != nullptr) program.walk = *walk;
  const bind::Arguments bound = bind::bind_arguments(program, call.arrays, call.symbols);
  bytecode::Plan plan = bytecode::make_plan({&program, bound.symbols}, bound.layouts, *library);
  bytecode::bind_elements(plan, bound.bases);
  bytecode::Arguments arguments;
  arguments.bind(plan, bound.bases);
  uint64_t tasks = 0;
  const double ns = best_ns([&] {
    bytecode::Expander expander(plan, &arguments);
    while (expander.next().kind != bytecode::Event::kEnd) {
    }
    tasks = expander.num_tasks();
  });
  return ns / double(tasks);
}

/// The calls of the layer as one would write them: views are filled in, and a pointer is called.
class Loops {
 public:
  explicit Loops(Call& call) : n_(call.arrays.back().shape[0]) {
    for (const bind::ArrayRef& array : call.arrays) bases_.push_back(static_cast<char*>(array.data));
    for (View& view : views_) view = {nullptr, {1, 1, 1, 1}, {1, 1, 1, 1}, nullptr};
  }

  uint64_t run() {
    num_calls_ = 0;
    for (int64_t i = 0; i < n_; ++i) stage<6>(i, i);
    for (int64_t q = 0; q < n_; ++q) {
      call<6>(q, q);
      for (int64_t k = 0; k < n_; ++k) {
        call<3>(q, k);
        call<5>(q, k);
        call<4>(q, k);
      }
      call<2>(q, q);
    }
    for (int64_t i = 0; i < n_; ++i) stage<8>(i, i);
    return num_calls_;
  }

 private:
  template <int kCalls>
  void stage(int64_t i, int64_t j) {
    for (int c = 0; c < kCalls; ++c) call<3>(i, j);
  }

  template <int kViews>
  void call(int64_t i, int64_t j) {
    for (int v = 0; v < kViews; ++v) views_[v].data = bases_[size_t(v + 1)] + 128 * (v == 1 ? j : i);
    const TaskContext context{nullptr, nullptr, 0, num_calls_++, 0, 1, nullptr};
    fn_(views_, nullptr, &context);
  }

  int64_t n_;
  std::vector<char*> bases_;
  View views_[6];
  KernelFn volatile fn_ = nothing;
  uint64_t num_calls_ = 0;
};

double loops(Call& call) {
  Loops layer(call);
  uint64_t calls = 0;
  const double ns = best_ns([&] { calls = layer.run(); });
  return ns / double(calls);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  Call call(argv[2]);
  const std::string mode = argv[1];
  const double value = mode == "startup"     ? double(startup(call))
                       : mode == "roundtrip" ? roundtrip(call)
                       : mode == "interpret" ? interpret(call)
                       : mode == "expand"    ? expand(call)
                                             : loops(call);
  std::printf("%.6g\n", value);
  return 0;
}
