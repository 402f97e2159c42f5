#include "notes.h"

#include <stdio.h>

#include <map>
#include <mutex>

#include "config.h"
#include "cuda_declarations.h"

namespace peakmem {
namespace {

struct Notes {
  std::mutex mutex;
  std::map<std::string, std::map<std::string, unsigned long long>> counts;
};
Notes &notes() {
  static Notes *n = new Notes;  // never destroyed: threads may outlive the end of main
  return *n;
}
thread_local int t_error = kSuccess;

std::string quoted(const std::string &text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += (unsigned char)c < 32 ? ' ' : c;
  }
  return out + "\"";
}

}  // namespace

void note(const char *kind, const char *what) {
  Notes &n = notes();
  std::lock_guard<std::mutex> lock(n.mutex);
  n.counts[kind][what]++;
}

std::string notes_json() {
  Notes &n = notes();
  std::lock_guard<std::mutex> lock(n.mutex);
  std::string out;
  for (const char *kind : {"unsupported", "substitute", "estimate"}) n.counts[kind];
  for (const auto &kind : n.counts) {
    out += (out.empty() ? "" : ", ") + quoted(kind.first) + ": {";
    bool first = true;
    for (const auto &entry : kind.second) {
      out += (first ? "" : ", ") + quoted(entry.first) + ": " + std::to_string(entry.second);
      first = false;
    }
    out += "}";
  }
  return out;
}

int fail(int error) {
  if (error != kSuccess) t_error = error;
  return error;
}
int unsupported(const char *name) { return fail(vgpu_unsupported(name, kNotSupported)); }
int last_error() { return t_error; }
int take_last_error() {
  int error = t_error;
  t_error = kSuccess;
  return error;
}

}  // namespace peakmem

extern "C" void vgpu_note(const char *kind, const char *what) { peakmem::note(kind, what); }
extern "C" int vgpu_unsupported(const char *name, int rc) {
  peakmem::note("unsupported", name);
  if (peakmem::config().debug) fprintf(stderr, "[peakmem] not supported on the virtual GPU: %s\n", name);
  return rc;
}
