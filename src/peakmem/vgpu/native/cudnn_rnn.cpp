// cudnn_rnn.cpp - cuDNN's recurrent layers: exact weights, estimated reserve and workspace.
//
// The size and layout of the weights are documented (cuDNN API reference, cudnnGetRNNWeightParams) and PyTorch keeps them in
// one flat buffer.  cudnnGetRNNTempSpaceSizes needs a handle with a device and has no device-less form, so its two sizes are
// estimates from what the algorithm must keep, and are counted as such.
#include <map>
#include <mutex>

#include "cudnn_declarations.h"
#include "cudnn_library.h"
#include "libraries.h"

namespace peakmem::cudnn {
namespace {

struct Rnn {
  int cell = kLstm, bias = kDoubleBias, directions = 1, type = kFloat;
  int64_t input = 0, hidden = 0, projection = 0, layers = 0;  // projection: 0 for none
  // What nothing here hangs on, for those who ask for it back.
  int algorithm = 0, input_mode = 0, precision = 0, math = 0;
  void* dropout = nullptr;
  uint32_t flags = 0;

  int64_t gates() const { return cell == kLstm ? 4 : cell == kGru ? 3 : 1; }
  int64_t output() const { return projection ? projection : hidden; }
  int64_t input_of(int64_t pseudo_layer) const { return pseudo_layer < directions ? input : output() * directions; }
  int64_t biases() const { return bias == kNoBias ? 0 : bias == kDoubleBias ? 2 : 1; }
  // Elements of the matrices of one pseudo-layer (one direction of a layer).
  int64_t matrices(int64_t pseudo_layer) const {
    return gates() * hidden * (input_of(pseudo_layer) + output()) + projection * hidden;
  }
  int64_t pseudo_layers() const { return layers * directions; }
  int64_t all_matrices() const {
    int64_t n = 0;
    for (int64_t l = 0; l < pseudo_layers(); l++) n += matrices(l);
    return n;
  }
  int64_t weights() const { return all_matrices() + pseudo_layers() * gates() * hidden * biases(); }
};
struct Data {
  int type = kFloat;
  int64_t steps = 0, batch = 0, width = 0;
};

struct State {
  std::mutex mutex;
  std::map<const void*, Rnn> rnns;
  std::map<const void*, Data> data;
};
State& state() {
  static auto* s = new State;
  return *s;
}

Rnn rnn_of(const void* descriptor) {
  std::lock_guard<std::mutex> guard(state().mutex);
  return state().rnns[descriptor];
}

void describe(void* descriptor, int type, int rows, int columns) {
  static auto* f = function<int(void*, int, int, const int*, const int*)>("cudnnSetTensorNdDescriptor");
  int dims[3] = {1, rows, columns}, strides[3] = {rows * columns, columns, 1};
  if (descriptor) f(descriptor, type, 3, dims, strides);
}

}  // namespace
}  // namespace peakmem::cudnn

using namespace peakmem;
using namespace peakmem::cudnn;

PEAKMEM_API int cudnnSetRNNDescriptor_v8(void* d, int algorithm, int cell, int bias, int direction, int input_mode, int type,
                                         int precision, int math, int32_t input, int32_t hidden, int32_t projection,
                                         int32_t layers, void* dropout, uint32_t flags) {
  Rnn r;
  r.algorithm = algorithm;
  r.input_mode = input_mode;
  r.precision = precision;
  r.math = math;
  r.dropout = dropout;
  r.flags = flags;
  r.cell = cell;
  r.bias = bias;
  r.directions = direction == kBidirectional ? 2 : 1;
  r.type = type;
  r.input = input;
  r.hidden = hidden;
  r.projection = projection == hidden ? 0 : projection;
  r.layers = layers;
  std::lock_guard<std::mutex> guard(state().mutex);
  state().rnns[d] = r;
  return kSuccess;
}

PEAKMEM_API int cudnnGetRNNDescriptor_v8(void* d, int* algorithm, int* cell, int* bias, int* direction, int* input_mode, int* type,
                                         int* precision, int* math, int32_t* input, int32_t* hidden, int32_t* projection,
                                         int32_t* layers, void** dropout, uint32_t* flags) {
  Rnn r = rnn_of(d);
  if (algorithm) *algorithm = r.algorithm;
  if (cell) *cell = r.cell;
  if (bias) *bias = r.bias;
  if (direction) *direction = r.directions == 2 ? kBidirectional : 0;
  if (input_mode) *input_mode = r.input_mode;
  if (type) *type = r.type;
  if (precision) *precision = r.precision;
  if (math) *math = r.math;
  if (input) *input = (int32_t)r.input;
  if (hidden) *hidden = (int32_t)r.hidden;
  if (projection) *projection = (int32_t)r.output();
  if (layers) *layers = (int32_t)r.layers;
  if (dropout) *dropout = r.dropout;
  if (flags) *flags = r.flags;
  return kSuccess;
}

