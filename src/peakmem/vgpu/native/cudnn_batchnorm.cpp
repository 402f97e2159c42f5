// cudnn_batchnorm.cpp - workspace and reserve of cuDNN's batch norm in training.
//
// PyTorch asks through calls that need a handle with a device (PyTorch 2.14.1, aten/src/ATen/native/cudnn/BatchNorm.cpp):
// mode "spatial persistent" for channels_last tensors, "spatial" for others.  For channels_last the same normalisation is
// put to cuDNN as a graph of one operation, which it plans without a device, and its first plan's workspace is taken: some
// 100 KiB.  Graphs of NCHW tensors are no guide, since their plans copy to NHWC, which the older kernels for NCHW need not;
// those are taken to have none.  The reserve holds the mask of a fused activation, which PyTorch does not ask for.
#include <array>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "cudnn_convolution.h"
#include "cudnn_library.h"
#include "libraries.h"

namespace peakmem::cudnn {
namespace {

constexpr int kMaxDimensions = 8;

Tensor shape_of(const void* descriptor) {
  static auto* f = function<int(const void*, int, int*, int*, int*, int*)>("cudnnGetTensorNdDescriptor");
  Tensor t;
  int n = 0, dims[kMaxDimensions] = {}, strides[kMaxDimensions] = {};
  if (!descriptor || f(descriptor, kMaxDimensions, &t.type, &n, dims, strides) || n > kMaxDimensions) return t;
  t.dims.assign(dims, dims + n);
  t.strides.assign(strides, strides + n);
  return t;
}

// Backend descriptors of one question, destroyed with it.  Any refusal makes the whole question fail.
class Question {
 public:
  ~Question() {
    for (auto it = made_.rbegin(); it != made_.rend(); ++it) destroy(*it);
  }
  void* make(int kind) {
    void* d = nullptr;
    if (create(kind, &d)) return failed_ = true, nullptr;
    made_.push_back(d);
    return d;
  }
  template <class T>
  void put(void* d, int attribute, int type, std::vector<T> values) {
    failed_ = failed_ || set(d, attribute, type, (int64_t)values.size(), values.data());
  }
  void link(void* d, int attribute, void* other) { put<void*>(d, attribute, kTypeDescriptor, {other}); }
  void finish(void* d) { failed_ = failed_ || finalize(d); }
  bool failed() const { return failed_; }

  void* tensor(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides, int type, char by_value = 0) {
    void* d = make(kTensor);
    put<int64_t>(d, kTensorId, kTypeInt64, {++ids_});
    put<int>(d, kTensorType, kTypeDataType, {type});
    put<int64_t>(d, kTensorDimensions, kTypeInt64, dims);
    put<int64_t>(d, kTensorStrides, kTypeInt64, strides);
    put<int64_t>(d, kTensorAlignment, kTypeInt64, {16});
    if (by_value) put<char>(d, kTensorByValue, kTypeBoolean, {by_value});
    finish(d);
    return d;
  }

  // Workspace of the first plan that can be built for a graph of one operation; negative if there is none.
  int64_t workspace(void* operation) {
    void* graph = make(kOperationGraph);
    link(graph, kGraphOperations, operation);
    finish(graph);
    void* heuristics = make(kEngineHeuristics);
    link(heuristics, kHeuristicsGraph, graph);
    put<int>(heuristics, kHeuristicsMode, kTypeHeuristicsMode, {kHeuristicsInstant});
    link(heuristics, kHeuristicsDevice, device_descriptor());
    finish(heuristics);
    if (failed_) return -1;
    std::array<void*, 4> configs;
    for (void*& c : configs) c = make(kEngineConfig);
    int64_t found = 0;
    if (get(heuristics, kHeuristicsResults, kTypeDescriptor, (int64_t)configs.size(), &found, configs.data())) return -1;
    for (int64_t i = 0; i < found && i < (int64_t)configs.size(); i++) {
      int64_t known = -1, count = 0;  // since 9.2 the configuration knows; building its plan would compile kernels
      if (!get(configs[(size_t)i], kConfigWorkspace, kTypeInt64, 1, &count, &known) && count == 1 && known >= 0) return known;
      Question one;
      void* plan = one.make(kExecutionPlan);
      one.link(plan, kPlanConfig, configs[(size_t)i]);
      one.link(plan, kPlanDevice, device_descriptor());
      one.finish(plan);
      int64_t bytes = 0, n = 0;
      if (!one.failed() && !get(plan, kPlanWorkspace, kTypeInt64, 1, &n, &bytes)) return bytes;
    }
    return -1;
  }

