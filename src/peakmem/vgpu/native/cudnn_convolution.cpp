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

// Partial sums of a filter's gradient that sums over many positions, in the TF32 plans: about six filters, at most 27 MiB.
static int64_t split_sums(const Convolution& c) {
  int64_t positions = c.y.dims.empty() ? 0 : c.y.dims[0];
  for (size_t i = 2; i < c.y.dims.size(); i++) positions *= c.y.dims[i];
  return positions < 4096 ? 0 : std::min<int64_t>(6 * c.w.bytes(), (int64_t)27 << 20);
}

// Read off the plans that cuDNN 9.24 makes without a device for ResNet-18/50, VGG-11 and MobileNetV2 at 8.0 and 7.5; most of
// these plans are met to 16 bytes, weight gradients roughly.
//   - grouped and depthwise: none
//   - a type without tensor cores on this device (fp64; fp32 before 8.0; 16 bits before 7.0): none, but 3x3 filters of stride
//     1 have their Winograd form, 25 fp32 values for each filter channel, and 4 bytes for each filter (not for their gradient)
//   - 16 bits: NHWC copies of x, y and filters larger than 1x1; none of them if the tensors are channels_last
//   - fp32 (TF32): NHWC copies of x and w forward (of y too for an input of odd channels), of all three backward;
//     channels_last: of the two operands
int64_t substitute_workspace(const Convolution& c) {
  constexpr int64_t kAlignment = 16;
  int cc = 0;
  vgpu_info(&cc, nullptr, nullptr, nullptr, nullptr);
  const int64_t x = c.x.bytes(), w = c.w.bytes(), y = c.y.bytes();
  const bool forward = c.direction == Direction::kForward, filter = c.direction == Direction::kBackwardFilter;
  const bool narrow = width(c.x.type) <= 2;
  if (c.groups() > 1) return 0;
  if (c.x.type == kDouble || (c.x.type == kFloat && cc < 80) || (narrow && cc < 70)) {
    bool same_size = c.x.dims.size() == 4 && c.y.dims.size() == 4 && c.x.dims[2] == c.y.dims[2] && c.x.dims[3] == c.y.dims[3];
    bool winograd = c.x.type != kDouble && same_size && c.w.dims[2] == 3 && c.w.dims[3] == 3 && !filter && c.w.dims[1] % 8 == 0;
    return winograd ? c.w.dims[0] * c.w.dims[1] * 25 * 4 + c.w.dims[0] * 4 : 0;
  }
  if (narrow) return c.x.channels_last() ? 0 : x + y + (c.pointwise() ? 0 : w) + kAlignment;
  if (c.x.channels_last()) return (forward ? x + w : filter ? x + y : y + w) + kAlignment;
  if (forward && c.x.dims.size() > 1 && c.x.dims[1] % 4 == 0) return x + w + kAlignment;
  return x + y + w + kAlignment + (filter ? split_sums(c) : 0);
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
