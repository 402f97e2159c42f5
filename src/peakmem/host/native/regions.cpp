// Parallel regions: where nearly all computing is done. While kernels are skipped they return at once.
//
// PyTorch's at::parallel_for, oneDNN and MKL (its GNU threading layer) all go through libgomp's GOMP_parallel. What they
// allocate before and after a region is allocated by the calling thread, as ever. Tensors of fewer than 32,768 elements are
// no region's (GRAIN_SIZE of ATen/TensorIterator.h): their loops are run by TensorIteratorBase::serial_for_each.
#include "books.h"
#include "torch.h"

API void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags) {
  if (peakmem::t_skip) return;
  static auto real = (void (*)(void (*)(void *), void *, unsigned, unsigned))peakmem::next("GOMP_parallel");
  if (real) real(body, data, threads, flags);
}

namespace {
// c10::function_ref and at::Range are two words each, which are passed in registers.
struct TwoWords {
  const void *first, *second;
};
#define SERIAL_FOR_EACH "_ZNK2at18TensorIteratorBase15serial_for_eachEN3c1012function_refIFvPPcPKlllEEENS_5RangeE"
}  // namespace

API void serial_for_each(const void *iterator, TwoWords loop, TwoWords range) __asm__(SERIAL_FOR_EACH);
void serial_for_each(const void *iterator, TwoWords loop, TwoWords range) {
  if (peakmem::t_skip) return;
  static auto real = (void (*)(const void *, TwoWords, TwoWords))peakmem::next(SERIAL_FOR_EACH);
  if (real) real(iterator, loop, range);
}

// With one thread there are no regions: at::parallel_for then calls its body straight away. While kernels are skipped it
// is told of two, so that it makes a region.
namespace at {
__attribute__((visibility("default"))) int get_num_threads() {
  static auto real = (int (*)())peakmem::next("_ZN2at15get_num_threadsEv");
  int threads = real ? real() : 1;
  return peakmem::t_skip && threads < 2 ? 2 : threads;
}
}  // namespace at
