// Work is done as soon as it is asked for, so nothing ever has to wait. With PEAKMEM_VGPU_EVENTS=sync an event completes
// only when the host synchronises: the other extreme of what a device that lags behind can do to the allocator.
//
// Times come from a virtual clock: 1 us for each recorded event, 5 us (about the cost of a launch) for each kernel, copy or
// fill. It depends on nothing but the program, so a choice made by timing (cudnn.benchmark) is the same in every run.
#include "streams.h"

#include <atomic>
#include <mutex>

#include "config.h"
#include "device.h"
#include "graphs.h"
#include "notes.h"

namespace peakmem {
namespace {

std::atomic<unsigned long long> g_sequence{1}, g_synchronized{0}, g_clock{1};  // g_clock in microseconds

struct Event {
  unsigned long long sequence, time;
  Stream *stream;
  Capture *capture;  // of the stream, when the event was recorded
};

bool is_done(const Event *e) {
  if (!config().events_sync || !e->sequence || e->sequence <= g_synchronized) return true;
  return e->sequence <= e->stream->synchronized;
}

int create(cudaStream_t *out, unsigned flags, int priority) {
  *out = (cudaStream_t) new Stream{current_device(), priority, flags, 0, nullptr};
  return kSuccess;
}

}  // namespace

Stream *stream_of(cudaStream_t handle) {
  static Stream *legacy = new Stream{0, 0, 0, 0, nullptr};
  return (uintptr_t)handle > 2 ? (Stream *)handle : legacy;
}
void synchronize_device() { g_synchronized = g_sequence.load(); }
void tick_work() { g_clock += 5; }

}  // namespace peakmem

using namespace peakmem;

API int cudaStreamCreate(cudaStream_t *s) { return create(s, 0, 0); }
API int cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { return create(s, flags, 0); }
API int cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) { return create(s, flags, priority); }
// A stream's handle stays valid here: an event may still point to it.
API int cudaStreamDestroy(cudaStream_t) { return kSuccess; }
API int cudaStreamSynchronize(cudaStream_t s) {
  if (is_capturing(s)) return refuse_in_capture(s, "cudaStreamSynchronize");
  if ((uintptr_t)s <= 2) synchronize_device();
  else stream_of(s)->synchronized = g_sequence.load();
  return kSuccess;
}
API int cudaStreamQuery(cudaStream_t s) { return is_capturing(s) ? refuse_in_capture(s, "cudaStreamQuery") : (int)kSuccess; }
API int cudaStreamGetPriority(cudaStream_t s, int *p) { return *p = stream_of(s)->priority, kSuccess; }
API int cudaStreamGetFlags(cudaStream_t s, unsigned *f) { return *f = stream_of(s)->flags, kSuccess; }
API int cudaStreamGetDevice(cudaStream_t s, int *d) { return *d = stream_of(s)->device, kSuccess; }
API int cudaStreamGetId(cudaStream_t s, unsigned long long *id) { return *id = (unsigned long long)(uintptr_t)s, kSuccess; }
API int cudaStreamAddCallback(cudaStream_t s, void (*f)(cudaStream_t, int, void *), void *data, unsigned) {
  f(s, kSuccess, data);
  return kSuccess;
}
API int cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *data) {
  if (!is_capturing(s)) f(data);  // a captured call runs when the graph is launched, and that does nothing here
  return kSuccess;
}
API int cudaDeviceSynchronize() { return synchronize_device(), kSuccess; }
API int cudaCtxResetPersistingL2Cache() { return kSuccess; }

API int cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
  *e = (cudaEvent_t) new Event{0, 0, stream_of(nullptr), nullptr};
  return kSuccess;
}
API int cudaEventCreate(cudaEvent_t *e) { return cudaEventCreateWithFlags(e, 0); }
API int cudaEventDestroy(cudaEvent_t e) { return delete (Event *)e, kSuccess; }
API int cudaEventRecord(cudaEvent_t handle, cudaStream_t s) {
  Event *e = (Event *)handle;
  e->sequence = g_sequence++;
  e->time = ++g_clock;
  e->stream = stream_of(s);
  e->capture = e->stream->capture;
  return kSuccess;
}
API int cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) { return cudaEventRecord(e, s); }
API int cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  // A stream that waits for an event of a capture joins that capture.
  const Event *event = (Event *)e;
  if (event->capture && event->capture == event->stream->capture) join_capture(s, event->capture);
  return kSuccess;
}
API int cudaEventQuery(cudaEvent_t e) { return is_done((Event *)e) ? (int)kSuccess : fail(kNotReady); }
API int cudaEventSynchronize(cudaEvent_t handle) {
  Event *e = (Event *)handle;
  if (e->stream == stream_of(nullptr)) {
    if (g_synchronized < e->sequence) g_synchronized = e->sequence;
  } else if (e->stream->synchronized < e->sequence) {
    e->stream->synchronized = e->sequence;
  }
  return kSuccess;
}
API int cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
  const Event *from = (Event *)a, *to = (Event *)b;
  if (!from->sequence || !to->sequence) return fail(kInvalidHandle);
  *ms = 0.001f * (float)((double)to->time - (double)from->time);
  return kSuccess;
}
API int cudaEventElapsedTime_v2(float *ms, cudaEvent_t a, cudaEvent_t b) { return cudaEventElapsedTime(ms, a, b); }
