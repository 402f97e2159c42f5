// Kernel launches: they succeed and do nothing.
#pragma once

#include "cuda_declarations.h"

namespace peakmem {

void launch(const void *function, dim3 grid, dim3 block, size_t shared);
unsigned long long launches();
// Blocks of a kernel that a multiprocessor can hold, by threads and shared memory alone (registers are not known).
int occupancy(int threads_per_block, size_t shared);
// The architecture of the code that would run: the newest in PyTorch's wheels that this device can run.
int code_capability();

}  // namespace peakmem
