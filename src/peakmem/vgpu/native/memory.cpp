// The runtime's memory calls.
#include <algorithm>
#include <stdlib.h>
#include <string.h>

#include "control.h"
#include "cuda_declarations.h"
#include "device.h"
#include "kept.h"
#include "notes.h"
#include "pinned.h"
#include "reads.h"
#include "streams.h"
#include "uses.h"

using namespace peakmem;

namespace {

int copy(void *to, const void *from, size_t n) {
  tick_work();
  if (!n) return kSuccess;
  Memory &m = memory();
  bool to_device = m.is_device(to), from_device = m.is_device(from), kept = n <= config().store;
  if (kept && from_device) kept = is_kept(from, n);
  if (to_device && !from_device) {
    note_use(to, Use::kFromHost);
    if (n > config().store) host_read(from, n);
  }
  if (!to_device && !from_device) memcpy(to, from, n);
  else if (!to_device) read_back(to, kept ? from : nullptr, n);
  else if (kept) memmove(to, from, n), note_kept(to, n);
  else forget_kept(to, n);
  return kSuccess;
}

int fill(void *to, int value, size_t n) {
  tick_work();
  bool device = memory().is_device(to), kept = n <= config().store;
  if (!device || kept) memset(to, value, n);
  if (device) kept ? note_kept(to, n) : forget_kept(to, n);
  return kSuccess;
}

}  // namespace

API int cudaMalloc(void **p, size_t n) { return allocate(p, n); }
API int cudaFree(void *p) { return release(p); }
API int cudaMallocManaged(void **p, size_t n, unsigned) {
  note("substitute", "cudaMallocManaged: counted as device memory");
  return allocate(p, n);
}
API int cudaMemGetInfo(size_t *free_bytes, size_t *total) {
  Memory &m = memory();
  Lock lock(m.mutex);
  if (m.devices.empty()) return fail(kNoDevice);
  const Config &c = config();
  // What is left of the capacity; a capacity beyond the device's memory (no limit) still shows the device's.
  size_t used = m.devices[(size_t)current_device()].used, limit = std::min(m.capacity.load(), c.total);
  if (free_bytes) *free_bytes = limit > used ? limit - used : 0;
  if (total) *total = c.total;
  return kSuccess;
}

API int cudaHostAlloc(void **p, size_t n, unsigned) { return host_allocate(p, n); }
API int cudaMallocHost(void **p, size_t n) { return host_allocate(p, n); }
API int cudaFreeHost(void *p) { return host_free(p); }
API int cudaHostRegister(void *p, size_t n, unsigned) { return host_register(p, n); }
API int cudaHostUnregister(void *p) { return host_unregister(p); }
API int cudaHostGetDevicePointer(void **device, void *host, unsigned) { return *device = host, kSuccess; }
API int cudaPointerGetAttributes(PointerAttributes *a, const void *p) {
  Memory &m = memory();
  Lock lock(m.mutex);
  memset(a, 0, cuda_version() >= 13000 ? 88 : sizeof *a);
  if (m.is_device(p)) {
    *a = {kMemoryDevice, m.owner(p), (void *)p, nullptr};
    return kSuccess;
  }
  auto block = m.host.upper_bound((uintptr_t)p);
  if (block != m.host.begin()) {
    --block;
    if ((uintptr_t)p < block->first + std::max<size_t>(block->second, 1)) {
      *a = {kMemoryHost, current_device(), (void *)p, (void *)p};
      return kSuccess;
    }
  }
  *a = {kMemoryUnregistered, -2, nullptr, (void *)p};
  return kSuccess;
}

API int cudaMemcpy(void *to, const void *from, size_t n, int) { return synchronize_device(), copy(to, from, n); }
API int cudaMemcpyAsync(void *to, const void *from, size_t n, int, cudaStream_t) { return copy(to, from, n); }
API int cudaMemcpyPeer(void *to, int, const void *from, int, size_t n) { return copy(to, from, n); }
API int cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t n, cudaStream_t) { return copy(to, from, n); }
API int cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int, cudaStream_t) {
  for (size_t i = 0; i < height; i++) copy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
  return kSuccess;
}
API int cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int kind) {
  return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
}
API int cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int) { return kSuccess; }
API int cudaMemcpyToSymbolAsync(const void *, const void *, size_t, size_t, int, cudaStream_t) { return kSuccess; }
API int cudaMemcpyFromSymbol(void *to, const void *, size_t n, size_t, int) { return read_back(to, nullptr, n), kSuccess; }
API int cudaMemcpyFromSymbolAsync(void *to, const void *, size_t n, size_t, int, cudaStream_t) { return read_back(to, nullptr, n), kSuccess; }
API int cudaGetSymbolAddress(void **p, const void *symbol) { return *p = (void *)symbol, kSuccess; }
API int cudaMemset(void *to, int value, size_t n) { return fill(to, value, n); }
API int cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t) { return fill(to, value, n); }
API int cudaMemPrefetchAsync() { return kSuccess; }
API int cudaMemAdvise() { return kSuccess; }

API int cudaIpcGetMemHandle(IpcHandle *, void *) { return unsupported("cudaIpcGetMemHandle (sharing GPU memory between processes)"); }
API int cudaIpcOpenMemHandle(void **, IpcHandle, unsigned) { return unsupported("cudaIpcOpenMemHandle (sharing GPU memory between processes)"); }
API int cudaIpcCloseMemHandle(void *) { return kSuccess; }
API int cudaIpcGetEventHandle(IpcHandle *, cudaEvent_t) { return unsupported("cudaIpcGetEventHandle (sharing events between processes)"); }
API int cudaIpcOpenEventHandle(cudaEvent_t *, IpcHandle) { return unsupported("cudaIpcOpenEventHandle (sharing events between processes)"); }
