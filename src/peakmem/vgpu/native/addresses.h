// Which device address a block of memory gets. PyTorch's allocator breaks ties between free blocks of one size by address.
#pragma once

#include <map>

#include "config.h"

namespace peakmem {

// A range of addresses, of which pieces are taken and given back. Not safe for threads: the caller holds the lock.
class Addresses {
 public:
  void start(uintptr_t begin, uintptr_t end, Order order, unsigned seed);
  // An address for `size` bytes, a multiple of `alignment` (a power of two); 0 when nothing fits.
  uintptr_t take(size_t size, size_t alignment);
  void give_back(uintptr_t address, size_t size);

 private:
  uintptr_t lowest(size_t size, size_t alignment) const;
  uintptr_t highest(size_t size, size_t alignment) const;
  uintptr_t random(size_t size, size_t alignment);

  std::map<uintptr_t, size_t> free_;  // start -> bytes, no two neighbours touch
  uintptr_t begin_ = 0;
  Order order_ = Order::kUp;
  unsigned seed_ = 1;
};

}  // namespace peakmem
