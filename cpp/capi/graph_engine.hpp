// SPDX-License-Identifier: MIT
/// \file
/// Runs graphs of recorded tasks on the engine's workers.
#pragma once

#include <array>
#include <cstring>
#include <exception>

#include "call.hpp"
#include "pto/wsp/bytecode/quicken.hpp"
#include "pto/wsp/bytecode/validate.hpp"
#include "pto/wsp/sched/crew.hpp"

namespace pto::wsp::capi {

/// The one kernel of the engine's program: runs the task that was submitted at place `context->task`. Its
/// scalar is the address of the `Tasks`.
inline int32_t run_submitted(const View*, const Scalar* scalars, const TaskContext* context) {
  auto& tasks = *reinterpret_cast<Tasks*>(scalars[0].i64);
  Task& task = tasks.at(uint32_t(context->task));
  if (task.state() == Task::State::kComplete) return 0;
  try {
    call(tasks, task, context->task);
    task.set(Task::State::kComplete);
  } catch (const EngineError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw EngineError("out-of-memory", "there is no memory");
  } catch (const std::exception& error) {
    throw EngineError("function-failed", error.what());
  } catch (...) {
    throw EngineError("function-failed", "it threw an exception");
  }
  return 0;
}

/// The engine's program has one task, of which a graph then runs as many as were recorded.
class GraphEngine {
 public:
  explicit GraphEngine(Tasks& tasks) {
    static const KernelInfo kernel{"run_submitted", run_submitted, nullptr, 0, 1, 0, 1, Unit::any, {}};
    static const KernelLibrary library{kAbiVersion, 1, 0, &kernel};
    auto program = std::make_shared<bytecode::Program>(load(library, &tasks));
    auto plan = bytecode::make_plan({program.get(), {}}, {}, library);
    auto costs = std::make_shared<sched::SiteCosts>(plan.sites.size());
    prepared_.reset(new sched::Prepared{program, std::move(plan), costs, {0}, {}});
  }

  /// Begins a run on so many threads, the caller's among them. If the graph is fed, the caller feeds it and
  /// then calls `crew().end_feed()`.
  void begin(std::shared_ptr<sched::KeptGraph> graph, uint32_t workers, bool is_fed) {
    sched::RunOptions options;
    options.workers = workers;
    options.start = sched::Start::kAfterBuild;
    options.lookahead = kLookahead;
    if (!crew_ || !crew_->is_idle()) crew_ = std::make_shared<sched::Crew>();
    crew_->begin(prepared_, {}, options, std::move(graph), is_fed);
  }

  /// Works until the run is over; returns the task that ended it early, if one did. Throws what ends a run
  /// otherwise.
  std::optional<sched::Failure> finish() {
    struct Inside {
      bool was_inside = std::exchange(sched::is_inside_run(), true);
      ~Inside() { sched::is_inside_run() = was_inside; }
    };
    {
      const Inside inside;
      crew_->wait();
    }
    const std::optional<sched::Failure>& failure = crew_->run().failure();
    if (!failure || !failure->is_of_walk) return failure;
    if (!failure->error) throw std::bad_alloc();
    throw EngineError(*failure->error);
  }

  /// Leaves a run that began in the parent of this process. Its threads do not exist here, and its locks may
  /// be taken for ever, so that nothing can be destroyed either.
  void abandon() { new auto(std::move(crew_)); }

  sched::Crew& crew() { return *crew_; }

 private:
  static constexpr size_t kLookahead = 1024;

  static bytecode::Program load(const KernelLibrary& library, Tasks* tasks) {
    struct Code {
      bytecode::Header header;
      bytecode::Instruction instructions[3];
      bytecode::KernelDescriptor kernel;
      int64_t address;
    };
    Code code{};
    code.header.magic = bytecode::kMagic;
    code.header.version = bytecode::kVersion;
    code.header.num_instructions = 3;
    code.header.num_kernels = code.header.num_constants = 1;
    code.header.total_bytes = sizeof(code);
    code.header.kernel_table_hash = library.table_hash;
    code.instructions[0] = {bytecode::Op::TASK, 0, 0, 1};
    code.instructions[1] = {bytecode::Op::PARAM_CONST, 0, 0, 0};
    code.instructions[2] = {bytecode::Op::HALT, 0, 0, 0};
    code.kernel = {name_hash(library.kernels[0].name), 0, 0, 1, 0};
    code.address = reinterpret_cast<int64_t>(tasks);
    uint8_t bytes[sizeof(code)];
    std::memcpy(bytes, &code, sizeof(code));
    return bytecode::load_program(bytes, sizeof(bytes), library);
  }

  std::shared_ptr<sched::Prepared> prepared_;
  std::shared_ptr<sched::Crew> crew_;
};

}  // namespace pto::wsp::capi
