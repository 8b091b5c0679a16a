// SPDX-License-Identifier: MIT
// Calls the kernels of a library that the Python process cannot load: one built for another processor, under
// an emulator. Requests come through the standard input and are answered on the standard output; foreign.py
// is the other side, and says what both contain.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "pto/wsp/abi.hpp"

using namespace pto::wsp;

namespace {

constexpr uint64_t kAlign = 64, kGuardBytes = 64;
constexpr unsigned char kGuard = 0xa5;

void read_all(void* to, uint64_t bytes) {
  if (bytes > 0 && std::fread(to, 1, bytes, stdin) != bytes) std::exit(0);
}

template <class T>
T read() {
  T value;
  read_all(&value, sizeof value);
  return value;
}

void write_all(const void* from, uint64_t bytes) { std::fwrite(from, 1, bytes, stdout); }

// Memory that lies at the place of a line where the caller's does.
struct Region {
  explicit Region(uint64_t bytes, uint64_t place = 0) : memory(bytes + 2 * kAlign), size(bytes) {
    const uint64_t start = reinterpret_cast<uint64_t>(memory.data());
    data = memory.data() + (kAlign - start % kAlign) % kAlign + place;
  }

  std::vector<char> memory;
  char* data;
  uint64_t size;
};

struct PassedView {
  int32_t region, rows_region;
  int64_t offset, rows_offset, shape[kMaxViewRank], stride[kMaxViewRank], streams;
};

const KernelInfo* find(const KernelLibrary& library, const std::string& name) {
  for (uint32_t i = 0; i < library.num_kernels; ++i) {
    if (library.kernels[i].name == name) return &library.kernels[i];
  }
  return nullptr;
}

void serve(const KernelLibrary& library) {
  std::string name(read<uint32_t>(), ' ');
  read_all(name.data(), name.size());
  std::vector<Region> regions;
  for (uint32_t left = read<uint32_t>(); left > 0; --left) {
    const uint64_t bytes = read<uint64_t>(), place = read<uint64_t>();
    regions.emplace_back(bytes, place);
    read_all(regions.back().data, bytes);
  }
  std::vector<View> views(read<uint32_t>());
  for (View& view : views) {
    const PassedView passed = read<PassedView>();
    view.data = regions[passed.region].data + passed.offset;
    std::memcpy(view.shape, passed.shape, sizeof view.shape);
    std::memcpy(view.stride, passed.stride, sizeof view.stride);
    const char* rows =
        passed.rows_region < 0 ? nullptr : regions[passed.rows_region].data + passed.rows_offset;
    view.rows = reinterpret_cast<const int32_t*>(rows);
    view.streams = passed.streams != 0;
  }
  std::vector<Scalar> scalars(read<uint32_t>());
  read_all(scalars.data(), scalars.size() * sizeof(Scalar));
  const int32_t fill = read<int32_t>();
  const KernelInfo* const kernel = find(library, name);
  if (kernel == nullptr) std::exit(1);
  Region scratch(kernel->scratch_bytes + kGuardBytes);
  std::memset(scratch.data, fill, kernel->scratch_bytes);
  std::memset(scratch.data + kernel->scratch_bytes, kGuard, kGuardBytes);
  const uint64_t ticks = 0;
  Monitor monitor{&ticks, 0, nullptr, nullptr, {}};
  const TaskContext context{scratch.data, nullptr, 0, 0, 0, 1, &monitor};
  const int32_t status = kernel->fn(views.data(), scalars.data(), &context);
  int32_t is_whole = 1;
  for (uint64_t i = 0; i < kGuardBytes; ++i)
    is_whole &= static_cast<unsigned char>(scratch.data[kernel->scratch_bytes + i]) == kGuard;
  write_all(&status, sizeof status);
  write_all(&is_whole, sizeof is_whole);
  for (const Region& region : regions) write_all(region.data, region.size);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  void* const handle = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
  void* const entry = handle ? dlsym(handle, "pto_wsp_kernel_library") : nullptr;
  if (entry == nullptr) {
    std::fprintf(stderr, "no library of kernels: %s\n", handle ? "" : dlerror());
    return 1;
  }
  const KernelLibrary* const library = reinterpret_cast<KernelLibraryFn>(entry)();
  for (;;) serve(*library);
}
