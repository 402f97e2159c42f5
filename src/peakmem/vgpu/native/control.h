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
/* The most that was requested of TensorFlow's allocator, before rounding, bytes. */
uint64_t peakmem_requested_peak(int device);
/* The last request that TensorFlow's allocator refused, bytes; 0: none. */
uint64_t peakmem_refused(void);
/* What TensorFlow said of the event of the same number; there is one for each event of its allocator. */
struct peakmem_chunk {
  uint64_t requested; /* bytes */
  uint32_t op;        /* number of a line in peakmem_chunk_names(): "name:type" of the operator */
  uint32_t shape;     /* likewise: "[64,10]" */
  int32_t type;       /* tensorflow::DataType, 0: unknown */
  uint16_t region;    /* 1: output, 2: temporary, 3: persistent, 4: dynamic, 0: unknown */
  uint16_t running;   /* 1: the operator ran when it happened; 0: it is the last that ran on the thread */
};
uint64_t peakmem_chunk_count(void);
const struct peakmem_chunk *peakmem_chunks(void);
const char *peakmem_chunk_names(void);
/* What was taken from the driver (a negative size: given back) before event number `event`, with TensorFlow alone: regions
 * of its allocator, and the little that XLA and others take beside it. */
struct peakmem_region {
  uint64_t event, address;
  int64_t size;
  uint32_t device, unused;
};
uint64_t peakmem_region_count(void);
const struct peakmem_region *peakmem_regions(void);
/* What comes on this thread has nothing to do with the operator that ran last. */
void peakmem_forget_last_operator(void);
/* Host memory that these logs, and what is kept of copies to the device, take, bytes. */
uint64_t peakmem_own_bytes(void);
/* What the next n copies of 1 to 8 bytes from the device give on this thread: the low bytes of each value. */
void peakmem_queue_reads(const int64_t *values, int n);
void peakmem_clear_reads(void);

/* What a block is used for, as a call showed after `event` events. */
struct peakmem_use {
  uint64_t event;
  uint64_t address; /* in the block */
  uint32_t use;     /* 1: workspace of cuBLAS, 2: workspace of cuBLASLt, 3: written by a copy from the host, 4: NCCL */
  uint32_t unused;
};
uint64_t peakmem_use_count(void);
const struct peakmem_use *peakmem_uses(void);

/* An operator, or a node of the autograd graph, that ran while events number first to end - 1 happened. */
struct peakmem_operator {
  uint64_t first, end;
  uint32_t name;   /* number of a line in peakmem_operator_names() */
  uint16_t thread; /* as in peakmem_event */
  uint16_t depth;  /* how many ran around it on its thread */
};
/* Starts watching operators; 0 if this PyTorch has no way to. Those without an event are left out. */
int peakmem_watch_operators(void);
uint64_t peakmem_operator_count(void);
const struct peakmem_operator *peakmem_operators(void);
const char *peakmem_operator_names(void);
/* Writes the names of what runs on this thread now, outermost first, each with a line end, and a closing zero; as much
 * as fits into n bytes. Gives back how many names were written. */
int peakmem_running_operators(char *out, int n);

/* Pinned host memory of this process, bytes. */
struct peakmem_pinned {
  uint64_t pinned, pinned_peak;         /* cudaHostAlloc: whole pages, resident on a GPU, here only once written */
  uint64_t registered, registered_peak; /* cudaHostRegister */
  uint64_t registered_absent;           /* of `registered`, pages that were not resident when they were registered */
  int64_t file;                         /* descriptor of the file that holds what is written of `pinned`; -1: none */
  uint64_t own;                         /* resident memory that is peakmem's own, as it told */
};
/* Keeps a struct peakmem_pinned up to date in a file from now on, for others to read; 0 if it can't be made. */
int peakmem_publish_pinned(const char *path);
uint64_t peakmem_pinned_now(void);
/* So many bytes of resident memory are peakmem's own now. */
void peakmem_tell_own(uint64_t bytes);

/* Writes a JSON object with its closing zero if it fits into n bytes; gives back its length without the zero. */
int peakmem_report(char *out, int n);

#ifdef __cplusplus
}
#endif
