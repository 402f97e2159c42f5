// Which of PyTorch's operators are skipped: decided when the dispatcher calls one, by what it takes.
//
// PyTorch tells observers of each call (ATen/record_function.h, RecordFunction), with the arguments. A dispatch mode of
// Python would be told the same, but changes what it looks at: what it allocates and frees around each call falls between
// the requests of the operators, and malloc's heap takes another form (a transformer's then keeps 184 MiB free, where it
// keeps 388 to 528 without one). The observer allocates nothing.
//
// No header of PyTorch is used: RecordFunctionCallback has had this form since 1.12, arguments are asked for what they are
// through functions in C (torch/csrc/inductor/aoti_torch/c/shim.h), and where they lie is found out by two calls whose
// arguments are known (`peakmem_host_watch_operators`). Tested with 2.6.0, 2.13.0 and 2.14.1.
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <initializer_list>

#include "aside.h"
#include "books.h"
#include "control.h"
#include "results.h"
#include "torch.h"

namespace {

constexpr int64_t kLarge = 16384;  // elements of a tensor from which on skipping saves more than it costs
constexpr int kDepth = 1024;       // of calls in calls
constexpr size_t kSearched = 1024;  // bytes of a RecordFunction
constexpr int kNames = 1024;

// c10::IValue: eight bytes of payload, then the tag.
struct Value {
  void *payload;
  uint32_t tag;
};

// The forms of what is passed to and from an observer: addresses, and a null pointer that has a destructor.
struct Nothing {
  void *context = nullptr;
  ~Nothing() {}
};
struct Observer {
  Nothing (*start)(const void *);
  void (*end)(const void *, void *);
  double probability = 1;
  bool scopes[10] = {true};  // operators alone
  bool inputs = true, outputs = false, ids = false;
};

struct Places {
  size_t inputs = 0;  // of the arguments' address in a RecordFunction
  size_t elements = 0;  // of the first element's address in a list
  uint32_t tensor = 0, list = 0;  // tags
};
Places g_places;
const void *g_known[2];  // while places are being found: the tensors that are passed
enum { kOff, kFinding, kOn } g_state = kOff;

const char *(*g_name)(const void *);
size_t (*g_count)(const void *);
int (*g_numel)(const void *, int64_t *);
int (*g_dtype)(const void *, int32_t *);
int (*g_device)(const void *, int32_t *);

uint64_t g_computed[kNames];  // hashes of names, open addressing; 0: none
__thread int t_depth __attribute__((tls_model("initial-exec")));
__thread int t_forced __attribute__((tls_model("initial-exec")));
uint64_t g_skipped;

uint64_t hash(const char *name) {
  uint64_t value = 14695981039346656037ull;
  for (; *name; name++) value = (value ^ (uint8_t)*name) * 1099511628211ull;
  return value | 1;
}

bool is_computed(const char *name) {
  uint64_t wanted = hash(name);
  for (uint64_t i = wanted % kNames; g_computed[i]; i = (i + 1) % kNames)
    if (g_computed[i] == wanted) return true;
  return false;
}

// -- arguments ----------------------------------------------------------------------------------------------------------

bool is_float(int32_t dtype) {  // c10/core/ScalarType.h: with complex numbers and those of eight bits
  return (dtype >= 5 && dtype <= 10) || dtype == 15 || (dtype >= 23 && dtype <= 26) || dtype == 44;
}

// A tensor is the address of what it points to, which is also the form in which the functions in C take it.
bool is_large(const Value &value) {
  int64_t numel = 0;
  int32_t dtype = -1, device = -1;
  const void *tensor = &value.payload;
  return value.payload && !g_numel(tensor, &numel) && numel >= kLarge && !g_dtype(tensor, &dtype) && is_float(dtype) &&
         !g_device(tensor, &device) && device == 0;
}

struct Values {
  const Value *begin, *end;
};

Values arguments(const void *call) {
  auto *begin = *(const Value *const *)((const char *)call + g_places.inputs);
  return {begin, begin + ((const uint64_t *)((const char *)call + g_places.inputs))[1]};
}

Values elements(const Value &list) {
  auto *ends = (const Value *const *)((const char *)list.payload + g_places.elements);
  return {ends[0], ends[1]};
}

bool takes_large(Values values) {
  for (auto *value = values.begin; value < values.end; value++) {
    if (value->tag == g_places.tensor) {
      if (is_large(*value)) return true;
    } else if (value->tag == g_places.list) {
      Values inner = elements(*value);
      for (auto *one = inner.begin; one < inner.end; one++)
        if (one->tag == g_places.tensor && is_large(*one)) return true;
    }
  }
  return false;
}

int32_t dtype_of(const Value &value) {
  int32_t dtype = -1;
  if (value.tag == g_places.tensor && value.payload) g_dtype(&value.payload, &dtype);
  return dtype;
}

// Whether an operator that takes large floats gives numbers that sizes may hang on: it chooses by a mask, or writes in
// place to a tensor of integers.
bool must_be_true(const char *name, Values values) {
  size_t n = strlen(name);
  const Value *first = values.begin;
  if (strstr(name, "index") && values.end - first > 1 && first[1].tag == g_places.list) {
    Values inner = elements(first[1]);
    for (auto *one = inner.begin; one < inner.end; one++) {
      int32_t dtype = dtype_of(*one);
      if (dtype == 0 || dtype == 11) return true;  // uint8, bool
    }
  }
  bool in_place = n > 2 && name[n - 1] == '_' && name[n - 2] != '_';
  int32_t dtype = values.begin < values.end ? dtype_of(*first) : -1;
  return in_place && dtype >= 0 && !is_float(dtype);
}

// -- the observer -------------------------------------------------------------------------------------------------------

// Reads what may be no address at all: the kernel refuses to write it into a pipe then.
bool read_safely(const void *from, void *to, size_t n) {
  int ends[2];
  if (pipe(ends)) return false;
  bool done = write(ends[1], from, n) == (ssize_t)n && read(ends[0], to, n) == (ssize_t)n;
  close(ends[0]);
  close(ends[1]);
  return done;
}

bool are_known(const Value *values) {
  Value found[2];
  return read_safely(values, found, sizeof found) && found[0].payload == g_known[0] && found[1].payload == g_known[1] &&
         found[0].tag == found[1].tag;
}

void find_list(const Value &list) {
  for (size_t at = 8; at < 96; at += 8) {
    const Value *ends[2];
    if (!read_safely((const char *)list.payload + at, ends, sizeof ends)) return;
    if (ends[1] - ends[0] != 2 || !are_known(ends[0])) continue;
    g_places.elements = at;
    g_places.list = list.tag;
  }
}

void find_places(const void *call) {
  if (g_places.inputs) {  // the second call: of one that takes a list of both
    Values values = arguments(call);
    if (values.end > values.begin) find_list(*values.begin);
    return;
  }
  size_t n = g_count(call);
  for (size_t at = 0; at < kSearched; at += 8) {
    struct {
      const Value *begin;
      uint64_t n;
    } inputs;
    if (!read_safely((const char *)call + at, &inputs, sizeof inputs)) return;
    if (inputs.n != n || n < 2 || !are_known(inputs.begin)) continue;
    g_places.inputs = at;
    g_places.tensor = inputs.begin->tag;
    return;
  }
}

// An operator that takes memory which it gives back without having written it: of all operators of dense, convolutional
// and recurrent networks and of transformers one does, which was found by looking at the resident pages of each block when
// it was given back (PyTorch 2.13 and 2.14.1). It makes room for the gradient of its input twice, and fills the second.
bool leaves_unwritten(const char *name, Values values) {
  if (strcmp(name, "aten::native_batch_norm_backward") || values.end - values.begin < 2) return false;
  int64_t numel = 0;
  int32_t dtype = dtype_of(values.begin[1]);
  g_numel(&values.begin[1].payload, &numel);
  uint64_t size = dtype == 7 ? 8 : dtype == 6 ? 4 : 2;
  peakmem_host_partly(numel * size, 0, 1);
  return true;
}

enum Way { kAsBefore, kRun, kCompute, kSkip };

// What was before a call, and what began with it.
struct Before {
  bool skipping, forced, results, unwritten, gives, extreme;
  int kept;
};
__thread Before t_before[kDepth];

Way way_of(const char *name, const void *call) {
  if (!strstr(name, "::") || strpbrk(name, " <")) return kAsBefore;  // no operator: an autograd node, a script's own name
  bool ours = !strncmp(name, "aten::", 6) || strstr(name, "mkldnn");
  if (!ours || is_computed(name)) return kCompute;  // of other packages nobody knows what they decide by
  Values values = arguments(call);
  if (!takes_large(values)) return kRun;
  return must_be_true(name, values) ? kCompute : kSkip;
}

// By which operators make their results.
bool makes_room(const char *name) { return !strncmp(name, "aten::empty", 11) || !strcmp(name, "aten::resize_"); }

bool is_one_of(const char *name, std::initializer_list<const char *> names) {
  for (const char *one : names)
    if (!strcmp(name + 6, one)) return true;  // after "aten::"
  return false;
}

// Of no numbers they are infinite.
bool is_extreme(const char *name) { return is_one_of(name, {"max", "min", "amax", "amin", "aminmax"}); }

// What they give is filled by an operator that they call, which is skipped.
bool is_filled(const char *name) { return is_one_of(name, {"randn", "rand", "normal", "zeros", "ones", "full"}); }

Nothing start(const void *call) {
  peakmem::t_told = 0;
  Before none, &before = t_depth < kDepth ? t_before[t_depth] : none;
  before = {peakmem::t_skip != 0, t_forced != 0, peakmem::t_results != 0, false, false, false, peakmem::results()};
  t_depth++;
  if (g_state == kFinding) find_places(call);
  if (g_state != kOn || t_forced) return {};
  const char *name = g_name(call);
  Way way = way_of(name, call);
  if (way == kAsBefore) return {};
  peakmem::t_skip = way == kSkip;
  t_forced = way == kCompute;
  before.gives = way == kSkip || (way == kRun && is_filled(name));
  if (before.gives || !makes_room(name)) peakmem::t_results = before.gives;
  if (way != kSkip) return {};
  __sync_fetch_and_add(&g_skipped, 1);
  before.unwritten = leaves_unwritten(name, arguments(call));
  before.extreme = is_extreme(name);
  return {};
}

void end(const void *, void *) {
  t_depth--;
  if (t_depth >= kDepth || g_state != kOn) return;
  const Before &before = t_before[t_depth];
  if (before.unwritten) peakmem_host_partly(0, 0, 0);
  if (before.gives) peakmem::results_are_complete(before.kept, before.extreme);
  t_forced = before.forced;
  peakmem::t_skip = before.skipping;
  peakmem::t_results = before.results;
}

}  // namespace

