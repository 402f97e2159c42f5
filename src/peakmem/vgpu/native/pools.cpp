// The driver's stream-ordered allocator (cudaMallocAsync).
//
// Model: every block takes whole 2 MiB pages of its own, is given back to the device at once, and a pool keeps nothing. The
// driver's own pool packs small blocks and keeps freed memory up to the release threshold; how is not published, so what
// nvidia-smi would show for it can't be given. What a program has asked for is exact.
#include <string.h>

#include "cuda_declarations.h"
#include "device.h"
#include "notes.h"

using namespace peakmem;

namespace {

enum { kReleaseThreshold = 4, kReservedCurrent = 5, kReservedHigh = 6, kUsedCurrent = 7, kUsedHigh = 8 };

struct Pool {
  int device;
  unsigned long long threshold;
};
Pool *pool_of(int device) {
  static Pool *pools = [] {
    Pool *p = new Pool[(size_t)device_count() + 1]();
    for (int i = 0; i < device_count(); i++) p[i].device = i;
    return p;
  }();
  return device >= 0 && device < device_count() ? &pools[device] : &pools[device_count()];
}

}  // namespace

API int cudaMallocAsync(void **p, size_t n, cudaStream_t) {
  note("estimate", "cudaMallocAsync: the driver's pool is taken to keep nothing");
  return allocate(p, n);
}
API int cudaMallocFromPoolAsync(void **p, size_t n, cudaMemPool_t, cudaStream_t s) { return cudaMallocAsync(p, n, s); }
API int cudaFreeAsync(void *p, cudaStream_t) { return release(p); }
API int cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int device) { return *p = (cudaMemPool_t)pool_of(device), kSuccess; }
API int cudaDeviceGetMemPool(cudaMemPool_t *p, int device) { return *p = (cudaMemPool_t)pool_of(device), kSuccess; }
API int cudaDeviceSetMemPool(int, cudaMemPool_t) { return kSuccess; }
API int cudaMemPoolCreate(cudaMemPool_t *p, const void *) { return *p = (cudaMemPool_t) new Pool{current_device(), 0}, kSuccess; }
API int cudaMemPoolDestroy(cudaMemPool_t) { return kSuccess; }
API int cudaMemPoolSetAccess() { return kSuccess; }
API int cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return kSuccess; }
API int cudaMemPoolSetAttribute(cudaMemPool_t p, int which, void *value) {
  if (which == kReleaseThreshold) ((Pool *)p)->threshold = *(unsigned long long *)value;
  if (which == kReservedHigh || which == kUsedHigh) {
    Memory &m = memory();
    Lock lock(m.mutex);
    DeviceMemory &d = m.devices[(size_t)((Pool *)p)->device];
    d.peak = d.used;
  }
  return kSuccess;
}
API int cudaMemPoolGetAttribute(cudaMemPool_t p, int which, void *value) {
  Memory &m = memory();
  Lock lock(m.mutex);
  const DeviceMemory &d = m.devices[(size_t)((Pool *)p)->device];
  switch (which) {
    case kReservedCurrent: case kUsedCurrent: *(unsigned long long *)value = d.used - config().context; break;
    case kReservedHigh: case kUsedHigh: *(unsigned long long *)value = d.peak - config().context; break;
    case kReleaseThreshold: *(unsigned long long *)value = ((Pool *)p)->threshold; break;
    default: *(int *)value = 0;  // the reuse policies
  }
  return kSuccess;
}
API int cudaDeviceGetGraphMemAttribute(int, int, void *value) { return *(unsigned long long *)value = 0, kSuccess; }
API int cudaDeviceSetGraphMemAttribute(int, int, void *) { return kSuccess; }
API int cudaDeviceGraphMemTrim(int) { return kSuccess; }
