// The rest of the runtime's functions (of CUDA 12.4 and 13.0, graphics left out), so that none is left to the real library,
// which would report that there is no driver. Those of the last group fail, and the report names them.
#include <stdlib.h>

#include "cuda_declarations.h"
#include "device.h"
#include "notes.h"

using namespace peakmem;

API int cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return allocate(p, *pitch * height);
}

// Only ask for work, or change what has no effect here.
#define DONE(name) API int name() { return kSuccess; }
DONE(cudaDeviceFlushGPUDirectRDMAWrites) DONE(cudaDeviceSetSharedMemConfig) DONE(cudaGraphAddDependencies_v2) DONE(cudaGraphDestroyNode)
DONE(cudaGraphEventRecordNodeSetEvent) DONE(cudaGraphEventWaitNodeSetEvent) DONE(cudaGraphExecChildGraphNodeSetParams)
DONE(cudaGraphExecEventRecordNodeSetEvent) DONE(cudaGraphExecEventWaitNodeSetEvent) DONE(cudaGraphExecHostNodeSetParams)
DONE(cudaGraphExecKernelNodeSetParams) DONE(cudaGraphExecMemcpyNodeSetParams) DONE(cudaGraphExecMemcpyNodeSetParams1D)
DONE(cudaGraphExecMemcpyNodeSetParamsFromSymbol) DONE(cudaGraphExecMemcpyNodeSetParamsToSymbol) DONE(cudaGraphExecMemsetNodeSetParams)
DONE(cudaGraphExecNodeSetParams) DONE(cudaGraphHostNodeSetParams) DONE(cudaGraphKernelNodeCopyAttributes) DONE(cudaGraphKernelNodeSetAttribute)
DONE(cudaGraphKernelNodeSetParams) DONE(cudaGraphMemcpyNodeSetParams) DONE(cudaGraphMemcpyNodeSetParams1D)
DONE(cudaGraphMemcpyNodeSetParamsFromSymbol) DONE(cudaGraphMemcpyNodeSetParamsToSymbol) DONE(cudaGraphMemsetNodeSetParams)
DONE(cudaGraphNodeSetEnabled) DONE(cudaGraphNodeSetParams) DONE(cudaGraphRemoveDependencies) DONE(cudaGraphRemoveDependencies_v2)
DONE(cudaLogsRegisterCallback) DONE(cudaLogsUnregisterCallback) DONE(cudaMemAdvise_v2) DONE(cudaMemPrefetchAsync_v2) DONE(cudaMemset2D)
DONE(cudaMemset2DAsync) DONE(cudaMemset3D) DONE(cudaMemset3DAsync) DONE(cudaSetValidDevices) DONE(cudaStreamAttachMemAsync)
DONE(cudaStreamCopyAttributes) DONE(cudaStreamSetAttribute) DONE(cudaThreadExit) DONE(cudaThreadSynchronize)

// A node of a graph that is never looked into.
#define NODE(name) API int name(cudaGraphNode_t *node) { return *node = (cudaGraphNode_t)malloc(1), kSuccess; }
NODE(cudaGraphAddChildGraphNode) NODE(cudaGraphAddEventRecordNode) NODE(cudaGraphAddEventWaitNode) NODE(cudaGraphAddHostNode)
NODE(cudaGraphAddMemAllocNode) NODE(cudaGraphAddMemFreeNode) NODE(cudaGraphAddMemcpyNode) NODE(cudaGraphAddMemcpyNode1D)
NODE(cudaGraphAddMemcpyNodeFromSymbol) NODE(cudaGraphAddMemcpyNodeToSymbol) NODE(cudaGraphAddMemsetNode)

