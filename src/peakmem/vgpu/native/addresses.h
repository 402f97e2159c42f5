// Which device address a block of memory gets. PyTorch's allocator breaks ties between free blocks of one size by address.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <map>

#include "config.h"

namespace peakmem {

// A range of addresses, of which pieces are taken and given back. Not safe for threads: the caller holds the lock.
class Addresses {
 public:
  void start(uintptr_t begin, uintptr_t end, Order order, unsigned seed);
  // Addresses for `size` bytes, a multiple of `alignment` (a power of two); 0 when nothing fits.
  uintptr_t take(size_t size, size_t alignment);
  void give_back(uintptr_t address, size_t size);
  // The same for a block of cudaMalloc (a multiple of 2 MiB): with Order::kDriver it may share a reservation.
  uintptr_t take_block(size_t size);
  void give_back_block(uintptr_t address, size_t size);

 private:
  // What the driver took from the address space for one block or more.
  struct Reservation {
    uintptr_t end;
    unsigned long long number;  // in order of their making
    std::map<uintptr_t, size_t> blocks;
    uintptr_t hole(uintptr_t begin, size_t size) const;
  };

  uintptr_t lowest(size_t size, size_t alignment) const;
  uintptr_t highest(size_t size, size_t alignment) const;
  uintptr_t random(size_t size, size_t alignment);

  std::map<uintptr_t, size_t> free_;  // start -> bytes, no two neighbours touch
  std::map<uintptr_t, Reservation> reservations_;
  std::map<unsigned long long, uintptr_t, std::greater<unsigned long long>> newest_;  // number -> start
  unsigned long long next_number_ = 0;
  uintptr_t begin_ = 0;
  Order order_ = Order::kUp;
  unsigned seed_ = 1;
};

}  // namespace peakmem
