// cudnn_library.cpp - see cudnn_library.h.
//
// Since 9.8 cuDNN's backend API takes a description of a device in place of a handle, which NVIDIA documents as deviceless
// ahead-of-time compilation (cuDNN backend API reference, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).  An ordinary handle needs
// NVIDIA's driver; the check for it is respected, so PyTorch gets a handle of ours that never reaches the library.
#include "cudnn_library.h"

#include "config.h"

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <libgen.h>
#include <mutex>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

namespace peakmem::cudnn {
namespace {

// Device attributes, by their number in the CUDA runtime (cudaDeviceAttr).
enum {
  kClockRate = 13,
  kMemoryClockRate = 36,
  kBusWidth = 37,
  kL2Size = 38,
  kThreadsPerMultiprocessor = 39,
  kSharedPerBlockOptin = 97,
  kBlocksPerMultiprocessor = 106,
  kReservedSharedPerBlock = 111,
};

struct Handles {
  std::mutex mutex;
  std::set<const void*> all;
};
Handles& handles() {
  static auto* h = new Handles;
  return *h;
}

std::string chosen_library() {
  const char* chosen = getenv("PEAKMEM_VGPU_CUDNN_LIBRARY");
  std::string path = chosen ? chosen : "";
  if (!path.empty() && path.find(".so") == std::string::npos) path += "/libcudnn.so.9";
  return path;
}

void* library() {
  static void* lib = [] {
    // For TensorFlow, which opens libraries by name, this one goes by cuDNN's name too.
    if (config().driver) return dlopen(chosen_library().c_str(), RTLD_LAZY);
    void* l = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_NOLOAD);  // PyTorch has loaded it
    return l ? l : dlopen("libcudnn.so.9", RTLD_LAZY);
  }();
  return lib;
}

// PEAKMEM_VGPU_CUDNN_LIBRARY names another libcudnn.so.9 (or its folder), e.g. a newer one.  Loaded before PyTorch's own,
// it takes its place, since the loader knows libraries by their name.  Only a Python process needs it.
__attribute__((constructor)) void load_chosen_library() {
  std::string path = chosen_library();
  if (path.empty() || config().driver) return;
  char self[4096] = "";
  if (readlink("/proc/self/exe", self, sizeof self - 1) <= 0 || !strstr(basename(self), "python")) return;
  if (!dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL)) fprintf(stderr, "[peakmem] %s: %s\n", path.c_str(), dlerror());
}

std::string device_json() {
  int cc = 0, sms = 0;
  size_t mem = 0;
  const char* name = "";
  vgpu_info(&cc, &sms, &mem, &name, nullptr);
  auto n = [](long long v) { return std::to_string(v); };
  struct Field {
    const char* key;
    std::string value;
  };
  std::vector<Field> fields = {
      {"version", n(version())},
      {"schema_version", "1"},
      {"deviceVer", n(cc / 10 * 100 + cc % 10 * 10)},
      {"driverVer", n(vgpu_cuda_version())},
      {"cudaDeviceId", "0"},
      {"deviceName", std::string("\"") + name + "\""},
      {"totalGlobalMem", n((long long)mem)},
      {"multiProcessorCount", n(sms)},
      {"smCountOrigin", "0"},
      {"warpSize", "32"},
      {"maxGridSize", "[2147483647, 65535, 65535]"},
      {"maxBlockSize", "[1024, 1024, 64]"},
      {"regsPerBlock", "65536"},
      {"maxSharedMemoryPerBlock", "49152"},
      {"maxSharedMemoryPerBlockOptin", n(vgpu_attr(kSharedPerBlockOptin))},
      {"reservedSharedMemoryPerBlock", n(vgpu_attr(kReservedSharedPerBlock))},
      {"maxRegistersPerSM", "65536"},
      {"maxCtasPerSM", n(vgpu_attr(kBlocksPerMultiprocessor))},
      {"maxThreadsPerBlock", "1024"},
      {"maxThreadsPerSM", n(vgpu_attr(kThreadsPerMultiprocessor))},
      {"smClockRateKHz", n(vgpu_attr(kClockRate))},
      {"memClockRateKHz", n(vgpu_attr(kMemoryClockRate))},
      {"l2CacheSize", n(vgpu_attr(kL2Size))},
      {"isTccDriver", "0"},
      {"supportCoopLaunch", "1"},
      {"pciDeviceId", "0"},
      {"oversizedSharedMemoryPerBlock", n(vgpu_attr(kSharedPerBlockOptin))},  // asked for since 9.25
      {"memoryBusWidth", n(vgpu_attr(kBusWidth))},
  };
  // PEAKMEM_VGPU_CUDNN_JSON=key=value,key=value replaces fields, for studies.
  if (const char* e = getenv("PEAKMEM_VGPU_CUDNN_JSON")) {
    std::string all = e;
    for (size_t i = 0; i < all.size();) {
      size_t j = all.find(',', i), q = all.find('=', i);
      if (j == std::string::npos) j = all.size();
      if (q == std::string::npos || q > j) break;
      for (Field& f : fields)
        if (all.compare(i, q - i, f.key) == 0) f.value = all.substr(q + 1, j - q - 1);
      i = j + 1;
    }
  }
  std::string text = "{";
  for (const Field& f : fields) text += (text.size() > 1 ? ", \"" : "\"") + std::string(f.key) + "\": " + f.value;
  return text + "}";
}

