// Environment variables: see vgpu/launch.py, which sets them.
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "cuda_declarations.h"

namespace peakmem {
namespace {

const int kMostDevices = 64;

const char *get(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : nullptr;
}
void read(const char *name, int *out) {
  if (const char *value = get(name)) *out = (int)strtol(value, nullptr, 10);
}
void read(const char *name, size_t *out) {
  if (const char *value = get(name)) *out = (size_t)strtoull(value, nullptr, 10);
}

Config load() {
  Config c;
  const char *value = get("PEAKMEM_VGPU_NAME");
  snprintf(c.name, sizeof c.name, "%s", value ? value : "Virtual GPU");
  if ((value = get("PEAKMEM_VGPU_COMPUTE_CAPABILITY"))) {
    int major = 0, minor = 0;
    if (sscanf(value, "%d.%d", &major, &minor) >= 1) c.capability = 10 * major + minor;
  }
  read("PEAKMEM_VGPU_MULTIPROCESSORS", &c.multiprocessors);
  read("PEAKMEM_VGPU_COUNT", &c.count);
  if (c.count < 0) c.count = 0;
  read("PEAKMEM_VGPU_TOTAL_MEMORY", &c.total);
  read("PEAKMEM_VGPU_SMI_MEMORY", &c.smi_total);
  c.capacity = c.total;
  read("PEAKMEM_VGPU_CAPACITY", &c.capacity);
  read("PEAKMEM_VGPU_CONTEXT", &c.context);
  read("PEAKMEM_VGPU_L2_CACHE", &c.l2);
  read("PEAKMEM_VGPU_SHARED_MEMORY_PER_MULTIPROCESSOR", &c.shared_per_multiprocessor);
  read("PEAKMEM_VGPU_SHARED_MEMORY_PER_BLOCK_OPTIN", &c.shared_per_block_optin);
  read("PEAKMEM_VGPU_THREADS_PER_MULTIPROCESSOR", &c.threads_per_multiprocessor);
  read("PEAKMEM_VGPU_BLOCKS_PER_MULTIPROCESSOR", &c.blocks_per_multiprocessor);
  read("PEAKMEM_VGPU_CLOCK_KHZ", &c.clock_khz);
  read("PEAKMEM_VGPU_MEMORY_CLOCK_KHZ", &c.memory_clock_khz);
  read("PEAKMEM_VGPU_MEMORY_BUS_WIDTH", &c.bus_width);
  read("PEAKMEM_VGPU_CUDA", &c.cuda_version);
  read("PEAKMEM_VGPU_STORE", &c.store);
  read("PEAKMEM_VGPU_BOOL", &c.boolean);
  read("PEAKMEM_VGPU_DRIVER", &c.driver);
  read("PEAKMEM_VGPU_DEBUG", &c.debug);
  if ((value = get("PEAKMEM_VGPU_EVENTS"))) c.events_sync = !strcmp(value, "sync");
  if ((value = get("PEAKMEM_VGPU_ADDRESSES"))) {
    if (!strcmp(value, "up")) c.order = Order::kUp;
    if (!strcmp(value, "down")) c.order = Order::kDown;
    if (!strncmp(value, "random", 6)) {
      c.order = Order::kRandom;
      if (value[6] == ':') c.seed = (unsigned)strtoul(value + 7, nullptr, 10);
    }
  }
  return c;
}

}  // namespace

const Config &config() {
  static const Config c = load();
  return c;
}

namespace {

// The numbers in CUDA_VISIBLE_DEVICES up to the first that names no device (-1 by custom). False: it is not set.
bool visible(std::vector<int> *numbers) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  if (!list) return false;
  for (const char *p = list; p && *p && numbers->size() < kMostDevices; p = strchr(p, ',')) {
    if (*p == ',') p++;
    while (*p == ' ') p++;
    if (*p == '-' || !*p) break;
    char *end;
    long number = strtol(p, &end, 10);
    numbers->push_back(end == p || number >= kMostDevices ? (int)numbers->size() : (int)number);  // a UUID counts as the next
  }
  return true;
}

}  // namespace

int device_count() {
  static const int count = [] {
    std::vector<int> numbers;
    return visible(&numbers) ? (int)numbers.size() : config().count;
  }();
  return count;
}

int machine_device_count() {
  std::vector<int> numbers;
  visible(&numbers);
  int count = config().count;
  for (int number : numbers) count = std::max(count, number + 1);
  return count;
}

int visible_index(int machine_index) {
  std::vector<int> numbers;
  if (!visible(&numbers)) return machine_index;
  auto found = std::find(numbers.begin(), numbers.end(), machine_index);
  return found == numbers.end() ? -1 : (int)(found - numbers.begin());
}

int attribute(int which) {
  const Config &c = config();
  switch (which) {
    case kAttrMaxThreadsPerBlock: case kAttrMaxBlockDimX: case kAttrMaxBlockDimY: return 1024;
    case kAttrMaxBlockDimZ: return 64;
    case kAttrMaxGridDimX: case kAttrMaxPitch: return 2147483647;
    case kAttrMaxGridDimY: case kAttrMaxGridDimZ: return 65535;
    case kAttrMaxSharedMemoryPerBlock: return 49152;
    case kAttrTotalConstantMemory: case kAttrMaxRegistersPerBlock: case kAttrMaxRegistersPerMultiprocessor: return 65536;
    case kAttrWarpSize: return 32;
    case kAttrClockRate: return c.clock_khz;
    case kAttrTextureAlignment: return 512;
    case kAttrMultiprocessorCount: return c.multiprocessors;
    case kAttrPciBusId: return 1;
    case kAttrMemoryClockRate: return c.memory_clock_khz;
    case kAttrMemoryBusWidth: return c.bus_width;
    case kAttrL2CacheSize: return c.l2;
    case kAttrMaxThreadsPerMultiprocessor: return c.threads_per_multiprocessor;
    case kAttrAsyncEngineCount: return 2;
    case kAttrComputeCapabilityMajor: return c.capability / 10;
    case kAttrComputeCapabilityMinor: return c.capability % 10;
    case kAttrMaxSharedMemoryPerMultiprocessor: return c.shared_per_multiprocessor;
    case kAttrMaxSharedMemoryPerBlockOptin: return c.shared_per_block_optin;
    case kAttrMaxBlocksPerMultiprocessor: return c.blocks_per_multiprocessor;
    case kAttrReservedSharedMemoryPerBlock: return c.capability >= 80 ? 1024 : 0;
    case kAttrClusterLaunch: return c.capability >= 90;
    case kAttrConcurrentKernels: case kAttrUnifiedAddressing: case kAttrStreamPrioritiesSupported: case kAttrCanMapHostMemory:
    case kAttrGlobalL1CacheSupported: case kAttrLocalL1CacheSupported: case kAttrManagedMemory: case kAttrConcurrentManagedAccess:
    case kAttrComputePreemptionSupported: case kAttrCanUseHostPointerForRegisteredMemory: case kAttrCooperativeLaunch:
    case kAttrHostRegisterSupported: case kAttrMemoryPoolsSupported: case kAttrVirtualMemoryManagementSupported:
    case kAttrPosixHandleSupported: return 1;
  }
  return 0;
}

}  // namespace peakmem
