"""A `Forecast` of what really happened: training on a real GPU, seen through PyTorch's own counters and history."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import peakmem
from peakmem.errors import PeakmemError
from peakmem.forecast.model import (
    Forecast,
    Gpu,
    OutOfMemory,
    Peak,
    ScriptError,
    StepPeak,
    judge,
)

if TYPE_CHECKING:
    from peakmem.trace.model import Trace

_COUNTERS = ("requested", "allocated", "active", "reserved")
_ALLOC_CONF = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class Watching:
    """Watches one GPU from `start` to `stop`.

    The counters of PyTorch's peaks start anew at `start`, as `torch.cuda.reset_peak_memory_stats` does it; after `stop`
    they stand at the peak of what was watched, unless the program has reset them itself.
    """

    def __init__(self, device: int) -> None:
        self._device = device
        self._started = 0.0
        self._step_ends: list[int] = []
        self._oom: dict[str, Any] | None = None
        self._hook: Any = None
        self._forecast: Forecast | None = None

    @property
    def forecast(self) -> Forecast:
        """What the watched training took.

        Raises:
            PeakmemError: it is being watched still.
        """
        if self._forecast is None:
            raise PeakmemError("it is being watched still", hint="read .forecast after the with block")
        return self._forecast

    def start(self) -> None:
        """Begin.

        Raises:
            PeakmemError: PyTorch sees no such GPU.
        """
        try:
            import torch
        except ImportError as error:
            raise PeakmemError("peakmem.watch watches PyTorch, which is not here", hint="pip install torch") from error
        if not torch.cuda.is_available() or self._device >= torch.cuda.device_count():
            raise PeakmemError(
                f"PyTorch sees no GPU with the index {self._device}",
                hint="without a GPU, peakmem.predict and peakmem run tell what a training would take",
            )
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats(self._device)
        torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python")
        optimizer = sys.modules["torch.optim.optimizer"]
        self._hook = optimizer.register_optimizer_step_post_hook(self._stepped)
        torch._C._cuda_attach_out_of_memory_observer(self._out_of_memory)
        self._started = time.monotonic()

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._step_ends.append(time.time_ns() // 1000)

    def _out_of_memory(self, device: int, requested: int, total: int, free: int) -> None:
        frame = traceback.extract_stack()[-2]
        self._oom = {
            "requested": requested,
            "free": free,
            "step": len(self._step_ends),
            "line": f"{frame.filename}:{frame.lineno}",
        }

    def stop(self, error: BaseException | None) -> None:
        """End, and make the forecast.

        Args:
            error: what the training failed with, if it did.
        """
        import torch

        seconds = time.monotonic() - self._started
        self._hook.remove()
        stats = torch.cuda.memory_stats(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        snapshot = torch.cuda.memory._snapshot(self._device)
        torch.cuda.memory._record_memory_history(None)
        properties = torch.cuda.get_device_properties(self._device)
        context, notes = _context(total - free - stats["reserved_bytes.all.current"])
        trace = _trace(snapshot)
        held = _held(trace, self._device)
        # The program may have reset PyTorch's peaks in between: the history tells of those before.
        seen = _highest(trace, self._device)
        highest = {name: max(stats[f"{name}_bytes.all.peak"], seen.get(name, 0)) for name in _COUNTERS}
        peak = Peak(
            **highest,
            context=context,
            context_error=0,
            used=highest["reserved"] + context,
            line=held.line if held else None,
            op=held.op if held else None,
        )
        failed = isinstance(error, torch.OutOfMemoryError)
        oom = self._out(peak, caught=not failed)
        self._forecast = Forecast(
            peakmem=peakmem.__version__,
            torch=str(torch.__version__),
            command=tuple(sys.argv),
            verdict=judge(used=peak.used, total=properties.total_memory, failed=failed),
            gpu=Gpu(
                name=properties.name,
                total=properties.total_memory,
                compute_capability=f"{properties.major}.{properties.minor}",
                usable=max(properties.total_memory - context, 0),
            ),
            alloc_conf=next((os.environ[name] for name in _ALLOC_CONF if name in os.environ), ""),
            peak=peak,
            steps=_steps(trace, self._device, self._step_ends),
            steady=False,
            stopped="end",
            floor=None,
            segments=stats["segment.all.current"],
            retries=stats["num_alloc_retries"],
            ooms=stats["num_ooms"],
            oom=oom,
            error=None if error is None or failed else _error(error),
            convolution_range=None,
            roles_at_peak=held.roles if held else {},
            holders_at_peak=held.holders if held else (),
            notes=("watched on a real GPU: every figure is PyTorch's own", *notes),
            seconds=round(seconds, 2),
        )

    def _out(self, peak: Peak, *, caught: bool) -> OutOfMemory | None:
        if self._oom is None:
            return None
        return OutOfMemory(
            requested=self._oom["requested"],
            missing=max(self._oom["requested"] - self._oom["free"], 0),
            step=self._oom["step"],
            phase="other",
            op=None,
            module=None,
            line=self._oom["line"],
            needed=None,
            caught=caught,
        )


def _context(outside: int) -> tuple[int, tuple[str, ...]]:
    """What the device holds outside this allocator, bytes, and what may be wrong with it."""
    note = "context: what the device held outside PyTorch's allocator, other processes on it included"
    return max(outside, 0), (note,)


def _error(error: BaseException) -> ScriptError:
    frames = traceback.extract_tb(error.__traceback__)
    line = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None
    return ScriptError(type=type(error).__name__, message=str(error), line=line)


def _trace(snapshot: dict[str, Any]) -> Trace | None:
    """The history as a trace; None if it can't be read."""
    import pickle

    from peakmem.trace.load import import_snapshot

    with tempfile.TemporaryDirectory(prefix="peakmem-watch-") as folder:
        path = Path(folder, "snapshot.pickle")
        path.write_bytes(pickle.dumps(snapshot))
        try:
            return import_snapshot(path)
        except PeakmemError:
            return None


def _highest(trace: Trace | None, device: int) -> dict[str, int]:
    from peakmem.trace.replay import Replay

    if trace is None or not len(trace.events):
        return {}
    line = Replay(trace, device).timeline
    return {name: int(getattr(line, name).max()) for name in _COUNTERS}


def _held(trace: Trace | None, device: int) -> Any:
    from peakmem.forecast.holders import at_peak

    if trace is None or not len(trace.events):
        return None
    return at_peak(trace, device=device)


def _steps(trace: Trace | None, device: int, ends: list[int]) -> tuple[StepPeak, ...]:
    """The peaks of each step: between the times at which optimizers ended."""
    if trace is None or not len(trace.events) or not trace.events.time_us.any():
        return ()
    import numpy as np

    from peakmem.trace.replay import Replay

    line = Replay(trace, device).timeline
    places = np.searchsorted(trace.events.time_us, ends, side="right")
    steps, first = [], 0
    for index, end in enumerate(places.tolist()):
        moments = slice(first, max(end, first) + 1)
        steps.append(
            StepPeak(
                index=index,
                requested=int(line.requested[moments].max()),
                allocated=int(line.allocated[moments].max()),
                active=int(line.active[moments].max()),
                reserved=int(line.reserved[moments].max()),
                backwards=1,
                optimizers=1,
            )
        )
        first = max(end, first)
    return tuple(steps)
