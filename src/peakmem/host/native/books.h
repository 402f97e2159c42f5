// The books of would-be resident memory: pages of the blocks that tensors were given.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define API extern "C" __attribute__((visibility("default")))

namespace peakmem {

constexpr uint64_t kPage = 4096;

// A block was handed out by the C library's malloc (or mapped, `own_mapping`): the program will write all of it.
void block_taken(void *p, size_t size, bool own_mapping = false);
// Before it is given back. Whether it was in the books.
bool block_given_back(void *p);
// After something was given back to malloc: its heaps may have shrunk.
void heap_may_have_shrunk(void *p, bool in_main_heap);
// After malloc_trim: all free pages went back.
void heap_was_trimmed();
bool any_blocks();

// Of the chunk before a block (glibc, malloc/malloc.c): the lowest bits of its size.
inline uint64_t chunk_size(const void *p) { return ((const uint64_t *)p)[-1]; }
inline bool is_mapped(const void *p) { return chunk_size(p) & 2; }
inline bool in_main_heap(const void *p) { return !(chunk_size(p) & 4); }

// Memory of our own, which must not come from malloc: it would move the blocks of the program.
void *reserve(size_t bytes);
// The same, which then counts as nothing that is resident.
void *reserve_own(size_t bytes);

// A spinning lock: waiters hold it for some microseconds.
class Lock {
 public:
  Lock();
  ~Lock();
};

extern __thread int t_skip;  // 1 while kernels are to be skipped
void used(const char *what);

}  // namespace peakmem
