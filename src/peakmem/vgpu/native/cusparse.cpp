// cusparse.cpp - cuSPARSE and cuSPARSELt: descriptors, buffer sizes and the number of results.
//
// The library can't be asked without a device (cusparseCreate fails), so buffer sizes are estimates after its documented
// algorithms.  Where a call tells how many elements a sparse result has, which hangs on values, the answer is a stated guess:
// for a product what uniformly scattered elements give, for a sum that no two elements meet.
#include <algorithm>

#include "libraries.h"

using namespace peakmem;

namespace {

// A sparse or dense operand.
struct Matrix {
  int64_t rows = 0, columns = 0, elements = 0;
  int type = 0;  // cudaDataType
};
Matrix& matrix(const void* p) { return *static_cast<Matrix*>(const_cast<void*>(p)); }

int64_t width(int type) {
  switch (type) {
    case 2:
    case 14: return 2;
    case 1:
    case 4: return 8;
    case 5: return 16;
    case 3:
    case 8: return 1;
    default: return 4;
  }
}

// A position in each row and a carry for each block of 128 elements: what a balanced product over rows needs.
int64_t balanced(const Matrix& a) { return (a.rows + 1) * 4 + round_up(a.elements, 128) / 128 * 16; }

int make_matrix(void** out, int64_t rows, int64_t columns, int64_t elements, int type) {
  *out = new Matrix{rows, columns, elements, type};
  return 0;
}

}  // namespace

PEAKMEM_API int cusparseCreate(void** handle) { return make_opaque(handle); }
PEAKMEM_API int cusparseDestroy(void* handle) { return drop_opaque(handle); }
PEAKMEM_API int cusparseSetStream(void* handle, void* stream) {
  static_cast<Opaque*>(handle)->stream = stream;
  return 0;
}
PEAKMEM_API int cusparseGetStream(void* handle, void** stream) {
  *stream = static_cast<Opaque*>(handle)->stream;
  return 0;
}
PEAKMEM_API int cusparseGetVersion(void*, int* version) {
  *version = vgpu_cuda_version() >= 13000 ? 12600 : 12300;
  return 0;
}
PEAKMEM_API const char* cusparseGetErrorString(int status) { return status ? "not supported on the virtual GPU" : "success"; }
PEAKMEM_API const char* cusparseGetErrorName(int status) { return status ? "CUSPARSE_STATUS_NOT_SUPPORTED" : "CUSPARSE_STATUS_SUCCESS"; }

#define OPAQUE(CREATE, DESTROY)                             \
  PEAKMEM_API int CREATE(void** p) { return make_opaque(p); } \
  PEAKMEM_API int DESTROY(void* p) { return drop_opaque(p); }
OPAQUE(cusparseCreateMatDescr, cusparseDestroyMatDescr)
OPAQUE(cusparseCreateBsrsv2Info, cusparseDestroyBsrsv2Info)
OPAQUE(cusparseCreateBsrsm2Info, cusparseDestroyBsrsm2Info)
OPAQUE(cusparseSpSV_createDescr, cusparseSpSV_destroyDescr)
OPAQUE(cusparseSpSM_createDescr, cusparseSpSM_destroyDescr)
OPAQUE(cusparseSpGEMM_createDescr, cusparseSpGEMM_destroyDescr)