 private:
  std::vector<void*> made_;
  bool failed_ = false;
  int64_t ids_ = 0;
};

int64_t ask(const Tensor& x, bool backward) {
  Question q;
  int64_t channels = x.dims[1];
  std::vector<int64_t> one(x.dims.size(), 1), per_channel = one, strides(x.dims.size(), channels);
  per_channel[1] = channels;
  strides[1] = 1;
  auto parameter = [&] { return q.tensor(per_channel, strides, kFloat); };
  void* operation = q.make(backward ? kNormBackward : kNormForward);
  if (backward) {
    q.put<int>(operation, kNormBackwardMode, kTypeNormMode, {kGraphNormBatch});
    for (int a : {kNormBackwardX, kNormBackwardDy, kNormBackwardDx}) q.link(operation, a, q.tensor(x.dims, x.strides, x.type));
    for (int a : {kNormBackwardMean, kNormBackwardInverseVariance, kNormBackwardScale, kNormBackwardDscale, kNormBackwardDbias})
      q.link(operation, a, parameter());
  } else {
    q.put<int>(operation, kNormForwardMode, kTypeNormMode, {kGraphNormBatch});
    q.put<int>(operation, kNormForwardPhase, kTypeNormPhase, {kGraphNormTraining});
    for (int a : {kNormForwardX, kNormForwardY}) q.link(operation, a, q.tensor(x.dims, x.strides, x.type));
    for (int a : {kNormForwardMean, kNormForwardInverseVariance, kNormForwardScale, kNormForwardBias, kNormForwardRunningMean,
                  kNormForwardRunningVariance, kNormForwardNewRunningMean, kNormForwardNewRunningVariance})
      q.link(operation, a, parameter());
    for (int a : {kNormForwardEpsilon, kNormForwardAverageFactor}) q.link(operation, a, q.tensor(one, one, kFloat, 1));
  }
  q.finish(operation);
  return q.failed() ? -1 : q.workspace(operation);
}

int answer(int mode, const void* descriptor, bool backward, size_t* bytes) {
  *bytes = 0;
  if (mode != kSpatialPersistent || !plans_without_device()) {
    vgpu_note("estimate", mode == kSpatialPersistent ? "cuDNN batch norm workspace, channels_last: none"
                                                     : "cuDNN batch norm workspace, NCHW: none");
    return kSuccess;
  }
  Tensor x = shape_of(descriptor);
  static auto* mutex = new std::mutex;
  static auto* known = new std::map<std::tuple<std::vector<int64_t>, int, bool>, int64_t>;
  std::lock_guard<std::mutex> guard(*mutex);
  auto [it, fresh] = known->try_emplace({x.dims, x.type, backward}, -1);
  if (fresh && x.dims.size() >= 4) it->second = ask(x, backward);
  if (it->second >= 0) {
    vgpu_note("plans", "batch norm, channels_last: workspace of cuDNN's own plan without a device");
    *bytes = (size_t)it->second;
  } else {
    vgpu_note("estimate", "cuDNN batch norm workspace, channels_last: none");
  }
  return kSuccess;
}

}  // namespace
}  // namespace peakmem::cudnn

using namespace peakmem::cudnn;

PEAKMEM_API int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void*, int mode, int, void* x, void*, void*, void*, void*,
                                                                         size_t* bytes) {
  return answer(mode, x, false, bytes);
}
PEAKMEM_API int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void*, int mode, int, void* x, void*, void*, void*, void*, void*,
                                                                  void*, size_t* bytes) {
  return answer(mode, x, true, bytes);
}
PEAKMEM_API int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void*, int, int, void*, void*, size_t* bytes) {
  *bytes = 0;
  return kSuccess;
}
