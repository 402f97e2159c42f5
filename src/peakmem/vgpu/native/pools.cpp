// The driver's stream-ordered allocator (cudaMallocAsync).
//
// A model, for how the driver fills its pool is not published. Blocks are multiples of 512 bytes. The pool takes memory from
// the device in steps of 32 MiB, which is what is often seen; it never has holes too small to use, so what it holds is the
// most that was in use since it was last trimmed, rounded up to a step. PyTorch sets the release threshold to its maximum:
// memory goes back only when the pool is trimmed (torch.cuda.empty_cache, or when memory runs out). What programs use is
// exact; what the pool holds is an estimate, good to a step where there are no holes.
#include <sys/mman.h>

#include <algorithm>

#include "cuda_declarations.h"
#include "device.h"
#include "notes.h"

using namespace peakmem;

namespace {

enum { kReleaseThreshold = 4, kReservedCurrent = 5, kReservedHigh = 6, kUsedCurrent = 7, kUsedHigh = 8 };
const size_t kStep = 32 << 20, kGrain = 512;

size_t up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// What a cudaMemPool_t points to.
struct Handle {
  int device;
  unsigned long long threshold;
};
cudaMemPool_t default_pool(int device) {
  static Handle *handles = [] {
    Handle *h = new Handle[(size_t)device_count() + 1]();
    for (int i = 0; i < device_count(); i++) h[i].device = i;
    return h;
  }();
  return (cudaMemPool_t)&handles[device >= 0 && device < device_count() ? device : device_count()];
}
int device_of(cudaMemPool_t p) { return ((Handle *)p)->device; }

int allocate_from(int device, void **out, size_t size) {
  *out = nullptr;
  if (!size) return kSuccess;
  Memory &m = memory();
  Lock lock(m.mutex);
  if ((size_t)device >= m.pools.size()) return fail(kInvalidDevice);
  if (size > m.end - m.begin) return fail(kOutOfMemory);
  Pool &pool = m.pools[(size_t)device];
  size_t rounded = up(size, kGrain), needed = up(pool.used + rounded, kStep);
  if (needed > pool.reserved) {
    if (!m.charge(device, needed - pool.reserved)) return fail(kOutOfMemory);
    pool.reserved = needed;
    pool.reserved_peak = std::max(pool.reserved_peak, needed);
  }
  size_t width = up(rounded, kPageSize);  // addresses cost nothing
  uintptr_t address = m.addresses.take_block(width);
  if (!address) return fail(kOutOfMemory);
  if (config().store) mprotect((void *)address, width, PROT_READ | PROT_WRITE);
  pool.used += rounded;
  pool.used_peak = std::max(pool.used_peak, pool.used);
  m.blocks[address] = {width, device, rounded};
  *out = (void *)address;
  note("estimate", "cudaMallocAsync: memory that the driver's pool holds");
  return kSuccess;
}

}  // namespace

API int cudaMallocAsync(void **p, size_t n, cudaStream_t) { return allocate_from(current_device(), p, n); }
API int cudaMallocFromPoolAsync(void **p, size_t n, cudaMemPool_t pool, cudaStream_t) { return allocate_from(device_of(pool), p, n); }
API int cudaFreeAsync(void *p, cudaStream_t) { return release(p); }
API int cudaDeviceGetDefaultMemPool(cudaMemPool_t *p, int device) { return *p = default_pool(device), kSuccess; }
API int cudaDeviceGetMemPool(cudaMemPool_t *p, int device) { return *p = default_pool(device), kSuccess; }
API int cudaDeviceSetMemPool(int, cudaMemPool_t) { return kSuccess; }
// A pool that a program makes shares the books of the device's own.
API int cudaMemPoolCreate(cudaMemPool_t *p, const void *) { return *p = (cudaMemPool_t) new Handle{current_device(), 0}, kSuccess; }
API int cudaMemPoolDestroy(cudaMemPool_t) { return kSuccess; }
API int cudaMemPoolSetAccess() { return kSuccess; }
API int cudaMemPoolTrimTo(cudaMemPool_t p, size_t keep) {
  Memory &m = memory();
  Lock lock(m.mutex);
  Pool &pool = m.pools.at((size_t)device_of(p));
  size_t left = std::min(pool.reserved, up(std::max(pool.used, keep), kStep));
  if (left < pool.reserved) m.uncharge(device_of(p), pool.reserved - left);
  pool.reserved = left;
  return kSuccess;
}
API int cudaMemPoolSetAttribute(cudaMemPool_t p, int which, void *value) {
  Memory &m = memory();
  Lock lock(m.mutex);
  Pool &pool = m.pools.at((size_t)device_of(p));
  if (which == kReleaseThreshold) ((Handle *)p)->threshold = *(unsigned long long *)value;
  if (which == kReservedHigh) pool.reserved_peak = pool.reserved;
  if (which == kUsedHigh) pool.used_peak = pool.used;
  return kSuccess;
}
API int cudaMemPoolGetAttribute(cudaMemPool_t p, int which, void *value) {
  Memory &m = memory();
  Lock lock(m.mutex);
  const Pool &pool = m.pools.at((size_t)device_of(p));
  switch (which) {
    case kReservedCurrent: *(unsigned long long *)value = pool.reserved; break;
    case kReservedHigh: *(unsigned long long *)value = pool.reserved_peak; break;
    case kUsedCurrent: *(unsigned long long *)value = pool.used; break;
    case kUsedHigh: *(unsigned long long *)value = pool.used_peak; break;
    case kReleaseThreshold: *(unsigned long long *)value = ((Handle *)p)->threshold; break;
    default: *(int *)value = 1;  // the ways of reuse, all on
  }
  return kSuccess;
}
API int cudaDeviceGetGraphMemAttribute(int, int, void *value) { return *(unsigned long long *)value = 0, kSuccess; }
API int cudaDeviceSetGraphMemAttribute(int, int, void *) { return kSuccess; }
API int cudaDeviceGraphMemTrim(int) { return kSuccess; }