#define UNSUPPORTED(name) API int name() { return unsupported(#name); }
UNSUPPORTED(cudaChooseDevice) UNSUPPORTED(cudaDeviceGetHostAtomicCapabilities) UNSUPPORTED(cudaDeviceGetP2PAtomicCapabilities)
UNSUPPORTED(cudaDeviceGetSharedMemConfig) UNSUPPORTED(cudaDeviceRegisterAsyncNotification) UNSUPPORTED(cudaDeviceUnregisterAsyncNotification)
UNSUPPORTED(cudaFuncGetParamInfo) UNSUPPORTED(cudaGetSymbolSize) UNSUPPORTED(cudaGraphChildGraphNodeGetGraph) UNSUPPORTED(cudaGraphClone)
UNSUPPORTED(cudaGraphEventRecordNodeGetEvent) UNSUPPORTED(cudaGraphEventWaitNodeGetEvent) UNSUPPORTED(cudaGraphExecGetFlags)
UNSUPPORTED(cudaGraphGetEdges_v2) UNSUPPORTED(cudaGraphGetRootNodes) UNSUPPORTED(cudaGraphHostNodeGetParams)
UNSUPPORTED(cudaGraphKernelNodeGetAttribute) UNSUPPORTED(cudaGraphKernelNodeGetParams) UNSUPPORTED(cudaGraphMemAllocNodeGetParams)
UNSUPPORTED(cudaGraphMemFreeNodeGetParams) UNSUPPORTED(cudaGraphMemcpyNodeGetParams) UNSUPPORTED(cudaGraphMemsetNodeGetParams)
UNSUPPORTED(cudaGraphNodeFindInClone) UNSUPPORTED(cudaGraphNodeGetDependentNodes) UNSUPPORTED(cudaGraphNodeGetDependentNodes_v2)
UNSUPPORTED(cudaGraphNodeGetEnabled) UNSUPPORTED(cudaGraphReleaseUserObject) UNSUPPORTED(cudaHostGetFlags)
UNSUPPORTED(cudaLaunchCooperativeKernelMultiDevice) UNSUPPORTED(cudaLibraryEnumerateKernels) UNSUPPORTED(cudaLibraryGetKernelCount)
UNSUPPORTED(cudaLibraryGetManaged) UNSUPPORTED(cudaLibraryGetUnifiedFunction) UNSUPPORTED(cudaLibraryLoadFromFile) UNSUPPORTED(cudaLogsCurrent)
UNSUPPORTED(cudaLogsDumpToFile) UNSUPPORTED(cudaLogsDumpToMemory) UNSUPPORTED(cudaMalloc3D) UNSUPPORTED(cudaMemDiscardAndPrefetchBatchAsync)
UNSUPPORTED(cudaMemDiscardBatchAsync) UNSUPPORTED(cudaMemGetDefaultMemPool) UNSUPPORTED(cudaMemGetMemPool) UNSUPPORTED(cudaMemPoolExportPointer)
UNSUPPORTED(cudaMemPoolExportToShareableHandle) UNSUPPORTED(cudaMemPoolGetAccess) UNSUPPORTED(cudaMemPoolImportFromShareableHandle)
UNSUPPORTED(cudaMemPoolImportPointer) UNSUPPORTED(cudaMemPrefetchBatchAsync) UNSUPPORTED(cudaMemRangeGetAttribute)
UNSUPPORTED(cudaMemRangeGetAttributes) UNSUPPORTED(cudaMemSetMemPool) UNSUPPORTED(cudaMemcpy3D) UNSUPPORTED(cudaMemcpy3DAsync)
UNSUPPORTED(cudaMemcpy3DBatchAsync) UNSUPPORTED(cudaMemcpy3DPeer) UNSUPPORTED(cudaMemcpy3DPeerAsync) UNSUPPORTED(cudaMemcpyBatchAsync)
UNSUPPORTED(cudaSetDoubleForDevice) UNSUPPORTED(cudaSetDoubleForHost) UNSUPPORTED(cudaStreamGetAttribute) UNSUPPORTED(cudaThreadGetCacheConfig)
UNSUPPORTED(cudaThreadGetLimit) UNSUPPORTED(cudaThreadSetCacheConfig) UNSUPPORTED(cudaThreadSetLimit)
