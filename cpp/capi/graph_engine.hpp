// SPDX-License-Identifier: MIT
/// \file
/// Runs graphs of recorded tasks on the engine's workers.
#pragma once

#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "call.hpp"
#include "directives.hpp"
#include "pto/wsp/bytecode/body.hpp"
#include "pto/wsp/sched/crew.hpp"

namespace pto::wsp::capi {

/// Runs the task that was submitted at a place.
class SubmittedTasks : public bytecode::Body {
 public:
  explicit SubmittedTasks(Tasks& tasks) : tasks_(tasks) {}

  int32_t run(const TaskContext& context) override {
    const uint64_t place = context.task;
    Task& task = tasks_.at(uint32_t(place));
    if (task.state() == Task::State::kComplete) return 0;
    try {
      if (call(tasks_, task, context) == kStopped) return kStopped;
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

 private:
  Tasks& tasks_;
};

/// Runs the body for each task of a graph.
class GraphEngine {
 public:
  explicit GraphEngine(Tasks& tasks) : body_(tasks) {
    auto none = std::make_shared<bytecode::Program>();
    bytecode::Plan plan = bytecode::plan_of_body(*none, body_);
    auto costs = std::make_shared<sched::SiteCosts>(plan.sites.size());
    prepared_.reset(new sched::Prepared{none, std::move(plan), {}, costs, {0}, {}});
  }

  /// Begins a run on `workers` threads, the caller's among them. If the graph is fed, the caller feeds it and
  /// then calls `crew().end_feed()`. With directives, the graph has traits.
  void begin(std::shared_ptr<sched::KeptGraph> graph, uint32_t workers, const Directives& directives,
             bool is_fed) {
    sched::RunOptions options;
    options.workers = workers;
    options.start = sched::Start::kAfterBuild;
    options.lookahead = kLookahead;
    if (directives.are_stated()) directives.apply_to(options);
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

  SubmittedTasks body_;
  std::shared_ptr<sched::Prepared> prepared_;
  std::shared_ptr<sched::Crew> crew_;
};

}  // namespace pto::wsp::capi
