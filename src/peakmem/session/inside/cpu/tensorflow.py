"""Watches one process that trains with TensorFlow on the CPU: its resident memory, its steps, its end.

The steps are real ones. What they write is counted by the kernel as ever (VmHWM); that it takes no memory of the
machine is the doing of `host/native_tensorflow/`.
"""

import contextlib
import os
import time
from typing import Any

from .. import stopping
from ..ending import Ending
from ..recording import FORMAT
from ..steps import StepClock, has_settled
from ..tensorflow_steps import Steps
from ..writing import Writer, plain
from .native_tensorflow import Native

LARGE = 256 << 10
"""Bytes from which on a tensor lies in the regions of TensorFlow's allocator (mkl_cpu_allocator.h, 2.21)."""
_STEADY_UNIT = 16 << 20
"""Resident memory is compared between steps in units of so many bytes: threads take and give back in another order."""


def install(tensorflow, settings):
    """Watch this process from now on, if the library is in it; gives the watch, or None."""
    writer = Writer(settings.folder)
    try:
        native = Native()
    except OSError as error:
        if "libpeakmem" not in os.environ.get(
            "LD_PRELOAD", ""
        ):  # else PyTorch is followed, which imports it by the way
            writer.progress("no_library", reason=str(error))
        return None
    watch = CpuTensorflowWatch(tensorflow, settings, native, writer)
    watch.install()
    return watch


class CpuTensorflowWatch(Ending):
    """All that is known of one process; written to the session's folder at its end."""

    def __init__(self, tensorflow, settings, native, writer):
        super().__init__(writer)
        self._tf = tensorflow
        self._native = native
        self._settings = settings
        self._clock = StepClock(settings.steps, settings.most_steps)
        self._stepping = Steps(tensorflow, self._stepped)
        self.keras_imported = self._stepping.keras_imported
        self._started = time.monotonic()
        self._highest: dict = {"resident": 0}
        self._rows = []
        self._marks = []
        self._base = self._own = 0

    def install(self):
        """Hook into TensorFlow."""
        self._base = status()["VmRSS"]
        self._stepping.install()
        self.watch_the_end()
        os.register_at_fork(after_in_child=self._forked)
        self.writer.progress("tensorflow", tensorflow=self._tf.__version__)
        self._own = max(0, status()["VmRSS"] - self._base)

    def _forked(self):
        self._finished = True

    # ------------------------------------------------------------------- hooks

    def _stepped(self, identity):
        if self._finished:
            return
        peak, state = self._look()
        step = len(self._clock.steps)
        rounded = -(-peak // _STEADY_UNIT) * _STEADY_UNIT
        self._clock.optimizer_stepped(identity, state.events, rounded, rounded)
        if len(self._clock.steps) > step:
            self._rows.append({"phases": {"other": 0}, "end": 0})
        row = self._rows[-1]
        row["phases"]["other"] = max(row["phases"]["other"], peak)
        row["end"] = status()["VmRSS"]
        self._marks.append((state.events, "optimizer", len(self._rows)))
        self.writer.progress("step", step=len(self._rows), allocated=state.live, reserved=peak)
        if self._enough():
            self.finish("enough")
            stopping.stop()

    def _enough(self):
        if self._settings.steps == "auto" and len(self._clock.steps) < self._settings.most_steps:
            return self._settled()
        return self._clock.enough()

    def _settled(self):
        return has_settled([-(-row["phases"]["other"] // _STEADY_UNIT) for row in self._rows])

    def _look(self):
        """The highest resident memory since the last look, bytes, and what is known of large tensors."""
        state = self._native.read()
        peak = status()["VmHWM"]
        # Both begin anew; where the kernel does not let us, the highest of all counts for each step.
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
        self._native.reset_peak()
        if peak > self._highest["resident"]:
            self._highest = {
                "resident": peak,
                "live": state.highest_live,
                "regions": state.resident,
                "shared": state.shared,
                "pool": state.pool,
                "step": len(self._clock.steps),
                "phase": "other",
            }
        return peak, state

    # --------------------------------------------------------------------- end

    def _write(self, reason):
        self._look()
        self.writer.recording(plain(self._recording(reason)))

    def _recording(self, reason):
        tf = self._tf
        return {
            "format": FORMAT,
            "device": "cpu",
            "devices": [],
            "pid": os.getpid(),
            "torch": "",
            "framework": f"TensorFlow {tf.__version__}",
            "reason": reason,
            "error": self._error,
            "oom": None,
            "seconds": time.monotonic() - self._started,
            "threads": tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0)),
            "steady": reason == "enough" and self._settings.steps == "auto" and self._settled(),
            "base": self._base,
            "own": self._own,
            "outside": 0,
            "late": {"with": "", "size": 0, "left_out": 0},
            "left": None,
            "highest": self._highest,
            "steps": self._rows,
            "backwards": [],
            "optimizers": [step.optimizers for step in self._clock.steps],
            "marks": self._marks,
            "course": self._native.course(),
            "roles": self._large_roles(),
            "at_fork": 0,
            "assumed": [],
        }

    def _large_roles(self):
        """{role: [bytes, number]} of variables that lie among the large tensors."""
        found: dict = {}
        counted: set = set()
        for optimizer in self._stepping.optimizers:
            trained = getattr(optimizer, "_trainable_variables", ())
            for role, variables in (("parameter", trained), ("optimizer state", optimizer.variables)):
                for variable in variables() if callable(variables) else variables:
                    size = size_of(variable)
                    if id(variable) in counted or size < LARGE:
                        continue
                    counted.add(id(variable))
                    row = found.setdefault(role, [0, 0])
                    row[0] += size
                    row[1] += 1
        rest = self._highest.get("live", 0) - sum(row[0] for row in found.values())
        if rest > 0:
            found["activation or temporary"] = [rest, 0]
        return found


def size_of(variable):
    """Bytes of a variable of Keras or TensorFlow."""
    value = getattr(variable, "value", None)
    tensor: Any = value if hasattr(value, "shape") else variable
    elements = 1
    for size in tensor.shape:
        elements *= int(size)
    return elements * int(getattr(tensor.dtype, "size", 4))


def status():
    """Resident memory of this process now (VmRSS) and its highest (VmHWM), bytes."""
    found = {}
    with open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith((b"VmHWM:", b"VmRSS:")):
                found[line[:5].decode()] = int(line.split()[1]) * 1024
    return found
