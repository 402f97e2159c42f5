// Pages that share the memory behind them.
//
// The kernel's count of a process (VmRSS, VmHWM) is one of entries in its page table: a page of a file in memory that is
// mapped at a thousand addresses counts a thousand times, and is there once. So what a real step writes, and when, shows in
// VmHWM as it would, however many gigabytes that is.
#include "pages.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace peakmem {
namespace {

constexpr uint64_t kPool = 16 << 20;
constexpr uint64_t kLeast = 64 << 10;  // less is not worth a mapping, of which a process may have 65,530

int pool() {
  static int fd = [] {
    if (sysconf(_SC_PAGESIZE) != (long)kPage) return -1;
    int made = (int)syscall(SYS_memfd_create, "peakmem", 1u /* MFD_CLOEXEC */);
    if (made >= 0 && ftruncate(made, kPool)) {
      close(made);
      return -1;
    }
    return made;
  }();
  return fd;
}

int pagemap() {
  static int fd = -1;
  static pid_t of = 0;
  if (of != getpid()) {  // a forked process has pages of its own
    if (fd >= 0) close(fd);
    fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    of = getpid();
  }
  return fd;
}

// Calls f(page, present) for the pages from `first` up to `last`, numbers from address 0.
template <class F>
void each_page(uint64_t first, uint64_t last, F f) {
  uint64_t buffer[1024];
  for (uint64_t page = first; page < last;) {
    uint64_t n = last - page < 1024 ? last - page : 1024;
    ssize_t got = pread(pagemap(), buffer, n * 8, (off_t)(page * 8));
    if (got <= 0) return;
    for (uint64_t i = 0; i < (uint64_t)got / 8; i++) f(page + i, buffer[i] >> 63);
    page += (uint64_t)got / 8;
  }
}

}  // namespace

uint64_t pool_size() { return kPool; }

uint64_t resident_of_process() {
  char text[128];
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char *end;
  strtoull(text, &end, 10);
  return strtoull(end, nullptr, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

Block::Block(uintptr_t p, uint64_t size) : from_(p), to_(p + size), base_(p / kPage) {
  size_t words = ((to_ + kPage - 1) / kPage - base_ + 63) / 64;
  bits_ = (uint64_t *)calloc(words, 8);
}

void Block::share(uintptr_t p, uint64_t size) {
  uintptr_t a = (p + kPage - 1) / kPage, b = (p + size) / kPage;
  if (!bits_ || pool() < 0 || a >= b || (b - a) * kPage < kLeast) return own(p, size);
  change(a, b, true);
}

void Block::own(uintptr_t p, uint64_t size) {
  if (bits_) change(p / kPage, (p + size + kPage - 1) / kPage, false);
}

void Block::change(uintptr_t a, uintptr_t b, bool shared) {
  uintptr_t end = (to_ + kPage - 1) / kPage;
  if (b > end) b = end;
  for (uintptr_t i = a; i < b;) {
    if (test(i - base_) == shared) {
      i++;
      continue;
    }
    uintptr_t j = i;
    while (j < b && test(j - base_) != shared) j++;
    turn(i, j, shared);
    i = j;
  }
}

void Block::turn(uint64_t first, uint64_t last, bool shared) {
  // What was resident is resident: the pages were written before, and a process keeps them.
  uint64_t n = last - first, words = (n + 63) / 64;
  uint64_t *present = (uint64_t *)calloc(words, 8);
  if (!present) return;
  each_page(first, last, [&](uint64_t page, uint64_t there) { present[(page - first) >> 6] |= there << ((page - first) & 63); });
  uint64_t step = shared ? kPool / kPage : n, done = first;
  for (; done < last; done += step) {
    uint64_t pages = last - done < step ? last - done : step;
    int flags = shared ? MAP_SHARED | MAP_FIXED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    void *p = mmap((void *)(done * kPage), pages * kPage, PROT_READ | PROT_WRITE, flags, shared ? pool() : -1, 0);
    if (p == MAP_FAILED) {
      if (!shared) abort();  // what comes into it would be lost
      break;                 // too many mappings: the rest stays its own
    }
    for (uint64_t i = done; i < done + pages; i++) {
      uint64_t bit = 1ull << ((i - base_) & 63);
      if (shared) bits_[(i - base_) >> 6] |= bit;
      else bits_[(i - base_) >> 6] &= ~bit;
      if (present[(i - first) >> 6] >> ((i - first) & 63) & 1) *(volatile char *)(i * kPage) = 0;
    }
  }
  free(present);
}

Counted Block::count() const {
  Counted found = {0, 0};
  each_page(from_ / kPage, (to_ + kPage - 1) / kPage, [&](uint64_t page, uint64_t there) {
    if (!there) return;
    found.resident += kPage;
    if (bits_ && test(page - base_)) found.shared += kPage;
  });
  return found;
}

void Block::drop() {
  if (bits_) change(base_, (to_ + kPage - 1) / kPage, false);
  free(bits_);
  bits_ = nullptr;
}

}  // namespace peakmem
