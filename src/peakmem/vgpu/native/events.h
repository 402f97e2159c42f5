// The log of blocks.
#pragma once

namespace peakmem {

// The number under which this thread's events are logged.
int thread_number();
// Logs a block that was handed out (or taken back: a negative size), with the totals after it.
void log_block(void *address, long long size, unsigned long long allocated, unsigned long long reserved, int device);

}  // namespace peakmem
