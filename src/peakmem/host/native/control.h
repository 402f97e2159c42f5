/* The control interface: what peakmem's own code calls in the process that it watches (ctypes.CDLL(None)). */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Resident memory as it would be if all that was asked of malloc for tensors had been written. All sizes are bytes. */
struct peakmem_host_state {
  uint64_t live;     /* asked for and not given back */
  uint64_t mapped;   /* pages of live blocks that malloc mapped one by one */
  uint64_t heap;     /* pages of malloc's heaps that live or earlier blocks lie in, and that were not given back */
  uint64_t outside;  /* resident pages of the process outside of these and of our own tables, when last looked at */
  uint64_t peak;     /* highest mapped + heap + outside since peakmem_host_reset_peak */
  uint64_t peak_live; /* live and outside, when that was reached */
  uint64_t peak_outside;
  uint64_t events;   /* blocks handed out and taken back so far */
};

struct peakmem_host_row {
  uint64_t event;
  uint64_t live;
  uint64_t resident; /* mapped + heap + outside */
};

struct peakmem_host_block {
  uint64_t address;
  uint64_t size;
};

/* Begins to follow PyTorch's operators. `computed`: names of those that are never skipped, separated by blanks. Then an
 * operator must be called with two tensors, which these are the addresses of (`Tensor._cdata`), and one with a list of
 * both. 0: not this PyTorch. */
int peakmem_host_watch_operators(const char *computed, const void *first, const void *second);
/* From now on operators are skipped, or no longer; returns whether they are, which takes that what they are called with
 * was recognised. */
int peakmem_host_skip_operators(int on);
/* How many were skipped. */
uint64_t peakmem_host_skipped(void);
/* 1 in a thread while code of ours runs in it, whose memory is not to come from malloc. The address of this thread's. */
int *peakmem_host_own(void);
/* 1 in a thread while everything is to be computed. The address of this thread's own. */
int *peakmem_host_compute(void);
/* Looks at the process's resident pages now, whatever it costs (about 10 ms for 6 GB). */
void peakmem_host_look(void);
void peakmem_host_read(struct peakmem_host_state *out);
/* Starts the peak anew from what is held now. */
void peakmem_host_reset_peak(void);
/* The blocks that were live at the highest peak of all, at most n; returns how many there were. */
uint64_t peakmem_host_peak_blocks(struct peakmem_host_block *out, uint64_t n);
/* Of the next so many blocks of exactly so many bytes this thread writes only a part; 0, 0, 0: of none. */
void peakmem_host_partly(uint64_t size, uint64_t written, uint64_t blocks);
/* Resident bytes of a live block, from /proc/self/pagemap. */
uint64_t peakmem_host_resident(uint64_t address, uint64_t size);
/* How resident memory went, thinned out; returns how many rows there are. */
uint64_t peakmem_host_course(const struct peakmem_host_row **rows);
/* Lets oneDNN's primitives be skipped with one thread too; 0 where there is no way to. PyTorch must be loaded. */
int peakmem_host_redirect_onednn(void);
/* When main is over, `live`, `mapped` and `heap` of then are written to this file, as JSON; with `leave` the process
 * then ends at once. Without it, libraries are unloaded as ever, and `touched` is written too: bytes of their files that
 * became resident by that. */
void peakmem_host_tell_at_end(const char *path, int leave);
/* Which of the stand-ins were used: names separated by blanks. */
int peakmem_host_report(char *out, int n);

#ifdef __cplusplus
}
#endif
