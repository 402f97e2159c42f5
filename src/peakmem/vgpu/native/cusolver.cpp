// cusolver.cpp - cuSOLVER's dense solvers: buffer sizes.
//
// PyTorch allocates the buffers that cuSOLVER asks for from its own allocator.  The library can't be asked without a device
// (cusolverDnCreate fails), so each size is an estimate after the algorithm that the documentation names and the workspace
// that LAPACK, whose names these are, documents for it.  Factorisations write `info` to device memory, which reads as zero:
// success.  Calls that only launch work are in symbols.def.
#include <algorithm>

#include "libraries.h"

using namespace peakmem;

namespace {

constexpr int64_t kBlock = 32;  // columns that a blocked factorisation takes at a time

// Elements.  A block of columns of Householder vectors or pivots, and the block's triangular factor.
int64_t panel(int64_t n) { return std::max<int64_t>(1, n) * kBlock + kBlock * kBlock; }
// xSYEVD with vectors: 2 n^2 + 6 n + 1 (LAPACK); without: 2 n + 1, and the tridiagonalisation's panel.
int64_t eigen(int64_t n, int vectors) { return (vectors ? 2 * n * n + 6 * n + 1 : 2 * n + 1) + panel(n); }
// xGESVD: bidiagonalisation with a panel for each side.
int64_t svd(int64_t m, int64_t n) { return 3 * std::min(m, n) + panel(m) + panel(n); }
// One-sided Jacobi: a copy of the matrix and one of the rotations.
int64_t jacobi_svd(int64_t m, int64_t n) { return m * n + std::min(m, n) * std::min(m, n) + 2 * (m + n); }

// Bytes of a number, by cudaDataType.
int64_t bytes_of(int type) {
  switch (type) {
    case 1:  // fp64
    case 4:  // complex fp32
      return 8;
    case 5: return 16;  // complex fp64
    default: return 4;
  }
}

int sizes(int64_t bytes, size_t* device, size_t* host, const char* what) {
  if (host) *host = 0;
  return estimate(device, bytes, what);
}

}  // namespace

PEAKMEM_API int cusolverDnCreate(void** handle) { return make_opaque(handle); }
PEAKMEM_API int cusolverDnDestroy(void* handle) { return drop_opaque(handle); }
PEAKMEM_API int cusolverDnCreateParams(void** p) { return make_opaque(p); }
PEAKMEM_API int cusolverDnDestroyParams(void* p) { return drop_opaque(p); }
PEAKMEM_API int cusolverDnCreateSyevjInfo(void** p) { return make_opaque(p); }
PEAKMEM_API int cusolverDnDestroySyevjInfo(void* p) { return drop_opaque(p); }
PEAKMEM_API int cusolverDnCreateGesvdjInfo(void** p) { return make_opaque(p); }
PEAKMEM_API int cusolverDnDestroyGesvdjInfo(void* p) { return drop_opaque(p); }
PEAKMEM_API int cusolverDnSetStream(void* handle, void* stream) {
  static_cast<Opaque*>(handle)->stream = stream;
  return 0;
}
PEAKMEM_API int cusolverDnGetStream(void* handle, void** stream) {
  *stream = static_cast<Opaque*>(handle)->stream;
  return 0;
}
PEAKMEM_API int cusolverGetVersion(int* version) {
  *version = vgpu_cuda_version() >= 13000 ? 12000 : 11600;
  return 0;
}

// Functions with one name for each of the four number types; sizes in elements.
#define REAL_AND_COMPLEX(F) F(S) F(D) F(C) F(Z)

