// cudnn_backend.cpp - cuDNN's backend (graph) API: convolutions and attention.
//
// PyTorch passes its handle to the operation graph, the heuristics and the execution plan.  Where it does, cuDNN is given
// the description of the virtual device instead, so heuristics, engines and workspace sizes are cuDNN's own.  PyTorch takes
// the first plan that can be built (PyTorch 2.14.1, aten/src/ATen/native/cudnn/Conv_v8.cpp); running it does nothing.
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "cudnn_convolution.h"
#include "cudnn_library.h"
#include "cudnn_substitute.h"

namespace peakmem::cudnn {
namespace {

// What is remembered of descriptors that PyTorch makes: their kind, and shapes on the way to a plan.
struct Memory {
  std::mutex mutex;
  std::unordered_map<void*, int> kinds;
  std::unordered_map<void*, Tensor> tensors;
  std::unordered_map<void*, Convolution> operations;
  std::unordered_map<void*, Convolution> plans;
};
Memory& memory() {
  static auto* m = new Memory;
  return *m;
}

// The convolution of the graph that this thread made last: PyTorch builds its plans right after.
thread_local Convolution current;

void remember(void* d, int attribute, int type, int64_t count, const void* values) {
  if (count < 1 || !values) return;
  Memory& m = memory();
  std::lock_guard<std::mutex> guard(m.mutex);
  const auto* numbers = static_cast<const int64_t*>(values);
  auto* descriptors = static_cast<void* const*>(values);
  switch (attribute) {
    case kTensorDimensions: m.tensors[d].dims.assign(numbers, numbers + count); return;
    case kTensorStrides: m.tensors[d].strides.assign(numbers, numbers + count); return;
    case kTensorType: m.tensors[d].type = *static_cast<const int*>(values); return;
    case kGraphOperations:
      current = Convolution();
      for (int64_t i = 0; i < count && !current; i++)
        if (auto it = m.operations.find(descriptors[i]); it != m.operations.end()) current = it->second;
      return;
  }
  if (type != kTypeDescriptor) return;
  if (auto it = m.tensors.find(descriptors[0]); it != m.tensors.end()) add_part(m.operations[d], attribute, it->second);
}

void forget(void* d) {
  Memory& m = memory();
  std::lock_guard<std::mutex> guard(m.mutex);
  m.kinds.erase(d);
  m.tensors.erase(d);
  m.operations.erase(d);
  m.plans.erase(d);
}

int kind_of(void* d) {
  Memory& m = memory();
  std::lock_guard<std::mutex> guard(m.mutex);
  auto it = m.kinds.find(d);
  return it == m.kinds.end() ? -1 : it->second;
}

// The convolution that a finished plan belongs to.
Convolution convolution_of(void* plan) {
  Memory& m = memory();
  std::lock_guard<std::mutex> guard(m.mutex);
  auto it = m.plans.find(plan);
  return it == m.plans.end() ? Convolution() : it->second;
}

// The plan's workspace as its source gives it, in bytes.
int64_t own_workspace(void* plan) {
  int64_t bytes = 0, found = 0;
  int status = plans_without_device() ? get(plan, kPlanWorkspace, kTypeInt64, 1, &found, &bytes)
                                      : substitute::get(plan, kPlanWorkspace, kTypeInt64, 1, &found, &bytes);
  return status ? 0 : bytes;
}

void count_plan(const Convolution& c) {
  if (!c) {
    vgpu_note("plans", plans_without_device() ? "cuDNN graph (attention, ...): cuDNN's own plan without a device"
                                              : "cuDNN graph (attention, ...): plan of the substitute");
  } else if (mode() == Mode::kLeast) {
    vgpu_note("plans", "convolution: no workspace (mode least)");
  } else if (mode() == Mode::kLikely && taken_by_1x1_rule(c)) {
    vgpu_note("plans", "convolution: no workspace by the rule for 1x1 filters");
    vgpu_note("substitute", "cuDNN plan of a 1x1 convolution: no workspace, as on cards that were compared");
  } else {
    vgpu_note("plans", plans_without_device() ? "convolution: cuDNN's own plan without a device"
                                              : "convolution: plan of the substitute");
  }
}

void plan_finished(void* d, int status) {
  if (status) {
    char text[1024];
    log_plan(plans_without_device() ? "cudnn" : "substitute", current, -1, last_error(text, sizeof text));
    return;
  }
  {
    Memory& m = memory();
    std::lock_guard<std::mutex> guard(m.mutex);
    m.plans[d] = current;
  }
  count_plan(current);
  log_plan(plans_without_device() ? "cudnn" : "substitute", current, own_workspace(d), "");
}

}  // namespace
}  // namespace peakmem::cudnn

using namespace peakmem;
using namespace peakmem::cudnn;

PEAKMEM_API int cudnnBackendCreateDescriptor(int type, void** d) {
  int status = plans_without_device() ? create(type, d) : substitute::create(type, d);
  if (!status) {
    forget(*d);  // an address may be used again
    Memory& m = memory();
    std::lock_guard<std::mutex> guard(m.mutex);
    m.kinds[*d] = type;
  }
  return status;
}

PEAKMEM_API int cudnnBackendDestroyDescriptor(void* d) {
  forget(d);
  return plans_without_device() ? destroy(d) : substitute::destroy(d);
}

PEAKMEM_API int cudnnBackendSetAttribute(void* d, int attribute, int type, int64_t count, const void* values) {
  remember(d, attribute, type, count, values);
  if (!plans_without_device()) return substitute::set(d, attribute, type, count, values);
  if (type == kTypeHandle && count == 1 && values && is_ours(*static_cast<void* const*>(values))) {
    if (attribute == kGraphHandle) return kSuccess;
    if (attribute == kPlanHandle) {
      void* device = device_descriptor();
      return set(d, kPlanDevice, kTypeDescriptor, 1, &device);
    }
  }
  return set(d, attribute, type, count, values);
}

PEAKMEM_API int cudnnBackendFinalize(void* d) {
  int kind = kind_of(d), status;
  if (plans_without_device()) {
    if (kind == kEngineHeuristics || kind == kEngine) {
      void* device = device_descriptor();
      set(d, kind == kEngine ? kEngineDevice : kHeuristicsDevice, kTypeDescriptor, 1, &device);
    }
    status = finalize(d);
  } else {
    status = substitute::finalize(d);
  }
  if (kind == kExecutionPlan) plan_finished(d, status);
  return status;
}

PEAKMEM_API int cudnnBackendGetAttribute(void* d, int attribute, int type, int64_t wanted, int64_t* found, void* values) {
  int status = plans_without_device() ? get(d, attribute, type, wanted, found, values)
                                      : substitute::get(d, attribute, type, wanted, found, values);
  if (!status && attribute == kPlanWorkspace && values && wanted > 0) {
    auto* bytes = static_cast<int64_t*>(values);
    if (Convolution c = convolution_of(d)) *bytes = chosen_workspace(c, *bytes);
  }
  return status;
}

PEAKMEM_API int cudnnBackendExecute(void*, void*, void*) {
  vgpu_log("cudnnBackendExecute");
  return kSuccess;
}
