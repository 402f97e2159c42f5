#include "kept.h"

#include <stdint.h>

#include <map>
#include <mutex>
#include <unordered_set>

#include "config.h"

namespace peakmem {
namespace {

const size_t kHostPage = 4096;

struct Kept {
  std::mutex mutex;
  std::map<uintptr_t, size_t> parts;  // by address; they don't overlap
  std::unordered_set<uintptr_t> pages;  // that were written
};
Kept &kept() {
  static Kept *k = new Kept;
  return *k;
}

void cut(std::map<uintptr_t, size_t> &parts, uintptr_t begin, uintptr_t end) {
  auto part = parts.upper_bound(begin);
  if (part != parts.begin()) --part;
  while (part != parts.end() && part->first < end) {
    uintptr_t from = part->first, to = from + part->second;
    if (to <= begin) {
      ++part;
      continue;
    }
    part = parts.erase(part);
    if (from < begin) parts[from] = begin - from;
    if (to > end) parts[end] = to - end;
  }
}

}  // namespace

void note_kept(const void *address, size_t n) {
  if (!config().driver || !n) return;
  Kept &k = kept();
  std::lock_guard<std::mutex> lock(k.mutex);
  cut(k.parts, (uintptr_t)address, (uintptr_t)address + n);
  k.parts[(uintptr_t)address] = n;
  for (uintptr_t page = (uintptr_t)address / kHostPage; page <= ((uintptr_t)address + n - 1) / kHostPage; page++) k.pages.insert(page);
}

bool is_kept(const void *address, size_t n) {
  if (!config().driver) return true;
  Kept &k = kept();
  std::lock_guard<std::mutex> lock(k.mutex);
  uintptr_t at = (uintptr_t)address, end = at + n;
  auto part = k.parts.upper_bound(at);
  if (part == k.parts.begin()) return false;
  --part;
  for (; at < end; ++part) {  // neighbouring parts count as one
    if (part == k.parts.end() || part->first > at || part->first + part->second <= at) return false;
    at = part->first + part->second;
  }
  return true;
}

void forget_kept(const void *address, size_t n) {
  if (!config().driver || !n) return;
  Kept &k = kept();
  std::lock_guard<std::mutex> lock(k.mutex);
  cut(k.parts, (uintptr_t)address, (uintptr_t)address + n);
}

size_t kept_bytes() {
  Kept &k = kept();
  std::lock_guard<std::mutex> lock(k.mutex);
  return k.pages.size() * kHostPage;
}

}  // namespace peakmem
