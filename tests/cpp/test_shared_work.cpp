// SPDX-License-Identifier: MIT
/// \file
/// Tasks that two workers could share are shared: bodies wait until another one is in progress, so that a
/// test fails where a worker idles beside tasks that could start.
#include <atomic>
#include <chrono>
#include <thread>

#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "pto/wsp/engine.hpp"

namespace test_shared_work {

using namespace pto::wsp;
using assembler::Assembler;
using bytecode::Op;

namespace {

std::atomic<int> num_inside{0};
std::atomic<int> num_alone{0};  ///< tasks of `meet` that no other one joined

int32_t touch(const View*, const Scalar*, const TaskContext*) { return 0; }

int32_t nap(const View*, const Scalar*, const TaskContext*) {
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  return 0;
}

/// Returns when two tasks of this kernel are in progress, or have been, since an even number had begun.
int32_t meet(const View*, const Scalar*, const TaskContext*) {
  const int place = num_inside.fetch_add(1);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (num_inside.load() <= (place | 1)) {
    if (place % 2 == 1 || std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
      continue;
    }
    num_alone.fetch_add(1);
    num_inside.fetch_add(1);  // the next pair
  }
  return 0;
}

const ParamInfo kWrites[] = {{Role::out, DType::i32, 1, 0, {}, {1}}};
const ParamInfo kMaps[] = {{Role::in, DType::i32, 1, 0, {}, {1000}}, {Role::out, DType::i32, 1, 0, {}, {1}}};
const KernelInfo kKernels[] = {{"nap", nap, kWrites, 1, 0, 0, 1, Unit::any, {}},
                               {"touch", touch, kMaps, 2, 0, 0, 1, Unit::any, {}},
                               {"meet", meet, kMaps, 2, 0, 0, 1, Unit::any, {}},
                               {"meet_alone", meet, kWrites, 1, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 4, 42, kKernels};
enum Kernel : uint16_t { kNap, kTouch, kMeet, kMeetAlone };

constexpr int64_t kLongNs = 100000;

struct Region {
  Role role;
  uint16_t tensor;
  assembler::Expr start;
  int64_t extent;
};

class Program {
 public:
  Assembler code{kTable};

  /// A task that states a long body.
  void task(Kernel kernel, const std::vector<Region>& regions) {
    code.task(kernel);
    for (const Region& region : regions) {
      code.io(region.role, region.tensor);
      code.range(region.start, code.constant(region.extent));
    }
    code.cost(code.constant(kLongNs));
  }
};

/// How many tasks of `meet` had a worker to themselves.
int count_alone(const Program& program, std::vector<std::vector<int32_t>> tensors,
                const sched::RunOptions& options) {
  const std::vector<uint8_t> bytes = program.code.bytes();
  Executable executable(bytes.data(), bytes.size(),
                        std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  std::vector<bind::ArrayRef> refs;
  for (auto& tensor : tensors) refs.push_back(arrays::ref(tensor));
  num_inside = num_alone = 0;
  executable.run(refs, {}, options);
  return num_alone;
}

sched::RunOptions two_workers() {
  sched::RunOptions options(2);
  options.dispatchers = 2;
  return options;
}

/// P(i < heads): touch(in H[0], out X[i]); P(j < 2): meet(in X, out Y[j]): behind a task that writes H.
Program readers_of_heads(int64_t heads) {
  Program program;
  Assembler& code = program.code;
  const uint16_t h = code.tensor(DType::i32, {1}), x = code.tensor(DType::i32, {heads}),
                 y = code.tensor(DType::i32, {2});
  program.task(kNap, {{Role::out, h, code.constant(0), 1}});
  const uint32_t i = code.loop(Op::PARALLEL_FOR, code.constant(heads));
  program.task(kTouch, {{Role::in, h, code.constant(0), 1}, {Role::out, x, Assembler::reg(i), 1}});
  code.end();
  const uint32_t j = code.loop(Op::PARALLEL_FOR, code.constant(2));
  program.task(kMeet, {{Role::in, x, code.constant(0), heads}, {Role::out, y, Assembler::reg(j), 1}});
  code.end();
  return program;
}

}  // namespace

TEST(more_waits_than_a_list_holds_do_not_order_tasks_that_share_them) {
  for (const int64_t heads : {4, 12, 13, 40}) {
    for (const sched::Start start : {sched::Start::kImmediate, sched::Start::kAfterBuild}) {
      sched::RunOptions options = two_workers();
      options.start = start;
      CHECK_EQ(
          count_alone(readers_of_heads(heads), {{0}, std::vector<int32_t>(size_t(heads)), {0, 0}}, options),
          0);
    }
  }
}

TEST(a_full_list_of_waits_replaces_the_earliest) {
  sched::Progress progress;
  sched::WaitList waits(progress);
  constexpr uint64_t kNumNames = sched::WaitList::kMaxWaits + 8;
  waits.begin(100, 100);
  for (uint64_t i = 0; i < kNumNames; ++i) waits.add(sched::task_name(10 + i * 7 % kNumNames, 1));
  waits.finish();
  for (int i = 0; i < waits.size(); ++i) {
    const sched::Name name = waits[i];
    if (sched::is_task_name(name)) CHECK(sched::slice_of(name) >= 18);
    if (sched::is_watermark_name(name)) CHECK_EQ(name, 18);
  }
  CHECK_EQ(waits.size(), sched::WaitList::kMaxWaits + 1);
}

}  // namespace test_shared_work
