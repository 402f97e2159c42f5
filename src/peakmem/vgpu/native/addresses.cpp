#include "addresses.h"

#include <stdlib.h>

namespace peakmem {
namespace {

const size_t kPage = 2 << 20;

uintptr_t up(uintptr_t value, size_t alignment) { return (value + alignment - 1) & ~(uintptr_t)(alignment - 1); }
uintptr_t down(uintptr_t value, size_t alignment) { return value & ~(uintptr_t)(alignment - 1); }

}  // namespace

void Addresses::start(uintptr_t begin, uintptr_t end, Order order, unsigned seed) {
  begin_ = begin;
  order_ = order;
  seed_ = seed;
  free_.clear();
  free_[begin] = end - begin;
}

// The lowest range that fits exactly, or else the lowest that is large enough.
uintptr_t Addresses::lowest(size_t size, size_t alignment) const {
  uintptr_t best = 0;
  for (const auto &range : free_) {
    uintptr_t start = up(range.first, alignment);
    if (start + size > range.first + range.second) continue;
    if (range.second == size && start == range.first) return start;
    if (!best) best = start;
  }
  return best;
}

// The top of the highest range that is large enough.
uintptr_t Addresses::highest(size_t size, size_t alignment) const {
  for (auto range = free_.rbegin(); range != free_.rend(); ++range) {
    if (range->second < size) continue;
    uintptr_t start = down(range->first + range->second - size, alignment);
    if (start >= range->first) return start;
  }
  return 0;
}

// Any place in the lower 16 TiB.
uintptr_t Addresses::random(size_t size, size_t alignment) {
  for (int attempt = 0; attempt < 1000; attempt++) {
    uintptr_t number = 0;
    for (int i = 0; i < 3; i++) number = number << 15 | (uintptr_t)(rand_r(&seed_) & 0x7fff);
    uintptr_t start = up(down(begin_ + number % ((size_t)16 << 40), kPage), alignment);
    auto range = free_.upper_bound(start);
    if (range == free_.begin()) continue;
    --range;
    if (start + size <= range->first + range->second) return start;
  }
  return lowest(size, alignment);
}

uintptr_t Addresses::take(size_t size, size_t alignment) {
  uintptr_t address = order_ == Order::kUp       ? lowest(size, alignment)
                      : order_ == Order::kRandom ? random(size, alignment)
                                                 : highest(size, alignment);
  if (!address) return 0;
  auto range = free_.upper_bound(address);
  --range;
  uintptr_t start = range->first, end = start + range->second;
  free_.erase(range);
  if (address > start) free_[start] = address - start;
  if (address + size < end) free_[address + size] = end - (address + size);
  return address;
}

void Addresses::give_back(uintptr_t address, size_t size) {
  auto range = free_.emplace(address, size).first;
  auto next = range;
  ++next;
  if (next != free_.end() && range->first + range->second == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range == free_.begin()) return;
  auto before = range;
  --before;
  if (before->first + before->second == range->first) {
    before->second += range->second;
    free_.erase(range);
  }
}

}  // namespace peakmem
