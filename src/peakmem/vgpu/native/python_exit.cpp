// A clean end of Python processes.
//
// After the last backward pass autograd's device thread drops Python objects that it kept for the pass, and needs Python's
// lock (GIL) for that. A script that ends within 5 ms of the pass (Python's switch interval) gets there first: Python then
// ends every thread that asks for the lock with pthread_exit, which unwinds PyTorch's noexcept destructors, and the C++
// runtime aborts: "terminate called without an active exception", exit code 134. A computer with a card has the same fault;
// here there is no device to wait for, so scripts end sooner after the pass and meet it often.
//
// Two remedies. A function registered with Python's atexit gives the lock away for 10 ms, which lets those threads finish.
// And once Python is ending, pthread_exit halts the thread instead of unwinding it, as Python 3.14 does for the same reason
// (github.com/python/cpython/issues/87135).
#include "python_exit.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

#include "cuda_declarations.h"

namespace {

template <class F>
F *python(const char *name) {
  return (F *)dlsym(RTLD_DEFAULT, name);
}

bool is_ending() {
  static auto *ending = [] {
    auto *f = python<int()>("Py_IsFinalizing");
    return f ? f : python<int()>("_Py_IsFinalizing");  // before Python 3.13
  }();
  return ending && ending();
}

}  // namespace

void peakmem::wait_for_threads_at_exit() {
  static std::atomic<bool> done{false};
  if (done) return;
  auto *has_lock = python<int()>("PyGILState_Check");
  auto *error = python<void *()>("PyErr_Occurred");
  auto *import = python<void *(const char *)>("PyImport_ImportModule");
  auto *get = python<void *(void *, const char *)>("PyObject_GetAttrString");
  auto *call = python<void *(void *, const char *, const char *, ...)>("PyObject_CallMethod");
  auto *clear = python<void()>("PyErr_Clear");
  auto *drop = python<void(void *)>("Py_DecRef");
  if (!has_lock || !error || !import || !get || !call || !clear || !drop) {
    done = true;  // not a Python process
    return;
  }
  if (!has_lock() || error() || done.exchange(true)) return;
  void *atexit = import("atexit"), *time = import("time");
  void *sleep = time ? get(time, "sleep") : nullptr;
  void *result = atexit && sleep ? call(atexit, "register", "Od", sleep, 0.01) : nullptr;
  if (!result) clear();
  for (void *object : {atexit, time, sleep, result})
    if (object) drop(object);
}

API __attribute__((noreturn)) void pthread_exit(void *value) {
  while (is_ending()) pause();
  static auto *real = (void (*)(void *))dlsym(RTLD_NEXT, "pthread_exit");
  real(value);
  __builtin_unreachable();
}
