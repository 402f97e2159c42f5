#include "torch.h"

#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include <initializer_list>

#include "books.h"

namespace {

uintptr_t g_from, g_to;

int find_code(struct dl_phdr_info *info, size_t, void *) {
  if (!info->dlpi_name || !strstr(info->dlpi_name, "libtorch_cpu.so")) return 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto &header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || !(header.p_flags & PF_X)) continue;
    g_to = info->dlpi_addr + header.p_vaddr + header.p_memsz;
    g_from = info->dlpi_addr + header.p_vaddr;
  }
  return 1;
}

}  // namespace

void *peakmem::next(const char *name) {
  if (void *found = dlsym(RTLD_NEXT, name)) return found;
  // Python loads PyTorch outside of the global scope.
  for (const char *library : {"libtorch_cpu.so", "libc10.so", "libgomp.so.1"})
    if (void *handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
      if (void *found = dlsym(handle, name)) return found;
  return nullptr;
}

bool peakmem::in_torch(const void *address) {
  uintptr_t a = (uintptr_t)address;
  if (!g_from) {
    static uint64_t asked = 0;
    // Not loaded yet: look again now and then, since dl_iterate_phdr takes a lock.
    if (asked++ % 64) return false;
    dl_iterate_phdr(find_code, nullptr);
  }
  return a >= g_from && a < g_to;
}

// c10/core/impl/TorchDispatchModeTLS.h. ATen asks whether a dispatch mode is on to keep away from operations in place
// (ATen/TensorSubclassLikeUtils.h); ours must not change what is allocated, so to ATen there is none. Python's bindings,
// which dispatch to the mode, get the true answer.
namespace c10::impl {
__attribute__((visibility("default"))) bool dispatch_mode_enabled() {
  if (peakmem::in_torch(__builtin_return_address(0))) return false;
  static auto real = (bool (*)())[] {
    void *handle = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    return handle ? dlsym(handle, "_ZN3c104impl21dispatch_mode_enabledEv") : nullptr;
  }();
  return real && real();
}
}  // namespace c10::impl
