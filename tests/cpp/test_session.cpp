// SPDX-License-Identifier: MIT
/// \file
/// Sessions: launches run concurrently with the results of one after another, and contracts are checked.
#include <thread>

#include "check.hpp"
#include "kernels.hpp"
#include "pto/wsp/session.hpp"
#include "random_workload.hpp"
#include "seeds.hpp"

namespace test_session {

using namespace pto::wsp;
using namespace std::chrono_literals;
using assembler::Assembler;
using bytecode::Op;
using kernels::with_workers;
using random_workload::Workload;

namespace {

std::atomic<int64_t> first_held{-1};  ///< tasks from this one on that read a one wait
std::atomic<int64_t> fails_at{-1};    ///< a task that reads a one
std::atomic<int64_t> num_later{0};    ///< tasks that have read another number
std::atomic<bool> nests{false};       ///< tasks wait for `nested`
std::atomic<Launch*> nested{nullptr};
std::atomic<int64_t> num_nested{0};

/// Writes three times what it reads and one: the order of tasks shows.
int32_t step(const View* views, const Scalar*, const TaskContext* context) {
  const int64_t read = *static_cast<int64_t*>(views[0].data);
  const auto task = int64_t(context->task);
  while (read == 1 && first_held >= 0 && task >= first_held) std::this_thread::sleep_for(100us);
  if (read == 1 && task == fails_at) return 3;
  if (nests && check::code_of([] { nested.load()->wait(); }) == "nested-run") ++num_nested;
  *static_cast<int64_t*>(views[1].data) = int64_t(uint64_t(read) * 3 + 1);
  if (read != 1) ++num_later;
  return 0;
}

int32_t step_in_place(const View* views, const Scalar* scalars, const TaskContext* context) {
  const View both[] = {views[0], views[0]};
  return step(both, scalars, context);
}

constexpr ParamInfo parameter(Role role) { return {role, DType::i64, 1, 0, {0, 0, 0, 0}, {64, 0, 0, 0}}; }
const ParamInfo kCopied[] = {parameter(Role::in), parameter(Role::out)};
const ParamInfo kChanged[] = {parameter(Role::inout)};
const KernelInfo kKernels[] = {{"copy", step, kCopied, 2, 0, 64, 1, Unit::any, {}},
                               {"change", step_in_place, kChanged, 1, 0, 64, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 2, 77, kKernels};

constexpr int64_t kSize = 48;
using Data = std::vector<int64_t>;

std::shared_ptr<ContractGraph> graph_of(const std::string& name, Executable executable,
                                        std::vector<std::string> tensors,
                                        std::shared_ptr<const KernelLibrary> library) {
  auto program = std::make_shared<SessionProgram>(
      SessionProgram{name, std::move(tensors), std::move(library), std::move(executable)});
  return std::make_shared<ContractGraph>(program, name);
}

std::shared_ptr<ContractGraph> graph_of(const std::string& name, const Assembler& program,
                                        std::vector<std::string> tensors) {
  const std::vector<uint8_t> bytes = program.bytes();
  const std::shared_ptr<const KernelLibrary> library(std::shared_ptr<void>(), &kTable);
  return graph_of(name, Executable(bytes.data(), bytes.size(), library), std::move(tensors), library);
}

/// P over j: copy(X[j], Y[j])
std::shared_ptr<ContractGraph> copying(const std::string& name = "copying") {
  Assembler program(kTable);
  program.tensor(DType::i64, {kSize}, false);
  program.tensor(DType::i64, {kSize});
  const uint32_t j = program.loop(Op::PARALLEL_FOR, program.constant(kSize));
  program.task(0);
  for (const uint16_t tensor : {uint16_t(0), uint16_t(1)}) {
    program.io(tensor == 0 ? Role::in : Role::out, tensor);
    program.range(Assembler::reg(j), program.constant(1));
  }
  program.end();
  return graph_of(name, program, {"X", "Y"});
}

/// P over j: N[j] times change(X[j]); without N, once.
std::shared_ptr<ContractGraph> changing(bool has_counts = false) {
  Assembler program(kTable);
  const uint16_t x = program.tensor(DType::i64, {kSize});
  if (has_counts) program.tensor(DType::i64, {kSize}, false);
  const uint32_t j = program.loop(Op::PARALLEL_FOR, program.constant(kSize));
  if (has_counts) program.loop(Op::RANGE_FOR, Assembler::element(1, {Assembler::reg(j)}));
  program.task(1);
  program.io(Role::inout, x);
  program.range(Assembler::reg(j), program.constant(1));
  if (has_counts) program.end();
  program.end();
  return graph_of("changing", program, {"X", "N"});
}

Launch& launch(Session& session, const std::shared_ptr<ContractGraph>& graph, std::vector<Data*> data,
               uint32_t workers = 2) {
  std::vector<bind::ArrayRef> refs;
  for (Data* each : data) refs.push_back(arrays::ref(*each));
  return session.launch(graph, {std::move(refs), {}, with_workers(workers)});
}

/// The element after `count` steps from a one; long chains wrap.
int64_t after(int count) {
  uint64_t value = 1;
  while (count-- > 0) value = value * 3 + 1;
  return int64_t(value);
}

bool all_are(const Data& data, int64_t value) {
  return std::all_of(data.begin(), data.end(), [&](int64_t x) { return x == value; });
}

void wait_for(const std::function<bool()>& condition) {
  const auto limit = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    CHECK(std::chrono::steady_clock::now() < limit);
    std::this_thread::sleep_for(100us);
  }
}

/// Programs over parts of one memory, which overlap, launched without a wait.
void check_launches(uint64_t seed) {
  std::vector<uint64_t> memory(20000);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = mix::scramble(i + 1);
  const std::vector<uint64_t> before = memory;
  std::vector<std::shared_ptr<ContractGraph>> graphs;
  std::vector<SessionCall> calls;
  for (uint64_t i = 0; i < 9; ++i) {
    const Workload workload(seed * 4 + i % 4, 50);
    const std::vector<uint8_t> bytes = workload.bytes();
    const std::shared_ptr<const KernelLibrary> library = mix::library().shared();
    graphs.push_back(graph_of("random", Executable(bytes.data(), bytes.size(), library), {}, library));
    sched::RunOptions options = with_workers(uint32_t(1 + (seed + i) % 4));
    options.jitter = seed % 2 == 0 ? seed * 8 + i + 1 : 0;
    if (i == 5) options.start = sched::Start::kAfterBuild;
    if (i == 6) options.ready = sched::Ready::kFifo;
    calls.push_back({random_workload::place(workload, memory, seed * 64 + i), {}, options});
  }
  mix::stamps().reset(0);
  for (size_t i = 0; i < calls.size(); ++i)
    graphs[i]->program().executable.run(calls[i].arrays, {}, with_workers(1));
  const std::vector<uint64_t> expected = memory;
  memory = before;
  Session session;
  for (size_t i = 0; i < calls.size(); ++i) session.launch(graphs[i], calls[i]);
  session.wait();
  CHECK(memory == expected);
}

}  // namespace

TEST(random_launches_have_the_results_of_one_after_another) { seeds::for_seeds(1, 4s, check_launches); }

TEST(a_chain_of_any_length_is_in_order) {
  const auto graph = changing();
  for (const uint32_t workers : {1u, 3u}) {
    Data data(kSize, 1);
    Session session;
    for (int i = 0; i < 30; ++i) launch(session, graph, {&data}, workers);
    session.wait();
    CHECK(all_are(data, after(30)));
  }
}

TEST(each_hazard_is_named) {
  const auto graph = copying();
  Data a(kSize, 1), b(kSize), c(kSize), d(kSize, 5), e(kSize);
  Session session;
  first_held = 0;
  Launch& first = launch(session, graph, {&a, &b});
  Launch& read = launch(session, graph, {&b, &c});
  Launch& write = launch(session, graph, {&d, &b});
  Launch& read_before = launch(session, graph, {&d, &a});
  Launch& other = launch(session, graph, {&d, &e});
  const auto is = [](const LaunchWait& wait, const Launch& launch, Hazard hazard, size_t tensor) {
    return wait.launch == &launch && wait.hazard == hazard && wait.tensor == tensor;
  };
  CHECK(first.waits().empty() && other.waits().empty());
  CHECK_EQ(read.waits().size(), 1u);
  CHECK(is(read.waits()[0], first, Hazard::kReadAfterWrite, 0));
  CHECK_EQ(write.waits().size(), 2u);
  CHECK(is(write.waits()[0], first, Hazard::kWriteAfterWrite, 1));
  CHECK(is(write.waits()[1], read, Hazard::kWriteAfterRead, 1));
  CHECK_EQ(read_before.waits().size(), 1u);
  CHECK(is(read_before.waits()[0], first, Hazard::kWriteAfterRead, 1));
  CHECK_EQ(other.wait().tasks, uint64_t(kSize));
  CHECK(!first.is_done() && !read.is_done() && !write.is_done() && !read_before.is_done());
  first_held = -1;
  session.wait();
  CHECK(all_are(c, after(2)) && all_are(b, 16) && all_are(a, 16) && all_are(e, 16));
}

TEST(tasks_begin_before_the_earlier_launch_has_ended) {
  const auto graph = copying();
  for (const uint32_t workers : {1u, 2u, 4u}) {
    Data a(kSize, 1), b(kSize), c(kSize);
    Session session;
    num_later = 0;
    first_held = kSize / 2;
    Launch& first = launch(session, graph, {&a, &b}, workers);
    Launch& second = launch(session, graph, {&b, &c}, workers);
    wait_for([] { return num_later == kSize / 2; });
    CHECK(!first.is_done() && !second.is_done());
    first_held = -1;
    session.wait();
    CHECK(all_are(c, after(2)));
  }
}

TEST(data_that_decide_are_complete_before_a_launch_begins) {
  const auto copies = copying();
  const auto repeats = changing(true);
  Data one(kSize, 1), counts(kSize), data(kSize, 1), zeros(kSize);
  Session session;
  first_held = kSize / 2;
  launch(session, copies, {&one, &counts});
  Launch& repeated = launch(session, repeats, {&data, &counts});
  launch(session, copies, {&zeros, &counts});
  CHECK_EQ(repeated.waits().size(), 1u);
  first_held = -1;
  session.wait();
  CHECK(all_are(data, after(4)) && all_are(counts, 1));
}

TEST(an_error_stops_the_launches_that_depend_on_it_and_no_others) {
  const auto graph = copying();
  for (const bool is_done : {true, false}) {
    Data a(kSize, 1), b(kSize), c(kSize), d(kSize), e(kSize, 5), f(kSize);
    Session session;
    fails_at = kSize / 2;
    Launch& failed = launch(session, graph, {&a, &b});
    if (is_done) wait_for([&] { return failed.is_done(); });
    Launch& skipped = launch(session, graph, {&b, &c});
    Launch& next = launch(session, graph, {&c, &d});
    Launch& other = launch(session, graph, {&e, &f});
    CHECK_EQ(other.wait().tasks, uint64_t(kSize));
    CHECK_CODE("launch-skipped", next.wait());
    CHECK_CODE("launch-skipped", skipped.wait());
    CHECK(c[kSize / 2] == 0 && d[kSize / 2] == 0);
    CHECK_CODE("kernel-failed", failed.wait());
    CHECK_CODE("kernel-failed", session.wait());
    fails_at = -1;
    launch(session, graph, {&a, &b});
    Launch& again = launch(session, graph, {&b, &c});
    CHECK_EQ(again.wait().tasks, uint64_t(kSize));
    CHECK(all_are(c, after(2)) && all_are(f, 16));
  }
}

TEST(a_launch_is_cancelled_with_those_that_depend_on_it) {
  const auto graph = copying();
  Data a(kSize, 1), b(kSize), c(kSize), d(kSize, 1), e(kSize);
  Session session;
  first_held = 0;
  Launch& first = launch(session, graph, {&a, &b});
  Launch& second = launch(session, graph, {&b, &c});
  Launch& other = launch(session, graph, {&d, &e});
  first.cancel();
  CHECK(!other.is_done());
  first_held = -1;  // tasks that have begun end
  CHECK_CODE("launch-skipped", second.wait());
  CHECK_CODE("run-cancelled", first.wait());
  CHECK_EQ(other.wait().tasks, uint64_t(kSize));
  CHECK_CODE("run-cancelled", session.wait());
}

TEST(a_session_is_cancelled_as_a_whole) {
  const auto graph = changing();
  Data data(kSize, 1);
  for (const bool is_destroyed : {false, true}) {
    std::fill(data.begin(), data.end(), 1);
    first_held = 0;
    std::thread release([] {
      std::this_thread::sleep_for(50ms);
      first_held = -1;
    });
    {
      Session session;
      for (int i = 0; i < 12; ++i) launch(session, graph, {&data});
      if (!is_destroyed) {
        session.cancel();
        CHECK_CODE("run-cancelled", session.wait());
        for (Launch* launch : session.launches()) CHECK(launch->is_done());
      }
    }
    release.join();
    const Data before = data;
    std::this_thread::sleep_for(5ms);
    CHECK(data == before && *std::max_element(data.begin(), data.end()) < after(12));
  }
}

TEST(threads_share_a_session) {
  const auto graph = changing();
  Data shared(kSize, 1);
  std::vector<Data> own(4, Data(kSize, 1));
  Session session;
  std::vector<std::thread> threads;
  for (Data& data : own) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10; ++i) {
        launch(session, graph, {&shared});
        Launch& last = launch(session, graph, {&data});
        if (i % 3 == 0) last.wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  session.wait();
  CHECK(all_are(shared, after(40)));
  for (const Data& data : own) CHECK(all_are(data, after(10)));
  CHECK_EQ(session.launches().size(), 80u);
}

TEST(contracts_are_checked) {
  const auto first = copying("first"), second = copying("second"), plain = changing();
  CHECK_CODE("contract-broken", first->provide("Y", {"change"}));
  CHECK_CODE("contract-broken", first->provide("Y", {"copy", "change"}));
  CHECK_CODE("contract-broken", first->provide("X", {"copy"}));
  CHECK_CODE("unknown-parameter", first->provide("Z", {"copy"}));
  CHECK_CODE("unknown-parameter", first->require("", second));
  first->provide("Y", {"copy"});
  second->require("X", first);
  Data a(kSize, 1), b(kSize), c(kSize);
  Session session;
  CHECK_CODE("contract-broken", launch(session, second, {&b, &c}));
  Launch& write = launch(session, first, {&a, &b});
  CHECK_CODE("contract-broken", launch(session, second, {&a, &c}));
  Launch& read = launch(session, second, {&b, &c});
  Launch& last = launch(session, plain, {&b});
  session.order_reads(b.data(), {&read}, &last);
  session.order_writes(b.data(), {&write, &last});
  CHECK_CODE("contract-broken", session.order_reads(b.data(), {&read}, &write));
  CHECK_CODE("contract-broken", session.order_reads(b.data(), {&read}, &read));
  CHECK_CODE("contract-broken", session.order_reads(c.data(), {&write}, nullptr));
  CHECK_CODE("contract-broken", session.order_writes(b.data(), {&last, &write}));
  Session other;
  CHECK_CODE("contract-broken", other.order_writes(b.data(), {&write}));
  session.wait();
  CHECK(all_are(c, after(2)) && all_are(b, after(2)));
  CHECK_EQ(session.launches().size(), 3u);
}

TEST(mistakes_are_those_of_programs) {
  Data data(kSize, 1), small(kSize - 1, 5);
  Session session;
  CHECK_CODE("size-mismatch", launch(session, changing(), {&small}));
  nested = &launch(session, changing(), {&data});
  nested.load()->wait();
  std::fill(data.begin(), data.end(), 5);
  nests = true;
  launch(session, changing(), {&data}).wait();
  nests = false;
  CHECK_EQ(num_nested.load(), kSize);
  CHECK(session.find_writer(data.data(), 8) == nullptr);
  std::fill(data.begin(), data.end(), 1);
  first_held = 0;
  launch(session, changing(), {&data});
  CHECK(session.find_writer(data.data(), 8) != nullptr && session.find_writer(small.data(), 8) == nullptr);
  first_held = -1;
  session.wait();
}

}  // namespace test_session
