"""What NVIDIA's driver takes of a process's host memory: it is not in a process on the virtual GPU.

Published figures:

* pytorch/pytorch issue 113326 (PyTorch 2.2 nightly, CUDA 11.8, driver 515, RTX 3090, CUDA_MODULE_LOADING=LAZY; maximum
  resident set of GNU time): 322,040 kB after `import torch`, 438,632 kB after `torch.tensor(0, device="cuda")`:
  113.9 MiB. With all kernels loaded at once (by a fault that the issue is about): 2,056,600 kB, that is 1,694 MiB.
* MakazhanAlpamys/Soup issue 655 (PyTorch 2.9.1, CUDA 12.8, driver 570, L4): 276 MiB anonymous and 10 MiB shared memory
  after the start of CUDA with 1 MiB pinned. PyTorch 2.14.1 has 276 MiB anonymous before it, so most of the 114 MiB are
  pages of the driver's files.
* The same issue: 4 GiB pinned add 4 GiB to RssShmem to the page. Pinned memory is resident and counts as shared.
* pytorch/pytorch issue 12873 (2018, all kernels loaded at once): 1,122 MiB for the first tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.units import MIB

LAZY = 114 * MIB
"""Kernels that a run loads come on top; no figure for them is known."""
LAZY_ERROR = 114 * MIB
EAGER = 1694 * MIB
EAGER_ERROR = 572 * MIB
"""The two published figures differ by this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverMemory:
    """Resident host memory of the driver in one process, and how far that may be off, bytes."""

    size: int
    error: int


def driver_memory(*, lazy: bool) -> DriverMemory:
    """The estimate.

    Args:
        lazy: whether kernels are loaded when they are used (CUDA_MODULE_LOADING=LAZY, the default since PyTorch 1.13).
    """
    return DriverMemory(size=LAZY, error=LAZY_ERROR) if lazy else DriverMemory(size=EAGER, error=EAGER_ERROR)
