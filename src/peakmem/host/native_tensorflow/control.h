/* The control interface: what peakmem's own code calls in the process that it watches (ctypes.CDLL(None)). */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All sizes are bytes. */
struct peakmem_tensorflow_state {
  uint64_t live;           /* of large tensors now: chunks of the allocator, or blocks of malloc's where it has none */
  uint64_t events;         /* large tensors handed out and taken back so far */
  uint64_t highest;        /* highest resident memory that was seen at one of them, since peakmem_tensorflow_reset_peak */
  uint64_t highest_live;   /* `live` at that moment */
  uint64_t regions;        /* size of all that the large tensors lie in */
  uint64_t resident;       /* of `regions`, pages that are resident now */
  uint64_t shared;         /* of `resident`, pages that stand for the same few of the machine's */
  uint64_t pool;           /* these few */
};

struct peakmem_tensorflow_row {
  uint64_t event;
  uint64_t live;
  uint64_t resident; /* of the whole process */
};

void peakmem_tensorflow_read(struct peakmem_tensorflow_state *out);
/* Starts `highest` anew from what is resident now. */
void peakmem_tensorflow_reset_peak(void);
/* How resident memory went, thinned out; returns how many rows there are. */
uint64_t peakmem_tensorflow_course(const struct peakmem_tensorflow_row **rows);

#ifdef __cplusplus
}
#endif
