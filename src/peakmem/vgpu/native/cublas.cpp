// cublas.cpp - cuBLAS and cuBLASLt: opaque handles, and algorithms that always exist.
//
// PyTorch allocates the workspaces of both libraries itself, through its own allocator (by compute capability and
// CUBLAS_WORKSPACE_CONFIG), so they are exact.  cuBLASLt's heuristics only choose among kernels within the workspace that
// PyTorch has already allocated (PyTorch 2.14.1, aten/src/ATen/cuda/CUDABlas.cpp), so one algorithm is enough.
//
// Calls that only launch work are in symbols.def.
#include <cstring>

#include "libraries.h"

using namespace peakmem;

PEAKMEM_API int cublasCreate_v2(void** handle) { return make_opaque(handle); }
PEAKMEM_API int cublasDestroy_v2(void* handle) { return drop_opaque(handle); }
PEAKMEM_API int cublasSetStream_v2(void* handle, void* stream) {
  static_cast<Opaque*>(handle)->stream = stream;
  return 0;
}
PEAKMEM_API int cublasGetStream_v2(void* handle, void** stream) {
  *stream = static_cast<Opaque*>(handle)->stream;
  return 0;
}
// values[0]: math mode, values[1]: pointer mode, values[2]: atomics mode, values[3]: SM count target
PEAKMEM_API int cublasSetMathMode(void* handle, int mode) {
  static_cast<Opaque*>(handle)->values[0] = mode;
  return 0;
}
PEAKMEM_API int cublasGetMathMode(void* handle, int* mode) {
  *mode = (int)static_cast<Opaque*>(handle)->values[0];
  return 0;
}
PEAKMEM_API int cublasSetPointerMode_v2(void* handle, int mode) {
  static_cast<Opaque*>(handle)->values[1] = mode;
  return 0;
}
PEAKMEM_API int cublasGetPointerMode_v2(void* handle, int* mode) {
  *mode = (int)static_cast<Opaque*>(handle)->values[1];
  return 0;
}
PEAKMEM_API int cublasSetAtomicsMode(void* handle, int mode) {
  static_cast<Opaque*>(handle)->values[2] = mode;
  return 0;
}
PEAKMEM_API int cublasGetAtomicsMode(void* handle, int* mode) {
  *mode = (int)static_cast<Opaque*>(handle)->values[2];
  return 0;
}
PEAKMEM_API int cublasSetSmCountTarget(void* handle, int target) {
  static_cast<Opaque*>(handle)->values[3] = target;
  return 0;
}
PEAKMEM_API int cublasGetSmCountTarget(void* handle, int* target) {
  *target = (int)static_cast<Opaque*>(handle)->values[3];
  return 0;
}

// The version of the library that the CUDA release carries: 12.4.5 with CUDA 12.4, 13.1.1 with CUDA 13.0.
static int blas_version() { return vgpu_cuda_version() >= 13000 ? 130101 : 120405; }
PEAKMEM_API int cublasGetVersion_v2(void*, int* version) {
  *version = blas_version();
  return 0;
}
PEAKMEM_API int cublasGetProperty(int which, int* value) {
  int v = blas_version();
  *value = which == 0 ? v / 10000 : which == 1 ? v / 100 % 100 : v % 100;
  return 0;
}
PEAKMEM_API const char* cublasGetStatusName(int status) { return status ? "CUBLAS_STATUS_ON_VIRTUAL_GPU" : "CUBLAS_STATUS_SUCCESS"; }
PEAKMEM_API const char* cublasGetStatusString(int status) { return status ? "not supported on the virtual GPU" : "success"; }

// Batched solvers report illegal arguments through a number in host memory; there are none.
#define BATCHED_QR(T, S)                                                                                               \
  PEAKMEM_API int cublas##S##geqrfBatched(void*, int, int, T* const*, int, T* const*, int* info, int) {              \
    return *info = 0;                                                                                                  \
  }                                                                                                                    \
  PEAKMEM_API int cublas##S##getrsBatched(void*, int, int, int, const T* const*, int, const int*, T* const*, int,    \
                                          int* info, int) {                                                            \
    return *info = 0;                                                                                                  \
  }                                                                                                                    \
  PEAKMEM_API int cublas##S##gelsBatched(void*, int, int, int, int, T* const*, int, T* const*, int, int* info, int*,  \
                                         int) {                                                                        \
    vgpu_solved(0);                                                                                                    \
    return *info = 0;                                                                                                  \
  }