void* make_device_descriptor() {
  if (const char* e = getenv("PEAKMEM_VGPU_CUDNN_SUBSTITUTE"); e && *e == '1') return nullptr;  // for tests
  if (version() < 90800) return nullptr;
  void* d = nullptr;
  std::string json = device_json();
  int status = create(kDeviceProperty, &d);
  if (!status) status = set(d, kDeviceJson, kTypeChar, (int64_t)json.size() + 1, json.c_str());
  if (!status) status = finalize(d);
  if (!status) return d;
  char text[2048] = "";
  fprintf(stderr, "[peakmem] cuDNN %d refuses the description of the virtual GPU (%d): %s\n", version(), status,
          last_error(text, sizeof text));
  return nullptr;
}

}  // namespace

void* find(const char* name) {
  void* l = library();
  return l ? dlsym(l, name) : nullptr;
}
void* real(const char* name) {
  void* p = find(name);
  if (!p) {
    fprintf(stderr, "[peakmem] cuDNN has no %s here: is libcudnn.so.9 installed with this PyTorch?\n", name);
    abort();
  }
  return p;
}

int version() {
  static int v = [] {
    auto* f = reinterpret_cast<size_t (*)()>(find("cudnnGetVersion"));
    return f ? (int)f() : 0;
  }();
  return v;
}

int create(int type, void** d) {
  static auto* f = function<int(int, void**)>("cudnnBackendCreateDescriptor");
  return f(type, d);
}
int destroy(void* d) {
  static auto* f = function<int(void*)>("cudnnBackendDestroyDescriptor");
  return f(d);
}
int set(void* d, int attribute, int type, int64_t count, const void* values) {
  static auto* f = function<int(void*, int, int, int64_t, const void*)>("cudnnBackendSetAttribute");
  return f(d, attribute, type, count, values);
}
int get(void* d, int attribute, int type, int64_t wanted, int64_t* found, void* values) {
  static auto* f = function<int(void*, int, int, int64_t, int64_t*, void*)>("cudnnBackendGetAttribute");
  return f(d, attribute, type, wanted, found, values);
}
int finalize(void* d) {
  static auto* f = function<int(void*)>("cudnnBackendFinalize");
  return f(d);
}
const char* last_error(char* text, size_t size) {
  static auto* f = reinterpret_cast<void (*)(char*, size_t)>(find("cudnnGetLastErrorString"));
  if (size) text[0] = 0;
  if (f) f(text, size);
  return text;
}

void* device_descriptor() {
  static void* d = make_device_descriptor();
  return d;
}

bool is_ours(const void* handle) {
  std::lock_guard<std::mutex> guard(handles().mutex);
  return handles().all.count(handle) != 0;
}

}  // namespace peakmem::cudnn

using namespace peakmem;

PEAKMEM_API int cudnnCreate(void** handle) {
  auto* h = new cudnn::Handle;
  std::lock_guard<std::mutex> guard(cudnn::handles().mutex);
  cudnn::handles().all.insert(h);
  *handle = h;
  return cudnn::kSuccess;
}
PEAKMEM_API int cudnnDestroy(void* handle) {
  std::lock_guard<std::mutex> guard(cudnn::handles().mutex);
  if (cudnn::handles().all.erase(handle)) delete static_cast<cudnn::Handle*>(handle);
  return cudnn::kSuccess;
}
PEAKMEM_API int cudnnSetStream(void* handle, void* stream) {
  if (!cudnn::is_ours(handle)) return cudnn::kBadParam;
  static_cast<cudnn::Handle*>(handle)->stream = stream;
  return cudnn::kSuccess;
}
PEAKMEM_API int cudnnGetStream(void* handle, void** stream) {
  if (!cudnn::is_ours(handle)) return cudnn::kBadParam;
  *stream = static_cast<cudnn::Handle*>(handle)->stream;
  return cudnn::kSuccess;
}
