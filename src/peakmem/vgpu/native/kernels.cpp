#include "kernels.h"
#include "stitching.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "config.h"
#include "notes.h"
#include "streams.h"

namespace peakmem {
namespace {

std::atomic<unsigned long long> g_launches{0};

// PEAKMEM_VGPU_KERNEL_LOG: one line for each launch; names are kept only then (there are some 100,000 kernels).
struct KernelLog {
  std::mutex mutex;
  FILE *file = nullptr;
  std::unordered_map<const void *, const char *> names;
  KernelLog() {
    const char *path = getenv("PEAKMEM_VGPU_KERNEL_LOG");
    if (path && *path) file = fopen(path, "w");
  }
};
KernelLog &kernel_log() {
  static KernelLog *log = new KernelLog;
  return *log;
}

struct Call {
  dim3 grid, block;
  size_t shared;
  void *stream;
};
thread_local std::vector<Call> *t_calls = nullptr;

}  // namespace

void launch(const void *function, dim3 grid, dim3 block, size_t shared) {
  g_launches++;
  tick_work();
  KernelLog &log = kernel_log();
  if (!log.file) return;
  std::lock_guard<std::mutex> lock(log.mutex);
  auto name = log.names.find(function);
  fprintf(log.file, "%s\t%u,%u,%u\t%u,%u,%u\t%zu\n", name == log.names.end() ? "?" : name->second, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
}
unsigned long long launches() { return g_launches; }

int occupancy(int threads, size_t shared) {
  const Config &c = config();
  if (threads <= 0) return 1;
  int blocks = std::min(c.threads_per_multiprocessor / ((threads + 31) / 32 * 32), c.blocks_per_multiprocessor);
  if (shared) blocks = std::min(blocks, (int)((size_t)c.shared_per_multiprocessor / shared));
  return std::max(blocks, 1);
}

int code_capability() {
  static const int built[] = {50, 60, 70, 75, 80, 86, 90, 100, 120};
  int have = config().capability, best = 50;
  for (int b : built)
    if (b <= have && b / 10 == have / 10) best = b;
  return best;
}

}  // namespace peakmem

using namespace peakmem;

extern "C" void vgpu_log(const char *line) {
  KernelLog &log = kernel_log();
  if (!log.file) return;
  std::lock_guard<std::mutex> lock(log.mutex);
  fprintf(log.file, "%s\n", line);
}
API void peakmem_flush(void) {
  if (FILE *f = kernel_log().file) fflush(f);
}

API void **__cudaRegisterFatBinary(void *) {
  static void *handle[4];
  return handle;
}
API void __cudaRegisterFatBinaryEnd(void **) {}
API void __cudaUnregisterFatBinary(void **) {}
API void __cudaRegisterFunction(void **, const char *host, char *, const char *name, int, void *, void *, void *, void *, int *) {
  note_kernel(host, name);
  KernelLog &log = kernel_log();
  if (!log.file) return;
  std::lock_guard<std::mutex> lock(log.mutex);
  log.names[host] = name;
}
API void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
API void __cudaRegisterManagedVar(void **, void **, char *, const char *, int, size_t, int, int) {}
API char __cudaInitModule(void **) { return 1; }

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  if (!t_calls) t_calls = new std::vector<Call>;
  t_calls->push_back({grid, block, shared, stream});
  return 0;
}
API int __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
  if (!t_calls || t_calls->empty()) return fail(kInvalidConfiguration);
  Call call = t_calls->back();
  t_calls->pop_back();
  *grid = call.grid;
  *block = call.block;
  *shared = call.shared;
  *(void **)stream = call.stream;
  return kSuccess;
}
API int __cudaGetKernel(cudaKernel_t *k, const void *f) { return *k = (cudaKernel_t)f, kSuccess; }
API int cudaGetKernel(cudaKernel_t *k, const void *f) { return *k = (cudaKernel_t)f, kSuccess; }
API int cudaGetFuncBySymbol(cudaFunction_t *k, const void *f) { return *k = (cudaFunction_t)f, kSuccess; }
API int cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **arguments, size_t shared, cudaStream_t) {
  stitch(f, arguments);
  launch(f, grid, block, shared);
  return kSuccess;
}
API int __cudaLaunchKernel(cudaKernel_t k, dim3 grid, dim3 block, void **, size_t shared, cudaStream_t) {
  launch((const void *)k, grid, block, shared);
  return kSuccess;
}
API int cudaLaunchKernelExC(const LaunchConfig *c, const void *f, void **arguments) {
  stitch(f, arguments);
  launch(f, c->grid, c->block, c->dynamic_shared);
  return kSuccess;
}
API int cudaLaunchCooperativeKernel(const void *f, dim3 grid, dim3 block, void **, size_t shared, cudaStream_t) {
  launch(f, grid, block, shared);
  return kSuccess;
}
// No kernel is looked into: 32 registers, no static shared memory. These reach the size of small scratch blocks only.
API int cudaFuncGetAttributes(FunctionAttributes *a, const void *) {
  memset(a, 0, sizeof *a);
  a->max_threads_per_block = 1024;
  a->registers = 32;
  a->ptx_version = a->binary_version = code_capability();
  a->max_dynamic_shared = config().shared_per_block_optin;
  return kSuccess;
}
API int cudaFuncSetAttribute(const void *, int, int) { return kSuccess; }
API int cudaFuncSetCacheConfig(const void *, int) { return kSuccess; }
API int cudaFuncSetSharedMemConfig(const void *, int) { return kSuccess; }
API int cudaFuncGetName(const char **name, const void *) { return *name = "kernel", kSuccess; }
API int cudaKernelSetAttributeForDevice(cudaKernel_t, int, int, int) { return kSuccess; }
API int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *, int threads, size_t shared, unsigned) {
  return *n = occupancy(threads, shared), kSuccess;
}
API int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int threads, size_t shared) {
  return *n = occupancy(threads, shared), kSuccess;
}
API int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *n, const void *, int, int) { return *n = (size_t)config().shared_per_block_optin, kSuccess; }
API int cudaOccupancyMaxActiveClusters(int *n, const void *, const LaunchConfig *) { return *n = 8, kSuccess; }
API int cudaOccupancyMaxPotentialClusterSize(int *n, const void *, const LaunchConfig *) { return *n = 8, kSuccess; }
API int cudaLibraryLoadData(cudaLibrary_t *l, const void *code) { return *l = (cudaLibrary_t)code, kSuccess; }
API int cudaLibraryGetKernel(cudaKernel_t *k, cudaLibrary_t, const char *name) { return *k = (cudaKernel_t)strdup(name), kSuccess; }
API int cudaLibraryUnload(cudaLibrary_t) { return kSuccess; }
