// SPDX-License-Identifier: MIT
/// \file
/// Sessions of exported programs: the functions of pto_session.h. One unit of a library includes this.
///
/// Each library contains these functions and an engine. A session is one of the library whose
/// pto_session_create the program calls. Functions of other libraries give their programs to it, and it runs
/// them on its engine.
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pto/wsp/host/call.hpp"
#include "pto/wsp/pto_session.h"
#include "pto/wsp/session.hpp"

namespace pto::wsp::host {

/// Counts changes of the following code that the sizes of its structures do not show.
inline constexpr uint64_t kSessionVersion = 1;

/// Libraries of one session must agree on this number.
constexpr uint64_t session_signature() {
  uint64_t signature = 0xcbf29ce484222325u;
  for (const uint64_t part :
       {kSessionVersion, uint64_t(kAbiVersion), uint64_t(bytecode::kVersion), uint64_t(sizeof(Callable)),
        uint64_t(sizeof(sched::RunOptions)), uint64_t(sizeof(Call)), uint64_t(sizeof(bind::ArrayRef)),
        uint64_t(sizeof(std::string)), uint64_t(sizeof(std::mutex))})
    signature = (signature ^ part) * 0x100000001b3u;
  return signature;
}

/// Differs between libraries.
inline const void* this_library() {
  static const char mark = 0;
  return &mark;
}

}  // namespace pto::wsp::host

/// A session as functions of all libraries see it.
struct PTOSession {
  virtual ~PTOSession() = default;

  const uint64_t signature = pto::wsp::host::session_signature();  ///< the first member, in all versions
  const void* const library = pto::wsp::host::this_library();

  /// Launches a bound call of a program. The caller has compared the signatures.
  virtual const char* launch(pto::wsp::host::Callable& callable, const pto::wsp::KernelLibrary* kernels,
                             std::shared_ptr<pto::wsp::host::Call> call, const PTOGraph* graph,
                             PTOLaunch** launch) = 0;
  virtual const char* make_graph(pto::wsp::host::Callable& callable, const pto::wsp::KernelLibrary* kernels,
                                 const char* name, PTOGraph** graph) = 0;
  /// The name of an unfinished launch that writes some bytes, or null.
  virtual const char* find_writer(const void* data, size_t bytes) = 0;
};

struct PTOGraph {
  PTOSession& session;
  std::shared_ptr<pto::wsp::ContractGraph> contract;
};

namespace pto::wsp::host {

static_assert(int(Hazard::kReadAfterWrite) == PTO_READ_AFTER_WRITE &&
                  int(Hazard::kWriteAfterRead) == PTO_WRITE_AFTER_READ &&
                  int(Hazard::kWriteAfterWrite) == PTO_WRITE_AFTER_WRITE,
              "pto_session.h repeats Hazard");

/// A program in sessions of this library.
struct HostedProgram : SessionProgram {
  const Program& program;
};

inline const Program& program_of(const Launch& launch) {
  return static_cast<const HostedProgram&>(launch.graph().program()).program;
}

/// Makes a program ready for sessions of this library once.
inline std::shared_ptr<HostedProgram> hosted(Callable& callable, const KernelLibrary* kernels) {
  const std::lock_guard<std::mutex> lock(callable.mutex);
  if (callable.host != this_library()) {
    const Program& program = callable.program;
    std::vector<std::string> tensors;
    for (const Tensor& tensor : program.tensors)
      tensors.emplace_back(tensor.kind == TensorKind::kLocal ? "" : tensor.name);
    const std::shared_ptr<const KernelLibrary> library(kernels, [](auto*) {});
    callable.hosted = std::shared_ptr<HostedProgram>(new HostedProgram{
        {program.name, std::move(tensors), library, make_executable(program, library)}, program});
    callable.host = this_library();
  }
  return std::static_pointer_cast<HostedProgram>(callable.hosted);
}

/// A session of this library.
struct HostSession final : PTOSession, Session {
  const char* launch(Callable& callable, const KernelLibrary* kernels, std::shared_ptr<Call> call,
                     const PTOGraph* graph, PTOLaunch** launch) override {
    return error_text(callable.program, [&] {
      std::shared_ptr<SessionProgram> program = hosted(callable, kernels);
      std::shared_ptr<const ContractGraph> contract;
      if (graph == nullptr) {
        contract = std::make_shared<ContractGraph>(program, program->name);
      } else {
        require_graph(*graph, *program);
        contract = graph->contract;
      }
      SessionCall bound{call->refs(), call->values(), call->options(), call};
      Launch& launched = Session::launch(std::move(contract), std::move(bound));
      if (launch != nullptr) *launch = reinterpret_cast<PTOLaunch*>(&launched);
    });
  }

