// The driver's functions (libcuda.so.1), by name.
#pragma once

namespace peakmem {

void *driver_symbol(const char *name);  // null: not there
// A function that stands for one that is not there: callers look up more than they ever call, so only the call is an error.
void *driver_missing(const char *name);
const char *error_message(int error);

}  // namespace peakmem
