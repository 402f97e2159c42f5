// libraries.h - what the stand-ins for cuBLAS, cuDNN, cuSOLVER, cuSPARSE, cuFFT and NCCL share.
//
// PyTorch links these libraries, so each call lands here instead, since this library is loaded in front of them.  Calls
// that launch work do nothing.  Calls that ask for a size get the vendor library's own answer where it can give one
// without a device, and a stated estimate, counted in the report, where it can't.
#pragma once
#include <cstddef>
#include <cstdint>

#include "shims.h"

#define PEAKMEM_API extern "C" __attribute__((visibility("default")))

namespace peakmem {

// An object behind an opaque handle.  PyTorch never looks into it.
struct Opaque {
  void* stream = nullptr;
  int64_t values[6] = {};
};

template <class T = Opaque>
int make_opaque(void** out) {
  *out = new T;
  return 0;
}
template <class T = Opaque>
int drop_opaque(void* p) {
  delete static_cast<T*>(p);
  return 0;
}

inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Answers with a size that no library could be asked for, and says so in the report.
template <class T>
int estimate(T* out, int64_t value, const char* what) {
  if (out) *out = (T)value;
  vgpu_note("estimate", what);
  return 0;
}

}  // namespace peakmem
