#include "stitching.h"

#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "config.h"
#include "device.h"
#include "kept.h"

namespace peakmem {
namespace {

// GpuDeviceArrayStruct (TensorFlow 2.21, tensorflow/core/kernels/gpu_device_array_gpu.h): few values lie in the argument itself,
// more of them in memory of the device.
template <class T>
struct DeviceArray {
  int32_t size;
  T inline_values[8];
  T *values;
  const T *data() const { return size <= 8 ? inline_values : values; }
};

const int kMostElements = 512;

struct Kernels {
  std::mutex mutex;
  std::map<const void *, int> bytes;  // of an element, by the kernel
};
Kernels &kernels() {
  static Kernels *k = new Kernels;
  return *k;
}

// DynamicStitchKernel (tensorflow/core/kernels/dynamic_stitch_op_gpu.cu.cc): each slice of the output is copied from where the
// indices say; what no index names stays as it is.
void carry_out(int bytes, void **arguments) {
  int32_t slice = *(int32_t *)arguments[0], elements = *(int32_t *)arguments[1];
  auto *indices = (const DeviceArray<int32_t> *)arguments[2];
  auto *sources = (const DeviceArray<const char *> *)arguments[3];
  char *to = *(char **)arguments[4];
  if (slice <= 0 || elements <= 0 || elements > kMostElements || (size_t)(elements * bytes) > config().store) return;
  if (indices->size > 8 && !is_kept(indices->values, (size_t)indices->size * sizeof(int32_t))) return;
  if (sources->size > 8 && !is_kept(sources->values, (size_t)sources->size * sizeof(char *))) return;
  for (int32_t i = 0; i < elements; i++) {
    int32_t from = i / slice < indices->size ? indices->data()[i / slice] : -1;
    if (from < 0 || from >= sources->size) continue;
    const char *source = sources->data()[from] + (i % slice) * bytes;
    if (!is_kept(source, (size_t)bytes)) {
      forget_kept(to + i * bytes, (size_t)bytes);
      continue;
    }
    memcpy(to + i * bytes, source, (size_t)bytes);
    note_kept(to + i * bytes, (size_t)bytes);
  }
}

}  // namespace

void note_kernel(const void *function, const char *name) {
  if (!config().driver || !strstr(name, "DynamicStitchKernelI")) return;
  char type = strstr(name, "DynamicStitchKernelI")[strlen("DynamicStitchKernelI")];
  int bytes = type == 'i' ? 4 : type == 'x' || type == 'l' ? 8 : 0;
  if (!bytes) return;
  Kernels &k = kernels();
  std::lock_guard<std::mutex> lock(k.mutex);
  k.bytes[function] = bytes;
}

void stitch(const void *function, void **arguments) {
  if (!config().driver || !arguments) return;
  Kernels &k = kernels();
  int bytes = 0;
  {
    std::lock_guard<std::mutex> lock(k.mutex);
    auto found = k.bytes.find(function);
    if (found != k.bytes.end()) bytes = found->second;
  }
  if (bytes) carry_out(bytes, arguments);
}

}  // namespace peakmem
