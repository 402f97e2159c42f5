/* The control interface: what peakmem's own code calls in the process that it watches (ctypes.CDLL(None)). */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct peakmem_event {
  uint64_t address;
  int64_t size;       /* bytes: positive for a block handed out, negative for one taken back */
  uint64_t allocated; /* the allocator's totals after it, bytes */
  uint64_t reserved;
  uint32_t context; /* of peakmem_set_context() on the thread */
  uint16_t device;
  uint16_t thread; /* numbered from 0 in the order of their first event */
};

uint64_t peakmem_event_count(void);
const struct peakmem_event *peakmem_events(void);
void peakmem_set_context(uint32_t context);
uint32_t peakmem_context(void);
/* Forgets the events so far; nobody may be reading them. */
void peakmem_clear_events(void);
/* What each device can hand out from now on, bytes; what is handed out already stays so. */
void peakmem_set_capacity(uint64_t bytes);
/* Highest allocated and reserved bytes of a device since the last reset of these. */
void peakmem_peaks(int device, uint64_t out[2]);
void peakmem_reset_peaks(int device);
/* What the next n copies of 1 to 8 bytes from the device give on this thread: the low bytes of each value. */
void peakmem_queue_reads(const int64_t *values, int n);
void peakmem_clear_reads(void);
/* Writes a JSON object with its closing zero if it fits into n bytes; gives back its length without the zero. */
int peakmem_report(char *out, int n);

#ifdef __cplusplus
}
#endif
