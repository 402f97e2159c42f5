// The C library's malloc, watched. Every request goes to the real one, in the same order and of the same size, so what it
// hands out, maps, keeps and gives back is its own decision.
//
// Tensors and the scratch memory of kernels are asked for with an alignment (c10/core/impl/alloc_cpu.cpp, oneDNN's
// utils.cpp), all else is written by the code that asked for it, which runs as ever. So aligned requests go into the books.
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "aside.h"
#include "books.h"
#include "results.h"
#include "torch.h"

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
}

namespace {

constexpr size_t kSmall = 1024;  // blocks below lie on pages that others write
constexpr size_t kConsolidation = 64 << 10;  // FASTBIN_CONSOLIDATION_THRESHOLD: a smaller free never shrinks a heap

void *aligned(size_t alignment, size_t size, const void *caller = nullptr) {
  peakmem::t_told = 0;  // no observer was called
  void *p = __libc_memalign(alignment, size);
  if (p && peakmem::t_results && peakmem::in_c10(caller)) peakmem::result_taken(p, size);
  if (p && size >= kSmall) peakmem::block_taken(p, size);
  return p;
}

void given_back(void *p) {
  if (p && peakmem::size_aside(p)) return peakmem::give_back_aside(p);
  if (!p || !peakmem::any_blocks()) return __libc_free(p);
  peakmem::result_given_back(p);
  bool mapped = peakmem::is_mapped(p), main = peakmem::in_main_heap(p);
  peakmem::block_given_back(p);
  int error = errno;
  __libc_free(p);
  errno = error;
  if (!mapped) peakmem::heap_may_have_shrunk(p, main);
}

}  // namespace

API void *malloc(size_t size) {
  void *p = peakmem::goes_aside(size) ? peakmem::take_aside(size) : nullptr;
  return p ? p : __libc_malloc(size);
}
API void *calloc(size_t count, size_t size) {
  size_t all;
  if (__builtin_mul_overflow(count, size, &all) || !peakmem::goes_aside(all)) return __libc_calloc(count, size);
  void *p = peakmem::take_aside(all);
  return p ? memset(p, 0, all) : __libc_calloc(count, size);
}
API void free(void *p) { given_back(p); }
API void *realloc(void *p, size_t size) {
  if (!p) return malloc(size);
  if (size_t had = peakmem::size_aside(p)) {
    if (size && size <= had) return p;
    void *other = size ? malloc(size) : nullptr;
    if (other) memcpy(other, p, had);
    if (other || !size) peakmem::give_back_aside(p);
    return other;
  }
  if (peakmem::any_blocks()) peakmem::block_given_back(p);
  return __libc_realloc(p, size);
}
API void *memalign(size_t alignment, size_t size) { return aligned(alignment, size); }
API void *aligned_alloc(size_t alignment, size_t size) { return aligned(alignment, size); }
API void *valloc(size_t size) { return aligned(peakmem::kPage, size); }
API void *pvalloc(size_t size) { return aligned(peakmem::kPage, (size + peakmem::kPage - 1) & ~(peakmem::kPage - 1)); }
API int posix_memalign(void **out, size_t alignment, size_t size) {
  if (alignment % sizeof(void *) || alignment & (alignment - 1) || !alignment) return EINVAL;
  void *p = aligned(alignment, size, __builtin_return_address(0));
  if (!p) return ENOMEM;
  *out = p;
  return 0;
}
API int malloc_trim(size_t pad) {
  static auto real = (int (*)(size_t))peakmem::next("malloc_trim");
  int done = real ? real(pad) : 0;
  peakmem::heap_was_trimmed();
  return done;
}

// Files and shared memory that PyTorch itself maps (at::MapAllocator): storages of checkpoints, batches from workers.
API void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
  void *p = (void *)syscall(SYS_mmap, address, size, protection, flags, fd, offset);
  if (p != MAP_FAILED && fd >= 0 && size >= (64 << 10) && peakmem::in_torch(__builtin_return_address(0)))
    peakmem::block_taken(p, size, true);
  return p;
}
API void *mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
    __attribute__((alias("mmap")));
API int munmap(void *p, size_t size) {
  if (peakmem::any_blocks()) peakmem::block_given_back(p);
  return (int)syscall(SYS_munmap, p, size);
}
