// cudnn_convolution.h - the convolution that a cuDNN operation graph holds, and how much workspace it is given.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace peakmem::cudnn {

struct Tensor {
  std::vector<int64_t> dims, strides;  // elements
  int type = -1;                       // DataType
  int64_t bytes() const;
  bool channels_last() const;
};

enum class Direction { kNone, kForward, kBackwardData, kBackwardFilter };
const char* name(Direction direction);

struct Convolution {
  Direction direction = Direction::kNone;
  Tensor x, w, y;  // input, weights, output (or their gradients)
  explicit operator bool() const { return direction != Direction::kNone; }
  // Input channels / channels of one filter.
  int64_t groups() const;
  bool pointwise() const;  // a 1x1 filter
  std::string text() const;
};

// Takes the tensor that a backend attribute of a convolution operation names; false for other attributes.
bool add_part(Convolution& c, int attribute, const Tensor& tensor);

// PEAKMEM_VGPU_CUDNN: whose workspace a plan has.
enum class Mode {
  kLikely,  // cuDNN's own plans, with the rule for 1x1 convolutions (default)
  kOwn,     // cuDNN's own device-less plans as they are
  kLeast,   // none
};
Mode mode();

// The rule for 1x1 convolutions: fp32 NCHW, smaller channel count at most PEAKMEM_VGPU_CUDNN_1X1 (256).
bool taken_by_1x1_rule(const Convolution& c);
// What PyTorch is told in the mode, where cuDNN's plan has `own` bytes.
int64_t chosen_workspace(const Convolution& c, int64_t own);
// A stated rule, in bytes, for cuDNN versions that can't be asked; see cudnn_convolution.cpp.
int64_t substitute_workspace(const Convolution& c);

// A line in PEAKMEM_VGPU_CUDNN_LOG for a plan that was built (own >= 0) or refused (own < 0, with the reason).
void log_plan(const char* source, const Convolution& c, int64_t own, const char* reason);

}  // namespace peakmem::cudnn
