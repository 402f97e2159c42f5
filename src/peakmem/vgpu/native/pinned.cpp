#include "pinned.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "control.h"
#include "cuda_declarations.h"
#include "device.h"
#include "notes.h"

namespace peakmem {
namespace {

const size_t kHostPage = 4096;

struct Pinned {
  int file = -1;    // every block is a piece of this file in memory
  pid_t owner = 0;  // a forked process shares the file, and must not take pages out of it
  size_t end = 0;   // pieces are not used again
  struct Block {
    size_t size, offset;
  };
  std::unordered_map<void *, Block> blocks;
  struct Registered {
    size_t size, absent;  // absent: bytes of pages that were not resident when it was registered
  };
  std::unordered_map<void *, Registered> registered;
  std::map<size_t, size_t> sizes, sizes_at_peak;  // how many blocks of each size
  unsigned long long allocations = 0;
  size_t unread = 0;  // bytes of pages that a copy to a device would have made resident
  peakmem_pinned state = {};
  peakmem_pinned *published = nullptr;
  pid_t publisher = 0;  // a forked process has the page too, which tells of its parent

  void show() {
    state.pinned_peak = std::max(state.pinned_peak, state.pinned);
    state.registered_peak = std::max(state.registered_peak, state.registered);
    state.file = file;
    if (published && publisher == getpid()) *published = state;
  }
};
// Never destroyed: threads may outlive the end of main.
Pinned &pinned() {
  static Pinned *p = new Pinned;
  return *p;
}

size_t whole_pages(size_t size) { return (std::max<size_t>(size, 1) + kHostPage - 1) / kHostPage * kHostPage; }

void *map_piece(Pinned &p, size_t size) {
  if (p.file < 0 || p.owner != getpid()) {
    p.file = memfd_create("peakmem-pinned", MFD_CLOEXEC);
    p.owner = getpid();
    p.end = 0;
  }
  void *block = MAP_FAILED;
  if (p.file >= 0 && ftruncate(p.file, (off_t)(p.end + size)) == 0)
    block = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, p.file, (off_t)p.end);
  return block;
}

size_t absent_bytes(void *address, size_t size) {
  uintptr_t first = (uintptr_t)address / kHostPage * kHostPage;
  size_t pages = ((uintptr_t)address + size - first + kHostPage - 1) / kHostPage;
  std::vector<unsigned char> in(pages);
  if (mincore((void *)first, pages * kHostPage, in.data())) return 0;
  return (size_t)std::count_if(in.begin(), in.end(), [](unsigned char one) { return !(one & 1); }) * kHostPage;
}

const size_t kLargeCopy = 1 << 20;  // smaller ones are not looked at

// Bytes of pages that this process does not have resident: its page table, 8 bytes a page, bit 63 "present", 62 "swapped".
size_t not_resident(const void *address, size_t size) {
  int table = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (table < 0) return 0;
  const size_t kAtOnce = 4096;
  uint64_t entries[kAtOnce];
  size_t first = (uintptr_t)address / kHostPage, end = ((uintptr_t)address + size + kHostPage - 1) / kHostPage, absent = 0;
  while (first < end) {
    size_t pages = std::min(end - first, kAtOnce);
    ssize_t got = pread(table, entries, pages * 8, (off_t)(first * 8));
    if (got < 8) break;
    for (size_t i = 0; i < (size_t)got / 8; i++) absent += !(entries[i] >> 62);
    first += (size_t)got / 8;
  }
  close(table);
  return absent * kHostPage;
}

}  // namespace

void host_read(const void *address, size_t size) {
  if (size < kLargeCopy) return;
  size_t absent = not_resident(address, size);
  Memory &m = memory();
  Lock lock(m.mutex);
  pinned().unread += absent;
}

