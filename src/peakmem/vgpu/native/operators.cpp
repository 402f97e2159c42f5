// Which operators of PyTorch took and gave back blocks.
//
// PyTorch calls observers around each operator and each node of the autograd graph (at::addGlobalCallback,
// ATen/record_function.h). Ours asks for neither inputs nor outputs, so it prolongs the life of no tensor. The library is
// built without PyTorch's headers: what is used of them is declared here (the same from PyTorch 1.13 to 2.14).
#include <dlfcn.h>
#include <string.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "control.h"
#include "cuda_declarations.h"
#include "events.h"

namespace peakmem {
namespace {

// std::unique_ptr<at::ObserverContext>: returned through memory, since it has a destructor. Always empty here.
struct NoContext {
  void *pointer = nullptr;
  NoContext() = default;
  ~NoContext() {}
};

// at::RecordFunctionCallback.
struct Observer {
  NoContext (*start)(const void *function);
  void (*end)(const void *function, void *context);
  double sampling = 1.0;
  bool scopes[16] = {true, true};  // FUNCTION, BACKWARD_FUNCTION; then other scopes, and what is needed: nothing
};
static_assert(sizeof(Observer) == 40, "passed by value on the stack");

typedef uint64_t (*AddGlobalCallback)(Observer);
typedef const char *(*Name)(const void *function);
Name g_name = nullptr;

struct Log {
  std::mutex mutex;
  std::vector<peakmem_operator> rows;
  std::unordered_map<std::string, uint32_t> numbers;
  std::string names;  // each followed by a line end, in the order of their numbers
};
Log &operator_log() {
  static Log *l = new Log;  // never destroyed: threads may outlive the end of main
  return *l;
}

struct Running {
  const void *function;
  uint64_t first;
};
thread_local std::vector<Running> *t_running = nullptr;

NoContext started(const void *function) {
  if (!t_running) t_running = new std::vector<Running>;
  t_running->push_back({function, peakmem_event_count()});
  return {};
}

void ended(const void *function, void *) {
  if (!t_running) return;
  while (!t_running->empty()) {
    Running running = t_running->back();
    t_running->pop_back();
    if (running.function != function) continue;  // one that was left without its end
    uint64_t count = peakmem_event_count();
    if (count == running.first) return;
    Log &l = operator_log();
    std::lock_guard<std::mutex> lock(l.mutex);
    std::string name = g_name(function);
    auto [entry, fresh] = l.numbers.emplace(name, (uint32_t)l.numbers.size());
    if (fresh) l.names += name + "\n";
    l.rows.push_back({running.first, count, entry->second, (uint16_t)thread_number(), (uint16_t)t_running->size()});
    return;
  }
}

}  // namespace
}  // namespace peakmem

using namespace peakmem;

API int peakmem_watch_operators(void) {
  static const bool watching = [] {
    void *library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return false;
    auto add = (AddGlobalCallback)dlsym(library, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
    g_name = (Name)dlsym(library, "_ZNK2at14RecordFunction4nameEv");
    if (!add || !g_name) return false;
    Observer observer;
    observer.start = started;
    observer.end = ended;
    add(observer);
    return true;
  }();
  return watching;
}
API uint64_t peakmem_operator_count(void) {
  Log &l = operator_log();
  std::lock_guard<std::mutex> lock(l.mutex);
  return l.rows.size();
}
API const struct peakmem_operator *peakmem_operators(void) { return operator_log().rows.data(); }
API int peakmem_running_operators(char *out, int n) {
  int written = 0, used = 0;
  if (t_running && g_name) {
    for (const Running &running : *t_running) {
      std::string line = std::string(g_name(running.function)) + "\n";
      if (used + (int)line.size() >= n) break;
      memcpy(out + used, line.data(), line.size());
      used += (int)line.size();
      written++;
    }
  }
  if (n > 0) out[used] = 0;
  return written;
}
API const char *peakmem_operator_names(void) { return operator_log().names.c_str(); }
