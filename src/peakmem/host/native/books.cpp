// Which pages would be resident had every block of a tensor been written.
//
// The addresses are glibc's own: a block that it mapped by itself goes with its pages; pages of a heap stay until the
// heap's top is given back, which shows in the program break, or, for the heaps of other threads, in the size that the
// heap records of itself (glibc 2.17 to 2.41, malloc/arena.c, struct heap_info).
#include "books.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "control.h"

extern "C" void *__curbrk;

namespace peakmem {

__thread int t_skip __attribute__((tls_model("initial-exec")));
static __thread uint64_t t_partly_size, t_partly_written, t_partly_left;

namespace {

constexpr size_t kTable = 1 << 18;       // live blocks: glibc maps at most 65,536, the rest are in heaps
constexpr size_t kHeapBytes = 1ull << 40;  // addresses of the main heap that can be kept account of
constexpr uint64_t kArena = 64ull << 20;   // HEAP_MAX_SIZE of 64-bit glibc: 2 * DEFAULT_MMAP_THRESHOLD_MAX
constexpr int kArenas = 4096;
constexpr size_t kRows = 1 << 18;
constexpr uint64_t kSmallStep = 64 << 10;  // of the course

struct Block {
  uintptr_t p;  // 0: never used, 1: used before
  uint64_t size;
  uint32_t pages;  // of its own mapping; 0: in a heap
  uint32_t shared;  // of a file or of shared memory
};

struct Bits {
  uint64_t *words;
  bool test(uint64_t i) const { return words[i >> 6] >> (i & 63) & 1; }
  uint64_t set(uint64_t a, uint64_t b) {
    uint64_t n = 0;
    for (uint64_t i = a; i < b; i++)
      if (!test(i)) words[i >> 6] |= 1ull << (i & 63), n++;
    return n;
  }
  uint64_t clear(uint64_t a, uint64_t b) {
    uint64_t n = 0;
    for (uint64_t i = a; i < b; i++) {
      if (!(i & 63) && i + 64 <= b && !words[i >> 6]) {
        i += 63;
        continue;
      }
      if (test(i)) words[i >> 6] &= ~(1ull << (i & 63)), n++;
    }
    return n;
  }
};

struct Arena {
  uintptr_t base;
  Bits bits;
};

struct Books {
  Block *blocks = nullptr;
  Bits heap;
  uintptr_t heap_base = 0, heap_top = 0;
  Arena *arenas = nullptr;
  int n_arenas = 0;
  uint64_t live = 0, mapped = 0, heap_pages = 0, outside = 0, events = 0;
  uint64_t peak = 0, peak_live = 0, peak_outside = 0, highest = 0, noted = 0;
  bool rising = false;  // the highest peak so far has not been noted yet
  peakmem_host_block *at_peak = nullptr;
  uint64_t n_at_peak = 0;
  peakmem_host_row *rows = nullptr;
  uint64_t n_rows = 0, row_resident = 0;
  uint64_t look_ended = 0, look_took = 0;
};
Books g;

struct Own {
  uintptr_t from, to;
};
Own g_own[kArenas + 16];  // what `begin` and `arena_of` reserved: memory of ours that the program would not have
int g_n_own = 0;

volatile int g_lock = 0;
char g_used[1024];
char g_end[4096];  // file that is told what is left at the end; empty: none
pid_t g_end_pid;
bool g_leave;
uint64_t g_files_at_exit;
peakmem_host_state g_left;

uint64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ull + t.tv_nsec;
}

uint64_t resident() { return (g.mapped + g.heap_pages) * kPage + g.outside; }

void set_peak() {
  g.peak = resident();
  g.peak_live = g.live;
  g.peak_outside = g.outside;
}

uintptr_t start_of_heap(uintptr_t p) {
  static char text[1 << 16];
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    ssize_t n = 0, k;
    while (n < (ssize_t)sizeof text - 1 && (k = read(fd, text + n, sizeof text - 1 - n)) > 0) n += k;
    close(fd);
    text[n] = 0;
    char *at = strstr(text, "[heap]");
    if (at) {
      while (at > text && at[-1] != '\n') at--;
      return strtoull(at, nullptr, 16) & ~(kPage - 1);
    }
  }
  return (p & ~(kPage - 1)) - (1ull << 32);
}

void begin() {
  g.blocks = (Block *)reserve_own(kTable * sizeof(Block));
  g.heap.words = (uint64_t *)reserve_own(kHeapBytes / kPage / 8);
  g.arenas = (Arena *)reserve_own(kArenas * sizeof(Arena));
  g.at_peak = (peakmem_host_block *)reserve_own(kTable * sizeof(peakmem_host_block));
  g.rows = (peakmem_host_row *)reserve_own(kRows * sizeof(peakmem_host_row));
}

