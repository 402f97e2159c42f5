// What the environment says about the virtual GPU. Read once, at the first call.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace peakmem {

enum class Order { kDriver, kUp, kDown, kRandom };

struct Config {
  char name[256];
  int capability = 80;  // 10 * major + minor
  int multiprocessors = 108;
  int count = 1;
  size_t total = (size_t)16 << 30;     // bytes, what a program is told
  size_t smi_total = 0;                // bytes, the total that NVML gives, what the driver keeps back included; 0: total
  size_t capacity = (size_t)16 << 30;  // bytes, what can be handed out
  size_t context = 0;                  // bytes of the capacity that the context takes
  int l2 = 40 << 20;
  int shared_per_multiprocessor = 167936, shared_per_block_optin = 166912;
  int threads_per_multiprocessor = 2048, blocks_per_multiprocessor = 32;
  int clock_khz = 1410000, memory_clock_khz = 1593000, bus_width = 5120;
  int cuda_version = 13000;  // as cudaRuntimeGetVersion gives it
  Order order = Order::kDriver;
  unsigned seed = 1;
  bool events_sync = false;  // a recorded event completes when the host synchronises
  size_t store = 0;          // bytes up to which copies to the device are kept
  int boolean = 0;           // the byte that a one-byte copy from the device gives
  int driver = 0;            // whether programs that bring no CUDA runtime of their own find a device: TensorFlow, JAX
  int debug = 0;             // 1: calls that are not supported, 2: every block of memory
};

const Config &config();
inline int cuda_version() { return config().cuda_version; }
// Devices that the program sees. A program that sets CUDA_VISIBLE_DEVICES sees as many as it names there, whichever: the
// numbers are those of a machine we don't know. Fixed at the first call, as CUDA does it.
int device_count();
// The highest number of a device that the program names, plus one; at least config().count. What NVML counts.
int machine_device_count();
// The program's number of the machine's device; -1 if the program does not see it.
int visible_index(int machine_index);
// cudaDeviceGetAttribute's answer, 0 for what has no meaning here.
int attribute(int which);

}  // namespace peakmem
