from __future__ import annotations

from pathlib import Path

import pytest

from peakmem.vgpu.catalogue import custom_device, find_device
from peakmem.vgpu.launch import NO_LIMIT, Options, environment
from peakmem.vgpu.probe import TorchFacts

FACTS = TorchFacts(
    python=Path("/usr/bin/python3"),
    python_version="3.12.1",
    machine="x86_64",
    version="2.6.0+cu124",
    cuda="12.4",
    cudnn=None,
    folder=Path("/site/torch"),
)
DEVICE = find_device("4090")
PREFIX = "PEAKMEM_VGPU_"


def make(library: str = "/cache/key/libpeakmem_vgpu.so", options: Options | None = None, **base: str) -> dict[str, str]:
    return environment(library=Path(library), device=DEVICE, facts=FACTS, options=options, base=base)


def test_the_device_and_the_version_of_cuda_are_told() -> None:
    env = make()
    assert env[PREFIX + "NAME"] == DEVICE.name
    assert env[PREFIX + "COMPUTE_CAPABILITY"] == "8.9"
    assert env[PREFIX + "TOTAL_MEMORY"] == env[PREFIX + "CAPACITY"] == str(DEVICE.total_memory)
    assert env[PREFIX + "CUDA"] == "12040"
    assert env[PREFIX + "ADDRESSES"] == "driver"
    assert PREFIX + "KERNEL_LOG" not in env


def test_nvidia_smi_is_told_what_the_driver_keeps_back_where_that_is_known() -> None:
    assert DEVICE.smi_memory is not None and DEVICE.smi_memory > DEVICE.total_memory
    assert make()[PREFIX + "SMI_MEMORY"] == str(DEVICE.smi_memory)
    shrunk = custom_device(memory=8 * 2**30, like=DEVICE)
    assert PREFIX + "SMI_MEMORY" not in environment(library=Path("/lib.so"), device=shrunk, facts=FACTS, base={})


def test_options_reach_the_library() -> None:
    env = make(options=Options(capacity=NO_LIMIT, context=5, addresses="random:3", events="sync", true_byte=1, debug=2))
    assert env[PREFIX + "CAPACITY"] == str(2**62)
    values = [env[PREFIX + name] for name in ("CONTEXT", "ADDRESSES", "EVENTS", "BOOL", "DEBUG")]
    assert values == ["5", "random:3", "sync", "1", "2"]


def test_what_the_user_loads_stays_behind_ours() -> None:
    env = make(LD_PRELOAD="/lib/jemalloc.so", LD_LIBRARY_PATH="/opt/lib", HOME="/home/me")
    assert env["LD_PRELOAD"] == "/cache/key/libpeakmem_vgpu.so /lib/jemalloc.so"
    assert env["LD_LIBRARY_PATH"] == "/cache/key:/opt/lib"
    assert env["HOME"] == "/home/me"


def test_a_folder_with_blanks_is_reached_by_the_search_path() -> None:
    env = make("/my cache/key/libpeakmem_vgpu.so")
    assert env["LD_PRELOAD"] == "libpeakmem_vgpu.so"
    assert env["LD_LIBRARY_PATH"] == "/my cache/key"


@pytest.mark.parametrize("name", ["PEAKMEM_VGPU_OLD", "CUDA_VISIBLE_DEVICES"])
def test_settings_for_another_device_do_not_reach_the_program(name: str) -> None:
    assert name not in make(**{name: "1"})
