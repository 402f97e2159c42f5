// What skipped operators give as their results: zeros, since numbers must be numbers, and indices valid ones.
#pragma once

#include <stddef.h>

namespace peakmem {

extern __thread int t_results;  // 1 in the call of a skipped operator, and in those by which it makes its results

// PyTorch took a block for a tensor while `t_results`, or gave one back.
void result_taken(void *p, size_t size);
void result_given_back(void *p);
// How many there are in this thread; and that those from a number on are complete, which `again` makes zeros again.
int results();
void results_are_complete(int from, bool again);

}  // namespace peakmem
