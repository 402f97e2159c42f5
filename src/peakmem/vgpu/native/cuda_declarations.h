// The part of CUDA's binary interface that PyTorch uses, declared in our own words.
//
// No header of NVIDIA is needed to build the virtual GPU. A declaration here states a fact of the binary interface: the
// width of an argument, the number behind an enumerator, the offset of a field. Where CUDA 12 and CUDA 13 differ, both
// forms are described and `cuda_version()` (config.h) says at run time which one the caller was compiled for.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define API extern "C" __attribute__((visibility("default")))

extern "C" {

// Handles are pointers to things that only the driver looks into.
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphNode_st *cudaGraphNode_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUuserObject_st *cudaUserObject_t;
typedef struct CUmemPoolHandle_st *cudaMemPool_t;
typedef struct CUfunc_st *cudaFunction_t;
typedef struct CUkern_st *cudaKernel_t;
typedef struct CUlib_st *cudaLibrary_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUlinkState_st *CUlinkState;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemHandle;  // CUmemGenericAllocationHandle
typedef unsigned long long cudaGraphConditionalHandle;
typedef int CUdevice;

struct dim3 {
  unsigned x, y, z;
};

typedef void (*cudaHostFn_t)(void *data);
}

// The runtime and the driver share the numbers of their errors (those below, at least).
enum Error : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidConfiguration = 9,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kPeerAlreadyEnabled = 704,
  kNotSupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalidated = 901,
  kUnknown = 999,
};

enum CaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureGone = 2 };
enum MemoryType : int { kMemoryUnregistered = 0, kMemoryHost = 1, kMemoryDevice = 2, kMemoryManaged = 3 };

// cudaDeviceAttr and CUdevice_attribute share their numbers.
enum Attribute : int {
  kAttrMaxThreadsPerBlock = 1,
  kAttrMaxBlockDimX = 2,
  kAttrMaxBlockDimY = 3,
  kAttrMaxBlockDimZ = 4,
  kAttrMaxGridDimX = 5,
  kAttrMaxGridDimY = 6,
  kAttrMaxGridDimZ = 7,
  kAttrMaxSharedMemoryPerBlock = 8,
  kAttrTotalConstantMemory = 9,
  kAttrWarpSize = 10,
  kAttrMaxPitch = 11,
  kAttrMaxRegistersPerBlock = 12,
  kAttrClockRate = 13,
  kAttrTextureAlignment = 14,
  kAttrMultiprocessorCount = 16,
  kAttrCanMapHostMemory = 19,
  kAttrConcurrentKernels = 31,
  kAttrPciBusId = 33,
  kAttrMemoryClockRate = 36,
  kAttrMemoryBusWidth = 37,
  kAttrL2CacheSize = 38,
  kAttrMaxThreadsPerMultiprocessor = 39,
  kAttrAsyncEngineCount = 40,
  kAttrUnifiedAddressing = 41,
  kAttrComputeCapabilityMajor = 75,
  kAttrComputeCapabilityMinor = 76,
  kAttrStreamPrioritiesSupported = 78,
  kAttrGlobalL1CacheSupported = 79,
  kAttrLocalL1CacheSupported = 80,
  kAttrMaxSharedMemoryPerMultiprocessor = 81,
  kAttrMaxRegistersPerMultiprocessor = 82,
  kAttrManagedMemory = 83,
  kAttrConcurrentManagedAccess = 89,
  kAttrComputePreemptionSupported = 90,
  kAttrCanUseHostPointerForRegisteredMemory = 91,
  kAttrCooperativeLaunch = 95,
  kAttrMaxSharedMemoryPerBlockOptin = 97,
  kAttrHostRegisterSupported = 99,
  kAttrVirtualMemoryManagementSupported = 102,
  kAttrPosixHandleSupported = 103,
  kAttrMaxBlocksPerMultiprocessor = 106,
  kAttrReservedSharedMemoryPerBlock = 111,
  kAttrMemoryPoolsSupported = 115,
  kAttrClusterLaunch = 120,
};

// cudaPointerAttributes; CUDA 13 has 64 bytes more behind these, which stay zero.
struct PointerAttributes {
  int type, device;
  void *device_pointer, *host_pointer;
};

// cudaFuncAttributes (144 bytes).
struct FunctionAttributes {
  size_t static_shared, constant, local;
  int max_threads_per_block, registers, ptx_version, binary_version, cache_mode_ca, max_dynamic_shared, carveout;
  int rest[23];
};
static_assert(sizeof(FunctionAttributes) == 144, "cudaFuncAttributes has 144 bytes");

// cudaLaunchConfig_t.
struct LaunchConfig {
  dim3 grid, block;
  size_t dynamic_shared;
  cudaStream_t stream;
  void *attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56, "cudaLaunchConfig_t has 56 bytes");

struct GraphEdge {  // cudaGraphEdgeData
  unsigned char bytes[8];
};
struct IpcHandle {  // cudaIpcMemHandle_t, cudaIpcEventHandle_t
  char bytes[64];
};

// CUmemAllocationProp, as far as it is read here: a kind, handle types, then the place.
struct AllocationProperties {
  int kind, handle_types, location_kind, location_id;
};
enum { kLocationDevice = 1 };
