// The log of what blocks are used for, and the calls of the libraries that are made for it alone.
#include "uses.h"

#include <mutex>
#include <vector>

#include "control.h"
#include "cuda_declarations.h"
#include "libraries.h"

namespace peakmem {
namespace {

struct Uses {
  std::mutex mutex;
  std::vector<peakmem_use> rows;
};
Uses &uses() {
  static Uses *u = new Uses;  // never destroyed: threads may outlive the end of main
  return *u;
}

}  // namespace

void note_use(const void *address, Use use) {
  if (!address) return;
  peakmem_use row = {peakmem_event_count(), (uint64_t)(uintptr_t)address, (uint32_t)use, 0};
  Uses &u = uses();
  std::lock_guard<std::mutex> lock(u.mutex);
  if (!u.rows.empty()) {  // PyTorch sets the workspace before each multiplication
    const peakmem_use &last = u.rows.back();
    if (last.event == row.event && last.address == row.address && last.use == row.use) return;
  }
  u.rows.push_back(row);
}

}  // namespace peakmem

using namespace peakmem;

API uint64_t peakmem_use_count(void) {
  Uses &u = uses();
  std::lock_guard<std::mutex> lock(u.mutex);
  return u.rows.size();
}
API const struct peakmem_use *peakmem_uses(void) { return uses().rows.data(); }

PEAKMEM_API int cublasSetWorkspace_v2(void *, void *workspace, size_t) {
  vgpu_log("cublasSetWorkspace_v2");
  note_use(workspace, Use::kBlasWorkspace);
  return 0;
}
PEAKMEM_API int cublasLtMatmul(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *,
                               void *, const void *, void *workspace, size_t bytes, void *) {
  vgpu_log("cublasLtMatmul");
  if (bytes) note_use(workspace, Use::kBlasLtWorkspace);
  return 0;
}