BATCHED_QR(void, S)
BATCHED_QR(void, D)
BATCHED_QR(void, C)
BATCHED_QR(void, Z)

// ---------------------------------------------------------------- cuBLASLt ---

PEAKMEM_API int cublasLtCreate(void** handle) { return make_opaque(handle); }
PEAKMEM_API int cublasLtDestroy(void* handle) { return drop_opaque(handle); }
PEAKMEM_API size_t cublasLtGetVersion(void) { return (size_t)blas_version(); }
PEAKMEM_API size_t cublasLtGetCudartVersion(void) { return (size_t)vgpu_cuda_version(); }
PEAKMEM_API const char* cublasLtGetStatusName(int status) { return cublasGetStatusName(status); }
PEAKMEM_API const char* cublasLtGetStatusString(int status) { return cublasGetStatusString(status); }
PEAKMEM_API int cublasLtMatmulDescCreate(void** desc, int, int) { return make_opaque(desc); }
PEAKMEM_API int cublasLtMatmulDescDestroy(void* desc) { return drop_opaque(desc); }
PEAKMEM_API int cublasLtMatmulPreferenceCreate(void** desc) { return make_opaque(desc); }
PEAKMEM_API int cublasLtMatmulPreferenceDestroy(void* desc) { return drop_opaque(desc); }
PEAKMEM_API int cublasLtMatrixLayoutCreate(void** desc, int, uint64_t, uint64_t, int64_t) { return make_opaque(desc); }
PEAKMEM_API int cublasLtMatrixLayoutDestroy(void* desc) { return drop_opaque(desc); }
PEAKMEM_API int cublasLtMatrixTransformDescCreate(void** desc, int) { return make_opaque(desc); }
PEAKMEM_API int cublasLtMatrixTransformDescDestroy(void* desc) { return drop_opaque(desc); }

namespace {
// cublasLtMatmulHeuristicResult_t: the algorithm (64 bytes), workspace in bytes, status, waves, reserved.
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int status;
  float waves;
  int reserved[4];
};
}  // namespace

PEAKMEM_API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int wanted, Heuristic* results,
                                               int* found) {
  *found = wanted < 1 ? 0 : 1;
  if (*found) {
    memset(results, 0, sizeof *results);
    results->waves = 1.0f;
  }
  return 0;
}
PEAKMEM_API int cublasLtMatmulAlgoGetIds(void*, int, int, int, int, int, int, int wanted, int* ids, int* found) {
  *found = wanted < 1 ? 0 : 1;
  if (*found) ids[0] = 0;
  return 0;
}
PEAKMEM_API int cublasLtMatmulAlgoInit(void*, int, int, int, int, int, int, int, void* algorithm) {
  memset(algorithm, 0, sizeof(uint64_t) * 8);
  return 0;
}
PEAKMEM_API int cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const void*, Heuristic* result) {
  memset(result, 0, sizeof *result);
  return 0;
}
static int zeros(void* out, size_t size, size_t* written) {
  if (out) memset(out, 0, size);
  if (written) *written = size;
  return 0;
}
PEAKMEM_API int cublasLtMatmulAlgoConfigGetAttribute(const void*, int, void* out, size_t size, size_t* written) {
  return zeros(out, size, written);
}
PEAKMEM_API int cublasLtMatmulAlgoCapGetAttribute(const void*, int, void* out, size_t size, size_t* written) {
  return zeros(out, size, written);
}
PEAKMEM_API int cublasLtMatmulDescGetAttribute(const void*, int, void* out, size_t size, size_t* written) {
  return zeros(out, size, written);
}
PEAKMEM_API int cublasLtMatrixLayoutGetAttribute(const void*, int, void* out, size_t size, size_t* written) {
  return zeros(out, size, written);
}
