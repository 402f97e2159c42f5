// What blocks are used for, as far as calls of the CUDA libraries show it.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace peakmem {

enum class Use : uint32_t {
  kBlasWorkspace = 1,    // given to cuBLAS as its workspace
  kBlasLtWorkspace = 2,  // given to a cuBLASLt multiplication as its workspace
  kFromHost = 3,         // written by a copy from the host
  kCommunicated = 4,     // sent or received by NCCL
};

void note_use(const void *address, Use use);

}  // namespace peakmem
