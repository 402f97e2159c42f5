// NVML (libnvidia-ml.so.1, which is this library by another name): what torch.cuda, pynvml and monitoring code ask.
// Figures that have no meaning here are those of an idle device.
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "config.h"
#include "cuda_declarations.h"
#include "device.h"
#include "shims.h"

using namespace peakmem;

namespace {

enum { kNvmlSuccess = 0, kNvmlInvalidArgument = 2, kNvmlNotSupported = 3, kNvmlNotFound = 6, kNvmlInsufficientSize = 7 };
typedef void *Handle;  // index + 1

int index_of(Handle h) { return (int)(intptr_t)h - 1; }
int handle(Handle *h, long index) {
  if (index < 0 || index >= machine_device_count()) return kNvmlInvalidArgument;
  return *h = (Handle)(index + 1), kNvmlSuccess;
}
int text(char *out, unsigned n, const char *value) {
  if (strlen(value) >= n) return kNvmlInsufficientSize;
  return snprintf(out, n, "%s", value), kNvmlSuccess;
}
// The UUID of the device as cudaDeviceProp has it.
int uuid(int index, char *out, unsigned n) {
  char value[64];
  snprintf(value, sizeof value, "GPU-00000000-0000-0000-0000-%012x", index + 1);
  return text(out, n, value);
}
struct MemoryFigures {
  unsigned long long total, free, used;
};
// What the driver keeps back: NVML's total counts it, CUDA's does not.
unsigned long long kept_back() {
  const Config &c = config();
  return c.smi_total > c.total ? c.smi_total - c.total : 0;
}
// The same figures as cudaMemGetInfo.
MemoryFigures figures(Handle h) {
  const Config &c = config();
  unsigned long long used = vgpu_used(visible_index(index_of(h))), capacity = memory().capacity, limit = capacity < c.total ? capacity : c.total;
  unsigned long long left = limit > used ? limit - used : 0;
  return {c.total, left, c.total - left};
}
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
int processes(Handle h, unsigned *n, void *out, bool with_instances) {
  unsigned room = *n;
  *n = 1;
  if (!out || room < 1) return kNvmlInsufficientSize;
  Process p = {(unsigned)getpid(), vgpu_used(visible_index(index_of(h))), 0xffffffffu, 0xffffffffu};
  memcpy(out, &p, with_instances ? sizeof p : 16);
  return kNvmlSuccess;
}

}  // namespace


