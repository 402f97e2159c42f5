#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "control.h"
#include "cuda_declarations.h"
#include "notes.h"
#include "streams.h"

namespace peakmem {
namespace {

const size_t kRegion = (size_t)32 << 40;  // bytes of addresses, shared by all devices; nothing is ever stored in them
thread_local int t_device = 0;

}  // namespace

Memory::Memory() {
  const Config &c = config();
  devices.resize((size_t)device_count());
  pools.resize(devices.size());
  capacity = c.capacity;
  for (DeviceMemory &d : devices) d.used = d.peak = c.context;
  size_t size = kRegion;
  void *p = MAP_FAILED;
  // A limit on address space (ulimit -v) may allow less.
  for (; p == MAP_FAILED && size >= ((size_t)64 << 30); size /= 2)
    p = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "[peakmem] the virtual GPU needs 64 GiB of address space (not memory): lift the limit with `ulimit -v unlimited`\n");
    _exit(2);
  }
  size *= 2;
  const size_t alignment = (size_t)1 << 30;
  begin = ((uintptr_t)p + alignment - 1) & ~(uintptr_t)(alignment - 1);
  end = ((uintptr_t)p + size) & ~(uintptr_t)(alignment - 1);
  addresses.start(begin, end, c.order, c.seed);
}

bool Memory::charge(int device, size_t bytes) {
  DeviceMemory &d = devices[(size_t)device];
  const size_t limit = capacity;
  if (bytes > limit || d.used > limit - bytes) {
    d.failures++;
    return false;
  }
  d.used += bytes;
  if (d.used > d.peak) d.peak = d.used;
  d.allocations++;
  return true;
}

void Memory::uncharge(int device, size_t bytes) {
  devices[(size_t)device].used -= bytes;
  devices[(size_t)device].frees++;
}

int Memory::owner(const void *address) const {
  if (!is_device(address)) return -1;
  auto block = blocks.upper_bound((uintptr_t)address);
  if (block != blocks.begin()) {
    --block;
    if ((uintptr_t)address < block->first + block->second.size) return block->second.device;
  }
  auto mapping = mappings.upper_bound((uintptr_t)address);
  if (mapping != mappings.begin()) {
    --mapping;
    if ((uintptr_t)address < mapping->first + mapping->second.size) {
      auto p = physical.find(mapping->second.handle);
      if (p != physical.end()) return p->second.device;
    }
  }
  return current_device();
}

Memory &memory() {
  static Memory *m = new Memory;  // never destroyed: threads may outlive the end of main
  return *m;
}

int current_device() { return t_device; }
void set_current_device(int device) { t_device = device; }

namespace {

// What was taken from the driver and given back, for programs with an allocator of their own; under the memory's mutex.
std::vector<peakmem_region> &regions() {
  static auto *rows = new std::vector<peakmem_region>;  // never destroyed: threads may outlive the end of main
  return *rows;
}
void log_region(uintptr_t address, int64_t size, int device) {
  regions().push_back({peakmem_event_count(), (uint64_t)address, size, (uint32_t)device, 0});
}

}  // namespace

int allocate(void **out, size_t size) {
  *out = nullptr;
  if (!size) return kSuccess;
  Memory &m = memory();
  Lock lock(m.mutex);
  if (m.devices.empty()) return fail(kNoDevice);
  if (size > kRegion) return fail(kOutOfMemory);
  size_t rounded = (size + kPageSize - 1) / kPageSize * kPageSize;
  uintptr_t address = 0;
  if (m.charge(t_device, rounded)) {
    address = m.addresses.take_block(rounded);
    if (!address) m.uncharge(t_device, rounded);
  }
  if (config().debug > 1) fprintf(stderr, "[peakmem] cudaMalloc(%zu) = %p\n", size, (void *)address);
  if (!address) return fail(kOutOfMemory);
  if (config().store) mprotect((void *)address, rounded, PROT_READ | PROT_WRITE);
  m.blocks[address] = {rounded, t_device};
  if (config().driver) log_region(address, (int64_t)rounded, t_device);
  *out = (void *)address;
  return kSuccess;
}

int release(void *address) {
  if (!address) return kSuccess;
  Memory &m = memory();
  Lock lock(m.mutex);
  auto block = m.blocks.find((uintptr_t)address);
  if (block == m.blocks.end()) return fail(kInvalidValue);
  if (config().debug > 1) fprintf(stderr, "[peakmem] cudaFree(%p) %zu\n", address, block->second.size);
  if (block->second.pooled) m.pools[(size_t)block->second.device].used -= block->second.pooled;
  else m.uncharge(block->second.device, block->second.size);
  if (config().driver) log_region((uintptr_t)address, -(int64_t)block->second.size, block->second.device);
  if (config().store) {
    madvise((void *)block->first, block->second.size, MADV_DONTNEED);
    mprotect((void *)block->first, block->second.size, PROT_NONE);
  }
  m.addresses.give_back_block(block->first, block->second.size);
  m.blocks.erase(block);
  synchronize_device();  // cudaFree waits for the device
  return kSuccess;
}

}  // namespace peakmem

extern "C" size_t vgpu_used(int device) {
  peakmem::Memory &m = peakmem::memory();
  peakmem::Lock lock(m.mutex);
  return device >= 0 && (size_t)device < m.devices.size() ? m.devices[(size_t)device].used : 0;
}

API uint64_t peakmem_region_count(void) {
  peakmem::Lock lock(peakmem::memory().mutex);
  return peakmem::regions().size();
}
API const struct peakmem_region *peakmem_regions(void) { return peakmem::regions().data(); }