size_t slot(uintptr_t p) { return (p >> 4) * 0x9E3779B97F4A7C15ull >> 46; }

Block *find(uintptr_t p) {
  if (!g.blocks) return nullptr;
  size_t s = slot(p);
  for (size_t i = 0; i < kTable && g.blocks[s].p; i++, s = (s + 1) % kTable)
    if (g.blocks[s].p == p) return &g.blocks[s];
  return nullptr;
}

Block *place(uintptr_t p) {
  size_t s = slot(p);
  for (size_t i = 0; i < kTable; i++, s = (s + 1) % kTable)
    if (g.blocks[s].p <= 1) return &g.blocks[s];
  return nullptr;
}

Arena *arena_of(uintptr_t p, bool make) {
  uintptr_t base = p & ~(kArena - 1);
  for (int i = 0; i < g.n_arenas; i++)
    if (g.arenas[i].base == base) return &g.arenas[i];
  if (!make || g.n_arenas == kArenas) return nullptr;
  Arena *a = &g.arenas[g.n_arenas++];
  a->base = base;
  a->bits.words = (uint64_t *)reserve_own(kArena / kPage / 8);
  return a;
}

// Sets or clears what a block in a heap covers.
void set_heap(uintptr_t p, uint64_t size, bool main) {
  if (main) {
    if (!g.heap_base) g.heap_base = start_of_heap(p);
    if (p < g.heap_base || p + size > g.heap_base + kHeapBytes) return;
    g.heap_pages += g.heap.set((p - 16 - g.heap_base) / kPage, (p + size - g.heap_base + kPage - 1) / kPage);
    if ((uintptr_t)__curbrk > g.heap_top) g.heap_top = (uintptr_t)__curbrk;
  } else if (Arena *a = arena_of(p, true)) {
    g.heap_pages += a->bits.set((p - 16 - a->base) / kPage, (p + size - a->base + kPage - 1) / kPage);
  }
}

void add_row() {
  uint64_t r = resident();
  uint64_t change = r > g.row_resident ? r - g.row_resident : g.row_resident - r;
  if (change < kSmallStep) return;
  if (g.n_rows == kRows) {  // keep the higher of each two
    for (uint64_t i = 0; i < kRows / 2; i++) {
      const auto &a = g.rows[2 * i], &b = g.rows[2 * i + 1];
      g.rows[i] = a.resident >= b.resident ? a : b;
    }
    g.n_rows = kRows / 2;
  }
  g.rows[g.n_rows++] = {g.events, g.live, r};
  g.row_resident = r;
}

