"""GPU memory that processes use, from NVML (package nvidia-ml-py), where there is a GPU."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from peakmem.host.measurement import GpuUse


@dataclass
class _Card:
    handle: Any
    index: int
    name: str
    total: int
    before: int
    by_process: int = 0
    growth: int = 0


class GpuCounters:
    """Reads NVML; its highest values are kept. Make it with `open_gpus`."""

    def __init__(self, nvml: Any) -> None:
        """`nvml` is the module, already initialised."""
        self._nvml = nvml
        self._cards = []
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            name = nvml.nvmlDeviceGetName(handle)
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            text = name.decode() if isinstance(name, bytes) else name
            self._cards.append(_Card(handle, index, text, int(memory.total), int(memory.used)))

    def __call__(self, pids: set[int]) -> int:
        """What these processes use now on all cards, bytes."""
        total = 0
        for card in self._cards:
            with contextlib.suppress(self._nvml.NVMLError):
                own = 0
                for process in self._nvml.nvmlDeviceGetComputeRunningProcesses(card.handle):
                    if process.pid in pids:
                        own += process.usedGpuMemory or 0  # None where the driver does not tell
                growth = max(int(self._nvml.nvmlDeviceGetMemoryInfo(card.handle).used) - card.before, 0)
                card.by_process, card.growth = max(card.by_process, own), max(card.growth, growth)
                total += own or growth
        return total

    def highest(self) -> tuple[GpuUse, ...]:
        """The highest use of each card that was used."""
        return tuple(
            GpuUse(
                index=card.index,
                name=card.name,
                total=card.total,
                used=card.by_process or card.growth,
                whole_card=not card.by_process,
            )
            for card in self._cards
            if card.by_process or card.growth
        )


def open_gpus() -> GpuCounters | None:
    """The GPUs of this machine; None without one, or without nvidia-ml-py."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        return GpuCounters(pynvml)
    except pynvml.NVMLError:
        return None
