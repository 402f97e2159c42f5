// The part of the driver that PyTorch, Triton and cuDNN's attention engines call. The functions are exported too, for this
// library also goes by the name libcuda.so.1. cuGetProcAddress is left out on purpose: a CUDA library with a runtime of its
// own (cuBLAS, cuDNN, NCCL) then finds no usable driver and reports that, rather than running on a device that is not there.
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "cuda_declarations.h"
#include "device.h"
#include "kernels.h"
#include "notes.h"

using namespace peakmem;

namespace {

int g_context;  // its address stands for the primary context of every device

void drop(Memory &m, unsigned long long handle) {
  auto p = m.physical.find(handle);
  if (p == m.physical.end() || --p->second.references) return;
  m.uncharge(p->second.device, p->second.size);
  m.physical.erase(p);
}

}  // namespace

// ---- virtual memory: expandable segments ----

API int cuMemGetAllocationGranularity(size_t *granularity, const AllocationProperties *, int) { return *granularity = kPageSize, kSuccess; }
API int cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t alignment, CUdeviceptr, unsigned long long) {
  Memory &m = memory();
  Lock lock(m.mutex);
  uintptr_t address = m.addresses.take(size, std::max(alignment, kPageSize));
  if (!address) return kOutOfMemory;
  m.reservations[address] = size;
  *out = address;
  return kSuccess;
}
API int cuMemAddressFree(CUdeviceptr address, size_t) {
  Memory &m = memory();
  Lock lock(m.mutex);
  auto r = m.reservations.find(address);
  if (r == m.reservations.end()) return kInvalidValue;
  m.addresses.give_back(r->first, r->second);
  m.reservations.erase(r);
  return kSuccess;
}
API int cuMemCreate(CUmemHandle *out, size_t size, const AllocationProperties *p, unsigned long long) {
  Memory &m = memory();
  Lock lock(m.mutex);
  int device = p && p->location_kind == kLocationDevice ? p->location_id : current_device();
  if (device < 0 || (size_t)device >= m.devices.size()) return kInvalidDevice;
  if (!m.charge(device, size)) return kOutOfMemory;
  *out = m.next_handle++;
  m.physical[*out] = {size, device, 1};
  return kSuccess;
}
API int cuMemRelease(CUmemHandle handle) {
  Memory &m = memory();
  Lock lock(m.mutex);
  if (!m.physical.count(handle)) return kInvalidValue;
  drop(m, handle);
  return kSuccess;
}
API int cuMemRetainAllocationHandle(CUmemHandle *out, void *address) {
  Memory &m = memory();
  Lock lock(m.mutex);
  auto mapping = m.mappings.upper_bound((uintptr_t)address);
  if (mapping == m.mappings.begin()) return kInvalidValue;
  --mapping;
  if ((uintptr_t)address >= mapping->first + mapping->second.size) return kInvalidValue;
  *out = mapping->second.handle;
  m.physical[*out].references++;
  return kSuccess;
}
API int cuMemMap(CUdeviceptr address, size_t size, size_t, CUmemHandle handle, unsigned long long) {
  Memory &m = memory();
  Lock lock(m.mutex);
  auto p = m.physical.find(handle);
  if (p == m.physical.end()) return kInvalidValue;
  p->second.references++;
  m.mappings[address] = {size, handle};
  if (config().store) mprotect((void *)(uintptr_t)address, size, PROT_READ | PROT_WRITE);
  return kSuccess;
}
API int cuMemUnmap(CUdeviceptr address, size_t size) {
  Memory &m = memory();
  Lock lock(m.mutex);
  auto mapping = m.mappings.lower_bound(address);
  while (mapping != m.mappings.end() && mapping->first < address + size) {
    drop(m, mapping->second.handle);
    mapping = m.mappings.erase(mapping);
  }
  if (config().store) {
    madvise((void *)(uintptr_t)address, size, MADV_DONTNEED);
    mprotect((void *)(uintptr_t)address, size, PROT_NONE);
  }
  return kSuccess;
}
API int cuMemSetAccess() { return kSuccess; }
API int cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
  Memory &m = memory();
  Lock lock(m.mutex);
  auto block = m.blocks.upper_bound(address);
  if (block == m.blocks.begin()) return kNotFound;
  --block;
  if (address >= block->first + block->second.size) return kNotFound;
  if (base) *base = block->first;
  if (size) *size = block->second.size;
  return kSuccess;
}
API int cuMemExportToShareableHandle() { return vgpu_unsupported("cuMemExportToShareableHandle", kNotSupported); }
API int cuMemImportFromShareableHandle() { return vgpu_unsupported("cuMemImportFromShareableHandle", kNotSupported); }
API int cuMulticastCreate() { return vgpu_unsupported("cuMulticastCreate", kNotSupported); }
API int cuMulticastAddDevice() { return vgpu_unsupported("cuMulticastAddDevice", kNotSupported); }
API int cuMulticastBindMem() { return vgpu_unsupported("cuMulticastBindMem", kNotSupported); }
API int cuMulticastUnbind() { return vgpu_unsupported("cuMulticastUnbind", kNotSupported); }
API int cuMemsetD32Async() { return kSuccess; }
API int cuStreamWriteValue32() { return kSuccess; }
API int cuStreamWriteValue32_v2() { return kSuccess; }
API int cuStreamWaitValue32_v2() { return kSuccess; }

