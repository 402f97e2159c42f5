// Finding functions of the libraries that we stand in front of.
#pragma once

namespace peakmem {

// The function of this name that comes after ours: in the program's global scope, else in PyTorch's library.
void *next(const char *name);
// Whether an address is in the code of libtorch_cpu.so.
bool in_torch(const void *address);
// Of libc10.so, which allocates all tensors.
bool in_c10(const void *address);

}  // namespace peakmem
