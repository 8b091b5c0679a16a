// SPDX-License-Identifier: MIT
/// \file
/// Networks of processes: tokens, turns, deadlocks, and malformed ones.
#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "pto/wsp/engine.hpp"

namespace test_networks {

using namespace pto::wsp;
using arrays::ref;
using assembler::Assembler;
using bytecode::ChannelKind;
using bytecode::Op;

namespace {

/// Puts its scalar into every element.
int32_t fill(const View* views, const Scalar* scalars, const TaskContext*) {
  auto* data = static_cast<int64_t*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) data[i] = scalars[0].i64;
  return 0;
}

/// y = 3 * x + 1; a negative x fails.
int32_t step(const View* views, const Scalar*, const TaskContext*) {
  const auto* x = static_cast<const int64_t*>(views[0].data);
  auto* y = static_cast<int64_t*>(views[1].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) y[i] = 3 * x[i] + 1;
  return x[0] < 0 ? 9 : 0;
}

/// Appends the first element to a log: log[0] counts, log[1 ...] are the entries.
int32_t note(const View* views, const Scalar*, const TaskContext*) {
  auto* log = static_cast<int64_t*>(views[1].data);
  log[++log[0]] = *static_cast<const int64_t*>(views[0].data);
  return 0;
}

constexpr int64_t kAny = INT64_MAX;
constexpr int64_t kUntilClosed = int64_t{1} << 53;
const ParamInfo kFillParams[] = {{Role::out, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const ParamInfo kStepParams[] = {{Role::in, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}},
                                 {Role::out, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const ParamInfo kNoteParams[] = {{Role::in, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}},
                                 {Role::inout, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const KernelInfo kKernels[] = {{"fill", fill, kFillParams, 1, 1, 0, 1, Unit::any, {}},
                               {"step", step, kStepParams, 2, 0, 0, 1, Unit::any, {}},
                               {"note", note, kNoteParams, 2, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 3, 42, kKernels};
constexpr int64_t kSize = 16;

/// A source that sends 0, 1, ... ; `replicas` that send `step` of each; a sink that notes what it receives.
class Pipeline : public Assembler {
 public:
  Pipeline(int64_t count, int64_t depth, uint32_t replicas, int64_t first = 0) : Assembler(kTable) {
    log_ = tensor(DType::i64, {-1 - int64_t(size_symbol())});
    const ChannelKind kind = depth == 0 ? ChannelKind::RENDEZVOUS : ChannelKind::RING;
    const int64_t buffers = std::max<int64_t>(depth, 1);
    loaded_ = ring(buffers, kSize, 1, kind);
    stepped_ = ring(buffers, kSize, 0, kind);
    source(count, first);
    for (uint32_t i = 0; i < replicas; ++i) middle();
    sink();
  }

  std::unique_ptr<Executable> make() const {
    const std::vector<uint8_t> code = bytes();
    return std::make_unique<Executable>(
        code.data(), code.size(), std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  }

  /// What the sink noted.
  std::vector<int64_t> run(const sched::RunOptions& options, size_t count) const {
    std::vector<int64_t> log(count + 1, 0);
    std::vector<int64_t> rings[2];
    std::vector<bind::ArrayRef> refs{ref(log)};
    for (size_t i = 0; i < 2; ++i) {
      const int64_t buffers = rings_of(i);
      rings[i].assign(size_t(buffers * kSize), 0);
      bind::ArrayRef array = ref(rings[i]);
      array.rank = 2;
      array.shape[0] = buffers;
      array.shape[1] = kSize;
      array.stride_bytes[0] = kSize * 8;
      array.stride_bytes[1] = 8;
      refs.push_back(array);
    }
    make()->run(refs, {std::nullopt}, options);
    return {log.begin() + 1, log.begin() + 1 + log[0]};
  }

  int64_t buffers = 1;

 private:
  int64_t rings_of(size_t) const { return buffers; }

  uint16_t registers(int count) {
    const uint16_t first = variable();
    for (int i = 1; i < count; ++i) variable();
    return first;
  }
  void view(Role role, uint16_t ring, uint16_t reg) {
    io(role, ring);
    index(Assembler::reg(reg));
    full();
  }

  void source(int64_t count, int64_t first) {
    process();
    const uint32_t i = loop(Op::PARALLEL_FOR, constant(count));
    const uint16_t reg = registers(3);
    set(uint16_t(reg + 2), add(Assembler::reg(i), constant(first)));
    token(Op::SEND, reg, loaded_);
    task(0);
    param(Assembler::reg(reg + 2u));
    view(Role::out, loaded_, reg);
    end_token(Op::END_SEND);
    end();
    end_process();
  }
  void middle() {
    process();
    loop(Op::RANGE_FOR, constant(kUntilClosed));
    const uint16_t in = registers(3), out = registers(2);
    token(Op::RECEIVE_EACH, in, loaded_);
    token(Op::SEND, out, stepped_);
    task(1);
    view(Role::in, loaded_, in);
    view(Role::out, stepped_, out);
    end_token(Op::END_SEND);
    end_token(Op::END_RECEIVE);
    end();
    end_process();
  }
  void sink() {
    process();
    loop(Op::RANGE_FOR, constant(kUntilClosed));
    const uint16_t in = registers(2);
    token(Op::RECEIVE_EACH, in, stepped_);
    task(2);
    view(Role::in, stepped_, in);
    io(Role::inout, log_);
    full();
    end_token(Op::END_RECEIVE);
    end();
    end_process();
  }

  uint16_t log_ = 0, loaded_ = 0, stepped_ = 0;
};

}  // namespace

TEST(tokens_keep_their_order) {
  constexpr int64_t kCount = 200;
  for (const int64_t depth : {0, 1, 3}) {
    for (const uint32_t replicas : {1u, 3u}) {
      Pipeline pipeline(kCount, depth, replicas);
      pipeline.buffers = std::max<int64_t>(depth, 1);
      for (uint32_t workers = 1; workers <= 5; ++workers) {
        for (const uint64_t jitter : {0u, 7u}) {
          const std::vector<int64_t> found = pipeline.run({workers, false, jitter}, kCount);
          CHECK_EQ(found.size(), size_t(kCount));
          for (int64_t i = 0; i < kCount; ++i) CHECK_EQ(found[size_t(i)], 3 * i + 1);
        }
      }
    }
  }
}

TEST(a_failed_task_is_the_error_of_the_run) {
  for (const uint32_t replicas : {1u, 3u}) {
    Pipeline pipeline(20, 1, replicas, -10);
    for (uint32_t workers = 1; workers <= 4; ++workers)
      CHECK_CODE("kernel-failed", pipeline.run({workers}, 20));
  }
}

TEST(a_channel_without_receivers_ends_its_sender) {
  Pipeline pipeline(20, 2, 0);  // the sink receives from a channel that nothing sends to
  pipeline.buffers = 2;
  for (uint32_t workers = 1; workers <= 4; ++workers)
    CHECK_CODE("channel-ended", pipeline.run({workers}, 20));
}

TEST(options_that_need_one_order_are_refused) {
  const Pipeline pipeline(2, 1, 1);
  CHECK_EQ(pipeline.run({2, true}, 2).size(), size_t(2));  // a trace needs none
  CHECK_CODE("order-of-network", pipeline.run({2, false, 0, nullptr, true}, 2));
}

/// The code of the error of a program whose instruction `at` is another one.
std::string load_with(const Pipeline& pipeline, size_t at, bytecode::Instruction instruction) {
  std::vector<uint8_t> code = pipeline.bytes();
  std::memcpy(code.data() + sizeof(bytecode::Header) + at * sizeof(instruction), &instruction,
              sizeof(instruction));
  return check::code_of([&] { (void)bytecode::load_program(code.data(), code.size(), kTable); });
}

TEST(malformed_networks_are_refused) {
  const Pipeline pipeline(2, 1, 1);
  // PROCESS, PARALLEL_FOR, SET, SEND, TASK, PARAM, IO, DIM, DIM, END_SEND, END_LOOP, END_PROCESS, PROCESS,
  // ...
  CHECK(load_with(pipeline, 0, {Op::PROCESS, 0, 0, 11}) == "none");
  for (const bytecode::Instruction& wrong : std::initializer_list<bytecode::Instruction>{
           {Op::NOP, 0, 0, 0}, {Op::PROCESS, 0, 1, 11}, {Op::PROCESS, 0, 0, 12}, {Op::PROCESS, 0, 0, 9999}})
    CHECK(load_with(pipeline, 0, wrong) == "bad-bytecode");
  for (const bytecode::Instruction& wrong :
       std::initializer_list<bytecode::Instruction>{{Op::SEND, 0, 1, 0},     // not a ring
                                                    {Op::SEND, 0, 1, 99},    // no tensor
                                                    {Op::SEND, 0, 0, 1},     // a register of a loop
                                                    {Op::SEND, 0, 9999, 1},  // no register
                                                    {Op::RECEIVE, 0, 1, 1},  // another end
                                                    {Op::RECEIVE_EACH, 0, 1, 1}})
    CHECK(load_with(pipeline, 3, wrong) == "bad-bytecode");
  CHECK(load_with(pipeline, 9, {Op::END_SEND, 0, 0, 4}) == "bad-bytecode");
  CHECK(load_with(pipeline, 9, {Op::END_RECEIVE, 0, 0, 3}) == "bad-bytecode");
  CHECK(load_with(pipeline, 11, {Op::END_PROCESS, 0, 0, 1}) == "bad-bytecode");
  CHECK(load_with(pipeline, 11, {Op::NOP, 0, 0, 0}) == "bad-bytecode");
}

}  // namespace test_networks