// ---- devices and contexts ----

// Programs that look for a driver of their own (Numba, CuPy...) are told that there is no device: nothing here would run them.
// TensorFlow works through the driver, and is told that there is one.
API int cuInit(unsigned) { return config().driver ? kSuccess : kNoDevice; }
API int cuDriverGetVersion(int *v) { return *v = cuda_version(), kSuccess; }
API int cuDeviceGet(CUdevice *device, int i) { return *device = i, i < device_count() ? (int)kSuccess : (int)kInvalidDevice; }
API int cuDeviceGetCount(int *n) { return *n = device_count(), kSuccess; }
API int cuDeviceGetName(char *out, int n, CUdevice) { return snprintf(out, (size_t)n, "%s", config().name), kSuccess; }
API int cuDeviceTotalMem_v2(size_t *n, CUdevice) { return *n = config().total, kSuccess; }
API int cuDeviceGetAttribute(int *value, int which, CUdevice) { return *value = attribute(which), kSuccess; }
API int cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active) {
  if (flags) *flags = 0;
  if (active) *active = 1;
  return kSuccess;
}
API int cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice) { return *c = (CUcontext)&g_context, kSuccess; }
API int cuDevicePrimaryCtxRelease_v2(CUdevice) { return kSuccess; }
API int cuCtxGetCurrent(CUcontext *c) { return *c = (CUcontext)&g_context, kSuccess; }
API int cuCtxSetCurrent(CUcontext) { return kSuccess; }
API int cuCtxPushCurrent_v2(CUcontext) { return kSuccess; }
API int cuCtxPopCurrent_v2(CUcontext *c) { return c ? cuCtxGetCurrent(c) : (int)kSuccess; }
API int cuCtxGetDevice(CUdevice *device) { return *device = current_device(), kSuccess; }
API int cuCtxGetLimit(size_t *value, int) { return *value = 0, kSuccess; }
API int cuCtxSetLimit(int, size_t) { return kSuccess; }
API int cuCtxSynchronize() { return kSuccess; }
API int cuStreamGetCtx(cudaStream_t, CUcontext *c) { return cuCtxGetCurrent(c); }
API int cuGetErrorString(int error, const char **text) { return *text = error_message(error), kSuccess; }
API int cuGetErrorName(int error, const char **name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : error == kNotSupported ? "CUDA_ERROR_NOT_SUPPORTED" : error ? "CUDA_ERROR" : "CUDA_SUCCESS";
  return kSuccess;
}
API int cuPointerGetAttribute(void *out, int which, CUdeviceptr p) {
  Memory &m = memory();
  Lock lock(m.mutex);
  bool device = m.is_device((void *)(uintptr_t)p);
  switch (which) {
    case 1: *(CUcontext *)out = (CUcontext)&g_context; break;
    case 2: *(unsigned *)out = device ? 2 : 1; break;  // CU_MEMORYTYPE_DEVICE, _HOST
    case 3: *(CUdeviceptr *)out = p; break;
    case 9: *(int *)out = device ? m.owner((void *)(uintptr_t)p) : current_device(); break;
    default: *(unsigned *)out = 0;
  }
  return kSuccess;
}

// ---- modules and kernels ----

