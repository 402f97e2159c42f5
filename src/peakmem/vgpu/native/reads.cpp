#include "reads.h"

#include <string.h>

#include <atomic>
#include <vector>

#include "config.h"
#include "control.h"
#include "cuda_declarations.h"

namespace peakmem {
namespace {

struct Queue {
  std::vector<int64_t> values;
  size_t next = 0;
};
thread_local int t_solved = 0;  // a decomposition was started: so many reads of one byte until the one of its success
thread_local Queue *t_queue = nullptr;  // a pointer: no destructor when a thread ends
std::atomic<unsigned long long> g_answered{0}, g_unknown{0}, g_unknown_bytes{0};

}  // namespace

void read_back(void *to, const void *kept, size_t n) {
  if (t_queue && t_queue->next < t_queue->values.size() && n && n <= 8) {
    int64_t value = t_queue->values[t_queue->next++];
    memcpy(to, &value, n);  // little-endian machines only, as all that CUDA runs on
    if (n == 1 && t_solved > 0) t_solved--;
    g_answered++;
  } else if (kept) {
    memcpy(to, kept, n);
  } else if (n == 1 && t_solved > 0 && --t_solved == 0) {
    memset(to, 0, n);
    g_answered++;
  } else {
    memset(to, n == 1 ? config().boolean : 0, n);
    g_unknown++;
    g_unknown_bytes += n;
  }
}

std::string reads_json() {
  return "\"answered\": " + std::to_string(g_answered) + ", \"unknown\": " + std::to_string(g_unknown) +
         ", \"unknown_bytes\": " + std::to_string(g_unknown_bytes);
}

}  // namespace peakmem

extern "C" void vgpu_solved(int before) { peakmem::t_solved = before + 1; }

API void peakmem_queue_reads(const int64_t *values, int n) {
  using namespace peakmem;
  if (!t_queue) t_queue = new Queue;
  if (n > 0) t_queue->values.insert(t_queue->values.end(), values, values + n);
}
API void peakmem_clear_reads(void) {
  using namespace peakmem;
  if (!t_queue) return;
  t_queue->values.clear();
  t_queue->next = 0;
}
