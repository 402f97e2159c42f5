#include "graphs.h"

#include <stdlib.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "config.h"
#include "notes.h"

namespace peakmem {

struct Graph {
  unsigned long long nodes = 0;
};

struct Capture {
  Graph *graph;
  unsigned long long id;
  bool spoiled = false;
  std::vector<Stream *> streams;
};

namespace {

std::mutex g_mutex;
std::atomic<unsigned long long> g_next_id{1};

int begin(cudaStream_t s, Graph *graph) {
  if (is_capturing(s) || (uintptr_t)s <= 2) return fail((uintptr_t)s <= 2 ? kCaptureUnsupported : kInvalidValue);
  std::lock_guard<std::mutex> lock(g_mutex);
  Capture *c = new Capture{graph, g_next_id++, false, {stream_of(s)}};
  stream_of(s)->capture = c;
  return kSuccess;
}

int capture_info(cudaStream_t s, int *status, unsigned long long *id, cudaGraph_t *graph, const cudaGraphNode_t **dependencies, size_t *count) {
  std::lock_guard<std::mutex> lock(g_mutex);
  const Capture *c = stream_of(s)->capture;
  if (status) *status = !c ? kCaptureNone : c->spoiled ? kCaptureGone : kCaptureActive;
  if (id) *id = c ? c->id : 0;
  if (graph) *graph = c ? (cudaGraph_t)c->graph : nullptr;
  if (dependencies) *dependencies = nullptr;
  if (count) *count = 0;
  return kSuccess;
}

void *token() { return malloc(1); }

}  // namespace

bool is_capturing(cudaStream_t s) { return stream_of(s)->capture != nullptr; }

void join_capture(cudaStream_t s, Capture *c) {
  std::lock_guard<std::mutex> lock(g_mutex);
  Stream *stream = stream_of(s);
  if (stream->capture || (uintptr_t)s <= 2) return;
  stream->capture = c;
  c->streams.push_back(stream);
}

int refuse_in_capture(cudaStream_t s, const char *) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (Capture *c = stream_of(s)->capture) c->spoiled = true;
  return fail(kCaptureUnsupported);
}

}  // namespace peakmem

using namespace peakmem;

API int cudaStreamBeginCapture(cudaStream_t s, int) { return begin(s, new Graph); }
API int cudaStreamBeginCaptureToGraph(cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t *, const GraphEdge *, size_t, int) {
  return begin(s, (Graph *)g);
}
API int cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *out) {
  std::lock_guard<std::mutex> lock(g_mutex);
  Capture *c = stream_of(s)->capture;
  if (out) *out = nullptr;
  if (!c) return fail(kInvalidValue);
  for (Stream *stream : c->streams) stream->capture = nullptr;
  int status = c->spoiled ? fail(kCaptureInvalidated) : (int)kSuccess;
  if (!status && out) *out = (cudaGraph_t)c->graph;
  delete c;
  return status;
}
API int cudaStreamIsCapturing(cudaStream_t s, int *status) { return capture_info(s, status, nullptr, nullptr, nullptr, nullptr); }
// CUDA 13: with the edges of the dependencies (_v3 in CUDA 12.3 and later). CUDA 12: the old form with three arguments.
API int cudaStreamGetCaptureInfo(cudaStream_t s, int *status, unsigned long long *id, cudaGraph_t *graph,
                                 const cudaGraphNode_t **dependencies, const GraphEdge **edges, size_t *count) {
  if (cuda_version() < 13000) return capture_info(s, status, id, nullptr, nullptr, nullptr);
  if (edges) *edges = nullptr;
  return capture_info(s, status, id, graph, dependencies, count);
}
API int cudaStreamGetCaptureInfo_v3(cudaStream_t s, int *status, unsigned long long *id, cudaGraph_t *graph,
                                    const cudaGraphNode_t **dependencies, const GraphEdge **edges, size_t *count) {
  if (edges) *edges = nullptr;
  return capture_info(s, status, id, graph, dependencies, count);
}
API int cudaStreamGetCaptureInfo_v2(cudaStream_t s, int *status, unsigned long long *id, cudaGraph_t *graph,
                                    const cudaGraphNode_t **dependencies, size_t *count) {
  return capture_info(s, status, id, graph, dependencies, count);
}
API int cudaStreamUpdateCaptureDependencies() { return kSuccess; }
API int cudaStreamUpdateCaptureDependencies_v2() { return kSuccess; }
static thread_local int t_capture_mode = 0;  // cudaStreamCaptureModeGlobal
API int cudaThreadExchangeStreamCaptureMode(int *mode) {
  int before = t_capture_mode;
  t_capture_mode = *mode;
  *mode = before;
  return kSuccess;
}

