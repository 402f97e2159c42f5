"""Does the virtual GPU work here? A small real training step says so."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from peakmem.vgpu.build import ensure_library
from peakmem.vgpu.elf import dynamic_symbols
from peakmem.vgpu.launch import DeviceFacts, environment
from peakmem.vgpu.probe import TorchFacts

_COVERED = re.compile(r"(_*cuda[A-Z]|cu[A-LN-Z][a-z]|cuM(em|odule|ulti)|cublas|cusolver|cusparse(?!Lt)|cufft|nvml)")
_ELSEWHERE = re.compile(r"cuFile")  # GPUDirect Storage: its own library answers that there is none
_IMPORTERS = (
    "libc10_cuda.so",
    "libtorch_cuda.so",
    "libtorch_cuda_linalg.so",
    "libtorch_python.so",
    "libcaffe2_nvrtc.so",
)

_SCRIPT = """
import json, sys, time
started = time.perf_counter()
import torch
imported = time.perf_counter() - started
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4),
    torch.nn.Flatten(), torch.nn.Linear(256, 10),
).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    images = torch.randn(8, 3, 32, 32, device="cuda")
    labels = torch.randint(10, (8,), device="cuda")
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
torch.cuda.synchronize()
stats = torch.cuda.memory_stats()
import ctypes
library = ctypes.CDLL(None)
library.peakmem_event_count.restype = ctypes.c_uint64
text = ctypes.create_string_buffer(1 << 20)
library.peakmem_report(text, 1 << 20)
with open(sys.argv[1], "w") as file:
    json.dump({
        "torch": torch.__version__, "device": torch.cuda.get_device_name(), "import_seconds": imported,
        "seconds": time.perf_counter() - started, "cudnn": torch.backends.cudnn.version(),
        "allocated": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"],
        "blocks": stats["allocation.all.allocated"], "events": library.peakmem_event_count(),
        "report": json.loads(text.value),
    }, file)
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """What a training step on the virtual GPU gave.

    Attributes:
        works: whether it ran and its figures are in order.
        problem: what is wrong, one line; empty if it works.
        torch: version that ran; empty if none did.
        cudnn: version number of the cuDNN that ran, or None.
        seconds: for everything, the import of torch included.
        allocated: peak, bytes.
        reserved: peak, bytes.
        unsupported: calls that failed, by name, with their number.
        estimates: answers that are estimates, by what they are for, with their number.
        missing_symbols: functions of the CUDA libraries that this PyTorch asks for and the virtual GPU does not have.
    """

    works: bool
    problem: str
    torch: str = ""
    cudnn: int | None = None
    seconds: float = 0.0
    allocated: int = 0
    reserved: int = 0
    unsupported: tuple[tuple[str, int], ...] = ()
    estimates: tuple[tuple[str, int], ...] = ()
    missing_symbols: tuple[str, ...] = ()


def missing_symbols(facts: TorchFacts, library: Path) -> tuple[str, ...]:
    """Functions of CUDA's runtime, driver, NVML and math libraries that PyTorch imports and the library lacks."""
    wanted: set[str] = set()
    for name in _IMPORTERS:
        path = facts.folder / "lib" / name
        if path.exists():
            wanted |= {s for s in dynamic_symbols(path).undefined if _COVERED.match(s) and not _ELSEWHERE.match(s)}
    return tuple(sorted(wanted - dynamic_symbols(library).defined))


def check(
    facts: TorchFacts,
    device: DeviceFacts,
    *,
    progress: Callable[[str], None] | None = None,
    timeout: float = 120.0,
) -> Check:
    """Run two training steps of a small network (convolution, linear layer, Adam) on the virtual GPU.

    Args:
        facts: the PyTorch to use.
        device: the card to stand for.
        progress: called with a line of text while the library is being built.
        timeout: seconds after which the child is stopped.

    Raises:
        PeakmemError: the library can't be built.
    """
    library = ensure_library(facts, progress=progress)
    missing = missing_symbols(facts, library)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="peakmem-check-") as folder:
        result = Path(folder, "result.json")
        env = environment(library=library, device=device, facts=facts)
        try:
            done = subprocess.run(
                [facts.python, "-c", _SCRIPT, str(result)],
                capture_output=True,
                text=True,
                errors="replace",
                env=env,
                cwd=folder,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Check(works=False, problem=f"it did not end within {timeout:.0f} s", missing_symbols=missing)
        seconds = time.perf_counter() - started
        if not result.exists() or done.returncode:
            last = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "no message")
            return Check(
                works=False,
                problem=f"exit code {done.returncode}: {last.strip()}",
                seconds=seconds,
                missing_symbols=missing,
            )
        found = json.loads(result.read_text())
    return judge(found, seconds=seconds, missing=missing, device=device)


def judge(found: dict[str, object], *, seconds: float, missing: tuple[str, ...], device: DeviceFacts) -> Check:
    """Judge what the child wrote."""
    report = found["report"]
    assert isinstance(report, dict)
    problem = ""
    if found["device"] != device.name:
        problem = f"torch sees {found['device']!r}, not the virtual GPU"
    elif not found["events"]:
        problem = "no block of memory was recorded: this PyTorch does not report them in the known way"
    elif report["devices"][0]["used"] != found["reserved"]:
        problem = f"PyTorch holds {found['reserved']} bytes, the virtual GPU gave {report['devices'][0]['used']}"
    cudnn = found["cudnn"]
    return Check(
        works=not problem,
        problem=problem,
        torch=str(found["torch"]),
        cudnn=cudnn if isinstance(cudnn, int) else None,
        seconds=seconds,
        allocated=int(str(found["allocated"])),
        reserved=int(str(found["reserved"])),
        unsupported=tuple(sorted(report.get("unsupported", {}).items())),
        estimates=tuple(sorted(report.get("estimate", {}).items())),
        missing_symbols=missing,
    )
