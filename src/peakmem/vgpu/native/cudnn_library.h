// cudnn_library.h - the real cuDNN, and whether it can plan for a device that is not there.
#pragma once
#include "cudnn_declarations.h"
#include "libraries.h"

namespace peakmem::cudnn {

// A function of the real library, or null where this version has none.
void* find(const char* name);
// The same for a function that every version has; ends the process with a message where it is missing.
void* real(const char* name);
template <class F>
F* function(const char* name) {
  return reinterpret_cast<F*>(real(name));
}

// A handle that we gave to PyTorch.
struct Handle {
  void* stream = nullptr;
};
bool is_ours(const void* handle);

// The backend descriptor of the virtual device, or null where this cuDNN does not plan without one (before 9.8).
void* device_descriptor();
inline bool plans_without_device() { return device_descriptor() != nullptr; }
// As 10000 * major + 100 * minor + patch.
int version();

// The backend functions of the real library.
int create(int type, void** descriptor);
int destroy(void* descriptor);
int set(void* descriptor, int attribute, int type, int64_t count, const void* values);
int get(void* descriptor, int attribute, int type, int64_t wanted, int64_t* found, void* values);
int finalize(void* descriptor);
// What the library says about its last refusal on this thread.
const char* last_error(char* text, size_t size);

}  // namespace peakmem::cudnn