API int nvmlInit_v2() { return kNvmlSuccess; }
API int nvmlInit() { return kNvmlSuccess; }
API int nvmlInitWithFlags(unsigned) { return kNvmlSuccess; }
API int nvmlShutdown() { return kNvmlSuccess; }
API const char *nvmlErrorString(int error) {
  switch (error) {
    case kNvmlSuccess: return "Success";
    case kNvmlInvalidArgument: return "Invalid Argument";
    case kNvmlNotFound: return "Not Found";
    case kNvmlInsufficientSize: return "Insufficient Size";
    default: return "Not Supported";
  }
}
API int nvmlSystemGetCudaDriverVersion_v2(int *v) { return *v = cuda_version(), kNvmlSuccess; }
API int nvmlSystemGetCudaDriverVersion(int *v) { return *v = cuda_version(), kNvmlSuccess; }
// Lowest driver branches that serve the major version (NVIDIA's CUDA compatibility table).
API int nvmlSystemGetDriverVersion(char *out, unsigned n) { return text(out, n, cuda_version() >= 13000 ? "580.65.06" : "525.60.13"); }
API int nvmlSystemGetNVMLVersion(char *out, unsigned n) { return text(out, n, cuda_version() >= 13000 ? "13.580.65.06" : "12.525.60.13"); }
API int nvmlDeviceGetCount_v2(unsigned *n) { return *n = (unsigned)machine_device_count(), kNvmlSuccess; }
API int nvmlDeviceGetCount(unsigned *n) { return nvmlDeviceGetCount_v2(n); }
API int nvmlDeviceGetHandleByIndex_v2(unsigned i, Handle *h) { return handle(h, (long)i); }
API int nvmlDeviceGetHandleByIndex(unsigned i, Handle *h) { return handle(h, (long)i); }
API int nvmlDeviceGetHandleByPciBusId_v2(const char *id, Handle *h) {
  unsigned domain = 0, bus = 0;
  if (sscanf(id, "%x:%x", &domain, &bus) != 2) return kNvmlInvalidArgument;
  return handle(h, (long)bus - 1);
}
API int nvmlDeviceGetHandleByUUID(const char *id, Handle *h) {
  for (int i = 0; i < machine_device_count(); i++) {
    char own[64];
    if (!uuid(i, own, sizeof own) && !strcasecmp(own, id)) return handle(h, i);
  }
  return kNvmlNotFound;
}
API int nvmlDeviceGetIndex(Handle h, unsigned *i) { return *i = (unsigned)index_of(h), kNvmlSuccess; }
API int nvmlDeviceGetMinorNumber(Handle h, unsigned *i) { return *i = (unsigned)index_of(h), kNvmlSuccess; }
API int nvmlDeviceGetUUID(Handle h, char *out, unsigned n) { return uuid(index_of(h), out, n); }
API int nvmlDeviceGetName(Handle, char *out, unsigned n) { return text(out, n, config().name); }
API int nvmlDeviceGetCudaComputeCapability(Handle, int *major, int *minor) {
  *major = config().capability / 10;
  *minor = config().capability % 10;
  return kNvmlSuccess;
}
// What is kept back counts as used here; the second version of the call gives it apart.
API int nvmlDeviceGetMemoryInfo(Handle h, MemoryFigures *out) {
  MemoryFigures m = figures(h);
  *out = {m.total + kept_back(), m.free, m.used + kept_back()};
  return kNvmlSuccess;
}
struct MemoryInfo2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
API int nvmlDeviceGetMemoryInfo_v2(Handle h, MemoryInfo2 *out) {
  MemoryFigures m = figures(h);
  out->total = m.total + kept_back();
  out->reserved = kept_back();
  out->free = m.free;
  out->used = m.used;
  return kNvmlSuccess;
}
API int nvmlDeviceGetBAR1MemoryInfo(Handle h, MemoryFigures *out) { return *out = {figures(h).total, figures(h).total, 0}, kNvmlSuccess; }
struct PciInfo {  // nvmlPciInfo_t
  char legacy_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char id[32];
};
API int nvmlDeviceGetPciInfo_v3(Handle h, PciInfo *p) {
  memset(p, 0, sizeof *p);
  p->bus = (unsigned)index_of(h) + 1;
  snprintf(p->legacy_id, sizeof p->legacy_id, "0000:%02X:00.0", p->bus);
  snprintf(p->id, sizeof p->id, "00000000:%02X:00.0", p->bus);
  return kNvmlSuccess;
}
API int nvmlDeviceGetPciInfo_v2(Handle h, PciInfo *p) { return nvmlDeviceGetPciInfo_v3(h, p); }
API int nvmlDeviceGetUtilizationRates(Handle, unsigned *rates) { return rates[0] = rates[1] = 0, kNvmlSuccess; }
API int nvmlDeviceGetTemperature(Handle, int, unsigned *degrees) { return *degrees = 30, kNvmlSuccess; }
struct Temperature {
  unsigned version;
  int sensor, degrees;
};
API int nvmlDeviceGetTemperatureV(Handle, Temperature *t) { return t->degrees = 30, kNvmlSuccess; }
API int nvmlDeviceGetFanSpeed(Handle, unsigned *percent) { return *percent = 0, kNvmlSuccess; }
API int nvmlDeviceGetPowerUsage(Handle, unsigned *milliwatts) { return *milliwatts = 50000, kNvmlSuccess; }
API int nvmlDeviceGetPowerManagementLimit(Handle, unsigned *milliwatts) { return *milliwatts = 300000, kNvmlSuccess; }
API int nvmlDeviceGetEnforcedPowerLimit(Handle, unsigned *milliwatts) { return *milliwatts = 300000, kNvmlSuccess; }
API int nvmlDeviceGetTotalEnergyConsumption(Handle, unsigned long long *millijoules) { return *millijoules = 0, kNvmlSuccess; }
API int nvmlDeviceGetPerformanceState(Handle, int *state) { return *state = 0, kNvmlSuccess; }
API int nvmlDeviceGetPersistenceMode(Handle, int *mode) { return *mode = 1, kNvmlSuccess; }
API int nvmlDeviceGetComputeMode(Handle, int *mode) { return *mode = 0, kNvmlSuccess; }
API int nvmlDeviceGetClockInfo(Handle, int type, unsigned *mhz) {
  return *mhz = (unsigned)(type == 2 ? config().memory_clock_khz : config().clock_khz) / 1000, kNvmlSuccess;
}
API int nvmlDeviceGetMaxClockInfo(Handle h, int type, unsigned *mhz) { return nvmlDeviceGetClockInfo(h, type, mhz); }
API int nvmlDeviceGetNumGpuCores(Handle, unsigned *) { return kNvmlNotSupported; }
API int nvmlDeviceGetMemoryBusWidth(Handle, unsigned *bits) { return *bits = (unsigned)config().bus_width, kNvmlSuccess; }
API int nvmlDeviceGetSerial(Handle, char *, unsigned) { return kNvmlNotSupported; }
API int nvmlDeviceGetBrand(Handle, int *brand) { return *brand = 0, kNvmlSuccess; }  // unknown
API int nvmlDeviceGetArchitecture(Handle, unsigned *architecture) {
  int cc = config().capability;  // Pascal 4, Volta 5, Turing 6, Ampere 7, Ada 8, Hopper 9, Blackwell 10
  *architecture = cc < 70 ? 4 : cc < 75 ? 5 : cc < 80 ? 6 : cc < 89 ? 7 : cc < 90 ? 8 : cc < 100 ? 9 : 10;
  return kNvmlSuccess;
}
API int nvmlDeviceGetMigMode(Handle, unsigned *, unsigned *) { return kNvmlNotSupported; }
API int nvmlDeviceGetEccMode(Handle, int *, int *) { return kNvmlNotSupported; }
API int nvmlDeviceIsMigDeviceHandle(Handle, unsigned *yes) { return *yes = 0, kNvmlSuccess; }
API int nvmlDeviceGetComputeRunningProcesses(Handle h, unsigned *n, void *out) { return processes(h, n, out, false); }
API int nvmlDeviceGetComputeRunningProcesses_v2(Handle h, unsigned *n, void *out) { return processes(h, n, out, true); }
API int nvmlDeviceGetComputeRunningProcesses_v3(Handle h, unsigned *n, void *out) { return processes(h, n, out, true); }
API int nvmlDeviceGetGraphicsRunningProcesses(Handle, unsigned *n, void *) { return *n = 0, kNvmlSuccess; }
API int nvmlDeviceGetGraphicsRunningProcesses_v3(Handle, unsigned *n, void *) { return *n = 0, kNvmlSuccess; }
API int nvmlDeviceGetCpuAffinity(Handle, unsigned n, unsigned long *mask) {
  for (unsigned i = 0; i < n; i++) mask[i] = ~0ul;
  return kNvmlSuccess;
}
// nvmlGpuFabricInfoV_t: a version, then 25 bytes up to the state, where 0 says that the device is in no fabric.
API int nvmlDeviceGetGpuFabricInfoV(Handle, unsigned char *out) {
  if (config().capability < 90) return kNvmlNotSupported;
  return memset(out + 4, 0, 25), kNvmlSuccess;
}
API int nvmlDeviceGetNvLinkState(Handle, unsigned, int *) { return kNvmlNotSupported; }
API int nvmlDeviceGetNvLinkCapability(Handle, unsigned, int, unsigned *) { return kNvmlNotSupported; }
API int nvmlDeviceGetNvLinkRemoteDeviceType(Handle, unsigned, int *) { return kNvmlNotSupported; }
API int nvmlDeviceGetNvLinkRemotePciInfo_v2(Handle, unsigned, void *) { return kNvmlNotSupported; }
API int nvmlDeviceGetP2PStatus(Handle, Handle, int, int *status) { return *status = 0, kNvmlSuccess; }
