// cudnn_convolution.cpp - see cudnn_convolution.h.
#include "cudnn_convolution.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "cudnn_declarations.h"
#include "libraries.h"

namespace peakmem::cudnn {
namespace {

bool last_dimensions_are_one(const Tensor& t) {
  for (size_t i = 2; i < t.dims.size(); i++)
    if (t.dims[i] != 1) return false;
  return true;
}

std::string shape(const Tensor& t) {
  std::string s;
  for (int64_t v : t.dims) s += (s.empty() ? "" : "x") + std::to_string(v);
  return s.empty() ? "-" : s;
}

struct Part {
  int attribute;
  Direction direction;
  Tensor Convolution::* tensor;
};
constexpr Part kParts[] = {
    {kForwardX, Direction::kForward, &Convolution::x},
    {kForwardW, Direction::kForward, &Convolution::w},
    {kForwardY, Direction::kForward, &Convolution::y},
    {kBackwardDataDx, Direction::kBackwardData, &Convolution::x},
    {kBackwardDataW, Direction::kBackwardData, &Convolution::w},
    {kBackwardDataDy, Direction::kBackwardData, &Convolution::y},
    {kBackwardFilterX, Direction::kBackwardFilter, &Convolution::x},
    {kBackwardFilterDw, Direction::kBackwardFilter, &Convolution::w},
    {kBackwardFilterDy, Direction::kBackwardFilter, &Convolution::y},
};

}  // namespace

int64_t Tensor::bytes() const {
  int64_t n = width(type);
  for (int64_t d : dims) n *= d;
  return dims.empty() ? 0 : n;
}

bool Tensor::channels_last() const {
  size_t n = dims.size();
  return n >= 3 && strides.size() == n && dims[1] > 1 && strides[1] == 1 && strides[n - 1] != 1;
}

const char* name(Direction direction) {
  switch (direction) {
    case Direction::kForward: return "forward";
    case Direction::kBackwardData: return "data";
    case Direction::kBackwardFilter: return "filter";
    default: return "none";
  }
}

int64_t Convolution::groups() const {
  if (x.dims.size() < 2 || w.dims.size() < 2 || w.dims[1] < 1) return 1;
  return x.dims[1] / w.dims[1];
}

bool Convolution::pointwise() const { return w.dims.size() >= 3 && last_dimensions_are_one(w); }

std::string Convolution::text() const {
  return std::string("conv=") + name(direction) + " x=" + shape(x) + " w=" + shape(w) + " y=" + shape(y) +
         " type=" + std::to_string(x.type) + (x.channels_last() ? " channels_last" : "");
}

bool add_part(Convolution& c, int attribute, const Tensor& tensor) {
  for (const Part& p : kParts) {
    if (p.attribute != attribute) continue;
    c.direction = p.direction;
    c.*p.tensor = tensor;
    return true;
  }
  return false;
}

Mode mode() {
  static Mode m = [] {
    const char* e = getenv("PEAKMEM_VGPU_CUDNN");
    if (!e || !*e || !strcmp(e, "likely")) return Mode::kLikely;
    if (!strcmp(e, "own")) return Mode::kOwn;
    if (!strcmp(e, "least")) return Mode::kLeast;
    fprintf(stderr, "[peakmem] PEAKMEM_VGPU_CUDNN=%s is not known (likely, own, least); taken as likely\n", e);
    return Mode::kLikely;
  }();
  return m;
}

// In the device-less mode cuDNN ranks engines first that copy tensors to NHWC, for 1x1 filters too; totals of real cards
// imply almost no workspace there.  The bound of 256 channels was chosen on published MobileNetV2 and ResNet-50 rows of an
// A100 (15 rows of other networks: median error 4.2 % without, 0.5 % with it, cuDNN 9.10); no card has been asked yet.
bool taken_by_1x1_rule(const Convolution& c) {
  static int64_t most = [] {
    const char* e = getenv("PEAKMEM_VGPU_CUDNN_1X1");
    return e && *e ? atoll(e) : 256LL;
  }();
  if (most <= 0 || c.x.type != kFloat || c.w.dims.size() < 4 || c.x.dims.size() != c.w.dims.size()) return false;
  if (!c.pointwise() || c.x.channels_last()) return false;
  return std::min(c.x.dims[1], c.w.dims[0]) <= most;
}

int64_t chosen_workspace(const Convolution& c, int64_t own) {
  if (mode() == Mode::kLeast) return 0;
  if (mode() == Mode::kLikely && taken_by_1x1_rule(c)) return 0;
  return own;
}

int64_t substitute_workspace(const Convolution& c) {
  if (c.x.channels_last() || c.groups() > 1) return 0;
  return c.x.bytes() + c.w.bytes() + c.y.bytes();
}

void log_plan(const char* source, const Convolution& c, int64_t own, const char* reason) {
  static FILE* log = [] {
    const char* e = getenv("PEAKMEM_VGPU_CUDNN_LOG");
    return e && *e ? fopen(e, "a") : nullptr;
  }();
  if (!log) return;
  static auto* lock = new std::mutex;
  std::lock_guard<std::mutex> guard(*lock);
  fprintf(log, "%s workspace=%lld taken=%lld %s%s%s\n", source, (long long)own,
          (long long)(c && own >= 0 ? chosen_workspace(c, own) : own), c.text().c_str(), *reason ? " refused: " : "", reason);
  fflush(log);
}

}  // namespace peakmem::cudnn
