// cudnn_substitute.h - a backend API of our own, for cuDNN versions that can't plan without a device (before 9.8).
#pragma once
#include <cstdint>

namespace peakmem::cudnn::substitute {

int create(int type, void** descriptor);
int destroy(void* descriptor);
int set(void* descriptor, int attribute, int type, int64_t count, const void* values);
int get(void* descriptor, int attribute, int type, int64_t wanted, int64_t* found, void* values);
int finalize(void* descriptor);

}  // namespace peakmem::cudnn::substitute