// A function's handle is a copy of its name (for the log of launches).
API int cuModuleGetFunction(cudaFunction_t *f, CUmodule, const char *name) { return *f = (cudaFunction_t)strdup(name), kSuccess; }
API int cuModuleGetGlobal_v2(CUdeviceptr *p, size_t *n, CUmodule, const char *) {
  if (n) *n = 0;
  return p ? allocate((void **)p, 512) : (int)kSuccess;
}
API int cuModuleLoad(CUmodule *m, const char *) { return *m = (CUmodule)calloc(1, 16), kSuccess; }
API int cuModuleLoadData(CUmodule *m, const void *) { return cuModuleLoad(m, nullptr); }
API int cuModuleLoadDataEx(CUmodule *m, const void *, unsigned, int *, void **) { return cuModuleLoad(m, nullptr); }
API int cuModuleLoadFatBinary(CUmodule *m, const void *) { return cuModuleLoad(m, nullptr); }
API int cuModuleUnload(CUmodule m) { return free((void *)m), kSuccess; }
API int cuModuleGetLoadingMode(int *mode) { return *mode = 2, kSuccess; }  // lazy
API int cuLinkCreate_v2(unsigned, int *, void **, CUlinkState *s) { return *s = (CUlinkState)calloc(1, 16), kSuccess; }
API int cuLinkAddData_v2() { return kSuccess; }
API int cuLinkComplete(CUlinkState s, void **cubin, size_t *size) {
  *cubin = (void *)s;
  if (size) *size = 16;
  return kSuccess;
}
API int cuLinkDestroy(CUlinkState s) { return free((void *)s), kSuccess; }
API int cuLibraryLoadData(cudaLibrary_t *l, const void *) { return *l = (cudaLibrary_t)calloc(1, 16), kSuccess; }
API int cuLibraryLoadFromFile(cudaLibrary_t *l, const char *) { return *l = (cudaLibrary_t)calloc(1, 16), kSuccess; }
API int cuLibraryUnload(cudaLibrary_t l) { return free((void *)l), kSuccess; }
API int cuLibraryGetKernel(cudaKernel_t *k, cudaLibrary_t, const char *name) { return *k = (cudaKernel_t)strdup(name), kSuccess; }
API int cuLibraryGetModule(CUmodule *m, cudaLibrary_t l) { return *m = (CUmodule)l, kSuccess; }
API int cuKernelGetFunction(cudaFunction_t *f, cudaKernel_t k) { return *f = (cudaFunction_t)k, kSuccess; }
API int cuFuncGetAttribute(int *value, int which, cudaFunction_t) {
  *value = which == 0 ? 1024 : which == 4 ? 32 : 0;  // threads per block, registers
  return kSuccess;
}
API int cuKernelGetAttribute(int *value, int which, cudaKernel_t k, CUdevice) { return cuFuncGetAttribute(value, which, (cudaFunction_t)k); }
API int cuKernelSetAttribute() { return kSuccess; }
API int cuFuncSetAttribute() { return kSuccess; }
API int cuFuncSetCacheConfig() { return kSuccess; }
API int cuFuncGetModule(CUmodule *m, cudaFunction_t) { return *m = nullptr, kSuccess; }
API int cuLaunchKernel(cudaFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, cudaStream_t, void **,
                       void **) {
  launch((const void *)f, dim3{gx, gy, gz}, dim3{bx, by, bz}, shared);
  return kSuccess;
}
API int cuLaunchCooperativeKernel(cudaFunction_t f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, cudaStream_t s,
                                  void **a) {
  return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, s, a, nullptr);
}
API int cuLaunchKernelEx(const unsigned *config, cudaFunction_t f, void **, void **) {
  launch((const void *)f, dim3{config[0], config[1], config[2]}, dim3{config[3], config[4], config[5]}, config[6]);
  return kSuccess;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, cudaFunction_t, int threads, size_t shared) { return *n = occupancy(threads, shared), kSuccess; }
API int cuOccupancyMaxPotentialClusterSize(int *n, cudaFunction_t, const void *) { return *n = 8, kSuccess; }
API int cuOccupancyMaxActiveClusters(int *n, cudaFunction_t, const void *) { return *n = 8, kSuccess; }
API int cuTensorMapEncodeTiled() { return kSuccess; }
API int cuTensorMapEncodeIm2col() { return kSuccess; }
API int cuLogsRegisterCallback() { return kSuccess; }
API int cuLogsUnregisterCallback() { return kSuccess; }

