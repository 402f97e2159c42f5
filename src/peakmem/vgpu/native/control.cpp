#include "control.h"

#include <string.h>

#include <string>

#include "cuda_declarations.h"
#include "device.h"
#include "kernels.h"
#include "notes.h"
#include "pinned.h"
#include "reads.h"

API int peakmem_report(char *out, int n) {
  using namespace peakmem;
  std::string devices;
  {
    Memory &m = memory();
    Lock lock(m.mutex);
    for (const DeviceMemory &d : m.devices)
      devices += (devices.empty() ? "" : ", ") + std::string("{\"used\": ") + std::to_string(d.used) + ", \"peak\": " + std::to_string(d.peak) +
                 ", \"allocations\": " + std::to_string(d.allocations) + ", \"frees\": " + std::to_string(d.frees) +
                 ", \"failures\": " + std::to_string(d.failures) + "}";
  }
  std::string json = "{\"devices\": [" + devices + "], \"reads\": {" + reads_json() + "}, \"launches\": " + std::to_string(launches()) + ", " + pinned_json() + ", " + notes_json() + "}";
  if (out && n > 0 && json.size() < (size_t)n) memcpy(out, json.c_str(), json.size() + 1);
  return (int)json.size();
}

API void peakmem_set_capacity(uint64_t bytes) {
  peakmem::Memory &m = peakmem::memory();
  peakmem::Lock lock(m.mutex);
  m.capacity = bytes;
}