#define FACTORISATIONS(T)                                                                                                        \
  PEAKMEM_API int cusolverDn##T##geqrf_bufferSize(void*, int, int n, void*, int, int* size) {                                  \
    return estimate(size, panel(n), "cuSOLVER geqrf buffer: n x 32 elements + a 32 x 32 block");                               \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##getrf_bufferSize(void*, int m, int n, void*, int, int* size) {                                \
    return estimate(size, panel(std::max(m, n)), "cuSOLVER getrf buffer: max(m, n) x 32 elements + a 32 x 32 block");          \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##potrf_bufferSize(void*, int, int n, void*, int, int* size) {                                  \
    return estimate(size, panel(n), "cuSOLVER potrf buffer: n x 32 elements + a 32 x 32 block");                               \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##sytrf_bufferSize(void*, int n, void*, int, int* size) {                                       \
    return estimate(size, panel(n), "cuSOLVER sytrf buffer: n x 32 elements + a 32 x 32 block");                               \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##gesvd_bufferSize(void*, int m, int n, int* size) {                                            \
    return estimate(size, svd(m, n), "cuSOLVER gesvd buffer: (m + n) x 32 elements and the bidiagonal");                       \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##gesvdj_bufferSize(void*, int, int, int m, int n, const void*, int, const void*, const void*,  \
                                                   int, const void*, int, int* size, void*) {                                   \
    return estimate(size, jacobi_svd(m, n), "cuSOLVER gesvdj buffer: m x n + min(m, n)^2 elements");                           \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##gesvdjBatched_bufferSize(void*, int, int m, int n, const void*, int, const void*, const void*, \
                                                          int, const void*, int, int* size, void*, int batch) {                 \
    return estimate(size, batch * jacobi_svd(m, n), "cuSOLVER gesvdjBatched buffer: batch x (m x n + min(m, n)^2) elements");   \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##gesvdaStridedBatched_bufferSize(void*, int, int, int m, int n, const void*, int, long long,   \
                                                                 const void*, long long, const void*, int, long long,           \
                                                                 const void*, int, long long, int* size, int batch) {           \
    return estimate(size, batch*((int64_t)2 * n * n + m + n), "cuSOLVER gesvda buffer: batch x (2 n^2 + m + n) elements");      \
  }
REAL_AND_COMPLEX(FACTORISATIONS)

// The factor of a QR applied or written out: xORGQR / xUNGQR and xORMQR / xUNMQR.
#define ORTHOGONAL(T, GENERATE, MULTIPLY)                                                                                        \
  PEAKMEM_API int cusolverDn##T##GENERATE##_bufferSize(void*, int, int n, int, const void*, int, const void*, int* size) {      \
    return estimate(size, panel(n), "cuSOLVER orgqr buffer: n x 32 elements + a 32 x 32 block");                                \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##MULTIPLY##_bufferSize(void*, int side, int, int m, int n, int, const void*, int, const void*,  \
                                                       const void*, int, int* size) {                                           \
    return estimate(size, panel(side ? m : n), "cuSOLVER ormqr buffer: n x 32 elements + a 32 x 32 block");                     \
  }
ORTHOGONAL(S, orgqr, ormqr)
ORTHOGONAL(D, orgqr, ormqr)
ORTHOGONAL(C, ungqr, unmqr)
ORTHOGONAL(Z, ungqr, unmqr)

// Symmetric and Hermitian eigenvalues.
#define EIGENVALUES(T, DIVIDE, JACOBI)                                                                                           \
  PEAKMEM_API int cusolverDn##T##DIVIDE##_bufferSize(void*, int vectors, int, int n, const void*, int, const void*, int* size) { \
    return estimate(size, eigen(n, vectors), "cuSOLVER syevd buffer: 2 n^2 + 6 n + 1 elements (LAPACK) + a panel");             \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##JACOBI##_bufferSize(void*, int, int, int n, const void*, int, const void*, int* size, void*) { \
    return estimate(size, 2 * (int64_t)n * n, "cuSOLVER syevj buffer: 2 n^2 elements");                                         \
  }                                                                                                                              \
  PEAKMEM_API int cusolverDn##T##JACOBI##Batched_bufferSize(void*, int, int, int n, const void*, int, const void*, int* size,    \
                                                            void*, int batch) {                                                 \
    return estimate(size, 2 * (int64_t)n * n * batch, "cuSOLVER syevjBatched buffer: batch x 2 n^2 elements");                  \
  }
