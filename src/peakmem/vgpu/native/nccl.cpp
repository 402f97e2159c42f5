// nccl.cpp - NCCL: communicators that need no other rank, and collectives that do nothing.
//
// A collective neither allocates through PyTorch nor changes what a rank allocates, so one process stands for its rank.
// NCCL's own buffers lie outside PyTorch's allocator, with the CUDA context.  ncclGetVersion and ncclGetErrorString stay
// the real library's.
#include <cstring>
#include <string>

#include "libraries.h"
#include "uses.h"

using namespace peakmem;

extern "C" int cudaMalloc(void** address, size_t bytes);
extern "C" int cudaFree(void* address);

namespace {

struct UniqueId {  // ncclUniqueId
  char bytes[128];
};
struct Communicator {
  int rank, ranks;
};

int join(void** out, int rank, int ranks) {
  *out = new Communicator{rank, ranks};
  std::string what = "NCCL communicator of " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") + ": collectives do nothing";
  vgpu_note("substitute", what.c_str());
  return 0;
}
Communicator& communicator(const void* p) { return *static_cast<Communicator*>(const_cast<void*>(p)); }

}  // namespace

PEAKMEM_API int ncclGetUniqueId(UniqueId* id) {
  memset(id, 0, sizeof *id);
  id->bytes[0] = 1;
  return 0;
}
PEAKMEM_API int ncclCommGetUniqueId(void*, UniqueId* id) { return ncclGetUniqueId(id); }
PEAKMEM_API int ncclCommInitRank(void** out, int ranks, UniqueId, int rank) { return join(out, rank, ranks); }
PEAKMEM_API int ncclCommInitRankConfig(void** out, int ranks, UniqueId, int rank, void*) { return join(out, rank, ranks); }
PEAKMEM_API int ncclCommInitRankScalable(void** out, int ranks, int rank, int, UniqueId*, void*) { return join(out, rank, ranks); }
PEAKMEM_API int ncclCommInitAll(void** out, int count, const int*) {
  for (int i = 0; i < count; i++) join(&out[i], i, count);
  return 0;
}
PEAKMEM_API int ncclCommSplit(void* parent, int color, int, void** out, void*) {
  *out = nullptr;
  return color < 0 ? 0 : join(out, communicator(parent).rank, communicator(parent).ranks);
}
PEAKMEM_API int ncclCommShrink(void* parent, int*, int excluded, void** out, void*, int) {
  return join(out, 0, communicator(parent).ranks - excluded);
}
PEAKMEM_API int ncclCommDestroy(void* p) { return drop_opaque<Communicator>(p); }
PEAKMEM_API int ncclCommAbort(void* p) { return drop_opaque<Communicator>(p); }
PEAKMEM_API int ncclCommCount(const void* p, int* ranks) {
  *ranks = communicator(p).ranks;
  return 0;
}
PEAKMEM_API int ncclCommUserRank(const void* p, int* rank) {
  *rank = communicator(p).rank;
  return 0;
}
PEAKMEM_API int ncclCommCuDevice(const void*, int* device) {
  *device = 0;
  return 0;
}
PEAKMEM_API int ncclCommGetAsyncError(void*, int* error) {
  *error = 0;
  return 0;
}
PEAKMEM_API const char* ncclGetLastError(void*) { return ""; }
PEAKMEM_API int ncclRedOpCreatePreMulSum(int* op, void*, int, int, void*) {
  *op = 5;  // the first one after the built-in operations
  return 0;
}
PEAKMEM_API int ncclCommRegister(const void*, void* buffer, size_t, void** handle) {
  *handle = buffer;
  return 0;
}
// Collectives begin with what is sent and what is received (NCCL's documentation).
#define COLLECTIVE(name)                                             \
  PEAKMEM_API int name(const void* sent, const void* received) {     \
    vgpu_log(#name);                                                 \
    note_use(sent, Use::kCommunicated);                              \
    if (received != sent) note_use(received, Use::kCommunicated);    \
    return 0;                                                        \
  }
COLLECTIVE(ncclAllGather)
COLLECTIVE(ncclAllReduce)
COLLECTIVE(ncclAlltoAll)
COLLECTIVE(ncclBroadcast)
COLLECTIVE(ncclReduce)
COLLECTIVE(ncclReduceScatter)
#undef COLLECTIVE

PEAKMEM_API int ncclMemAlloc(void** address, size_t bytes) { return cudaMalloc(address, bytes); }
PEAKMEM_API int ncclMemFree(void* address) { return cudaFree(address); }
