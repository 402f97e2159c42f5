// symbols.cpp - a function for each line of symbols.def.
#include "libraries.h"

#define LAUNCH(name)            \
  PEAKMEM_API int name(void) {  \
    vgpu_log(#name);            \
    return 0;                   \
  }
#define UNSUPPORTED(name, status) \
  PEAKMEM_API int name(void) { return vgpu_unsupported(#name, status); }

#include "symbols.def"
