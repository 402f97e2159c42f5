// TensorFlow's allocators of host memory, followed. Every request goes to the real ones.
//
// With oneDNN (the builds for x86-64) tensors of 256 KiB and more lie in regions of a BFC allocator, which grow by doubling
// and are never given back (tensorflow/core/common_runtime/mkl_cpu_allocator.h, TensorFlow 2.21); without, each tensor is a
// block of malloc's. Both come from tsl::port::AlignedMalloc. What kind of numbers a tensor will hold is told by its
// constructor; that a kernel computes them, by OpKernelContext::allocate_tensor, which tensors made of the script's own data
// do not go through. All are exported by libtensorflow_framework.so.2, and this library is loaded in front of it.
#include <dlfcn.h>
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "control.h"
#include "pages.h"

using namespace peakmem;

namespace {

constexpr uint64_t kLarge = 256 << 10;
constexpr uint64_t kShared = 1 << 20;   // smaller ones keep what is computed, which a script may look at
constexpr uint64_t kHuge = 1ull << 30;  // more than the machine has can be asked for: the kernel is not to refuse
constexpr uint64_t kMostRows = 1 << 16;
constexpr uint64_t kSmallStep = 64 << 10;

// tensorflow/core/framework/types.proto: numbers that a training computes. Integers, booleans and texts are none of them.
bool is_float(int type) {
  switch (type) {
    case 1: case 2: case 8: case 14: case 18: case 19: case 24: case 25:
      return true;
    default:
      return false;
  }
}

template <class F>
F real(const char *name) {
  static void *library = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  void *found = library ? dlsym(library, name) : nullptr;
  return (F)(found ? found : dlsym(RTLD_NEXT, name));
}

struct Books {
  std::mutex mutex;
  std::map<uintptr_t, Block> blocks;      // by where they begin
  std::map<uintptr_t, uint64_t> mapped;   // blocks that this library mapped in malloc's stead
  std::map<uintptr_t, uint64_t> tensors;  // live large ones
  uint64_t live = 0, events = 0, highest = 0, highest_live = 0;
  peakmem_tensorflow_row *rows = nullptr;
  uint64_t n_rows = 0, row_resident = 0;
};
Books &books() {
  static Books *b = new Books;  // outlives TensorFlow's own static objects
  return *b;
}

__thread int t_type __attribute__((tls_model("initial-exec")));      // of the tensor that is being made; 0: none
__thread int t_chunks __attribute__((tls_model("initial-exec")));    // within the BFC allocator: its regions are no tensors
__thread int t_aligned __attribute__((tls_model("initial-exec")));   // within an AlignedMalloc

void looked(Books &b) {
  uint64_t now = resident_of_process();
  if (now > b.highest) b.highest = now, b.highest_live = b.live;
  if (!b.rows) b.rows = (peakmem_tensorflow_row *)malloc(kMostRows * sizeof *b.rows);
  uint64_t change = now > b.row_resident ? now - b.row_resident : b.row_resident - now;
  if (!b.rows || change < kSmallStep) return;
  if (b.n_rows == kMostRows) {  // keep the higher of each two
    for (uint64_t i = 0; i < kMostRows / 2; i++)
      b.rows[i] = b.rows[2 * i].resident >= b.rows[2 * i + 1].resident ? b.rows[2 * i] : b.rows[2 * i + 1];
    b.n_rows = kMostRows / 2;
  }
  b.rows[b.n_rows++] = {b.events, b.live, now};
  b.row_resident = now;
}

__thread int t_kernels __attribute__((tls_model("initial-exec")));   // within a kernel's request for a tensor

Block *block_of(Books &b, uintptr_t p) {
  auto it = b.blocks.upper_bound(p);
  if (it == b.blocks.begin()) return nullptr;
  --it;
  return it->second.holds(p) ? &it->second : nullptr;
}

void taken(uintptr_t p, uint64_t size, int type) {
  Books &b = books();
  std::lock_guard<std::mutex> lock(b.mutex);
  Block *block = block_of(b, p);
  if (!block) return;
  b.events++;
  b.live += size;
  b.tensors[p] = size;
  looked(b);
  if (is_float(type) && t_kernels && size >= kShared) block->share(p, size);
  else block->own(p, size);
}

void given_back(uintptr_t p) {
  Books &b = books();
  std::lock_guard<std::mutex> lock(b.mutex);
  auto it = b.tensors.find(p);
  if (it == b.tensors.end()) return;
  looked(b);
  b.events++;
  b.live -= it->second;
  b.tensors.erase(it);
  looked(b);
}

// glibc's malloc tells of a block whether it was mapped for itself (malloc/malloc.c, IS_MMAPPED): then its pages go with it.
bool alone(void *p) { return ((size_t *)p)[-1] & 2; }

template <class Real, class... Alignment>
void *aligned(Real original, size_t size, Alignment... alignment) {
  if (size < kLarge || t_aligned) return original(size, alignment...);
  void *p = nullptr;
  if (size >= kHuge) {
    p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) p = nullptr;
  }
  bool ours = p != nullptr;
  if (!p) {
    t_aligned++;
    p = original(size, alignment...);
    t_aligned--;
  }
  if (!p || !(ours || t_chunks || alone(p))) return p;
  {
    Books &b = books();
    std::lock_guard<std::mutex> lock(b.mutex);
    b.blocks[(uintptr_t)p] = Block((uintptr_t)p, size);
    if (ours) b.mapped[(uintptr_t)p] = size;
  }
  if (!t_chunks) taken((uintptr_t)p, size, t_type);
  return p;
}

