// The part of the driver that TensorFlow and JAX call beside the one in driver.cpp: they bring no runtime of CUDA of their
// own, but work through the driver. Memory, copies, streams and events are the runtime's, under the driver's names.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cuda_declarations.h"
#include "device.h"
#include "kernels.h"
#include "notes.h"

using namespace peakmem;

extern "C" {
int cudaMalloc(void **, size_t);
int cudaFree(void *);
int cudaMallocManaged(void **, size_t, unsigned);
int cudaMemGetInfo(size_t *, size_t *);
int cudaHostAlloc(void **, size_t, unsigned);
int cudaFreeHost(void *);
int cudaHostRegister(void *, size_t, unsigned);
int cudaHostUnregister(void *);
int cudaMemcpy(void *, const void *, size_t, int);
int cudaMemcpyAsync(void *, const void *, size_t, int, cudaStream_t);
int cudaMemset(void *, int, size_t);
int cudaMemsetAsync(void *, int, size_t, cudaStream_t);
int cudaMallocAsync(void **, size_t, cudaStream_t);
int cudaMallocFromPoolAsync(void **, size_t, cudaMemPool_t, cudaStream_t);
int cudaFreeAsync(void *, cudaStream_t);
int cudaDeviceGetDefaultMemPool(cudaMemPool_t *, int);
int cudaDeviceGetMemPool(cudaMemPool_t *, int);
int cudaDeviceSetMemPool(int, cudaMemPool_t);
int cudaMemPoolCreate(cudaMemPool_t *, const void *);
int cudaMemPoolDestroy(cudaMemPool_t);
int cudaMemPoolTrimTo(cudaMemPool_t, size_t);
int cudaMemPoolSetAttribute(cudaMemPool_t, int, void *);
int cudaMemPoolGetAttribute(cudaMemPool_t, int, void *);
int cudaStreamCreateWithFlags(cudaStream_t *, unsigned);
int cudaStreamCreateWithPriority(cudaStream_t *, unsigned, int);
int cudaStreamDestroy(cudaStream_t);
int cudaStreamSynchronize(cudaStream_t);
int cudaStreamQuery(cudaStream_t);
int cudaStreamGetPriority(cudaStream_t, int *);
int cudaStreamGetFlags(cudaStream_t, unsigned *);
int cudaStreamAddCallback(cudaStream_t, void (*)(cudaStream_t, int, void *), void *, unsigned);
int cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void *);
int cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned);
int cudaStreamIsCapturing(cudaStream_t, int *);
int cudaEventCreateWithFlags(cudaEvent_t *, unsigned);
int cudaEventDestroy(cudaEvent_t);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaEventQuery(cudaEvent_t);
int cudaEventSynchronize(cudaEvent_t);
int cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t);
int cudaDeviceGetPCIBusId(char *, int, int);
int cudaDeviceGetByPCIBusId(int *, const char *);
int cudaDeviceCanAccessPeer(int *, int, int);
int cudaDeviceGetStreamPriorityRange(int *, int *);
}

namespace {

const int kDefault = 4;  // cudaMemcpyDefault: the addresses tell the direction
void *pointer(CUdeviceptr p) { return (void *)(uintptr_t)p; }

}  // namespace

// ---- memory ----

API int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) { return cudaMemGetInfo(free_bytes, total); }
API int cuMemAlloc_v2(CUdeviceptr *out, size_t n) {
  void *p = nullptr;
  int error = cudaMalloc(&p, n);
  *out = (CUdeviceptr)(uintptr_t)p;
  return error;
}
API int cuMemFree_v2(CUdeviceptr p) { return cudaFree(pointer(p)); }
API int cuMemAllocManaged(CUdeviceptr *out, size_t n, unsigned flags) { return cudaMallocManaged((void **)out, n, flags); }
API int cuMemHostAlloc(void **p, size_t n, unsigned flags) { return cudaHostAlloc(p, n, flags); }
API int cuMemAllocHost_v2(void **p, size_t n) { return cudaHostAlloc(p, n, 0); }
API int cuMemFreeHost(void *p) { return cudaFreeHost(p); }
API int cuMemHostRegister_v2(void *p, size_t n, unsigned flags) { return cudaHostRegister(p, n, flags); }
API int cuMemHostUnregister(void *p) { return cudaHostUnregister(p); }
API int cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned) { return *out = (CUdeviceptr)(uintptr_t)p, kSuccess; }
API int cuMemHostGetFlags(unsigned *flags, void *) { return *flags = 0, kSuccess; }
API int cuMemAdvise() { return kSuccess; }
API int cuMemPrefetchAsync() { return kSuccess; }
API int cuPointerSetAttribute() { return kSuccess; }

