// Memory whose pages are resident to the kernel's count of the process, and yet take none of the machine's.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define API extern "C" __attribute__((visibility("default")))

namespace peakmem {

constexpr uintptr_t kPage = 4096;  // x86-64; on aarch64 with larger pages nothing is shared

uint64_t resident_of_process();

struct Counted {
  uint64_t resident, shared;
};

// Pages of one block of memory that tensors lie in. Not safe for threads: the caller holds a lock.
class Block {
 public:
  Block() = default;
  Block(uintptr_t p, uint64_t size);
  bool holds(uintptr_t p) const { return p >= from_ && p < to_; }
  uint64_t size() const { return to_ - from_; }
  // What lies at [p, p + size) will hold numbers that nothing hangs on: its whole pages become shared ones.
  void share(uintptr_t p, uint64_t size);
  // It will hold something whose values count: all pages that it touches become its own.
  void own(uintptr_t p, uint64_t size);
  Counted count() const;
  void drop();

 private:
  bool test(uint64_t page) const { return bits_[page >> 6] >> (page & 63) & 1; }
  void change(uintptr_t a, uintptr_t b, bool shared);
  void turn(uint64_t first, uint64_t last, bool shared);
  uintptr_t from_ = 0, to_ = 0, base_ = 0;
  uint64_t *bits_ = nullptr;
};

uint64_t pool_size();

}  // namespace peakmem
