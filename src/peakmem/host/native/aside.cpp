#include "aside.h"

#include <stdint.h>

#include "books.h"
#include "control.h"
#include "torch.h"

namespace peakmem {

__thread int t_told __attribute__((tls_model("initial-exec")));
__thread int t_own __attribute__((tls_model("initial-exec")));

namespace {

constexpr size_t kBytes = 256 << 20, kUnit = 16;
constexpr int kClasses = 23;
constexpr size_t kMost = kUnit << (kClasses - 1);  // 64 MiB
constexpr size_t kMostTold = 1024;  // of copies of arguments

struct Piece {
  size_t number;  // of its class, of 16 << number bytes
  Piece *next;    // while it is free
};
static_assert(sizeof(Piece) == kUnit, "what comes after it is aligned as malloc aligns");

Piece *g_free[kClasses];
char *g_from, *g_next;

bool is_aside(const void *p) { return g_from && p >= g_from && p < g_from + kBytes; }

}  // namespace

bool goes_aside(size_t size) { return t_own ? size <= kMost : t_told && size <= kMostTold; }

void *take_aside(size_t size) {
  size_t number = 0;
  while (kUnit << number < size) number++;
  Lock lock;
  if (!g_from && !(g_from = g_next = (char *)reserve_own(kBytes))) return nullptr;
  Piece *piece = g_free[number];
  if (piece) {
    g_free[number] = piece->next;
    return piece + 1;
  }
  size_t bytes = sizeof(Piece) + (kUnit << number);
  if (g_next + bytes > g_from + kBytes) return nullptr;
  piece = (Piece *)g_next;
  piece->number = number;
  g_next += bytes;
  return piece + 1;
}

size_t size_aside(const void *p) { return is_aside(p) ? kUnit << ((const Piece *)p - 1)->number : 0; }

void give_back_aside(void *p) {
  Piece *piece = (Piece *)p - 1;
  Lock lock;
  piece->next = g_free[piece->number];
  g_free[piece->number] = piece;
}

}  // namespace peakmem

API int *peakmem_host_own(void) { return &peakmem::t_own; }

// PyTorch asks for observers of a call in two ways: for a list, which may be empty, and for an optional one. Either is
// passed on as it is.
namespace {
struct Observers {
  char form[8];
  ~Observers() {}
};

// Of an operator, whose arguments are copied next; the observer's call ends it.
void told_next(uint8_t scope) { peakmem::t_told = scope == 0; }
}  // namespace

#define ASKED(NAME, SYMBOL)                                         \
  API Observers NAME(uint8_t scope) __asm__(SYMBOL);                \
  Observers NAME(uint8_t scope) {                                   \
    static auto real = (decltype(&NAME))peakmem::next(SYMBOL);      \
    told_next(scope);                                               \
    return real(scope);                                             \
  }
ASKED(observers_if_any, "_ZN2at27getStepCallbacksUnlessEmptyENS_11RecordScopeE")
ASKED(observers, "_ZN2at16getStepCallbacksENS_11RecordScopeE")