  const char* make_graph(Callable& callable, const KernelLibrary* kernels, const char* name,
                         PTOGraph** graph) override {
    return error_text(callable.program, [&] {
      std::shared_ptr<SessionProgram> program = hosted(callable, kernels);
      auto contract = std::make_shared<ContractGraph>(program, name != nullptr ? name : program->name);
      const std::lock_guard<std::mutex> lock(mutex_);
      graphs_.push_back(std::unique_ptr<PTOGraph>(new PTOGraph{*this, std::move(contract)}));
      *graph = graphs_.back().get();
    });
  }

  const char* find_writer(const void* data, size_t bytes) override {
    const Launch* launch = Session::find_writer(data, bytes);
    return launch != nullptr ? launch->graph().name().c_str() : nullptr;
  }

 private:
  void require_graph(const PTOGraph& graph, const SessionProgram& program) const {
    if (&graph.session != this) throw Mistake("the graph is one of another session");
    const SessionProgram& own = graph.contract->program();
    if (&own != &program)
      throw Mistake("the graph is one of `" + own.name + "`, found `" + program.name + "`");
  }

  std::mutex mutex_;  ///< guards the graphs
  std::vector<std::unique_ptr<PTOGraph>> graphs_;
};

// --- what functions of exported programs call ---

inline void require_session(const PTOSession* session) {
  if (session == nullptr) throw Mistake("expected a session, found NULL");
  if (session->signature != session_signature())
    throw Mistake("the session is one of a library from another version of PTO-WSP: export both again");
}

const char* launch(Callable& callable, Given given, PTOSession* session, const PTOGraph* graph,
                   PTOLaunch** launch) {
  if (launch != nullptr) *launch = nullptr;
  std::shared_ptr<Call> call;
  const char* error = error_text(callable.program, [&] {
    require_session(session);
    const auto before_read = [&](size_t tensor, const void* data, size_t bytes) {
      const char* writer = session->find_writer(data, bytes);
      if (writer != nullptr)
        throw Mistake(std::string(callable.program.tensors[tensor].name) + ": the unfinished launch `" +
                      writer + "` writes it: wait for that first");
    };
    const bytecode::Program& code = executable_of(callable).program();
    call = std::make_shared<Call>(callable.program, code, std::move(given), before_read);
  });
  if (error != nullptr) return error;
  return session->launch(callable, pto_wsp_kernel_library(), std::move(call), graph, launch);
}

const char* make_graph(Callable& callable, PTOSession* session, const char* name, PTOGraph** graph) {
  const char* error = error_text(callable.program, [&] {
    require_session(session);
    if (graph == nullptr) throw Mistake("expected a place for the graph, found NULL");
    *graph = nullptr;
  });
  return error != nullptr ? error : session->make_graph(callable, pto_wsp_kernel_library(), name, graph);
}

// --- what the functions of pto_session.h call ---

/// Refuses a session that another library has made: its engine is not the one that this code sees.
inline HostSession& own_session(PTOSession* session) {
  require_session(session);
  if (session->library != this_library())
    throw Mistake("the session is one of another library: call the functions of one library");
  return static_cast<HostSession&>(*session);
}

inline const Launch& as_launch(const PTOLaunch* launch) { return *reinterpret_cast<const Launch*>(launch); }

inline Launch& own_launch(PTOLaunch* launch) {
  if (launch == nullptr) throw Mistake("expected a launch, found NULL");
  auto& found = *reinterpret_cast<Launch*>(launch);
  own_session(const_cast<HostSession*>(static_cast<const HostSession*>(&found.session())));
  return found;
}

inline ContractGraph& own_contract(const PTOGraph* graph) {
  if (graph == nullptr) throw Mistake("expected a graph, found NULL");
  own_session(&graph->session);
  return *graph->contract;
}

inline std::vector<const Launch*> own_launches(PTOLaunch* const* launches, int32_t count) {
  std::vector<const Launch*> found;
  for (int32_t i = 0; i < count; ++i) found.push_back(&own_launch(launches[i]));
  return found;
}

/// The text of an error that belongs to no program.
template <class Body>
const char* plain_error_text(Body body) {
  static const Program none{};
  return error_text(none, body);
}

/// Waits for a launch. Returns its error, in the words of its program.
inline const char* wait_for(Launch& launch) {
  return error_text(program_of(launch), [&] { launch.wait(); });
}

}  // namespace pto::wsp::host

