// The devices' memory: what is handed out, where, and how much of the capacity is left.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "addresses.h"
#include "config.h"

namespace peakmem {

const size_t kPageSize = 2 << 20;  // the granularity of the driver's allocations

struct DeviceMemory {
  size_t used = 0, peak = 0;  // bytes, context included
  unsigned long long allocations = 0, frees = 0, failures = 0;
};

// The driver's pool behind cudaMallocAsync (pools.cpp), bytes.
struct Pool {
  size_t used = 0, used_peak = 0, reserved = 0, reserved_peak = 0;
};

struct Memory {
  struct Block {
    size_t size;  // bytes of addresses; of memory too, if not pooled
    int device;
    size_t pooled = 0;  // bytes of the device's pool
  };
  struct Physical {
    size_t size;
    int device, references;
  };
  struct Mapping {
    size_t size;
    unsigned long long handle;
  };

  std::recursive_mutex mutex;
  std::vector<DeviceMemory> devices;
  std::vector<Pool> pools;  // one for each device
  std::atomic<size_t> capacity;  // bytes that each device can hand out, the context's included
  Addresses addresses;
  uintptr_t begin = 0, end = 0;                                // every device address lies here
  std::map<uintptr_t, Block> blocks;                           // cudaMalloc
  std::map<uintptr_t, size_t> reservations;                    // cuMemAddressReserve
  std::unordered_map<unsigned long long, Physical> physical;   // cuMemCreate
  std::map<uintptr_t, Mapping> mappings;                       // cuMemMap
  std::map<uintptr_t, size_t> host;                            // pinned and registered host memory
  unsigned long long next_handle = 1;

  Memory();
  bool charge(int device, size_t bytes);
  void uncharge(int device, size_t bytes);
  bool is_device(const void *address) const { return (uintptr_t)address >= begin && (uintptr_t)address < end; }
  // The device of an address, -1 if none.
  int owner(const void *address) const;
};

Memory &memory();
typedef std::lock_guard<std::recursive_mutex> Lock;

int current_device();
void set_current_device(int device);

// cudaMalloc and cudaFree on the current device; an Error.
int allocate(void **out, size_t size);
int release(void *address);

}  // namespace peakmem
