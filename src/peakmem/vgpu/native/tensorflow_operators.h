// Which operator of TensorFlow runs on a thread, and what TensorFlow says of the chunk that it takes.
#pragma once

#include <stdint.h>

#include <string>

namespace peakmem {

// How a chunk was asked for (the region types of tsl::profiler::MemoryDebugAnnotation).
enum class Region : uint8_t { kUnknown = 0, kOutput = 1, kTemp = 2, kPersistent = 3, kDynamic = 4 };

struct Asked {
  std::string op;     // "name:type" of the operator; empty: none
  std::string shape;  // "[64,10]"; empty: unknown
  int32_t type = 0;   // tensorflow::DataType, 0: unknown
  Region region = Region::kUnknown;
  bool running = false;  // op runs now; else it is the last that ran on this thread
};

// What is known on this thread now, for a chunk that is handed out or (without shape and region) taken back.
Asked asked_now(bool taken_back);

}  // namespace peakmem