PEAKMEM_API int cudnnSetRNNDataDescriptor(void* d, int type, int, int steps, int batch, int width, const int*, void*) {
  std::lock_guard<std::mutex> guard(state().mutex);
  state().data[d] = Data{type, steps, batch, width};
  return kSuccess;
}

PEAKMEM_API int cudnnGetRNNWeightSpaceSize(void*, void* d, size_t* bytes) {
  Rnn r = rnn_of(d);
  *bytes = (size_t)(r.weights() * width(r.type));
  return kSuccess;
}

// Reserve (training), in units of steps x batch x hidden x directions: for each layer what the backward pass reads, i.e. the
// activated gates and, with gates, more (LSTM: 4 + the cell state; GRU: 3 + 3; plain: 1), and each output that feeds a next
// layer.  Anchor: pytorch/pytorch issue 2895 reports 736,000,000 bytes (LSTM) and 864,000,000 (GRU) for 4 layers of width
// 320 in fp32 on a P100 with the cuDNN of 2017; (4 x 5 + 3) and (4 x 6 + 3) units of 25,000 x 320 x 4 bytes are these
// numbers exactly, and the plain network's 1 fits its totals.  cuDNN 9 has not been asked.
//
// Workspace: the matrices once more (a layout the kernels like) and (3 gates - 1) states for each layer; the same report
// has 17,730,560 and 13,169,920 bytes, which this gives if its batch was 100.
PEAKMEM_API int cudnnGetRNNTempSpaceSizes(void*, void* d, int mode, void* x, size_t* workspace, size_t* reserve) {
  Rnn r = rnn_of(d);
  Data data;
  {
    std::lock_guard<std::mutex> guard(state().mutex);
    data = state().data[x];
  }
  int64_t state_bytes = data.batch * r.hidden * r.directions * width(r.type);
  int64_t kept = r.cell == kLstm ? 5 : r.cell == kGru ? 6 : 1;
  if (workspace)
    estimate(workspace, r.all_matrices() * width(r.type) + state_bytes * r.layers * (3 * r.gates() - 1),
             "cuDNN RNN workspace: weights + batch x hidden x (3 gates - 1) for each layer");
  if (!reserve) return kSuccess;
  if (mode != kTraining) {
    *reserve = 0;
    return kSuccess;
  }
  return estimate(reserve, data.steps * state_bytes * (kept * r.layers + r.layers - 1),
                  "cuDNN RNN reserve: steps x batch x hidden x (5 LSTM, 6 GRU, 1 plain for each layer + layers - 1)");
}

PEAKMEM_API int cudnnGetRNNWeightParams(void*, void* d, int32_t pseudo_layer, size_t, const void* weights, int32_t id,
                                        void* matrix_descriptor, void** matrix, void* bias_descriptor, void** bias) {
  const Rnn r = rnn_of(d);
  const int64_t gates = r.gates(), size = width(r.type), in = r.input_of(pseudo_layer), back = r.output();
  auto* base = static_cast<char*>(const_cast<void*>(weights));
  const bool is_projection = id == 2 * gates;
  if (matrix) *matrix = nullptr;
  if (bias) *bias = nullptr;
  if (is_projection && !r.projection) return kSuccess;

  int64_t offset = 0, rows = r.hidden, columns = 0;
  for (int64_t l = 0; l < pseudo_layer; l++) offset += r.matrices(l);
  if (is_projection) {
    offset += gates * r.hidden * (in + back);
    rows = r.projection;
    columns = r.hidden;
  } else if (id < gates) {
    offset += id * r.hidden * in;
    columns = in;
  } else {
    offset += gates * r.hidden * in + (id - gates) * r.hidden * back;
    columns = back;
  }
  describe(matrix_descriptor, r.type, (int)rows, (int)columns);
  if (matrix) *matrix = base + offset * size;
  if (is_projection || !r.biases() || !bias) return kSuccess;
  if (r.bias == kInputBias && id >= gates) return kSuccess;
  if (r.bias == kRecurrentBias && id < gates) return kSuccess;
  int64_t which = r.biases() == 2 ? id : id % gates;
  describe(bias_descriptor, r.type, (int)r.hidden, 1);
  *bias = base + (r.all_matrices() + (pseudo_layer * gates * r.biases() + which) * r.hidden) * size;
  return kSuccess;
}
