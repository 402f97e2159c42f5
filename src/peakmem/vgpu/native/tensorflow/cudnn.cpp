// cudnn.cpp - goes by the name of cuDNN in front of TensorFlow, which opens its libraries by name.
//
// What the virtual GPU answers itself is found behind this library, in the one that it is linked with. The rest works on
// descriptors on the host: the names lead to the installed cuDNN itself. PyTorch, which is linked with cuDNN, does without.
#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>


namespace {

const int kNotSupported = 3000;  // CUDNN_STATUS_NOT_SUPPORTED of cuDNN 9
int missing() { return kNotSupported; }

void* real(const char* name) {
  static void* library = [] {
    const char* chosen = getenv("PEAKMEM_VGPU_CUDNN_LIBRARY");
    if (!chosen || !*chosen) return (void*)nullptr;
    char path[4096];
    snprintf(path, sizeof path, strstr(chosen, ".so") ? "%s" : "%s/libcudnn.so.9", chosen);
    void* found = dlopen(path, RTLD_LAZY);
    if (!found) fprintf(stderr, "[peakmem] %s: %s\n", path, dlerror());
    return found;
  }();
  void* function = library ? dlsym(library, name) : nullptr;
  return function ? function : (void*)missing;
}

}  // namespace

// A name is resolved when TensorFlow looks it up, and from then on leads to cuDNN without a step in between.
#define FORWARD(name)                                         \
  extern "C" void* resolve_##name() { return real(#name); }   \
  extern "C" __attribute__((visibility("default"), ifunc("resolve_" #name))) void name();
#define LAUNCH(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return 0; }
#define UNSUPPORTED(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return kNotSupported; }

#include "cudnn.def"
