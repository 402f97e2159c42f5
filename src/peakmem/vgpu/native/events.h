// The log of blocks.
#pragma once

namespace peakmem {

// The number under which this thread's events are logged.
int thread_number();

}  // namespace peakmem
