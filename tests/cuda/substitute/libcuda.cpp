// SPDX-License-Identifier: MIT
/// \file
/// A substitute for the driver of a GPU, for tests: `libcuda.so.1` as the target `cuda` calls it.
///
/// Memory of the GPU is memory of the host. Each stream is a thread that runs what is enqueued, in order, so
/// that the host goes on. A module is a library of the host whose `pto_wsp_emulate` runs the blocks of a
/// launch. Wrong uses of the driver are refused with its numbers, or end the process with a message.
///
/// Environment: PTO_SUBSTITUTE_GPUS (2), PTO_SUBSTITUTE_CAPABILITY (90), PTO_SUBSTITUTE_SHARED (232448),
/// PTO_SUBSTITUTE_DELAY_MS (0), how long a stream waits before each copy.

#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

enum Status {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNotFound = 500,
  kNotReady = 600,
  kTooLarge = 720,
  kCaptureUnsupported = 900
};

constexpr int kMultiprocessors = 3, kBlocksPerMultiprocessor = 2, kThreads = 128, kStaticShared = 48 * 1024;

int of_environment(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != nullptr ? atoi(text) : otherwise;
}

using Clock = std::chrono::steady_clock;

struct Stream {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;
  size_t pending = 0;
  bool is_capturing = false;
  std::vector<std::function<void()>> captured;
  std::thread thread{[this] { work(); }};

  void work() {
    for (;;) {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return !queue.empty(); });
      auto next = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      next();
      lock.lock();
      --pending;
      changed.notify_all();
    }
  }
  void add(std::function<void()> what) {
    const std::lock_guard lock(mutex);
    if (is_capturing) return captured.push_back(std::move(what));
    queue.push_back(std::move(what));
    ++pending;
    changed.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return pending == 0; });
  }
};

struct Times {
  std::mutex mutex;
  bool is_recorded = false, is_done = false;
  Clock::time_point time;
};
// A stream may record an event after it is destroyed.
using Event = std::shared_ptr<Times>;

struct Function {
  void (*emulate)(const void* program, uint32_t blocks, uint64_t shared_bytes);
  int shared_bytes = kStaticShared;
};

std::mutex mutex;
std::map<uint64_t, size_t> memory;       // of the GPU and of the host together, by address
std::multimap<uint64_t, size_t> in_use;  // what copies that are enqueued read or write
thread_local std::vector<void*> contexts;

[[noreturn]] void broken(const char* what) {
  fprintf(stderr, "substitute for libcuda: %s\n", what);
  abort();
}

// Threads of streams are never joined: the process ends while they wait.
Stream& stream_of(void* stream) {
  static Stream* const first = new Stream;
  return stream == nullptr ? *first : *static_cast<Stream*>(stream);
}

void require_context() {
  if (contexts.empty()) broken("a call without a current context");
}

bool is_known(uint64_t address, size_t bytes) {
  const std::lock_guard lock(mutex);
  auto found = memory.upper_bound(address);
  if (found == memory.begin()) return false;
  --found;
  return address + bytes <= found->first + found->second;
}

int allocate(uint64_t* to, size_t bytes) {
  if (bytes == 0) return kInvalidValue;
  void* const found = aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (found == nullptr) return kOutOfMemory;
  memset(found, 0xcd, bytes);
  const std::lock_guard lock(mutex);
  memory[*to = reinterpret_cast<uint64_t>(found)] = bytes;
  return kSuccess;
}

int release(uint64_t address) {
  const std::lock_guard lock(mutex);
  const auto found = memory.find(address);
  if (found == memory.end()) return kInvalidValue;
  const auto used = in_use.lower_bound(address);
  if (used != in_use.end() && used->first < address + found->second) {
    broken("memory is freed before a copy of it is done");
  }
  memory.erase(found);
  free(reinterpret_cast<void*>(address));
  return kSuccess;
}

