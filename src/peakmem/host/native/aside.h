// Memory that is not to be asked of malloc: what is allocated only because somebody looks on.
//
// A piece of it may be cut from the free chunk that a tensor is to get. While it lives, or lies in a thread's cache after
// that (glibc, tcache), the chunk is no longer whole, and the heap grows: by 50 to 120 MiB in a network of convolutions
// that holds 150 free.
#pragma once

#include <stddef.h>

namespace peakmem {

extern __thread int t_told;  // 1 in a thread between PyTorch's question for observers of a call and the observer's call
extern __thread int t_own;   // 1 in a thread while code of peakmem runs in it

// Whether a request of this size, made now, is not the program's.
bool goes_aside(size_t size);
// Null: there is none left.
void *take_aside(size_t size);
// How much can be written there; 0: it did not come from here.
size_t size_aside(const void *p);
void give_back_aside(void *p);

}  // namespace peakmem
