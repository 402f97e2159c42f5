// Pinned host memory: what the program holds of it, exactly, and how much of that is really resident here.
#pragma once

#include <stddef.h>

#include <string>

namespace peakmem {

// cudaHostAlloc and cudaFreeHost. On a GPU every page is resident at once; here pages stay untouched until they are
// written, in a file of their own, so that whoever measures this process can tell them from all other memory.
int host_allocate(void **out, size_t size);
int host_free(void *address);
// cudaHostRegister and cudaHostUnregister: memory of somebody else, whose pages a GPU would make resident.
int host_register(void *address, size_t size);
int host_unregister(void *address);

// A copy from the host to a device: a GPU reads the pages, which makes those of mapped files resident; here nobody does.
void host_read(const void *address, size_t size);

// Members of the JSON object of peakmem_report().
std::string pinned_json();

}  // namespace peakmem
