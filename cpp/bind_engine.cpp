// SPDX-License-Identifier: MIT
/// \file
/// Python face of the engine: KernelLibrary, Executable, RunResult and EngineError.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "arrays.hpp"
#include "bind_sim.hpp"
#include "pto/wsp/engine.hpp"
#include "pto/wsp/sched/lone_monitor.hpp"

namespace nb = nanobind;
using namespace pto::wsp;

namespace {

using Column = nb::ndarray<nb::numpy, int64_t, nb::c_contig>;

/// What becomes a numpy array [n] or [n, width] of int64.
class ColumnData {
 public:
  explicit ColumnData(size_t n) : num_dims_(1), shape_{n, 1}, data_(new int64_t[n]) {}
  ColumnData(size_t n, size_t width) : num_dims_(2), shape_{n, width}, data_(new int64_t[n * width]) {}

  int64_t* data() { return data_.get(); }
  nb::object to_array() && {
    int64_t* raw = data_.release();
    nb::capsule owner(raw, [](void* memory) noexcept { delete[] static_cast<int64_t*>(memory); });
    return nb::cast(Column(raw, num_dims_, shape_, owner));
  }

 private:
  size_t num_dims_;
  size_t shape_[2];
  std::unique_ptr<int64_t[]> data_;
};

nb::object to_python(const Detail& detail) {
  switch (detail.kind) {
    case Detail::kText: return nb::cast(detail.text);
    case Detail::kList: return nb::cast(detail.list);
    default: return nb::cast(detail.number);
  }
}

/// Holds the Python exception class; lives as long as the process.
PyObject* engine_error_class = nullptr;

void raise_engine_error(const EngineError& error) {
  nb::dict details;
  for (const auto& [key, value] : error.details()) details[key.c_str()] = to_python(value);
  nb::object instance = nb::borrow(engine_error_class)(error.what());
  instance.attr("code") = error.code();
  instance.attr("details") = details;
  PyErr_SetObject(engine_error_class, instance.ptr());
}

/// Counts the calls that are inside the engine without the GIL, so that interpreter exit can wait for them.
class ActiveCalls {
 public:
  /// Left with the GIL held again: then interpreter exit, which waits for it, cannot find this thread
  /// half-way.
  class Call {
   public:
    Call() {
      if (is_closed().load()) throw EngineError("interpreter-exit", "the interpreter is exiting");
      ++count();
    }
    ~Call() { --count(); }
    Call(const Call&) = delete;
  };

