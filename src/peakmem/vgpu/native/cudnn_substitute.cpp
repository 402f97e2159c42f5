// cudnn_substitute.cpp - see cudnn_substitute.h.
//
// A store of attributes in which every engine exists and every plan can be built.  Heuristics name two engines: the first
// has the workspace of the stated rule (cudnn_convolution.cpp), the second has none, as on a real card, where PyTorch goes
// on to a smaller plan when the first one does not fit.
#include "cudnn_substitute.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "cudnn_convolution.h"
#include "cudnn_declarations.h"
#include "libraries.h"

namespace peakmem::cudnn::substitute {
namespace {

struct Object;
using Pointer = std::shared_ptr<Object>;

struct Value {
  int type = 0;
  int64_t count = 0;
  std::vector<char> bytes;
  std::vector<Pointer> objects;  // where the type is a descriptor
};
struct Object {
  int kind = 0;
  std::map<int, Value> values;
};

struct Store {
  std::mutex mutex;
  std::unordered_map<void*, Pointer> objects;
};
Store& store() {
  static auto* s = new Store;
  return *s;
}

constexpr int64_t kEngines = 2;

size_t element(int type) {
  switch (type) {
    case kTypeHandle:
    case kTypeInt64:
    case 5:  // double
    case 6:  // pointer
    case kTypeDescriptor: return 8;
    case kTypeBoolean:
    case kTypeChar: return 1;
    case 26: return 16;  // fraction
    default: return 4;
  }
}

Pointer find(void* d) {
  auto it = store().objects.find(d);
  return it == store().objects.end() ? nullptr : it->second;
}

Value numbers(int64_t v) {
  Value out;
  out.type = kTypeInt64;
  out.count = 1;
  out.bytes.resize(sizeof v);
  memcpy(out.bytes.data(), &v, sizeof v);
  return out;
}
Value descriptor(const Pointer& p) {
  Value out;
  out.type = kTypeDescriptor;
  out.count = 1;
  out.objects = {p};
  return out;
}

const Value* value(const Pointer& o, int attribute) {
  if (!o) return nullptr;
  auto it = o->values.find(attribute);
  return it == o->values.end() ? nullptr : &it->second;
}
Pointer member(const Pointer& o, int attribute) {
  const Value* v = value(o, attribute);
  return v && !v->objects.empty() ? v->objects[0] : nullptr;
}
int64_t number(const Pointer& o, int attribute) {
  const Value* v = value(o, attribute);
  int64_t n = 0;
  if (v && !v->bytes.empty()) memcpy(&n, v->bytes.data(), std::min(v->bytes.size(), sizeof n));
  return n;
}

Tensor tensor(const Pointer& o) {
  Tensor t;
  t.type = (int)number(o, kTensorType);
  auto list = [&](int attribute, std::vector<int64_t>& out) {
    if (const Value* v = value(o, attribute)) {
      out.resize((size_t)v->count);
      memcpy(out.data(), v->bytes.data(), v->bytes.size());
    }
  };
  list(kTensorDimensions, t.dims);
  list(kTensorStrides, t.strides);
  return t;
}

int64_t workspace(const Pointer& plan) {
  Pointer engine = member(member(plan, kPlanConfig), kConfigEngine);
  const Value* operations = value(member(engine, kEngineGraph), kGraphOperations);
  if (!operations || number(engine, kEngineIndex) > 0) return 0;
  for (const Pointer& operation : operations->objects) {
    Convolution c;
    for (const auto& [attribute, v] : operation->values)
      if (!v.objects.empty()) add_part(c, attribute, tensor(v.objects[0]));
    if (c) return substitute_workspace(c);
  }
  return 0;  // attention: the library in front of cuDNN adds its own accumulators
}

int heuristics_results(const Pointer& heuristics, int64_t wanted, int64_t* found, void* values) {
  int64_t n = wanted > 0 ? std::min(wanted, kEngines) : kEngines;
  if (found) *found = n;
  for (int64_t i = 0; values && wanted > 0 && i < n; i++) {
    Pointer config = find(static_cast<void**>(values)[i]);
    if (!config) return kBadParam;
    auto engine = std::make_shared<Object>();
    engine->kind = kEngine;
    if (Pointer graph = member(heuristics, kHeuristicsGraph)) engine->values[kEngineGraph] = descriptor(graph);
    engine->values[kEngineIndex] = numbers(i);
    config->values[kConfigEngine] = descriptor(engine);
  }
  return kSuccess;
}

}  // namespace

int create(int type, void** out) {
  auto o = std::make_shared<Object>();
  o->kind = type;
  std::lock_guard<std::mutex> guard(store().mutex);
  store().objects[o.get()] = o;
  *out = o.get();
  return kSuccess;
}

int destroy(void* d) {
  std::lock_guard<std::mutex> guard(store().mutex);
  store().objects.erase(d);
  return kSuccess;
}

int set(void* d, int attribute, int type, int64_t count, const void* values) {
  std::lock_guard<std::mutex> guard(store().mutex);
  Pointer o = find(d);
  if (!o || count < 0 || (count && !values)) return kBadParam;
  Value v;
  v.type = type;
  v.count = count;
  if (type == kTypeDescriptor) {
    for (int64_t i = 0; i < count; i++) {
      Pointer p = find(static_cast<void* const*>(values)[i]);
      if (!p) return kBadParam;
      v.objects.push_back(p);
    }
  } else {
    auto* bytes = static_cast<const char*>(values);
    v.bytes.assign(bytes, bytes + (size_t)count * element(type));
  }
  o->values[attribute] = std::move(v);
  return kSuccess;
}

int get(void* d, int attribute, int, int64_t wanted, int64_t* found, void* values) {
  std::lock_guard<std::mutex> guard(store().mutex);
  Pointer o = find(d);
  if (!o) return kBadParam;
  if (attribute == kHeuristicsResults) return heuristics_results(o, wanted, found, values);
  Value computed;
  const Value* v = value(o, attribute);
  if (attribute == kPlanWorkspace) computed = numbers(workspace(o)), v = &computed;
  if (attribute == kGraphEngineCount) computed = numbers(kEngines), v = &computed;
  if (found) *found = v ? v->count : 0;
  if (!v || !values) return kSuccess;
  int64_t n = std::min(wanted, v->count);
  if (v->type != kTypeDescriptor) {
    memcpy(values, v->bytes.data(), (size_t)n * element(v->type));
    return kSuccess;
  }
  for (int64_t i = 0; i < n; i++)  // the caller has made the descriptors; they are filled
    if (Pointer target = find(static_cast<void**>(values)[i])) target->values = v->objects[(size_t)i]->values;
  return kSuccess;
}

int finalize(void* d) {
  std::lock_guard<std::mutex> guard(store().mutex);
  Pointer o = find(d);
  if (!o) return kBadParam;
  if (o->kind == kExecutionPlan) vgpu_note("substitute", "cuDNN plan: this version can't plan without a device (9.8 can)");
  return kSuccess;
}

}  // namespace peakmem::cudnn::substitute