template <class Real, class... Rest>
void freed(Real original, void *p, Rest... rest) {
  bool ours = false;
  if (p) {
    given_back((uintptr_t)p);
    Books &b = books();
    std::lock_guard<std::mutex> lock(b.mutex);
    auto it = b.blocks.find((uintptr_t)p);
    if (it != b.blocks.end()) {
      it->second.drop();
      b.blocks.erase(it);
    }
    auto own = b.mapped.find((uintptr_t)p);
    if (own != b.mapped.end()) {
      munmap(p, own->second);
      b.mapped.erase(own);
      ours = true;
    }
  }
  if (!ours) original(p, rest...);
}

struct Making {
  explicit Making(int type) : before(t_type) { t_type = type; }
  ~Making() { t_type = before; }
  int before;
};

}  // namespace

#define TENSOR "_ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeE"
#define WITH "RKNS1_20AllocationAttributesE"

static void make(void *self, void *allocator, int type, const void *shape) {
  static auto f = real<void (*)(void *, void *, int, const void *)>(TENSOR);
  Making making(type);
  f(self, allocator, type, shape);
}
static void make_with(void *self, void *allocator, int type, const void *shape, const void *attributes) {
  static auto f = real<void (*)(void *, void *, int, const void *, const void *)>(TENSOR WITH);
  Making making(type);
  f(self, allocator, type, shape, attributes);
}
API void _ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeE(void *s, void *a, int t, const void *h) {
  make(s, a, t, h);
}
API void _ZN10tensorflow6TensorC2EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeE(void *s, void *a, int t, const void *h) {
  make(s, a, t, h);
}
API void _ZN10tensorflow6TensorC1EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeERKNS1_20AllocationAttributesE(
    void *s, void *a, int t, const void *h, const void *w) {
  make_with(s, a, t, h, w);
}
API void _ZN10tensorflow6TensorC2EPN3tsl9AllocatorENS_8DataTypeERKNS_11TensorShapeERKNS1_20AllocationAttributesE(
    void *s, void *a, int t, const void *h, const void *w) {
  make_with(s, a, t, h, w);
}

// absl::Status, as far as calls go: it has a destructor, so it is returned where the caller says.
struct Status {
  uintptr_t rep;
  Status(const Status &) = delete;
  ~Status() {}
};
struct Attributes {  // tsl::AllocatorAttributes
  uint32_t value;
  int32_t scope;
};
struct InKernel {
  InKernel() { t_kernels++; }
  ~InKernel() { t_kernels--; }
};
API Status _ZN10tensorflow15OpKernelContext15allocate_tensorENS_8DataTypeERKNS_11TensorShapeEPNS_6TensorEN3tsl19AllocatorAttributesERKNS7_20AllocationAttributesE(
    void *self, int type, const void *shape, void *out, Attributes attributes, const void *how) {
  static auto f = real<Status (*)(void *, int, const void *, void *, Attributes, const void *)>(
      "_ZN10tensorflow15OpKernelContext15allocate_tensorENS_8DataTypeERKNS_11TensorShapeEPNS_6TensorEN3tsl19AllocatorAttributesE"
      "RKNS7_20AllocationAttributesE");
  InKernel kernel;
  return f(self, type, shape, out, attributes, how);
}

API void *_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE(void *self, size_t alignment, size_t n, const void *how) {
  static auto f = real<void *(*)(void *, size_t, size_t, const void *)>(
      "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE");
  t_chunks++;
  void *p = f(self, alignment, n, how);
  t_chunks--;
  if (p) taken((uintptr_t)p, n, t_type);
  return p;
}
API void _ZN3tsl12BFCAllocator13DeallocateRawEPv(void *self, void *p) {
  static auto f = real<void (*)(void *, void *)>("_ZN3tsl12BFCAllocator13DeallocateRawEPv");
  if (p) given_back((uintptr_t)p);
  f(self, p);
}

API void *_ZN3tsl4port13AlignedMallocEmSt11align_val_t(size_t size, size_t alignment) {
  static auto f = real<void *(*)(size_t, size_t)>("_ZN3tsl4port13AlignedMallocEmSt11align_val_t");
  return aligned(f, size, alignment);
}
API void *_ZN3tsl4port13AlignedMallocEmi(size_t size, int alignment) {  // before 2.20
  static auto f = real<void *(*)(size_t, int)>("_ZN3tsl4port13AlignedMallocEmi");
  return aligned(f, size, alignment);
}
API void _ZN3tsl4port11AlignedFreeEPv(void *p) {
  static auto f = real<void (*)(void *)>("_ZN3tsl4port11AlignedFreeEPv");
  freed(f, p);
}
API void _ZN3tsl4port16AlignedSizedFreeEPvmSt11align_val_t(void *p, size_t size, size_t alignment) {
  static auto f = real<void (*)(void *, size_t, size_t)>("_ZN3tsl4port16AlignedSizedFreeEPvmSt11align_val_t");
  freed(f, p, size, alignment);
}

API void peakmem_tensorflow_read(struct peakmem_tensorflow_state *out) {
  Books &b = books();
  std::lock_guard<std::mutex> lock(b.mutex);
  looked(b);
  *out = {b.live, b.events, b.highest, b.highest_live, 0, 0, 0, 0};
  for (auto &entry : b.blocks) {
    Counted counted = entry.second.count();
    out->regions += entry.second.size();
    out->resident += counted.resident;
    out->shared += counted.shared;
  }
  out->pool = out->shared < pool_size() ? out->shared : pool_size();
}
API void peakmem_tensorflow_reset_peak(void) {
  Books &b = books();
  std::lock_guard<std::mutex> lock(b.mutex);
  b.highest = 0;
  looked(b);
}
API uint64_t peakmem_tensorflow_course(const struct peakmem_tensorflow_row **rows) {
  Books &b = books();
  *rows = b.rows;
  return b.n_rows;
}