// As in linux/fs.h from Linux 6.7 on.
struct ScanArguments {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
struct Region {
  uint64_t start, end, categories;
};
constexpr uint64_t kPresent = 1 << 3, kZeros = 1 << 5;

uint64_t count_bits(const Bits *bits, uint64_t a, uint64_t b, uintptr_t base) {
  if (!bits) return b - a;
  uint64_t found = 0;
  for (uint64_t page = a; page < b; page++) found += bits->test(page - base / kPage);
  return found;
}

// Counts resident pages in [a, b) that belong to one of our ranges. The page of zeros that unwritten memory is read from
// is present, but it is not resident memory of the process: it is left out.
uint64_t count_present(int fd, uintptr_t a, uintptr_t b, bool shared, const Bits *bits, uintptr_t base) {
  static bool can_scan = true;
  uint64_t found = 0;
  static Region regions[512];
  uintptr_t at = a;
  while (can_scan && at < b) {
    ScanArguments s = {sizeof s, 0, at, b, 0, (uint64_t)regions, 512, 0, kZeros, kPresent | kZeros, 0, kPresent};
    long n = ioctl(fd, _IOWR('f', 16, ScanArguments), &s);
    if (n < 0) {
      if (at != a) return found;
      can_scan = false;
      break;
    }
    for (long i = 0; i < n; i++) found += count_bits(bits, regions[i].start / kPage, regions[i].end / kPage, base);
    if (s.walk_end <= at) break;
    at = s.walk_end;
  }
  if (can_scan) return found;
  // Before Linux 6.7: the page of zeros is mapped by more than one, which bit 56 of an entry tells.
  static uint64_t buffer[8192];
  for (uint64_t page = a / kPage; page < b / kPage;) {
    uint64_t n = b / kPage - page;
    if (n > 8192) n = 8192;
    ssize_t got = pread(fd, buffer, n * 8, page * 8);
    if (got <= 0) break;
    for (uint64_t i = 0; i < (uint64_t)got / 8; i++) {
      if (!(buffer[i] >> 63) || (!shared && !(buffer[i] >> 56 & 1))) continue;
      if (!bits || bits->test(page + i - base / kPage)) found++;
    }
    page += n;
  }
  return found;
}

uint64_t resident_now() {
  static char text[256];
  int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char *end;
  strtoull(text, &end, 10);
  return strtoull(end, nullptr, 10) * kPage;
}

void look() {
  uint64_t started = now();
  int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  uint64_t inside = 0;
  if (fd >= 0) {
    if (g.heap_base && g.heap_top > g.heap_base)
      inside += count_present(fd, g.heap_base, g.heap_top, false, &g.heap, g.heap_base);
    for (int i = 0; i < g.n_arenas; i++)
      inside += count_present(fd, g.arenas[i].base, g.arenas[i].base + kArena, false, &g.arenas[i].bits, g.arenas[i].base);
    for (size_t i = 0; i < kTable; i++) {
      const Block &b = g.blocks[i];
      if (b.p <= 1 || !b.pages) continue;
      uintptr_t a = b.shared ? b.p : (b.p - 16) & ~(kPage - 1);
      inside += count_present(fd, a, a + b.pages * kPage, b.shared, nullptr, 0);
    }
    for (int i = 0; i < g_n_own; i++) inside += count_present(fd, g_own[i].from, g_own[i].to, false, nullptr, 0);
    close(fd);
  }
  uint64_t all = resident_now();
  g.outside = all > inside * kPage ? all - inside * kPage : 0;
  g.look_ended = now();
  g.look_took = g.look_ended - started;
}

void note_peak() {
  g.noted = g.highest;
  uint64_t n = 0;
  for (size_t i = 0; i < kTable; i++)
    if (g.blocks[i].p > 1) g.at_peak[n++] = {g.blocks[i].p, g.blocks[i].size};
  g.n_at_peak = n;
}

// Before the books go down: at a new highest value it is worth a look at the truth, if looking takes a small part of
// the time that passes between.
void before_fall() {
  if (!g.rising) return;
  g.rising = false;
  if (now() - g.look_ended > 10 * g.look_took) look();
  if (resident() > g.peak) set_peak();
  if (g.peak > g.highest) g.highest = g.peak;
  if (g.highest > g.noted + g.noted / 500) note_peak();
}

void rose() {
  uint64_t r = resident();
  if (r > g.peak) set_peak();
  if (r > g.highest) g.highest = r, g.rising = true;
  add_row();
}

}  // namespace

void *reserve(size_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

void *reserve_own(size_t bytes) {
  void *p = reserve(bytes);
  if (p && g_n_own < kArenas + 16) g_own[g_n_own++] = {(uintptr_t)p, (uintptr_t)p + bytes};
  return p;
}

Lock::Lock() {
  while (__sync_lock_test_and_set(&g_lock, 1)) usleep(1);
}
Lock::~Lock() { __sync_lock_release(&g_lock); }

void used(const char *what) {
  Lock lock;
  size_t n = strlen(g_used);
  if (strstr(g_used, what) || n + strlen(what) + 2 > sizeof g_used) return;
  strcpy(g_used + n, what);
  strcat(g_used, " ");
}

bool any_blocks() { return g.blocks != nullptr; }

void block_taken(void *block, size_t size, bool own_mapping) {
  uintptr_t p = (uintptr_t)block;
  Lock lock;
  if (!g.blocks) {
    begin();
    look();
  }
  Block *b = place(p);
  if (!b) return;
  if (t_partly_left && size == t_partly_size && t_partly_written <= size) size = t_partly_written, t_partly_left--;
  g.events++;
  g.live += size;
  *b = {p, size, 0, own_mapping};
  if (own_mapping) {
    b->pages = (size + kPage - 1) / kPage;
  } else if (is_mapped(block)) {
    // Of a block that is not written at all, malloc's own header is.
    b->pages = (p + size + kPage - 1) / kPage - (p - 16) / kPage;
  } else if (size) {
    set_heap(p, size, in_main_heap(block));
  }
  g.mapped += b->pages;
  rose();
}

bool block_given_back(void *block) {
  if (!g.blocks) return false;
  Lock lock;
  Block *b = find((uintptr_t)block);
  if (!b) return false;
  before_fall();
  g.events++;
  g.live -= b->size;
  g.mapped -= b->pages;
  b->p = 1;
  add_row();
  return true;
}

void heap_may_have_shrunk(void *block, bool main) {
  if (!g.heap_top) return;
  if (main) {
    uintptr_t top = (uintptr_t)__curbrk;
    if (top >= g.heap_top) return;
    Lock lock;
    before_fall();
    g.heap_pages -= g.heap.clear((top - g.heap_base + kPage - 1) / kPage, (g.heap_top - g.heap_base + kPage - 1) / kPage);
    g.heap_top = top;
    add_row();
    return;
  }
  Lock lock;
  Arena *a = arena_of((uintptr_t)block, false);
  if (!a) return;
  unsigned char resident;
  uint64_t size = 0;
  if (mincore((void *)a->base, kPage, &resident) == 0) size = ((uint64_t *)a->base)[2];  // heap_info.size
  if (size > kArena) return;
  g.heap_pages -= a->bits.clear((size + kPage - 1) / kPage, kArena / kPage);
}

void heap_was_trimmed() {
  if (!g.blocks) return;
  Lock lock;
  before_fall();
  if (g.heap_base) g.heap_pages -= g.heap.clear(0, (g.heap_top - g.heap_base + kPage - 1) / kPage);
  for (int i = 0; i < g.n_arenas; i++) g.heap_pages -= g.arenas[i].bits.clear(0, kArena / kPage);
  g.heap_top = (uintptr_t)__curbrk;
  for (size_t i = 0; i < kTable; i++) {
    const Block &b = g.blocks[i];
    if (b.p > 1 && !b.pages) set_heap(b.p, b.size, in_main_heap((void *)b.p));
  }
  look();
  add_row();
}

}  // namespace peakmem