namespace {

struct Entry {
  const char *name;
  void *function;
};
#define E(name) {#name, (void *)name}
#define V(name) {#name, (void *)name##_v2}, {#name "_v2", (void *)name##_v2}
const Entry kTable[] = {
    E(cuMemGetAllocationGranularity), E(cuMemAddressReserve), E(cuMemAddressFree), E(cuMemCreate), E(cuMemRelease), E(cuMemRetainAllocationHandle), E(cuMemMap),
    E(cuMemUnmap), E(cuMemSetAccess), V(cuMemGetAddressRange), E(cuMemExportToShareableHandle), E(cuMemImportFromShareableHandle), E(cuMulticastCreate),
    E(cuMulticastAddDevice), E(cuMulticastBindMem), E(cuMulticastUnbind), E(cuMemsetD32Async), E(cuStreamWriteValue32), E(cuStreamWriteValue32_v2),
    V(cuStreamWaitValue32), E(cuDriverGetVersion), E(cuDeviceGet), E(cuDeviceGetCount), E(cuDeviceGetName), V(cuDeviceTotalMem), E(cuDeviceGetAttribute),
    E(cuDevicePrimaryCtxGetState), E(cuDevicePrimaryCtxRetain), V(cuDevicePrimaryCtxRelease), E(cuCtxGetCurrent), E(cuCtxSetCurrent), V(cuCtxPushCurrent),
    V(cuCtxPopCurrent), E(cuCtxGetDevice), E(cuCtxGetLimit), E(cuCtxSetLimit), E(cuCtxSynchronize), E(cuStreamGetCtx), E(cuGetErrorString), E(cuGetErrorName),
    E(cuPointerGetAttribute), E(cuModuleGetFunction), V(cuModuleGetGlobal), E(cuModuleLoad), E(cuModuleLoadData), E(cuModuleLoadDataEx), E(cuModuleLoadFatBinary),
    E(cuModuleUnload), E(cuModuleGetLoadingMode), V(cuLinkCreate), V(cuLinkAddData), E(cuLinkComplete), E(cuLinkDestroy), E(cuLibraryLoadData), E(cuLibraryLoadFromFile),
    E(cuLibraryUnload), E(cuLibraryGetKernel), E(cuLibraryGetModule), E(cuKernelGetFunction), E(cuKernelGetAttribute), E(cuKernelSetAttribute), E(cuFuncGetAttribute),
    E(cuFuncSetAttribute), E(cuFuncSetCacheConfig), E(cuFuncGetModule), E(cuLaunchKernel), E(cuLaunchCooperativeKernel), E(cuLaunchKernelEx),
    E(cuOccupancyMaxActiveBlocksPerMultiprocessor), E(cuOccupancyMaxPotentialClusterSize), E(cuOccupancyMaxActiveClusters), E(cuTensorMapEncodeTiled),
    E(cuTensorMapEncodeIm2col), E(cuLogsRegisterCallback), E(cuLogsUnregisterCallback),
};
#undef E
#undef V

}  // namespace

void *peakmem::driver_symbol(const char *name) {
  for (const Entry &entry : kTable)
    if (!strcmp(entry.name, name)) return entry.function;
  return nullptr;
}

namespace {

const int kSlots = 128;
const char *g_missing[kSlots];
template <int N>
int missing() {
  return vgpu_unsupported(g_missing[N], kNotSupported);
}
template <int... N>
void *missing_slot(int slot, std::integer_sequence<int, N...>) {
  static int (*const slots[])() = {missing<N>...};
  return (void *)slots[slot];
}

}  // namespace

void *peakmem::driver_missing(const char *name) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  int slot = 0;
  while (slot < kSlots - 1 && g_missing[slot] && strcmp(g_missing[slot], name)) slot++;
  if (!g_missing[slot]) g_missing[slot] = slot < kSlots - 1 ? strdup(name) : "another driver function";
  return missing_slot(slot, std::make_integer_sequence<int, kSlots>());
}

// Names without a version suffix that old callers look up in libcuda.so.1.
API int cuCtxPushCurrent(CUcontext c) { return cuCtxPushCurrent_v2(c); }
API int cuCtxPopCurrent(CUcontext *c) { return cuCtxPopCurrent_v2(c); }
API int cuLinkCreate(unsigned n, int *o, void **v, CUlinkState *s) { return cuLinkCreate_v2(n, o, v, s); }
API int cuLinkAddData() { return kSuccess; }
