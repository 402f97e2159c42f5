// The operators of TensorFlow, as its GPU device runs them.
//
// tensorflow::BaseGPUDevice's virtual table names Compute and ComputeAsync by symbol, so the calls come here first (TensorFlow
// 2.21, core/common_runtime/gpu/gpu_device.h). An operator says what it is by OpKernel::TraceString ("name:type"), and each
// request to the allocator carries TensorFlow's own annotation for its memory profiler
// (tsl/profiler/lib/scoped_memory_debug_annotation.h), in a variable of the thread.
#include "tensorflow_operators.h"

#include <dlfcn.h>

#include <functional>
#include <string_view>

#include "control.h"
#include "cuda_declarations.h"

namespace peakmem {
namespace {

template <class F>
F real(const char *name) {
  void *library = dlopen("libtensorflow_framework.so.2", RTLD_LAZY | RTLD_NOLOAD);
  void *found = library ? dlsym(library, name) : nullptr;
  return (F)(found ? found : dlsym(RTLD_NEXT, name));
}

// tsl::profiler::MemoryDebugAnnotation.
struct Annotation {
  std::string_view op;
  int64_t step;
  std::string_view region;
  int32_t type;
  std::function<std::string()> shape;
};

typedef Annotation *(*Current)();
Current annotation_of_thread() {
  // The layout above is the one since names are views of the standard library's own kind: this constructor tells.
  static Current f =
      real<void *>("_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2ESt17basic_string_viewIcSt11char_traitsIcEElS5_iOSt8functionIFNSt7__cxx1112basic_stringIcS4_"
                   "SaIcEEEvEE")
          ? real<Current>("_ZN3tsl8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEv")
          : nullptr;
  return f;
}

std::string described(void *kernel, void *context) {
  typedef std::string (*TraceString)(const void *, const void *, bool);
  static TraceString f = real<TraceString>("_ZNK10tensorflow8OpKernel11TraceStringB5cxx11ERKNS_15OpKernelContextEb");
  return f ? f(kernel, context, false) : std::string();
}

struct Thread {
  std::string running, last;
};
// Never destroyed: chunks are taken back while a thread ends.
thread_local Thread *t_thread = nullptr;
Thread &thread() {
  if (!t_thread) t_thread = new Thread;
  return *t_thread;
}

struct Running {
  std::string before;
  Running(void *kernel, void *context) {
    before.swap(thread().running);
    thread().running = described(kernel, context);
  }
  ~Running() {
    thread().last.swap(thread().running);
    thread().running.swap(before);
  }
};

Region region_of(std::string_view name) {
  if (name == "output") return Region::kOutput;
  if (name == "temp") return Region::kTemp;
  if (name == "persist" || name == "persistent") return Region::kPersistent;
  if (name == "dynamic") return Region::kDynamic;
  return Region::kUnknown;
}

}  // namespace

Asked asked_now(bool taken_back) {
  Asked asked;
  Thread &t = thread();
  asked.running = !t.running.empty();
  asked.op = asked.running ? t.running : t.last;
  if (taken_back || !annotation_of_thread()) return asked;
  Annotation *annotation = annotation_of_thread()();
  if (!asked.running) asked.op = std::string(annotation->op);
  asked.region = region_of(annotation->region);
  asked.type = annotation->type;
  if (annotation->shape) asked.shape = annotation->shape();
  return asked;
}

}  // namespace peakmem

API void _ZN10tensorflow13BaseGPUDevice7ComputeEPNS_8OpKernelEPNS_15OpKernelContextE(void *self, void *kernel, void *context) {
  typedef void (*Compute)(void *, void *, void *);
  static Compute compute = peakmem::real<Compute>("_ZN10tensorflow13BaseGPUDevice7ComputeEPNS_8OpKernelEPNS_15OpKernelContextE");
  peakmem::Running running(kernel, context);
  compute(self, kernel, context);
}
// `done` is a std::function, which is passed by the address of a copy that the caller owns.
API void _ZN10tensorflow13BaseGPUDevice12ComputeAsyncEPNS_13AsyncOpKernelEPNS_15OpKernelContextESt8functionIFvvEE(void *self, void *kernel, void *context,
                                                                                                                   void *done) {
  typedef void (*Compute)(void *, void *, void *, void *);
  static Compute compute =
      peakmem::real<Compute>("_ZN10tensorflow13BaseGPUDevice12ComputeAsyncEPNS_13AsyncOpKernelEPNS_15OpKernelContextESt8functionIFvvEE");
  peakmem::Running running(kernel, context);
  compute(self, kernel, context, done);
}
API void peakmem_forget_last_operator(void) { peakmem::thread().last.clear(); }
