// oneDNN with one thread.
//
// With several threads its primitives compute in parallel regions, which are skipped as all others are (regions.cpp). With
// one thread there are none, so execution itself is skipped. PyTorch has oneDNN linked in, and dnnl_primitive_execute is
// no dynamic symbol: it is found in the library's table of all symbols, which the wheels of PyTorch come with, and its
// beginning is replaced by a jump to the function below. Where that can't be done (another processor, no such table, a
// beginning of another form) primitives really compute, which costs time and changes nothing else.
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "books.h"
#include "control.h"
#include "torch.h"

namespace {

typedef int (*Execute)(const void *primitive, void *stream, int count, const void *arguments);
Execute g_original = nullptr;
int (*g_threads)() = nullptr;

int execute(const void *primitive, void *stream, int count, const void *arguments) {
  if (peakmem::t_skip && g_threads && g_threads() == 1) return 0;  // dnnl_success
  return g_original(primitive, stream, count, arguments);
}

struct Library {
  uintptr_t base = 0;
  char path[4096];
};

int find_library(struct dl_phdr_info *info, size_t, void *out) {
  if (!info->dlpi_name || !strstr(info->dlpi_name, "libtorch_cpu.so")) return 0;
  auto *library = (Library *)out;
  library->base = info->dlpi_addr;
  strncpy(library->path, info->dlpi_name, sizeof library->path - 1);
  return 1;
}

uintptr_t find_symbol(const Library &library, const char *wanted) {
  int fd = open(library.path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  struct stat facts;
  uintptr_t found = 0;
  if (fstat(fd, &facts) == 0) {
    auto *file = (const char *)mmap(nullptr, facts.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file != MAP_FAILED) {
      auto *header = (const Elf64_Ehdr *)file;
      auto *sections = (const Elf64_Shdr *)(file + header->e_shoff);
      for (int i = 0; i < header->e_shnum && !found; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        auto *symbols = (const Elf64_Sym *)(file + sections[i].sh_offset);
        const char *names = file + sections[sections[i].sh_link].sh_offset;
        size_t count = sections[i].sh_size / sizeof(Elf64_Sym);
        for (size_t k = 0; k < count; k++)
          if (ELF64_ST_TYPE(symbols[k].st_info) == STT_FUNC && !strcmp(names + symbols[k].st_name, wanted)) {
            found = library.base + symbols[k].st_value;
            break;
          }
      }
      munmap((void *)file, facts.st_size);
    }
  }
  close(fd);
  return found;
}

#if defined(__x86_64__)

constexpr size_t kJump = 14;  // jmp *(%rip), and the address

// Length of an instruction that may stand at the beginning of a function and does the same elsewhere; 0: another one.
size_t length_of(const uint8_t *c) {
  if (c[0] == 0xf3 && c[1] == 0x0f && c[2] == 0x1e && c[3] == 0xfa) return 4;  // endbr64
  if (c[0] >= 0x50 && c[0] <= 0x57) return 1;                                  // push
  if (c[0] == 0x41 && c[1] >= 0x50 && c[1] <= 0x57) return 2;                  // push
  if (c[0] == 0x48 && c[1] == 0x83 && c[2] == 0xec) return 4;                  // sub $imm8, %rsp
  if (c[0] == 0x48 && c[1] == 0x81 && c[2] == 0xec) return 7;                  // sub $imm32, %rsp
  if (c[0] >= 0x48 && c[0] <= 0x4d && (c[1] == 0x89 || c[1] == 0x8b) && c[2] >= 0xc0) return 3;  // mov between registers
  return 0;
}

void write_jump(uint8_t *at, const void *to) {
  const uint8_t jump[6] = {0xff, 0x25, 0, 0, 0, 0};
  memcpy(at, jump, 6);
  memcpy(at + 6, &to, 8);
}

bool redirect(uint8_t *function, const void *to) {
  size_t length = 0;
  while (length < kJump) {
    size_t one = length_of(function + length);
    if (!one) return false;
    length += one;
  }
  auto *copy = (uint8_t *)mmap(nullptr, peakmem::kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) return false;
  memcpy(copy, function, length);
  write_jump(copy + length, function + length);
  if (mprotect(copy, peakmem::kPage, PROT_READ | PROT_EXEC)) return false;
  uintptr_t from = (uintptr_t)function & ~(peakmem::kPage - 1);
  uintptr_t end = ((uintptr_t)function + kJump + peakmem::kPage - 1) & ~(peakmem::kPage - 1);
  if (mprotect((void *)from, end - from, PROT_READ | PROT_WRITE | PROT_EXEC)) return false;
  g_original = (Execute)copy;
  write_jump(function, to);
  mprotect((void *)from, end - from, PROT_READ | PROT_EXEC);
  return true;
}

#else

bool redirect(uint8_t *, const void *) { return false; }

#endif

}  // namespace

API int peakmem_host_redirect_onednn(void) {
  static const bool done = [] {
    Library library;
    dl_iterate_phdr(find_library, &library);
    g_threads = (int (*)())peakmem::next("omp_get_max_threads");
    uintptr_t function = library.base ? find_symbol(library, "dnnl_primitive_execute") : 0;
    return function && g_threads && redirect((uint8_t *)function, (const void *)execute);
  }();
  return done;
}
