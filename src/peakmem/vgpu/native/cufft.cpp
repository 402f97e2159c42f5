// cufft.cpp - cuFFT: plans without kernels, and their work areas.
//
// PyTorch turns cuFFT's own allocation off and gives each plan a work area from its allocator (PyTorch 2.14.1,
// aten/src/ATen/native/cuda/CuFFTPlanCache.h), so the size matters.  cuFFT can't be asked without a device (cufftEstimate*
// fails), so it is an estimate after cuFFT's documentation ("Fast Fourier Transform Setup"): the size of the complex data;
// for a dimension with a prime factor above 127, Bluestein's algorithm pads it to a power of two of at least twice its size.
#include <atomic>
#include <map>
#include <mutex>

#include "libraries.h"

namespace peakmem {
namespace {

constexpr long long kLargestRadix = 127;

struct Plans {
  std::mutex mutex;
  std::map<int, int64_t> work;  // bytes
  int next = 1;
};
Plans& plans() {
  static auto* p = new Plans;
  return *p;
}

// Bytes of a complex element, by the cudaDataType of an input or output.
int64_t complex_width(int type) {
  switch (type) {
    case 2:   // fp16
    case 6:   // complex fp16
    case 14:  // bf16
    case 15:  // complex bf16
      return 4;
    case 1:  // fp64
    case 5:  // complex fp64
      return 16;
    default: return 8;
  }
}
bool is_real(int type) { return type == 0 || type == 1 || type == 2 || type == 14; }

long long padded(long long n) {
  long long rest = n;
  for (long long p = 2; p <= kLargestRadix && rest > 1; p++)
    while (rest % p == 0) rest /= p;
  if (rest == 1) return n;
  long long power = 1;
  while (power < 2 * n - 1) power *= 2;
  return power;
}

int64_t work_area(int rank, const long long* n, int input, int output, long long batch) {
  int64_t elements = batch;
  for (int i = 0; i < rank; i++) {
    // Real transforms keep half of the last dimension.
    long long length = i == rank - 1 && (is_real(input) || is_real(output)) ? n[i] / 2 + 1 : n[i];
    long long padding = padded(n[i]);
    elements *= padding == n[i] ? length : padding;
  }
  return elements * complex_width(input);
}

int store(int plan, int64_t bytes, size_t* out) {
  std::lock_guard<std::mutex> guard(plans().mutex);
  plans().work[plan] = bytes;
  return estimate(out, bytes, "cuFFT work area: the size of the complex data (documented rule)");
}

}  // namespace
}  // namespace peakmem

using namespace peakmem;

PEAKMEM_API int cufftCreate(int* plan) {
  std::lock_guard<std::mutex> guard(plans().mutex);
  *plan = plans().next++;
  plans().work[*plan] = 0;
  return 0;
}
PEAKMEM_API int cufftDestroy(int plan) {
  std::lock_guard<std::mutex> guard(plans().mutex);
  plans().work.erase(plan);
  return 0;
}
PEAKMEM_API int cufftXtMakePlanMany(int plan, int rank, long long* n, long long*, long long, long long, int input, long long*,
                                    long long, long long, int output, long long batch, size_t* work, int) {
  return store(plan, work_area(rank, n, input, output, batch), work);
}
PEAKMEM_API int cufftGetSize(int plan, size_t* work) {
  std::lock_guard<std::mutex> guard(plans().mutex);
  *work = (size_t)plans().work[plan];
  return 0;
}
PEAKMEM_API int cufftGetVersion(int* version) {
  *version = vgpu_cuda_version() >= 13000 ? 12000 : 11200;
  return 0;
}

namespace {
// cufftType: R2C, C2R, C2C in fp32, then D2Z, Z2D, Z2Z in fp64.
int made_by_type(int plan, int rank, const long long* n, int type, long long batch, size_t* work) {
  bool twice = type == 0x6a || type == 0x6c || type == 0x69;
  int input = type == 0x2a || type == 0x6a ? (twice ? 1 : 0) : (twice ? 5 : 4);
  int output = type == 0x2c || type == 0x6c ? (twice ? 1 : 0) : (twice ? 5 : 4);
  size_t ignored;
  return store(plan, work_area(rank, n, input, output, batch), work ? work : &ignored);
}
}  // namespace

PEAKMEM_API int cufftMakePlan1d(int plan, int nx, int type, int batch, size_t* work) {
  long long n[1] = {nx};
  return made_by_type(plan, 1, n, type, batch, work);
}
PEAKMEM_API int cufftMakePlan2d(int plan, int nx, int ny, int type, size_t* work) {
  long long n[2] = {nx, ny};
  return made_by_type(plan, 2, n, type, 1, work);
}
PEAKMEM_API int cufftMakePlan3d(int plan, int nx, int ny, int nz, int type, size_t* work) {
  long long n[3] = {nx, ny, nz};
  return made_by_type(plan, 3, n, type, 1, work);
}
PEAKMEM_API int cufftMakePlanMany(int plan, int rank, int* n, int*, int, int, int*, int, int, int type, int batch, size_t* work) {
  long long wide[3] = {1, 1, 1};
  for (int i = 0; i < rank && i < 3; i++) wide[i] = n[i];
  return made_by_type(plan, rank, wide, type, batch, work);
}
PEAKMEM_API int cufftMakePlanMany64(int plan, int rank, long long* n, long long*, long long, long long, long long*, long long,
                                    long long, int type, long long batch, size_t* work) {
  return made_by_type(plan, rank, n, type, batch, work);
}