namespace pto_host = pto::wsp::host;

PTOSession* pto_session_create(void) { return new (std::nothrow) pto_host::HostSession; }

void pto_session_destroy(PTOSession* session) { delete session; }

const char* pto_session_wait(PTOSession* session) {
  pto::wsp::Launch* failed = nullptr;
  const char* error =
      pto_host::plain_error_text([&] { failed = pto_host::own_session(session).first_failed(); });
  return failed != nullptr ? pto_host::wait_for(*failed) : error;
}

const char* pto_session_cancel(PTOSession* session) {
  return pto_host::plain_error_text([&] { pto_host::own_session(session).cancel(); });
}

const char* pto_launch_wait(PTOLaunch* launch) {
  pto::wsp::Launch* own = nullptr;
  const char* error = pto_host::plain_error_text([&] { own = &pto_host::own_launch(launch); });
  return error != nullptr ? error : pto_host::wait_for(*own);
}

const char* pto_launch_cancel(PTOLaunch* launch) {
  return pto_host::plain_error_text([&] { pto_host::own_launch(launch).cancel(); });
}

int pto_launch_is_done(const PTOLaunch* launch) {
  return launch == nullptr || pto_host::as_launch(launch).is_done();
}

const char* pto_launch_name(const PTOLaunch* launch) {
  return launch == nullptr ? "" : pto_host::as_launch(launch).graph().name().c_str();
}

int pto_launch_get_wait(const PTOLaunch* launch, int32_t index, PTOWait* wait) {
  if (launch == nullptr) return 0;
  const pto::wsp::Launch& own = pto_host::as_launch(launch);
  if (index < 0 || size_t(index) >= own.waits().size()) return 0;
  const pto::wsp::LaunchWait& found = own.waits()[size_t(index)];
  *wait = {reinterpret_cast<PTOLaunch*>(found.launch), PTOHazard(int(found.hazard)),
           own.graph().program().tensors[found.tensor].c_str()};
  return 1;
}

const char* pto_graph_provides(PTOGraph* graph, const char* tensor, const char* const* kernels,
                               int32_t num_kernels) {
  return pto_host::plain_error_text([&] {
    const std::set<std::string> names(kernels, kernels + num_kernels);
    pto_host::own_contract(graph).provide(tensor, names);
  });
}

const char* pto_graph_requires(PTOGraph* graph, const char* tensor, const PTOGraph* from) {
  return pto_host::plain_error_text([&] {
    pto_host::own_contract(from);
    pto_host::own_contract(graph).require(tensor, from->contract);
  });
}

const char* pto_session_order_reads(PTOSession* session, const void* array, PTOLaunch* const* reads,
                                    int32_t num_reads, PTOLaunch* write) {
  return pto_host::plain_error_text([&] {
    const pto::wsp::Launch* last = write != nullptr ? &pto_host::own_launch(write) : nullptr;
    pto_host::own_session(session).order_reads(array, pto_host::own_launches(reads, num_reads), last);
  });
}

const char* pto_session_order_writes(PTOSession* session, const void* array, PTOLaunch* const* writes,
                                     int32_t num_writes) {
  return pto_host::plain_error_text([&] {
    pto_host::own_session(session).order_writes(array, pto_host::own_launches(writes, num_writes));
  });
}
