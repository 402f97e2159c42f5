// symbols.cpp - a function for each line of symbols.def.
#include <initializer_list>

#include "libraries.h"

namespace {

constexpr bool contains(const char* text, const char* part) {
  for (; *text; text++) {
    int i = 0;
    while (part[i] && text[i] == part[i]) i++;
    if (!part[i]) return true;
  }
  return false;
}

// Whether a function reports through an `info` value in device memory, which PyTorch looks at afterwards.  QR does not, but
// least squares by QR do after xORMQR.
constexpr bool has_info(const char* name) {
  for (const char* part : {"potrf", "getrf", "getri", "matinv", "sytrf", "gesvd", "syev", "heev", "geev", "gels", "ormqr", "unmqr"})
    if (contains(name, part)) return true;
  return false;
}

// Of the eigenvalues PyTorch first asks whether they are all real (2.14.1, BatchLinearAlgebraEig.cpp).
constexpr int reads_before(const char* name) { return contains(name, "geev") ? 1 : 0; }

}  // namespace

#define LAUNCH(name)                             \
  PEAKMEM_API int name(void) {                   \
    if constexpr (has_info(#name)) vgpu_solved(reads_before(#name)); \
    vgpu_log(#name);                             \
    return 0;                                    \
  }
#define UNSUPPORTED(name, status) \
  PEAKMEM_API int name(void) { return vgpu_unsupported(#name, status); }

#include "symbols.def"