EIGENVALUES(S, syevd, syevj)
EIGENVALUES(D, syevd, syevj)
EIGENVALUES(C, heevd, heevj)
EIGENVALUES(Z, heevd, heevj)

// Functions of any type; sizes in bytes.
PEAKMEM_API int cusolverDnXgeqrf_bufferSize(void*, void*, int64_t, int64_t n, int type, const void*, int64_t, int, const void*,
                                            int, size_t* device, size_t* host) {
  return sizes(panel(n) * bytes_of(type), device, host, "cuSOLVER Xgeqrf buffer: n x 32 elements + a 32 x 32 block");
}
PEAKMEM_API int cusolverDnXgetrf_bufferSize(void*, void*, int64_t m, int64_t n, int type, const void*, int64_t, int, size_t* device,
                                            size_t* host) {
  return sizes(panel(std::max(m, n)) * bytes_of(type), device, host, "cuSOLVER Xgetrf buffer: max(m, n) x 32 elements");
}
PEAKMEM_API int cusolverDnXpotrf_bufferSize(void*, void*, int, int64_t n, int type, const void*, int64_t, int, size_t* device,
                                            size_t* host) {
  return sizes(panel(n) * bytes_of(type), device, host, "cuSOLVER Xpotrf buffer: n x 32 elements + a 32 x 32 block");
}
PEAKMEM_API int cusolverDnXsytrs_bufferSize(void*, int, int64_t n, int64_t nrhs, int type, const void*, int64_t, const int64_t*,
                                            int, const void*, int64_t, size_t* device, size_t* host) {
  return sizes(n * nrhs * bytes_of(type), device, host, "cuSOLVER Xsytrs buffer: n x right-hand sides elements");
}
PEAKMEM_API int cusolverDnXsyevd_bufferSize(void*, void*, int vectors, int, int64_t n, int type, const void*, int64_t, int,
                                            const void*, int, size_t* device, size_t* host) {
  return sizes(eigen(n, vectors) * bytes_of(type), device, host, "cuSOLVER Xsyevd buffer: 2 n^2 + 6 n + 1 elements (LAPACK)");
}
PEAKMEM_API int cusolverDnXsyevBatched_bufferSize(void*, void*, int vectors, int, int64_t n, int type, const void*, int64_t, int,
                                                  const void*, int, size_t* device, size_t* host, int64_t batch) {
  return sizes(batch * eigen(n, vectors) * bytes_of(type), device, host, "cuSOLVER XsyevBatched buffer: batch x syevd");
}
// xGEEV: 4 n (LAPACK's minimum) and the Hessenberg reduction: a copy of the matrix and a panel.
PEAKMEM_API int cusolverDnXgeev_bufferSize(void*, void*, int, int, int64_t n, int type, const void*, int64_t, int, const void*, int,
                                           const void*, int64_t, int, const void*, int64_t, int, size_t* device, size_t* host) {
  int64_t elements = 4 * n + n * n + panel(n);
  if (host) *host = (size_t)(n * n * bytes_of(type));
  return estimate(device, elements * bytes_of(type), "cuSOLVER Xgeev buffer: n^2 + 4 n elements + a panel; n^2 on the host");
}
PEAKMEM_API int cusolverDnXgesvd_bufferSize(void*, void*, signed char, signed char, int64_t m, int64_t n, int type, const void*,
                                            int64_t, int, const void*, int, const void*, int64_t, int, const void*, int64_t, int,
                                            size_t* device, size_t* host) {
  return sizes(svd(m, n) * bytes_of(type), device, host, "cuSOLVER Xgesvd buffer: (m + n) x 32 elements and the bidiagonal");
}
