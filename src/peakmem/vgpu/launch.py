"""The environment that puts the virtual GPU in place for a program and everything that it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from peakmem.vgpu.probe import TorchFacts
from peakmem.vgpu.tensorflow import TensorflowFacts

STORED_FOR_TENSORFLOW = 4096
"""Bytes up to which copies are kept for TensorFlow, which reads constants (shapes, ranges) back from the device."""

NO_LIMIT = 2**62
"""A capacity (bytes) that nothing reaches."""


class DeviceFacts(Protocol):
    """The fields of a catalogue `Device` that the library is told."""

    @property
    def name(self) -> str:
        """As `torch.cuda.get_device_name` gives it."""

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor."""

    @property
    def multiprocessors(self) -> int:
        """Streaming multiprocessors."""

    @property
    def total_memory(self) -> int:
        """Bytes, as `torch.cuda.get_device_properties` gives them."""

    @property
    def smi_memory(self) -> int | None:
        """Bytes that nvidia-smi gives as the total; None where that is not known."""

    @property
    def l2_cache(self) -> int:
        """Bytes."""

    @property
    def shared_memory_per_multiprocessor(self) -> int:
        """Bytes."""

    @property
    def shared_memory_per_block_optin(self) -> int:
        """Bytes."""

    @property
    def threads_per_multiprocessor(self) -> int:
        """Most threads that are resident at a time."""

    @property
    def blocks_per_multiprocessor(self) -> int:
        """Most blocks that are resident at a time."""

    @property
    def clock_khz(self) -> int:
        """Boost clock, kHz."""

    @property
    def memory_clock_khz(self) -> int:
        """kHz."""

    @property
    def memory_bus_width(self) -> int:
        """Bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """How the virtual GPU behaves.

    Attributes:
        capacity: bytes that can be handed out; None: the device's memory. May be less, or more (`NO_LIMIT`).
        context: bytes of the capacity that the CUDA context takes.
        count: number of devices, all alike.
        addresses: which addresses the driver hands out: `driver` (as seen on cards), `up`, `down`, `random:SEED`.
        events: when a recorded event is complete: `instant`, or `sync` (when the host synchronises).
        store: copies and fills of up to so many bytes are really kept (host memory is used for them).
        true_byte: the value (0 to 255) of a one-byte read from the device, which is what `bool(tensor)` sees.
        cudnn: whose workspace a convolution has: `likely` (cuDNN's own plans with the rule for 1x1 filters, the
            default), `own` (cuDNN's plans as it makes them without a device) or `least` (none).
        cudnn_library: another libcudnn.so.9, or its folder, to load in place of PyTorch's; None: what
            PEAKMEM_VGPU_CUDNN_LIBRARY names in the environment to start from.
        cudnn_log: file that gets a line for each plan of cuDNN.
        kernel_log: file that gets a line for each kernel launch.
        debug: 1: calls that are not supported go to standard error; 2: every block of memory too.
    """

    capacity: int | None = None
    context: int = 0
    count: int = 1
    addresses: str = "driver"
    events: str = "instant"
    store: int = 0
    true_byte: int = 0
    cudnn: str | None = None
    cudnn_library: Path | None = None
    cudnn_log: Path | None = None
    kernel_log: Path | None = None
    debug: int = 0


def environment(
    *,
    library: Path,
    device: DeviceFacts,
    facts: TorchFacts,
    options: Options | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Give the whole environment of a program that is to run on the virtual GPU.

    Args:
        library: what `build.ensure_library` gave.
        device: the card to stand for.
        facts: the PyTorch that will run, for the version of CUDA.
        options: how the card behaves.
        base: the environment to start from; that of this process by default.
    """
    chosen = options or Options()
    env = dict(os.environ if base is None else base)
    cudnn_library = chosen.cudnn_library or env.get("PEAKMEM_VGPU_CUDNN_LIBRARY")
    for name in [name for name in env if name.startswith("PEAKMEM_VGPU_")]:
        del env[name]
    env["LD_LIBRARY_PATH"] = _joined(":", str(library.parent), env.get("LD_LIBRARY_PATH", ""))
    tensorflow = isinstance(facts, TensorflowFacts)
    if isinstance(facts, TensorflowFacts):
        # TensorFlow opens the libraries by name, and finds these before the ones in its own folders.
        env["LD_LIBRARY_PATH"] = _joined(":", str(library.parent / "tensorflow"), env["LD_LIBRARY_PATH"])
        cudnn_library = cudnn_library or facts.cudnn_folder
    # LD_PRELOAD is split at blanks, without quoting; a bare name is looked for in LD_LIBRARY_PATH.
    preload = library.name if any(c.isspace() for c in str(library)) else str(library)
    env["LD_PRELOAD"] = _joined(" ", preload, env.get("LD_PRELOAD", ""))
    env["TRITON_LIBCUDA_PATH"] = str(library.parent)
    env.pop("CUDA_VISIBLE_DEVICES", None)  # of this machine's own cards
    capacity = device.total_memory if chosen.capacity is None else chosen.capacity
    major, minor = device.compute_capability
    values = {
        "NAME": device.name,
        "COMPUTE_CAPABILITY": f"{major}.{minor}",
        "MULTIPROCESSORS": device.multiprocessors,
        "TOTAL_MEMORY": device.total_memory,
        "SMI_MEMORY": device.smi_memory,
        "CAPACITY": capacity,
        "CONTEXT": chosen.context,
        "COUNT": chosen.count,
        "L2_CACHE": device.l2_cache,
        "SHARED_MEMORY_PER_MULTIPROCESSOR": device.shared_memory_per_multiprocessor,
        "SHARED_MEMORY_PER_BLOCK_OPTIN": device.shared_memory_per_block_optin,
        "THREADS_PER_MULTIPROCESSOR": device.threads_per_multiprocessor,
        "BLOCKS_PER_MULTIPROCESSOR": device.blocks_per_multiprocessor,
        "CLOCK_KHZ": device.clock_khz,
        "MEMORY_CLOCK_KHZ": device.memory_clock_khz,
        "MEMORY_BUS_WIDTH": device.memory_bus_width,
        "CUDA": facts.cuda_number,
        "ADDRESSES": chosen.addresses,
        "EVENTS": chosen.events,
        "DRIVER": 1 if tensorflow else None,
        "STORE": max(chosen.store, STORED_FOR_TENSORFLOW) if tensorflow else chosen.store,
        "BOOL": chosen.true_byte,
        "CUDNN": chosen.cudnn,
        "CUDNN_LIBRARY": cudnn_library or None,
        "CUDNN_LOG": chosen.cudnn_log,
        "KERNEL_LOG": chosen.kernel_log,
        "DEBUG": chosen.debug or None,
    }
    env.update({f"PEAKMEM_VGPU_{key}": str(value) for key, value in values.items() if value is not None})
    return env


def _joined(separator: str, first: str, rest: str) -> str:
    return f"{first}{separator}{rest}" if rest else first
