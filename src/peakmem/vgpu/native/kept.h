// Which parts of device memory hold what was copied or filled there, for programs that read constants back. A kernel may have
// written there since: that is known only where the allocator handed the memory out anew.
#pragma once

#include <stddef.h>

namespace peakmem {

void note_kept(const void *address, size_t n);
bool is_kept(const void *address, size_t n);
void forget_kept(const void *address, size_t n);
// Host memory that was written for it, bytes.
size_t kept_bytes();

}  // namespace peakmem
