// What the host sees when it reads from the device.
#pragma once

#include <stddef.h>

#include <string>

namespace peakmem {

// Fills `to` with n bytes: what peakmem_queue_reads() promised to this thread, else `kept` (stored bytes) if not null, else
// zeros (PEAKMEM_VGPU_BOOL for a single byte, but see vgpu_solved()). Only the zeros are counted as unknown.
void read_back(void *to, const void *kept, size_t n);
// `"answered": A, "unknown": N, "unknown_bytes": B` for the report.
std::string reads_json();

}  // namespace peakmem
