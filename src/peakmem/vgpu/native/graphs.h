// CUDA graphs as bookkeeping: what is captured is not kept, and launching a graph does nothing.
#pragma once

#include "streams.h"

namespace peakmem {

bool is_capturing(cudaStream_t stream);
void join_capture(cudaStream_t stream, Capture *capture);
// A call that a capture does not allow: spoils the capture, as CUDA does.
int refuse_in_capture(cudaStream_t stream, const char *call);

}  // namespace peakmem
