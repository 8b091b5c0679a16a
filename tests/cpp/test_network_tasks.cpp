// SPDX-License-Identifier: MIT
/// \file
/// Tasks of one process on several workers: they overlap, and nothing but time shows it.
#include <atomic>
#include <thread>

#include "arrays.hpp"
#include "assembler.hpp"
#include "check.hpp"
#include "choices.hpp"
#include "pto/wsp/engine.hpp"
#include "seeds.hpp"

namespace test_network_tasks {

using namespace pto::wsp;
using arrays::ref;
using assembler::Assembler;
using bytecode::ChannelKind;
using bytecode::Op;

namespace {

constexpr int64_t kParts = 6, kWidth = 2, kSize = kParts * kWidth;
constexpr int64_t kPoison = -1000;

void pause_for(int64_t value) {
  for (int64_t i = 0; i < (value * 37 % 5) * 50; ++i) relax();
}

/// Puts its scalar into every element.
int32_t fill(const View* views, const Scalar* scalars, const TaskContext*) {
  pause_for(scalars[0].i64);
  auto* y = static_cast<int64_t*>(views[0].data);
  for (int64_t i = 0; i < views[0].shape[0]; ++i) y[i] = scalars[0].i64;
  return 0;
}

/// y = 3 * x + y; a poisoned x fails.
int32_t mix(const View* views, const Scalar*, const TaskContext*) {
  const auto* x = static_cast<const int64_t*>(views[0].data);
  auto* y = static_cast<int64_t*>(views[1].data);
  pause_for(x[0]);
  if (x[0] <= kPoison) return 9;
  for (int64_t i = 0; i < views[1].shape[0]; ++i) y[i] = (3 * x[i % views[0].shape[0]] + y[i]) % 100003;
  return 0;
}

/// The same, and it never fails.
int32_t blend(const View* views, const Scalar*, const TaskContext*) {
  const auto* x = static_cast<const int64_t*>(views[0].data);
  auto* y = static_cast<int64_t*>(views[1].data);
  pause_for(x[0]);
  for (int64_t i = 0; i < views[1].shape[0]; ++i) y[i] = (3 * x[i % views[0].shape[0]] + y[i]) % 100003;
  return 0;
}

/// A poisoned x fails, after a while.
int32_t fail_late(const View* views, const Scalar*, const TaskContext*) {
  if (static_cast<const int64_t*>(views[0].data)[0] > kPoison) return 0;
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return 9;
}

std::atomic<int64_t> present{0}, most{0}, complete{0};

/// Notes how many of these tasks overlap. Fails if fewer than its scalar are complete.
int32_t meet(const View* views, const Scalar* scalars, const TaskContext*) {
  if (complete.load() < scalars[0].i64) return 7;
  const int64_t now = ++present;
  for (int64_t before = most.load(); before < now && !most.compare_exchange_weak(before, now);) {
  }
  std::this_thread::sleep_for(std::chrono::microseconds(300));
  static_cast<int64_t*>(views[0].data)[0] += 1;
  --present;
  ++complete;
  return 0;
}

constexpr int64_t kAny = INT64_MAX;
constexpr int64_t kUntilClosed = int64_t{1} << 53;
const ParamInfo kFillParams[] = {{Role::out, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const ParamInfo kMixParams[] = {{Role::in, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}},
                                {Role::inout, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const ParamInfo kMeetParams[] = {{Role::inout, DType::i64, 1, 0, {0, 0, 0, 0}, {kAny, 0, 0, 0}}};
const KernelInfo kKernels[] = {{"fill", fill, kFillParams, 1, 1, 0, 1, Unit::any, {}},
                               {"mix", mix, kMixParams, 2, 0, 0, 1, Unit::any, {}},
                               {"meet", meet, kMeetParams, 1, 1, 0, 1, Unit::any, {}},
                               {"blend", blend, kMixParams, 2, 0, 0, 1, Unit::any, {}},
                               {"fail_late", fail_late, kMixParams, 2, 0, 0, 1, Unit::any, {}}};
const KernelLibrary kTable{kAbiVersion, 5, 42, kKernels};

struct Outcome {
  std::string error;
  std::vector<std::vector<int64_t>> arrays;
};

/// A program and the arrays that it runs with: rows of kSize numbers.
class Program : public Assembler {
 public:
  Program() : Assembler(kTable) {}

  uint16_t rows(int64_t count) {
    counts_.push_back(count);
    return tensor(DType::i64, {count, kSize});
  }
  uint16_t channel(int64_t depth) {
    counts_.push_back(std::max<int64_t>(depth, 1));
    return ring(counts_.back(), kSize, 0, depth == 0 ? ChannelKind::RENDEZVOUS : ChannelKind::RING);
  }
  uint16_t registers(int count) {
    const uint16_t first = variable();
    for (int i = 1; i < count; ++i) variable();
    return first;
  }
  /// One row of a tensor: all of it, or a part.
  void row(Role role, uint16_t tensor, const assembler::Expr& at) {
    io(role, tensor);
    index(at);
    full();
  }
  void part(Role role, uint16_t tensor, const assembler::Expr& at, const assembler::Expr& part) {
    io(role, tensor);
    index(at);
    range(mul(part, constant(kWidth)), constant(kWidth));
  }

  void load() {
    const std::vector<uint8_t> code = bytes();
    choices::note_program(code);
    executable_ = std::make_unique<Executable>(
        code.data(), code.size(), std::shared_ptr<const KernelLibrary>(std::shared_ptr<void>(), &kTable));
  }
  Outcome run(const sched::RunOptions& options) const {
    Outcome outcome;
    std::vector<bind::ArrayRef> refs;
    outcome.arrays.reserve(counts_.size());
    for (const int64_t count : counts_) {
      bind::ArrayRef array = ref(outcome.arrays.emplace_back(size_t(count * kSize), 0));
      array.rank = 2;
      array.shape[0] = count;
      array.shape[1] = kSize;
      array.stride_bytes[0] = kSize * 8;
      array.stride_bytes[1] = 8;
      refs.push_back(array);
    }
    try {
      executable_->run(refs, {}, options);
    } catch (const EngineError& error) {
      outcome.error = error.code() + " at " + std::to_string(error.number("pc")) + " task " +
                      std::to_string(error.number("task")) + " check " +
                      std::to_string(error.number("check"));
    }
    return outcome;
  }

 private:
  std::vector<int64_t> counts_;
  std::unique_ptr<Executable> executable_;
};

/// A source, stages with replicas, and sinks. Each has loops of tasks that are independent, or not. Sinks
/// never fail, so their tensors are the same in every run, also in one that fails.
class RandomNetwork : public Program {
 public:
  explicit RandomNetwork(uint64_t seed) : random_(seed) {
    const int64_t num_stages = random_.pick(1, 3);
    poison_ = random_.pick(0, 2) == 0 ? random_.pick(0, 12) : -1;
    second_poison_ = poison_ < 0 ? -1 : poison_ + random_.pick(0, 4);
    std::vector<uint16_t> channels;
    for (int64_t i = 0; i <= num_stages; ++i) channels.push_back(channel(random_.pick(0, 4)));
    const uint16_t aside = channel(random_.pick(0, 3));
    const bool is_forked = random_.pick(0, 1) == 1;
    if (is_forked) sink(aside);
    source(channels[0], random_.pick(0, 16));
    for (int64_t i = 0; i < num_stages; ++i) {
      const bool is_fork = is_forked && i + 1 == num_stages;
      const int64_t replicas = random_.pick(0, 2) == 0 ? random_.pick(2, 3) : 1, kind = random_.pick(0, 7);
      for (int64_t k = 0; k < replicas; ++k)
        stage(channels[size_t(i)], channels[size_t(i) + 1], kind, is_fork ? &aside : nullptr);
    }
    sink(channels.back());
    load();
  }

  /// The tensors that are the same in every run.
  std::vector<std::vector<int64_t>> results(const Outcome& outcome) const {
    if (outcome.error.empty()) return outcome.arrays;
    std::vector<std::vector<int64_t>> found;
    for (const uint16_t tensor : sinks_) found.push_back(outcome.arrays[tensor]);
    return found;
  }

 private:
  /// A loop over parts.
  uint32_t parts() {
    return loop(random_.pick(0, 4) == 0 ? Op::FOR_EACH : Op::PARALLEL_FOR, constant(random_.pick(1, kParts)));
  }

  void source(uint16_t to, int64_t count) {
    process();
    const uint32_t i = loop(Op::PARALLEL_FOR, constant(count));
    const uint16_t token = registers(2), value = registers(1);
    this->token(Op::SEND, token, to);
    const uint32_t j = parts();
    const auto is_at = [&](int64_t at) { return apply(Op::EXPR_EQ, {reg(i), constant(at)}); };
    const assembler::Expr is_poisoned = apply(Op::EXPR_OR, {is_at(poison_), is_at(second_poison_)});
    set(value, add(add(mul(reg(i), constant(16)), reg(j)), mul(is_poisoned, constant(100 * kPoison))));
    task(0);
    param(reg(value));
    part(Role::out, to, reg(token), reg(j));
    end();
    end_token(Op::END_SEND);
    end();
    end_process();
  }

  void stage(uint16_t from, uint16_t to, int64_t kind, const uint16_t* aside) {
    const uint16_t state = rows(2);
    process();
    loop(Op::RANGE_FOR, constant(kUntilClosed));
    const uint16_t in = registers(2), out = registers(2), other = registers(2);
    token(Op::RECEIVE_EACH, in, from);
    uint32_t chained = 0;
    if (kind & 1) {  // a chain through the tokens
      chained = task(3);
      row(Role::in, from, reg(in));
      row(Role::inout, state, constant(0));
    }
    token(Op::SEND, out, to);
    const uint32_t j = parts();
    task(0);
    param(reg(j));
    part(Role::out, to, reg(out), reg(j));
    task(1);
    part(Role::in, from, reg(in), reg(j));
    part(Role::inout, to, reg(out), reg(j));
    end();
    if (kind & 2) {  // all parts, after all parts
      task(3);
      row(Role::in, to, reg(out));
      row(Role::inout, state, constant(1));
      if (kind & 1 && kind & 4) after(chained);
    }
    end_token(Op::END_SEND);
    if (aside != nullptr) {
      token(Op::SEND, other, *aside);
      task(0);
      param(reg(other + 1u));
      row(Role::out, *aside, reg(other));
      end_token(Op::END_SEND);
    }
    end_token(Op::END_RECEIVE);
    end();
    end_process();
  }

  void sink(uint16_t from) {
    const uint16_t results = rows(16);
    sinks_.push_back(results);
    process();
    loop(Op::RANGE_FOR, constant(kUntilClosed));
    const uint16_t in = registers(2);
    token(Op::RECEIVE_EACH, in, from);
    const uint32_t j = parts();
    task(3);
    part(Role::in, from, reg(in), reg(j));
    part(Role::inout, results, apply(Op::EXPR_MOD, {reg(in + 1u), constant(16)}), reg(j));
    end();
    end_token(Op::END_RECEIVE);
    end();
    end_process();
  }

  choices::Choices random_;
  int64_t poison_ = -1, second_poison_ = -1;
  std::vector<uint16_t> sinks_;
};

/// One process with `count` tasks of 300 us, `group` of which may overlap.
class Meeting : public Program {
 public:
  Meeting(int64_t count, Op outer, int64_t group) {
    const uint16_t counts = rows(count);
    process();
    const uint32_t i = loop(outer, constant(count / group)), j = loop(Op::PARALLEL_FOR, constant(group));
    task(2);
    param(outer == Op::FOR_EACH ? mul(reg(i), constant(group)) : constant(0));
    row(Role::inout, counts, add(mul(reg(i), constant(group)), reg(j)));
    end();
    end();
    end_process();
    load();
  }
  Outcome meet(const sched::RunOptions& options) const {
    most = present = complete = 0;
    return run(options);
  }
};

/// A source, and two processes that take turns. The tasks of tokens 1 and 4 fail.
class Turns : public Program {
 public:
  Turns() {
    const uint16_t tokens = channel(8);
    process();
    const uint32_t i = loop(Op::RANGE_FOR, constant(6));
    const uint16_t token = registers(2), value = registers(1);
    this->token(Op::SEND, token, tokens);
    const assembler::Expr is_poisoned =
        apply(Op::EXPR_EQ, {apply(Op::EXPR_MOD, {reg(i), constant(3)}), constant(1)});
    set(value, mul(is_poisoned, constant(kPoison)));
    task(0);
    param(reg(value));
    row(Role::out, tokens, reg(token));
    end_token(Op::END_SEND);
    end();
    end_process();
    for (int k = 0; k < 2; ++k) receiver(tokens);
    load();
  }

 private:
  void receiver(uint16_t tokens) {
    const uint16_t state = rows(16);
    process();
    loop(Op::RANGE_FOR, constant(kUntilClosed));
    const uint16_t in = registers(2);
    token(Op::RECEIVE_EACH, in, tokens);
    task(4);
    row(Role::in, tokens, reg(in));
    row(Role::inout, state, reg(in + 1u));
    end_token(Op::END_RECEIVE);
    end();
    end_process();
  }
};

}  // namespace

TEST(a_process_takes_no_turn_before_its_tasks_are_complete) {
  const Turns turns;
  const Outcome expected = turns.run({1});
  CHECK(expected.error.substr(0, 13) == std::string("kernel-failed"));
  for (uint64_t jitter = 1; jitter < 40; ++jitter)
    CHECK(turns.run({4, false, jitter}).error == expected.error);
}

TEST(random_networks_give_what_one_worker_gives) {
  int num_failed = 0;
  seeds::for_seeds(1, uint64_t{150}, [&](uint64_t seed) {
    const RandomNetwork network(seed);
    const Outcome expected = network.run({1});
    num_failed += expected.error.empty() ? 0 : 1;
    for (const uint32_t workers : {2u, 4u}) {
      for (const uint64_t jitter : {uint64_t{0}, 2 * seed + 1, 2 * seed + 2}) {
        const Outcome found = network.run({workers, false, jitter});
        CHECK(found.error == expected.error);
        CHECK(network.results(found) == network.results(expected));
      }
    }
  });
  CHECK(num_failed > 0);
}

TEST(long_tasks_of_a_process_overlap) {
  const Meeting meeting(64, Op::PARALLEL_FOR, 1);
  CHECK(meeting.meet({4}).error == std::string());
  CHECK_EQ(complete.load(), int64_t{64});
  CHECK(most.load() >= 2);
  CHECK(meeting.meet({1}).error == std::string());
  CHECK_EQ(most.load(), int64_t{1});
}

TEST(iterations_of_a_sequential_loop_do_not_overlap) {
  const Meeting meeting(32, Op::FOR_EACH, 4);
  for (const uint64_t jitter : {0u, 3u, 5u}) {
    const Outcome found = meeting.meet({4, false, jitter});
    CHECK(found.error == std::string());
    CHECK(most.load() >= 2);
  }
}

TEST(an_endless_network_with_overlapping_tasks_is_cancelled) {
  static std::atomic<int> num_asked;
  num_asked = 0;
  const Meeting meeting(1 << 20, Op::PARALLEL_FOR, 4);
  sched::RunOptions options(4, false, 9, [] { return ++num_asked > 1; });
  CHECK(meeting.meet(options).error.substr(0, 13) == std::string("run-cancelled"));
}

}  // namespace test_network_tasks
