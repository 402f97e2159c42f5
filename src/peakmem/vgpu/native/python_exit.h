#pragma once

namespace peakmem {

// Called where Python's lock is likely held; registers once with Python's atexit.
void wait_for_threads_at_exit();

}  // namespace peakmem
