"""Which environment variable a PyTorch version reads its settings from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from peakmem.allocator.settings.version import TorchVersion

CUDA, HIP, PLAIN = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
NO_CACHING = "PYTORCH_NO_CUDA_MEMORY_CACHING"
ALL = (CUDA, HIP, PLAIN)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sources:
    """Where a process reads its settings.

    Attributes:
        common: the variable that the common keys (max_split_size_mb ...) are taken from; None if none is set.
        cuda: the variable that the CUDA keys (backend, pinned_num_register_threads ...) are taken from; None if none.
        ignored: variables that are set and read by neither.
    """

    common: str | None
    cuda: str | None
    ignored: tuple[str, ...]


def order(version: TorchVersion, *, platform: str = "cuda") -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The variables that the common and the CUDA reader look at, the first that is set wins.

    A variable that is set but empty counts as set. Values are never merged.
    Sources: PyTorch 2.14.1, c10/core/AllocatorConfig.cpp and c10/cuda/CUDAAllocatorConfig.h (compared with the
    release); 2.9.1, whose libc10_cuda.so holds the CUDA name only, though its libc10.so warns that it is deprecated;
    the headers of 2.2 to 2.13. On ROCm the build renames CUDA to HIP up to 2.7; from 2.8 on both names are read.
    """
    rocm = platform == "rocm"
    if version.at_least("2.10"):
        return (CUDA, HIP, PLAIN), ((CUDA, HIP, PLAIN) if rocm else (CUDA, PLAIN))
    if rocm:
        names: tuple[str, ...] = (CUDA, HIP) if version.at_least("2.8") else (HIP,)
    else:
        names = (CUDA,)
    return names, names


def sources(environment: Mapping[str, str], version: TorchVersion, *, platform: str = "cuda") -> Sources:
    """Which of the variables set in an environment are read."""
    common_order, cuda_order = order(version, platform=platform)
    common = next((name for name in common_order if name in environment), None)
    cuda = next((name for name in cuda_order if name in environment), None)
    ignored = tuple(name for name in ALL if name in environment and name not in (common, cuda))
    return Sources(common=common, cuda=cuda, ignored=ignored)


def preferred(version: TorchVersion, *, platform: str = "cuda") -> str:
    """The variable to write for this version: read by every reader, and first of those."""
    common_order, cuda_order = order(version, platform=platform)
    return next(name for name in common_order if name in cuda_order)
