// The log of blocks that PyTorch's allocator hands out and takes back.
//
// c10::reportMemoryUsageToProfiler is a function of libc10.so that the CUDA allocator calls once for each block, with the
// allocator's lock held (c10/cuda/CUDACachingAllocator.cpp; called there since PyTorch 1.6 or so). This library is loaded in
// front of libc10.so, so the call comes here; it goes on to the real function, which feeds torch.profiler.
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

#include <atomic>
#include <mutex>

#include "control.h"
#include "cuda_declarations.h"
#include "events.h"

namespace c10 {

// The layout and the way of passing of c10::Device: two bytes in one register (c10/core/Device.h).
struct Device {
  int8_t type, index;
};
__attribute__((visibility("default"))) void reportMemoryUsageToProfiler(void *address, int64_t size, size_t allocated, size_t reserved, Device device);

}  // namespace c10

namespace peakmem {
namespace {

const int8_t kCuda = 1;  // c10::DeviceType::CUDA
const size_t kChunk = (size_t)1 << 20;  // events made writable at a time
const int kDevices = 64;

struct Log {
  std::mutex mutex;
  peakmem_event *events = nullptr;
  size_t capacity = 0, writable = 0;
  std::atomic<uint64_t> count{0};
  bool full = false;
  uint64_t peaks[kDevices][2] = {};
  uint64_t now[kDevices][2] = {};

  // Address space for many events; memory is taken only as they come.
  Log() {
    for (capacity = (size_t)1 << 32; capacity >= ((size_t)1 << 22); capacity /= 4) {
      void *p = mmap(nullptr, capacity * sizeof(peakmem_event), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p != MAP_FAILED) {
        events = (peakmem_event *)p;
        return;
      }
    }
    capacity = 0;
  }
  bool room() {
    if (count < writable) return true;
    if (writable + kChunk > capacity) return false;
    if (mprotect(events + writable, kChunk * sizeof(peakmem_event), PROT_READ | PROT_WRITE)) return false;
    writable += kChunk;
    return true;
  }
};

Log &log() {
  static Log *l = new Log;  // never destroyed: threads may outlive the end of main
  return *l;
}

thread_local uint32_t t_context = 0;
thread_local int t_thread = -1;
std::atomic<int> g_threads{0};

void record(void *address, int64_t size, size_t allocated, size_t reserved, int device) {
  thread_number();
  Log &l = log();
  std::lock_guard<std::mutex> lock(l.mutex);
  if (device >= 0 && device < kDevices) {
    uint64_t totals[2] = {allocated, reserved};
    for (int i = 0; i < 2; i++) {
      l.now[device][i] = totals[i];
      if (totals[i] > l.peaks[device][i]) l.peaks[device][i] = totals[i];
    }
  }
  if (!l.room()) {
    if (!l.full) fprintf(stderr, "[peakmem] no room for more allocation events after %llu: the recording ends here\n", (unsigned long long)l.count);
    l.full = true;
    return;
  }
  l.events[l.count] = {(uint64_t)(uintptr_t)address, size, allocated, reserved, t_context, (uint16_t)device, (uint16_t)t_thread};
  l.count++;
}

typedef void (*Report)(void *, int64_t, size_t, size_t, c10::Device);
// libc10.so comes with a dlopen of its own, so RTLD_NEXT would not see it.
Report real_report() {
  static Report real = [] {
    void *lib = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    return lib ? (Report)dlsym(lib, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE") : nullptr;
  }();
  return real;
}

}  // namespace
}  // namespace peakmem

void peakmem::log_block(void *address, long long size, unsigned long long allocated, unsigned long long reserved, int device) {
  record(address, size, allocated, reserved, device);
}

int peakmem::thread_number() {
  if (t_thread < 0) t_thread = g_threads++;
  return t_thread;
}

void c10::reportMemoryUsageToProfiler(void *address, int64_t size, size_t allocated, size_t reserved, Device device) {
  if (device.type == peakmem::kCuda) peakmem::record(address, size, allocated, reserved, device.index < 0 ? 0 : device.index);
  if (peakmem::Report real = peakmem::real_report()) real(address, size, allocated, reserved, device);
}

API uint64_t peakmem_event_count(void) { return peakmem::log().count; }
API const peakmem_event *peakmem_events(void) { return peakmem::log().events; }
API void peakmem_clear_events(void) {
  peakmem::Log &l = peakmem::log();
  std::lock_guard<std::mutex> lock(l.mutex);
  l.count = 0;
  l.full = false;
}
API void peakmem_set_context(uint32_t context) { peakmem::t_context = context; }
API uint32_t peakmem_context(void) { return peakmem::t_context; }
API void peakmem_peaks(int device, uint64_t out[2]) {
  peakmem::Log &l = peakmem::log();
  std::lock_guard<std::mutex> lock(l.mutex);
  for (int i = 0; i < 2; i++) out[i] = device >= 0 && device < peakmem::kDevices ? l.peaks[device][i] : 0;
}
API void peakmem_reset_peaks(int device) {
  peakmem::Log &l = peakmem::log();
  std::lock_guard<std::mutex> lock(l.mutex);
  if (device < 0 || device >= peakmem::kDevices) return;
  for (int i = 0; i < 2; i++) l.peaks[device][i] = l.now[device][i];
}