// ---- the driver's pool ----

API int cuMemAllocAsync(CUdeviceptr *out, size_t n, cudaStream_t s) { return cudaMallocAsync((void **)out, n, s); }
API int cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t n, cudaMemPool_t pool, cudaStream_t s) {
  return cudaMallocFromPoolAsync((void **)out, n, pool, s);
}
API int cuMemFreeAsync(CUdeviceptr p, cudaStream_t s) { return cudaFreeAsync(pointer(p), s); }
API int cuDeviceGetDefaultMemPool(cudaMemPool_t *pool, CUdevice device) { return cudaDeviceGetDefaultMemPool(pool, device); }
API int cuDeviceGetMemPool(cudaMemPool_t *pool, CUdevice device) { return cudaDeviceGetMemPool(pool, device); }
API int cuDeviceSetMemPool(CUdevice device, cudaMemPool_t pool) { return cudaDeviceSetMemPool(device, pool); }
API int cuMemPoolCreate(cudaMemPool_t *pool, const void *properties) { return cudaMemPoolCreate(pool, properties); }
API int cuMemPoolDestroy(cudaMemPool_t pool) { return cudaMemPoolDestroy(pool); }
API int cuMemPoolTrimTo(cudaMemPool_t pool, size_t keep) { return cudaMemPoolTrimTo(pool, keep); }
API int cuMemPoolSetAccess() { return kSuccess; }
API int cuMemPoolGetAccess(unsigned long long *flags) { return *flags = 3, kSuccess; }  // read and write
API int cuMemPoolSetAttribute(cudaMemPool_t pool, int which, void *value) { return cudaMemPoolSetAttribute(pool, which, value); }
API int cuMemPoolGetAttribute(cudaMemPool_t pool, int which, void *value) { return cudaMemPoolGetAttribute(pool, which, value); }

// ---- copies and fills ----

API int cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n) { return cudaMemcpy(pointer(to), pointer(from), n, kDefault); }
API int cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, cudaStream_t s) { return cudaMemcpyAsync(pointer(to), pointer(from), n, kDefault, s); }
API int cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n) { return cudaMemcpy(pointer(to), from, n, 1); }
API int cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, cudaStream_t s) { return cudaMemcpyAsync(pointer(to), from, n, 1, s); }
API int cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n) { return cudaMemcpy(to, pointer(from), n, 2); }
API int cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, cudaStream_t s) { return cudaMemcpyAsync(to, pointer(from), n, 2, s); }
API int cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n) { return cudaMemcpy(pointer(to), pointer(from), n, 3); }
API int cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, cudaStream_t s) {
  return cudaMemcpyAsync(pointer(to), pointer(from), n, 3, s);
}
API int cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n) { return cuMemcpyDtoD_v2(to, from, n); }
API int cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t n, cudaStream_t s) {
  return cuMemcpyDtoDAsync_v2(to, from, n, s);
}
// Fills of one byte are those of the runtime, which may be kept; of wider values nothing is kept anywhere.
API int cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n) { return cudaMemset(pointer(to), value, n); }
API int cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, cudaStream_t s) { return cudaMemsetAsync(pointer(to), value, n, s); }
API int cuMemsetD16_v2() { return kSuccess; }
API int cuMemsetD16Async() { return kSuccess; }
API int cuMemsetD32_v2() { return kSuccess; }

// ---- streams and events ----

