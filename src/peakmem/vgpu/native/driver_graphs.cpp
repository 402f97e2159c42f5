// CUDA graphs under the driver's names: XLA builds its command buffers from them, node by node. As in graphs.cpp nothing of a
// graph is kept: nodes are tokens, and a launch does nothing.
#include <stdlib.h>

#include "cuda_declarations.h"
#include "device.h"
#include "notes.h"

using namespace peakmem;

extern "C" {
int cudaGraphCreate(cudaGraph_t *, unsigned);
int cudaGraphDestroy(cudaGraph_t);
int cudaGraphExecDestroy(cudaGraphExec_t);
int cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
int cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *);
int cudaStreamBeginCapture(cudaStream_t, int);
int cudaStreamBeginCaptureToGraph(cudaStream_t, cudaGraph_t, const cudaGraphNode_t *, const GraphEdge *, size_t, int);
int cudaStreamEndCapture(cudaStream_t, cudaGraph_t *);
int cudaStreamGetCaptureInfo_v2(cudaStream_t, int *, unsigned long long *, cudaGraph_t *, const cudaGraphNode_t **, size_t *);
int cudaThreadExchangeStreamCaptureMode(int *);
}

namespace {

int made(cudaGraphNode_t *node) { return *node = (cudaGraphNode_t)malloc(1), kSuccess; }
int made(cudaGraphExec_t *exec) { return *exec = (cudaGraphExec_t)malloc(1), kSuccess; }

// CUgraphNodeParams begins with the kind of the node; the graphs that a conditional node runs are made by the driver, and
// given back in the parameters (kind 13: handle, kind of condition, number, then the place for the graphs).
const int kConditional = 13;
struct NodeParameters {
  int kind, reserved[3];
  cudaGraphConditionalHandle handle;
  int condition;
  unsigned count;
  cudaGraph_t *graphs;
};

}  // namespace

API int cuGraphCreate(cudaGraph_t *g, unsigned flags) { return cudaGraphCreate(g, flags); }
API int cuGraphDestroy(cudaGraph_t g) { return cudaGraphDestroy(g); }
API int cuGraphAddEmptyNode(cudaGraphNode_t *node) { return made(node); }
API int cuGraphAddKernelNode(cudaGraphNode_t *node) { return made(node); }
API int cuGraphAddKernelNode_v2(cudaGraphNode_t *node) { return made(node); }
API int cuGraphAddMemcpyNode(cudaGraphNode_t *node) { return made(node); }
API int cuGraphAddMemsetNode(cudaGraphNode_t *node) { return made(node); }
API int cuGraphAddHostNode(cudaGraphNode_t *node) { return made(node); }
API int cuGraphAddChildGraphNode(cudaGraphNode_t *node) { return made(node); }
API int cuGraphAddNode(cudaGraphNode_t *node, cudaGraph_t, const cudaGraphNode_t *, size_t, NodeParameters *p) {
  if (p && p->kind == kConditional) {
    p->graphs = (cudaGraph_t *)calloc(p->count, sizeof *p->graphs);
    for (unsigned i = 0; i < p->count; i++) cudaGraphCreate(&p->graphs[i], 0);
  }
  return made(node);
}
API int cuGraphAddNode_v2(cudaGraphNode_t *node, cudaGraph_t g, const cudaGraphNode_t *before, const GraphEdge *, size_t n, NodeParameters *p) {
  return cuGraphAddNode(node, g, before, n, p);
}
API int cuGraphAddDependencies() { return kSuccess; }
API int cuGraphAddDependencies_v2() { return kSuccess; }
API int cuGraphRemoveDependencies() { return kSuccess; }
API int cuGraphDestroyNode(cudaGraphNode_t node) { return free((void *)node), kSuccess; }
API int cuGraphClone(cudaGraph_t *g) { return cudaGraphCreate(g, 0); }
API int cuGraphChildGraphNodeGetGraph(cudaGraphNode_t, cudaGraph_t *g) { return cudaGraphCreate(g, 0); }
API int cuGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t *, size_t *count) { return *count = 0, kSuccess; }
API int cuGraphNodeGetType(cudaGraphNode_t, int *kind) { return *kind = 0, kSuccess; }
API int cuGraphNodeSetParams() { return kSuccess; }
API int cuGraphKernelNodeSetParams() { return kSuccess; }
API int cuGraphKernelNodeSetParams_v2() { return kSuccess; }
API int cuGraphKernelNodeSetAttribute() { return kSuccess; }
API int cuGraphKernelNodeCopyAttributes() { return kSuccess; }
API int cuGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *, size_t *count) { return *count = g ? 1 : 0, kSuccess; }
API int cuGraphGetRootNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *count) { return cuGraphGetNodes(g, nodes, count); }
API int cuGraphDebugDotPrint() { return kSuccess; }
API int cuGraphConditionalHandleCreate(cudaGraphConditionalHandle *h) { return cudaGraphConditionalHandleCreate(h); }

API int cuGraphInstantiate(cudaGraphExec_t *e) { return made(e); }
API int cuGraphInstantiate_v2(cudaGraphExec_t *e) { return made(e); }
API int cuGraphInstantiateWithFlags(cudaGraphExec_t *e) { return made(e); }
API int cuGraphInstantiateWithParams(cudaGraphExec_t *e) { return made(e); }
API int cuGraphExecDestroy(cudaGraphExec_t e) { return cudaGraphExecDestroy(e); }
API int cuGraphExecUpdate_v2(cudaGraphExec_t, cudaGraph_t, int *result) {
  if (result) *result = 0;
  return kSuccess;
}
API int cuGraphExecGetFlags(cudaGraphExec_t, unsigned long long *flags) { return *flags = 0, kSuccess; }
API int cuGraphExecNodeSetParams() { return kSuccess; }
API int cuGraphExecKernelNodeSetParams() { return kSuccess; }
API int cuGraphExecKernelNodeSetParams_v2() { return kSuccess; }
API int cuGraphExecMemcpyNodeSetParams() { return kSuccess; }
API int cuGraphExecMemsetNodeSetParams() { return kSuccess; }
API int cuGraphExecChildGraphNodeSetParams() { return kSuccess; }
API int cuGraphNodeSetEnabled() { return kSuccess; }
API int cuGraphNodeGetEnabled(cudaGraphExec_t, cudaGraphNode_t, unsigned *enabled) { return *enabled = 1, kSuccess; }
API int cuGraphUpload() { return kSuccess; }
API int cuGraphLaunch(cudaGraphExec_t e, cudaStream_t s) { return cudaGraphLaunch(e, s); }
API int cuDeviceGraphMemTrim(CUdevice) { return kSuccess; }
API int cuDeviceGetGraphMemAttribute(CUdevice, int, unsigned long long *value) { return *value = 0, kSuccess; }

API int cuStreamBeginCapture_v2(cudaStream_t s, int mode) { return cudaStreamBeginCapture(s, mode); }
API int cuStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t *before, const GraphEdge *edges, size_t n, int mode) {
  return cudaStreamBeginCaptureToGraph(s, g, before, edges, n, mode);
}
API int cuStreamEndCapture(cudaStream_t s, cudaGraph_t *g) { return cudaStreamEndCapture(s, g); }
API int cuStreamGetCaptureInfo_v2(cudaStream_t s, int *status, unsigned long long *id, cudaGraph_t *g, const cudaGraphNode_t **nodes, size_t *n) {
  return cudaStreamGetCaptureInfo_v2(s, status, id, g, nodes, n);
}
API int cuThreadExchangeStreamCaptureMode(int *mode) { return cudaThreadExchangeStreamCaptureMode(mode); }