int host_allocate(void **out, size_t n) {
  *out = nullptr;
  size_t size = whole_pages(n);
  Memory &m = memory();
  Lock lock(m.mutex);
  Pinned &p = pinned();
  void *block = map_piece(p, size);
  if (block == MAP_FAILED) return fail(kOutOfMemory);
  p.blocks[block] = {size, p.end};
  p.end += size;
  m.host[(uintptr_t)block] = size;
  p.allocations++;
  p.sizes[size]++;
  p.state.pinned += size;
  if (p.state.pinned > p.state.pinned_peak) p.sizes_at_peak = p.sizes;
  p.show();
  *out = block;
  return kSuccess;
}

int host_free(void *address) {
  if (!address) return kSuccess;
  Memory &m = memory();
  Lock lock(m.mutex);
  Pinned &p = pinned();
  auto found = p.blocks.find(address);
  if (found == p.blocks.end()) return fail(kInvalidValue);
  size_t size = found->second.size;
  munmap(address, size);
  if (p.owner == getpid()) fallocate(p.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)found->second.offset, (off_t)size);
  p.blocks.erase(found);
  m.host.erase((uintptr_t)address);
  if (!--p.sizes[size]) p.sizes.erase(size);
  p.state.pinned -= size;
  p.show();
  return kSuccess;
}

int host_register(void *address, size_t size) {
  Memory &m = memory();
  Lock lock(m.mutex);
  Pinned &p = pinned();
  m.host[(uintptr_t)address] = size;
  size_t absent = absent_bytes(address, size);
  auto inserted = p.registered.emplace(address, Pinned::Registered{size, absent});
  if (inserted.second) {
    p.state.registered += size;
    p.state.registered_absent += absent;
  }
  p.show();
  return kSuccess;
}

int host_unregister(void *address) {
  Memory &m = memory();
  Lock lock(m.mutex);
  Pinned &p = pinned();
  auto found = p.registered.find(address);
  if (found == p.registered.end()) return fail(kInvalidValue);
  p.state.registered -= found->second.size;
  p.state.registered_absent -= found->second.absent;
  p.registered.erase(found);
  m.host.erase((uintptr_t)address);
  p.show();
  return kSuccess;
}

std::string pinned_json() {
  Memory &m = memory();
  Lock lock(m.mutex);
  Pinned &p = pinned();
  std::string sizes;
  for (const auto &entry : p.sizes_at_peak)
    sizes += (sizes.empty() ? "[" : ", [") + std::to_string(entry.first) + ", " + std::to_string(entry.second) + "]";
  return "\"pinned\": {\"now\": " + std::to_string(p.state.pinned) + ", \"peak\": " + std::to_string(p.state.pinned_peak) +
         ", \"registered\": " + std::to_string(p.state.registered) + ", \"registered_peak\": " + std::to_string(p.state.registered_peak) +
         ", \"unread\": " + std::to_string(p.unread) + ", \"allocations\": " + std::to_string(p.allocations) + ", \"blocks_at_peak\": [" + sizes + "]}";
}

}  // namespace peakmem

API uint64_t peakmem_pinned_now() {
  peakmem::Memory &m = peakmem::memory();
  peakmem::Lock lock(m.mutex);
  return peakmem::pinned().state.pinned;
}

API void peakmem_tell_own(uint64_t bytes) {
  peakmem::Memory &m = peakmem::memory();
  peakmem::Lock lock(m.mutex);
  peakmem::pinned().state.own = bytes;
  peakmem::pinned().show();
}

API int peakmem_publish_pinned(const char *path) {
  using namespace peakmem;
  Memory &m = memory();
  Lock lock(m.mutex);
  Pinned &p = pinned();
  p.published = nullptr;
  int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return 0;
  void *page = MAP_FAILED;
  if (ftruncate(file, sizeof(peakmem_pinned)) == 0) page = mmap(nullptr, sizeof(peakmem_pinned), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (page == MAP_FAILED) return 0;
  p.published = (peakmem_pinned *)page;
  p.publisher = getpid();
  p.show();
  return 1;
}
