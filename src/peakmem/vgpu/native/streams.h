// Streams, events and the virtual clock.
#pragma once

#include "cuda_declarations.h"

namespace peakmem {

// A graph that is being captured (graphs.cpp).
struct Capture;

struct Stream {
  int device, priority;
  unsigned flags;
  unsigned long long synchronized;  // work up to this number has been waited for
  Capture *capture;
};

// The stream behind a handle; the default streams (0, 1, 2) have one for each thread or device.
Stream *stream_of(cudaStream_t handle);
void synchronize_device();
// Moves the virtual clock on by a kernel, a copy or a fill.
void tick_work();

}  // namespace peakmem
