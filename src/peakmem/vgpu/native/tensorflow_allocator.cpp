// The log of chunks that TensorFlow's allocator hands out and takes back.
//
// tsl::BFCAllocator is exported by libtensorflow_framework.so.2, and its virtual tables name AllocateRaw and DeallocateRaw by
// symbol (TensorFlow 2.21, xla/tsl/framework/bfc_allocator.h). This library is loaded in front, so the calls come here; they go
// on to the real functions. Requests to the allocators of host memory pass through unlogged.
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "control.h"
#include "cuda_declarations.h"
#include "device.h"
#include "events.h"
#include "kept.h"
#include "tensorflow_operators.h"

namespace {

template <class F>
F real(const char *name) {
  static void *library = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  void *found = library ? dlsym(library, name) : nullptr;
  return (F)(found ? found : dlsym(RTLD_NEXT, name));
}

typedef void *(*Allocate)(void *, size_t, size_t, const void *);
typedef void (*Deallocate)(void *, void *);
typedef size_t (*Size)(const void *, const void *);

const int kDevices = 64;
std::mutex g_mutex;
uint64_t g_allocated[kDevices], g_requested[kDevices], g_requested_peak[kDevices], g_refused = 0;

Size size_of() {
  static Size f = real<Size>("_ZNK3tsl12BFCAllocator13AllocatedSizeEPKv");
  return f;
}
Size requested_of() {
  static Size f = real<Size>("_ZNK3tsl12BFCAllocator13RequestedSizeEPKv");
  return f;
}

// What is told of each event beside the event itself, under g_mutex.
std::vector<peakmem_chunk> &chunks() {
  static auto *rows = new std::vector<peakmem_chunk>;  // never destroyed: threads may outlive the end of main
  return *rows;
}
struct Names {
  std::unordered_map<std::string, uint32_t> numbers;
  std::string text;  // each followed by a line end, in the order of their numbers
  uint32_t number(const std::string &name) {
    auto [entry, fresh] = numbers.emplace(name, (uint32_t)numbers.size());
    if (fresh) text += name + "\n";
    return entry->second;
  }
};
Names &names() {
  static auto *n = new Names;
  return *n;
}

const size_t kToldEach = 256;  // events after which the size of the logs is told

void log_chunk(void *address, int device, int64_t size, int64_t requested) {
  peakmem::Asked asked = peakmem::asked_now(size < 0);
  std::lock_guard<std::mutex> lock(g_mutex);
  g_allocated[device] += (uint64_t)size;
  g_requested[device] += (uint64_t)requested;
  if (g_requested[device] > g_requested_peak[device]) g_requested_peak[device] = g_requested[device];
  peakmem::Memory &m = peakmem::memory();
  size_t used = m.devices[(size_t)device].used, context = peakmem::config().context;
  chunks().push_back({(uint64_t)(requested < 0 ? -requested : requested), names().number(asked.op), names().number(asked.shape), asked.type,
                      (uint16_t)asked.region, asked.running});
  peakmem::log_block(address, size, g_allocated[device], used > context ? used - context : 0, device);
  if (chunks().size() % kToldEach == 1) peakmem_tell_own(peakmem_own_bytes());
}

}  // namespace

API void *_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE(void *self, size_t alignment, size_t n, const void *attributes) {
  static Allocate allocate = real<Allocate>("_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE");
  void *p = allocate ? allocate(self, alignment, n, attributes) : nullptr;
  int device = p ? peakmem::memory().owner(p) : -1;
  if (!p && n) {
    std::lock_guard<std::mutex> lock(g_mutex);
    g_refused = n;
  }
  if (device < 0 || device >= kDevices || !size_of() || !requested_of()) return p;
  size_t size = size_of()(self, p);
  peakmem::forget_kept(p, size);
  log_chunk(p, device, (int64_t)size, (int64_t)requested_of()(self, p));
  return p;
}
API void _ZN3tsl12BFCAllocator13DeallocateRawEPv(void *self, void *p) {
  static Deallocate deallocate = real<Deallocate>("_ZN3tsl12BFCAllocator13DeallocateRawEPv");
  int device = p ? peakmem::memory().owner(p) : -1;
  if (device >= 0 && device < kDevices && size_of() && requested_of())
    log_chunk(p, device, -(int64_t)size_of()(self, p), -(int64_t)requested_of()(self, p));
  if (deallocate) deallocate(self, p);
}

API uint64_t peakmem_refused(void) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_refused;
}
API uint64_t peakmem_requested_peak(int device) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return device >= 0 && device < kDevices ? g_requested_peak[device] : 0;
}
API uint64_t peakmem_chunk_count(void) {
  std::lock_guard<std::mutex> lock(g_mutex);
  return chunks().size();
}
API const struct peakmem_chunk *peakmem_chunks(void) { return chunks().data(); }
API const char *peakmem_chunk_names(void) { return names().text.c_str(); }
API uint64_t peakmem_own_bytes(void) {
  return peakmem_event_count() * sizeof(peakmem_event) + chunks().capacity() * sizeof(peakmem_chunk) + 4 * names().text.size() + peakmem::kept_bytes();
}
