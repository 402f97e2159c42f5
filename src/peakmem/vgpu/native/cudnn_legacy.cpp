// cudnn_legacy.cpp - the older calls of cuDNN that PyTorch still makes: dropout, CTC, batch norm sizes, convolutions of the
// seventh version's API (TORCH_CUDNN_V8_API_DISABLED=1).  They need a handle with a device, so their sizes are estimates.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "cudnn_convolution.h"
#include "cudnn_library.h"
#include "libraries.h"

namespace peakmem::cudnn {
namespace {

constexpr int kMaxDimensions = 8;
constexpr int kMultiprocessors = 16, kThreadsPerMultiprocessor = 39;  // device attributes

// The shape of a tensor descriptor, which the real library holds and tells without a device.
Tensor tensor(const void* descriptor) {
  static auto* f = function<int(const void*, int, int*, int*, int*, int*)>("cudnnGetTensorNdDescriptor");
  Tensor t;
  int n = 0, dims[kMaxDimensions] = {}, strides[kMaxDimensions] = {};
  if (!descriptor || f(descriptor, kMaxDimensions, &t.type, &n, dims, strides)) return t;
  n = std::min(n, kMaxDimensions);
  t.dims.assign(dims, dims + n);
  t.strides.assign(strides, strides + n);
  return t;
}

Tensor filter(const void* descriptor) {
  static auto* f = function<int(const void*, int, int*, int*, int*, int*)>("cudnnGetFilterNdDescriptor");
  Tensor t;
  int n = 0, dims[kMaxDimensions] = {}, format = 0;
  if (!descriptor || f(descriptor, kMaxDimensions, &t.type, &format, &n, dims)) return t;
  t.dims.assign(dims, dims + std::min(n, kMaxDimensions));
  return t;
}

// One algorithm for every convolution, with the workspace of the stated rule.
int one_algorithm(Direction direction, const Tensor& x, const Tensor& w, const Tensor& y, int wanted, int* found,
                  AlgorithmPerformance* results) {
  Convolution c{direction, x, w, y};
  *found = wanted < 1 ? 0 : 1;
  if (!*found) return kSuccess;
  int64_t own = substitute_workspace(c);
  results[0] = AlgorithmPerformance{};
  results[0].algorithm = 1;  // precomputed implicit GEMM; deterministic for gradients
  results[0].memory = (size_t)chosen_workspace(c, own);
  results[0].determinism = 1;
  results[0].milliseconds = 1.0f;
  vgpu_note("substitute", "cuDNN convolution of the v7 API: no device-less form");
  log_plan("v7", c, own, "");
  return kSuccess;
}
int one_workspace(Direction direction, const Tensor& x, const Tensor& w, const Tensor& y, size_t* bytes) {
  Convolution c{direction, x, w, y};
  *bytes = (size_t)chosen_workspace(c, substitute_workspace(c));
  return kSuccess;
}

}  // namespace
}  // namespace peakmem::cudnn

using namespace peakmem;
using namespace peakmem::cudnn;

// ----------------------------------------------------- convolutions, v7 ---

PEAKMEM_API int cudnnGetConvolutionForwardAlgorithm_v7(void*, void* x, void* w, void*, void* y, int wanted, int* found,
                                                       AlgorithmPerformance* results) {
  return one_algorithm(Direction::kForward, tensor(x), filter(w), tensor(y), wanted, found, results);
}
PEAKMEM_API int cudnnGetConvolutionBackwardDataAlgorithm_v7(void*, void* w, void* dy, void*, void* dx, int wanted, int* found,
                                                            AlgorithmPerformance* results) {
  return one_algorithm(Direction::kBackwardData, tensor(dx), filter(w), tensor(dy), wanted, found, results);
}
PEAKMEM_API int cudnnGetConvolutionBackwardFilterAlgorithm_v7(void*, void* x, void* dy, void*, void* dw, int wanted, int* found,
                                                              AlgorithmPerformance* results) {
  return one_algorithm(Direction::kBackwardFilter, tensor(x), filter(dw), tensor(dy), wanted, found, results);
}
PEAKMEM_API int cudnnFindConvolutionForwardAlgorithmEx(void*, void* x, const void*, void* w, const void*, void*, void* y, void*,
                                                       int wanted, int* found, AlgorithmPerformance* results, void*, size_t) {
  return one_algorithm(Direction::kForward, tensor(x), filter(w), tensor(y), wanted, found, results);
}
PEAKMEM_API int cudnnFindConvolutionBackwardDataAlgorithmEx(void*, void* w, const void*, void* dy, const void*, void*, void* dx,
                                                            void*, int wanted, int* found, AlgorithmPerformance* results, void*,
                                                            size_t) {
  return one_algorithm(Direction::kBackwardData, tensor(dx), filter(w), tensor(dy), wanted, found, results);
}
PEAKMEM_API int cudnnFindConvolutionBackwardFilterAlgorithmEx(void*, void* x, const void*, void* dy, const void*, void*, void* dw,
                                                              void*, int wanted, int* found, AlgorithmPerformance* results, void*,
                                                              size_t) {
  return one_algorithm(Direction::kBackwardFilter, tensor(x), filter(dw), tensor(dy), wanted, found, results);
}
PEAKMEM_API int cudnnGetConvolutionForwardWorkspaceSize(void*, void* x, void* w, void*, void* y, int, size_t* bytes) {
  return one_workspace(Direction::kForward, tensor(x), filter(w), tensor(y), bytes);
}
PEAKMEM_API int cudnnGetConvolutionBackwardDataWorkspaceSize(void*, void* w, void* dy, void*, void* dx, int, size_t* bytes) {
  return one_workspace(Direction::kBackwardData, tensor(dx), filter(w), tensor(dy), bytes);
}
PEAKMEM_API int cudnnGetConvolutionBackwardFilterWorkspaceSize(void*, void* x, void* dy, void*, void* dw, int, size_t* bytes) {
  return one_workspace(Direction::kBackwardFilter, tensor(x), filter(dw), tensor(dy), bytes);
}

// ----------------------------------------------------------------- dropout ---

// One 48-byte XORWOW generator state (cuRAND's documentation) for each resident thread of the device.
PEAKMEM_API int cudnnDropoutGetStatesSize(void*, size_t* bytes) {
  return estimate(bytes, (int64_t)48 * vgpu_attr(kMultiprocessors) * vgpu_attr(kThreadsPerMultiprocessor),
                  "cuDNN dropout states: 48 bytes for each resident thread");
}

// --------------------------------------------------------------------- CTC ---

// The forward variables alpha of every step for labels with blanks between them (2 L + 1 states), and those of the backward
// pass, in fp32; L is taken as at most 256, the longest label that cuDNN takes (PyTorch 2.14.1, LossCTC.cpp).
static int ctc_workspace(const void* probabilities, size_t* bytes) {
  Tensor t = tensor(probabilities);  // steps x batch x classes
  int64_t cells = t.dims.size() == 3 ? t.dims[0] * t.dims[1] : 0;
  return estimate(bytes, cells * 2 * (2 * 256 + 1) * 4, "cuDNN CTC workspace: steps x batch x 2 x 513 states x 4 bytes");
}
PEAKMEM_API int cudnnGetCTCLossWorkspaceSize(void*, void* probabilities, void*, const int*, const int*, const int*, int, void*,
                                             size_t* bytes) {
  return ctc_workspace(probabilities, bytes);
}
PEAKMEM_API int cudnnGetCTCLossWorkspaceSize_v8(void*, int, void*, void* probabilities, void*, size_t* bytes) {
  return ctc_workspace(probabilities, bytes);
}
