"""GPU counters, pinned pages, the driver's part: what is read from elsewhere, with stand-ins for what is not here."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from peakmem.host.cuda_driver import EAGER, LAZY, driver_memory
from peakmem.host.gpus import GpuCounters, open_gpus
from peakmem.host.pinned import PinnedPages

MIB = 2**20


class Nvml:
    """Two cards; the second is not used."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        self.used = [100 * MIB, 5 * MIB]
        self.processes: list[list[Any]] = [[], []]
        self.started = False

    def nvmlInit(self) -> None:  # noqa: N802
        self.started = True

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> bytes:  # noqa: N802
        return b"NVIDIA Card"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=1000 * MIB, used=self.used[handle])

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:  # noqa: N802
        return self.processes[handle]


def test_gpu_memory_of_the_tree_is_told_by_process() -> None:
    nvml = Nvml()
    counters = GpuCounters(nvml)
    nvml.processes[0] = [
        SimpleNamespace(pid=7, usedGpuMemory=300 * MIB),
        SimpleNamespace(pid=8, usedGpuMemory=40 * MIB),
        SimpleNamespace(pid=9, usedGpuMemory=999 * MIB),
    ]
    assert counters({7, 8}) == 340 * MIB
    nvml.processes[0] = []
    counters({7, 8})
    (only,) = counters.highest()
    assert (only.index, only.name, only.used, only.whole_card) == (0, "NVIDIA Card", 340 * MIB, False)


def test_where_processes_are_not_told_the_growth_of_the_card_is() -> None:
    nvml = Nvml()
    counters = GpuCounters(nvml)
    nvml.used[0] = 450 * MIB
    nvml.processes[0] = [SimpleNamespace(pid=7, usedGpuMemory=None)]
    assert counters({7}) == 350 * MIB
    (only,) = counters.highest()
    assert (only.used, only.whole_card) == (350 * MIB, True)


def test_a_card_that_fails_is_passed_over() -> None:
    nvml = Nvml()
    counters = GpuCounters(nvml)

    def fails(handle: int) -> list[Any]:
        raise nvml.NVMLError

    nvml.nvmlDeviceGetComputeRunningProcesses = fails  # type: ignore[method-assign]
    assert counters({7}) == 0
    assert counters.highest() == ()


def test_without_the_package_or_without_a_gpu_there_are_no_counters(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert open_gpus() is None
    nvml = Nvml()

    def fails() -> None:
        raise nvml.NVMLError

    nvml.nvmlInit = fails  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert open_gpus() is None


def test_pinned_pages_that_nobody_wrote_are_added_and_our_own_taken_away(tmp_path: Path) -> None:
    pages = PinnedPages(tmp_path)
    pid = os.getpid()
    assert pages(pid) == 0  # nothing published yet
    file = os.memfd_create("pinned")
    os.truncate(file, 64 * MIB)
    os.pwrite(file, b"x" * 8 * MIB, 0)
    page = tmp_path / f"pinned-{pid}"
    page.write_bytes(struct.pack("=5QqQ", 64 * MIB, 64 * MIB, 32 * MIB, 32 * MIB, 3 * MIB, file, 2 * MIB))
    assert pages(pid) == (64 - 8 + 3 - 2) * MIB
    page.rename(tmp_path / f"pinned-{pid}.end")
    assert pages(pid) is None
    assert pages(pid) is None
    os.close(file)


def test_a_page_that_is_being_written_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "pinned-1").write_bytes(b"12")
    assert PinnedPages(tmp_path)(1) == 0


@pytest.mark.parametrize(("lazy", "size"), [(True, LAZY), (False, EAGER)])
def test_the_driver_takes_more_where_all_kernels_are_loaded(lazy: bool, size: int) -> None:
    assert driver_memory(lazy=lazy).size == size
    assert driver_memory(lazy=lazy).error > 0