PEAKMEM_API int cusparseCreateCsr(void** out, int64_t rows, int64_t columns, int64_t elements, void*, void*, void*, int, int, int,
                                  int type) {
  return make_matrix(out, rows, columns, elements, type);
}
PEAKMEM_API int cusparseCreateConstCsr(void** out, int64_t rows, int64_t columns, int64_t elements, const void*, const void*,
                                       const void*, int, int, int, int type) {
  return make_matrix(out, rows, columns, elements, type);
}
PEAKMEM_API int cusparseCreateCsc(void** out, int64_t rows, int64_t columns, int64_t elements, void*, void*, void*, int, int, int,
                                  int type) {
  return make_matrix(out, rows, columns, elements, type);
}
PEAKMEM_API int cusparseCreateCoo(void** out, int64_t rows, int64_t columns, int64_t elements, void*, void*, void*, int, int,
                                  int type) {
  return make_matrix(out, rows, columns, elements, type);
}
PEAKMEM_API int cusparseCreateDnMat(void** out, int64_t rows, int64_t columns, int64_t, void*, int type, int) {
  return make_matrix(out, rows, columns, rows * columns, type);
}
PEAKMEM_API int cusparseCreateConstDnMat(void** out, int64_t rows, int64_t columns, int64_t, const void*, int type, int) {
  return make_matrix(out, rows, columns, rows * columns, type);
}
PEAKMEM_API int cusparseCreateDnVec(void** out, int64_t size, void*, int type) { return make_matrix(out, size, 1, size, type); }
PEAKMEM_API int cusparseCreateConstDnVec(void** out, int64_t size, const void*, int type) {
  return make_matrix(out, size, 1, size, type);
}
PEAKMEM_API int cusparseDestroySpMat(const void* p) { return drop_opaque<Matrix>(const_cast<void*>(p)); }
PEAKMEM_API int cusparseDestroyDnMat(const void* p) { return drop_opaque<Matrix>(const_cast<void*>(p)); }
PEAKMEM_API int cusparseDestroyDnVec(const void* p) { return drop_opaque<Matrix>(const_cast<void*>(p)); }
PEAKMEM_API int cusparseSpMatGetSize(const void* p, int64_t* rows, int64_t* columns, int64_t* elements) {
  *rows = matrix(p).rows;
  *columns = matrix(p).columns;
  *elements = matrix(p).elements;
  return 0;
}

PEAKMEM_API int cusparseSpMV_bufferSize(void*, int, const void*, const void* a, const void*, const void*, void*, int, int,
                                        size_t* size) {
  return estimate(size, balanced(matrix(a)), "cuSPARSE SpMV buffer: 4 bytes a row + 16 for each 128 elements");
}
PEAKMEM_API int cusparseSpMM_bufferSize(void*, int, int, const void*, const void* a, const void*, const void*, void*, int, int,
                                        size_t* size) {
  return estimate(size, balanced(matrix(a)), "cuSPARSE SpMM buffer: 4 bytes a row + 16 for each 128 elements");
}
PEAKMEM_API int cusparseSDDMM_bufferSize(void*, int, int, const void*, const void*, const void*, const void*, void* c, int, int,
                                         size_t* size) {
  return estimate(size, balanced(matrix(c)), "cuSPARSE SDDMM buffer: 4 bytes a row + 16 for each 128 elements");
}
PEAKMEM_API int cusparseSDDMM_preprocess(void*, int, int, const void*, const void*, const void*, const void*, void*, int, int, void*) {
  return 0;
}
PEAKMEM_API int cusparseSpSV_bufferSize(void*, int, const void*, const void* a, const void*, void*, int, int, void*, size_t* size) {
  const Matrix& m = matrix(a);
  return estimate(size, 16 * m.rows + m.elements * (4 + width(m.type)), "cuSPARSE SpSV buffer: levels of the rows + a copy of the matrix");
}
PEAKMEM_API int cusparseSpSM_bufferSize(void*, int, int, const void*, const void* a, const void*, void* c, int, int, void*,
                                        size_t* size) {
  const Matrix& m = matrix(a);
  return estimate(size, 16 * m.rows + m.elements * (4 + width(m.type)) + matrix(c).elements * width(m.type),
                  "cuSPARSE SpSM buffer: levels of the rows + copies of the matrix and the right-hand sides");
}

// Sparse products: PyTorch asks for the sizes of two buffers (first with a null buffer), then for the number of elements.
PEAKMEM_API int cusparseSpGEMM_workEstimation(void*, int, int, const void*, const void* a, const void*, const void*, void*, int,
                                              int, void*, size_t* size, void* buffer) {
  if (buffer) return 0;
  return estimate(size, (matrix(a).rows + 1) * 8, "cuSPARSE SpGEMM work estimation: 8 bytes a row");
}
PEAKMEM_API int cusparseSpGEMM_compute(void*, int, int, const void*, const void* a, const void* b, const void*, void* c, int, int,
                                       void*, size_t* size, void* buffer) {
  const Matrix &left = matrix(a), &right = matrix(b);
  double products = (double)left.elements * (double)right.elements / (double)std::max<int64_t>(1, right.rows);
  if (!buffer)
    return estimate(size, (int64_t)products * (8 + width(left.type)), "cuSPARSE SpGEMM buffer: an index pair and a value for each product");
  Matrix& result = matrix(c);
  result.rows = left.rows;
  result.columns = right.columns;
  result.elements = (int64_t)std::min(products, (double)left.rows * (double)right.columns);
  vgpu_note("estimate", "cuSPARSE SpGEMM: elements of the product as for uniformly scattered elements");
  return 0;
}