API int *peakmem_host_compute(void) { return &t_forced; }
API uint64_t peakmem_host_skipped(void) { return g_skipped; }

API int peakmem_host_watch_operators(const char *computed, const void *first, const void *second) {
  for (const char *at = computed; *at;) {
    char name[128] = "aten::";
    size_t n = strcspn(at, " ");
    if (n < sizeof name - 7) memcpy(name + 6, at, n);
    uint64_t i = hash(name) % kNames;
    while (g_computed[i]) i = (i + 1) % kNames;
    g_computed[i] = hash(name);
    at += n + strspn(at + n, " ");
  }
  auto add = (uint64_t(*)(Observer))peakmem::next("_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE");
  g_name = (decltype(g_name))peakmem::next("_ZNK2at14RecordFunction4nameEv");
  g_count = (decltype(g_count))peakmem::next("_ZNK2at14RecordFunction10num_inputsEv");
  g_numel = (decltype(g_numel))peakmem::next("aoti_torch_get_numel");
  g_dtype = (decltype(g_dtype))peakmem::next("aoti_torch_get_dtype");
  g_device = (decltype(g_device))peakmem::next("aoti_torch_get_device_type");
  if (!add || !g_name || !g_count || !g_numel || !g_dtype || !g_device) return 0;
  g_known[0] = first;
  g_known[1] = second;
  g_state = kFinding;
  Observer observer;
  observer.start = start;
  observer.end = end;
  add(observer);
  return 1;
}

API int peakmem_host_skip_operators(int on) {
  bool known = g_places.inputs && g_places.elements;
  g_state = on && known ? kOn : kOff;
  return g_state == kOn;
}

// Fills large tensors number by number, without a parallel region (ATen/native/cpu/DistributionTemplates.h).
API void *fill_with_normal(void *self, double mean, double deviation, void *generator) __asm__(
    "_ZN2at6native7normal_ERNS_6TensorEddSt8optionalINS_9GeneratorEE");
void *fill_with_normal(void *self, double mean, double deviation, void *generator) {
  if (peakmem::t_skip) return self;
  static auto real = (void *(*)(void *, double, double, void *))peakmem::next(
      "_ZN2at6native7normal_ERNS_6TensorEddSt8optionalINS_9GeneratorEE");
  return real ? real(self, mean, deviation, generator) : self;
}