int enqueue_copy(void* stream, uint64_t gpu, size_t bytes, std::function<void()> copy) {
  require_context();
  if (!is_known(gpu, bytes)) return kInvalidValue;
  auto& own = stream_of(stream);
  if (own.is_capturing) return own.add(std::move(copy)), kSuccess;
  {
    const std::lock_guard lock(mutex);
    in_use.emplace(gpu, bytes);
  }
  const std::chrono::milliseconds delay(of_environment("PTO_SUBSTITUTE_DELAY_MS", 0));
  own.add([gpu, delay, copy = std::move(copy)] {
    std::this_thread::sleep_for(delay);
    copy();
    const std::lock_guard lock(mutex);
    in_use.erase(in_use.find(gpu));
  });
  return kSuccess;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int

API cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  return of_environment("PTO_SUBSTITUTE_GPUS", 2) > 0 ? kSuccess : kNoDevice;
}
API cuGetErrorName(int status, const char** text) {
  static const std::map<int, const char*> names = {
      {kInvalidValue, "CUDA_ERROR_INVALID_VALUE"}, {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kNoDevice, "CUDA_ERROR_NO_DEVICE"},         {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kNotFound, "CUDA_ERROR_NOT_FOUND"},         {kTooLarge, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"}};
  const auto found = names.find(status);
  *text = found == names.end() ? "CUDA_ERROR_UNKNOWN" : found->second;
  return kSuccess;
}
API cuGetErrorString(int, const char** text) {
  *text = "the substitute says so";
  return kSuccess;
}
API cuDeviceGetCount(int* count) {
  *count = of_environment("PTO_SUBSTITUTE_GPUS", 2);
  return kSuccess;
}
API cuDeviceGet(int* device, int number) {
  *device = number;
  return number < of_environment("PTO_SUBSTITUTE_GPUS", 2) ? kSuccess : 101;
}
API cuDeviceGetName(char* text, int length, int device) {
  snprintf(text, static_cast<size_t>(length), "Substitute %d", device);
  return kSuccess;
}
API cuDeviceGetAttribute(int* value, int attribute, int) {
  const int capability = of_environment("PTO_SUBSTITUTE_CAPABILITY", 90);
  switch (attribute) {
    case 16: *value = kMultiprocessors; return kSuccess;
    case 75: *value = capability / 10; return kSuccess;
    case 76: *value = capability % 10; return kSuccess;
    case 95: *value = 1; return kSuccess;
    case 97: *value = of_environment("PTO_SUBSTITUTE_SHARED", 232448); return kSuccess;
    default: return kInvalidValue;
  }
}
API cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = reinterpret_cast<void*>(static_cast<uintptr_t>(device + 1));
  return kSuccess;
}
API cuCtxPushCurrent_v2(void* context) {
  contexts.push_back(context);
  return kSuccess;
}
API cuCtxPopCurrent_v2(void** context) {
  require_context();
  *context = contexts.back();
  contexts.pop_back();
  return kSuccess;
}

// --- code ---

API cuModuleLoadData(void** module, const void* image) {
  require_context();
  Elf64_Ehdr head;
  memcpy(&head, image, sizeof head);
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return kInvalidImage;
  const size_t bytes = head.e_shoff + size_t{head.e_shnum} * head.e_shentsize;
  char path[] = "/tmp/pto-substitute-XXXXXX";
  const int file = mkstemp(path);
  if (file < 0 || write(file, image, bytes) != static_cast<ssize_t>(bytes)) return kOutOfMemory;
  close(file);
  *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  return *module != nullptr ? kSuccess : kInvalidImage;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  require_context();
  if (strcmp(name, "pto_wsp_program") != 0) return kNotFound;
  void* const found = dlsym(module, "pto_wsp_emulate");
  if (found == nullptr) return kNotFound;
  *function = new Function{reinterpret_cast<decltype(Function::emulate)>(found)};
  return kSuccess;
}
API cuFuncSetAttribute(void* function, int attribute, int value) {
  if (attribute != 8 || value > of_environment("PTO_SUBSTITUTE_SHARED", 232448)) return kInvalidValue;
  auto& own = *static_cast<Function*>(function);
  own.shared_bytes = value > own.shared_bytes ? value : own.shared_bytes;
  return kSuccess;
}
API cuFuncGetAttribute(int* value, int attribute, void*) {
  *value = attribute == 4 ? 96 : 0;
  return kSuccess;
}
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads, size_t) {
  *blocks = kBlocksPerMultiprocessor;
  return threads == kThreads ? kSuccess : kInvalidValue;
}

// --- memory ---

API cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  require_context();
  return allocate(address, bytes);
}
API cuMemFree_v2(uint64_t address) {
  require_context();
  return release(address);
}
API cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  require_context();
  uint64_t found = 0;
  const int status = allocate(&found, bytes);
  *address = reinterpret_cast<void*>(found);
  return status;
}
API cuMemFreeHost(void* address) { return release(reinterpret_cast<uint64_t>(address)); }
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  return enqueue_copy(stream, to, bytes, [=] { memcpy(reinterpret_cast<void*>(to), from, bytes); });
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  return enqueue_copy(stream, from, bytes, [=] { memcpy(to, reinterpret_cast<const void*>(from), bytes); });
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) {
  return enqueue_copy(stream, to, bytes, [=] { memset(reinterpret_cast<void*>(to), value, bytes); });
}
API cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  if (attribute != 9 || !is_known(address, 1)) return kInvalidValue;
  *static_cast<int*>(value) = 0;
  return kSuccess;
}

// --- streams and launches ---

API cuStreamCreate(void** stream, unsigned) {
  require_context();
  *stream = new Stream;
  return kSuccess;
}
API cuStreamSynchronize(void* stream) {
  auto& own = stream_of(stream);
  if (own.is_capturing) return kCaptureUnsupported;
  own.wait();
  return kSuccess;
}
API cuStreamIsCapturing(void* stream, int* status) {
  *status = stream_of(stream).is_capturing;
  return kSuccess;
}
API cuEventCreate(void** event, unsigned) {
  *event = new Event(std::make_shared<Times>());
  return kSuccess;
}
API cuEventDestroy_v2(void* event) {
  delete static_cast<Event*>(event);
  return kSuccess;
}
API cuEventRecord(void* event, void* stream) {
  const Event own = *static_cast<Event*>(event);
  if (stream_of(stream).is_capturing) return kCaptureUnsupported;
  {
    const std::lock_guard lock(own->mutex);
    own->is_recorded = true;
    own->is_done = false;
  }
  stream_of(stream).add([own] {
    const std::lock_guard lock(own->mutex);
    own->time = Clock::now();
    own->is_done = true;
  });
  return kSuccess;
}
API cuEventQuery(void* event) {
  auto& own = **static_cast<Event*>(event);
  const std::lock_guard lock(own.mutex);
  return !own.is_recorded || own.is_done ? kSuccess : kNotReady;
}
API cuEventElapsedTime(float* milliseconds, void* from, void* to) {
  const auto& begin = **static_cast<Event*>(from);
  const auto& end = **static_cast<Event*>(to);
  *milliseconds = std::chrono::duration<float, std::milli>(end.time - begin.time).count();
  return kSuccess;
}
API cuLaunchCooperativeKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads,
                              unsigned ty, unsigned tz, unsigned shared_bytes, void* stream,
                              void** arguments) {
  require_context();
  auto& own = *static_cast<Function*>(function);
  if (y != 1 || z != 1 || threads != kThreads || ty != 1 || tz != 1) return kInvalidValue;
  if (static_cast<int>(shared_bytes) > own.shared_bytes) return kInvalidValue;
  if (x > kMultiprocessors * kBlocksPerMultiprocessor) return kTooLarge;
  struct Program {
    uint64_t words[16 + 17];
  };
  Program program;  // arguments are copied when a launch is enqueued
  memcpy(&program, arguments[0], sizeof program);
  for (int i = 0; i < 10; ++i) {
    if (!is_known(program.words[i], 8)) broken("a pointer of a program is not memory of the GPU");
  }
  stream_of(stream).add([=] { own.emulate(&program, x, shared_bytes == 0 ? 64 : shared_bytes); });
  return kSuccess;
}

// --- for tests ---

/// What another library does that has arrays on the GPU.
API pto_substitute_allocations() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(memory.size());
}
API pto_substitute_begin_capture(void* stream) {
  stream_of(stream).is_capturing = true;
  return kSuccess;
}
API pto_substitute_end_capture(void* stream) {
  stream_of(stream).is_capturing = false;
  return kSuccess;
}
API pto_substitute_replay(void* stream) {
  auto& own = stream_of(stream);
  for (auto& what : own.captured) own.add(what);
  return kSuccess;
}