API int cudaGraphCreate(cudaGraph_t *g, unsigned) { return *g = (cudaGraph_t) new Graph, kSuccess; }
API int cudaGraphDestroy(cudaGraph_t g) { return delete (Graph *)g, kSuccess; }
API int cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *, size_t *count) {
  if (count) *count = g ? 1 : 0;  // what was captured is not kept; 0 would be reported as an empty graph
  return kSuccess;
}
API int cudaGraphGetEdges(cudaGraph_t, cudaGraphNode_t *, cudaGraphNode_t *, size_t *count) {
  if (count) *count = 0;
  return kSuccess;
}
// The dependencies' edges came between with CUDA 13; only the node that is made matters.
API int cudaGraphAddNode(cudaGraphNode_t *node) { return *node = (cudaGraphNode_t)token(), kSuccess; }
API int cudaGraphAddNode_v2(cudaGraphNode_t *node) { return *node = (cudaGraphNode_t)token(), kSuccess; }
API int cudaGraphAddEmptyNode(cudaGraphNode_t *node) { return *node = (cudaGraphNode_t)token(), kSuccess; }
API int cudaGraphAddKernelNode(cudaGraphNode_t *node) { return *node = (cudaGraphNode_t)token(), kSuccess; }
API int cudaGraphAddDependencies() { return kSuccess; }
API int cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t *, void *third, size_t *fourth) {
  size_t *count = cuda_version() < 13000 ? (size_t *)third : fourth;
  if (count) *count = 0;
  return kSuccess;
}
API int cudaGraphNodeGetDependencies_v2(cudaGraphNode_t, cudaGraphNode_t *, GraphEdge *, size_t *count) {
  if (count) *count = 0;
  return kSuccess;
}
API int cudaGraphNodeGetType(cudaGraphNode_t, int *type) { return *type = 0, kSuccess; }  // a kernel
API int cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *h) { return *h = g_next_id++, kSuccess; }
API int cudaGraphInstantiate(cudaGraphExec_t *e) { return *e = (cudaGraphExec_t)token(), kSuccess; }
API int cudaGraphInstantiateWithFlags(cudaGraphExec_t *e) { return *e = (cudaGraphExec_t)token(), kSuccess; }
API int cudaGraphInstantiateWithParams(cudaGraphExec_t *e) { return *e = (cudaGraphExec_t)token(), kSuccess; }
API int cudaGraphExecDestroy(cudaGraphExec_t e) { return free((void *)e), kSuccess; }
API int cudaGraphExecUpdate() { return kSuccess; }
API int cudaGraphUpload() { return kSuccess; }
API int cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return tick_work(), kSuccess; }
API int cudaGraphDebugDotPrint() { return unsupported("cudaGraphDebugDotPrint"); }

// A user object keeps something alive as long as a graph; its destructor runs when the last reference goes.
struct CUuserObject_st {
  std::atomic<long> references;
  void *data;
  cudaHostFn_t destroy;
};
API int cudaUserObjectCreate(cudaUserObject_t *o, void *data, cudaHostFn_t destroy, unsigned references, unsigned) {
  *o = new CUuserObject_st{{(long)references}, data, destroy};
  return kSuccess;
}
API int cudaUserObjectRetain(cudaUserObject_t o, unsigned n) { return o->references += (long)n, kSuccess; }
API int cudaUserObjectRelease(cudaUserObject_t o, unsigned n) {
  if ((o->references -= (long)n) <= 0) {
    o->destroy(o->data);
    delete o;
  }
  return kSuccess;
}
// The graph's reference is never given back: what it keeps alive is host memory of a few bytes.
API int cudaGraphRetainUserObject(cudaGraph_t, cudaUserObject_t o, unsigned n, unsigned flags) {
  if (!(flags & 1)) o->references += (long)n;  // cudaGraphUserObjectMove hands the caller's references over
  return kSuccess;
}