  /// Cancels every run, and those that begin before their thread notices, until all calls have returned and
  /// no run is under way.
  static void close() {
    is_closed() = true;
    while (!InFlight::instance().close() || count().load() > 0) {
      // A daemon thread keeps what it holds: the interpreter is not to complain of it.
      nb::set_leak_warnings(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  /// In a forked child: forgets calls of threads that do not exist here.
  static void forget() { count() = 0; }

 private:
  static std::atomic<int64_t>& count() {
    static std::atomic<int64_t> count{0};
    return count;
  }
  static std::atomic<bool>& is_closed() {
    static std::atomic<bool> is_closed{false};
    return is_closed;
  }
};

/// Lets Python handle the signals that arrived, on its main thread; true if a handler raised an exception,
/// which is then set.
bool is_signalled() {
  const nb::gil_scoped_acquire acquired;
  return PyErr_CheckSignals() != 0;
}

/// A Python function that is told the number of complete tasks, by any thread, and what it raised. What
/// kernels print goes to `sys.stdout`.
class Listener {
 public:
  explicit Listener(nb::object function) : function_(std::move(function)) {}

  /// Lets a run tell it; it stays where it is.
  void listen(sched::RunOptions& options) {
    options.printer = this;
    options.on_print = &print;
    if (function_.is_none()) return;
    options.listener = this;
    options.on_progress = &report;
  }
  /// Raises what it raised, or what a handler of a signal did in this thread. Any number of times.
  void raise() const {
    if (PyErr_Occurred() == nullptr && raised_.is_valid())
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised_.ptr())), raised_.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  static void print(void* listener, const std::string& text) {
    static_cast<Listener*>(listener)->write(text);
  }

 private:
  static bool report(void* listener, uint64_t num_complete) {
    return static_cast<Listener*>(listener)->tell(num_complete);
  }
  /// True if it raised an exception.
  bool tell(uint64_t num_complete) {
    const nb::gil_scoped_acquire acquired;
    if (raised_.is_valid() || PyErr_Occurred() != nullptr) return true;
    try {
      function_(num_complete);
    } catch (nb::python_error& error) {
      keep(error);
      return true;
    }
    return false;
  }
  void write(const std::string& text) {
    const nb::gil_scoped_acquire acquired;
    if (raised_.is_valid() || PyErr_Occurred() != nullptr) return;
    try {
      nb::module_::import_("sys").attr("stdout").attr("write")(text);
    } catch (nb::python_error& error) {
      keep(error);
    }
  }
  void keep(nb::python_error& error) {
    raised_ = nb::borrow(error.value());
    if (error.traceback().is_valid()) PyException_SetTraceback(raised_.ptr(), error.traceback().ptr());
  }

  nb::object function_;
  nb::object raised_;
};

class PythonLibrary {
 public:
  explicit PythonLibrary(const std::string& path) : library_(std::make_shared<LoadedLibrary>(path)) {}

  std::shared_ptr<const KernelLibrary> table() const { return {library_, &library_->table()}; }
  uint64_t table_hash() const { return library_->table().table_hash; }
  bool has_native() const { return library_->has_native(); }

  nb::object failure(int32_t number) const {
    const KernelFailure* failure = has_native() ? library_->failure(number) : nullptr;
    if (failure == nullptr) return nb::none();
    const nb::object message = nb::steal(
        PyUnicode_DecodeUTF8(failure->message, Py_ssize_t(std::strlen(failure->message)), "replace"));
    const nb::object file = failure->file == nullptr ? nb::none() : nb::cast(std::string(failure->file));
    return nb::make_tuple(message, file, failure->line);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (uint32_t i = 0; i < library_->table().num_kernels; ++i)
      names.emplace_back(library_->table().kernels[i].name);
    return names;
  }

  std::vector<uint32_t> scratch_bytes() const {
    std::vector<uint32_t> bytes;
    for (uint32_t i = 0; i < library_->table().num_kernels; ++i)
      bytes.push_back(library_->table().kernels[i].scratch_bytes);
    return bytes;
  }

  /// (what the kernel returned, what a failed check found). Raises what a handler of a signal raised.
  nb::tuple call(uint32_t index, nb::tuple arrays, nb::tuple scalars, nb::tuple scalar_dtypes, uint64_t task,
                 uint64_t workspace_bytes) const {
    if (index >= library_->table().num_kernels) {
      throw EngineError("no-such-kernel", "the library has no such kernel").with_int("kernel", index);
    }
    const KernelInfo& kernel = library_->table().kernels[index];
    if (arrays.size() != kernel.num_views || scalars.size() != kernel.num_scalars ||
        scalar_dtypes.size() != scalars.size()) {
      throw EngineError("wrong-argument-count", "a kernel call has the wrong number of arguments")
          .with_int("expected_arrays", kernel.num_views)
          .with_int("expected_scalars", kernel.num_scalars);
    }
    const python::BoundArrays bound(arrays);
    std::vector<View> views;
    for (size_t i = 0; i < kernel.num_views; ++i)
      views.push_back(to_view(bound.refs()[i], kernel.params[i], i));
    std::vector<Scalar> values(scalars.size());
    for (size_t i = 0; i < scalars.size(); ++i) {
      const auto dtype = DType(nb::cast<uint8_t>(scalar_dtypes[i]));
      values[i].i64 = python::scalar_bits(scalars[i], dtype, i);
    }
    sched::Scratch scratch, workspace;
    if (!scratch.reserve(kernel.scratch_bytes) || !workspace.reserve(workspace_bytes)) throw std::bad_alloc();
    Listener listener{nb::none()};
    sched::LoneMonitor monitor(&is_signalled, &Listener::print, &listener);
    TaskContext context{scratch.data(),   workspace.data(), workspace_bytes, task, 0,
                        kernel.block_dim, &monitor};
    int32_t status = 0;
    {
      const sched::FloatEnvironment floats;
      status = sched::run_blocks(kernel.fn, views.data(), values.data(), context);
    }
    listener.raise();
    return nb::make_tuple(status, std::vector<int64_t>(std::begin(monitor.values), std::end(monitor.values)));
  }

 private:
  static View to_view(const bind::ArrayRef& array, const ParamInfo& param, size_t index) {
    bytecode::TensorDescriptor tensor{};
    tensor.dtype = param.dtype;
    tensor.rank = param.rank;
    tensor.written = param.role != Role::in;
    bind::detail::check_array(array, tensor, index);
    View view{array.data, {1, 1, 1, 1}, {0, 0, 0, 0}, nullptr};
    const bytecode::TensorLayout layout = bind::detail::make_layout(array);
    for (int d = 0; d < array.rank; ++d) {
      view.shape[d] = layout.shape[d];
      view.stride[d] = layout.stride[d];
      if (array.shape[d] < param.min_shape[d] || array.shape[d] > param.max_shape[d]) {
        throw EngineError("view-shape", "a kernel does not take an array of this extent")
            .with_int("tensor", int64_t(index))
            .with_int("dim", d)
            .with_int("extent", array.shape[d])
            .with_int("min", param.min_shape[d])
            .with_int("max", param.max_shape[d]);
      }
    }
    return view;
  }

  std::shared_ptr<LoadedLibrary> library_;
};

nb::dict counters(const RunResult& result) {
  nb::dict counters;
  for_counters(result, [&](const std::string& name, const auto& value) { counters[name.c_str()] = value; });
  return counters;
}

/// (worker, start_ns, end_ns)
nb::tuple times(const trace::RunRecord& record) {
  const size_t n = record.num_tasks();
  ColumnData worker(n), start(n), end(n);
  record.fill_times(worker.data(), start.data(), end.data());
  return nb::make_tuple(std::move(worker).to_array(), std::move(start).to_array(), std::move(end).to_array());
}

nb::object dispatchers(const trace::RunRecord& record) {
  ColumnData dispatcher(record.num_tasks());
  record.fill_dispatchers(dispatcher.data());
  return std::move(dispatcher).to_array();
}

/// [n, width]
nb::object table(const std::vector<int64_t>& found, size_t width) {
  ColumnData rows(found.size() / width, width);
  std::copy(found.begin(), found.end(), rows.data());
  return std::move(rows).to_array();
}

nb::object walks(const trace::RunRecord& record) { return table(record.list_walks(), 4); }
nb::object stalls(const trace::RunRecord& record) { return table(record.list_stalls(), 4); }
nb::object stretches(const trace::RunRecord& record) { return table(record.list_stretches(), 3); }

/// [n, 4]: before, after, kind, tensor
nb::object dependences(const trace::RunRecord& record) { return table(record.find_dependences(), 4); }

/// (site, registers)
nb::tuple places(const trace::RunRecord& record) {
  const size_t n = record.num_tasks();
  ColumnData site(n), registers(n, record.num_registers());
  record.fill_places(site.data(), registers.data());
  return nb::make_tuple(std::move(site).to_array(), std::move(registers).to_array());
}

/// A run that was submitted, with all that it refers to.
class PythonRun {
 public:
  /// \param earlier  the runs before it in its session, or null: it is of none
  PythonRun(Executable& executable, bool has_native, nb::tuple arrays,
            const std::vector<std::optional<int64_t>>& symbols, sched::RunOptions options,
            nb::object progress, const std::vector<const SubmittedRun*>* earlier)
      : arrays_(arrays), listener_(std::move(progress)) {
    listener_.listen(options);
    if (has_native) watch_.emplace();
    const ActiveCalls::Call call;
    try {
      const nb::gil_scoped_release released;
      run_ = earlier == nullptr ? executable.submit(arrays_.refs(), symbols, options)
                                : executable.submit_after(*earlier, arrays_.refs(), symbols, options);
    } catch (const EngineError&) {
      listener_.raise();
      throw;
    }
  }
  ~PythonRun() {
    const nb::gil_scoped_release released;
    run_.reset();
  }

  RunResult wait() {
    const ActiveCalls::Call call;
    try {
      const nb::gil_scoped_release released;
      run_->wait();
    } catch (const EngineError&) {
      listener_.raise();
      throw;
    }
    listener_.raise();
    return run_->wait();
  }
  void cancel() { run_->cancel(); }
  bool is_done() const { return run_->is_done(); }
  uint64_t number() const { return run_->number(); }
  /// Null if it has to begin after earlier ones.
  const SubmittedRun* submitted() const { return run_.get(); }

 private:
  const python::BoundArrays arrays_;
  Listener listener_;
  std::optional<CrashWatch> watch_;
  std::unique_ptr<SubmittedRun> run_;
};

class PythonExecutable {
 public:
  PythonExecutable(nb::bytes bytecode, const PythonLibrary& library, const PythonExecutable* shared,
                   const std::optional<std::string>& walk)
      : executable_(reinterpret_cast<const uint8_t*>(bytecode.c_str()), bytecode.size(), library.table(),
                    shared != nullptr ? &shared->executable_ : nullptr, walk ? load_walk(*walk) : nullptr),
        library_(library.table()),
        has_native_(library.has_native()) {}

  RunResult run(nb::tuple arrays, nb::tuple scalars, uint32_t workers, int trace, uint64_t jitter,
                bool tracks, bool check, sched::RunOptions options, nb::object progress,
                int64_t time_limit_ns, std::shared_ptr<sched::Calendar> calendar) {
    complete(options, workers, trace, jitter, tracks, check, time_limit_ns);
    options.calendar = std::move(calendar);
    Listener listener(std::move(progress));
    listener.listen(options);
    const python::BoundArrays bound(arrays);
    const std::vector<std::optional<int64_t>> symbols = to_symbols(scalars);
    try {
      RunResult result = run_without_gil(bound.refs(), symbols, options);
      listener.raise();
      return result;
    } catch (const EngineError&) {
      listener.raise();
      throw;
    }
  }

  std::unique_ptr<PythonRun> submit(nb::tuple arrays, nb::tuple scalars, uint32_t workers, int trace,
                                    uint64_t jitter, bool tracks, bool check, sched::RunOptions options,
                                    nb::object progress, int64_t time_limit_ns,
                                    const std::optional<std::vector<const PythonRun*>>& earlier,
                                    std::shared_ptr<sched::Calendar> calendar) {
    complete(options, workers, trace, jitter, tracks, check, time_limit_ns);
    options.calendar = std::move(calendar);
    std::vector<const SubmittedRun*> runs;
    for (const PythonRun* run : earlier.value_or(std::vector<const PythonRun*>()))
      runs.push_back(run->submitted());
    auto run = std::make_unique<PythonRun>(executable_, has_native_, arrays, to_symbols(scalars), options,
                                           std::move(progress), earlier ? &runs : nullptr);
    return run->submitted() != nullptr ? std::move(run) : nullptr;
  }

  void cancel() { executable_.cancel(); }

  sim::SimResult simulate(nb::tuple arrays, nb::tuple scalars, sched::RunOptions options,
                          const sim::Machine& machine, nb::object find,
                          std::vector<std::vector<bool>> matters, const python::PlaceNumbers& places,
                          std::vector<int64_t> flushed, bool records_times, std::vector<int64_t> latencies,
                          std::shared_ptr<sched::Calendar> calendar) {
    options.is_interrupted = &is_signalled;
    options.calendar = std::move(calendar);
    const python::BoundArrays bound(arrays);
    const std::vector<std::optional<int64_t>> symbols = to_symbols(scalars);
    python::PythonCosts costs(std::move(find), std::move(matters), places, *library_);
    const ActiveCalls::Call call;
    try {
      const nb::gil_scoped_release released;
      return executable_.simulate(bound.refs(), symbols, options,
                                  {machine, costs, std::move(flushed), records_times, std::move(latencies)});
    } catch (const EngineError&) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      throw;
    }
  }

  /// The calendar, and where its tasks come from.
  nb::tuple make_calendar(nb::tuple arrays, nb::tuple scalars, uint32_t workers, sched::RunOptions options) {
    options.workers = workers;
    options.is_interrupted = &is_signalled;
    const python::BoundArrays bound(arrays);
    const std::vector<std::optional<int64_t>> symbols = to_symbols(scalars);
    const ActiveCalls::Call call;
    std::optional<MadeCalendar> made;
    {
      const nb::gil_scoped_release released;
      made = executable_.make_calendar(bound.refs(), symbols, options);
    }
    return to_python(std::move(*made));
  }

  nb::tuple make_simulated_calendar(nb::tuple arrays, nb::tuple scalars, sched::RunOptions options,
                                    const sim::Machine& machine, nb::object find,
                                    std::vector<std::vector<bool>> matters,
                                    const python::PlaceNumbers& places) {
    options.is_interrupted = &is_signalled;
    const python::BoundArrays bound(arrays);
    const std::vector<std::optional<int64_t>> symbols = to_symbols(scalars);
    python::PythonCosts costs(std::move(find), std::move(matters), places, *library_);
    const ActiveCalls::Call call;
    std::optional<MadeCalendar> made;
    {
      const nb::gil_scoped_release released;
      made = executable_.make_calendar(bound.refs(), symbols, options, {machine, costs, {}, false, {}});
    }
    return to_python(std::move(*made));
  }

 private:
  static nb::tuple to_python(MadeCalendar made) {
    return nb::make_tuple(std::make_shared<sched::Calendar>(std::move(made.calendar)), made.record);
  }

  static void complete(sched::RunOptions& options, uint32_t workers, int trace, uint64_t jitter, bool tracks,
                       bool check, int64_t time_limit_ns) {
    options.workers = workers;
    options.time_limit_ns = time_limit_ns;
    options.trace = trace > 0;
    options.traces_walks = trace > 1;
    options.jitter = jitter;
    options.is_interrupted = &is_signalled;
    options.tracks = tracks;
    options.checks_iterations = options.checks_instances = check;
  }

  RunResult run_without_gil(const std::vector<bind::ArrayRef>& arrays,
                            const std::vector<std::optional<int64_t>>& symbols,
                            const sched::RunOptions& options) {
    const ActiveCalls::Call call;
    const nb::gil_scoped_release released;
    std::optional<CrashWatch> watch;
    if (has_native_) watch.emplace();
    return executable_.run(arrays, symbols, options);
  }

  std::vector<std::optional<int64_t>> to_symbols(nb::tuple scalars) const {
    const auto& descriptors = executable_.program().symbols;
    std::vector<std::optional<int64_t>> symbols;
    for (size_t i = 0; i < scalars.size(); ++i) {
      if (nb::handle(scalars[i]).is_none() || i >= descriptors.size()) {
        symbols.emplace_back();
      } else {
        symbols.emplace_back(python::scalar_bits(scalars[i], descriptors[i].dtype, i));
      }
    }
    return symbols;
  }

  Executable executable_;
  std::shared_ptr<const KernelLibrary> library_;
  bool has_native_;
};

/// `with FloatEnvironment():` Python code runs in the floating-point modes of tasks.
class PythonFloatEnvironment {
 public:
  void enter() { modes_.emplace(); }
  void exit(nb::args) { modes_.reset(); }

