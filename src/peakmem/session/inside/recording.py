"""The recording of one process: plain dicts, lists, strings and numbers, in the form `trace/recording.py` reads."""

import json
import os
import sys
import types
from contextlib import contextmanager

from .steps import is_steady
from .writing import plain

FORMAT = "peakmem/recording/1"
COUNTERS = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")


def describe(watch, reason):
    """What a `Watch` saw, as one dict.

    Args:
        watch: the watch of this process.
        reason: "end" (the script came to its own end) or "enough" (it was ended by peakmem).
    """
    torch = watch.torch
    devices = []
    for device in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(device)
        stats = torch._C._cuda_memoryStats(device)
        devices.append(
            {
                "name": properties.name,
                "total": properties.total_memory,
                "compute_capability": [properties.major, properties.minor],
                "peak": watch._peaks.get(device, {}),
                "segments": stats["segment"]["all"]["current"],
                **{name: stats.get(name, 0) for name in COUNTERS},
            }
        )
    snapshot = _snapshot(watch)
    operators, operator_names = watch.native.operators() if watch._recording else (b"", [])
    return {
        "format": FORMAT,
        "pid": os.getpid(),
        "command": plain(sys.orig_argv),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "architectures": torch.cuda.get_arch_list(),
        "cudnn": torch.backends.cudnn.version(),
        "python": sys.version.split()[0],
        "reason": reason,
        "error": plain(watch._error),
        "oom": plain(watch._oom),
        "devices": devices,
        "steps": [vars(step) for step in watch.clock.steps],
        "steady": is_steady([(step.allocated, step.reserved) for step in watch.clock.steps]),
        "marks": plain(watch.marks),
        "contexts": plain(watch.contexts.table),
        "events": watch.native.events() if watch._recording else b"",
        "snapshot": snapshot,
        "model": plain(watch.owners.model()),
        "owners": plain(watch.owners.notes.table()),
        "owners_failure": plain(watch.owners.failure),
        "autocast": watch.owners.autocast,
        "changes": [change.row() for change in watch.changes],
        "uses": watch.native.uses(),
        "operators": operators,
        "operator_names": operator_names,
        "reads_told": watch._values.reads_told(),
        "assumptions": plain(watch._values.assumptions() + watch.ledger.rows()),
        "library": json.loads(watch.native.report()),
        "host": plain(watch.host.describe()),
    }


def _snapshot(watch):
    """PyTorch's history; None without one, and where PyTorch can't give it: its own figures are right all the same."""
    if not watch._recording:
        return None
    try:
        with _nothing_compiled(watch.torch):
            return watch.torch.cuda.memory._snapshot()
    except RuntimeError as error:  # names of files that are no Unicode (PyTorch 2.14.1)
        watch.owners.failure = watch.owners.failure or f"PyTorch's history of allocations: {str(error).splitlines()[0]}"
        return None


@contextmanager
def _nothing_compiled(torch):
    """Spare the import of Inductor, whose code the history asks for its stacks, where none of its code ran.

    PyTorch 2.14.1, `torch/csrc/profiler/python/combined_traceback.cpp`, takes the attribute from `torch`.
    """
    if "torch._inductor" in sys.modules or "_inductor" in vars(torch):
        yield
        return
    cache = types.SimpleNamespace(stack_frames_for_code=lambda path, line: None)
    torch._inductor = types.SimpleNamespace(codecache=types.SimpleNamespace(PyCodeCache=cache))
    try:
        yield
    finally:
        del torch._inductor