PEAKMEM_API int cusparseXcsrgeam2Nnz(void*, int m, int n, const void*, int nnz_a, const int*, const int*, const void*, int nnz_b,
                                     const int*, const int*, const void*, int*, int* total, void*) {
  int64_t most = std::min<int64_t>((int64_t)nnz_a + nnz_b, (int64_t)m * n);
  return estimate(total, most, "cuSPARSE csrgeam2: elements of a sum as if no two meet");
}
PEAKMEM_API int cusparseXcsrsort_bufferSizeExt(void*, int, int, int nnz, const int*, const int*, size_t* size) {
  return estimate(size, (int64_t)nnz * 16, "cuSPARSE csrsort buffer: 16 bytes an element");
}
PEAKMEM_API int cusparseXcoosort_bufferSizeExt(void*, int, int, int nnz, const int*, const int*, size_t* size) {
  return estimate(size, (int64_t)nnz * 16, "cuSPARSE coosort buffer: 16 bytes an element");
}
PEAKMEM_API int cusparseXbsrsv2_zeroPivot(void*, void*, int* position) {
  *position = -1;
  return 0;
}
PEAKMEM_API int cusparseXbsrsm2_zeroPivot(void*, void*, int* position) {
  *position = -1;
  return 0;
}

#define TYPED(T)                                                                                                                  \
  PEAKMEM_API int cusparse##T##csrgeam2_bufferSizeExt(void*, int m, int, const void*, const void*, int, const void*, const int*, \
                                                      const int*, const void*, const void*, int, const void*, const int*,        \
                                                      const int*, const void*, const void*, const int*, const int*,              \
                                                      size_t* size) {                                                             \
    return estimate(size, ((int64_t)m + 1) * 4, "cuSPARSE csrgeam2 buffer: 4 bytes a row");                                       \
  }                                                                                                                               \
  PEAKMEM_API int cusparse##T##bsrsv2_bufferSize(void*, int, int, int mb, int, const void*, const void*, const int*, const int*, \
                                                 int, void*, int* size) {                                                         \
    return estimate(size, (int64_t)mb * 16, "cuSPARSE bsrsv2 buffer: 16 bytes a block row");                                      \
  }                                                                                                                               \
  PEAKMEM_API int cusparse##T##bsrsm2_bufferSize(void*, int, int, int, int mb, int, int, const void*, const void*, const int*,    \
                                                 const int*, int, void*, int* size) {                                             \
    return estimate(size, (int64_t)mb * 16, "cuSPARSE bsrsm2 buffer: 16 bytes a block row");                                      \
  }
TYPED(S) TYPED(D) TYPED(C) TYPED(Z)

// ------------------------------------------------------------- cuSPARSELt ---
// Its descriptors are structures of the caller; a matrix's shape is kept in them.

PEAKMEM_API int cusparseLtStructuredDescriptorInit(const void*, void* descriptor, int64_t rows, int64_t columns, int64_t, uint32_t,
                                                   int type, int, int) {
  matrix(descriptor) = Matrix{rows, columns, rows * columns, type};
  return 0;
}
PEAKMEM_API int cusparseLtDenseDescriptorInit(const void*, void* descriptor, int64_t rows, int64_t columns, int64_t, uint32_t,
                                              int type, int) {
  matrix(descriptor) = Matrix{rows, columns, rows * columns, type};
  return 0;
}
// Two of four values stay, with two bits each for their places (cuSPARSELt documentation, structured sparsity).
PEAKMEM_API int cusparseLtSpMMACompressedSize2(const void*, const void* descriptor, size_t* compressed, size_t* buffer) {
  const Matrix& m = matrix(descriptor);
  if (buffer) *buffer = 0;
  return estimate(compressed, m.elements / 2 * width(m.type) + m.elements / 8, "cuSPARSELt compressed matrix: half the values + 2 bits each");
}
PEAKMEM_API int cusparseLtMatmulGetWorkspace(const void*, const void*, size_t* size) {
  return estimate(size, 0, "cuSPARSELt matmul workspace: none");
}
PEAKMEM_API int cusparseLtMatmulAlgGetAttribute(const void*, const void*, int, void* data, size_t size) {
  for (size_t i = 0; i < size; i++) static_cast<char*>(data)[i] = 0;
  return 0;
}
PEAKMEM_API int cusparseLtSpMMACompress2(const void*, const void*, int, int, const void*, void*, void*, void*) { return 0; }
