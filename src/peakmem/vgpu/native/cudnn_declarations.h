// cudnn_declarations.h - the part of cuDNN's interface that the virtual GPU meets, in our own words.
//
// Names, signatures and enumerator values are those of the binary interface of cuDNN 9 (9.0 to 9.24), documented in
// NVIDIA's cuDNN API reference; the values have not changed within version 9.  Handles and descriptors are pointers.
#pragma once
#include <cstddef>
#include <cstdint>

namespace peakmem::cudnn {

enum Status : int { kSuccess = 0, kBadParam = 2000, kNotSupported = 3000 };

enum DataType : int {
  kFloat = 0,
  kDouble = 1,
  kHalf = 2,
  kInt8 = 3,
  kInt32 = 4,
  kUint8 = 6,
  kBfloat16 = 9,
  kInt64 = 10,
  kBoolean = 11,
  kFp8E4m3 = 12,
  kFp8E5m2 = 13,
};
// Bytes of one element.
inline int64_t width(int type) {
  switch (type) {
    case kDouble:
    case kInt64: return 8;
    case kHalf:
    case kBfloat16: return 2;
    case kInt8:
    case kUint8:
    case kBoolean:
    case kFp8E4m3:
    case kFp8E5m2: return 1;
    default: return 4;
  }
}

// Kinds of backend descriptors.
enum Descriptor : int {
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kConvolutionForward = 10,
  kConvolutionBackwardFilter = 11,
  kConvolutionBackwardData = 12,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmulOperation = 19,
  kNormForward = 29,
  kNormBackward = 30,
  kDeviceProperty = 38,  // since 9.8
};

// Attributes of backend descriptors.
enum Attribute : int {
  kHeuristicsMode = 200,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kHeuristicsDevice = 204,  // since 9.8
  kConfigEngine = 300,
  kConfigKnobChoices = 302,
  kConfigWorkspace = 303,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspace = 402,
  kPlanDevice = 407,  // since 9.8
  kForwardW = 703,
  kForwardX = 704,
  kForwardY = 705,
  kBackwardDataW = 709,
  kBackwardDataDx = 710,
  kBackwardDataDy = 711,
  kBackwardFilterDw = 715,
  kBackwardFilterX = 716,
  kBackwardFilterDy = 717,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kGraphEngineCount = 802,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorByValue = 908,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineKnobs = 1302,
  kEngineNumericalNotes = 1303,
  kEngineLayouts = 1304,
  kEngineBehaviorNotes = 1305,
  kEngineDevice = 1307,  // since 9.8
  kMatmulA = 1520,
  kNormForwardMode = 2000,
  kNormForwardPhase = 2001,
  kNormForwardX = 2002,
  kNormForwardMean = 2003,
  kNormForwardInverseVariance = 2004,
  kNormForwardScale = 2005,
  kNormForwardBias = 2006,
  kNormForwardEpsilon = 2007,
  kNormForwardAverageFactor = 2008,
  kNormForwardRunningMean = 2009,
  kNormForwardRunningVariance = 2010,
  kNormForwardNewRunningMean = 2011,
  kNormForwardNewRunningVariance = 2012,
  kNormForwardY = 2013,
  kNormBackwardMode = 2100,
  kNormBackwardX = 2101,
  kNormBackwardMean = 2102,
  kNormBackwardInverseVariance = 2103,
  kNormBackwardDy = 2104,
  kNormBackwardScale = 2105,
  kNormBackwardEpsilon = 2106,
  kNormBackwardDscale = 2107,
  kNormBackwardDbias = 2108,
  kNormBackwardDx = 2109,
  kDeviceJson = 2702,  // since 9.8
};

// Types of attribute values.
enum Type : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeHeuristicsMode = 8,
  kTypeDescriptor = 15,
  kTypeChar = 24,
  kTypeNormMode = 27,
  kTypeNormPhase = 28,
};

enum { kHeuristicsInstant = 0, kHeuristicsFallback = 2 };
enum { kGraphNormBatch = 2, kGraphNormTraining = 1 };
enum BatchNormMode : int { kPerActivation = 0, kSpatial = 1, kSpatialPersistent = 2 };
enum RnnCell : int { kRnnRelu = 0, kRnnTanh = 1, kLstm = 2, kGru = 3 };
enum RnnBias : int { kNoBias = 0, kInputBias = 1, kDoubleBias = 2, kRecurrentBias = 3 };
enum { kBidirectional = 1, kSkipInput = 1, kTraining = 1 };

// cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t, which have one layout.
struct AlgorithmPerformance {
  int algorithm;
  int status;
  float milliseconds;
  size_t memory;  // bytes of workspace
  int determinism;
  int math_type;
  int reserved[3];
};

}  // namespace peakmem::cudnn
