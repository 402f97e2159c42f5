// The runtime's calls about devices, versions and errors.
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "cuda_declarations.h"
#include "device.h"
#include "driver.h"
#include "notes.h"
#include "python_exit.h"
#include "streams.h"

using namespace peakmem;

namespace {

bool is_valid(int device) { return device >= 0 && device < device_count(); }

// cudaDeviceProp as offsets: CUDA 13 dropped fields in the middle, so most later ones moved.
struct Property {
  short cuda12, cuda13;  // offset in bytes; -1: not there
  short bytes;
  size_t value;
};
const size_t kProperties12 = 1032, kProperties13 = 1008;

void write_properties(unsigned char *out, int device, bool is13) {
  const Config &c = config();
  const Property properties[] = {
      {288, 288, 8, c.total},
      {296, 296, 8, 49152},                              // sharedMemPerBlock
      {304, 304, 4, 65536},                              // regsPerBlock
      {308, 308, 4, 32},                                 // warpSize
      {312, 312, 8, 2147483647},                         // memPitch
      {320, 320, 4, 1024},                               // maxThreadsPerBlock
      {324, 324, 4, 1024}, {328, 328, 4, 1024}, {332, 332, 4, 64},              // maxThreadsDim
      {336, 336, 4, 2147483647}, {340, 340, 4, 65535}, {344, 344, 4, 65535},  // maxGridSize
      {348, -1, 4, (size_t)c.clock_khz},                 // clockRate
      {352, 352, 8, 65536},                              // totalConstMem
      {360, 360, 4, (size_t)(c.capability / 10)},        // major
      {364, 364, 4, (size_t)(c.capability % 10)},        // minor
      {368, 368, 8, 512},                                // textureAlignment
      {376, 376, 8, 32},                                 // texturePitchAlignment
      {384, -1, 4, 1},                                   // deviceOverlap
      {388, 384, 4, (size_t)c.multiprocessors},          // multiProcessorCount
      {400, 392, 4, 1},                                  // canMapHostMemory
      {576, 560, 4, 1},                                  // concurrentKernels
      {584, 568, 4, (size_t)(1 + device)},               // pciBusID
      {600, 584, 4, 2},                                  // asyncEngineCount
      {604, 588, 4, 1},                                  // unifiedAddressing
      {608, -1, 4, (size_t)c.memory_clock_khz},          // memoryClockRate
      {612, 592, 4, (size_t)c.bus_width},                // memoryBusWidth
      {616, 596, 4, (size_t)c.l2},                       // l2CacheSize
      {620, 600, 4, c.capability >= 80 ? (size_t)c.l2 / 4 * 3 : 0},  // persistingL2CacheMaxSize
      {624, 604, 4, (size_t)c.threads_per_multiprocessor},
      {628, 608, 4, 1},                                  // streamPrioritiesSupported
      {632, 612, 4, 1}, {636, 616, 4, 1},                // globalL1CacheSupported, localL1CacheSupported
      {640, 624, 8, (size_t)c.shared_per_multiprocessor},
      {648, 632, 4, 65536},                              // regsPerMultiprocessor
      {652, 636, 4, 1},                                  // managedMemory
      {680, 660, 4, 1},                                  // computePreemptionSupported
      {688, 668, 4, 1},                                  // cooperativeLaunch
      {696, 672, 8, (size_t)c.shared_per_block_optin},
      {712, 688, 4, (size_t)c.blocks_per_multiprocessor},
      {720, 696, 8, c.capability >= 80 ? (size_t)1024 : 0},  // reservedSharedMemPerBlock
      {728, 704, 4, 1},                                  // hostRegisterSupported
      {744, 720, 4, 1},                                  // memoryPoolsSupported
      {772, 748, 4, c.capability >= 90},                 // clusterLaunch
  };
  memset(out, 0, is13 ? kProperties13 : kProperties12);
  snprintf((char *)out, 256, "%s", c.name);
  for (int i = 0; i < 16; i++) out[256 + i] = (unsigned char)(i == 15 ? device + 1 : 0);  // the UUID that NVML gives too
  for (const Property &p : properties)
    if ((is13 ? p.cuda13 : p.cuda12) >= 0) memcpy(out + (is13 ? p.cuda13 : p.cuda12), &p.value, (size_t)p.bytes);
}

struct ErrorText {
  int error;
  const char *name, *text;
};
const ErrorText kErrors[] = {
    {kSuccess, "cudaSuccess", "no error"},
    {kInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {kOutOfMemory, "cudaErrorMemoryAllocation", "out of memory"},
    {kInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {kNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {kInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {kInvalidHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {kNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {kNotReady, "cudaErrorNotReady", "device not ready"},
    {kPeerAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled"},
    {kNotSupported, "cudaErrorNotSupported", "operation not supported on peakmem's virtual GPU"},
    {kCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"},
};
const ErrorText &error_text(int error) {
  static const ErrorText unknown = {kUnknown, "cudaErrorUnknown", "unknown error on peakmem's virtual GPU"};
  for (const ErrorText &e : kErrors)
    if (e.error == error) return e;
  return unknown;
}

}  // namespace

const char *peakmem::error_message(int error) { return error_text(error).text; }

API int cudaGetDeviceCount(int *n) {
  wait_for_threads_at_exit();  // PyTorch asks this while it sets CUDA up, with Python's lock held
  return *n = device_count(), *n ? (int)kSuccess : fail(kNoDevice);
}
API int cudaGetDevice(int *device) { return *device = current_device(), kSuccess; }
API int cudaSetDevice(int device) {
  if (!is_valid(device)) return fail(kInvalidDevice);
  set_current_device(device);
  return kSuccess;
}
API int cudaInitDevice(int device, unsigned, unsigned) { return is_valid(device) ? (int)kSuccess : fail(kInvalidDevice); }
API int cudaDriverGetVersion(int *v) { return *v = cuda_version(), kSuccess; }
API int cudaRuntimeGetVersion(int *v) { return *v = cuda_version(), kSuccess; }
API int cudaGetLastError() { return take_last_error(); }
API int cudaPeekAtLastError() { return last_error(); }
API const char *cudaGetErrorName(int error) { return error_text(error).name; }
API const char *cudaGetErrorString(int error) { return error_text(error).text; }
API int cudaDeviceGetAttribute(int *value, int which, int device) {
  if (!is_valid(device)) return fail(kInvalidDevice);
  *value = which == kAttrPciBusId ? 1 + device : attribute(which);
  return kSuccess;
}
API int cudaGetDeviceProperties(unsigned char *out, int device) {
  if (!is_valid(device)) return fail(kInvalidDevice);
  write_properties(out, device, cuda_version() >= 13000);
  return kSuccess;
}
API int cudaGetDeviceProperties_v2(unsigned char *out, int device) {  // CUDA 12
  if (!is_valid(device)) return fail(kInvalidDevice);
  write_properties(out, device, false);
  return kSuccess;
}
API int cudaDeviceGetPCIBusId(char *out, int n, int device) { return snprintf(out, (size_t)n, "0000:%02X:00.0", 1 + device), kSuccess; }
API int cudaDeviceGetByPCIBusId(int *device, const char *id) {
  unsigned domain = 0, bus = 0;
  if (sscanf(id, "%x:%x", &domain, &bus) != 2 || !is_valid((int)bus - 1)) return fail(kInvalidValue);
  return *device = (int)bus - 1, kSuccess;
}
API int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return kSuccess;
}
API int cudaDeviceReset() { return kSuccess; }
API int cudaDeviceCanAccessPeer(int *can, int a, int b) { return *can = a != b, kSuccess; }
API int cudaDeviceEnablePeerAccess(int, unsigned) { return kSuccess; }
API int cudaDeviceDisablePeerAccess(int) { return kSuccess; }
API int cudaDeviceGetP2PAttribute(int *value, int, int, int) { return *value = 0, kSuccess; }
API int cudaDeviceGetLimit(size_t *value, int) { return *value = 0, kSuccess; }
API int cudaDeviceSetLimit(int, size_t) { return kSuccess; }
API int cudaDeviceGetCacheConfig(int *value) { return *value = 0, kSuccess; }
API int cudaDeviceSetCacheConfig(int) { return kSuccess; }
API int cudaGetDeviceFlags(unsigned *flags) { return *flags = 8, kSuccess; }  // cudaDeviceMapHost
API int cudaSetDeviceFlags(unsigned) { return kSuccess; }
API int cudaProfilerStart() { return kSuccess; }
API int cudaProfilerStop() { return kSuccess; }

// c10 and ATen ask for driver functions by name.
API int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long, int *status) {
  *function = driver_symbol(name);
  if (!*function) *function = driver_missing(name);
  if (status) *status = 0;
  return kSuccess;
}
API int cudaGetDriverEntryPoint(const char *name, void **function, unsigned long long flags, int *status) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}

extern "C" void vgpu_info(int *cc, int *sms, size_t *mem, const char **name, int *count) {
  const Config &c = config();
  if (cc) *cc = c.capability;
  if (sms) *sms = c.multiprocessors;
  if (mem) *mem = c.total;
  if (name) *name = c.name;
  if (count) *count = device_count();
}
extern "C" int vgpu_attr(int which) { return attribute(which); }
extern "C" int vgpu_cuda_version(void) { return cuda_version(); }
extern "C" void *vgpu_driver_symbol(const char *name) { return driver_symbol(name); }
