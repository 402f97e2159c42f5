#include "results.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "books.h"

namespace peakmem {

__thread int t_results __attribute__((tls_model("initial-exec")));

namespace {

constexpr size_t kGivenBack = 64 << 10;  // from here on zeros are had by giving pages back, which take no memory then
constexpr int kMost = 256;

struct Result {
  void *p;
  size_t size;
};
__thread Result t_kept[kMost];
__thread int t_n __attribute__((tls_model("initial-exec")));

void zero(void *p, size_t size) {
  uintptr_t from = ((uintptr_t)p + kPage - 1) & ~(kPage - 1);
  uintptr_t to = ((uintptr_t)p + size) & ~(kPage - 1);
  if (size < kGivenBack || madvise((void *)from, to - from, MADV_DONTNEED)) {
    memset(p, 0, size);
    return;
  }
  memset(p, 0, from - (uintptr_t)p);
  memset((void *)to, 0, (uintptr_t)p + size - to);
}

}  // namespace

// They are zeros from the beginning, and what writes them is loops, which are skipped. Some operators then put together
// what the loops left out: the largest of no numbers is minus infinity. Small ones of theirs are made zeros again.
void result_taken(void *p, size_t size) {
  if (!is_mapped(p)) zero(p, size);
  if (size < kGivenBack && t_n < kMost) t_kept[t_n++] = {p, size};
}

void result_given_back(void *p) {
  for (int i = t_n - 1; i >= 0; i--)
    if (t_kept[i].p == p) t_kept[i].p = nullptr;
}

int results() { return t_n; }

void results_are_complete(int from, bool again) {
  for (int i = from; again && i < t_n; i++)
    if (t_kept[i].p) memset(t_kept[i].p, 0, t_kept[i].size);
  if (from < t_n) t_n = from;
}

}  // namespace peakmem