 private:
  std::optional<sched::FloatEnvironment> modes_;
};

void add_error(nb::module_& module) {
  engine_error_class = PyErr_NewExceptionWithDoc(
      "pto_wsp._native.EngineError", "An error of the engine: `code` names it, `details` holds its facts.",
      PyExc_Exception, nullptr);
  module.attr("EngineError") = nb::borrow(engine_error_class);
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const EngineError& error) {
      raise_engine_error(error);
    }
  });
}

}  // namespace

void bind_engine(nb::module_& module) {
  add_error(module);
  nb::class_<PythonLibrary>(module, "KernelLibrary")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def_prop_ro("names", &PythonLibrary::names)
      .def_prop_ro("scratch_bytes", &PythonLibrary::scratch_bytes)
      .def_prop_ro("table_hash", &PythonLibrary::table_hash)
      .def_prop_ro("has_native", &PythonLibrary::has_native)
      .def("failure", &PythonLibrary::failure, nb::arg("number"))
      .def("call", &PythonLibrary::call, nb::arg("index"), nb::arg("arrays"), nb::arg("scalars"),
           nb::arg("scalar_dtypes") = nb::tuple(), nb::arg("task") = 0, nb::arg("workspace_bytes") = 0);
  nb::class_<trace::RunRecord>(module, "RunRecord")
      .def_prop_ro("tasks", &trace::RunRecord::num_tasks)
      .def_prop_ro("workers", &trace::RunRecord::num_workers)
      .def("times", &times)
      .def("dispatchers", &dispatchers)
      .def("walks", &walks)
      .def("stalls", &stalls)
      .def("stretches", &stretches)
      .def("dependences", &dependences)
      .def("places", &places);
  nb::class_<RunResult>(module, "RunResult")
      .def_ro("run", &RunResult::run)
      .def_ro("flushed", &RunResult::flushed)
      .def_ro("merges", &RunResult::merges)
      .def_ro("tasks", &RunResult::tasks)
      .def_ro("run_ns", &RunResult::run_ns)
      .def_ro("workers", &RunResult::workers)
      .def_prop_ro("counters", &counters)
      .def_ro("record", &RunResult::record);
  nb::class_<PythonExecutable>(module, "Executable")
      .def(nb::init<nb::bytes, const PythonLibrary&, const PythonExecutable*,
                    const std::optional<std::string>&>(),
           nb::arg("bytecode"), nb::arg("library"), nb::arg("shared").none() = nb::none(),
           nb::arg("walk") = nb::none())
      .def("run", &PythonExecutable::run, nb::arg("arrays"), nb::arg("scalars"), nb::arg("workers") = 0,
           nb::arg("trace") = 0, nb::arg("jitter") = 0, nb::arg("tracks") = false, nb::arg("check") = false,
           nb::arg("options") = sched::RunOptions{}, nb::arg("progress") = nb::none(),
           nb::arg("time_limit_ns") = 0, nb::arg("calendar").none() = nb::none())
      .def("submit", &PythonExecutable::submit, nb::arg("arrays"), nb::arg("scalars"), nb::arg("workers") = 0,
           nb::arg("trace") = 0, nb::arg("jitter") = 0, nb::arg("tracks") = false, nb::arg("check") = false,
           nb::arg("options") = sched::RunOptions{}, nb::arg("progress") = nb::none(),
           nb::arg("time_limit_ns") = 0, nb::arg("earlier").none() = nb::none(),
           nb::arg("calendar").none() = nb::none())
      .def("simulate", &PythonExecutable::simulate, nb::arg("arrays"), nb::arg("scalars"), nb::arg("options"),
           nb::arg("machine"), nb::arg("find"), nb::arg("matters"), nb::arg("places"), nb::arg("flushed"),
           nb::arg("records_times"), nb::arg("latencies"), nb::arg("calendar").none() = nb::none())
      .def("make_calendar", &PythonExecutable::make_calendar, nb::arg("arrays"), nb::arg("scalars"),
           nb::arg("workers"), nb::arg("options"))
      .def("make_simulated_calendar", &PythonExecutable::make_simulated_calendar, nb::arg("arrays"),
           nb::arg("scalars"), nb::arg("options"), nb::arg("machine"), nb::arg("find"), nb::arg("matters"),
           nb::arg("places"))
      .def("cancel", &PythonExecutable::cancel);
  nb::class_<PythonRun>(module, "Run")
      .def("wait", &PythonRun::wait)
      .def("cancel", &PythonRun::cancel)
      .def_prop_ro("done", &PythonRun::is_done)
      .def_prop_ro("number", &PythonRun::number);
  nb::class_<PythonFloatEnvironment>(module, "FloatEnvironment")
      .def(nb::init<>())
      .def("__enter__", &PythonFloatEnvironment::enter)
      .def("__exit__", &PythonFloatEnvironment::exit);
  pthread_atfork(nullptr, nullptr, [] { ActiveCalls::forget(); });
  const nb::object close = nb::cpp_function([] {
    const nb::gil_scoped_release released;
    ActiveCalls::close();
  });
  nb::module_::import_("atexit").attr("register")(close);
}
