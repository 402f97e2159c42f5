// Counts of what was not the real thing, for the report.
#pragma once

#include <string>

#include "shims.h"

namespace peakmem {

void note(const char *kind, const char *what);
// `"kind": {"what": count, ...}` members, sorted; without the outer braces.
std::string notes_json();
// An error remembered for cudaGetLastError.
int fail(int error);
int unsupported(const char *name);
int take_last_error();
int last_error();

}  // namespace peakmem