API int cuStreamCreate(cudaStream_t *s, unsigned flags) { return cudaStreamCreateWithFlags(s, flags); }
API int cuStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) { return cudaStreamCreateWithPriority(s, flags, priority); }
API int cuStreamDestroy_v2(cudaStream_t s) { return cudaStreamDestroy(s); }
API int cuStreamSynchronize(cudaStream_t s) { return cudaStreamSynchronize(s); }
API int cuStreamQuery(cudaStream_t s) { return cudaStreamQuery(s); }
API int cuStreamGetPriority(cudaStream_t s, int *priority) { return cudaStreamGetPriority(s, priority); }
API int cuStreamGetFlags(cudaStream_t s, unsigned *flags) { return cudaStreamGetFlags(s, flags); }
API int cuStreamIsCapturing(cudaStream_t s, int *status) { return cudaStreamIsCapturing(s, status); }
API int cuStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) { return cudaStreamWaitEvent(s, e, flags); }
API int cuStreamAddCallback(cudaStream_t s, void (*f)(cudaStream_t, int, void *), void *data, unsigned flags) {
  return cudaStreamAddCallback(s, f, data, flags);
}
API int cuLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data) { return cudaLaunchHostFunc(s, f, data); }
API int cuEventCreate(cudaEvent_t *e, unsigned flags) { return cudaEventCreateWithFlags(e, flags); }
API int cuEventDestroy_v2(cudaEvent_t e) { return cudaEventDestroy(e); }
API int cuEventRecord(cudaEvent_t e, cudaStream_t s) { return cudaEventRecord(e, s); }
API int cuEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) { return cudaEventRecord(e, s); }
API int cuEventQuery(cudaEvent_t e) { return cudaEventQuery(e); }
API int cuEventSynchronize(cudaEvent_t e) { return cudaEventSynchronize(e); }
API int cuEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { return cudaEventElapsedTime(ms, a, b); }
API int cuEventElapsedTime_v2(float *ms, cudaEvent_t a, cudaEvent_t b) { return cudaEventElapsedTime(ms, a, b); }

// ---- devices ----

API int cuDeviceGetPCIBusId(char *out, int n, CUdevice device) { return cudaDeviceGetPCIBusId(out, n, device); }
API int cuDeviceGetByPCIBusId(CUdevice *device, const char *id) { return cudaDeviceGetByPCIBusId(device, id); }
API int cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) { return cudaDeviceCanAccessPeer(can, a, b); }
API int cuDeviceGetP2PAttribute(int *value, int, CUdevice, CUdevice) { return *value = 0, kSuccess; }
API int cuDeviceComputeCapability(int *major, int *minor, CUdevice) {
  *major = config().capability / 10;
  *minor = config().capability % 10;
  return kSuccess;
}
API int cuDeviceGetUuid_v2(unsigned char *out, CUdevice device) {
  for (int i = 0; i < 16; i++) out[i] = (unsigned char)(i == 15 ? device + 1 : 0);
  return kSuccess;
}
API int cuDeviceGetUuid(unsigned char *out, CUdevice device) { return cuDeviceGetUuid_v2(out, device); }
API int cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned) { return kSuccess; }
API int cuDevicePrimaryCtxReset_v2(CUdevice) { return kSuccess; }
API int cuCtxEnablePeerAccess(CUcontext, unsigned) { return kSuccess; }
API int cuCtxDisablePeerAccess(CUcontext) { return kSuccess; }
API int cuCtxGetStreamPriorityRange(int *least, int *greatest) { return cudaDeviceGetStreamPriorityRange(least, greatest); }
API int cuCtxGetApiVersion(CUcontext, unsigned *version) { return *version = 12000, kSuccess; }
API int cuCtxGetFlags(unsigned *flags) { return *flags = 0, kSuccess; }

// ---- kernels ----

// A function's handle is a copy of its name (driver.cpp).
API int cuFuncGetName(const char **name, cudaFunction_t f) { return *name = (const char *)f, kSuccess; }
API int cuKernelGetName(const char **name, cudaKernel_t k) { return *name = (const char *)k, kSuccess; }
API int cuKernelSetCacheConfig() { return kSuccess; }
API int cuFuncSetSharedMemConfig() { return kSuccess; }
API int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, cudaFunction_t, int threads, size_t shared, unsigned) {
  return *n = occupancy(threads, shared), kSuccess;
}
API int cuOccupancyMaxPotentialBlockSize(int *grid, int *block, cudaFunction_t, void *, size_t, int) {
  *block = 1024;
  *grid = config().multiprocessors * occupancy(*block, 0);
  return kSuccess;
}
API int cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid, int *block, cudaFunction_t f, void *shared, size_t bytes, int most, unsigned) {
  return cuOccupancyMaxPotentialBlockSize(grid, block, f, shared, bytes, most);
}

// Names of the first versions, which the libraries look up as well.
API int cuMemGetInfo(size_t *free_bytes, size_t *total) { return cudaMemGetInfo(free_bytes, total); }
API int cuStreamDestroy(cudaStream_t s) { return cudaStreamDestroy(s); }
API int cuEventDestroy(cudaEvent_t e) { return cudaEventDestroy(e); }
