// Matrix products. While kernels are skipped, the first product of each shape is computed after all, on scratch memory
// and shortened, for what the library keeps: buffers for packed matrices, one for each thread, and its code.
//
// Their sizes hang on the shape (MKL of PyTorch 2.13: 6 to 60 MiB in all, 2 threads). What is shortened and how far was
// chosen by measuring: the longer side of the result up to 16,384 and the inner side up to 1,024 keep the buffers, to
// 1.4 MiB of 206 with 256 left of the shorter side. Only the result takes memory, the factors are pages of zeros.
#include <string.h>
#include <sys/mman.h>

#include "books.h"
#include "torch.h"

namespace {

constexpr int kShorter = 256, kLonger = 16384, kInner = 1024;
constexpr double kMostProducts = (double)kShorter * kLonger * kInner;  // multiplications of one product: about 0.07 s
constexpr int kMostShapes = 4096;

uint64_t g_seen[kMostShapes];
int g_shapes = 0;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 29);
}

bool is_new(uint64_t shape) {
  peakmem::Lock lock;
  for (int i = 0; i < g_shapes; i++)
    if (g_seen[i] == shape) return false;
  if (g_shapes < kMostShapes) g_seen[g_shapes++] = shape;
  return true;
}

int at_most(int value, int most) { return value < most ? value : most; }

void shorten(int &m, int &n, int &k) {
  int &shorter = m < n ? m : n, &longer = m < n ? n : m;
  shorter = at_most(shorter, kShorter);
  longer = at_most(longer, kLonger);
  k = at_most(k, kInner);
}

class Scratch {
 public:
  explicit Scratch(size_t bytes) : bytes_(bytes), memory_((char *)peakmem::reserve(bytes)) {}
  ~Scratch() {
    if (memory_) munmap(memory_, bytes_);
  }
  char *memory() const { return memory_; }

 private:
  size_t bytes_;
  char *memory_;
};

struct Computing {
  Computing() { peakmem::t_skip = 0; }
  ~Computing() { peakmem::t_skip = 1; }
};

bool transposed(char c) { return c != 'n' && c != 'N'; }

template <class T, class F>
void product(F real, const char *ta, const char *tb, const int *m, const int *n, const int *k, const T *alpha, const T *a,
             const int *lda, const T *b, const int *ldb, const T *beta, T *c, const int *ldc) {
  if (!peakmem::t_skip) return real(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  uint64_t shape = mixed(mixed(mixed(mixed(sizeof(T), (uint64_t)*ta << 8 | *tb), *m), *n), *k);
  if (*m <= 0 || *n <= 0 || *k <= 0 || !is_new(shape)) return;
  int M = *m, N = *n, K = *k;
  shorten(M, N, K);
  Scratch scratch(sizeof(T) * ((size_t)M * K + (size_t)K * N + (size_t)M * N));
  if (!scratch.memory()) return;
  T *A = (T *)scratch.memory(), *B = A + (size_t)M * K, *C = B + (size_t)K * N;
  int LA = transposed(*ta) ? K : M, LB = transposed(*tb) ? N : K, LC = M;
  Computing computing;
  real(ta, tb, &M, &N, &K, alpha, A, &LA, B, &LB, beta, C, &LC);
}

template <class T, class F>
void batch(F real, int layout, const int *ta, const int *tb, const int *m, const int *n, const int *k, const T *alpha,
           const T **a, const int *lda, const T **b, const int *ldb, const T *beta, T **c, const int *ldc, int groups,
           const int *sizes) {
  if (!peakmem::t_skip) return real(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, groups, sizes);
  uint64_t shape = mixed(mixed(mixed(mixed(mixed(99 + sizeof(T), (uint64_t)*ta << 8 | *tb), *m), *n), *k), *sizes);
  double one = (double)*m * *n * *k;
  if (groups != 1 || one <= 0 || one > kMostProducts || !is_new(shape)) return;
  int count = *sizes;
  while (count > 4 && one * count > kMostProducts / 4) count = (count + 1) / 2;
  auto most = [](int x, int y) { return (size_t)(x > y ? x : y); };
  size_t na = *lda * most(*m, *k), nb = *ldb * most(*k, *n), nc = *ldc * most(*m, *n);
  Scratch scratch(sizeof(T) * (na + nb + nc) + 3 * sizeof(T *) * count);
  if (!scratch.memory()) return;
  T **A = (T **)scratch.memory(), **B = A + count, **C = B + count;
  T *numbers = (T *)(C + count);
  for (int i = 0; i < count; i++) A[i] = numbers, B[i] = numbers + na, C[i] = numbers + na + nb;
  Computing computing;
  real(layout, ta, tb, m, n, k, alpha, (const T **)A, lda, (const T **)B, ldb, beta, C, ldc, 1, &count);
}

}  // namespace

#define GEMM(NAME, T)                                                                                               \
  API void NAME(const char *ta, const char *tb, const int *m, const int *n, const int *k, const T *alpha, const T *a, \
                const int *lda, const T *b, const int *ldb, const T *beta, T *c, const int *ldc) {                    \
    static auto real = (decltype(&NAME))peakmem::next(#NAME);                                                        \
    product<T>(real, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                                          \
  }
GEMM(sgemm_, float)
GEMM(dgemm_, double)

#define GEMM_BATCH(NAME, T)                                                                                         \
  API void NAME(int layout, const int *ta, const int *tb, const int *m, const int *n, const int *k, const T *alpha, \
                const T **a, const int *lda, const T **b, const int *ldb, const T *beta, T **c, const int *ldc,     \
                int groups, const int *sizes) {                                                                     \
    static auto real = (decltype(&NAME))peakmem::next(#NAME);                                                       \
    batch<T>(real, layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, groups, sizes);                    \
  }
GEMM_BATCH(cblas_sgemm_batch, float)
GEMM_BATCH(cblas_dgemm_batch, double)

#define GEMV(NAME, T)                                                                                             \
  API void NAME(const char *t, const int *m, const int *n, const T *alpha, const T *a, const int *lda, const T *x, \
                const int *incx, const T *beta, T *y, const int *incy) {                                          \
    static auto real = (decltype(&NAME))peakmem::next(#NAME);                                                     \
    if (!peakmem::t_skip) real(t, m, n, alpha, a, lda, x, incx, beta, y, incy);                                   \
  }
GEMV(sgemv_, float)
GEMV(dgemv_, double)

#define GEMM_NARROW(NAME)                                                                                         \
  API void NAME(int layout, int ta, int tb, int m, int n, int k, float alpha, const uint16_t *a, int lda,         \
                const uint16_t *b, int ldb, float beta, float *c, int ldc) {                                      \
    static auto real = (decltype(&NAME))peakmem::next(#NAME);                                                     \
    if (!peakmem::t_skip) real(layout, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                     \
  }
GEMM_NARROW(cblas_gemm_bf16bf16f32)
GEMM_NARROW(cblas_gemm_f16f16f32)
