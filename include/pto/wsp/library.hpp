// SPDX-License-Identifier: MIT
/// \file
/// A kernel library: a shared object that exports `pto_wsp_kernel_library`, checked when it is loaded.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

#include "pto/wsp/abi.hpp"
#include "pto/wsp/crash.hpp"
#include "pto/wsp/error.hpp"
#include "pto/wsp/native.hpp"
#include "pto/wsp/walk.hpp"

namespace pto::wsp {

/// FNV-1a 64 of a kernel's name, as bytecode carries it.
inline uint64_t name_hash(const char* name) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (; *name != 0; ++name) hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100000001b3ull;
  return hash;
}

namespace detail {

inline void check_param(const ParamInfo& param, const std::string& kernel) {
  const bool known = static_cast<int>(param.role) <= 2 && static_cast<int>(param.dtype) < kNumDTypes;
  if (!known || param.rank > kMaxViewRank || param.reserved != 0) {
    throw EngineError("bad-kernel-library", "kernel " + kernel + " has a malformed parameter")
        .with("kernel", kernel);
  }
}

inline void check_kernel(const KernelInfo& kernel) {
  if (kernel.name == nullptr || kernel.fn == nullptr || (kernel.num_views > 0 && kernel.params == nullptr)) {
    throw EngineError("bad-kernel-library", "a kernel has no name, no function or no parameters");
  }
  const std::string name = kernel.name;
  if (kernel.unit > Unit::mixed || kernel.block_dim < 1) {
    throw EngineError("bad-kernel-library", "kernel " + name + " has an unknown unit or no blocks")
        .with("kernel", name);
  }
  for (uint8_t byte : kernel.reserved) {
    if (byte != 0) {
      throw EngineError("bad-kernel-library", "kernel " + name + " sets a reserved field")
          .with("kernel", name);
    }
  }
  for (int i = 0; i < kernel.num_views; ++i) check_param(kernel.params[i], name);
}

}  // namespace detail

/// Throws `kernel-abi-mismatch` or `bad-kernel-library` unless the engine can run `table`.
inline void check_kernel_library(const KernelLibrary* table) {
  if (table == nullptr) throw EngineError("bad-kernel-library", "the library returned no table");
  if (table->abi_version != kAbiVersion) {
    throw EngineError("kernel-abi-mismatch", "the library was built for another version of the ABI")
        .with_int("expected", kAbiVersion)
        .with_int("found", table->abi_version);
  }
  for (uint32_t i = 0; i < table->num_kernels; ++i) detail::check_kernel(table->kernels[i]);
}

/// Owns a loaded kernel library; the table lives as long as this object.
class LoadedLibrary {
 public:
  explicit LoadedLibrary(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) {
      throw EngineError("library-load-failed", std::string("cannot load a kernel library: ") + dlerror())
          .with("path", path);
    }
    try {
      const auto entry = reinterpret_cast<KernelLibraryFn>(dlsym(handle_, "pto_wsp_kernel_library"));
      if (entry == nullptr) {
        throw EngineError("bad-kernel-library", "the library exports no pto_wsp_kernel_library")
            .with("path", path);
      }
      table_ = entry();
      check_kernel_library(table_);
      const auto native = reinterpret_cast<NativeKernelsFn>(dlsym(handle_, "pto_wsp_native_kernels"));
      if (native != nullptr) {
        native_ = native();
        native_->current_call = current_call;
      }
    } catch (...) {
      dlclose(handle_);
      throw;
    }
  }
  ~LoadedLibrary() { dlclose(handle_); }
  LoadedLibrary(const LoadedLibrary&) = delete;
  LoadedLibrary& operator=(const LoadedLibrary&) = delete;

  const KernelLibrary& table() const { return *table_; }

  /// Whether some of the kernels are written by hand.
  bool has_native() const { return native_ != nullptr; }
  /// Why a hand-written kernel of the library returned `number`. \pre has_native()
  const KernelFailure* failure(int32_t number) const { return native_->failure(number); }

 private:
  void* handle_;
  const KernelLibrary* table_ = nullptr;
  NativeKernels* native_ = nullptr;
};

/// Loads the library of a walk; the function lives as long as the pointer. Throws `library-load-failed` or
/// `bad-kernel-library`.
inline std::shared_ptr<const walk::WalkFn> load_walk(const std::string& path) {
  std::shared_ptr<void> handle(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), [](void* library) {
    if (library != nullptr) dlclose(library);
  });
  if (handle == nullptr)
    throw EngineError("library-load-failed", std::string("cannot load a walk: ") + dlerror())
        .with("path", path);
  const auto function = reinterpret_cast<walk::WalkFn>(dlsym(handle.get(), "pto_wsp_walk"));
  if (function == nullptr)
    throw EngineError("bad-kernel-library", "the library exports no pto_wsp_walk").with("path", path);
  return {new walk::WalkFn(function), [handle](const walk::WalkFn* kept) { delete kept; }};
}

}  // namespace pto::wsp
