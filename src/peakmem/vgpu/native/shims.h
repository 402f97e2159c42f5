/* What the stand-ins for the CUDA libraries (cuBLAS, cuDNN, NVML...) ask of the virtual device. Plain C, inside the library. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Facts of the device; a null pointer is skipped. mem: bytes, what a program is told. cc: 10 * major + minor. */
void vgpu_info(int *cc, int *sms, size_t *mem, const char **name, int *count);
/* cudaDeviceGetAttribute by number. */
int vgpu_attr(int attribute);
/* Bytes of the device that are taken, context included. */
size_t vgpu_used(int device);
/* The CUDA version that the caller was built for, as 1000 * major + 10 * minor. */
int vgpu_cuda_version(void);
/* A line in PEAKMEM_VGPU_KERNEL_LOG, if there is one. */
void vgpu_log(const char *line);
/* Counts something that the report must name: kind is "unsupported" (the call failed), "substitute" (answered by
 * something else) or "estimate" (a size that is an estimate). `what` is copied. */
void vgpu_note(const char *kind, const char *what);
/* As vgpu_note("unsupported", name), with a line on standard error if PEAKMEM_VGPU_DEBUG is set; gives back rc. */
int vgpu_unsupported(const char *name, int rc);
/* A decomposition was started on this thread. PyTorch then asks by a read of one byte whether any of its `info` values is
 * not zero (at::native::_linalg_check_errors): such a read gives 0, since on the virtual GPU it succeeds. `before`: reads of
 * one byte that PyTorch makes in between. */
void vgpu_solved(int before);
/* The driver function of this name (cuLaunchKernel...), or null. */
void *vgpu_driver_symbol(const char *name);

#ifdef __cplusplus
}
#endif