using namespace peakmem;

API void peakmem_host_look(void) {
  Lock lock;
  if (!g.blocks) begin();
  look();
  rose();
}

API void peakmem_host_read(struct peakmem_host_state *out) {
  Lock lock;
  if (g.rising) before_fall();
  *out = {g.live, g.mapped * kPage, g.heap_pages * kPage, g.outside, g.peak, g.peak_live, g.peak_outside, g.events};
}

API void peakmem_host_reset_peak(void) {
  Lock lock;
  if (g.rising) before_fall();
  set_peak();
}

API uint64_t peakmem_host_peak_blocks(struct peakmem_host_block *out, uint64_t n) {
  Lock lock;
  if (!g.blocks) return 0;
  if (g.rising) before_fall();
  if (!g.n_at_peak) note_peak();
  memcpy(out, g.at_peak, (n < g.n_at_peak ? n : g.n_at_peak) * sizeof *out);
  return g.n_at_peak;
}

API void peakmem_host_partly(uint64_t size, uint64_t written, uint64_t blocks) {
  t_partly_left = blocks;
  t_partly_size = size;
  t_partly_written = written;
}

API uint64_t peakmem_host_resident(uint64_t address, uint64_t size) {
  Lock lock;
  int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  uint64_t n = count_present(fd, address & ~(kPage - 1), (address + size + kPage - 1) & ~(kPage - 1), false, nullptr, 0);
  close(fd);
  return n * kPage;
}

API uint64_t peakmem_host_course(const struct peakmem_host_row **rows) {
  *rows = g.rows;
  return g.n_rows;
}

static unsigned long resident_of_files() {
  unsigned long kib = 0;
  char line[256];
  if (FILE *file = fopen("/proc/self/status", "r")) {
    while (fgets(line, sizeof line, file))
      if (sscanf(line, "RssFile: %lu", &kib) == 1) break;
    fclose(file);
  }
  return kib << 10;
}

static void tell(const char *touched) {
  FILE *file = fopen(g_end, "w");
  if (!file) return;
  fprintf(file, "{\"live\": %lu, \"mapped\": %lu, \"heap\": %lu, \"touched\": %s}\n", (unsigned long)g_left.live,
          (unsigned long)g_left.mapped, (unsigned long)g_left.heap, touched);
  fclose(file);
}

static void main_is_over(int status, void *) {
  if (getpid() != g_end_pid) return;
  peakmem_host_read(&g_left);
  g_files_at_exit = resident_of_files();
  if (!g_leave) return;
  tell("null");
  fflush(nullptr);
  _exit(status);
}

__attribute__((destructor)) static void all_is_over() {
  if (!g_files_at_exit || getpid() != g_end_pid) return;
  char touched[32];
  unsigned long now = resident_of_files();
  snprintf(touched, sizeof touched, "%lu", now > g_files_at_exit ? now - g_files_at_exit : 0);
  tell(touched);
}

API void peakmem_host_tell_at_end(const char *path, int leave) {
  strncpy(g_end, path, sizeof g_end - 1);
  g_end_pid = getpid();
  g_leave = leave;
  on_exit(main_is_over, nullptr);  // of all handlers the last to be asked for, and so the first to run
}

API int peakmem_host_report(char *out, int n) {
  Lock lock;
  strncpy(out, g_used, n - 1);
  out[n - 1] = 0;
  return (int)strlen(out);
}
